"""Why a number differs from the printed one, as far as it is known."""

from __future__ import annotations

from typing import NamedTuple

#: Any data set, method or metric.
ANY = "*"
_AIR = ("Gaussian_AIR", "Plausible_AIR", "Acc_AIR")


class Reason(NamedTuple):
    """A reason and the values that it explains."""

    words: str
    datasets: tuple[str, ...] = (ANY,)
    methods: tuple[str, ...] = (ANY,)
    metrics: tuple[str, ...] = (ANY,)

    def explains(self, dataset: str, method: str, metric: str) -> bool:
        """Whether it is about that value."""
        asked = ((dataset, self.datasets), (method, self.methods), (metric, self.metrics))
        return all(ANY in allowed or name in allowed for name, allowed in asked)


#: The first that fits is given.
REASONS = (
    Reason(
        "another machine: the paper does not say which, nor how many people were served at a time",
        metrics=("Recourse_Time", "Training_Time"),
    ),
    Reason(
        "printed value is an artefact: the paper's evaluation points were stored in [0, 1] and read as [-1, 1], so "
        "most of them were not negative to begin with",
        datasets=("compas",),
        methods=("FastAR", "ROSE-one", "ROSE-mul"),
    ),
    Reason(
        "the paper does not say which density it means; ours is a Gaussian KDE with Scott's bandwidth on the training "
        "rows of class 1",
        metrics=("Log_Density",),
    ),
    Reason(
        "our CoGS breaks ties towards fewer changes and stops as soon as nothing gets better; what the paper's did is "
        "not known",
        methods=("CoGS",),
        metrics=("Sparsity",),
    ),
    Reason(
        "ours counts recourse as found only if it stands the check on fresh noise; the paper's training noise (a "
        "weighted mean of 50 points in coordinates of [-1, 1]) has about a quarter of the variance, so less is asked "
        "of its recourse",
        methods=("ROSE-one", "ROSE-mul"),
    ),
    Reason(
        "CARLA's method is the same; another classifier (ours has its own weights) and other people",
        methods=("Wachter", "GrSp"),
    ),
    Reason(
        "the release of dice-ml is another, and with it the random search and its sparsity step",
        methods=("DiCE",),
    ),
    Reason(
        "ours keeps people within [0, 1] and at valid categories, which the published code does not; the longer or "
        "shorter recourse shifts every rate",
        methods=("PROBE", "CROCO", "ROAR", "ARAR"),
    ),
    Reason("not known; another classifier and other people are part of it"),
)


def reason(dataset: str, method: str, metric: str) -> str:
    """Why that value differs from the printed one.

    Examples
    --------
    >>> reason("german", "CoGS", "Recourse_Time")[:15]
    'another machine'
    """
    return next(each.words for each in REASONS if each.explains(dataset, method, metric))
