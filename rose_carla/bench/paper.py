"""The values printed in the paper, and why ours differ from them."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from importlib import resources
from typing import NamedTuple

import pandas as pd
from rose_carla.bench.method_registry import OURS, PLAIN, VARIANTS


class PaperValue(NamedTuple):
    """A value printed in the paper."""

    mean: float
    std: float | None


@functools.lru_cache(maxsize=1)
def paper_frame() -> pd.DataFrame:
    """Return all printed values: table, dataset, method, condition, metric, mean, std (NaN where none is printed)."""
    with resources.files(__package__).joinpath("paper.csv").open() as file:
        return pd.read_csv(file, keep_default_na=False, na_values={"std": [""]})


@functools.lru_cache(maxsize=1)
def _values() -> Mapping[tuple[str, ...], PaperValue]:
    return {
        tuple(row[:5]): PaperValue(float(row[5]), None if pd.isna(row[6]) else float(row[6]))
        for row in paper_frame().itertuples(index=False)
    }


def paper_value(table: str, dataset: str, method: str, metric: str, condition: str = "") -> PaperValue | None:
    """Return one printed value, or None if the paper does not have it.

    The paper's rows of ROSE are those of the plain method too, which is the paper's.

    Examples
    --------
    >>> paper_value("table1", "german", "ROSE-mul", "Acc_AIR")
    PaperValue(mean=0.23, std=0.02)
    """
    return _values().get((table, dataset, PLAIN.get(method, method), condition, metric))


class Reason(NamedTuple):
    """A reason for differences, and the values it applies to; an empty tuple stands for all."""

    text: str
    datasets: tuple[str, ...] = ()
    methods: tuple[str, ...] = ()
    metrics: tuple[str, ...] = ()

    def applies(self, dataset: str, method: str, metric: str) -> bool:
        """Whether this reason explains the given value."""
        pairs = ((dataset, self.datasets), (method, self.methods), (metric, self.metrics))
        return all(not allowed or name in allowed for name, allowed in pairs)


#: From specific to general: the first one that applies is reported.
REASONS = (
    Reason(
        "another machine: the paper does not say which, nor how many people were served at a time",
        metrics=("Recourse_Time", "Training_Time"),
    ),
    Reason(
        "printed value is an artefact: the paper's evaluation points were stored in [0, 1] and read as [-1, 1], so "
        "most of them were not negative to begin with",
        datasets=("compas",),
        methods=("FastAR", *VARIANTS),
    ),
    Reason(
        "the paper does not say which density it means; ours is a Gaussian KDE with Scott's bandwidth on the training "
        "rows of class 1",
        metrics=("Log_Density",),
    ),
    Reason(
        "ours gives a person up rather than return a plan that fails the check on fresh noise: under the noise of the "
        "evaluation, on the density of all training rows, none was found for them",
        methods=VARIANTS,
        metrics=("Validity",),
    ),
    Reason(
        "the paper's plans were made for less noise (a deviation of 0.1 in coordinates of [-1, 1] is a quarter of the "
        "variance in [0, 1], and a transition was a mean of 50 points); under the noise stated in the paper an "
        "exhaustive search finds no shorter single change on Adult either",
        methods=VARIANTS,
        metrics=("Proximity", "Sparsity"),
    ),
    Reason(
        "ours shortens a plan until it just stands the check, a rate below 1 - tau = 0.25, so its rates lie nearer to "
        "that limit",
        methods=OURS,
        metrics=("Gaussian_AIR", "Plausible_AIR", "Acc_AIR"),
    ),
    Reason("another classifier and other people; the method is CARLA's own", methods=("Wachter", "GrSp")),
    Reason("another release of dice-ml, another classifier and other people", methods=("DiCE",)),
    Reason(
        "ours goes on until its guarantee holds and keeps people within [0, 1] and at valid categories, the published "
        "code does neither; longer or shorter recourse shifts every rate",
        methods=("PROBE", "CROCO", "ROAR", "ARAR"),
    ),
    Reason("not known; another classifier and other people are part of it"),
)


def explain_difference(dataset: str, method: str, metric: str) -> str:
    """Return the reason why our value differs from the printed one.

    Examples
    --------
    >>> explain_difference("german", "CoGS", "Recourse_Time")[:15]
    'another machine'
    """
    return next(reason.text for reason in REASONS if reason.applies(dataset, method, metric))
