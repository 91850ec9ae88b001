"""ROSE-one and ROSE-mul, and their hyper-parameters."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any

from rose_carla._lib.params import choice, factor, flag, integer, number
from rose_carla.datasets import action_units
from rose_carla.errors import PlanError
from rose_carla.mdp import Accumulated, OneOff, Robustness
from rose_carla.models import favourable, probability
from rose_carla.noise import NOISE_PER, Claim, PlausibleNoise, density_of
from rose_carla.ppo import ActorCritic
from rose_carla.rose.derived_settings import MIN_ACTIONS
from rose_carla.rose.search import Planner, Task, has_plateaus
from rose_carla.rose.sequential import Sequential, SequentialSettings
from scipy.special import ndtri

#: Training rows on which the classifier is tested for plateaus.
_PLATEAU_ROWS = 200


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
