"""Scales that survive outliers, and units of action and noise of single features."""

from __future__ import annotations

import pickle
import warnings

import numpy as np
import pandas as pd
import pytest
from rose_carla import datasets
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from rose_carla.datasets.scaling import TAIL_SHARE, PiecewiseScaler, central_part, has_outliers
from rose_carla.errors import DataError
from sklearn.base import clone
from sklearn.preprocessing import MinMaxScaler


def table(n=2000, seed=0):
    """People with an ordinary age, an income with a few millionaires, and a balance with outliers on both sides."""
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "age": rng.integers(18, 80, n),
            "income": rng.lognormal(8, 0.4, n).round(),
            "balance": rng.normal(0, 1, n),
            "home": rng.choice(["rent", "own"], n),
        }
    )
    frame["loan"] = (frame["income"] + 500 * frame["balance"] > 3000).astype(int)
    frame.loc[:4, "income"] = [1e6, 2e6, 5e6, 5e5, 3e5]
    frame.loc[5:6, "balance"] = [-400.0, 300.0]
    return frame


def load(**options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return datasets.from_frame(table(), "loan", name="outliers", **options)


def test_original_units_are_restored_with_outliers():
    data, frame = load(), table()
    raw = data.inverse_transform(data.df)
    assert (raw["income"] == frame["income"]).mean() > 0.5  # up to rounding, exact at the ends of pieces
    for feature in data.continuous:
        np.testing.assert_allclose(raw[feature], frame[feature], rtol=1e-12, atol=1e-12)
    assert raw["income"].max() == 5e6
    assert raw["balance"].min() == -400.0
    assert data.df[data.continuous].to_numpy().min() == 0.0
    assert data.df[data.continuous].to_numpy().max() == 1.0


@given(
    values=hnp.arrays(float, st.integers(2, 60), elements=st.floats(-1e6, 1e6)),
    outliers=st.lists(st.floats(-1e12, 1e12), max_size=3),
)
@settings(deadline=None)
def test_the_scale_of_any_column_is_monotone_and_invertible(values, outliers):
    frame = pd.DataFrame({"x": [*values, *outliers]})
    spread = np.ptp(frame["x"])
    scaler = PiecewiseScaler(["x"]).fit(frame)
    scaled = scaler.transform(frame)
    order = np.argsort(frame["x"].to_numpy(), kind="stable")
    assert (np.diff(scaled[order, 0]) >= 0).all()
    assert (scaled >= 0).all()
    assert (scaled <= 1 + 1e-9).all()
    back = scaler.inverse_transform(pd.DataFrame({"x": scaled[:, 0]}))
    np.testing.assert_allclose(back[:, 0], frame["x"], rtol=1e-9, atol=1e-9 * max(spread, 1.0))


def test_the_scale_is_linear_between_its_ends():
    data, frame = load(), table()
    j = data.continuous.index("income")
    low, high = central_part(frame["income"].to_numpy())
    assert (data.scaler.central_values_[j] == (low, high)).all()
    assert low == frame["income"].min()  # no tail of poor people, so 0 is theirs
    assert data.scaler.central_[j].tolist() == [0.0, 1 - TAIL_SHARE]
    knots = [low, high, frame["income"].max()]
    expected = np.interp(frame["income"], knots, [0.0, 1 - TAIL_SHARE, 1.0])
    np.testing.assert_allclose(data.df["income"], expected, atol=1e-14)
    people = table().head(2).assign(income=[low - (high - low), 2 * frame["income"].max() - high])
    outer = data.transform(people)["income"]  # the outermost pieces go on
    np.testing.assert_allclose(outer, [-(1 - TAIL_SHARE), 1 + TAIL_SHARE], atol=1e-12)


def test_the_central_part_against_a_plain_definition():
    values = table()["income"].to_numpy()
    ordered = sorted(values)
    q05, q95 = (np.interp(q * (len(ordered) - 1), range(len(ordered)), ordered) for q in (0.05, 0.95))
    near = [value for value in ordered if q05 - (q95 - q05) <= value <= q95 + (q95 - q05)]
    assert central_part(values) == (near[0], near[-1])


@pytest.mark.parametrize(
    ("draw", "expected"),
    [
        (lambda rng: rng.normal(size=20_000), False),
        (lambda rng: rng.uniform(size=20_000), False),
        (lambda rng: rng.exponential(size=20_000), False),
        (lambda rng: rng.poisson(1.0, 20_000).astype(float), False),
        (lambda rng: rng.lognormal(0, 1.5, 20_000), True),
        (lambda rng: rng.standard_cauchy(20_000), True),
        (lambda rng: -rng.pareto(1.0, 20_000), True),
        (lambda rng: np.append(rng.normal(size=200), 50.0), True),
        (lambda rng: (rng.random(20_000) < 0.01).astype(float), False),  # nearly always 0
        (lambda rng: np.where(rng.random(20_000) < 0.02, rng.uniform(100, 5000, 20_000), 0.0), False),
        (lambda rng: np.full(100, 3.0), False),
        (lambda rng: np.array([0.0, 1.0]), False),
    ],
)
def test_which_columns_have_outliers(draw, expected):
    values = draw(np.random.default_rng(0))
    assert has_outliers(values) is expected


def test_auto_names_the_features_with_outliers():
    with pytest.warns(UserWarning, match=r"balance \(.*of -400 to 300\), income .*scale='minmax'") as caught:
        data = datasets.from_frame(table(), "loan", name="outliers")
    assert caught[0].filename == __file__
    assert data.robust == ("balance", "income")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert datasets.from_frame(table(), "loan", name="o", scale="minmax").robust == ()
        assert datasets.from_frame(table(), "loan", name="o", scale="robust").robust == ("age", "balance", "income")
        chosen = {"income": "minmax", "balance": "robust"}
        assert datasets.from_frame(table(), "loan", name="o", scale=chosen).robust == ("balance",)
        datasets.from_frame(table().iloc[7:], "loan", name="o")  # no outliers, no warning


def test_columns_without_outliers_are_scaled_as_before():
    plain, data = load(scale="minmax"), load()
    assert type(plain.scaler).__name__ == "MinMaxScaler"
    assert (data.df["age"] == plain.df["age"]).all()
    np.testing.assert_array_equal(plain.df[["age"]], MinMaxScaler().fit_transform(table()[["age"]]))
    assert load(scale={"age": "robust", "income": "minmax", "balance": "minmax"}).df["age"].equals(plain.df["age"])


@pytest.mark.parametrize("name", datasets.NAMES)
def test_built_in_data_are_scaled_from_smallest_to_largest(name):
    data = datasets.load(name)
    assert (data.robust, data.units, data.noise) == ((), {}, {})
    expected = MinMaxScaler().fit_transform(data._raw[data.continuous])
    np.testing.assert_array_equal(data.df[data.continuous], expected)


def test_scales_units_and_noise_survive_pickling():
    data = load(units={"income": 500}, noise={"balance": 0.5})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        again = pickle.loads(pickle.dumps(data))
    for one, other in ((data.df, again.df), (data.df_train, again.df_train), (data.df_test, again.df_test)):
        pd.testing.assert_frame_equal(one, other, check_exact=True)
    assert (again.robust, again.units, again.noise) == (data.robust, {"income": 500.0}, {"balance": 0.5})


def test_the_scaler_follows_scikit_learns_conventions():
    scaler = PiecewiseScaler(["income"])
    assert scaler.get_params()["robust"] == ["income"]
    fitted = clone(scaler).fit(table()[["age", "income"]])
    restored = pickle.loads(pickle.dumps(fitted))
    rows = table()[["age", "income"]]
    np.testing.assert_array_equal(restored.transform(rows), fitted.transform(rows))


def test_people_beyond_the_range_are_encoded_finitely():
    data = load()
    people = table().head(2).assign(income=[-1e9, 1e12])
    assert np.isfinite(data.transform(people).to_numpy(dtype=float)).all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"scale": "robsut"}, "Unknown scale 'robsut': did you mean 'robust'"),
        ({"scale": 3}, "Unknown scale 3"),
        ({"scale": {"income": "wide"}}, "Unknown scale 'wide'"),
        ({"scale": {"incme": "robust"}}, "Unknown continuous feature 'incme': did you mean 'income'"),
        ({"scale": {"home": "robust"}}, "scale is for continuous features, but 'home' is categorical"),
        ({"units": {"incme": 5}}, "Unknown continuous feature 'incme': did you mean 'income'"),
        ({"units": {"home": 5}}, "units is for continuous features, but 'home' is categorical"),
        ({"units": {"income": 0}}, "units of 'income' must be a number above 0, got 0"),
        ({"units": {"income": -3.0}}, "must be a number above 0, got -3.0"),
        ({"units": {"income": float("nan")}}, "must be a number above 0, got nan"),
        ({"units": {"income": True}}, "must be a number above 0, got True"),
        ({"units": {"income": "5"}}, "must be a number above 0, got '5'"),
        ({"units": {"income": 1e6}}, "The unit of 'income' is 1e\\+06, but its values reach from"),
        ({"units": 500}, "units must be a mapping from features to numbers, got 500"),
        ({"noise": {"income": 0}}, "noise of 'income' must be a number above 0, got 0"),
        ({"noise": {"home": 1.0}}, "noise is for continuous features, but 'home' is categorical"),
        ({"noise": [1]}, "noise must be a mapping from features to numbers"),
        ({"noise": {1: 2.0}}, "Unknown continuous feature 1"),
    ],
)
def test_invalid_scales_units_and_noise(options, message):
    with pytest.raises(DataError, match=message):
        load(**options)


def test_units_in_the_encoded_scale():
    data = load(units={"income": 500, "age": 2}, immutables=["age"])
    low, high = central_part(table()["income"].to_numpy())
    unit = datasets.encoded_unit(data, "income")
    middle = table().head(2).assign(income=[(low + high) / 2, (low + high) / 2 + 500])
    assert data.transform(middle)["income"].diff().iloc[1] == pytest.approx(unit)
    assert datasets.encoded_unit(data, "age") is None  # immutable: no effect
    columns = ["home_rent", "income", "age"]
    np.testing.assert_array_equal(datasets.action_units(data, columns, 0.025), [0.025, unit, 0.025])
    assert datasets.action_units(load(), columns, 0.025) == 0.025
    assert datasets.action_bounds(data, "income") == (0.0, 0.95)
    assert datasets.action_bounds(data, "balance") == (0.05, 0.95)
    assert datasets.action_bounds(data, "age") == (0.0, 1.0)


def test_relative_noise_of_encoded_columns():
    data = load(noise={"income": 0.5, "age": 1})
    np.testing.assert_array_equal(datasets.relative_noise(data, ["home_rent", "income", "age"]), [1.0, 0.5, 1.0])
    assert datasets.relative_noise(data, ["home_rent", "age"]) is None
    assert datasets.relative_noise(load(), ["income"]) is None
