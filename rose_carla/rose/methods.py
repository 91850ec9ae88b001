"""ROSE-one and ROSE-mul, and their hyper-parameters."""

from __future__ import annotations

import dataclasses
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import pandas as pd
from rose_carla._lib.params import check_seed, choice, factor, flag, integer, number
from rose_carla.datasets import action_units
from rose_carla.errors import PlanError
from rose_carla.mdp import Accumulated, OneOff, Revisited, Robustness
from rose_carla.models import encoded_rows, favourable, probability
from rose_carla.noise import NOISE_PER, Claim, ClosedLoop, PlausibleNoise, density_of
from rose_carla.ppo import ActorCritic, Update, train
from rose_carla.rose.advice import Advisor, Followed, FollowSettings, RevisitSettings, cost_limits, simulate
from rose_carla.rose.derived_settings import MIN_ACTIONS
from rose_carla.rose.plan import Plan
from rose_carla.rose.search import Planner, Task, has_plateaus
from rose_carla.rose.sequential import Sequential, SequentialSettings
from scipy.special import ndtri
from tqdm.auto import tqdm

Self = TypeVar("Self", bound="Rose")

#: Training rows on which the classifier is tested for plateaus.
_PLATEAU_ROWS = 200
#: Beginning of the names of closed-loop policies in a file.
_CLOSED_LOOP = "closed-loop-"
#: Tries simulated at a time, which bounds memory.
_TRIES = 20_000
#: Tries of each person in a plan with revisits.
_REVISIT_TRIES = 200


@dataclass(frozen=True)
class RoseSettings(SequentialSettings):
    """Hyper-parameters of ROSE; the paper's values are the defaults."""

    #: Robustness threshold: the invalidation rate of a plan is below 1 - tau.
    tau: float = number(0.75, gt=0, lt=1)
    #: Variance of one-off noise (ROSE-one).
    variance: float = number(0.01, ge=0)
    #: Variance of the noise of one unit of action (ROSE-mul).
    unit_variance: float = number(0.0005, ge=0)
    #: Whether accumulated noise has a NoisyStep per unit of action or per action (ROSE-mul).
    noise_per: str = choice("unit", names=NOISE_PER)
    #: Noisy versions of a state (ROSE-one) or people per plan (ROSE-mul) in training and walks.
    n_samples: int = integer(64, ge=2)
    #: Fresh noisy versions, or people, in the check that a plan must pass.
    n_check: int = integer(500, ge=10)
    #: One-sided confidence of that check.
    confidence: float = number(0.995, gt=0.5, lt=1)
    #: Whether to search where the policy alone fails, and for cheaper features; False is the paper's method.
    search: bool = flag(True)
    #: Whether to remove changes that are not needed; False is the paper's method.
    shorten: bool = flag(True)
    #: Cost of changing one more feature when plans are compared, in units of action.
    sparsity_weight: float = number(0.5, ge=0)
    #: Bandwidth, ridge and maximum number of kernels of the density; see :class:`rose_carla.noise.Density`.
    bandwidth: str | float = factor("scott", names=("scott", "silverman"))
    ridge: float = number(1e-6, ge=0)
    max_points: int = integer(50_000, ge=2)
    #: Whether to move noisy categorical features to their nearest valid encoding before classification.
    project_categories: bool = flag(False)

    def __post_init__(self) -> None:
        super().__post_init__()
        required = int(ndtri(self.confidence) ** 2 * self.tau / (1 - self.tau)) + 1
        if self.n_check < required:
            raise PlanError(
                f"n_check must be at least {required} for tau = {self.tau:g} at confidence {self.confidence:g}, got "
                f"{self.n_check}: with fewer samples no plan passes, even without failures."
            )


class Rose(Sequential):
    """Base class of ROSE-one and ROSE-mul, which differ only in the noise model."""

    settings: RoseSettings
    settings_class = RoseSettings

    def _task(self) -> Task:
        s = self.settings
        noise = PlausibleNoise(density_of(self._mlmodel, s.bandwidth, s.ridge, s.max_points))
        accepts, predict = favourable(self._mlmodel, s.project_categories), probability(self._mlmodel)
        robustness = self._noise(accepts, noise)
        one_off = robustness if isinstance(robustness, OneOff) else OneOff(accepts, noise, s.variance, s.n_samples)
        plateaus = has_plateaus(self.space, predict, self._training_rows()[:_PLATEAU_ROWS])
        return Task(self.space, predict, robustness, s.tau, one_off=one_off, has_plateaus=plateaus)

    @abstractmethod
    def _noise(self, accepts: Any, noise: PlausibleNoise) -> Robustness:
        """Return the noise model."""

    def _set_policy(self, policy: ActorCritic, slope: float, log: list[Update]) -> None:
        super()._set_policy(policy, slope, log)
        self.closed_loop_policies_: dict[str, ActorCritic] = {}

    def _policies(self) -> dict[str, ActorCritic]:
        further = {f"{_CLOSED_LOOP}{stop}": policy for stop, policy in self.closed_loop_policies_.items()}
        return {**super()._policies(), **further}

    def _set_further(self, policies: Mapping[str, ActorCritic]) -> None:
        self.closed_loop_policies_ = {name.removeprefix(_CLOSED_LOOP): policy for name, policy in policies.items()}

    def _implementation(self, stop: str = "accepted", noise_per: str | None = None) -> Revisited:
        s, one_off = self.settings, self.task.one_off
        assert one_off is not None
        return Revisited(
            one_off.favourable,
            one_off.noise,
            s.unit_variance,
            action_units(self._mlmodel.data, self._mlmodel.feature_input_order, s.action_unit),
            noise_per=s.noise_per if noise_per is None else noise_per,
            stop=one_off if stop == "robust" else None,
        )

    def fit_closed_loop(self: Self, stop: str = "accepted") -> Self:
        """Train the policy of :meth:`follow`, on people who look where they landed before each action.

        ``follow``, ``next_action`` and ``advise`` call it when they need it first; :meth:`save` stores its result.

        Parameters
        ----------
        stop
            When people stop: as soon as they are ``"accepted"``, or once they are so robustly (``"robust"``), with a
            one-off invalidation rate below 1 - tau.
        """
        self._check_trained()
        s, stop = self.settings, FollowSettings(stop=stop).stop
        starts, _ = self._starts()
        mdp = self.mdp(starts, self._implementation(stop))
        policy, _ = train(mdp, s.ppo_settings(), s.seed, progress=s.progress)
        self.closed_loop_policies_[stop] = policy
        return self

    def advise(self, states: np.ndarray, budgets: np.ndarray, stop: str = "accepted") -> list[np.ndarray]:
        """Return what to do next in each of ``states`` (m, d), wherever people landed; see :class:`.Advisor`.

        An action (1, d) in the encoded space, of zeros where none is possible. ``budgets`` (m,) are the L1 lengths that
        people can still go; infinity is no limit.
        """
        return self._advisor(stop)(states, budgets)

    def _advisor(self, stop: str, noise_per: str | None = None) -> Advisor:
        """Return what answers people, with a policy that is trained if it is needed for the first time."""
        self._check_trained()
        if stop not in self.closed_loop_policies_:
            self.fit_closed_loop(stop)
        s, policy = self.settings, self.closed_loop_policies_[stop]
        return Advisor(self.space, policy, self._implementation(stop, noise_per), s.sparsity_weight, s.seed)

    def follow(
        self,
        people: pd.DataFrame,
        n_tries: int = 100,
        *,
        max_decisions: int = 20,
        max_cost: Any = None,
        stop: str = "accepted",
        noise_per: str | None = None,
        plans: Sequence[Plan] | None = None,
        rng: int | np.random.Generator | None = None,
    ) -> Followed:
        """Simulate people who implement an answer noisily, look where they landed, ask again, and stop when accepted.

        Parameters
        ----------
        people
            Encoded rows.
        n_tries
            Independent tries of each person.
        max_decisions
            Maximum number of answers that a try implements.
        max_cost
            L1 length that a try may not exceed, a number or one for each person; None for no limit.
        stop
            When people stop: as soon as they are ``"accepted"``, or once they are so robustly (``"robust"``), with a
            one-off invalidation rate below 1 - tau.
        noise_per
            Whether answers are implemented with a NoisyStep per ``"unit"`` of action or per ``"action"``; None: as in
            the settings.
        plans
            Plans of these people, in order, that they implement as a whole before they look for the first time; None:
            they ask for each step.
        rng
            Seed or generator of the tries; None: the method's seed.

        Examples
        --------
        >>> from rose_carla import RoseOne, datasets, models
        >>> model = models.train(datasets.load("compas"), "linear")
        >>> method = RoseOne(model)
        >>> followed = method.follow(models.negative_instances(model).head(5), n_tries=20)
        >>> followed.success.probability > 0.95
        True
        """
        self._check_trained()
        how = self.settings.noise_per if noise_per is None else noise_per
        options = FollowSettings(n_tries, max_decisions, stop, how)
        rows, labels = encoded_rows(self._mlmodel, people), list(people.index)
        if plans is not None and len(plans) != len(rows):
            raise PlanError(f"Expected a plan for each of {len(rows)} people, got {len(plans)}.")
        limits = None if max_cost is None else cost_limits(max_cost, len(rows))
        if isinstance(rng, np.random.Generator):
            rng = int(rng.integers(2**63))
        chosen = self.settings.seed if rng is None else check_seed(rng, PlanError)
        advisor = self._advisor(options.stop, options.noise_per)
        n_people = max(1, _TRIES // options.n_tries)
        parts = [slice(start, start + n_people) for start in range(0, len(rows), n_people)]
        disable = None if self.settings.progress is None else not self.settings.progress
        found = [
            simulate(
                advisor,
                advisor.noise,
                self.task.tau,
                rows[part],
                options.n_tries,
                options.max_decisions,
                chosen,
                None if limits is None else limits[part],
                None if plans is None else [plan.actions for plan in plans[part]],
            )
            for part in tqdm(parts, desc="follow", disable=disable, leave=False)
        ]
        return Followed(self._mlmodel, self.name, labels, ClosedLoop.concat(found), options.max_decisions)

    def plan(self, factuals: pd.DataFrame, revisits: int | None = None) -> list[Plan]:
        """Return a plan for each factual, in order: actions in original units, with their success probabilities.

        Success after a step is estimated with fresh noise, with as many samples as in the check of a plan.

        Parameters
        ----------
        factuals
            Encoded rows.
        revisits
            If given, plans also have the success of people who implement the plan, look where they landed and, if they
            are not accepted, come back for the next step, up to so many times; see :meth:`follow`.
        """
        revisits = RevisitSettings(revisits).revisits
        plans = super().plan(factuals)
        if revisits is None:
            return plans
        followed = self.follow(factuals, _REVISIT_TRIES, max_decisions=1 + revisits, plans=plans)
        return [
            dataclasses.replace(plan, revisits=revisits, revisited=success)
            for plan, success in zip(plans, followed.successes, strict=True)
        ]

    def _planner(self, policy: ActorCritic, slope: float) -> Planner:
        s = self.settings
        return Planner(
            self.task,
            policy,
            slope,
            n_walk=s.n_samples,
            n_check=s.n_check,
            confidence=s.confidence,
            max_actions=s.max_actions or MIN_ACTIONS,
            search=s.search,
            shorten=s.shorten,
            sparsity_weight=s.sparsity_weight,
            rows=self._training_rows(),
        )

    def claim(self) -> Claim:
        """Return the claim that the invalidation rate is below 1 - tau."""
        words = f"{self.name}: invalidation rate below 1 - tau = {self.task.limit:g}"
        return Claim(words, self.task.limit, self.task.robustness.evaluate)


class RoseOne(Rose):
    """ROSE-one: actions are implemented precisely, then one-off plausible noise perturbs the end point.

    Examples
    --------
    >>> from rose_carla import RoseOne, datasets, models
    >>> model = models.train(datasets.load("compas"), "linear")
    >>> factuals = models.negative_instances(model).head(5)
    >>> counterfactuals = RoseOne(model).get_counterfactuals(factuals)
    >>> bool((models.favourable(model)(counterfactuals.to_numpy())).all())
    True
    """

    name = "ROSE-one"

    def _noise(self, accepts: Any, noise: PlausibleNoise) -> Robustness:
        return OneOff(accepts, noise, self.settings.variance, self.settings.n_samples)


class RoseMul(Rose):
    """ROSE-mul: each action is implemented with plausible noise, which accumulates.

    Examples
    --------
    >>> from rose_carla import RoseMul, datasets, models
    >>> model = models.train(datasets.load("compas"), "linear")
    >>> method = RoseMul(model)
    >>> plan = method.plan(models.negative_instances(model).head(1))[0]
    >>> plan.success.probability > 0.75
    True
    """

    name = "ROSE-mul"
    default_overrides = {"n_samples": 16, "n_check": 400}

    def _noise(self, accepts: Any, noise: PlausibleNoise) -> Robustness:
        s = self.settings
        unit = action_units(self._mlmodel.data, self._mlmodel.feature_input_order, s.action_unit)
        return Accumulated(accepts, noise, s.unit_variance, unit, s.n_samples, noise_per=s.noise_per)

    def _curriculum(self) -> list[tuple[Robustness, dict[str, Any]]]:
        """Return a warm start under one-off noise, which is several times faster, and accumulated noise."""
        s, crowd = self.settings, self.task.robustness
        assert isinstance(crowd, Accumulated)
        one_off = OneOff(crowd.favourable, crowd.noise, s.variance, 4 * s.n_samples)
        defaults = {
            "n_envs": 64,
            "n_steps": 16,
            "n_updates": 24,
            "batch_size": 256,
            "learning_rate": 1e-3,
            "evaluate_every": 3,
            "patience": 3,
            "restarts": 0,  # the warm start has explored already, and accumulated noise is slow
        }
        return [(one_off, {"patience": 4}), (crowd, defaults)]
