"""Linear classifiers: detection, the cheapest change in closed form, and linear surrogates of others."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from carla.models.api import MLModel
from rose_carla.datasets import feature_groups, valid_encodings
from rose_carla.models import Logit

#: Number of training rows, and relative tolerance, of the test for linearity.
_TEST_ROWS, _TOLERANCE = 256, 1e-4
#: Points around a person that a surrogate is fitted to, and its ridge.
_POINTS, _RIDGE = 1000, 1.0


def linear_weights(g: Logit, mlmodel: MLModel) -> tuple[np.ndarray, float] | None:
    """Return the weights (d,) and bias of g if it is linear, else None."""
    rows = mlmodel.data.df_train[mlmodel.feature_input_order].to_numpy(dtype=float)
    rows = rows[np.linspace(0, len(rows) - 1, min(len(rows), _TEST_ROWS)).astype(int)]
    with torch.enable_grad():
        zero = torch.zeros(1, rows.shape[1], requires_grad=True)
        value = g(zero)
        (gradient,) = torch.autograd.grad(value.sum(), zero)
    with torch.no_grad():
        values = g(torch.tensor(rows, dtype=torch.float32)).double().numpy()
    weights, bias = gradient[0].double().numpy(), float(value.detach())
    off = np.abs(rows @ weights + bias - values).max()
    return (weights, bias) if off <= _TOLERANCE * max(1.0, np.abs(values).max()) else None


def probability_surrogate(g: Logit, rows: np.ndarray, mlmodel: MLModel, seed: int) -> Callable[[torch.Tensor], Logit]:
    """Fit ridge regressions on *probabilities* around each of (b, d) rows, as LIME does; return them by row number.

    Some published ports of ROAR and ARAR use them in place of logits, although neither the scale nor the decision
    border is the same.
    """
    train = mlmodel.data.df_train[mlmodel.feature_input_order].to_numpy(dtype=float)
    spread = torch.tensor(train.std(axis=0), dtype=torch.float32)
    generator = torch.Generator().manual_seed(seed)
    unit = torch.randn(_POINTS, rows.shape[1], generator=generator)
    width = 0.75 * rows.shape[1] ** 0.5
    nearness = torch.exp(-(unit**2).sum(dim=1) / width**2)
    design = torch.cat([unit * spread, torch.ones(_POINTS, 1)], dim=1).double()
    ridge = _RIDGE * torch.eye(design.shape[1], dtype=torch.double)
    ridge[-1, -1] = 0.0
    normal = design.T @ (nearness[:, None] * design) + ridge
    start = torch.tensor(rows, dtype=torch.float32)
    with torch.no_grad():
        probabilities = torch.stack([torch.sigmoid(g(row + unit * spread)) for row in start]).double()
    solved = torch.linalg.solve(normal, design.T @ (nearness * probabilities).T).T
    weights = solved[:, :-1].float()
    biases = solved[:, -1].float() - (weights * start).sum(dim=1)
    return lambda numbers: lambda points: (weights[numbers] * points).sum(dim=1) + biases[numbers]


def cheapest_change(
    rows: np.ndarray, needed: np.ndarray, weights: np.ndarray, mlmodel: MLModel
) -> tuple[np.ndarray, np.ndarray]:
    r"""Return the exact changes of least L1 length that raise a linear score by a required amount.

    .. math:: \min \lVert a \rVert_1 \quad \text{s.t.} \quad w \cdot a \ge c, \quad x + a \in [0, 1]^d

    with valid categories and unchanged immutable features; values outside [0, 1] may stay there. Continuous features
    are moved to their bounds in the order of |w|, for each Pareto-optimal choice of categories by cost and gain.

    Parameters
    ----------
    rows
        (b, d) factuals x.
    needed
        (b,) required gains c.
    weights
        (d,) weights w.
    mlmodel
        Model whose data set has the immutable and categorical features.

    Returns
    -------
    changes, cost
        (b, d) changes a and their lengths (b,), infinite where the problem is infeasible.
    """
    data, order = mlmodel.data, mlmodel.feature_input_order
    groups = {name: columns for name, columns in feature_groups(data, order).items() if name not in data.immutables}
    options = [
        (columns, valid_encodings(data, name, len(columns)))
        for name, columns in groups.items()
        if name in data.categorical
    ]
    cost, gain, choice = _pareto_fronts(rows, weights, options)
    single = np.array([columns[0] for name, columns in groups.items() if name not in data.categorical], dtype=int)
    single = single[np.argsort(-np.abs(weights[single]), kind="stable")]
    single = single[weights[single] != 0]
    slopes = weights[single]
    room = np.where(slopes > 0, 1 - rows[:, single], rows[:, single]).clip(0)
    empty = np.zeros((len(rows), 1))
    raised = np.hstack([empty, (room * np.abs(slopes)).cumsum(axis=1)])
    spent = np.hstack([empty, room.cumsum(axis=1)])
    rest = (needed[:, None] - gain).clip(0)  # gain needed of continuous features, for each choice of categories
    full = (raised[:, None, 1:] < rest[:, :, None]).sum(axis=2)  # number of features moved to their bounds
    enough = full < raised.shape[1] - 1
    at = np.minimum(full, max(len(single) - 1, 0))
    people = np.arange(len(rows))[:, None]
    with np.errstate(divide="ignore", invalid="ignore"):
        last = (rest - raised[people, full]) / np.append(np.abs(slopes), 1.0)[at]
    last = np.where(rest > 0, last, 0.0)
    total = np.where(enough | (rest <= 0), cost + spent[people, full] + last, np.inf)
    best = total.argmin(axis=1)
    people = people[:, 0]
    changes = np.zeros_like(rows)
    filled = np.where(np.arange(len(single)) < full[people, best][:, None], room, 0.0)
    partly = np.flatnonzero((rest[people, best] > 0) & enough[people, best])
    filled[partly, full[partly, best[partly]]] = last[partly, best[partly]]
    changes[:, single] = filled * np.sign(slopes)
    for number, (columns, encodings) in enumerate(options):
        changes[:, columns] = encodings[choice[people, best, number]] - rows[:, columns]
    return changes, total[people, best]


def _pareto_fronts(
    rows: np.ndarray, weights: np.ndarray, options: Sequence[tuple[list[int], np.ndarray]]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return costs (b, m), gains (b, m) and encodings (b, m, features) of the Pareto-optimal choices of each row."""
    n = len(rows)
    cost, gain, choice = np.zeros((n, 1)), np.zeros((n, 1)), np.zeros((n, 1, 0), dtype=int)
    for columns, encodings in options:
        changes = encodings - rows[:, None, columns]
        costs, gains = np.abs(changes).sum(axis=2), changes @ weights[columns]
        cost = (cost[:, :, None] + costs[:, None, :]).reshape(n, -1)
        gain = (gain[:, :, None] + gains[:, None, :]).reshape(n, -1)
        before, last = np.divmod(np.arange(cost.shape[1]), len(encodings))
        choice = np.concatenate([choice[:, before], np.repeat(last[None, :, None], n, axis=0)], axis=2)
        order = np.lexsort((-gain, cost.round(12)), axis=1)
        cost, gain = np.take_along_axis(cost, order, axis=1), np.take_along_axis(gain, order, axis=1)
        choice = np.take_along_axis(choice, order[:, :, None], axis=1)
        highest = np.maximum.accumulate(gain, axis=1)
        dominated = np.hstack([np.zeros((n, 1), dtype=bool), gain[:, 1:] <= highest[:, :-1] + 1e-12])
        cost = np.where(dominated, np.inf, cost)
        order = np.argsort(dominated, axis=1, kind="stable")[:, : (~dominated).sum(axis=1).max()]
        cost, gain = np.take_along_axis(cost, order, axis=1), np.take_along_axis(gain, order, axis=1)
        choice = np.take_along_axis(choice, order[:, :, None], axis=1)
    return cost, gain, choice
