"""Inputs of the fuzz tests (tables, options, people), most of them valid, and counts of how examples end.

Inputs are drawn as short descriptions and built from a seed: fast, and a failing example is printed as it was drawn.
"""

from __future__ import annotations

import contextlib
import math
import os
import re
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
from rose_carla import RoseMul, RoseOne, baselines, datasets
from fuzz_models import build_model
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from rose_carla._lib.runtime import global_state, time_limit
from rose_carla.errors import RoseCarlaError

# --- how examples end

MANY = os.environ.get("ROSE_CARLA_FUZZ", "few") == "many"
#: Shrinking examples, which are short already, takes minutes.
PROFILE = settings(
    max_examples=2000 if MANY else 200,
    derandomize=not MANY,
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
    print_blob=True,
    phases=[Phase.explicit, Phase.generate],
)
#: Seconds after which an example counts as hanging; most take a fraction of a second.
TIMEOUT = 120.0
#: Largest number of features of tables for which recourse is computed.
MAX_FEATURES = 60 if MANY else 12
TOTAL: Counter[str] = Counter()


def examples(share: float) -> settings:
    """Return settings for a share of all examples."""
    return settings(PROFILE, max_examples=round(share * PROFILE.max_examples))


@contextlib.contextmanager
def guard() -> Iterator[None]:
    """Check that the block does not hang or change global random generators."""
    before = global_state()
    with time_limit(TIMEOUT, "the example hangs"):
        yield
    assert global_state() == before


class Tally:
    """Counts of how the examples of a test end."""

    def __init__(self, name: str) -> None:
        self.name, self.counts = name, Counter()

    @contextlib.contextmanager
    def example(self) -> Iterator[None]:
        """Check and count one example: it may raise the errors of this package only."""
        with guard(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                yield
                self.counts["result"] += 1
            except RoseCarlaError as error:
                check_message(error)
                self.counts[type(error).__name__] += 1

    def close(self, least: float = 0.4) -> None:
        """Print the counts, and check that the share of results is at least ``least``, up to random variation."""
        TOTAL.update(self.counts)
        print(f"\n{self.name}: {format_counts(self.counts)}; all so far: {format_counts(TOTAL)}")
        n = self.counts.total()
        assert self.counts["result"] >= least * n - 2 * math.sqrt(n * least * (1 - least))


def format_counts(counts: Counter[str]) -> str:
    """Format counts in one line."""
    return f"{counts.total()} examples, {', '.join(f'{name} {n}' for name, n in counts.most_common())}"


def check_message(error: RoseCarlaError) -> None:
    """Check that a message is a short sentence without dumps of arrays or frames."""
    text = str(error)
    assert len(text.split()) >= 3, text
    assert text[-1] in ".?!)…", text
    assert not re.search(r"array\(|tensor\(|dtype=|object at 0x|Traceback|Name: |Length: ", text), text
    assert len(text) < 1500, text


# --- tables

_TEXTS = ["a", "ß", "", " ", "a,b", 'say "x"', "two\nlines", "=1+1", "nan", "0", "None", "名前", "a_b", "a'b"]
_FIFTY = [f"c{i}" for i in range(50)]
Column = Callable[[np.random.Generator, int], Any]
NUMBERS: dict[str, Column] = {
    "number": lambda rng, n: rng.normal(50, 20, n),
    "integer": lambda rng, n: rng.integers(0, 100, n),
    "constant": lambda rng, n: np.full(n, 3.5),
    "huge": lambda rng, n: rng.normal(size=n) * 1e300,
    "shifted": lambda rng, n: 1e9 + rng.random(n),
    "outlier": lambda rng, n: np.where(np.arange(n) == n // 2, 1e12, rng.random(n)),
    "single precision": lambda rng, n: rng.random(n).astype(np.float32),
    "nullable": lambda rng, n: pd.array(rng.integers(0, 9, n), dtype="Int64"),
    "sparse": lambda rng, n: pd.arrays.SparseArray(rng.integers(0, 3, n) * 1.5),
    "zero and one": lambda rng, n: rng.integers(0, 2, n),
}
CATEGORIES: dict[str, Column] = {
    "two": lambda rng, n: rng.choice(["no", "yes"], n),
    "several": lambda rng, n: rng.choice(["own", "rent", "free", "other"], n),
    "fifty": lambda rng, n: rng.permutation(np.resize(_FIFTY, n)),
    "one": lambda rng, n: np.full(n, "DE", dtype=object),
    "texts": lambda rng, n: rng.choice(np.array(_TEXTS, dtype=object), n),
    "booleans": lambda rng, n: rng.random(n) < 0.5,
    "category": lambda rng, n: pd.Categorical(rng.choice(["x", "y", "z"], n), categories=["z", "y", "x", "unused"]),
    "dates": lambda rng, n: pd.Timestamp("2024-02-29") + pd.to_timedelta(rng.integers(0, 9, n), unit="D"),
    "mixed types": lambda rng, n: rng.choice(np.array([2**53 + 1, 0.5, -0.0, "0", "two"], dtype=object), n),
    "bytes": lambda rng, n: rng.choice(np.array([b"lo", b"hi", b"\xff"], dtype=object), n),
}
INVALID_COLUMNS: dict[str, Column] = {
    "denormal": lambda rng, n: rng.integers(0, 9, n) * 5e-324,
    "too wide": lambda rng, n: np.where(np.arange(n) % 2, 1.7e308, -1.7e308),
    "missing": lambda rng, n: np.where(np.arange(n) == n // 2, np.nan, rng.random(n)),
    "missing text": lambda rng, n: np.where(np.arange(n) == n // 2, None, "word"),
    "infinite": lambda rng, n: np.where(np.arange(n) == n // 2, -np.inf, rng.random(n)),
    "complex": lambda rng, n: rng.random(n) + 1j,
    "lists": lambda rng, n: pd.Series([[i] for i in range(n)], dtype=object),
    "equal values": lambda rng, n: np.resize(np.array([1, True, 1.0], dtype=object), n),
    "equal texts": lambda rng, n: np.resize(np.array([1, "1"], dtype=object), n),
    "names": lambda rng, n: np.array([f"person {i}" for i in range(n)], dtype=object),
}
COLUMNS = {**NUMBERS, **CATEGORIES, **INVALID_COLUMNS}
#: Columns of the outcome, from whether each row is favourable, and the favourable value.
TARGETS: dict[str, tuple[Callable[[np.ndarray], Any], Any]] = {
    "integer": (lambda good: good.astype(int), 1),
    "text": (lambda good: np.where(good, "granted", "rejected"), "granted"),
    "boolean": (lambda good: good, True),
    "float": (lambda good: good.astype(float), 1.0),
    "grades": (lambda good: np.where(good, 3, np.arange(len(good)) % 3), 3),
    "category": (lambda good: pd.Categorical(np.where(good, "A", "B")), "A"),
}
INVALID_TARGETS: dict[str, tuple[Callable[[np.ndarray], Any], Any]] = {
    "other value": (lambda good: good.astype(int), 2),
    "missing": (lambda good: np.where(good, 1.0, np.nan), 1.0),
    "list as value": (lambda good: good.astype(int), [1]),
    "lists": (lambda good: pd.Series([[int(each)] for each in good], dtype=object), 1),
}
LABELS: dict[str, Callable[[int], pd.Index]] = {
    "numbers": lambda n: pd.RangeIndex(n),
    "reversed": lambda n: pd.Index(range(5 * n, 0, -5)),
    "texts": lambda n: pd.Index([f"person\n{i}'s" for i in range(n)]),
    "dates": lambda n: pd.date_range("2024-01-01", periods=n),
    "mixed": lambda n: pd.Index([i if i % 2 else str(i) for i in range(n)], dtype=object),
    "pairs": lambda n: pd.MultiIndex.from_tuples([(i, "x") for i in range(n)], names=["a", "b"]),
}
INVALID_LABELS: dict[str, Callable[[int], pd.Index]] = {
    "NaN": lambda n: pd.Index([np.nan, *range(1, n)][:n]),
    "duplicates": lambda n: pd.Index(np.zeros(n, dtype=int)),
}
BALANCES: dict[str, Callable[[int], np.ndarray]] = {
    "half": lambda n: np.arange(n) % 2 == 0,
    "rare": lambda n: np.arange(n) % 7 == 0,
    "pair": lambda n: np.arange(n) // 2 == n // 4,
}
INVALID_BALANCES: dict[str, Callable[[int], np.ndarray]] = {
    "single": lambda n: np.arange(n) == n // 2,
    "never": lambda n: np.zeros(n, dtype=bool),
    "always": lambda n: np.ones(n, dtype=bool),
}
_NAMES = ["income", "Ärger €", "", " ", "a,b", 'a"b', "a\nb", "=SUM(A1)", "a_b", "index", "0", "target_", "x" * 200]
_INVALID_NAMES = ["outcome", 3, None, ("a", 1), np.nan]
_INVALID_ROLES: list[dict[str, Any]] = [
    {"immutables": ["x0", "salary"]},
    {"immutables": [["x0"]]},
    {"continuous": [], "categorical": []},
    {"categorical": ["outcome"]},
    {"test_size": 1.5},
    {"seed": -1},
    {"name": "adult"},
    {"name": "../evil\0"},
    {"favourable": None},
    {"favourable": pd.Series([1, 0])},
    {"target": "Outcome"},
]


@dataclass(frozen=True)
class Table:
    """Description of a table."""

    n: int
    kinds: tuple[str, ...]
    names: tuple[Any, ...]
    seed: int = 0
    target: str = "integer"
    balance: str = "half"
    labels: str = "numbers"
    roles: dict[str, Any] = field(default_factory=dict)

    def frame(self) -> pd.DataFrame:
        """Build the table."""
        rng = np.random.default_rng(self.seed)
        columns = [pd.Series(COLUMNS[kind](rng, self.n)) for kind in self.kinds]
        good = {**BALANCES, **INVALID_BALANCES}[self.balance](self.n)
        outcome = pd.Series({**TARGETS, **INVALID_TARGETS}[self.target][0](good))
        if self.kinds[0] in NUMBERS:  # something to learn
            columns[0] = columns[0].where(~good, columns[0].max() if self.n else 0)
        frame = pd.concat([*columns, outcome], axis=1)
        frame.columns = [*self.names, "outcome"]
        return frame.set_axis({**LABELS, **INVALID_LABELS}[self.labels](self.n), axis=0)

    @property
    def arguments(self) -> dict[str, Any]:
        """Arguments of ``datasets.from_frame``."""
        favourable = {**TARGETS, **INVALID_TARGETS}[self.target][1]
        return {"target": "outcome", "name": "fuzz", "favourable": favourable, **self.roles}

    def load(self) -> datasets.Dataset:
        """Build the data set."""
        return datasets.from_frame(self.frame(), **self.arguments)


@st.composite
def tables(draw: Any, invalid: bool = False, most: int = 60) -> Table:
    """Draw tables of 1 to ``most`` features; something about invalid ones is unusual or wrong."""
    kinds = draw(st.sampled_from([[*NUMBERS, *CATEGORIES], [*NUMBERS, *CATEGORIES], [*NUMBERS], [*CATEGORIES]]))
    width = draw(st.sampled_from([1, 2, 3, 4, 6, most]))
    chosen = draw(st.lists(st.sampled_from(kinds), min_size=1, max_size=min(width, 6)))
    wide = ("fifty", "texts")  # at most one of each: sixty would be three thousand encoded columns
    chosen = [kind for i, kind in enumerate(chosen) if kind not in wide or kind not in chosen[:i]]
    plain = [kind for kind in chosen if kind not in wide] or ["number"]
    chosen = (chosen + plain * width)[:width]
    start = draw(st.integers(0, len(_NAMES) - 1))
    pool = _NAMES[start:] + _NAMES[:start] if draw(st.booleans()) else []
    names: list[Any] = (pool + [f"x{i}" for i in range(width)])[:width]
    wrong = draw(st.sampled_from(["n", "balance", "labels", "target", "column", "name", "roles"])) if invalid else None
    if wrong == "column":
        chosen[-1] = draw(st.sampled_from([*INVALID_COLUMNS]))
    if wrong == "name":
        names[-1] = draw(st.sampled_from([names[0], *_INVALID_NAMES]))
    roles: dict[str, Any] = {"immutables": names[1::3]} if width > 1 and draw(st.booleans()) else {}
    return Table(
        draw(st.sampled_from([0, 1, 2, 3, 4, 5] if wrong == "n" else [10, 24, 40, 60])),
        tuple(chosen),
        tuple(names),
        draw(st.integers(0, 99)),
        draw(st.sampled_from([*(INVALID_TARGETS if wrong == "target" else TARGETS)])),
        draw(st.sampled_from([*(INVALID_BALANCES if wrong == "balance" else BALANCES)])),
        draw(st.sampled_from([*(INVALID_LABELS if wrong == "labels" else LABELS)])),
        {**roles, **draw(st.sampled_from(_INVALID_ROLES))} if wrong == "roles" else roles,
    )


# --- methods and their options

_PPO = {"n_updates": 2, "n_envs": 8, "n_steps": 4, "n_epochs": 1, "hidden": 8, "batch_size": 16}
_LEARNER = {"ppo": _PPO, "max_actions": 6, "action_unit": 0.1}
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
#: Methods for any model; the others need gradients.
WITHOUT_GRADIENTS = ("RoseOne", "RoseMul", "FastAR", "Cogs")
_INVALID_VALUES: list[Any] = [
    *(None, "", "paper", b"x", -1, 0, 1, 2.5, 1e-300, 1e308, -0.0, np.nan, np.inf, 2**62, 10**40, True),
    *([], [0], ["x"], (1, True), {1, 2}, {}, {"x0": "increase"}, {3: "up"}, {"n_updates": "many"}),
    *({"clip_range": np.nan}, {"learning_rate": 1e30}, {"hidden": 2**40}, {"n_envs": 2**60}),
    *(np.float32(0.5), np.int64(3), np.array([1, 2]), 1 + 2j, object),
]
_INVALID_OPTIONS: list[Any] = ["paper", 5, [("seed", 1)], {"preset": "mine"}, {None: 1}, {"sead": 1}, {"": 1}]
#: Large numbers of these are valid but take long.
_SLOW_IF_LARGE = ("timeout", "n_rounds", "n_steps", "n_generations", "max_actions", "n_adversary")
#: The published implementation runs until its timeout.
_SLOW = (("Probe", "reference_quirks"),)
_VALID_VALUES: dict[str, Any] = {
    "seed": [0, 1, 2**31, 2**62],
    "gamma": [0.01, 0.5, 0.999],
    "tau": [0.05, 0.3, 0.75],
    "variance": [1e-12, 0.01, 0.5, 1e6],
    "unit_variance": [0.0, 1e-9, 0.01, 10.0],
    "action_unit": [0.05, 0.3, 1.0],
    "multiples": [(1,), [1, 2], [1, 3, 1], np.array([1, 2])],
    "search": [False, True],
    "shorten": [False, True],
    "project_categories": [False, True],
    "reference_quirks": [True],
    "setbacks": [False, True],
    "sparsity_weight": [0, 0.5, 100],
    "bandwidth": ["scott", "silverman", 0.3, 1e-6, 1e6],
    "ridge": [1e-12, 1e-6, 1.0],
    "max_points": [2, 10, 1000],
    "batch_size": [1, 2, 1000],
    "epsilon": [0, 0.01, 0.5],
    "max_shift": [0, 0.1, 5],
    "density_weight": [0, 0.1, 10],
    "margin": [0.5, 0.7, 0.99],
    "learning_rate": [1e-6, 0.1, 10.0],
}


@st.composite
def options(draw: Any, method: str, invalid: bool = False) -> Any:
    """Draw options of a method: fast ones with up to three changes, and an unusual name or value if invalid."""
    kind, chosen = METHODS[method][0], dict(METHODS[method][1])
    names = sorted(name for name in kind._DEFAULT_HYPERPARAMS if (method, name) not in _SLOW)
    changeable = [name for name in names if name in _VALID_VALUES]
    for name in draw(st.lists(st.sampled_from(changeable), max_size=3, unique=True)):
        chosen[name] = draw(st.sampled_from(_VALID_VALUES[name]))
    if not invalid:
        return chosen
    if draw(st.integers(0, 9)) == 0:
        return draw(st.sampled_from(_INVALID_OPTIONS))
    name = draw(st.sampled_from(names))
    small = [value for value in _INVALID_VALUES if not (type(value) in (int, float) and value > 1e6)]
    return {**chosen, name: draw(st.sampled_from(small if name in _SLOW_IF_LARGE else _INVALID_VALUES))}


def warm_up() -> None:
    """Import and compile everything, so that no example waits for it."""
    model = build_model("linear", Table(24, ("number", "several"), ("a", "b")).load())
    for kind, fast in METHODS.values():
        kind(model, fast).get_counterfactuals(model.data.df.head(2))


# --- people

Change = Callable[[pd.DataFrame, list[str]], Any]
VALID_PEOPLE: dict[str, Change] = {
    "plain": lambda frame, order: frame,
    "one": lambda frame, order: frame.head(1),
    "other order": lambda frame, order: frame[list(frame.columns[::-1])],
    "further columns": lambda frame, order: frame.assign(note="a word", number=np.nan),
    "pairs as labels": lambda frame, order: frame.set_axis(LABELS["pairs"](len(frame)), axis=0),
    "texts as labels": lambda frame, order: frame.set_axis(LABELS["texts"](len(frame)), axis=0),
    "objects": lambda frame, order: frame.astype(object),
    "single precision": lambda frame, order: frame.astype(np.float32),
    "twins": lambda frame, order: pd.concat([frame, frame]).reset_index(drop=True),
    "outside": lambda frame, order: _shift(frame, order, 1.7),
    "far outside": lambda frame, order: _shift(frame, order, -1e6),
}
INVALID_PEOPLE: dict[str, Change] = {
    "too far outside": lambda frame, order: _shift(frame, order, 1e300),
    "missing column": lambda frame, order: frame.drop(columns=order[0]),
    "missing value": lambda frame, order: with_value(frame, order, np.nan),
    "infinite value": lambda frame, order: with_value(frame, order, np.inf),
    "text": lambda frame, order: with_value(frame.astype(object), order, "x"),
    "None as value": lambda frame, order: with_value(frame.astype(object), order, None),
    "between categories": lambda frame, order: frame.assign(**dict.fromkeys(frame.columns, 0.5)),
    "duplicate labels": lambda frame, order: pd.concat([frame, frame]),
    "duplicate columns": lambda frame, order: pd.concat([frame, frame], axis=1),
    "empty": lambda frame, order: frame.head(0),
    "series": lambda frame, order: frame.iloc[0],
    "array": lambda frame, order: frame.to_numpy(),
    "None": lambda frame, order: None,
}


def with_value(frame: pd.DataFrame, order: list[str], value: Any) -> pd.DataFrame:
    """Replace the value of the last person in the last feature."""
    frame = frame.copy()
    frame.iloc[-1, list(frame.columns).index(order[-1])] = value
    return frame


def _shift(frame: pd.DataFrame, order: list[str], by: float) -> pd.DataFrame:
    """Shift a continuous feature."""
    frame = frame.astype(float)
    continuous = [column for column in order if frame[column].nunique() > 2][:1]
    return frame.assign(**{column: frame[column] + by for column in continuous})


def select_people(data: datasets.Dataset, order: list[str], change: str) -> Any:
    """Return a few people of a data set, accepted and rejected ones, with a change."""
    return {**VALID_PEOPLE, **INVALID_PEOPLE}[change](data.df.iloc[:8:2], list(order))
