"""Categories as text: the one spelling that encoders and column names go by, and the way back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pandas as pd
from pandas.api import types
from rose_carla.datasets.schema import Schema
from rose_carla.datasets.values import is_missing, no_categories
from rose_carla.errors import DataError, short_repr


def as_text(values: pd.Series) -> pd.Series:
    """Categories as text, each for itself: of a column of days pandas writes the time only if some day has one.

    Raises
    ------
    DataError
        If a value is missing, or cannot be written.
    """
    missing = np.flatnonzero(is_missing(values))
    if len(missing):
        label = short_repr(values.index[missing[0]])
        raise DataError(f"{values.name!r} is missing in row {label}: fill it in, or drop the row.")
    return pd.Series(_texts(values.name, _one_by_one(values)), index=values.index, name=values.name, dtype=object)


def check_text(table: pd.DataFrame, schema: Schema) -> None:
    """Refuse categories that are no text."""
    for feature in schema.categorical:
        odd = [value for value in table[feature] if not isinstance(value, str)]
        if odd:
            raise DataError(
                f"Categories of {feature!r} have to be text, got {short_repr(odd[0])}: use datasets.from_frame."
            )


def originals(values: pd.Series) -> dict[str, Any] | None:
    """From the text of each category to its value; None if they are text themselves.

    Raises
    ------
    DataError
        If different values have the same text, or equal ones different texts: neither is one category.
    """
    each = _one_by_one(values)
    texts = _texts(values.name, each)
    try:
        pairs = list(dict.fromkeys(zip(texts, each, strict=True)))
        distinct = len(set(each))
        as_they_are = all(text is value or text == value for text, value in pairs)
    except Exception as error:  # values that can be neither hashed nor compared
        raise no_categories(values.name, error) from error
    if len(set(texts)) < len(pairs):
        raise DataError(f"Different values of {values.name!r} look the same as text: make them one type.")
    if distinct < len(pairs):
        raise DataError(f"Equal values of {values.name!r} differ as text, {_equal(pairs)}: write them in one way.")
    return None if as_they_are else dict(pairs)


def restored(texts: pd.Series, values: Mapping[str, Any]) -> pd.Series:
    """The values that ``texts`` stand for, as :func:`originals` tells."""
    kinds = {type(value) for value in values.values()}
    if len(kinds) > 1 or any(issubclass(kind, str) for kind in kinds):
        # pandas would make one type of several types of numbers, and text of what derives from it
        return pd.Series([values[text] for text in texts], index=texts.index, name=texts.name, dtype=object)
    return texts.map(values)


def _one_by_one(values: pd.Series) -> list[Any]:
    """Numbers as they are, of anything else the objects: pandas 1 takes days for numpy's, whose text is another."""
    some = values if types.is_numeric_dtype(values) else values.astype(object)
    return list(some.to_numpy() if isinstance(some.dtype, np.dtype) else some.array)


def _texts(name: Any, values: Iterable[Any]) -> list[str]:
    # not astype(str), which decodes bytes and takes a value that derives from text for text
    try:
        return [str(value) for value in values]
    except Exception as error:  # a user's values may be of any class
        raise no_categories(name, error) from error


def _equal(pairs: Iterable[tuple[str, Any]]) -> str:
    """The first two texts of one value."""
    known: dict[Any, str] = {}
    return next(
        f"{short_repr(known[value])} and {short_repr(text)}"
        for text, value in pairs
        if known.setdefault(value, text) != text
    )
