"""Data sets by name or from a CSV file: the options that say which, and what they mean."""

from __future__ import annotations

import argparse
import dataclasses
import hashlib
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
from rose_carla import datasets
from rose_carla.cli.parser import CommandError
from rose_carla.cli.streams import STANDARD, content
from rose_carla.datasets import Dataset
from rose_carla.datasets.csv_files import read_table
from rose_carla.errors import DataError, unknown_name

#: Built-in data sets by name, and how they are loaded.
BUILT_IN: Mapping[str, Mapping[str, str]] = {
    "german": {"name": "german"},
    "german-typed": {"name": "german", "form": "typed"},
    "adult": {"name": "adult"},
    "compas": {"name": "compas"},
}
#: Options of CSV files, as they are typed.
OF_CSV = ("target", "favourable", "immutable", "continuous", "categorical", "ignore")


def add_data_options(parser: argparse.ArgumentParser, positional: bool, optional: bool = False) -> None:
    """Options that say what the data are: the same for all commands."""
    about = f"{', '.join(BUILT_IN)}, or a CSV file with one row per person, in the units people know"
    if positional:
        parser.add_argument("data", metavar="DATA", help=about, nargs="?" if optional else None)
    else:
        parser.add_argument("--data", metavar="DATA", help=about)
    group = parser.add_argument_group("data")
    group.add_argument("--target", metavar="COL", help="CSV: the column with the outcome")
    group.add_argument("--favourable", metavar="VALUE", help="CSV: the outcome people want; default 1")
    for name, words in {
        "immutable": "features that no plan may change",
        "continuous": "features that are numbers; default: all columns of numbers",
        "categorical": "features that are categories; default: all others",
        "ignore": "columns that are no features, such as a name",
    }.items():
        group.add_argument(f"--{name}", nargs="+", action="extend", metavar="COL", help=f"CSV: {words}")
    group.add_argument("--all-actionable", action="store_true", help="built-in data: plans may change every feature")


@dataclass(frozen=True)
class DataChoice:
    """Which data, and the roles of their columns.

    Parameters
    ----------
    source
        A built-in name, the path of a CSV file, or ``-``.
    target, favourable, immutable, continuous, categorical, ignore
        Of a CSV file; ``favourable`` as text.
    all_actionable
        Of built-in data.
    """

    source: str
    target: str | None = None
    favourable: str | None = None
    immutable: tuple[str, ...] = ()
    continuous: tuple[str, ...] | None = None
    categorical: tuple[str, ...] | None = None
    ignore: tuple[str, ...] = ()
    all_actionable: bool = False

    @classmethod
    def of(cls, chosen: argparse.Namespace) -> DataChoice:
        """From parsed options.

        Raises
        ------
        CommandError
            If they do not go together.
        """
        given = [f"--{name}" for name in OF_CSV if getattr(chosen, name) is not None]
        if chosen.data is None:
            raise CommandError("Say which data: a built-in name, or a CSV file, before the options that take columns.")
        if chosen.data in BUILT_IN:
            if given:
                raise CommandError(f"{given[0]} is for CSV files; the columns of {chosen.data!r} are known.")
        elif chosen.all_actionable:
            raise CommandError("--all-actionable is for built-in data: leave out --immutable for a CSV file.")
        else:
            _exists(chosen.data)
        columns = {
            name: tuple(getattr(chosen, name)) if getattr(chosen, name) else None
            for name in ("continuous", "categorical")
        }
        return cls(
            chosen.data,
            chosen.target,
            chosen.favourable,
            tuple(dict.fromkeys(chosen.immutable or ())),
            **columns,
            ignore=tuple(dict.fromkeys(chosen.ignore or ())),
            all_actionable=chosen.all_actionable,
        )

    @property
    def built_in(self) -> bool:
        """Whether it needs no file."""
        return self.source in BUILT_IN

    @property
    def name(self) -> str:
        """For people."""
        return self.source if self.built_in else "stdin" if self.source == STANDARD else Path(self.source).name

    def as_dict(self) -> dict[str, Any]:
        """Plain values, as for JSON."""
        return dataclasses.asdict(self)

    def load(self, seed: int, known: str | None = None) -> Loaded:
        """The data set, split with a seed.

        Parameters
        ----------
        seed
            Of the split.
        known
            The sha256 that the CSV file has to have; None: any.

        Raises
        ------
        DataError
            If it cannot be used; the message says what to change.
        """
        if self.built_in:
            options: dict[str, Any] = {**BUILT_IN[self.source], "all_actionable": self.all_actionable, "seed": seed}
            return Loaded(datasets.load(**options), None, 1)
        if self.target is None:
            raise DataError(f"Say which column of {self.name!r} holds the outcome: --target COL.")
        frame, digest = table(self.source)
        if known is not None and digest != known:
            raise DataError(f"{self.source!r} has changed since the training: name the file as it was (DATA).")
        self.check_columns(frame)
        wanted = outcome(frame[self.target], self.favourable)
        return Loaded(self.made(frame, wanted, seed), digest, wanted)

    def check_columns(self, frame: pd.DataFrame) -> None:
        """Refuse names of columns that a table does not have.

        Raises
        ------
        DataError
            With the close match.
        """
        named = {
            "target column": [] if self.target is None else [self.target],
            "immutable feature": self.immutable,
            "continuous feature": self.continuous or (),
            "categorical feature": self.categorical or (),
            "column to ignore": self.ignore,
        }
        for kind, names in named.items():
            for name in names:
                if name not in frame.columns:
                    raise DataError(unknown_name(kind, name, map(str, frame.columns)))

    def made(self, frame: pd.DataFrame, wanted: Any, seed: int) -> Dataset:
        """The data set of a table that has been read."""
        assert self.target is not None
        return datasets.from_frame(
            frame.drop(columns=list(self.ignore)),
            self.target,
            name=f"{self.name}.csv" if self.name in BUILT_IN else self.name,
            continuous=None if self.continuous is None else list(self.continuous),
            categorical=None if self.categorical is None else list(self.categorical),
            immutables=self.immutable,
            favourable=wanted,
            seed=seed,
        )


@dataclass(frozen=True)
class Loaded:
    """A data set.

    Parameters
    ----------
    data
        The data set itself.
    sha256
        Of the CSV file, if it came from one.
    favourable
        The outcome that people want, as the table has it.
    """

    data: Dataset
    sha256: str | None
    favourable: Any


def table(source: str) -> tuple[pd.DataFrame, str]:
    """A CSV file as a frame, and the sha256 of its bytes.

    Raises
    ------
    DataError
        If it cannot be read.
    """
    found = content(source)
    return read_table(found, source), hashlib.sha256(found).hexdigest()


def outcome(values: pd.Series, text: str | None) -> Any:
    """The value of a target column that was meant by what was typed.

    Raises
    ------
    DataError
        If there is none.
    """
    known = list(values.dropna().unique())
    found = meant("1" if text is None else text, known)
    if found is None and known:
        if text is None:
            listed = ", ".join(repr(str(value)) for value in known[:5])
            raise DataError(f"Say which outcome people want: --favourable VALUE; {values.name!r} holds {listed}.")
        raise DataError(unknown_name(f"value of {values.name!r}", text, map(str, known[:20])))
    return found


def meant(text: str, values: Iterable[Any]) -> Any:
    """The one of some values, text, numbers or booleans, that ``text`` stands for; None if there is none.

    Examples
    --------
    >>> meant("2", [1.0, 2.0]), meant("TRUE", [False, True]), meant("no", ["yes", "no"]), meant("3", [1, 2])
    (2.0, True, 'no', None)
    """
    values = list(values)
    short = text.strip()
    for wanted in (text, short):
        for value in values:
            if str(value) == wanted:
                return value
    for value in values:
        if short.lower() == str(value).lower() and not isinstance(value, str):
            return value
        if short == str(value).strip() or (not isinstance(value, str) and _number(short) == value):
            return value
    return None


def _number(text: str) -> float | None:
    try:
        return None if "_" in text else float(text)  # Python reads 1_0 as ten, CSV files do not
    except ValueError:
        return None


def _exists(source: str) -> None:
    """Refuse a file that is not there; a name without a dot or a folder is taken for a misspelt built-in one."""
    if source == STANDARD or os.path.isfile(source):
        return
    if os.path.isdir(source):
        raise DataError(f"{source!r} is a folder: name the CSV file in it.")
    if os.path.basename(source) == source and not os.path.splitext(source)[1]:
        raise DataError(f"{unknown_name('data set', source, BUILT_IN)} Your own is given as the path of a CSV file.")
    raise DataError(f"There is no file {source!r}.")
