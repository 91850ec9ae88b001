"""The command ``rose-carla evaluate``."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click
import numpy as np
import pandas as pd
from rose_carla import Benchmark, models
from carla.models.api import MLModel
from carla.recourse_methods.api import RecourseMethod
from rose_carla._lib.runtime import seeded, time_limit
from rose_carla.bench.cells import PATIENCE, build_method
from rose_carla.bench.layouts import CLOSED_LOOP
from rose_carla.bench.method_registry import METHODS
from rose_carla.bench.table import TABLE_METRICS
from rose_carla.cli import console, inputs, options
from rose_carla.cli.options import Command, DataChoice, NameType, WordsOption
from rose_carla.datasets.csv_files import PeopleReader, csv_safe_frame
from rose_carla.errors import DataError, format_columns, one_line
from rose_carla.metrics import METRICS, PAPER_METRICS
from tqdm.auto import tqdm

#: Functions that build the methods to evaluate, by the name of the row.
Builders = dict[str, Callable[[], RecourseMethod]]
_EPILOG = """\
Examples:
  rose-carla evaluate compas --methods GrSp ROSE-one --limit 50
  rose-carla evaluate --policy policy --people applicants.csv
  rose-carla evaluate compas --people people.csv --counterfactuals counterfactuals.csv
  rose-carla evaluate german --all-actionable --methods mymethods:Mine ROSE-mul --format csv --per-person people.csv

People are those of the paper (your own data: the test split) or of --people, as far as the classifier rejects them.
Both files are in original units; --counterfactuals has one row per person in the same order, empty where nothing was
found. If a method fails, the others go on, and the exit code is 1.
"""


class GivenCounterfactuals(RecourseMethod):
    """Counterfactuals from elsewhere as a recourse method.

    Parameters
    ----------
    mlmodel
        The classifier they are for.
    counterfactuals
        Encoded, with the labels of their factuals; NaN where nothing was found.
    """

    def __init__(self, mlmodel: MLModel, counterfactuals: pd.DataFrame) -> None:
        super().__init__(mlmodel)
        self.counterfactuals = counterfactuals

    def get_counterfactuals(self, factuals: pd.DataFrame) -> pd.DataFrame:
        """Return those of the factuals."""
        return self.counterfactuals.loc[factuals.index, self._mlmodel.feature_input_order]


@click.command(cls=Command, epilog=_EPILOG)
@options.data_options("data")
@options.model_option("ann")
@click.option(
    "--methods",
    "--method",
    "names",
    cls=WordsOption,
    metavar="NAME ...",
    help=f"{', '.join(METHODS)}, or module:Class; default ROSE-one, unless there is something else to evaluate",
)
@options.method_options
@click.option("--policy", metavar="DIR", help="evaluate the policy of 'rose-carla train'")
@click.option("--people", metavar="FILE", help="a CSV file of people; default: the paper's")
@click.option("--id", "id_column", metavar="COL", help="column of --people that identifies people")
@click.option("--counterfactuals", metavar="FILE", help="evaluate counterfactuals for --people, a CSV file")
@click.option("--limit", type=click.IntRange(1, 10**9), metavar="N", help="only the first N people")
@click.option("--samples", type=click.IntRange(1, 10**6), default=1000, metavar="N", help="of noise; default 1000")
@click.option("--noise-per", **options.NOISE_PER_OPTION)
@click.option("--closed-loop", is_flag=True, help="add the rate of people who come back and ask again; takes longer")
@click.option(
    "--format", "form", type=NameType("format", ("table", "csv")), default="table", help="table (default) or csv"
)
@click.option("--per-person", metavar="FILE", help="write a CSV row per method and person, with intervals")
def evaluate(
    data: DataChoice,
    model: str | None,
    names: tuple[str, ...],
    hyperparams: dict[str, Any],
    seed: int | None,
    policy: str | None,
    people: str | None,
    id_column: str | None,
    counterfactuals: str | None,
    limit: int | None,
    samples: int,
    noise_per: str,
    closed_loop: bool,
    form: str,
    per_person: str | None,
) -> int:
    """Compute the paper's eight metrics for methods, for a policy, or for counterfactuals made elsewhere.

    DATA is german, german-typed, adult, compas, or a CSV file with one row per person, in original units.
    """
    folder = None if policy is None else Path(policy)
    console.check_inputs([people, counterfactuals], data.source)
    per_person = console.check_output(per_person, people, counterfactuals, data.source, *inputs.input_files(folder))
    for option, given in (("--counterfactuals", counterfactuals), ("--id", id_column)):
        if given is not None and people is None:
            raise console.CommandError(f"{option} requires --people FILE.")
    names = tuple(dict.fromkeys(names)) or (("ROSE-one",) if folder is None and counterfactuals is None else ())
    if hyperparams and not names:
        raise console.CommandError("--set requires --methods.")
    for name in names:
        inputs.find_method(name).resolve(hyperparams, seed or 0)
    builders: Builders = {}
    if folder is not None:
        inputs.check_part_of_training(policy, {}, seed)
        known = inputs.read_training(folder).method
        loaded = inputs.load_policy(folder, data, model, known if known in names else None)
        classifier, seed = loaded.model, loaded.training.seed
        builders[f"{known} of {policy}"] = lambda: loaded.method
    else:
        seed = seed or 0
        classifier = inputs.load_model(data, model or "ann", seed)
    for name in names:
        builders[name] = functools.partial(inputs.build_method, name, classifier, seed, hyperparams)
    if people is None:
        factuals = models.negative_instances(classifier, seed=seed)
        labels = {label: str(label) for label in factuals.index}
    else:
        factuals, labels = _read_people(people, PeopleReader(classifier.data, id_column))
        if counterfactuals is not None:
            _add_counterfactuals(builders, classifier, counterfactuals, factuals)
        factuals = _rejected(classifier, factuals, people)
    noise = {"n_samples": samples, "noise_per": noise_per, "seed": seed}
    columns = (*PAPER_METRICS, *(CLOSED_LOOP if closed_loop else ()))
    people_chosen = factuals.head(limit or len(factuals))
    results, failures = _evaluate_all(builders, classifier, people_chosen, seed, noise, columns)
    if results:
        _print_means(results, form, columns)
    if per_person:
        with console.open_output(per_person) as file:
            _write_frame(_per_person(results, labels), file)
    for name, text in failures.items():
        console.report_failure(f"{name}: {text}")
    return console.FAILED if failures else console.DONE


def _add_counterfactuals(builders: Builders, model: MLModel, source: str, factuals: pd.DataFrame) -> None:
    name = Path(source).name
    if name in builders:
        raise console.CommandError(f"{source!r} has the name of another row of the table: rename the file.")
    ends, labels = _read_people(source, PeopleReader(model.data, extrapolate=True, keep_empty=True))
    if len(labels) != len(factuals):
        raise DataError(
            f"{source!r} has {len(labels)} rows for {len(factuals)} people: leave a row empty where nothing was found."
        )
    ends = ends.reindex(index=factuals.index, columns=model.feature_input_order)
    builders[name] = lambda: GivenCounterfactuals(model, ends)


def _read_people(source: str, reader: PeopleReader) -> tuple[pd.DataFrame, dict[object, str]]:
    """Read all rows of a file, encoded and numbered from 0, and their labels; an invalid row is an error."""
    frames: list[pd.DataFrame] = []
    labels: dict[object, str] = {}
    for chunk in reader.chunks(source, 10_000):
        if chunk.invalid:
            row = min(chunk.invalid)
            raise DataError(f"Row {len(labels) + row + 1} of {source!r}: {chunk.invalid[row]}.")
        frames.append(chunk.encoded.set_axis(chunk.encoded.index + len(labels), axis=0))
        labels.update({len(labels) + row: label for row, label in enumerate(chunk.labels)})
    if not labels:
        raise DataError(f"{source!r} has no rows.")
    return pd.concat(frames), labels


def _rejected(model: MLModel, factuals: pd.DataFrame, source: str) -> pd.DataFrame:
    """Return the people whom the classifier rejects."""
    rejected = ~models.favourable(model)(factuals[model.feature_input_order].to_numpy(dtype=float))
    if not rejected.any():
        raise DataError(f"The classifier accepts all people of {source!r}: there is nothing to evaluate.")
    if not rejected.all():
        console.remark(f"{int((~rejected).sum())} of {len(factuals)} people are already accepted and left out")
    return factuals[rejected]


def _evaluate_all(
    builders: Builders,
    model: MLModel,
    factuals: pd.DataFrame,
    seed: int,
    noise: dict[str, Any],
    columns: Sequence[str],
) -> tuple[dict[str, pd.DataFrame], dict[str, str]]:
    """Evaluate all methods; return metrics with a row per factual, and what failed, by method."""
    results, failures = {}, {}
    chosen = [column for column in columns if column in METRICS]
    with tqdm(total=len(builders) * len(chosen), disable=None) as bar:
        for name, build in builders.items():
            bar.set_description(one_line(name))
            try:
                with console.user_code():
                    benchmark = _run_method(build, model, factuals, seed, noise)
                    without_method = isinstance(benchmark._recourse_method, GivenCounterfactuals)
                    frames = []
                    for metric in chosen:
                        if not (without_method and "method" in METRICS[metric].needs):
                            with time_limit(PATIENCE, f"timeout after {PATIENCE:.0f} s"):
                                frames.append(benchmark.compute_metric(metric))
                        bar.update()
                results[name] = pd.concat(frames, axis=1)
                if without_method:
                    unknown = [column for column in columns if column in ("Recourse_Time", *CLOSED_LOOP)]
                    results[name][unknown] = np.nan
            except Exception as error:  # methods may raise anything
                failures[name] = console.describe_error(error)
    return results, failures


def _run_method(
    build: Callable[[], RecourseMethod], model: MLModel, factuals: pd.DataFrame, seed: int, noise: dict[str, Any]
) -> Benchmark:
    """Build a method and run it, seeded and timed as in the paper's tables."""
    with time_limit(PATIENCE, f"timeout after {PATIENCE:.0f} s"):
        method, _ = build_method(build, factuals, seed)
        with seeded(seed):
            return Benchmark(model, method, factuals, noise)


def _print_means(results: dict[str, pd.DataFrame], form: str, columns: Sequence[str]) -> None:
    """Print the means over people."""
    if form == "csv":
        console.use_utf8_stdout()
        means = {name: {"People": len(frame), **frame[list(columns)].mean()} for name, frame in results.items()}
        _write_frame(pd.DataFrame.from_dict(means, orient="index").rename_axis("Method").reset_index(), sys.stdout)
        return
    shown = {column: TABLE_METRICS[column] for column in columns}
    rows = [["", "People", *(metric.label for metric in shown.values())]]
    for name, frame in results.items():
        numbers = [(frame[column].mean(), metric.digits) for column, metric in shown.items()]
        rows.append([name, str(len(frame)), *(f"{x:.{digits}f}" if np.isfinite(x) else "-" for x, digits in numbers)])
    console.echo(format_columns(rows))


def _per_person(results: dict[str, pd.DataFrame], labels: dict[object, str]) -> pd.DataFrame:
    frames = [pd.DataFrame(columns=["Method", "Person", *PAPER_METRICS])] if not results else []
    for name, frame in results.items():
        frame = frame.copy()
        frame.insert(0, "Method", name)
        frame.insert(1, "Person", [labels[label] for label in frame.index])
        frames.append(frame)
    return pd.concat(frames)


def _write_frame(frame: pd.DataFrame, file: Any) -> None:
    """Write a CSV table without formulas and, on a terminal, without control characters."""
    frame = csv_safe_frame(frame)
    for name in ("Method", "Person"):
        if name in frame:
            frame[name] = frame[name].map(lambda text: console.for_stream(str(text), file))
    frame.replace({np.inf: np.nan, -np.inf: np.nan}).to_csv(
        file, index=False, lineterminator="\n", float_format="%.12g"
    )
