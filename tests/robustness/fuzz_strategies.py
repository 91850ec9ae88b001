"""Strategies of the fuzz tests: tables, options and people, most of them sound, some broken on purpose.

Everything is drawn as a short description and built from a seed: quick, and what fails is printed as it was drawn.
"""

from __future__ import annotations

import datetime
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
from rose_carla import RoseMul, RoseOne, baselines, datasets
from fuzz_models import build_model
from hypothesis import strategies as st

# --- tables

_WORDS = ["a", "ß", "", " ", "a,b", 'say "x"', "two\nlines", "=1+1", "nan", "0", "None", "名前", "a_b", "a'b"]
_FIFTY = [f"c{i}" for i in range(50)]
#: From a kind of column to its values. The first ones can be used as they are, the others ask for a refusal.
COLUMNS = {
    "number": lambda rng, n: rng.normal(50, 20, n),
    "whole": lambda rng, n: rng.integers(0, 100, n),
    "constant": lambda rng, n: np.full(n, 3.5),
    "huge": lambda rng, n: rng.normal(size=n) * 1e300,
    "far away": lambda rng, n: 1e9 + rng.random(n),
    "outlier": lambda rng, n: np.where(np.arange(n) == n // 2, 1e12, rng.random(n)),
    "single precision": lambda rng, n: rng.random(n).astype(np.float32),
    "nullable": lambda rng, n: pd.array(rng.integers(0, 9, n), dtype="Int64"),
    "sparse": lambda rng, n: pd.arrays.SparseArray(rng.integers(0, 3, n) * 1.5),
    "zero and one": lambda rng, n: rng.integers(0, 2, n),
    "two": lambda rng, n: rng.choice(["no", "yes"], n),
    "several": lambda rng, n: rng.choice(["own", "rent", "free", "other"], n),
    "fifty": lambda rng, n: rng.permutation(np.resize(_FIFTY, n)),
    "one": lambda rng, n: np.full(n, "DE", dtype=object),
    "words": lambda rng, n: rng.choice(np.array(_WORDS, dtype=object), n),
    "truth": lambda rng, n: rng.random(n) < 0.5,
    "category": lambda rng, n: pd.Categorical(rng.choice(["x", "y", "z"], n), categories=["z", "y", "x", "unused"]),
    "day": lambda rng, n: pd.Timestamp("2024-02-29") + pd.to_timedelta(rng.integers(0, 9, n), unit="D"),
    "mixed": lambda rng, n: rng.choice(np.array([1, "two", 3.5, None.__class__], dtype=object), n),
    "bytes": lambda rng, n: rng.choice(np.array([b"lo", b"hi", b"\xff"], dtype=object), n),
    "types": lambda rng, n: rng.choice(np.array([2**53 + 1, 0.5, -0.0, "0"], dtype=object), n),
    "tiny": lambda rng, n: rng.random(n) * 1e-300,
    "denormal": lambda rng, n: rng.integers(0, 9, n) * 5e-324,
    "too wide": lambda rng, n: np.where(np.arange(n) % 2, 1.7e308, -1.7e308),
    "missing": lambda rng, n: np.where(np.arange(n) == n // 2, np.nan, rng.random(n)),
    "missing word": lambda rng, n: np.where(np.arange(n) == n // 2, None, "word"),
    "infinite": lambda rng, n: np.where(np.arange(n) == n // 2, -np.inf, rng.random(n)),
    "complex": lambda rng, n: rng.random(n) + 1j,
    "lists": lambda rng, n: pd.Series([[i] for i in range(n)], dtype=object),
    "equal": lambda rng, n: np.resize(np.array([1, True, 1.0], dtype=object), n),
    "zeros": lambda rng, n: np.resize(np.array([0.0, -0.0], dtype=object), n),
    "same text": lambda rng, n: np.resize(np.array([1, "1"], dtype=object), n),
    "names": lambda rng, n: np.array([f"person {i}" for i in range(n)], dtype=object),
}
SOUND = tuple(COLUMNS)[:21]
NUMBERS, CATEGORIES = SOUND[:10], SOUND[10:]
#: From a kind of outcome to its values, for whether each is favourable, and the favourable one.
TARGETS: dict[str, tuple[Any, Any]] = {
    "whole": (lambda good: good.astype(int), 1),
    "words": (lambda good: np.where(good, "granted", "refused"), "granted"),
    "truth": (lambda good: good, True),
    "float": (lambda good: good.astype(float), 1.0),
    "grades": (lambda good: np.where(good, 3, np.arange(len(good)) % 3), 3),
    "category": (lambda good: pd.Categorical(np.where(good, "A", "B")), "A"),
    "other": (lambda good: good.astype(int), 2),
    "missing": (lambda good: np.where(good, 1.0, np.nan), 1.0),
    "unhashable": (lambda good: good.astype(int), [1]),
    "lists": (lambda good: pd.Series([[int(each)] for each in good], dtype=object), 1),
}
#: From a kind of row labels to the labels.
LABELS = {
    "numbers": lambda n: pd.RangeIndex(n),
    "backwards": lambda n: pd.Index(range(5 * n, 0, -5)),
    "words": lambda n: pd.Index([f"person\n{i}'s" for i in range(n)]),
    "days": lambda n: pd.date_range("2024-01-01", periods=n),
    "mixed": lambda n: pd.Index([i if i % 2 else str(i) for i in range(n)], dtype=object),
    "fractions": lambda n: pd.Index(np.arange(n) / 4),
    "pairs": lambda n: pd.MultiIndex.from_tuples([(i, "x") for i in range(n)], names=["a", "b"]),
    "not a label": lambda n: pd.Index([np.nan, *range(1, n)][:n]),
    "twice": lambda n: pd.Index(np.zeros(n, dtype=int)),
}
_NAMES = ["income", "Ärger €", "", " ", "a,b", 'a"b', "a\nb", "=SUM(A1)", "a_b", "index", "0", "target_", "x" * 200]


@dataclass(frozen=True)
class Table:
    """What a table is made of."""

    n: int
    kinds: tuple[str, ...]
    names: tuple[Any, ...]
    seed: int = 0
    target: str = "whole"
    balance: str = "half"
    labels: str = "numbers"
    options: dict[str, Any] = field(default_factory=dict)

    def frame(self) -> pd.DataFrame:
        """The table itself."""
        rng = np.random.default_rng(self.seed)
        columns = [pd.Series(COLUMNS[kind](rng, self.n)) for kind in self.kinds]
        good = {
            "half": np.arange(self.n) % 2 == 0,
            "rare": np.arange(self.n) % 7 == 0,
            "single": np.arange(self.n) == self.n // 2,
            "pair": np.arange(self.n) // 2 == self.n // 4,
            "never": np.zeros(self.n, dtype=bool),
            "always": np.ones(self.n, dtype=bool),
        }[self.balance]
        outcome = pd.Series(TARGETS[self.target][0](good))
        if self.kinds and self.kinds[0] in NUMBERS:  # something to learn
            columns[0] = columns[0].where(~good, columns[0].max() if self.n else 0)
        frame = pd.concat([*columns, outcome], axis=1)
        frame.columns = [*self.names, "outcome"]
        return frame.set_axis(LABELS[self.labels](self.n), axis=0)

    def load(self) -> datasets.Dataset:
        """The data set of it."""
        options = {"name": "fuzz", "favourable": TARGETS[self.target][1], **self.options}
        return datasets.from_frame(self.frame(), options.pop("target", "outcome"), **options)


@st.composite
def tables(draw: Any, broken: bool = False, most: int = 60) -> Table:
    """Tables of 1 to ``most`` features; broken ones may be anything."""
    kinds = draw(st.sampled_from([SOUND, SOUND, NUMBERS, CATEGORIES]))
    width = draw(st.sampled_from([1, 2, 3, 4, 6, most]))
    chosen = draw(st.lists(st.sampled_from(kinds), min_size=1, max_size=min(width, 6)))
    wide = ("fifty", "words")  # one of them is enough: sixty would be three thousand columns
    chosen = [kind for i, kind in enumerate(chosen) if kind not in wide or kind not in chosen[:i]]
    plain = [kind for kind in chosen if kind not in wide] or ["number"]
    chosen = (chosen + plain * width)[:width]
    start = draw(st.integers(0, len(_NAMES) - 1))
    pool = _NAMES[start:] + _NAMES[:start] if draw(st.booleans()) else []
    names: list[Any] = (pool + [f"x{i}" for i in range(width)])[:width]
    n = draw(st.sampled_from([10, 24, 40, 60]))
    options: dict[str, Any] = {}
    if width > 1 and draw(st.booleans()):
        options["immutables"] = names[1::3]
    balances, labels, targets = ["half", "rare", "pair"], list(LABELS)[:-2], list(TARGETS)[:-4]
    odd = draw(st.sampled_from(["n", "balance", "labels", "target", "column", "name", "options"])) if broken else None
    if odd == "n":
        n = draw(st.sampled_from([0, 1, 2, 3, 4, 5]))
    elif odd == "balance":
        balances = ["single", "never", "always"]
    elif odd == "labels":
        labels = list(LABELS)[-2:]
    elif odd == "target":
        targets = list(TARGETS)[-4:]
    elif odd == "column":
        chosen[-1] = draw(st.sampled_from(list(COLUMNS)[len(SOUND) :]))
    elif odd == "name":
        names[-1] = draw(st.sampled_from([names[0], "outcome", 3, None, ("a", 1), np.nan, "x0_a"]))
    elif odd == "options":
        options.update(draw(st.sampled_from(_ODD_OPTIONS)))
    return Table(
        n,
        tuple(chosen),
        tuple(names),
        draw(st.integers(0, 99)),
        draw(st.sampled_from(targets)),
        draw(st.sampled_from(balances)),
        draw(st.sampled_from(labels)),
        options,
    )


_ODD_OPTIONS: list[dict[str, Any]] = [
    {"immutables": ["x0", "salary"]},
    {"immutables": "x0"},
    {"immutables": 5},
    {"immutables": [["x0"]]},
    {"continuous": ["x0"]},
    {"continuous": [], "categorical": []},
    {"continuous": 5},
    {"categorical": [3]},
    {"categorical": ["outcome"]},
    {"continuous": [["x0"]]},
    {"test_size": 0.0},
    {"test_size": 1.5},
    {"test_size": "half"},
    {"test_size": np.nan},
    {"seed": -1},
    {"seed": "x"},
    {"seed": 2**40},
    {"name": ""},
    {"name": "adult"},
    {"name": None},
    {"name": "../evil\0"},
    {"favourable": None},
    {"favourable": np.nan},
    {"favourable": pd.Series([1, 0])},
    {"favourable": [1, 1, 0] * 20},
    {"favourable": np.array([1, 0, 1, 1] * 10)},
    {"favourable": (1, 0, 0) * 8},
    {"target": "Outcome"},
]

# --- methods and their options

_TINY = {"n_updates": 2, "n_envs": 8, "n_steps": 4, "n_epochs": 1, "hidden": 8, "batch_size": 16}
_LEARNER = {"ppo": _TINY, "max_actions": 6, "action_unit": 0.1}
_ROSE = {**_LEARNER, "tau": 0.6, "n_samples": 8, "n_check": 40, "confidence": 0.9}
#: Methods, and options with which each takes a fraction of a second.
METHODS: dict[str, tuple[type, dict[str, Any]]] = {
    "RoseOne": (RoseOne, _ROSE),
    "RoseMul": (RoseMul, {**_ROSE, "unit_variance": 0.002}),
    "FastAR": (baselines.FastAR, _LEARNER),
    "Probe": (baselines.Probe, {"n_steps": 30, "n_samples": 50, "learning_rate": 0.1}),
    "Croco": (baselines.Croco, {"n_steps": 20, "n_samples": 40, "target": 0.6, "learning_rate": 0.1}),
    "Cogs": (baselines.Cogs, {"population": 12, "n_generations": 5, "n_samples": 8}),
    "Roar": (baselines.Roar, {"n_steps": 30}),
    "Arar": (baselines.Arar, {"n_steps": 5, "n_rounds": 4}),
}
#: These take any model; the others need gradients.
OF_PREDICTIONS = ("RoseOne", "RoseMul", "FastAR", "Cogs")
_ODD_VALUES: list[Any] = [
    *(None, "", "paper", b"x", -1, 0, 1, 2.5, 1e-300, 1e308, -0.0, np.nan, np.inf, 2**62, 10**40, True),
    *([], [0], ["x"], [1, 2.5], (1, True), range(1, 3), {1, 2}, {}),
    *({"x0": "increase"}, {"x0": 5}, {3: "up"}, {"n_updates": "many"}, {"clip_range": np.nan}, {"learning_rate": 1e30}),
    *({"hidden": 2**40}, {"n_envs": 2**60}, {"batch_size": 2**60}),
    *(np.float32(0.5), np.int64(3), np.array([1, 2]), np.array(2.0), np.datetime64("2024-01-01"), 1 + 2j),
    *(object, datetime.timedelta(1)),
]
_NO_OPTIONS: list[Any] = ["paper", 5, [("seed", 1)], {"preset": "mine"}, {None: 1}, {"sead": 1}, {"": 1}, {3: 4}]
#: Long or large by request, which is nobody's fault: not drawn, but as numbers that are refused.
_PATIENT = ("timeout", "n_rounds", "n_steps", "n_generations", "max_actions", "n_adversary")
#: The published implementation goes on until its time is up.
_SLOW = (("Probe", "reference_quirks"),)
_CHANGES: dict[str, Any] = {
    "seed": st.sampled_from([0, 1, 2**31, 2**62]),
    "gamma": st.sampled_from([0.01, 0.5, 0.999]),
    "tau": st.sampled_from([0.05, 0.3, 0.75]),
    "variance": st.sampled_from([1e-12, 0.01, 0.5, 1e6]),
    "unit_variance": st.sampled_from([0.0, 1e-9, 0.01, 10.0]),
    "action_unit": st.sampled_from([0.05, 0.3, 1.0]),
    "multiples": st.sampled_from([(1,), [1, 2], [1, 3, 1], np.array([1, 2])]),
    "search": st.booleans(),
    "shorten": st.booleans(),
    "project_categories": st.booleans(),
    "reference_quirks": st.just(True),
    "setbacks": st.booleans(),
    "sparsity_weight": st.sampled_from([0, 0.5, 100]),
    "bandwidth": st.sampled_from(["scott", "silverman", 0.3, 1e-6, 1e6]),
    "ridge": st.sampled_from([1e-12, 1e-6, 1.0]),
    "max_points": st.sampled_from([2, 10, 1000]),
    "constant_reward": st.sampled_from([1e-3, 1, 1e6]),
    "batch_size": st.sampled_from([1, 2, 1000]),
    "epsilon": st.sampled_from([0, 0.01, 0.5]),
    "max_shift": st.sampled_from([0, 0.1, 5]),
    "density_weight": st.sampled_from([0, 0.1, 10]),
    "margin": st.sampled_from([0.5, 0.7, 0.99]),
    "patience": st.sampled_from([1, 5]),
    "learning_rate": st.sampled_from([1e-6, 0.1, 10.0]),
}


@st.composite
def options(draw: Any, method: str, broken: bool = False) -> Any:
    """Options of a method: quick ones with a few changes; broken ones have a name or a value that is odd."""
    kind, quick = METHODS[method]
    names = sorted(kind._DEFAULT_HYPERPARAMS)
    chosen = dict(quick)
    free = [name for name in names if name in _CHANGES and (method, name) not in _SLOW]
    for name in draw(st.lists(st.sampled_from(free), max_size=3, unique=True)):
        chosen[name] = draw(_CHANGES[name])
    if not broken:
        return chosen
    if draw(st.integers(0, 9)) == 0:
        return draw(st.sampled_from(_NO_OPTIONS))
    name = draw(st.sampled_from([name for name in names if (method, name) not in _SLOW]))
    values = [value for value in _ODD_VALUES if not (name in _PATIENT and type(value) in (int, float) and value > 1e6)]
    return {**chosen, name: draw(st.sampled_from(values))}


def warm_up() -> None:
    """Have everything imported and compiled that is at first use, so that no example has to wait for it."""
    model = build_model("linear", Table(24, ("number", "several"), ("a", "b")).load())
    for kind, quick in METHODS.values():
        kind(model, quick).get_counterfactuals(model.data.df.head(2))


# --- people

#: From what is odd about factuals to how they come about. The first ones have to be served, the others refused.
PEOPLE = {
    "plain": lambda f, order: f,
    "one": lambda f, order: f.head(1),
    "shuffled": lambda f, order: f[list(f.columns[::-1])],
    "further columns": lambda f, order: f.assign(note="a word", number=np.nan),
    "labels": lambda f, order: f.set_axis(LABELS["pairs"](len(f)), axis=0),
    "words as labels": lambda f, order: f.set_axis(LABELS["words"](len(f)), axis=0),
    "objects": lambda f, order: f.astype(object),
    "single precision": lambda f, order: f.astype(np.float32),
    "twins": lambda f, order: pd.concat([f, f]).reset_index(drop=True),
    "outside": lambda f, order: _shift(f, order, 1.7),
    "far outside": lambda f, order: _shift(f, order, -1e6),
    "beyond": lambda f, order: _shift(f, order, 1e300),
    "missing columns": lambda f, order: f.drop(columns=order[0]),
    "missing value": lambda f, order: _put(f, order, np.nan),
    "infinite value": lambda f, order: _put(f, order, np.inf),
    "word": lambda f, order: _put(f.astype(object), order, "x"),
    "nothing": lambda f, order: _put(f.astype(object), order, None),
    "halfway": lambda f, order: f.assign(**dict.fromkeys(f.columns, 0.5)),
    "labels twice": lambda f, order: pd.concat([f, f]),
    "columns twice": lambda f, order: pd.concat([f, f], axis=1),
    "empty": lambda f, order: f.head(0),
    "series": lambda f, order: f.iloc[0],
    "array": lambda f, order: f.to_numpy(),
    "None": lambda f, order: None,
    "list": lambda f, order: f.to_numpy().tolist(),
    "transposed": lambda f, order: f.T,
}  # fmt: skip
SERVED = tuple(PEOPLE)[:11]


def _put(frame: pd.DataFrame, order: list[str], value: Any) -> pd.DataFrame:
    frame = frame.copy()
    frame.iloc[-1, list(frame.columns).index(order[-1])] = value
    return frame


def _shift(frame: pd.DataFrame, order: list[str], by: float) -> pd.DataFrame:
    """Continuous features, which are named like their columns, moved."""
    frame = frame.astype(float)
    moved = [column for column in order if frame[column].nunique() > 2][:1]
    return frame.assign(**{column: frame[column] + by for column in moved})


def people(data: datasets.Dataset, order: list[str], odd: str) -> Any:
    """A few people of a data set, accepted and refused ones."""
    return PEOPLE[odd](data.df.iloc[: 2 * 4 : 2], list(order))
