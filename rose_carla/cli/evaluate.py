"""The paper's eight metrics: for methods, for a policy, or for counterfactuals made elsewhere.

examples:
  rose-carla evaluate compas --methods GrSp ROSE-one --limit 50
  rose-carla evaluate --policy policy --people applicants.csv
  rose-carla evaluate compas --people people.csv --counterfactuals counterfactuals.csv
  rose-carla evaluate german --all-actionable --methods mymethods:Mine ROSE-mul --format csv --per-person people.csv

People are those of the paper (data of your own: the test split), or of --people, as far as the classifier turns them
down. Both files are in original units; the second has one row for each person, in the same order, empty where nothing
was found. A method that fails is told, the others go on, and the exit code is 1.
"""

from __future__ import annotations

import argparse
import csv
import functools
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
from rose_carla import models
from carla.models.api import MLModel
from carla.recourse_methods.api import RecourseMethod
from rose_carla._lib.endings import DONE, FAILED, remark, show, tell_failed
from rose_carla._lib.text import csv_safe, csv_safe_frame, one_line
from rose_carla._lib.user_code import ends_nothing
from rose_carla.cli.classifier import add_model_option, check_name, classifier, told
from rose_carla.cli.data import DataChoice, add_data_options
from rose_carla.cli.judging import Elsewhere, judged
from rose_carla.cli.method import METHODS, add_method_options, build, hyperparameters, settings_of
from rose_carla.cli.parser import MANY, CommandError, at_least, named
from rose_carla.cli.people import People, plain
from rose_carla.cli.recourse import check_no_training
from rose_carla.cli.streams import aligned, for_programs, frame_on_screen, on_screen, once, readable, writable, written
from rose_carla.cli.training import load, read, sources
from rose_carla.errors import DataError
from rose_carla.metrics import METRICS
from tqdm.auto import tqdm

#: Noisy versions of each person: more of them tell nothing new, and take memory.
_MOST_SAMPLES = 1_000_000
#: What makes a method, by the name of its row.
Makers = dict[str, Callable[[], RecourseMethod]]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What can be chosen."""
    add_data_options(parser, positional=True, optional=True)
    add_model_option(parser)
    parser.add_argument(
        "--methods",
        "--method",
        nargs="+",
        action="extend",
        metavar="NAME",
        help=f"{', '.join(METHODS)}, or module:Class; default ROSE-one, if there is nothing else to judge",
    )
    add_method_options(parser, None)
    parser.add_argument("--policy", type=Path, metavar="DIR", help="judge the policy of 'rose-carla train'")
    parser.add_argument("--people", metavar="FILE", help="a CSV file of people; default: the paper's")
    parser.add_argument("--id", metavar="COL", help="of --people: who is who; default: rows numbered from 1")
    parser.add_argument("--counterfactuals", metavar="FILE", help="judge those of --people, a CSV file")
    parser.add_argument("--limit", type=at_least(1, MANY), metavar="N", help="the first N people only")
    parser.add_argument(
        "--samples",
        type=at_least(1, _MOST_SAMPLES),
        default=1000,
        metavar="N",
        help="noisy versions of each; default 1000",
    )
    parser.add_argument("--format", default="table", metavar="NAME", help="table (default) or csv, unrounded")
    parser.add_argument("--per-person", metavar="FILE", help="a CSV row for each method and person, with intervals")


def run(chosen: argparse.Namespace) -> int:
    """Judge, and print means over people."""
    named(chosen.format, ("table", "csv"), "format")
    once(chosen.data, chosen.people, chosen.counterfactuals)
    for source in filter(None, (chosen.people, chosen.counterfactuals)):
        readable(source)
    read_too = sources(chosen.policy)
    per_person = writable(chosen.per_person, chosen.people, chosen.counterfactuals, chosen.data, *read_too)
    if chosen.counterfactuals is not None and chosen.people is None:
        raise CommandError("--counterfactuals needs --people FILE: those for whom they were made.")
    if chosen.id is not None and chosen.people is None:
        raise CommandError("--id is a column of --people FILE.")
    model, seed, makers = _to_judge(chosen)
    factuals, labels = _factuals(chosen, model, seed, makers)
    results, failed = {}, {}
    with tqdm(total=len(makers) * (1 + len(METRICS)), disable=None) as bar:
        for name, make in makers.items():
            bar.set_description(one_line(name))
            try:
                with ends_nothing():
                    results[name] = judged(make, model, factuals, seed, chosen.samples, bar.update)
            except Exception as error:  # methods of CARLA and of users raise what they like, and the others go on
                failed[name] = told(error)
    if results:
        _show(results, chosen.format)
    if per_person:
        with written(per_person) as file:
            rows = csv_safe_frame(_people(results, labels))
            frame_on_screen(rows, file).to_csv(file, index=False, lineterminator="\n")
    for name, words in failed.items():
        tell_failed(f"{name}: {words}")
    return FAILED if failed else DONE


def _to_judge(chosen: argparse.Namespace) -> tuple[MLModel, int, Makers]:
    """The classifier, the seed, and all that is to be judged."""
    names = list(dict.fromkeys(chosen.methods or ()))
    if not names and chosen.policy is None and chosen.counterfactuals is None:
        names = ["ROSE-one"]
    options, makers = hyperparameters(chosen.set), Makers()
    if options and not names:
        raise CommandError("--set is for --methods.")
    for name in names:
        settings_of(name, options, chosen.seed or 0)
    if chosen.policy is not None:
        check_no_training(chosen, but=("set",))
        known = read(chosen.policy)[0].method
        loading = load(chosen.policy, chosen.data, chosen.model, known if known in names else None)
        model, seed = loading.model, loading.training.seed
        makers[f"{loading.training.method} of {chosen.policy}"] = lambda: loading.method
    else:
        choice, kind, seed = DataChoice.of(chosen), chosen.model or chosen.usual_model, chosen.seed or 0
        check_name(kind)
        model = classifier(kind, choice.load(seed), seed)
    for name in names:
        makers[name] = functools.partial(build, name, model, seed, options)
    return model, seed, makers


def _factuals(
    chosen: argparse.Namespace, model: MLModel, seed: int, makers: Makers
) -> tuple[pd.DataFrame, dict[object, str]]:
    """People whom the classifier turns down, encoded, and what they are called."""
    if chosen.people is None:
        factuals = models.negative_instances(model, seed=seed)
        factuals = factuals if chosen.limit is None else factuals.head(chosen.limit)
        return factuals, {label: str(label) for label in factuals.index}
    reader = People(model.data, chosen.id)
    factuals, labels = _read(chosen.people, reader)
    if chosen.counterfactuals is not None:
        ends, others = _read(chosen.counterfactuals, People(model.data, beyond=True, blank=True))
        if len(others) != len(labels):
            raise DataError(
                f"{chosen.counterfactuals!r} has {len(others)} rows for {len(labels)} people: leave a row empty where "
                "nothing was found."
            )
        ends = ends.reindex(index=factuals.index, columns=model.feature_input_order)
        makers[_row_name(chosen.counterfactuals, makers)] = lambda: Elsewhere(model, ends)
    turned_down = ~models.favourable(model)(factuals[model.feature_input_order].to_numpy(dtype=float))
    if not turned_down.any():
        raise DataError(f"The classifier turns down nobody of {chosen.people!r}, so there is nothing to judge.")
    if not turned_down.all():
        remark(f"{int((~turned_down).sum())} of {len(factuals)} people are accepted already and left out")
    factuals = factuals[turned_down]
    return (factuals if chosen.limit is None else factuals.head(chosen.limit)), labels


def _row_name(source: str, makers: Makers) -> str:
    """What counterfactuals of a file are called in the table."""
    name = Path(source).name
    if name in makers:
        raise CommandError(f"{source!r} is named like another row of the table: rename the file.")
    return name


def _read(source: str, reader: People) -> tuple[pd.DataFrame, dict[object, str]]:
    """All rows of a file, encoded, numbered from 0; one that cannot be used is an error here."""
    frames: list[pd.DataFrame] = []
    labels: dict[object, str] = {}
    for chunk in reader.chunks(source, 10_000):
        if chunk.refused:
            row = min(chunk.refused)
            raise DataError(f"Row {len(labels) + row + 1} of {source!r}: {chunk.refused[row]}.")
        frames.append(chunk.encoded.set_axis(chunk.encoded.index + len(labels), axis=0))
        labels.update({len(labels) + row: label for row, label in enumerate(chunk.labels)})
    if not labels:
        raise DataError(f"There is nobody in {source!r}.")
    return pd.concat(frames), labels


def _show(results: dict[str, pd.DataFrame], form: str) -> None:
    """Means over people, for people or for programs."""
    if form == "csv":
        for_programs()
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow(["Method", "People", *METRICS])
        for name, frame in results.items():
            label = on_screen(str(csv_safe(name)), sys.stdout)
            writer.writerow([label, len(frame), *(_unrounded(frame[metric].mean()) for metric in METRICS)])
        return
    lines = [["", "People", *(METRICS[metric].label for metric in METRICS)]]
    for name, frame in results.items():
        means = {metric: frame[metric].mean() for metric in METRICS}
        texts = [f"{mean:.{METRICS[metric].digits}f}" if np.isfinite(mean) else "-" for metric, mean in means.items()]
        lines.append([name, str(len(frame)), *texts])
    show(aligned(lines))


def _people(results: dict[str, pd.DataFrame], labels: dict[object, str]) -> pd.DataFrame:
    """One row for each method and person."""
    frames = [
        frame.assign(Method=name, Person=[labels[label] for label in frame.index]) for name, frame in results.items()
    ]
    if not frames:
        return pd.DataFrame(columns=["Method", "Person", *METRICS])
    whole = pd.concat(frames)
    return whole[["Method", "Person", *(column for column in whole if column not in ("Method", "Person"))]]


def _unrounded(mean: float) -> str:
    return plain(mean) if np.isfinite(mean) else ""
