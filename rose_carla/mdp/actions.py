"""The action space of Algorithm 3: each action changes one feature and leads to a valid encoding."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from carla.models.api import MLModel
from rose_carla.datasets import feature_groups, valid_encodings
from rose_carla.errors import PlanError, unknown_name

#: Directions in which a monotone feature may move.
DIRECTIONS = {"increase": 1, "decrease": -1}
#: Tolerance for rounding errors at the bounds of [0, 1].
_SLACK = 1e-9


@dataclass(frozen=True)
class Feature:
    """A feature that actions may change.

    Parameters
    ----------
    name
        Raw name.
    columns
        Its columns in the encoded space.
    encodings
        (c, columns) valid encodings of a categorical feature; None for a continuous one.
    direction
        1 or -1 if a continuous feature may only increase or decrease, else 0.
    """

    name: str
    columns: tuple[int, ...]
    encodings: np.ndarray | None = None
    direction: int = 0


class ActionSpace:
    """Numbered actions on encoded states: moves of continuous features and settings of categorical ones.

    A continuous feature moves by a multiple of ``action_unit``, up or down; a move that would leave [0, 1] is masked. A
    categorical feature is set to another of its categories.

    Parameters
    ----------
    features
        The features that may change.
    width
        Number of encoded columns.
    action_unit
        Size u of a unit of action.
    multiples
        Sizes of moves, in units.

    Attributes
    ----------
    n : int
        Number of actions.
    feature_numbers : (n,) array
        Index into ``features`` of the feature that each action changes.
    moves : (n,) array
        Signed size of each move in units, 0 for actions that set a category.
    membership : (width, features) array
        1 where a column belongs to a feature, else 0.

    Examples
    --------
    >>> space = ActionSpace([Feature("income", (0,))], width=1, action_unit=0.25, multiples=(1, 2))
    >>> states = np.array([[0.0], [0.5]])
    >>> space.moves.tolist(), space.mask(states).tolist()
    ([-2, -1, 1, 2], [[False, False, True, True], [True, True, True, True]])
    >>> space.apply(states, np.array([2, 0])).tolist()
    [[0.25], [0.0]]
    """

    def __init__(
        self, features: Sequence[Feature], width: int, action_unit: float = 0.025, multiples: Sequence[int] = (1,)
    ) -> None:
        if not features:
            raise PlanError(
                "All features are immutable, so recourse is impossible: remove one from the data set's immutables."
            )
        self.features = tuple(features)
        self.width = width
        self.action_unit = action_unit
        sizes = sorted(set(multiples))
        moves = [-size for size in reversed(sizes)] + sizes
        actions: list[tuple[int, int, np.ndarray | float]] = []  # feature, move, value put into its columns
        for number, feature in enumerate(self.features):
            if feature.encodings is None:
                actions += [(number, move, move * action_unit) for move in moves if move * feature.direction >= 0]
            else:
                actions += [(number, 0, encoding) for encoding in feature.encodings]
        self.n = len(actions)
        self.feature_numbers = np.array([number for number, _, _ in actions])
        self.moves = np.array([move for _, move, _ in actions])
        self._column = np.array([self.features[number].columns[0] for number in self.feature_numbers])
        self._keep, self._put = np.ones((self.n, width)), np.zeros((self.n, width))
        for action, (number, move, value) in enumerate(actions):
            columns = list(self.features[number].columns)
            self._put[action, columns] = value
            if move == 0:
                self._keep[action, columns] = 0.0
        self.membership = np.zeros((width, len(self.features)))
        for number, feature in enumerate(self.features):
            self.membership[list(feature.columns), number] = 1.0

    @classmethod
    def from_model(
        cls,
        mlmodel: MLModel,
        action_unit: float = 0.025,
        multiples: Sequence[int] = (1,),
        monotone: Mapping[str, str] | None = None,
    ) -> ActionSpace:
        """Create the actions on a model's features, except the immutables of its data set.

        Parameters
        ----------
        mlmodel, action_unit, multiples
            The model, and as in the constructor.
        monotone
            From a continuous feature to ``"increase"`` or ``"decrease"``, the only way it may move: ``{"age":
            "increase"}``.
        """
        data, order = mlmodel.data, mlmodel.feature_input_order
        groups = feature_groups(data, order)
        unknown = [order[column] for column in set(range(len(order))) - {c for group in groups.values() for c in group}]
        if unknown:
            raise PlanError(f"Columns of the classifier are not in its data set: {sorted(unknown)[:5]}.")
        directions = dict(monotone or {})
        for name, direction in directions.items():
            if name not in groups or name in data.categorical:
                raise PlanError(unknown_name("continuous feature", name, set(groups) - set(data.categorical)))
            if not isinstance(direction, str) or direction not in DIRECTIONS:
                raise PlanError(unknown_name("direction", direction, DIRECTIONS))
        features = []
        for name, columns in groups.items():
            if name in data.immutables:
                continue
            if name in data.categorical:
                encodings = valid_encodings(data, name, len(columns))
                if len(encodings) > 1:
                    features.append(Feature(name, tuple(columns), encodings))
            else:
                features.append(Feature(name, tuple(columns), direction=DIRECTIONS.get(directions.get(name, ""), 0)))
        return cls(features, len(order), action_unit, multiples)

    def mask(self, states: np.ndarray) -> np.ndarray:
        """Return which actions are possible in each of (b, d) states, (b, n).

        A move must end in [0, 1]; from outside it may also end outside, if nearer. A category can be set unless the
        state has it already.
        """
        values = states[:, self._column]
        ends = values + self._put[np.arange(self.n), self._column]
        possible = _excess(ends) <= np.maximum(_excess(values) - _SLACK, _SLACK)
        for number, feature in enumerate(self.features):
            if feature.encodings is not None:
                distances = np.abs(states[:, None, list(feature.columns)] - feature.encodings).max(axis=2)
                possible[:, self.feature_numbers == number] = distances > _SLACK
        return possible

    def apply(self, states: np.ndarray, numbers: np.ndarray) -> np.ndarray:
        """Return the states after precise implementation of actions ``numbers`` (b,) in ``states`` (b, d)."""
        put = self._put[numbers]
        ends = states * self._keep[numbers] + put
        return np.where(put != 0, snap_to_bounds(ends), ends)


def snap_to_bounds(values: np.ndarray) -> np.ndarray:
    """Clip values to [0, 1] if they are outside by no more than a rounding error; leave others unchanged."""
    return np.where(_excess(values) < 2 * _SLACK, values.clip(0.0, 1.0), values)


def _excess(values: np.ndarray) -> np.ndarray:
    """Distance to [0, 1]."""
    return np.maximum(np.maximum(-values, values - 1.0), 0.0)
