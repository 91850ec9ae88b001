"""Unusual rows in original units and encoded rows: the right result, or an error."""

from __future__ import annotations

from decimal import Decimal

import numpy as np
import pandas as pd
import pytest
from rose_carla import datasets
from odd_tables import Incomparable, column, people
from rose_carla.errors import DataError


@pytest.fixture(scope="module")
def data():
    return datasets.from_frame(people(), "y", name="odd", immutables=["sex"])


@pytest.fixture(scope="module")
def encoded(data):
    return data.df.drop(columns="y").head(4)


# --- rows in raw units


@pytest.mark.parametrize(
    "values",
    [
        pd.to_datetime(["2024-01-01"]),
        pd.to_datetime(["2024-01-01"]).tz_localize("UTC"),
        pd.to_timedelta([1], unit="D"),
        pd.period_range("2024", periods=1, freq="D"),
        np.array([1j]),
        *(
            pd.Series([value], dtype=object)
            for value in (
                *(pd.Timestamp("2024-01-01"), pd.Timedelta(1), np.datetime64("2024-01-01"), np.timedelta64(1, "D")),
                *(1j, np.complex64(1j), 10**400, -(10**400), Decimal("sNaN"), Decimal("NaN"), [1], Incomparable()),
            )
        ),
    ],
)
@pytest.mark.parametrize("further", [{}, {"b": np.arange(40.0)}])
def test_other_values_than_numbers_are_rejected(values, further):
    data = datasets.from_frame(pd.DataFrame({"a": np.arange(40.0), **further, "y": [0, 1] * 20}), "y", name="odd")
    with pytest.raises(
        DataError, match=r"'a' (is .* in row 0, not a finite number|has values that are not finite numbers)"
    ):
        data.transform(pd.DataFrame({"a": values, **{name: [1.0] for name in further}}))


@pytest.mark.parametrize(
    "values",
    [
        [3, 12],
        ["3", "12"],
        pd.array([3, 12], dtype="Int64"),
        pd.Categorical([3, 12]),
        pd.arrays.SparseArray([3.0, 12.0]),
        column([3, Decimal(12)]).head(2),
        np.float32([3, 12]),
    ],
)
def test_numbers_may_be_of_any_type(values):
    data = datasets.from_frame(pd.DataFrame({"a": np.arange(41.0), "y": [0, 1] * 20 + [0]}), "y", name="odd")
    assert data.transform(pd.DataFrame({"a": values}))["a"].tolist() == pytest.approx([3 / 40, 12 / 40], rel=1e-6)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda r: r.assign(home=[np.nan, "zzz", "rent", "own"]), "'home' is missing in row 0: fill it in"),
        (lambda r: r.assign(home=["rent", "own", None, "own"]), "'home' is missing in row 2"),
        (lambda r: r.assign(home=["rent", "own", "zzz", "own"]), "Unknown category of 'home' 'zzz'"),
        (lambda r: pd.concat([r, r[["income"]]], axis=1), "the column 'income' twice"),
        (lambda r: pd.concat([r, r[["home"]]], axis=1), "the column 'home' twice"),
        (lambda r: r.set_axis([*r.columns[:-1], 3], axis=1), "Raw rows lack the columns sex"),
        (lambda r: r.assign(note=1, **{"other note": 2}).rename(columns=lambda name: name.split()[-1]), "'note' twice"),
        (lambda r: r.iloc[0], r"must be a pandas DataFrame, got Series: .* frame.iloc\[\[0\]\]"),
        (lambda r: r.to_numpy(), "must be a pandas DataFrame, got ndarray"),
        (lambda r: None, "must be a pandas DataFrame, got NoneType"),
        (lambda r: r.T, "Raw rows lack the columns"),
    ],
)
def test_invalid_raw_rows_are_rejected(change, message, data):
    with pytest.raises(DataError, match=message):
        data.transform(change(people().drop(columns="y").head(4)))


def test_missing_value_is_not_a_category_of_that_name():
    for values in (["nan", "None"], [1, 2]):
        data = datasets.from_frame(people(c=column(values)), "y", name="odd")
        for missing in (np.nan, None, pd.NA, pd.NaT):
            with pytest.raises(DataError, match="'c' is missing in row 0"):
                data.transform(people(c=column([missing, *values])))


def test_empty_frames_stay_empty(data, encoded):
    empty = people().drop(columns="y").assign(note=1).head(0)
    found = data.transform(empty)
    assert found.columns.tolist() == data.transform(people().drop(columns="y").assign(note=1)).columns.tolist()
    assert len(found) == 0
    back = data.inverse_transform(encoded.head(0))
    assert back.columns.tolist() == data.inverse_transform(encoded).columns.tolist()
    assert len(back) == 0


# --- encoded rows


def test_rows_of_nan_keep_their_position(data, encoded):
    raw = data.inverse_transform(encoded)
    nothing = data.inverse_transform(encoded * np.nan)
    assert nothing.columns.tolist() == raw.columns.tolist()
    assert nothing.index.equals(encoded.index)
    assert nothing.isna().all(axis=None)
    mixed = data.inverse_transform(pd.concat([encoded, encoded * np.nan, encoded]))
    assert mixed.index.tolist() == [*encoded.index] * 3
    assert mixed.iloc[4:8].isna().all(axis=None)
    for part in (mixed.iloc[:4], mixed.iloc[8:]):
        pd.testing.assert_frame_equal(part, raw, check_dtype=False)


def test_one_missing_number_is_a_row_of_nan(data, encoded):
    for column_ in encoded.columns:
        rows = encoded.copy()
        rows.loc[2, column_] = np.nan
        assert data.inverse_transform(rows).isna().all(axis=1).tolist() == [False, False, True, False]


def test_further_columns_are_ignored(data, encoded):
    raw = data.inverse_transform(encoded.assign(note=[np.nan, 1, 1, 1], y=np.nan))
    pd.testing.assert_frame_equal(raw.drop(columns=["note", "y"]), data.inverse_transform(encoded))


@pytest.mark.parametrize(
    "kind", [object, "Float64", np.float32, pd.SparseDtype(float), lambda frame: frame.astype(str), "category"]
)
def test_encoded_rows_may_be_of_any_type(kind, data, encoded):
    rows = kind(encoded) if callable(kind) and not isinstance(kind, type) else encoded.astype(kind)
    expected = data.inverse_transform(encoded)
    found = data.inverse_transform(rows)
    assert found[data.categorical].to_numpy().tolist() == expected[data.categorical].to_numpy().tolist()
    np.testing.assert_allclose(found[data.continuous].astype(float), expected[data.continuous], rtol=1e-5)
    valid = datasets.nearest_valid(data, rows).astype(float)
    np.testing.assert_allclose(valid, encoded, rtol=1e-5)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda z: z.iloc[0], "must be a pandas DataFrame, got Series"),
        (lambda z: None, "must be a pandas DataFrame, got NoneType"),
        (lambda z: z.to_numpy(), "must be a pandas DataFrame, got ndarray"),
        (lambda z: z.drop(columns="sex_m"), "Encoded rows lack the columns sex_m"),
        (lambda z: pd.concat([z, z], axis=1), "twice: drop or rename one"),
        (lambda z: z.assign(sex_m="x"), "not numbers .could not convert string to float: 'x'"),
        (lambda z: z.assign(sex_m=[0, 1, None, "m"]), "not numbers .could not convert string to float: 'm'"),
        (lambda z: z.assign(sex_m=1j), "not numbers .dates or complex"),
        (lambda z: z.assign(sex_m=pd.Timestamp("2024-01-01")), "not numbers .dates or complex"),
    ],
)
def test_invalid_encoded_rows_are_rejected(change, message, data, encoded):
    for read in (data.inverse_transform, lambda rows: datasets.nearest_valid(data, rows)):
        with pytest.raises(DataError, match=message):
            read(change(encoded))


@pytest.mark.parametrize("value", [np.inf, -np.inf])
@pytest.mark.parametrize("name", ["age", "sex_m"])
def test_infinite_encoded_rows_are_rejected(name, value, data, encoded):
    with pytest.raises(DataError, match="infinite values"):
        data.inverse_transform(encoded.assign(**{name: value}))


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (np.zeros(2), r"must be an array \(n, 2\), got \(2,\)"),
        (np.zeros((2, 1)), r"must be an array \(n, 2\), got \(2, 1\)"),
        (np.zeros((2, 3)), r"must be an array \(n, 2\), got \(2, 3\)"),
        (None, r"must be an array \(n, 2\), got \(\)"),
        (np.array([["a", "b"]]), "not numbers .could not convert"),
        ([[1.0, 2.0], [3.0]], "not numbers"),
        (np.zeros((2, 2), complex), "not numbers .dates or complex"),
        (np.zeros((2, 2), "M8[D]"), "not numbers .dates or complex"),
    ],
)
def test_projection_rejects_invalid_rows(rows, message, data):
    with pytest.raises(DataError, match=message):
        datasets.project_categories(data, ["sex_m", "age"], rows)
