"""Cells of a table: recourse is generated in one kind of cell and judged in another, so sweeps generate nothing twice.

A cell is a value that describes a computation and can be sent to another process or machine. Its key is a hash of all
that shapes its result. :func:`run_cell` runs it with limits of threads and collects its output.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import io
import json
import logging
import os
import socket
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
import torch
from rose_carla import datasets, models
from carla.models.api import MLModel
from carla.recourse_methods.api import RecourseMethod
from rose_carla._lib.files import key_of
from rose_carla._lib.runtime import seeded, time_limit
from rose_carla.bench import provenance
from rose_carla.bench.method_registry import entry
from rose_carla.errors import ExperimentError, error_text, unknown_name
from rose_carla.metrics.evaluations import NoiseSettings, align
from rose_carla.metrics.registry import METRICS, compute_metric
from threadpoolctl import threadpool_limits

#: Kinds of classifier and their names in the paper.
CLASSIFIERS = {"ann": "neural network", "linear": "logistic regression"}
#: Seconds after which a method is stopped: some of CARLA's may run for ever.
PATIENCE = 3600.0
#: Variables from which libraries take their number of threads when they are loaded.
_LIBRARY_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
#: Modules that every cell depends on, beside those of its method or metrics.
_MODULES = (__name__, "rose_carla.datasets", "rose_carla.models", "rose_carla.carla_compat")


@dataclass(frozen=True)
class Setting:
    """One data set with its classifier and the people to find recourse for.

    Parameters
    ----------
    dataset
        One of :data:`rose_carla.datasets.NAMES`.
    classifier
        ``"ann"`` or ``"linear"``.
    seed
        Of the split, of the classifier and of the sample of people.
    actionable
        Keep immutable features as they are; the paper's tables change everything.
    people
        Number of people, the first of those whom the paper selects; None: all of them.

    Examples
    --------
    >>> setting = Setting("compas", "linear", people=3)
    >>> len(setting.factuals())
    3
    """

    dataset: str
    classifier: str = "ann"
    seed: int = 0
    actionable: bool = False
    people: int | None = None

    def __post_init__(self) -> None:
        if self.dataset not in datasets.NAMES:
            raise ExperimentError(unknown_name("data set", self.dataset, datasets.NAMES))
        if self.classifier not in CLASSIFIERS:
            raise ExperimentError(unknown_name("classifier", self.classifier, CLASSIFIERS))
        if self.people is not None and self.people < 1:
            raise ExperimentError(f"people must be at least 1, got {self.people}.")

    def model(self) -> MLModel:
        """Return the trained classifier, with its data."""
        return _model(self.dataset, self.classifier, self.seed, self.actionable)

    def factuals(self) -> pd.DataFrame:
        """Return the people, encoded, under their row labels."""
        frame = models.negative_instances(self.model(), seed=self.seed)
        return frame if self.people is None else frame.head(self.people)


@functools.lru_cache(maxsize=4)
def _model(dataset: str, classifier: str, seed: int, actionable: bool) -> MLModel:
    """Train a classifier; the last few and their densities are kept, as cells of one data set follow one another."""
    data = datasets.load(dataset, all_actionable=not actionable, seed=seed)
    return models.train(data, classifier, seed=seed)


@dataclass(frozen=True)
class Result:
    """Arrays by name, and a few JSON-able values about them."""

    arrays: Mapping[str, np.ndarray]
    about: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Recourse:
    """Generate recourse by one method for the people of one setting.

    Parameters
    ----------
    setting
        Data set, classifier and people.
    method
        A name that :func:`.method_registry.entry` knows.
    options
        Hyper-parameters that differ from the table's, as sorted pairs; see :meth:`with_options`.
    """

    setting: Setting
    method: str
    options: tuple[tuple[str, Any], ...] = ()

    def __post_init__(self) -> None:
        entry(self.method)

    @classmethod
    def with_options(cls, setting: Setting, method: str, **options: Any) -> Recourse:
        """Create a cell with hyper-parameters by name; those that equal the table's are left out of its key."""
        defaults = {**entry(method).resolve({}), "seed": setting.seed}
        return cls(setting, method, tuple(sorted(item for item in options.items() if item not in defaults.items())))

    @functools.cached_property
    def key(self) -> str:
        """Hash of all that shapes the result."""
        method = entry(self.method)
        return key_of(
            {
                "cell": "recourse",
                "setting": dataclasses.asdict(self.setting),
                "method": self.method,
                "options": {**method.options, **dict(self.options)},
                "versions": provenance.versions(),
                "source": provenance.fingerprint(*_MODULES, *method.modules) + method.source,
            }
        )

    @property
    def description(self) -> str:
        """Description for people and for file names."""
        options = "".join(f" {name}={value}" for name, value in self.options)
        return f"{self.setting.dataset} {self.setting.classifier} {self.method}{options} seed {self.setting.seed}"

    def run(self) -> Result:
        """Train the method, then generate recourse; both times are measured without that of the classifier."""
        model, factuals, seed = self.setting.model(), self.setting.factuals(), self.setting.seed
        with time_limit(PATIENCE, f"{self.method} was stopped after {PATIENCE:.0f} s"):
            method, training = self.build(model, factuals)
            with seeded(seed):
                start = time.perf_counter()
                returned = method.get_counterfactuals(factuals.copy())
                seconds = time.perf_counter() - start
        ends = align(factuals, returned, model.feature_input_order).to_numpy()
        arrays = {"counterfactuals": ends}
        plans: Mapping[Any, np.ndarray] | None = getattr(method, "plans", None)
        if plans is not None:
            empty = np.empty((0, ends.shape[1]))
            actions = [plans.get(label, empty) for label in factuals.index]
            arrays["actions"] = np.concatenate([empty, *actions])
            arrays["n_actions"] = np.array([len(each) for each in actions])
        settings = getattr(method, "settings", None)
        return Result(
            arrays,
            {
                "training_seconds": training,
                "seconds": seconds,
                "found": int(np.isfinite(ends).all(axis=1).sum()),
                "people": len(factuals),
                "labels": [str(label) for label in factuals.index],
                "hyperparams": _as_json(settings.as_dict() if settings is not None else entry(self.method).options),
            },
        )

    def build(self, model: MLModel, factuals: pd.DataFrame) -> tuple[RecourseMethod, float]:
        """Return the method, trained if it learns, and the seconds that it took."""
        build = functools.partial(entry(self.method).build, model, self.setting.seed, dict(self.options))
        return build_method(build, factuals, self.setting.seed)


def build_method(
    build: Callable[[], RecourseMethod], factuals: pd.DataFrame, seed: int
) -> tuple[RecourseMethod, float]:
    """Return the method that ``build`` makes with seeded global generators, and the seconds that it took.

    One person is served afterwards, so that compilation and imports do not count as time of the recourse.
    """
    with seeded(seed):
        start = time.perf_counter()
        method = build()
        seconds = time.perf_counter() - start
        with contextlib.suppress(Exception):  # it is raised again later
            method.get_counterfactuals(factuals.head(1))
    return method, seconds


def _as_json(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Convert settings, which may hold any objects for a user's method, to JSON-able values."""

    def convert(value: Any) -> Any:
        return value.item() if isinstance(value, np.generic) else str(value)

    return dict(json.loads(json.dumps(dict(settings), default=convert)))


@dataclass(frozen=True)
class Judgement:
    """Judge the recourse of a cell by some metrics.

    Parameters
    ----------
    recourse
        The cell that generates it.
    metrics
        Some of :data:`rose_carla.metrics.METRICS`.
    noise
        Options of the noise; its seed is the setting's.
    """

    recourse: Recourse
    metrics: tuple[str, ...]
    noise: NoiseSettings = field(default_factory=NoiseSettings)

    def __post_init__(self) -> None:
        for name in self.metrics:
            if name not in METRICS:
                raise ExperimentError(unknown_name("metric", name, METRICS))

    @functools.cached_property
    def key(self) -> str:
        """Hash of all that shapes the result."""
        modules = {METRICS[name].evaluation.__module__ for name in self.metrics}
        return key_of(
            {
                "cell": "judgement",
                "recourse": self.recourse.key,
                "metrics": self.metrics,
                "noise": dataclasses.asdict(self.noise),
                "source": provenance.fingerprint(*_MODULES, *modules),
            }
        )

    @property
    def description(self) -> str:
        """Description for people and for file names."""
        return f"{self.recourse.description} {' '.join(self.metrics)}"

    def run(self, recourse: Result) -> Result:
        """Compute a column for each metric and its bounds if it has some, with one row for each person."""
        setting = self.recourse.setting
        model, factuals = setting.model(), setting.factuals()
        ends = pd.DataFrame(recourse.arrays["counterfactuals"], index=factuals.index, columns=model.feature_input_order)
        noise = {**self.noise.as_dict(), "seed": setting.seed}
        given = {"plans": _plans(recourse, factuals.index), "seconds": recourse.about.get("seconds")}
        with time_limit(PATIENCE, f"{self.recourse.method} was stopped after {PATIENCE:.0f} s"):
            if any("method" in METRICS[name].needs for name in self.metrics):  # it is asked again
                given["method"] = self.recourse.build(model, factuals)[0]
            frames = [compute_metric(name, model, factuals, ends, noise, given) for name in self.metrics]
        frame = pd.concat(frames, axis=1)
        return Result({str(column): frame[column].to_numpy(dtype=float) for column in frame})


def _plans(recourse: Result, labels: pd.Index) -> dict[Any, np.ndarray] | None:
    """Return plans by row label, or None for methods without an order of actions."""
    if "actions" not in recourse.arrays:
        return None
    ends = recourse.arrays["n_actions"].cumsum()
    parts = np.split(recourse.arrays["actions"], ends[:-1])
    found = np.isfinite(recourse.arrays["counterfactuals"]).all(axis=1)
    return {label: part for label, part, ok in zip(labels, parts, found, strict=True) if ok}


#: Either kind.
Cell = Recourse | Judgement


@dataclass(frozen=True)
class Outcome:
    """The result or the error of a cell."""

    #: The cell.
    cell: Cell
    #: None if it failed.
    result: Result | None
    #: One line; empty if it did not fail.
    error: str
    #: Everything that the method printed, warned and logged, and the traceback of an error.
    log: str
    #: Time of the whole cell.
    seconds: float


def run_cell(cell: Cell, needed: tuple[Result, ...], n_threads: int) -> Outcome:
    """Run a cell with ``n_threads`` threads for our own loops; an error of the method becomes part of the outcome."""
    log = _Log()
    start = time.perf_counter()
    stamp = time.strftime("%Y-%m-%d %H:%M:%S")
    print(f"{stamp} {cell.description}: on {socket.gethostname()}, threads {n_threads}", file=log)
    result, error = None, ""
    with limit_threads(n_threads), _output_to(log):
        try:
            result = cell.run(*needed)
        except (Exception, SystemExit) as raised:  # a failing or exiting method ends its own cell only
            error = f"{type(raised).__name__}: {error_text(raised).rstrip('.')}"
            traceback.print_exc(file=log)
    seconds = time.perf_counter() - start
    print(f"{'finished' if result else 'failed'} after {seconds:.2f} s", file=log)
    return Outcome(cell, result, error, log.getvalue(), seconds)


@contextlib.contextmanager
def limit_threads(n: int) -> Iterator[None]:
    """Let our own loops use ``n`` threads, and torch and all other libraries one.

    Our loops compute the same bits on any number of threads; a library may add in another order, and tables would
    differ between numbers of jobs. Networks as small as these also run fastest on one of torch's threads.
    """
    limits = {"ROSE_CARLA_THREADS": str(n), **dict.fromkeys(_LIBRARY_THREADS, "1")}
    before, before_torch = {name: os.environ.get(name) for name in limits}, torch.get_num_threads()
    os.environ.update(limits)
    try:
        with threadpool_limits(1):
            torch.set_num_threads(1)  # threadpoolctl does not find every build of torch
            yield
    finally:
        torch.set_num_threads(before_torch)
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})


class _Log(io.StringIO):
    """A text buffer that a method cannot close."""

    def close(self) -> None:
        """Stay open."""


@contextlib.contextmanager
def _output_to(log: io.StringIO) -> Iterator[None]:
    """Collect everything that is printed, warned or logged in ``log``."""
    handler = logging.StreamHandler(log)
    handler.setFormatter(logging.Formatter("%(levelname)s %(name)s: %(message)s"))
    root = logging.getLogger()
    root.addHandler(handler)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(log), contextlib.redirect_stderr(log):
            warnings.simplefilter("default")
            warnings.showwarning = _print_warning  # a command may have replaced it
            yield
    finally:
        root.removeHandler(handler)


def _print_warning(message: Any, category: Any, filename: str, lineno: int, *_: Any, **__: Any) -> None:
    print(warnings.formatwarning(message, category, filename, lineno), end="", file=sys.stderr)
