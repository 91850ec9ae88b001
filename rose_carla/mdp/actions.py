"""The action space of Algorithm 3: each action changes one feature and leads to a valid encoding."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from carla.models.api import MLModel
from rose_carla.datasets import action_bounds, encoded_unit, feature_groups, valid_encodings
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
    unit
        Size u of a unit of action of a continuous feature; None for that of the action space.
    lower, upper
        Bounds of a continuous feature: no action leads beyond them.
    """

    name: str
    columns: tuple[int, ...]
    encodings: np.ndarray | None = None
    direction: int = 0
    unit: float | None = None
    lower: float = 0.0
    upper: float = 1.0


class ActionSpace:
    """Numbered actions on encoded states: moves of continuous features and settings of categorical ones.

    A continuous feature moves by a multiple of its unit, up or down. A move that would cross a bound ends at it; of
    several such moves only the smallest is possible. Without ``partial_moves`` none of them is. A categorical feature
    is set to another of its categories.

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
    partial_moves
        Whether moves may end at a bound after less than their size.

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
    units : (width,) array
        Unit of action of each column.
    lower, upper : (width,) array
        Bounds of each column.

    Examples
    --------
    >>> space = ActionSpace([Feature("income", (0,))], width=1, action_unit=0.25, multiples=(1, 2))
    >>> states = np.array([[0.0], [0.4]])
    >>> space.moves.tolist(), space.mask(states).tolist()
    ([-2, -1, 1, 2], [[False, False, True, True], [True, True, True, True]])
    >>> space.apply(states, np.array([2, 0])).tolist()
    [[0.25], [0.0]]
    """

    def __init__(
        self,
        features: Sequence[Feature],
        width: int,
        action_unit: float = 0.025,
        multiples: Sequence[int] = (1,),
        partial_moves: bool = True,
    ) -> None:
        if not features:
            raise PlanError(
                "All features are immutable, so recourse is impossible: remove one from the data set's immutables."
            )
        self.features = tuple(features)
        self.width = width
        self.action_unit = action_unit
        self.units = np.full(width, action_unit)
        self.lower, self.upper = np.zeros(width), np.ones(width)
        for feature in self.features:
            if feature.encodings is None:
                column = feature.columns[0]
                self.units[column] = feature.unit or action_unit
                self.lower[column], self.upper[column] = feature.lower, feature.upper
        sizes = sorted(set(multiples))
        following = dict(zip(sizes, [0, *sizes], strict=False))  # from a size to the next smaller one
        moves = [-size for size in reversed(sizes)] + sizes
        actions: list[tuple[int, int, np.ndarray | float]] = []  # feature, move, value put into its columns
        for number, feature in enumerate(self.features):
            if feature.encodings is None:
                unit = self.units[feature.columns[0]]
                actions += [(number, move, move * unit) for move in moves if move * feature.direction >= 0]
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
        # a move is possible if the next smaller one in its direction stays short of the bound
        smaller = np.array([following.get(abs(move), 0) for move in self.moves])
        needed = smaller * self.units[self._column] + _SLACK
        self._needed_room = needed if partial_moves else np.abs(self.moves) * self.units[self._column] - _SLACK
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
        partial_moves: bool = True,
    ) -> ActionSpace:
        """Create the actions on a model's features, except the immutables of its data set.

        Parameters
        ----------
        mlmodel, action_unit, multiples, partial_moves
            The model, and as in the constructor. A data set may have other units for some features, and narrower bounds
            for those with outliers.
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
                sign = DIRECTIONS.get(directions.get(name, ""), 0)
                unit, bounds = encoded_unit(data, name), action_bounds(data, name)
                features.append(Feature(name, tuple(columns), None, sign, unit, *bounds))
        return cls(features, len(order), action_unit, multiples, partial_moves)

    def mask(self, states: np.ndarray) -> np.ndarray:
        """Return which actions are possible in each of (b, d) states, (b, n).

        A move is possible if its bound is further away than the next smaller move. A category can be set unless the
        state has it already.
        """
        possible = self.room(states, self._column, self.moves) > self._needed_room
        for number, feature in enumerate(self.features):
            if feature.encodings is not None:
                distances = np.abs(states[:, None, list(feature.columns)] - feature.encodings).max(axis=2)
                possible[:, self.feature_numbers == number] = distances > _SLACK
        return possible

    def apply(self, states: np.ndarray, numbers: np.ndarray) -> np.ndarray:
        """Return the states after precise implementation of actions ``numbers`` (b,) in ``states`` (b, d)."""
        put = self._put[numbers]
        ends = states * self._keep[numbers] + put
        moved = np.flatnonzero(self.moves[numbers])
        column, sign = self._column[numbers[moved]], np.sign(self.moves[numbers[moved]])
        ends[moved, column] = self.stop_at_bounds(ends[moved, column], column, sign)
        return ends

    def lengths(self, states: np.ndarray) -> np.ndarray:
        """Return the L1 length of each action in each of (b, d) states, (b, n)."""
        moves = np.abs(self.moves) * self.units[self._column]
        # beyond a bound the room is negative: a move there would lead back to the bound
        lengths = np.abs(np.minimum(moves, self.room(states, self._column, self.moves)))
        for action in np.flatnonzero(self.moves == 0).tolist():
            columns = list(self.features[self.feature_numbers[action]].columns)
            lengths[:, action] = np.abs(states[:, columns] - self._put[action, columns]).sum(axis=1)
        return lengths

    def stop_at_bounds(self, values: np.ndarray, columns: np.ndarray, signs: np.ndarray) -> np.ndarray:
        """Return values of ``columns`` that moved in the direction of ``signs``, at the bound if within a rounding
        error of it or beyond."""
        values = np.where((signs > 0) & (values > self.upper[columns] - _SLACK), self.upper[columns], values)
        return np.where((signs < 0) & (values < self.lower[columns] + _SLACK), self.lower[columns], values)

    def room(self, states: np.ndarray, columns: np.ndarray, signs: np.ndarray) -> np.ndarray:
        """Return how far columns can move in the direction of ``signs``, (b, columns)."""
        values = states[:, columns]
        return np.where(signs > 0, self.upper[columns] - values, values - self.lower[columns])
