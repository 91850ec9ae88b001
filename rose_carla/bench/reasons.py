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
        "ours gives a person up rather than return a plan that fails the check on fresh noise: under the noise of the "
        "evaluation, on the density of all training rows, none was found for them",
        methods=("ROSE-one", "ROSE-mul"),
        metrics=("Validity",),
    ),
    Reason(
        "the paper's plans were made for less noise (a deviation of 0.1 in coordinates of [-1, 1] is a quarter of the "
        "variance in [0, 1], and a transition was a mean of 50 points); under the noise stated in the paper an "
        "exhaustive search finds no shorter single change on Adult either",
        methods=("ROSE-one", "ROSE-mul"),
        metrics=("Proximity", "Sparsity"),
    ),
    Reason(
        "ours shortens a plan until it just stands the check, a rate below 1 - tau = 0.25, so its rates lie nearer to "
        "that limit",
        methods=("ROSE-one", "ROSE-mul"),
        metrics=_AIR,
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


def reason(dataset: str, method: str, metric: str) -> str:
    """Why that value differs from the printed one.

    Examples
    --------
    >>> reason("german", "CoGS", "Recourse_Time")[:15]
    'another machine'
    """
    return next(each.words for each in REASONS if each.explains(dataset, method, metric))
