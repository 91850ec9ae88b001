"""The tables and classifiers that measurements of ROSE run on: the paper's, made-up ones, a real one, a user's own.

Seeds. The paper's data sets keep their split and people; the seed is that of the classifier and of the policy. Of other
tables it is also the seed of the table, or of its split, and of the sample of people.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import pandas as pd
from rose_carla import RoseMul, RoseOne, datasets, errors, models
from made_up_tables import correlated
from rose_carla.datasets.csv_files import match_value
from rose_carla.rose import Rose
from sklearn.datasets import load_breast_cancer
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier

METHODS: dict[str, type[Rose]] = {kind.name: kind for kind in (RoseOne, RoseMul)}
#: People of a table that is not the paper's.
PEOPLE = 200
#: Rows of made-up tables, and how little the features that may change count in the hard ones: a third.
ROWS, HARD = 4000, 3.0


@dataclass(frozen=True)
class MeasuredTable:
    """A classifier, the rules of its features, and rejected people."""

    name: str
    model: Any
    monotone: Mapping[str, str]
    factuals: pd.DataFrame

    def method(self, name: str, seed: int, **options: Any) -> Rose:
        """Return ROSE-one or ROSE-mul for this table, trained."""
        return METHODS[name](self.model, {"monotone": dict(self.monotone), "seed": seed, **options})

    @property
    def rows(self) -> Any:
        """The people as an array (b, d)."""
        return self.factuals[self.model.feature_input_order].to_numpy(dtype=float)


def paper_table(seed: int, *, data_name: str, all_actionable: bool) -> tuple[Any, dict[str, str], pd.DataFrame]:
    """Return the paper's network and people. Age, the only feature with a direction, is immutable or actionable."""
    model = models.train(datasets.load(data_name, all_actionable=all_actionable), "ann", seed=seed)
    return model, {}, models.negative_instances(model)


def made_up_table(
    seed: int, *, kind: str, hard: float = 1.0, n_rows: int = ROWS
) -> tuple[Any, dict[str, str], pd.DataFrame]:
    """Return 20 correlated features of which 10 are immutable and 4 one-way."""
    table = correlated(n_rows, seed=seed, hard=hard)
    data = _without_remarks(table.frame, table.target, f"made-up-{n_rows}-{seed}", table.immutables, seed)
    return _classified(data, kind, seed, table.monotone)


def cancer_table(seed: int, *, kind: str) -> tuple[Any, dict[str, str], pd.DataFrame]:
    """Return scikit-learn's breast cancer table: the first five means and the first five worst values are immutable."""
    frame = load_breast_cancer(as_frame=True).frame
    frame.columns = [column.replace(" ", "_") for column in frame.columns]
    worst = [column for column in frame.columns if column.startswith("worst")]
    data = _without_remarks(frame, "target", "breast-cancer", [*frame.columns[:5], *worst[:5]], seed)
    one_way = {"mean_concavity": "decrease", "mean_symmetry": "decrease", "texture_error": "increase"}
    return _classified(data, kind, seed, one_way)


def csv_table(
    seed: int,
    *,
    kind: str,
    path: str,
    target: str,
    favourable: str,
    immutables: Sequence[str],
    monotone: Mapping[str, str],
) -> tuple[Any, dict[str, str], pd.DataFrame]:
    """Return a user's table, without its rows that have missing values."""
    frame = pd.read_csv(path)
    whole = frame.dropna()
    if len(whole) < len(frame):
        print(
            f"{path}: {len(frame) - len(whole)} of {len(frame)} rows have missing values and are left out", flush=True
        )
    if target not in whole:
        raise errors.DataError(errors.unknown_name("target", target, whole.columns))
    value = match_value(favourable, whole[target].unique())
    if value is None:
        raise errors.DataError(f"{target!r} has no value {favourable!r}.")
    data = datasets.from_frame(
        whole.reset_index(drop=True), target, name=f"csv-{path}", immutables=immutables, favourable=value, seed=seed
    )
    return _classified(data, kind, seed, monotone)


def _without_remarks(
    frame: pd.DataFrame, target: str, name: str, immutables: Sequence[str], seed: int
) -> datasets.Dataset:
    """Return a data set whose features with outliers are known."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "features with outliers")
        return datasets.from_frame(frame, target, name=name, immutables=immutables, seed=seed)


def _classified(
    data: datasets.Dataset, kind: str, seed: int, monotone: Mapping[str, str]
) -> tuple[Any, dict[str, str], pd.DataFrame]:
    """Return a classifier of the table, its one-way features and a sample of rejected test rows."""
    model = models.train(data, "ann", seed=seed) if kind == "ann" else _wrapped(data, kind, seed)
    return model, dict(monotone), models.negative_instances(model, split="test", limit=PEOPLE, seed=seed)


def _wrapped(data: datasets.Dataset, kind: str, seed: int) -> Any:
    inputs, outcomes = data.df_train.drop(columns=data.target), data.df_train[data.target].astype(int)
    if kind == "forest":
        estimator: Any = RandomForestClassifier(100, min_samples_leaf=5, n_jobs=1, random_state=seed)
    else:
        estimator = boosted_trees(seed)
    return models.wrap(estimator.fit(inputs, outcomes), data, space="encoded")


def boosted_trees(seed: int) -> Any:
    """Return 100 boosted trees of depth 4: xgboost's, or scikit-learn's where xgboost is not installed."""
    try:
        from xgboost import XGBClassifier
    except ImportError:
        return HistGradientBoostingClassifier(max_iter=100, max_depth=4, random_state=seed)
    return XGBClassifier(n_estimators=100, max_depth=4, n_jobs=1, random_state=seed)


Build = Callable[[int], tuple[Any, dict[str, str], pd.DataFrame]]
#: From a name to a function of the seed.
TABLES: dict[str, Build] = {
    **{name: partial(paper_table, data_name=name, all_actionable=True) for name in datasets.NAMES},
    **{f"{name}-immutables": partial(paper_table, data_name=name, all_actionable=False) for name in datasets.NAMES},
    "made-up": partial(made_up_table, kind="ann"),
    "made-up-trees": partial(made_up_table, kind="trees"),
    "made-up-hard": partial(made_up_table, kind="ann", hard=HARD),
    "made-up-hard-trees": partial(made_up_table, kind="trees", hard=HARD),
    "cancer": partial(cancer_table, kind="ann"),
    "cancer-forest": partial(cancer_table, kind="forest"),
}
#: Names of the tables of a user's own file.
CSV_TABLES = {"csv": "ann", "csv-trees": "trees"}


def add_options(parser: argparse.ArgumentParser, tables: Sequence[str], seeds: Sequence[int]) -> None:
    """Add options that choose tables, methods and seeds, with these defaults."""
    parser.add_argument("--settings", nargs="+", metavar="NAME", help=f"any of {', '.join([*TABLES, *CSV_TABLES])}")
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=list(METHODS))
    parser.add_argument("--seeds", nargs="+", type=int, default=list(seeds))
    parser.add_argument("--first", type=int, metavar="N", help="only the first N people of a setting")
    parser.add_argument("--out", metavar="FILE", help="CSV file of results; what it has is not measured again")
    group = parser.add_argument_group("a table of your own: settings csv and csv-trees, the only ones by default")
    group.add_argument("--csv", metavar="FILE")
    group.add_argument("--target", metavar="COLUMN")
    group.add_argument("--favourable", metavar="VALUE", default="1")
    group.add_argument("--immutables", nargs="+", metavar="COLUMN", default=[])
    group.add_argument("--monotone", nargs="+", metavar="COLUMN=increase", default=[])
    parser.set_defaults(default_settings=tables)


def chosen_tables(parser: argparse.ArgumentParser, chosen: argparse.Namespace) -> dict[str, Build]:
    """Return the tables that the options name."""
    tables = dict(TABLES)
    if chosen.csv:
        if not chosen.target:
            parser.error("--csv needs --target")
        monotone = dict(rule.partition("=")[::2] for rule in chosen.monotone)
        options = {name: getattr(chosen, name) for name in ("target", "favourable", "immutables")}
        for name, kind in CSV_TABLES.items():
            tables[name] = partial(csv_table, kind=kind, path=chosen.csv, monotone=monotone, **options)
    names = chosen.settings or (list(CSV_TABLES) if chosen.csv else chosen.default_settings)
    for name in names:
        if name not in tables:
            needs = " (needs --csv)" if name in CSV_TABLES else ""
            parser.error(errors.unknown_name("setting", name, tables) + needs)
    return {name: tables[name] for name in names}


def build(name: str, make: Build, seed: int, first: int | None = None) -> MeasuredTable:
    """Return a table of that seed, with its ``first`` people only if given."""
    model, monotone, factuals = make(seed)
    return MeasuredTable(name, model, monotone, factuals.head(first) if first else factuals)
