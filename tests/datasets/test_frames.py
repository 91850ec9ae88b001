"""Unusual tables and arguments of data sets: the right result, or an error."""

from __future__ import annotations

import io
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
from rose_carla import datasets, models
from odd_tables import Incomparable, Size, Unwritable, column, people
from rose_carla.errors import DataError, unknown_name
from sklearn.compose import make_column_transformer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

# --- categories


@pytest.mark.parametrize(
    "values",
    [
        [b"lo", b"hi"],
        [b"a", b"\xff"],
        [Size.SMALL, Size.LARGE],
        [1, 2.5],
        [2**53 + 1, 0.5],
        [2**70, 1],
        [True, False],
        [True, "x", 2],
        [Decimal("1.1"), Decimal("2")],
        [Fraction(1, 2), 3],
        [(1, 2), (3,)],
        [-0.0, 1.0],
        [pd.Timestamp("2024-02-29"), "never"],
        ["nan", "None", ""],
    ],
)
def test_categories_keep_value_and_type(values):
    table = people(c=column(values))
    data = datasets.from_frame(table, "y", name="odd")
    back = data.inverse_transform(data.df)["c"].tolist()
    assert back == table["c"].tolist()
    assert list(map(type, back)) == list(map(type, table["c"]))
    rows = data.inverse_transform(data.df).drop(columns="y")
    pd.testing.assert_frame_equal(data.transform(rows)[data.df.columns.drop("y")], data.df.drop(columns="y"))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([1, True, 2, 3], "Equal values of 'c' differ as text, '1' and 'True'"),
        ([1, 1.0, 2, 3], "Equal values of 'c' differ as text, '1' and '1.0'"),
        ([0, False, "x", "z"], "Equal values of 'c' differ as text, '0' and 'False'"),
        ([Decimal("1.1"), Decimal("1.10")], "'1.1' and '1.10': write them in one way"),
        ([Fraction(1, 2), 0.5], "'1/2' and '0.5'"),
        ([Size.SMALL, "small"], "'Size.SMALL' and 'small'"),
        ([1, True, "1"], "Different values of 'c' look the same as text"),
        ([Unwritable(), 1], "'c' has values that cannot be categories, convert them to text: no text"),
        ([Incomparable(), Incomparable()], "'c' has values that cannot be categories"),
    ],
)
def test_invalid_categories_are_rejected(values, message):
    with pytest.raises(DataError, match=message):
        datasets.from_frame(people(c=column(values)), "y", name="odd")


def test_negative_zero_is_rejected_beside_zero():
    roles = {"continuous": ["income", "age"], "name": "odd"}
    with pytest.raises(DataError, match=r"'0\.0' and '-0\.0'"):
        datasets.from_frame(people(c=[0.0, -0.0, 1.0, 2.0] * 15), "y", **roles)
    data = datasets.from_frame(people(c=[0.0, 1.0] * 30), "y", **roles)
    with pytest.raises(DataError, match=r"Unknown category of 'c' '-0\.0'"):
        data.transform(people(c=-0.0))


@pytest.mark.parametrize("values", [[Size.SMALL, Size.LARGE], [1, 2.5, 2**53 + 1], [b"lo", b"mid", b"hi"]])
def test_wrapped_pipeline_predicts_as_the_pipeline(values):
    table = people(c=column(values))
    raw, outcomes = table.drop(columns="y"), (table["c"] == values[0]) ^ (table["home"] == "own")
    data = datasets.from_frame(table.assign(y=outcomes.astype(int)), "y", name="odd")
    encoder = make_column_transformer((OneHotEncoder(), ["c", "home"]), ("passthrough", ["income"]))
    pipeline = make_pipeline(encoder, LogisticRegression()).fit(raw, outcomes.astype(int))
    found = models.wrap(pipeline, data).predict_proba(data.df)
    np.testing.assert_allclose(found, pipeline.predict_proba(raw), rtol=1e-6)


# --- the favourable outcome


@pytest.mark.parametrize(
    "kind", [list, tuple, np.array, pd.Index, pd.Series, set, lambda values: dict.fromkeys(values)]
)
@pytest.mark.parametrize("values", [[0, 1, 1, 1] * 15, [1], [1, 2]])
def test_favourable_outcome_is_one_value(kind, values):
    with pytest.raises(DataError, match="favourable"):
        datasets.from_frame(people(y=[0, 1] * 30), "y", name="odd", favourable=kind(values))


@pytest.mark.parametrize(
    ("outcomes", "favourable"),
    [
        ([0, 1], 1),
        ([0, 1], np.int64(1)),
        ([0, 1], np.array(1)),
        ([0, 1], True),
        ([(1, 2), (3, 4)], (3, 4)),
        ([b"no", b"yes"], b"yes"),
        ([Decimal(0), Decimal(1)], 1),
        ([Size.SMALL, Size.LARGE], Size.LARGE),
    ],
)
def test_outcomes_may_be_of_any_comparable_type(outcomes, favourable):
    data = datasets.from_frame(people(y=column(outcomes)), "y", name="odd", favourable=favourable)
    assert data.df["y"].tolist() == [0, 1] * 30


@pytest.mark.parametrize(
    ("outcomes", "favourable", "message"),
    [
        ([[0], [1]], 1, r"no row with the favourable outcome 1 \(values: \[0\], \[1\]\)"),
        ([[0], [1]], [1], "favourable must be one value of the target"),
        ([Incomparable(), Incomparable()], 1, "favourable must be one value of the target"),
        ([0, 1], Incomparable(), "favourable must be one value of the target"),
    ],
)
def test_incomparable_outcomes_are_rejected(outcomes, favourable, message):
    with pytest.raises(DataError, match=message):
        datasets.from_frame(people(y=column(outcomes)), "y", name="odd", favourable=favourable)


# --- arguments


@pytest.mark.parametrize("target", [["y"], {"y": 1}, pd.Series(["y"]), np.array(["y"]), None, 5])
def test_target_is_one_name(target):
    with pytest.raises(DataError, match="Unknown target column"):
        datasets.from_frame(people(), target, name="odd")


@pytest.mark.parametrize("roles", [{}, {"categorical": ["a", "c"]}, {"continuous": []}])
def test_sparse_tables_are_accepted(roles):
    table = pd.DataFrame({"a": [0.0, 1, 3, 0] * 10, "b": [0, 2] * 20, "c": [False, False, True, False] * 10})
    sparse = table.astype({name: pd.SparseDtype(table[name].dtype) for name in table}).assign(y=[0, 1] * 20)
    data = datasets.from_frame(sparse, "y", name="odd", **roles)
    expected = datasets.from_frame(table.assign(y=[0, 1] * 20), "y", name="odd", **roles)
    pd.testing.assert_frame_equal(data.df, expected.df)
    pd.testing.assert_frame_equal(data.inverse_transform(data.df), expected.inverse_transform(expected.df))
    pd.testing.assert_frame_equal(data.transform(sparse), expected.df)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"name": ["german"]}, "Unknown data set"),
        ({"name": np.array(["german", "adult"])}, "Unknown data set"),
        ({"name": None}, "Unknown data set None"),
        ({"form": ["coded"]}, "Unknown form"),
        ({"form": None}, "Unknown form None"),
        ({"all_actionable": np.array([1, 2])}, "all_actionable must be True or False"),
        ({"all_actionable": "no"}, "all_actionable must be True or False, got 'no'"),
        ({"test_size": [0.2]}, "Cannot split"),
        ({"test_size": np.array([0.2, 0.3])}, "Cannot split"),
        ({"seed": [1]}, "seed must be an integer"),
    ],
)
def test_invalid_arguments_of_load_are_rejected(arguments, message):
    with pytest.raises(DataError, match=message):
        datasets.load(**{"name": "german", **arguments})


@pytest.mark.parametrize("path", [b"table.csv", None, io.StringIO("a,y\n1,0\n"), 5, ["table.csv"]])
def test_csv_file_is_given_by_path(path):
    with pytest.raises(DataError, match="Expected the path of a CSV file"):
        datasets.from_csv(path, "y")


def test_known_names_may_be_numbers():
    assert unknown_name("grade", "2", [1, 22, "x"]) == "Unknown grade '2': did you mean 22? Known: 1, 22, 'x'."
