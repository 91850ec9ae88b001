"""Data sets: German Credit, Adult Income and COMPAS from raw files, and any table of a user's own."""

from __future__ import annotations

import dataclasses

import numpy as np
from rose_carla.datasets import adult, compas, german
from rose_carla.datasets.csv_files import from_csv
from rose_carla.datasets.dataset import Dataset, from_frame
from rose_carla.datasets.encoding import (
    encoded_columns,
    feature_groups,
    mutable_columns,
    nearest_valid,
    project_categories,
    valid_encodings,
)
from rose_carla.datasets.schema import Schema
from rose_carla.errors import DataError, short_repr, unknown_name

__all__ = [
    "NAMES",
    "Dataset",
    "Schema",
    "encoded_columns",
    "feature_groups",
    "from_csv",
    "from_frame",
    "load",
    "mutable_columns",
    "nearest_valid",
    "project_categories",
    "valid_encodings",
]

#: The paper's data sets, in the paper's order.
NAMES = ("german", "adult", "compas")


def load(
    name: str, *, form: str = "coded", all_actionable: bool = False, test_size: float = 0.2, seed: int = 0
) -> Dataset:
    """One of the paper's data sets as a CARLA ``DataCatalog``.

    Parameters
    ----------
    name
        ``"german"``, ``"adult"`` or ``"compas"``.
    form
        German only: ``"coded"`` is the paper's form, 20 label-coded numbers; ``"typed"`` has 7 continuous and 13
        categorical features.
    all_actionable
        Drop the immutable features' protection, as the paper does in its tables.
    test_size, seed
        Share of test rows and seed of the stratified split.

    Raises
    ------
    DataError
        For an unknown name or form.
    MissingPackageError
        If the package that carries the raw files is not installed.

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
    if not isinstance(form, str) or form not in german.SCHEMAS:
        raise DataError(unknown_name("form", form, german.SCHEMAS))
    if not isinstance(all_actionable, int | np.bool_):
        raise DataError(f"all_actionable has to be True or False, got {short_repr(all_actionable)}.")
    if name != "german" and form != "coded":
        raise DataError(f"Only 'german' has more than one form, not {name!r}.")
    if name == "german":
        frame, schema = german.frame(form), german.SCHEMAS[form]
    else:
        source = {"adult": adult, "compas": compas}[name]
        frame, schema = source.frame(), source.SCHEMA
    if all_actionable:
        schema = dataclasses.replace(schema, immutables=())
    return Dataset(frame, schema, test_size=test_size, seed=seed)
