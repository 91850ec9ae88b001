"""Where counterfactuals may lie: in [0, 1], at valid categories, with immutable features as they are."""

from __future__ import annotations

import numpy as np
import torch
from carla.models.api import MLModel
from rose_carla.datasets import feature_groups, mutable_columns, valid_encodings
from rose_carla.errors import PlanError, unknown_name

#: What gradient methods do with categorical columns.
CATEGORIES = ("valid", "fixed", "relaxed")


def within(ends: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """``ends`` (b, d) with values in [0, 1], or where those of ``rows`` (b, d) were if that is outside; NaN stays."""
    return np.clip(ends, np.minimum(rows, 0.0), np.maximum(rows, 1.0))


class Box:
    """The points that a gradient method may visit, as tensors.

    Parameters
    ----------
    mlmodel
        Its data set tells immutable and categorical features.
    categories
        ``"valid"``: points have valid categories, found by rounding, and gradients pass through the rounding;
        ``"fixed"``: categories stay as they are; ``"relaxed"``: they are taken for numbers.
    clamp
        Whether values stay in [0, 1].

    Attributes
    ----------
    mutable : (d,) tensor of bool
        Columns that may change.
    categorical : (d,) tensor of bool
        Columns of categorical features.
    """

    def __init__(self, mlmodel: MLModel, categories: str = "valid", clamp: bool = True) -> None:
        data, order = mlmodel.data, mlmodel.feature_input_order
        if categories not in CATEGORIES:
            raise PlanError(unknown_name("treatment of categories", categories, CATEGORIES))
        self.clamp = clamp
        self.mutable = torch.tensor(mutable_columns(data, order))
        self.categorical = torch.zeros(len(order), dtype=torch.bool)
        self._groups: list[tuple[torch.Tensor, torch.Tensor]] = []
        binary: list[int] = []
        for feature, columns in feature_groups(data, order).items():
            self.categorical[columns] = feature in data.categorical
            if feature not in data.categorical or feature in data.immutables:
                continue
            if categories == "fixed":
                self.mutable[columns] = False
            elif categories == "valid":
                encodings = valid_encodings(data, feature, len(columns))
                if np.array_equal(encodings, [[0.0], [1.0]]):
                    binary += columns
                else:
                    self._groups.append((torch.tensor(columns), torch.tensor(encodings, dtype=torch.float32)))
        self._binary = torch.tensor(binary, dtype=torch.long)

    def inside(self, points: torch.Tensor, start: torch.Tensor) -> torch.Tensor:
        """``points`` (b, d) with values in [0, 1], or where ``start`` was; immutable features as in ``start``."""
        if self.clamp:
            points = torch.maximum(torch.minimum(points, start.clamp_min(1.0)), start.clamp_max(0.0))
        return torch.where(self.mutable, points, start)

    def valid(self, points: torch.Tensor) -> torch.Tensor:
        """``points`` with valid categories; the gradient is that of ``points``."""
        if len(self._binary) == 0 and not self._groups:
            return points
        with torch.no_grad():
            rounded = points.clone()
            rounded[:, self._binary] = (points[:, self._binary] > 0.5).to(points.dtype)
            for columns, encodings in self._groups:
                # nearest by |x - c|^2, without the term that all candidates share
                candidates = encodings.to(points.dtype)
                closeness = points[:, columns] @ candidates.T - 0.5 * (candidates**2).sum(dim=1)
                rounded[:, columns] = candidates[closeness.argmax(dim=1)]
        return points + (rounded - points).detach()
