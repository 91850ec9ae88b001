"""The action space of Algorithm 3: each action changes one feature, and no action leaves the valid encodings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from carla.models.api import MLModel
from rose_carla.datasets import feature_groups, valid_encodings
from rose_carla.errors import PlanError, short_repr, unknown_name

#: The directions in which a monotone feature may move.
DIRECTIONS = {"increase": 1, "decrease": -1}
#: Rounding may carry a move that much over the edge of [0, 1]; the state is put back onto it.
_SLACK = 1e-9
#: Units in the largest move.
_MOST_UNITS = 10**6


@dataclass(frozen=True)
class Feature:
    """What can be done with one feature of the encoded space.

    Parameters
    ----------
    name
        Raw name.
    columns
        Its columns among the encoded ones.
    encodings
        (c, columns) valid encodings of a categorical feature; none for a continuous one.
    direction
        1 or -1 if a continuous feature may move up or down only, else 0.
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
        Which of ``features`` each action changes.
    moves : (n,) array
        Signed size of each action in units if it is a move, 0 if it sets a category.
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
            raise PlanError("No feature may change, so there is no recourse: free one from the data set's immutables.")
        if not 0 < action_unit <= 1:
            raise PlanError(f"action_unit has to be above 0 and at most 1, got {action_unit}.")
        if not all(isinstance(size, (int, np.integer)) and 1 <= size <= _MOST_UNITS for size in multiples):
            raise PlanError(f"multiples must be integers from 1 to {_MOST_UNITS:,}, got {short_repr(multiples)}.")
        sizes = sorted(set(multiples))
        if not sizes:
            raise PlanError("multiples must be integers of at least 1, got none.")
        self.features = tuple(features)
        self.width = width
        self.action_unit = action_unit
        keeps, puts, owners, moves, edges = [], [], [], [], []
        for number, feature in enumerate(self.features):
            columns = list(feature.columns)
            if feature.encodings is None:
                signed = [-size for size in reversed(sizes)] + sizes
                for move in (move for move in signed if move * feature.direction >= 0):
                    put = np.zeros(width)
                    put[columns] = move * action_unit
                    keeps.append(np.ones(width))
                    puts.append(put)
                    owners.append(number)
                    moves.append(move)
                    edges.append(columns[0])
            else:
                for encoding in feature.encodings:
                    keep, put = np.ones(width), np.zeros(width)
                    keep[columns] = 0.0
                    put[columns] = encoding
                    keeps.append(keep)
                    puts.append(put)
                    owners.append(number)
                    moves.append(0)
                    edges.append(columns[0])
        self._keep, self._put, self._edge = np.stack(keeps), np.stack(puts), np.array(edges)
        self.feature_numbers, self.moves = np.array(owners), np.array(moves)
        self.n = len(owners)
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
        """Actions on a model's features: all but the immutables of its data set.

        Parameters
        ----------
        monotone
            From a continuous feature to ``"increase"`` or ``"decrease"``, the only way it may move: ``{"age":
            "increase"}``.
        """
        data, order = mlmodel.data, mlmodel.feature_input_order
        groups = feature_groups(data, order)
        missing = [order[column] for column in set(range(len(order))) - {c for group in groups.values() for c in group}]
        if missing:
            raise PlanError(f"Columns of the classifier belong to no feature of its data set: {sorted(missing)[:5]}.")
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
        """For each of (b, d) states which actions are possible, (b, n).

        A move has to end in [0, 1]; from outside it may also end outside, if nearer. A category can be set if it is not
        there already.
        """
        values = states[:, self._edge]
        ends = values + self._put[np.arange(self.n), self._edge]
        possible = _beyond(ends) <= np.maximum(_beyond(values) - _SLACK, _SLACK)
        for number, feature in enumerate(self.features):
            if feature.encodings is not None:
                distances = np.abs(states[:, None, list(feature.columns)] - feature.encodings).max(axis=2)
                possible[:, self.feature_numbers == number] = distances > _SLACK
        return possible

    def apply(self, states: np.ndarray, numbers: np.ndarray) -> np.ndarray:
        """Where actions ``numbers`` (b,) lead from ``states`` (b, d) if they are implemented precisely."""
        put = self._put[numbers]
        ends = states * self._keep[numbers] + put
        return np.where(put != 0, onto_edge(ends), ends)


def onto_edge(values: np.ndarray) -> np.ndarray:
    """``values`` with those that rounding carried over the edge of [0, 1] put back onto it."""
    return np.where(_beyond(values) < 2 * _SLACK, values.clip(0.0, 1.0), values)


def _beyond(values: np.ndarray) -> np.ndarray:
    """How far outside [0, 1]."""
    return np.maximum(np.maximum(-values, values - 1.0), 0.0)
