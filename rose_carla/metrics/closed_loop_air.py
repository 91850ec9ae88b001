"""The closed-loop AIR: how often people fail who look where they landed and ask the method again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from carla.models.api import MLModel
from carla.recourse_methods.api import RecourseMethod
from rose_carla._lib.params import integer, number, optional
from rose_carla._lib.runtime import seeded
from rose_carla.datasets import action_units, feature_groups, project_categories
from rose_carla.errors import NoiseError
from rose_carla.metrics.evaluations import CHANGED, InvalidationMetric, NoiseSettings, align, density_with
from rose_carla.noise import InvalidationRate, PlausibleNoise, closed_loop, one_shot_plan, row_generators

#: Stream of the order of actions in an answer.
_ORDER_STREAM = 5


@dataclass(frozen=True)
class ClosedLoopSettings(NoiseSettings):
    """Options of :class:`ClosedLoopAIR`; ``n_samples`` and ``variance`` have no effect."""

    #: Independent tries of each person.
    n_tries: int = integer(20, le=10**6)
    #: Maximum number of answers that a try implements, the same for all methods.
    max_decisions: int = integer(10, le=10**4)
    #: L1 length that a try may not exceed; None for no limit.
    max_cost: float | None = optional(number(1.0, ge=0))


class ClosedLoopAIR(InvalidationMetric):
    """Share of tries that fail although people look where they landed and ask the method again, and what it costs.

    People implement an answer by NoisySteps, as in Definition 2, and ask again until they are accepted. A sequential
    method answers by its ``advise(states, budgets)``, with the next action. Any other method is asked for a
    counterfactual from where the person landed, which is implemented as a whole, in random order, before the next look.

    The option ``method`` is the recourse method; it is required.
    """

    columns = (
        *("Closed_Loop_AIR", "Closed_Loop_AIR_Lower", "Closed_Loop_AIR_Upper"),
        *("Closed_Loop_Cost", "Closed_Loop_Decisions"),
    )
    settings_class = ClosedLoopSettings
    stream = 4

    def __init__(self, mlmodel: MLModel, hyperparams: Mapping[str, Any] | None = None) -> None:
        method = None
        if isinstance(hyperparams, Mapping):
            method = hyperparams.get("method")
            hyperparams = {name: value for name, value in hyperparams.items() if name != "method"}
        super().__init__(mlmodel, hyperparams)
        if not callable(getattr(method, "get_counterfactuals", None)):
            raise NoiseError("ClosedLoopAIR asks the method again: pass hyperparams={'method': ...}.")
        self.method: Any = method

    def evaluate_rows(self, starts: np.ndarray, ends: np.ndarray, rows: np.ndarray, labels: pd.Index) -> np.ndarray:
        s, order = self.settings, self.mlmodel.feature_input_order
        ask = getattr(self.method, "advise", None) or _Answers(self.mlmodel, self.method, s.seed)
        with seeded(s.seed):  # CARLA's methods use the global generators
            tries = closed_loop(
                ask,
                self._favourable,
                starts,
                PlausibleNoise(density_with(self.mlmodel, s)),
                s.unit_variance,
                action_units(self.mlmodel.data, order, s.action_unit),
                s.n_tries,
                s.max_decisions,
                self._generators(rows),
                None if s.max_cost is None else np.full(len(starts), s.max_cost),
                s.noise_per,
            )
        done = tries.succeeded
        rate = InvalidationRate.from_failures((~done).sum(axis=1), s.n_tries, s.confidence)
        means = [_means(values, done) for values in (tries.costs, tries.decisions)]
        return np.stack([rate.rate, rate.lower, rate.upper, *means], axis=1)


def _means(values: np.ndarray, chosen: np.ndarray) -> np.ndarray:
    """Return the mean of the chosen values of each row; NaN without one."""
    counts = chosen.sum(axis=1)
    return np.where(counts > 0, (values * chosen).sum(axis=1) / np.maximum(counts, 1), np.nan)


class _Answers:
    """Answers of a one-shot method: all changes to its counterfactual, in random order.

    A person may have landed between categories or out of range. Where the method cannot answer for such a row, it is
    asked for the nearest one with valid categories in the range of the data, and the features that it would change are
    set to its values. A method that fails for one row fails for that row only.
    """

    def __init__(self, mlmodel: MLModel, method: RecourseMethod, seed: int) -> None:
        self.data, self.order = mlmodel.data, mlmodel.feature_input_order
        self.method, self.seed = method, seed
        self.groups = list(feature_groups(self.data, self.order).values())
        table = self.data.df[self.order].to_numpy(dtype=float)
        self.lower, self.upper = table.min(axis=0), table.max(axis=0)

    def __call__(self, states: np.ndarray, budgets: np.ndarray) -> Sequence[np.ndarray]:
        different, which = np.unique(states, axis=0, return_inverse=True)
        ends = self._ends(different, different)
        unanswered = np.flatnonzero(np.isnan(ends).any(axis=1))
        if len(unanswered):
            reported = project_categories(self.data, self.order, different[unanswered].clip(self.lower, self.upper))
            ends[unanswered] = self._ends(different[unanswered], reported)
        rngs = row_generators(different, self.seed, _ORDER_STREAM)
        plans = [
            np.empty((0, len(self.order))) if np.isnan(end).any() else one_shot_plan(state, end, self.groups, rng)
            for state, end, rng in zip(different, ends, rngs, strict=True)
        ]
        return [plans[row] for row in which.ravel().tolist()]

    def _ends(self, states: np.ndarray, reported: np.ndarray) -> np.ndarray:
        """Return where people in ``states`` are told to go who describe themselves as ``reported``; NaN: no answer."""
        answers = self._ask(reported)
        changed = np.abs(answers - reported) > CHANGED
        for columns in self.groups:
            changed[:, columns] = changed[:, columns].any(axis=1, keepdims=True)
        ends = np.where(changed, answers, states)
        ends[np.isnan(answers).any(axis=1)] = np.nan
        return ends

    def _ask(self, rows: np.ndarray) -> np.ndarray:
        """Return the method's counterfactuals of rows; NaN where it finds none or fails."""
        frame = pd.DataFrame(rows, columns=self.order)
        try:
            return align(frame, self.method.get_counterfactuals(frame.copy()), self.order).to_numpy(dtype=float)
        except Exception:  # a method may raise anything
            if len(rows) == 1:
                return np.full(rows.shape, np.nan)
        half = len(rows) // 2
        return np.concatenate([self._ask(rows[:half]), self._ask(rows[half:])])
