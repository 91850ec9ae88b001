"""ROSE-one and ROSE-mul: CARLA recourse methods that plan for people who follow advice imperfectly."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

from rose_carla.mdp import Accumulated, OneOff, Robustness
from rose_carla.models import favourable, probability
from rose_carla.noise import Claim, PlausibleNoise, density_of
from rose_carla.ppo import ActorCritic
from rose_carla.rose.config import RoseSettings
from rose_carla.rose.search import Planner, Task
from rose_carla.rose.sequential import Sequential


class Rose(Sequential):
    """Base of ROSE-one and ROSE-mul: they differ in the noise that a plan has to stand, and in nothing else."""

    settings: RoseSettings
    settings_class = RoseSettings

    def _task(self) -> Task:
        s = self.settings
        noise = PlausibleNoise(density_of(self._mlmodel, s.bandwidth, s.ridge, s.max_points))
        robustness = self._noise(favourable(self._mlmodel, s.project_categories), noise)
        return Task(self.space, probability(self._mlmodel), robustness, s.tau)

    @abstractmethod
    def _noise(self, accepts: Any, noise: PlausibleNoise) -> Robustness:
        """The noise that plans have to stand."""

    def _planner(self, policy: ActorCritic, slope: float) -> Planner:
        s = self.settings
        return Planner(
            self.task,
            policy,
            slope,
            n_walk=s.n_samples,
            n_check=s.n_check,
            confidence=s.confidence,
            max_actions=s.max_actions,
            search=s.search,
            shorten=s.shorten,
            sparsity_weight=s.sparsity_weight,
            gamma=s.gamma,
        )

    def claim(self) -> Claim:
        """Plans stay below an invalidation rate of 1 - tau."""
        words = f"{self.name}: invalidation rate below 1 - tau = {self.task.limit:g}"
        return Claim(words, self.task.limit, self.task.robustness.judge)


class RoseOne(Rose):
    """ROSE-one: precise implementation, then one-off plausible noise around the end point.

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
    """ROSE-mul: every action is implemented with plausible noise, which accumulates.

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
        return Accumulated(accepts, noise, s.unit_variance, s.action_unit, s.n_samples)

    def _curriculum(self) -> list[tuple[Robustness, dict[str, Any]]]:
        """One-off noise first: it is several times as quick and teaches most of what there is to learn."""
        s, crowd = self.settings, self.task.robustness
        assert isinstance(crowd, Accumulated)
        one_off = OneOff(crowd.favourable, crowd.noise, s.variance, 4 * s.n_samples)
        with_crowd = {
            "n_envs": 64,
            "n_steps": 16,
            "n_updates": 24,
            "batch_size": 256,
            "learning_rate": 1e-3,
            "evaluate_every": 3,
            "patience": 3,
        }
        return [(one_off, {"patience": 4}), (crowd, with_crowd)]
