"""What a method is tried on: a data set, a classifier, and the people who are turned down."""

from __future__ import annotations

import functools
from dataclasses import dataclass

import pandas as pd
from rose_carla import datasets, models
from carla.models.api import MLModel
from rose_carla.errors import ExperimentError, unknown_name

#: Kinds of classifier and their names in the paper.
CLASSIFIERS = {"ann": "neural network", "linear": "logistic regression"}


@dataclass(frozen=True)
class Setting:
    """One data set with its classifier and its people.

    Parameters
    ----------
    dataset
        One of :data:`rose_carla.datasets.NAMES`.
    classifier
        ``"ann"`` or ``"linear"``.
    seed
        Of the split, of the classifier and of the draw of people.
    actionable
        Keep immutable features as they are; the paper's tables change everything.
    people
        At most so many of the people whom the paper selects, the first; None: all of them.

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
            raise ExperimentError(f"people has to be at least 1, got {self.people}.")

    def model(self) -> MLModel:
        """The trained classifier, with its data."""
        return _model(self.dataset, self.classifier, self.seed, self.actionable)

    def factuals(self) -> pd.DataFrame:
        """The people, encoded, under their row labels."""
        frame = models.negative_instances(self.model(), seed=self.seed)
        return frame if self.people is None else frame.head(self.people)


@functools.lru_cache(maxsize=4)
def _model(dataset: str, classifier: str, seed: int, actionable: bool) -> MLModel:
    """Cells of one data set follow one another: the last few models and their densities are kept."""
    data = datasets.load(dataset, all_actionable=not actionable, seed=seed)
    return models.train(data, classifier, seed=seed)
