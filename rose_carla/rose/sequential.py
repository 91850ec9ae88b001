"""Base class of recourse methods that train a policy and plan sequences of actions with it: ROSE and FastAR."""

from __future__ import annotations

import json
import os
import warnings
from abc import abstractmethod
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np
import pandas as pd
from carla.models.api import MLModel
from rose_carla._lib.params import (
    Hyperparameters,
    flag,
    integer,
    integers,
    mapping,
    number,
    optional,
    seed,
)
from rose_carla._lib.runtime import Deadline
from rose_carla.errors import DataError, PlanError, short_repr
from rose_carla.mdp import ActionSpace, RecourseMDP, Robustness, StateCost
from rose_carla.method import Method
from rose_carla.models import encoded_rows
from rose_carla.models.mlmodel import with_list_order
from rose_carla.noise import most_failures_below, row_generators
from rose_carla.ppo import ActorCritic, PPOSettings, Update, train
from rose_carla.ppo.policy import POLICY, load_policy, policy_from_weights, save_policy
from rose_carla.rose.advice import greedy_changes
from rose_carla.rose.derived_settings import MIN_ACTIONS, default_max_actions, default_multiples
from rose_carla.rose.plan import Plan, PlanStep, make_plans
from rose_carla.rose.search import Planner, SearchResult, Task, calibrate, walk

Self = TypeVar("Self", bound="Sequential")

#: Held-out rows for the evaluation of the policy during training, and for the calibration of the planner.
_HELD_OUT, _CALIBRATION_ROWS = 64, 48
#: Noisy versions of a plan in the calibration.
_CALIBRATION_SAMPLES = 100
#: Share of held-out rows served by the policy alone below which ``fit`` warns.
_LOW_VALIDITY = 0.5
#: People planned for at a time, which bounds memory.
_CHUNK = 2000
#: Streams of random numbers of a person.
_PLANNING, _REPORTING = 0, 1
#: Reason for the lack of steps of a person who is accepted.
_ACCEPTED = "accepted already, nothing needs to change"


@dataclass(frozen=True)
class SequentialSettings(Hyperparameters):
    """Hyper-parameters that ROSE and FastAR share: actions, reward and PPO."""

    #: Size u of a unit of action.
    action_unit: float = number(0.025, gt=0, le=1)
    #: Discount of one unit of action.
    gamma: float = number(0.99, gt=0, lt=1)
    #: The large constant reward.
    constant_reward: float = number(100.0, gt=0)
    #: Sizes of moves, in units; None: powers of 2 up to 0.2 of a feature's range, (1, 2, 4, 8) for a unit of 0.025.
    multiples: tuple[int, ...] | None = optional(integers((), le=10**6))
    #: From a continuous feature to "increase" or "decrease", the only way it may move.
    monotone: Mapping[str, str] = mapping()
    #: Maximum number of actions per episode and per walk; None: from the distance to favourable states, at least 50.
    max_actions: int | None = optional(integer(1))
    #: Hyper-parameters of PPO; see :class:`rose_carla.ppo.PPOSettings`.
    ppo: Mapping[str, Any] = mapping()
    #: Seed of training and planning.
    seed: int = seed()
    #: Whether the constructor trains the policy; otherwise call ``fit()``.
    fit: bool = flag(True)
    #: Whether to show progress bars; None: only on a terminal.
    progress: bool | None = optional(flag(False))

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.multiples is not None and 1 not in self.multiples:
            raise PlanError(f"multiples must contain 1, got {short_repr(self.multiples)}.")
        self.ppo_settings()

    def ppo_settings(self, **defaults: Any) -> PPOSettings:
        """Return the hyper-parameters of PPO: ``defaults``, overridden by ``ppo``."""
        defaults = {"reward_scale": 1 / self.constant_reward, **defaults}
        return PPOSettings.from_mapping(self.ppo, defaults, "option of ppo")


class Sequential(Method):
    """Base class of methods with one MDP, one PPO and one planner; they differ in noise, terminal test and reward.

    Parameters
    ----------
    mlmodel
        A CARLA model; only its predictions are used.
    hyperparams
        Options of the settings class; an unknown name is an error.

    Attributes
    ----------
    settings : SequentialSettings
        Hyper-parameters; ``multiples`` and ``max_actions`` that were None are replaced by what follows from the table.
    task : Task
        Goal of a plan: action space, classifier, noise and tau.
    planner : Planner
        Search for plans with the trained policy.
    policy_ : ActorCritic
        Trained policy.
    log_ : list of Update
        Training log; see :func:`rose_carla.plots.learning_curve`.
    plans : dict
        From row labels of the last :meth:`get_counterfactuals` to actions (k, d), for metrics that need them.
    """

    settings: SequentialSettings
    #: Whether a move that would cross a bound ends at it.
    partial_moves = True

    def __init__(self, mlmodel: MLModel, hyperparams: Mapping[str, Any] | None = None) -> None:
        super().__init__(mlmodel, hyperparams)
        if self.settings.multiples is None:
            self.settings = replace(self.settings, multiples=default_multiples(self.settings.action_unit))
        s = self.settings
        assert s.multiples is not None
        self.space = ActionSpace.from_model(mlmodel, s.action_unit, s.multiples, s.monotone, self.partial_moves)
        self.plans: dict[Hashable, np.ndarray] = {}
        self.task = self._task()
        if s.fit:
            self.fit()

    @abstractmethod
    def _task(self) -> Task:
        """Return the goal of plans, with the noise they must be robust to."""

    @abstractmethod
    def _planner(self, policy: ActorCritic, slope: float) -> Planner:
        """Return the planner of a policy."""

    def _cost(self) -> StateCost | None:
        """Return the cost of states, if any."""
        return None

    def _deadline(self) -> Deadline | None:
        """Return the deadline of the walks of one chunk of people, if any."""
        return None

    def _curriculum(self) -> list[tuple[Robustness, dict[str, Any]]]:
        """Return the stages of training: noise model and defaults of PPO's hyper-parameters."""
        return [(self.task.robustness, {})]

    def fit(self: Self) -> Self:
        """Train the policy on the training rows with an unfavourable outcome."""
        starts, held_out = self._starts()
        if self.settings.max_actions is None:
            self.settings = replace(self.settings, max_actions=default_max_actions(self.task, held_out))
        s = self.settings
        max_actions = s.max_actions
        assert max_actions is not None
        policy: ActorCritic | None = None
        log: list[Update] = []
        for robustness, defaults in self._curriculum():
            task = replace(self.task, robustness=robustness)

            def evaluate(candidate: ActorCritic, task: Task = task) -> tuple[float, float]:
                walks = walk(task, candidate, held_out, max_actions, row_generators(held_out, s.seed, _PLANNING))
                sizes = walks.drafts.sizes().sum(axis=1)[walks.reached]
                return float(walks.reached.mean()), float(sizes.mean()) if len(sizes) else float("inf")

            policy, updates = train(
                self.mdp(starts, robustness),
                s.ppo_settings(**defaults),
                s.seed,
                policy=policy,
                evaluate=evaluate,
                progress=s.progress,
            )
            steps, seconds = (log[-1].steps, log[-1].seconds) if log else (0, 0.0)
            log += [replace(each, steps=each.steps + steps, seconds=each.seconds + seconds) for each in updates]
        assert policy is not None
        validity = max((each.greedy_validity for each in updates if each.greedy_validity >= 0), default=1.0)
        if validity < _LOW_VALIDITY:
            warnings.warn(
                f"The policy alone reaches the goal for {validity:.0%} of {len(held_out)} held-out training rows; the "
                "search after it may find plans for more people. Fewer immutable or monotone features, a smaller tau, "
                "more max_actions or more training (ppo: n_updates, restarts) help.",
                stacklevel=2,
            )
        rows = held_out[:_CALIBRATION_ROWS]
        generators = row_generators(rows, s.seed, _PLANNING)
        slope = calibrate(self.task, policy, rows, max_actions, _CALIBRATION_SAMPLES, generators)
        self._set_policy(policy, slope, log)
        return self

    def _starts(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the training rows with an unfavourable outcome, and a sample of them for evaluations."""
        rows = self._training_rows()
        starts = rows[self.task.probability(rows) <= self.task.border]
        if len(starts) == 0:
            raise PlanError("The classifier accepts all training rows, so training has no start states.")
        rng = np.random.default_rng([self.settings.seed, len(starts)])
        return starts, starts[rng.choice(len(starts), min(len(starts), _HELD_OUT), replace=False)]

    def _training_rows(self) -> np.ndarray:
        return self._mlmodel.data.df_train[self._mlmodel.feature_input_order].to_numpy(dtype=float)

    def mdp(self, starts: np.ndarray, robustness: Robustness | None = None) -> RecourseMDP:
        """Return the Markov decision process of Algorithm 3 for this method, with episodes from ``starts``."""
        s = self.settings
        return RecourseMDP(
            self.space,
            self.task.probability,
            starts,
            robustness or self.task.robustness,
            tau=self.task.tau,
            gamma=s.gamma,
            reward=s.constant_reward,
            max_actions=s.max_actions or MIN_ACTIONS,
            border=self.task.border,
            cost=self._cost(),
        )

    def _set_policy(self, policy: ActorCritic, slope: float, log: list[Update]) -> None:
        self.policy_, self.slope_, self.log_ = policy, slope, log
        self.planner = self._planner(policy, slope)

    def get_counterfactuals(self, factuals: pd.DataFrame) -> pd.DataFrame:
        """Return the ends of plans, one row for each factual under its label; NaN where no plan was found.

        Accepted rows are returned unchanged, with an empty plan. The actions are in :attr:`plans`.
        """
        ends = super().get_counterfactuals(factuals)
        empty = np.empty((0, ends.shape[1]))
        found = ends.index[ends.notna().all(axis=1)]
        self.plans = {label: self.plans.get(label, empty) for label in found}
        return ends

    def find_counterfactuals(self, rows: np.ndarray, labels: Sequence[Hashable]) -> np.ndarray:
        """Search for plans of rejected ``rows`` and store them in :attr:`plans`; return their ends."""
        self.plans, ends = {}, np.full(rows.shape, np.nan)
        for part, result in self._search(rows):
            ends[part][result.found] = result.ends[result.found]
            plans = zip(labels[part], result.plans, result.found, strict=True)
            self.plans.update({label: plan for label, plan, found in plans if found})
        return ends

    def plan(self, factuals: pd.DataFrame) -> list[Plan]:
        """Return a plan for each factual, in order: actions in original units, with their success probabilities.

        Success after a step is estimated with fresh noise, with as many samples as in the check of a plan.
        """
        rows, labels = encoded_rows(self._mlmodel, factuals), list(factuals.index)
        return [
            plan for part, result in self._search(rows) for plan in self._make_plans(rows[part], labels[part], result)
        ]

    def next_action(self, state: pd.Series | pd.DataFrame) -> PlanStep | None:
        """Return what to do next in ``state``, one encoded row; None if it is accepted. See :meth:`next_steps`.

        Raises
        ------
        PlanError
            If no action is possible.
        """
        frame = state.to_frame().T if isinstance(state, pd.Series) else state
        if isinstance(frame, pd.DataFrame) and len(frame) > 1:
            raise DataError(f"next_action takes one person at a time, got {len(frame)} rows: use next_steps for many.")
        plan = self.next_steps(frame)[0]
        if not plan.found:
            raise PlanError(plan.reason)
        return plan.steps[0] if plan.steps else None

    def next_steps(self, people: pd.DataFrame) -> list[Plan]:
        """Return for people who are on their way a plan of the next step only, in order; see :meth:`advise`.

        Its success is the chance that people who implement the step are accepted; if they are not, they ask again.
        """
        self._check_trained()
        rows = encoded_rows(self._mlmodel, people)
        accepted = self.task.probability(rows) > self.border
        asking = np.flatnonzero(~accepted)
        answers = [np.empty((0, rows.shape[1]))] * len(rows)
        if len(asking):
            for row, answer in zip(asking, self.advise(rows[asking], np.full(len(asking), np.inf)), strict=True):
                answers[row] = answer[answer.any(axis=1)]
        found = accepted | np.array([len(answer) > 0 for answer in answers], dtype=bool)
        generators = row_generators(rows, self.settings.seed, _REPORTING)
        n_check = self.planner.settling.n_check
        rates = self._implementation().evaluate_steps(rows, answers, n_check, generators)
        reasons = [
            "" if len(answer) else _ACCEPTED if ok else "no action is possible: all features are at their bounds"
            for answer, ok in zip(answers, accepted, strict=True)
        ]
        return make_plans(self._mlmodel, self.space, rows, list(people.index), answers, found, reasons, rates)

    def advise(self, states: np.ndarray, budgets: np.ndarray) -> list[np.ndarray]:
        """Return the policy's action (1, d) in each of ``states`` (m, d), wherever people landed.

        Zeros where no action is possible. ``budgets`` (m,) are the L1 lengths that people can still go; infinity is no
        limit.
        """
        self._check_trained()
        _, changes = greedy_changes(self.space, self.policy_, states, self.space.mask(states))
        return list(changes[:, None, :])

    def _implementation(self) -> Robustness:
        """Return the noise with which people implement an answer."""
        return self.task.robustness

    def _check_trained(self) -> None:
        if not hasattr(self, "policy_"):
            raise PlanError("The policy is not trained yet: call fit() first.")

    def _search(self, rows: np.ndarray) -> Iterator[tuple[slice, SearchResult]]:
        """Search for plans in chunks of people, accepted ones included; yield each chunk and its result."""
        self._check_trained()
        for start in range(0, len(rows), _CHUNK):
            part = slice(start, start + _CHUNK)
            chunk = rows[part]
            plans, ends = [np.empty((0, chunk.shape[1]))] * len(chunk), chunk.copy()
            found, rates = np.ones(len(chunk), dtype=bool), np.zeros(len(chunk))
            reached = found.copy()
            rejected = np.flatnonzero(self.task.probability(chunk) <= self.border)
            if len(rejected):
                generators = row_generators(chunk[rejected], self.settings.seed, _PLANNING)
                result = self.planner.plan(chunk[rejected], generators, self._deadline())
                ends[rejected], found[rejected], rates[rejected] = result.ends, result.found, result.rates
                reached[rejected] = result.reached
                for row, plan in zip(rejected, result.plans, strict=True):
                    plans[row] = plan
            yield part, SearchResult(plans, ends, found, rates, reached)

    def _make_plans(self, rows: np.ndarray, labels: list[Hashable], result: SearchResult) -> list[Plan]:
        generators = row_generators(rows, self.settings.seed, _REPORTING)
        n_check = self.planner.settling.n_check
        rates = self.task.robustness.evaluate_steps(rows, result.plans, n_check, generators)
        reasons = [
            "" if found and len(plan) else self._reason(found, rate, reached)
            for plan, found, rate, reached in zip(result.plans, result.found, result.rates, result.reached, strict=True)
        ]
        return make_plans(self._mlmodel, self.space, rows, labels, result.plans, result.found, reasons, rates)

    def _reason(self, found: bool, rate: float, reached: bool) -> str:
        if found:
            return _ACCEPTED
        return f"no plan found: {self._failure(rate, reached)}"

    def _failure(self, rate: float, reached: bool) -> str:
        """Return the reason for the lack of a plan: the lowest invalidation rate, if a favourable state was found."""
        if not reached:
            if not (self.planner.search and self.planner.shorten):
                return "the policy reaches no state that is classified favourably"
            return (
                "no state in reach is classified favourably: neither the policy nor values of accepted training rows "
                "nor ascent from several starts leads to one"
            )
        check = self.planner.settling
        largest = most_failures_below(self.task.limit, check.n_check, 2 * check.confidence - 1) / check.n_check
        fails = f"fails in {_percent(rate)} of noisy implementations"
        if rate <= largest:
            return f"the most robust plan found {fails}, but its exact end is not accepted"
        return (
            f"the most robust plan found {fails}; the check requires at most {_percent(largest)} observed, for less "
            f"than {_percent(self.task.limit)} with {_percent(check.confidence)} confidence (tau = {self.task.tau:g})"
        )

    def save(self, path: str | os.PathLike[str], metadata: Mapping[str, Any] | None = None) -> None:
        """Write the policy and its settings to a file; it holds arrays and JSON only.

        Parameters
        ----------
        path
            The file.
        metadata
            Further JSON-able values to keep in the file.
        """
        self._check_trained()
        about = {**(metadata or {}), "method": self.name, "settings": self.settings.as_dict(), "slope": self.slope_}
        save_policy(path, about, self._policies(), self.log_, self._mlmodel)

    def _policies(self) -> dict[str, ActorCritic]:
        """Return the trained policies by name."""
        return {POLICY: self.policy_}

    @classmethod
    def load(cls: type[Self], path: str | os.PathLike[str], mlmodel: MLModel) -> Self:
        """Read a file written by :meth:`save`, for the same model.

        Raises
        ------
        PlanError
            If the file is damaged, of another format, of another method, or was written for another model.
        """
        about, weights, log = load_policy(path, cls.name, with_list_order(mlmodel))
        method = cls(mlmodel, {**about["settings"], "fit": False})
        method.settings = replace(method.settings, fit=about["settings"].get("fit"))
        if json.loads(json.dumps(method.settings.as_dict())) != about["settings"]:
            raise PlanError(f"{os.fspath(path)!r} lacks settings of this version: train and save the policy anew.")
        hidden = method.settings.ppo_settings().hidden
        policies = {
            name: policy_from_weights(each, method.space.width, method.space.n, hidden)
            for name, each in weights.items()
        }
        method._set_policy(policies.pop(POLICY), about["slope"], log)
        method._set_further(policies)
        return method

    def _set_further(self, policies: Mapping[str, ActorCritic]) -> None:
        """Store policies of a file beside the method's own."""


def _percent(share: float) -> str:
    return f"{100 * share:.3g}%"
