"""The command ``rose-carla recourse``."""

from __future__ import annotations

import csv
import dataclasses
import functools
import json
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TextIO

import click
import pandas as pd
from rose_carla.cli import console, inputs, options
from rose_carla.cli.options import Command, DataChoice, NameType
from rose_carla.datasets.csv_files import PeopleChunk, PeopleReader, csv_safe
from rose_carla.errors import printable
from rose_carla.rose import Rose
from rose_carla.rose.plan import COLUMNS, Plan
from rose_carla.rose.sequential import Sequential
from tqdm.auto import tqdm

#: Status of a person whose row cannot be used; the others are those of a plan.
INVALID = "invalid"
_EPILOG = """\
Examples:
  rose-carla recourse applicants.csv --policy policy --out plans.csv
  rose-carla recourse applicants.csv --policy policy --id applicant --format text
  grep -v test applicants.csv | rose-carla recourse - --policy policy --format json | head
  rose-carla recourse applicants.csv --data loans.csv --target loan --favourable granted --immutable age

The file has the columns of the training data, in original units; the outcome may be missing, further columns are
ignored. Each person has a status: plan, accepted (nothing needs to change), no plan, or invalid (the row cannot be
used). The exit code is 1 if there are invalid rows.
"""
#: A person's label, the plan or None for an invalid row, and a note.
Answer = tuple[str, Plan | None, str]


def write_csv(answers: list[Answer], file: TextIO, first: bool) -> None:
    """Write one row per step, or one for a person without steps."""
    writer = csv.DictWriter(file, COLUMNS, restval="", lineterminator="\n")
    if first:
        writer.writeheader()
    for label, plan, note in answers:
        for row in _rows(label, plan, note):
            cells = {name: "" if value is None else str(csv_safe(value)) for name, value in row.items()}
            writer.writerow({name: console.for_stream(cell, file) for name, cell in cells.items()})


def _rows(label: str, plan: Plan | None, note: str) -> Iterator[dict[str, Any]]:
    if plan is None:
        yield {"person": label, "status": INVALID, "reason": note}
        return
    for row in plan.to_rows():
        yield {**row, "reason": "; ".join(filter(None, [row["reason"], note]))}


def write_json(answers: list[Answer], file: TextIO, first: bool) -> None:
    """Write one JSON object per person and line."""
    for label, plan, note in answers:
        if plan is None:
            found = {"person": label, "status": INVALID, "reason": note}
        else:
            found = {**plan.to_dict(), "reason": "; ".join(filter(None, [plan.reason, note]))}
        text = json.dumps(found, ensure_ascii=False)
        print("".join(char if char.isprintable() else json.dumps(char)[1:-1] for char in text), file=file)


def write_text(answers: list[Answer], file: TextIO, first: bool) -> None:
    """Write plans as sentences."""
    for label, plan, note in answers:
        if plan is None:
            lines = [f"Person {label}: invalid, {note}"]
        else:
            lines = [*plan.lines(), *([f"  ({note})"] if note else [])]
        print(*map(printable, lines), sep="\n", file=file)


#: Writers by format; the last argument is whether these are the first answers.
FORMATS: Mapping[str, Callable[[list[Answer], TextIO, bool], None]] = {
    "csv": write_csv,
    "json": write_json,
    "text": write_text,
}


@click.command(cls=Command, epilog=_EPILOG)
@click.argument("people", metavar="PEOPLE")
@click.option("--policy", metavar="DIR", help="folder of 'rose-carla train'; without it, train on --data")
@options.data_options("--data")
@options.model_option("ann")
@options.planner_option
@options.method_options
@click.option("--id", "id_column", metavar="COL", help="column that identifies people; default: rows numbered from 1")
@click.option("--format", "form", type=NameType("format", FORMATS), default="csv", help="csv (default), json or text")
@click.option("--out", metavar="FILE", help="default: stdout")
@click.option(
    "--revisits",
    type=click.IntRange(1, 10**4),
    metavar="K",
    help="add the success of people who come back for a further step after the plan, up to K times",
)
@click.option("--extrapolate", is_flag=True, help="accept values outside the range of the training data")
@click.option(
    "--chunk", type=click.IntRange(1, 10**9), default=2000, metavar="N", help="people at a time; default 2000"
)
def recourse(
    people: str,
    policy: str | None,
    data: DataChoice,
    model: str | None,
    method: str | None,
    hyperparams: dict[str, Any],
    seed: int | None,
    id_column: str | None,
    form: str,
    out: str | None,
    revisits: int | None,
    extrapolate: bool,
    chunk: int,
) -> int:
    """Plan recourse for the people of a CSV file (- for stdin): what to change, step by step, with the probability of
    success.
    """
    folder = None if policy is None else Path(policy)
    console.check_inputs([people], data.source)
    out = console.check_output(out, people, data.source, *inputs.input_files(folder))
    if form != "text":
        console.use_utf8_stdout()
    if folder is not None:
        inputs.check_part_of_training(policy, hyperparams, seed)
        planner = inputs.load_policy(folder, data, model, method).method
    else:
        planner = _train_planner(data, model or "ann", method or "ROSE-one", hyperparams, seed or 0)
    plan = planner.plan
    if revisits is not None:
        if not isinstance(planner, Rose):
            raise console.CommandError(f"--revisits needs a method that knows noise, which {planner.name} does not.")
        plan = functools.partial(planner.plan, revisits=revisits)
    return answer_people(planner, people, plan, id_column, form, out, extrapolate, chunk)


def answer_people(
    method: Sequential,
    people: str,
    plan: Callable[[pd.DataFrame], list[Plan]],
    id_column: str | None,
    form: str,
    out: str | None,
    extrapolate: bool,
    chunk: int,
) -> int:
    """Write the plans of all people of a file, in chunks; return the exit code."""
    reader = PeopleReader(method._mlmodel.data, id_column, extrapolate)
    counts: Counter[str] = Counter()
    labels: Counter[str] = Counter()
    with console.open_output(out) as file, tqdm(unit=" people", disable=None, total=_count_lines(people)) as bar:
        for some in reader.chunks(people, chunk):
            answers = plan_chunk(plan, some)
            FORMATS[form](answers, file, not counts)
            file.flush()
            counts.update(INVALID if found is None else found.status for _, found, _ in answers)
            labels.update(some.labels if id_column else ())
            bar.update(len(answers))
        if not counts:
            FORMATS[form]([], file, True)
    shared = sum(count > 1 for count in labels.values())
    if shared:
        console.remark(f"{shared} values of column {id_column!r} belong to more than one person")
    total = f"{sum(counts.values()):,} people"
    print(f"{total}: {', '.join(f'{n:,} {status}' for status, n in sorted(counts.items()))}", file=sys.stderr)
    return console.FAILED if counts[INVALID] else console.DONE


def _train_planner(data: DataChoice, model: str, method: str, hyperparams: Mapping[str, Any], seed: int) -> Sequential:
    if not data.source:
        raise console.CommandError("Name a trained policy with --policy DIR, or data to train on with --data DATA.")
    inputs.find_planner(method)
    classifier = inputs.load_model(data, model, seed, [method], hyperparams)
    planner = inputs.build_method(method, classifier, seed, hyperparams)
    assert isinstance(planner, Sequential)
    return planner


def plan_chunk(plan: Callable[[pd.DataFrame], list[Plan]], chunk: PeopleChunk) -> list[Answer]:
    """Plan for some people; return an answer for each row, in order."""
    plans = {each.label: each for each in plan(chunk.encoded)} if len(chunk.encoded) else {}
    return [
        (label, None, chunk.invalid[row])
        if row in chunk.invalid
        else (label, dataclasses.replace(plans[row], label=label), chunk.outside.get(row, ""))
        for row, label in enumerate(chunk.labels)
    ]


def _count_lines(source: str) -> int | None:
    """Return about how many people a regular file has, for the progress bar."""
    if not os.path.isfile(source) or not sys.stderr.isatty():
        return None
    with open(source, "rb") as file:
        return max(sum(block.count(b"\n") for block in iter(lambda: file.read(1 << 20), b"")) - 1, 0)
