"""The built-in data sets; or the columns of one of them or of a CSV file, and what would be refused.

examples:
  rose-carla datasets
  rose-carla datasets compas
  rose-carla datasets loans.csv --target loan --favourable granted --immutable age
  cut -d, -f2- export.csv | rose-carla datasets - --target loan --favourable granted

The exit code is 1 if the data cannot be used as they are.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import pandas as pd
from pandas.api import types
from rose_carla._lib.endings import DONE, FAILED, show
from rose_carla._lib.text import one_line, printable
from rose_carla.cli.data import BUILT_IN, DataChoice, Loaded, add_data_options, outcome, table
from rose_carla.cli.parser import CommandError
from rose_carla.cli.people import categories, plain, ranges
from rose_carla.cli.streams import aligned
from rose_carla.cli.train import about
from rose_carla.errors import DataError

#: Categories that are listed.
_SHOWN = 8
_IGNORED = "ignored"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What can be chosen."""
    add_data_options(parser, positional=True, optional=True)


def run(chosen: argparse.Namespace) -> int:
    """List, or describe and check."""
    if chosen.data is None:
        if any(value for name, value in vars(chosen).items() if name not in ("data", "typed")):
            raise CommandError("Name the data before the options that take columns: 'datasets FILE --immutable ...'.")
        show(_listed())
        return DONE
    choice = DataChoice.of(chosen)
    if choice.built_in:
        show(_described(choice, choice.load(0)))
        return DONE
    return _checked(choice)


def _listed() -> str:
    lines = [["name", "people", "continuous", "categorical", "favourable", "  immutable"]]
    for name in BUILT_IN:
        data = DataChoice(name).load(0).data
        share = f"{data.df[data.target].mean():.1%}"
        numbers = [f"{len(data.df):,}", str(len(data.continuous)), str(len(data.categorical)), share]
        lines.append([name, *numbers, f"  {', '.join(data.immutables)}"])
    widest = max(len(line[-1]) for line in lines)
    return aligned([[*line[:-1], line[-1].ljust(widest)] for line in lines])


def _described(choice: DataChoice, loaded: Loaded) -> str:
    data = loaded.data
    edges, known = ranges(data), categories(data)
    lines = [["column", "role", "may change", "values"]]
    for feature in data.raw_features:
        if feature in edges:
            role, values = "continuous", " to ".join(map(plain, edges[feature]))
        else:
            role, values = "categorical", _some(known[feature])
        lines.append([feature, role, "no" if feature in data.immutables else "yes", values])
    lines.append([data.target, "outcome", "", f"favourable: {loaded.favourable}"])
    return f"{about(choice, loaded)}\n{aligned(lines, left=4)}"


def _checked(choice: DataChoice) -> int:
    """The columns of a CSV file, and everything that is wrong with each."""
    frame, digest = table(choice.source)
    problems = _problems(frame, choice)
    if not problems and choice.target is not None:
        wanted = outcome(frame[choice.target], choice.favourable)
        show(_described(choice, Loaded(choice.made(frame, wanted, 0), digest, wanted)))
        return DONE
    lines = [["column", "role", "values", "missing"]]
    for column in map(str, frame.columns):
        role = "outcome" if column == choice.target else _role(frame, column, choice)
        lines.append([column, role, _values(frame[column], role), str(int(frame[column].isna().sum()) or "")])
    show(f"{printable(choice.name)}: {len(frame):,} people, {len(frame.columns)} columns\n{aligned(lines, left=3)}")
    for words in problems:
        show(f"refused: {one_line(words)}")
    return FAILED


def _problems(frame: pd.DataFrame, choice: DataChoice) -> list[str]:
    """What is wrong: with the outcome, with each feature by itself, and, if nothing is, with all of them together."""
    if choice.target is None:
        return ["Say which column holds the outcome: --target COL."]
    try:
        choice.check_columns(frame)
        wanted = outcome(frame[choice.target], choice.favourable)
    except DataError as error:
        return [str(error)]
    found: list[str] = []
    alone = frame[[choice.target]].assign(**{f"not {choice.target}": range(len(frame))})
    checks = [(alone, DataChoice(choice.source, choice.target))]
    for column in frame.columns.drop(choice.target):
        role = _role(frame, column, choice)
        if role != _IGNORED:
            checks.append((frame[[column, choice.target]].dropna(subset=[choice.target]), _of(choice, column, role)))
    for part, roles in [*checks, (frame, choice)]:
        if part is frame and found:
            break
        try:
            roles.made(part, wanted, 0)
        except DataError as error:
            found.append(str(error))
    return list(dict.fromkeys(found))


def _of(choice: DataChoice, column: str, role: str) -> DataChoice:
    return DataChoice(choice.source, choice.target, **{role: (column,)})  # type: ignore[arg-type]


def _role(frame: pd.DataFrame, column: str, choice: DataChoice) -> str:
    """As the data set would have it."""
    if column in choice.ignore:
        return _IGNORED
    for role, named in (("continuous", choice.continuous), ("categorical", choice.categorical)):
        if named is not None and column in named:
            return role
    if choice.continuous is not None and choice.categorical is not None:
        return _IGNORED
    if choice.continuous is not None or choice.categorical is not None:
        return "categorical" if choice.continuous is not None else "continuous"
    values = frame[column]
    return "continuous" if types.is_numeric_dtype(values) and not types.is_bool_dtype(values) else "categorical"


def _values(values: pd.Series, role: str) -> str:
    known = values.dropna()
    if role == "continuous" and types.is_numeric_dtype(known) and len(known):
        return f"{plain(float(known.min()))} to {plain(float(known.max()))}"
    return _some(sorted(map(str, known.unique())))


def _some(names: Sequence[str]) -> str:
    further = f", and {len(names) - _SHOWN:,} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + further
