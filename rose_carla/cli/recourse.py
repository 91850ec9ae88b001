"""Plans for the people of a CSV file: what to change, step by step, and how likely that is to work.

examples:
  rose-carla recourse applicants.csv --policy policy --out plans.csv
  rose-carla recourse applicants.csv --policy policy --id applicant --format text
  grep -v test applicants.csv | rose-carla recourse - --policy policy --format json | head
  rose-carla recourse applicants.csv --data loans.csv --target loan --favourable granted --immutable age

The file has the columns of the training data, in the units people know; the outcome may be missing, and further columns
are ignored. Every person gets a status: plan, accepted (nothing needs to change), no plan, or refused (the row cannot
be used, and why). The exit code is 1 if some rows were refused.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import os
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from rose_carla._lib.endings import DONE, FAILED, remark
from rose_carla.cli.classifier import add_model_option, check_name, classifier
from rose_carla.cli.data import OF_CSV, DataChoice, add_data_options
from rose_carla.cli.method import add_method_options, build, hyperparameters, planner_class, settings_of
from rose_carla.cli.parser import MANY, CommandError, at_least, named
from rose_carla.cli.people import Chunk, People
from rose_carla.cli.plans import FORMATS, REFUSED, Answer
from rose_carla.cli.streams import STANDARD, for_programs, once, readable, writable, written
from rose_carla.cli.training import load, sources
from rose_carla.rose.sequential import Sequential
from tqdm.auto import tqdm

_TOGETHER = 2000
#: Options that say what a policy is, and are known if there is one.
_OF_TRAINING = (*OF_CSV, "all_actionable", "set", "seed")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What can be chosen."""
    parser.add_argument("people", metavar="PEOPLE", help="a CSV file with one row per person, or - for stdin")
    parser.add_argument("--policy", type=Path, metavar="DIR", help="of 'rose-carla train'; without it, train on --data")
    add_data_options(parser, positional=False)
    add_model_option(parser)
    add_method_options(parser)
    parser.add_argument("--id", metavar="COL", help="the column that tells who is who; default: rows numbered from 1")
    parser.add_argument("--format", default="csv", metavar="NAME", help="csv (default), json or text")
    parser.add_argument("--out", metavar="FILE", help="default: stdout")
    parser.add_argument(
        "--extrapolate",
        action="store_true",
        help="plan for people with values outside the range of the training data too; by default they are refused",
    )
    parser.add_argument(
        "--chunk", type=at_least(1, MANY), default=_TOGETHER, metavar="N", help=f"people at a time; default {_TOGETHER}"
    )


def run(chosen: argparse.Namespace) -> int:
    """Read, plan and write, some people at a time."""
    write = FORMATS[named(chosen.format, list(FORMATS), "format")]
    once(chosen.people, chosen.data)
    readable(chosen.people)
    out = writable(chosen.out, chosen.people, chosen.data, *sources(chosen.policy))
    if chosen.format != "text":
        for_programs()
    method = planner_of(chosen)
    people = People(method._mlmodel.data, chosen.id, chosen.extrapolate)
    counts: Counter[str] = Counter()
    names: Counter[str] = Counter()
    with written(out) as file, tqdm(unit=" people", disable=None, total=_lines(chosen.people)) as bar:
        for chunk in people.chunks(chosen.people, chosen.chunk):
            answers = list(answered(method, chunk))
            write(answers, file, not counts)
            file.flush()
            counts.update(answer.status for answer in answers)
            if chosen.id:  # numbers of rows stand for one person each
                names.update(chunk.labels)
            bar.update(len(answers))
        if not counts:  # nobody: the header alone
            write([], file, True)
    shared = sum(1 for count in names.values() if count > 1)
    if shared:
        remark(f"{shared} names in column {chosen.id!r} stand for more than one person")
    total = sum(counts.values())
    print(f"{total:,} people: {', '.join(f'{n:,} {status}' for status, n in sorted(counts.items()))}", file=sys.stderr)
    return FAILED if counts[REFUSED] else DONE


def planner_of(chosen: argparse.Namespace) -> Sequential:
    """The method that plans: of a folder, or trained now."""
    if chosen.policy is not None:
        check_no_training(chosen)
        return load(chosen.policy, chosen.data, chosen.model, chosen.method).method
    if chosen.data is None:
        raise CommandError("Say what to plan with: --policy DIR of a training, or --data DATA to train on.")
    choice = DataChoice.of(chosen)
    seed, name, kind = chosen.seed or 0, chosen.method or "ROSE-one", chosen.model or chosen.usual_model
    options = hyperparameters(chosen.set)
    planner_class(name)
    check_name(kind)
    settings_of(name, options, seed)
    method = build(name, classifier(kind, choice.load(seed), seed), seed, options)
    assert isinstance(method, Sequential)
    return method


def check_no_training(chosen: argparse.Namespace, but: Sequence[str] = ()) -> None:
    """Refuse options that a policy has settled."""
    for name in _OF_TRAINING:
        if name not in but and getattr(chosen, name) not in (None, False):
            option = name.replace("_", "-")
            raise CommandError(f"--{option} belongs to the training in {str(chosen.policy)!r}: leave it out.")


def answered(method: Sequential, chunk: Chunk) -> Iterator[Answer]:
    """An answer for everybody, in order."""
    plans = {plan.label: plan for plan in method.plan(chunk.encoded)} if len(chunk.encoded) else {}
    for row, label in enumerate(chunk.labels):
        if row in chunk.refused:
            yield Answer(label, None, chunk.refused[row])
        else:
            yield Answer(label, dataclasses.replace(plans[row], label=label), chunk.outside.get(row, ""))


def _lines(source: str) -> int | None:
    """About how many people there are, if that can be told without reading them away."""
    if source == STANDARD or not os.path.isfile(source):
        return None
    with contextlib.suppress(OSError), open(source, "rb") as file:
        blocks = iter(lambda: file.read(1 << 20), b"")
        return max(sum(block.count(b"\n") for block in blocks) - 1, 0)
    return None
