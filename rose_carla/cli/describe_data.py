"""The command ``rose-carla datasets``."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import click
import pandas as pd
from pandas.api import types
from rose_carla.cli import console, options
from rose_carla.cli.options import Command, DataChoice, LoadedData
from rose_carla.datasets.csv_files import feature_categories, feature_ranges, plain
from rose_carla.errors import DataError, format_columns, one_line, printable

#: Number of categories that are printed.
_SHOWN = 8
_EPILOG = """\
Examples:
  rose-carla datasets
  rose-carla datasets compas
  rose-carla datasets loans.csv --target loan --favourable granted --immutable age
  cut -d, -f2- export.csv | rose-carla datasets - --target loan --favourable granted

The exit code is 1 if the data cannot be used as they are.
"""


@click.command(cls=Command, epilog=_EPILOG)
@options.data_options("data")
def datasets(data: DataChoice) -> int:
    """List the built-in data sets, or describe the columns of one of them or of a CSV file, with all problems found."""
    if not data.source:
        if data.given_options:
            raise console.CommandError(
                "Name the data before options that take several columns: 'datasets FILE --immutable ...'."
            )
        console.echo(_list_built_in())
        return console.DONE
    data.check()
    if data.is_built_in:
        console.echo(_describe(data.load(0)))
        return console.DONE
    return _check_file(data)


def _list_built_in() -> str:
    rows = [["name", "people", "continuous", "categorical", "favourable", "  immutable"]]
    for name in options.BUILT_IN:
        data = DataChoice(name).load(0).data
        share = f"{data.df[data.target].mean():.1%}"
        numbers = [f"{len(data.df):,}", str(len(data.continuous)), str(len(data.categorical)), share]
        rows.append([name, *numbers, f"  {', '.join(data.immutables)}"])
    widest = max(len(row[-1]) for row in rows)
    return format_columns([[*row[:-1], row[-1].ljust(widest)] for row in rows])


def _describe(loaded: LoadedData) -> str:
    data = loaded.data
    ranges, categories = feature_ranges(data), feature_categories(data)
    rows = [["column", "role", "may change", "values"]]
    for feature in data.raw_features:
        if feature in ranges:
            role, values = "continuous", " to ".join(map(plain, ranges[feature]))
        else:
            role, values = "categorical", _first(categories[feature])
        rows.append([feature, role, "no" if feature in data.immutables else "yes", values])
    rows.append([data.target, "outcome", "", f"favourable: {loaded.favourable}"])
    return f"{printable(loaded.summary())}\n{format_columns(rows, left=4)}"


def _check_file(choice: DataChoice) -> int:
    """Print the columns of a CSV file, and everything that is wrong with each."""
    frame, digest = options.read_frame(choice.source)
    problems = _find_problems(frame, choice)
    if not problems:
        favourable = choice.favourable_value(frame)
        console.echo(_describe(LoadedData(choice.build(frame, favourable, 0), digest, favourable)))
        return console.DONE
    rows = [["column", "role", "values", "missing"]]
    for column in map(str, frame.columns):
        role = "outcome" if column == choice.target else _role(frame, column, choice)
        rows.append([column, role, _values(frame[column], role), str(int(frame[column].isna().sum()) or "")])
    console.echo(f"{printable(choice.name)}: {len(frame):,} people, {len(frame.columns)} columns")
    console.echo(format_columns(rows, left=3))
    for text in problems:
        console.echo(f"problem: {one_line(text)}")
    return console.FAILED


def _find_problems(frame: pd.DataFrame, choice: DataChoice) -> list[str]:
    """Check the outcome, then each feature by itself, and, if there are no problems so far, all of them together."""
    if choice.target is None:
        return ["Name the column with the outcome: --target COL."]
    try:
        favourable = choice.favourable_value(frame)
    except DataError as error:
        return [str(error)]
    target_only = frame[[choice.target]].assign(**{f"not {choice.target}": range(len(frame))})
    parts = [(target_only, DataChoice(choice.source, choice.target))]
    for column in frame.columns.drop(choice.target):
        role = _role(frame, column, choice)
        if role != "ignored":
            one_feature = DataChoice(choice.source, choice.target, **{role: (column,)})  # type: ignore[arg-type]
            parts.append((frame[[column, choice.target]].dropna(subset=[choice.target]), one_feature))
    problems: list[str] = []
    for part, roles in [*parts, (frame, choice)]:
        if part is frame and problems:
            break
        try:
            with warnings.catch_warnings():  # remarks are printed when the data set is built for its description
                warnings.simplefilter("ignore")
                roles.build(part, favourable, 0)
        except DataError as error:
            problems.append(str(error))
    return list(dict.fromkeys(problems))


def _role(frame: pd.DataFrame, column: str, choice: DataChoice) -> str:
    """Return the role that the data set would give a column."""
    if column in choice.ignore:
        return "ignored"
    if column in choice.continuous or column in choice.categorical:
        return "continuous" if column in choice.continuous else "categorical"
    if choice.continuous and choice.categorical:
        return "ignored"
    if choice.continuous or choice.categorical:
        return "categorical" if choice.continuous else "continuous"
    values = frame[column]
    return "continuous" if types.is_numeric_dtype(values) and not types.is_bool_dtype(values) else "categorical"


def _values(values: pd.Series, role: str) -> str:
    known = values.dropna()
    if role == "continuous" and types.is_numeric_dtype(known) and len(known):
        return f"{plain(float(known.min()))} to {plain(float(known.max()))}"
    return _first(sorted(map(str, known.unique())))


def _first(names: Sequence[str]) -> str:
    further = f", and {len(names) - _SHOWN:,} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + further
