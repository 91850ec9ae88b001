"""CARLA recourse methods that learn a policy and plan sequences of actions with it: ROSE and FastAR."""

from __future__ import annotations

import hashlib
import json
import os
from abc import abstractmethod
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
import pandas as pd
from carla.models.api import MLModel
from rose_carla._lib.runtime import Deadline
from rose_carla.errors import DataError, PlanError
from rose_carla.mdp import ActionSpace, RecourseMDP, Robustness, StateCost
from rose_carla.method import Method
from rose_carla.models import encoded_rows
from rose_carla.models.contract import listed
from rose_carla.noise import InvalidationRate
from rose_carla.ppo import ActorCritic, Update, train
from rose_carla.rose import policy_file
from rose_carla.rose.plan import Plan, PlanStep, Success, original_values, steps_of
from rose_carla.rose.search import Planned, Planner, Task, calibrate, walk
from rose_carla.rose.sequential_config import SequentialSettings

Self = TypeVar("Self", bound="Sequential")

#: Rows that training is judged by, and rows that the planner is calibrated on.
_JUDGED_ROWS, _CALIBRATION_ROWS = 64, 48
#: Noisy versions of a plan in the calibration.
_CALIBRATION_SAMPLES = 100
#: People planned for together.
_TOGETHER = 2000
#: Streams of random numbers of a person.
_PLANNING, _REPORTING = 0, 1


class Sequential(Method):
    """Base of methods with one MDP, one PPO and one planner; they differ in noise, terminal test and reward.

    Parameters
    ----------
    mlmodel
        Any CARLA model; only its predictions are used.
    hyperparams
        Options of the settings class; an unknown one is an error.

    Attributes
    ----------
    settings : SequentialSettings
        All options.
    task : Task
        What a plan has to achieve: the action space, the classifier, the noise, tau.
    planner : Planner
        Turns the policy into plans, once trained.
    policy_ : ActorCritic
        The policy.
    log_ : list of Update
        How training went; see :func:`rose_carla.plots.learning_curve`.
    plans : dict
        From row labels of the last :meth:`get_counterfactuals` to actions (k, d), for metrics that need them.
    """

    settings: SequentialSettings

    def __init__(self, mlmodel: MLModel, hyperparams: Mapping[str, Any] | None = None) -> None:
        super().__init__(mlmodel, hyperparams)
        s = self.settings
        self.space = ActionSpace.from_model(mlmodel, s.action_unit, s.multiples, s.monotone)
        self.plans: dict[Hashable, np.ndarray] = {}
        self.task = self._task()
        if s.fit:
            self.fit()

    @abstractmethod
    def _task(self) -> Task:
        """What plans have to achieve, and the noise that they have to stand."""

    @abstractmethod
    def _planner(self, policy: ActorCritic, slope: float) -> Planner:
        """What turns a policy into plans."""

    def _cost(self) -> StateCost | None:
        """What being in a state costs, if anything."""
        return None

    def _deadline(self) -> Deadline | None:
        """When the walks of people who are planned for together end, if ever."""
        return None

    def _curriculum(self) -> list[tuple[Robustness, dict[str, Any]]]:
        """What is learnt one after the other: the noise, and options of the learner."""
        return [(self.task.robustness, {})]

    def fit(self: Self) -> Self:
        """Train the policy on the training rows that the classifier turns down."""
        s = self.settings
        rows = self._mlmodel.data.df_train[self._mlmodel.feature_input_order].to_numpy(dtype=float)
        starts = rows[self.task.probability(rows) <= self.task.border]
        if len(starts) == 0:
            raise PlanError("The classifier turns down no training row, so there is nothing to learn from.")
        rng = np.random.default_rng([s.seed, len(starts)])
        chosen = starts[rng.choice(len(starts), min(len(starts), _JUDGED_ROWS), replace=False)]
        policy: ActorCritic | None = None
        log: list[Update] = []
        for robustness, options in self._curriculum():
            mdp = self.mdp(starts, robustness)
            task = replace(self.task, robustness=robustness)

            def judged(candidate: ActorCritic, task: Task = task) -> tuple[float, float]:
                walks = walk(task, candidate, chosen, s.max_actions, _generators(chosen, s.seed, _PLANNING))
                size = walks.drafts.sizes().sum(axis=1)[walks.reached]
                return float(walks.reached.mean()), float(size.mean()) if len(size) else float("inf")

            policy, updates = train(
                mdp, s.learner(**options), s.seed, policy=policy, evaluate=judged, progress=s.progress
            )
            log += _after(updates, log[-1] if log else None)
        assert policy is not None
        some = chosen[:_CALIBRATION_ROWS]
        slope = calibrate(
            self.task, policy, some, s.max_actions, _CALIBRATION_SAMPLES, _generators(some, s.seed, _PLANNING)
        )
        self.log_ = log
        self._know(policy, slope)
        return self

    def mdp(self, starts: np.ndarray, robustness: Robustness | None = None) -> RecourseMDP:
        """The Markov decision process of Algorithm 3 for this method, with episodes that start in ``starts``."""
        s = self.settings
        return RecourseMDP(
            self.space,
            self.task.probability,
            starts,
            robustness or self.task.robustness,
            tau=self.task.tau,
            gamma=s.gamma,
            reward=s.constant_reward,
            max_actions=s.max_actions,
            border=self.task.border,
            cost=self._cost(),
        )

    def _know(self, policy: ActorCritic, slope: float) -> None:
        self.policy_, self.slope_ = policy, slope
        self.planner = self._planner(policy, slope)

    def get_counterfactuals(self, factuals: pd.DataFrame) -> pd.DataFrame:
        """Where the plans lead, one row for each factual under its label; NaN where no plan was found.

        Rows that are accepted already come back as they are, with an empty plan. The actions are in :attr:`plans`.
        """
        ends = super().get_counterfactuals(factuals)
        nothing = np.empty((0, ends.shape[1]))
        found = ends.index[ends.notna().all(axis=1)]
        self.plans = {label: self.plans.get(label, nothing) for label in found}
        return ends

    def find_counterfactuals(self, rows: np.ndarray, labels: Sequence[Hashable]) -> np.ndarray:
        planned = self._planned(rows)
        self.plans = {label: plan for label, plan, ok in zip(labels, planned.plans, planned.found, strict=True) if ok}
        return np.where(planned.found[:, None], planned.ends, np.nan)

    def plan(self, factuals: pd.DataFrame) -> list[Plan]:
        """A plan for each factual, in order: actions in encoded and original units, with their chances of success.

        Success after a step is estimated with fresh noise, as much of it as in the check of a plan.
        """
        rows, labels = encoded_rows(self._mlmodel, factuals), list(factuals.index)
        parts = [slice(start, start + _TOGETHER) for start in range(0, len(rows), _TOGETHER)]
        return [plan for part in parts for plan in self._told(rows[part], labels[part], self._planned(rows[part]))]

    def next_action(self, state: pd.Series | pd.DataFrame) -> PlanStep | None:
        """What somebody should do next who is in ``state``, whatever the plan so far; None if accepted already.

        Raises
        ------
        PlanError
            If no plan is found from there; the message says why.
        """
        frame = state.to_frame().T if isinstance(state, pd.Series) else state
        if isinstance(frame, pd.DataFrame) and len(frame) > 1:
            raise DataError(f"next_action takes one person at a time, got {len(frame)} rows: use plan for many.")
        plan = self.plan(frame)[0]
        if not plan.found:
            raise PlanError(plan.reason)
        return plan.steps[0] if plan.steps else None

    def _planned(self, rows: np.ndarray) -> Planned:
        """Plans for everybody, accepted or not, a few thousand at a time."""
        if not hasattr(self, "policy_"):
            raise PlanError("The policy is not trained yet: call fit() first.")
        n, width = rows.shape
        plans, ends = [np.empty((0, width))] * n, rows.copy()
        found, rates = np.ones(n, dtype=bool), np.zeros(n)
        turned_down = np.flatnonzero(self.task.probability(rows) <= self.border)
        for start in range(0, len(turned_down), _TOGETHER):
            part = turned_down[start : start + _TOGETHER]
            generators = _generators(rows[part], self.settings.seed, _PLANNING)
            some = self.planner.plan(rows[part], generators, self._deadline())
            ends[part], found[part], rates[part] = some.ends, some.found, some.rates
            for row, plan in zip(part, some.plans, strict=True):
                plans[row] = plan
        return Planned(plans, ends, found, rates)

    def _told(self, rows: np.ndarray, labels: list[Hashable], planned: Planned) -> list[Plan]:
        generators = _generators(rows, self.settings.seed, _REPORTING)
        prefixes = [
            (row, plan[:k])
            for row, plan in enumerate(planned.plans)
            for k in range(0 if not len(plan) else 1, len(plan) + 1)
        ]
        owners = np.array([row for row, _ in prefixes])
        rates = self.task.robustness.judge(
            rows[owners],
            [plan for _, plan in prefixes],
            self.planner.settling.n_check,
            [generators[row] for row in owners],
            0.95,
        )
        states = np.concatenate(
            [np.vstack([row, row + plan.cumsum(axis=0)]) for row, plan in zip(rows, planned.plans, strict=True)]
        )
        raw = original_values(self._mlmodel, states)
        told, first, at = [], 0, 0
        for row, label, actions, found, rate in zip(
            rows, labels, planned.plans, planned.found, planned.rates, strict=True
        ):
            successes = [_success(rates, i) for i in range(first, first + max(len(actions), 1))]
            steps = steps_of(self.space, row, actions, raw.iloc[at : at + len(actions) + 1], successes[: len(actions)])
            told.append(Plan(label, row, steps, bool(found), self._reason(steps, found, rate), successes[-1]))
            first, at = first + len(successes), at + len(actions) + 1
        return told

    def _reason(self, steps: tuple[PlanStep, ...], found: bool, rate: float) -> str:
        if found:
            return "" if steps else "accepted already, nothing needs to change"
        return f"no plan found: {self._no_plan(rate)}"

    def _no_plan(self, rate: float) -> str:
        """Why there is no plan, given the lowest invalidation rate seen."""
        if rate >= 1:
            return "no state in reach is classified favourably"
        return (
            f"the most robust one seen fails in {rate:.0%} of noisy tries, and below {self.task.limit:.0%} is asked "
            f"for (tau = {self.task.tau:g})"
        )

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the policy and its settings to a file without anything executable in it."""
        if not hasattr(self, "policy_"):
            raise PlanError("There is nothing to save: call fit() first.")
        about = {"method": self.name, "settings": self.settings.as_dict(), "slope": self.slope_}
        policy_file.write(path, about, self.policy_, self.log_, self._mlmodel)

    @classmethod
    def load(cls: type[Self], path: str | os.PathLike[str], mlmodel: MLModel) -> Self:
        """Read what :meth:`save` wrote, for the same model.

        Raises
        ------
        PlanError
            If the file is damaged, of another format, of another method, or was written for another model.
        """
        about, weights, log = policy_file.read(path, cls.name, listed(mlmodel))
        method = cls(mlmodel, {**about["settings"], "fit": False})
        method.settings = replace(method.settings, fit=about["settings"].get("fit"))
        if json.loads(json.dumps(method.settings.as_dict())) != about["settings"]:
            raise PlanError(f"{os.fspath(path)!r} lacks settings of this version: train and save the policy anew.")
        method.log_ = log
        hidden = method.settings.learner().hidden
        method._know(
            policy_file.policy_from_weights(weights, method.space.width, method.space.n, hidden), about["slope"]
        )
        return method


def _generators(rows: np.ndarray, seed: int, stream: int) -> list[np.random.Generator]:
    """A generator for each row that depends on the seed and the row's values alone, whoever else is in the batch."""
    digests = [hashlib.blake2b(row.tobytes(), digest_size=8).digest() for row in np.ascontiguousarray(rows)]
    return [np.random.default_rng([seed, stream, int.from_bytes(digest, "big")]) for digest in digests]


def _success(rates: InvalidationRate, i: int) -> Success:
    return Success(float(1 - rates.rate[i]), float(1 - rates.upper[i]), float(1 - rates.lower[i]))


def _after(updates: list[Update], last: Update | None) -> list[Update]:
    """Updates that went on where others ended."""
    if last is None:
        return updates
    return [replace(each, steps=each.steps + last.steps, seconds=each.seconds + last.seconds) for each in updates]
