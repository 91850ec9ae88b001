"""Methods judged by the paper's eight metrics, seeded and timed as in the tables."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import pandas as pd
from rose_carla import Benchmark
from carla.models.api import MLModel
from carla.recourse_methods.api import RecourseMethod
from rose_carla._lib.runtime import seeded, time_limit
from rose_carla.bench.cells import PATIENCE
from rose_carla.cli.streams import printing_aside
from rose_carla.metrics import METRICS


class Elsewhere(RecourseMethod):
    """Counterfactuals that somebody else made, as a method that only looks them up.

    Parameters
    ----------
    mlmodel
        The classifier they are for.
    ends
        Encoded, under the labels of their factuals; NaN where nothing was found.
    """

    def __init__(self, mlmodel: MLModel, ends: pd.DataFrame) -> None:
        super().__init__(mlmodel)
        self.ends = ends

    def get_counterfactuals(self, factuals: pd.DataFrame) -> pd.DataFrame:
        """Those of the factuals."""
        return self.ends.loc[factuals.index, self._mlmodel.feature_input_order]


def judged(
    make: Callable[[], RecourseMethod],
    model: MLModel,
    factuals: pd.DataFrame,
    seed: int,
    n_samples: int,
    done: Callable[[], object],
) -> pd.DataFrame:
    """The metrics and their intervals, one row for each factual.

    Parameters
    ----------
    make
        Makes the method, which is trained if it has to be.
    model, factuals
        The classifier, and people whom it turns down.
    seed
        Of CARLA's methods, which draw from the global generators, and of the noise.
    n_samples
        Noisy versions of each counterfactual.
    done
        Called after each of the steps, one more than there are metrics.
    """
    with time_limit(PATIENCE, f"it was given up after {PATIENCE:.0f} s"), printing_aside():
        with seeded(seed):
            method = make()
            # what is compiled or imported at its first use is no method's cost; what is wrong shows again below
            with contextlib.suppress(Exception):
                method.get_counterfactuals(factuals.head(1))
        with seeded(seed):
            benchmark = Benchmark(model, method, factuals, {"n_samples": n_samples, "seed": seed})
    done()
    frames = []
    for name in METRICS:
        frame = benchmark.compute_metric(name)
        if name == "Recourse_Time" and isinstance(method, Elsewhere):
            frame[name] = float("nan")  # nobody knows
        frames.append(frame)
        done()
    return pd.concat(frames, axis=1)
