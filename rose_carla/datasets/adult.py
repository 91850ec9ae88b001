"""Adult Income, as CARLA processes it: 48,832 rows, 6 continuous and 7 binary features.

Source: UCI Adult (Becker and Kohavi, 1996), CC BY 4.0.
"""

from __future__ import annotations

import pandas as pd
from rose_carla.datasets.raw import raw_file
from rose_carla.datasets.schema import Schema

SCHEMA = Schema(
    name="adult",
    target="income",
    continuous=("age", "capital-gain", "capital-loss", "education-num", "fnlwgt", "hours-per-week"),
    categorical=("marital-status", "native-country", "occupation", "race", "relationship", "sex", "workclass"),
    immutables=("age", "sex"),
)

_RAW_COLUMNS = (
    "age workclass fnlwgt education education-num marital-status occupation relationship race sex "
    "capital-gain capital-loss hours-per-week native-country income"
).split()

#: column -> (values of the first kind, name of the first kind, name of all other values)
_TWO_KINDS = {
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


def frame() -> pd.DataFrame:
    """The table, row for row and column for column as in CARLA's ``adult.csv``."""
    read = {"header": None, "names": _RAW_COLUMNS, "skipinitialspace": True, "dtype": object}
    parts = [
        pd.read_csv(raw_file("adult/adult.data"), **read),
        pd.read_csv(raw_file("adult/adult.test"), skiprows=1, **read),  # its first line is a remark
    ]
    raw = pd.concat(parts, ignore_index=True).drop(columns="education")
    # CARLA's file fills an unknown value from the row above it, so the order of rows matters up to here.
    raw = raw.mask(raw == "?").ffill()
    raw = raw[raw["workclass"] != "Never-worked"].reset_index(drop=True)
    table = pd.DataFrame(index=raw.index)
    for column in raw.columns:
        if column in SCHEMA.continuous:
            table[column] = raw[column].astype("int64")
        elif column == SCHEMA.target:
            table[column] = raw[column].str.contains(">50K", regex=False).astype("int64")
        elif column in _TWO_KINDS:
            values, first, other = _TWO_KINDS[column]
            table[column] = raw[column].isin(values).map({True: first, False: other}).astype(object)
        else:
            table[column] = raw[column].astype(object)
    return table
