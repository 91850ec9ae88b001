"""Cells of a table: recourse is generated in one kind of cell and judged in another, so sweeps generate nothing twice.

A cell is a value: what is to be computed, and nothing of where or when. It can be sent to another process or machine.
Its key is a hash of all that shapes its result; see :mod:`.store`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
from rose_carla._lib.files import key_of
from rose_carla._lib.runtime import seeded, time_limit
from rose_carla.bench import sources
from rose_carla.bench.methods import entry
from rose_carla.bench.setting import Setting
from rose_carla.errors import ExperimentError, unknown_name
from rose_carla.metrics import (
    AccAIR,
    Benchmark,
    GaussianAIR,
    LogDensity,
    NoiseSettings,
    PlausibleAIR,
    Proximity,
    Sparsity,
    Validity,
)
from rose_carla.metrics.evaluations import Evaluation as Metric

#: Metrics by the column that holds them, and whether they look at noise.
METRICS: Mapping[str, tuple[type[Metric], bool]] = {
    "Validity": (Validity, False),
    "Sparsity": (Sparsity, False),
    "Proximity": (Proximity, False),
    "Log_Density": (LogDensity, True),
    "Gaussian_AIR": (GaussianAIR, True),
    "Plausible_AIR": (PlausibleAIR, True),
    "Acc_AIR": (AccAIR, True),
}
#: Seconds after which a method is given up: some of CARLA's have no end of their own.
PATIENCE = 3600.0


@dataclass(frozen=True)
class Result:
    """What a cell computed: arrays by name, and a few plain values about them."""

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
        A name that :func:`.methods.entry` knows.
    options
        Hyper-parameters that differ from the table's, as sorted pairs; :meth:`with_options` makes them.
    """

    setting: Setting
    method: str
    options: tuple[tuple[str, Any], ...] = ()

    def __post_init__(self) -> None:
        entry(self.method)

    @classmethod
    def with_options(cls, setting: Setting, method: str, **options: Any) -> Recourse:
        """With hyper-parameters by name; those that are the table's anyway are left out, so no cell has two names."""
        usual = {**entry(method).usual(), "seed": setting.seed}
        return cls(setting, method, tuple(sorted(item for item in options.items() if item not in usual.items())))

    @functools.cached_property
    def key(self) -> str:
        """Hash of all that shapes the result."""
        return key_of(
            {
                "cell": "recourse",
                "setting": dataclasses.asdict(self.setting),
                "method": self.method,
                "options": {**entry(self.method).options, **dict(self.options)},
                "versions": sources.versions(),
                "source": sources.fingerprint() + entry(self.method).source,
            }
        )

    @property
    def words(self) -> str:
        """For people, and for the names of files."""
        options = "".join(f" {name}={value}" for name, value in self.options)
        return f"{self.setting.dataset} {self.setting.classifier} {self.method}{options} seed {self.setting.seed}"

    def fits(self, result: Result) -> bool:
        """Whether a result can be of such a cell."""
        ends, labels = result.arrays.get("counterfactuals"), result.about.get("labels")
        numbers = [result.about.get(name) for name in ("seconds", "training_seconds", "people", "found")]
        if ends is None or not isinstance(labels, list) or not all(isinstance(each, (int, float)) for each in numbers):
            return False
        return ends.ndim == 2 and ends.dtype.kind == "f" and len(labels) == len(ends) == result.about["people"]

    def run(self) -> Result:
        """Train, then generate; the time of each is taken apart, and neither includes the classifier's.

        One person is served before the clock starts: what is compiled or imported at its first use is no method's cost.
        """
        model, factuals, seed = self.setting.model(), self.setting.factuals(), self.setting.seed
        with time_limit(PATIENCE, f"{self.method} was given up after {PATIENCE:.0f} s"):
            with seeded(seed):
                start = time.perf_counter()
                method = entry(self.method).build(model, seed, dict(self.options))
                training = time.perf_counter() - start
                with contextlib.suppress(Exception):  # what is wrong with it shows again below
                    method.get_counterfactuals(factuals.head(1))
            with seeded(seed):
                benchmark = Benchmark(model, method, factuals)
        seconds = float(benchmark.compute_metric("Recourse_Time").iloc[0, 0]) * len(factuals)
        plans: Mapping[Any, np.ndarray] | None = getattr(method, "plans", None)
        arrays = {"counterfactuals": benchmark.counterfactuals.to_numpy()}
        if plans is not None:
            nothing = np.empty((0, arrays["counterfactuals"].shape[1]))
            actions = [plans.get(label, nothing) for label in factuals.index]
            arrays["actions"] = np.concatenate([nothing, *actions])
            arrays["n_actions"] = np.array([len(each) for each in actions])
        settings = getattr(method, "settings", None)
        return Result(
            arrays,
            {
                "training_seconds": training,
                "seconds": seconds,
                "found": int(np.isfinite(arrays["counterfactuals"]).all(axis=1).sum()),
                "people": len(factuals),
                "labels": [str(label) for label in factuals.index],
                "hyperparameters": _plain(settings.as_dict() if settings is not None else entry(self.method).options),
            },
        )


def _plain(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings as JSON has them; a method of somebody else may have any."""

    def other(value: Any) -> Any:
        return value.item() if isinstance(value, np.generic) else str(value)

    return dict(json.loads(json.dumps(dict(settings), default=other)))


@dataclass(frozen=True)
class Judgement:
    """Judge the recourse of a cell by some metrics.

    Parameters
    ----------
    recourse
        The cell that generated it.
    metrics
        Some of :data:`METRICS`.
    noise
        How noise is applied; its seed is the setting's.
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
        return key_of(
            {
                "cell": "judgement",
                "recourse": self.recourse.key,
                "metrics": self.metrics,
                "noise": dataclasses.asdict(self.noise),
            }
        )

    @property
    def words(self) -> str:
        """For people, and for the names of files."""
        return f"{self.recourse.words} {' '.join(self.metrics)}"

    def fits(self, result: Result) -> bool:
        """Whether a result can be of such a cell."""
        arrays = [*result.arrays.values()]
        return set(self.metrics) <= set(result.arrays) and all(
            array.ndim == 1 and array.dtype.kind == "f" and len(array) == len(arrays[0]) for array in arrays
        )

    def run(self, recourse: Result) -> Result:
        """One row for each person and a column for each metric, with the bounds of its interval where it has one."""
        setting = self.recourse.setting
        model, factuals = setting.model(), setting.factuals()
        ends = pd.DataFrame(recourse.arrays["counterfactuals"], index=factuals.index, columns=model.feature_input_order)
        noise = {**self.noise.as_dict(), "seed": setting.seed}
        frames = []
        for name in self.metrics:
            metric, noisy = METRICS[name]
            options: dict[str, Any] = dict(noise) if noisy else {}
            if metric is AccAIR:
                options["plans"] = _plans(recourse, factuals.index)
            frames.append(metric(model, options).get_evaluation(factuals, ends))
        frame = pd.concat(frames, axis=1)
        return Result({str(column): frame[column].to_numpy(dtype=float) for column in frame})


def _plans(recourse: Result, labels: pd.Index) -> dict[Any, np.ndarray] | None:
    """Plans by row label where the method made some; None for methods without an order of actions."""
    if "actions" not in recourse.arrays:
        return None
    ends = recourse.arrays["n_actions"].cumsum()
    parts = np.split(recourse.arrays["actions"], ends[:-1])
    found = np.isfinite(recourse.arrays["counterfactuals"]).all(axis=1)
    return {label: part for label, part, ok in zip(labels, parts, found, strict=True) if ok}


#: Either kind.
Cell = Recourse | Judgement
