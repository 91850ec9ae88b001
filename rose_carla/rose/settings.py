"""Hyper-parameters of ROSE: the paper's values are the defaults."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from rose_carla.errors import PlanError, unknown_name
from rose_carla.policy import PPOSettings
from scipy.special import ndtri


@dataclass(frozen=True)
class RoseSettings:
    """How ROSE learns and plans."""

    #: Robustness threshold: a plan's invalidation rate is below 1 - tau.
    tau: float = 0.75
    #: Variance of one-off noise (ROSE-one).
    variance: float = 0.01
    #: Variance of the noise of one unit of action (ROSE-mul).
    unit_variance: float = 0.0005
    #: Size u of a unit of action.
    action_unit: float = 0.025
    #: Discount of one unit of action.
    gamma: float = 0.99
    #: The large constant reward.
    constant_reward: float = 100.0
    #: Sizes of moves that the policy chooses from, in units.
    multiples: tuple[int, ...] = (1, 2, 4, 8)
    #: From a continuous feature to "increase" or "decrease", the only way it may move.
    monotone: Mapping[str, str] = field(default_factory=dict)
    #: Actions to an episode, and to a walk.
    max_actions: int = 50
    #: Noisy versions of a state (ROSE-one) or people to a plan (ROSE-mul) in training and walking.
    n_samples: int = 64
    #: Fresh noisy versions, or people, in the check that a plan has to pass.
    n_check: int = 500
    #: One-sided confidence of that check.
    confidence: float = 0.995
    #: Search where the policy alone does not get there, and for cheaper features; False is the paper's method.
    search: bool = True
    #: Take off what is not needed; False is the paper's method.
    shorten: bool = True
    #: Units of action that one feature less is worth when plans are compared.
    sparsity_weight: float = 0.5
    #: Bandwidth, ridge and most kernels of the density; see :class:`rose_carla.noise.Density`.
    bandwidth: str | float = "scott"
    ridge: float = 1e-6
    max_points: int = 50_000
    #: Move noisy categorical features to their nearest valid encoding before they are classified.
    project_categories: bool = False
    #: Options of the learner; see :class:`rose_carla.policy.PPOSettings`.
    ppo: Mapping[str, Any] = field(default_factory=dict)
    #: Seed of training and planning.
    seed: int = 0
    #: Train when the method is made; otherwise call ``fit()``.
    fit: bool = True
    #: Show progress bars; None: if they go to a terminal.
    progress: bool | None = None

    def __post_init__(self) -> None:
        for name, low, high in (("tau", 0, 1), ("gamma", 0, 1), ("confidence", 0.5, 1)):
            if not (_is_number(getattr(self, name)) and low < getattr(self, name) < high):
                raise PlanError(f"{name} has to be above {low} and below {high}, got {getattr(self, name)!r}.")
        for name in ("variance", "unit_variance", "ridge", "sparsity_weight"):
            if not (_is_number(getattr(self, name)) and 0 <= getattr(self, name) < math.inf):
                raise PlanError(f"{name} has to be finite and not negative, got {getattr(self, name)!r}.")
        for name in ("action_unit", "constant_reward"):
            if not (_is_number(getattr(self, name)) and 0 < getattr(self, name) < math.inf):
                raise PlanError(f"{name} has to be finite and above 0, got {getattr(self, name)!r}.")
        for name, least in (("max_actions", 1), ("n_samples", 2), ("n_check", 10), ("max_points", 2), ("seed", 0)):
            value = getattr(self, name)
            if not isinstance(value, (int, np.integer)) or isinstance(value, bool) or value < least:
                raise PlanError(f"{name} has to be a whole number of at least {least}, got {value!r}.")
        for name in ("search", "shorten", "project_categories", "fit"):
            if not isinstance(getattr(self, name), (bool, np.bool_)):
                raise PlanError(f"{name} has to be True or False, got {getattr(self, name)!r}.")
        for name in ("monotone", "ppo"):
            if not isinstance(getattr(self, name), Mapping):
                raise PlanError(f"{name} has to be a mapping, got {type(getattr(self, name)).__name__}.")
        if isinstance(self.multiples, (str, bytes)) or not hasattr(self.multiples, "__iter__"):
            raise PlanError(f"multiples has to be a list of whole numbers, got {self.multiples!r}.")
        if 1 not in self.multiples:
            raise PlanError(f"multiples have to contain 1, or states in between cannot be reached: {self.multiples!r}.")
        object.__setattr__(self, "multiples", tuple(self.multiples))
        z = ndtri(self.confidence)
        least = int(z**2 * self.tau / (1 - self.tau)) + 1
        if self.n_check < least:
            raise PlanError(
                f"n_check = {self.n_check} is too few to be sure of tau = {self.tau:g} at confidence "
                f"{self.confidence:g}, even without a failure: take at least {least}."
            )
        self.learner()

    @classmethod
    def of(cls, hyperparams: Mapping[str, Any] | None, defaults: Mapping[str, Any]) -> RoseSettings:
        """Settings from CARLA's hyper-parameters; an unknown key is an error that names the close match."""
        if hyperparams is not None and not isinstance(hyperparams, Mapping):
            raise PlanError(f"hyperparams has to be a dictionary, got {type(hyperparams).__name__}.")
        known = [each.name for each in dataclasses.fields(cls)]
        for key in hyperparams or {}:
            if key not in known:
                raise PlanError(unknown_name("hyper-parameter", key, known))
        return cls(**{**defaults, **(hyperparams or {})})

    def learner(self, **defaults: Any) -> PPOSettings:
        """The learner's settings: ``defaults`` where ``ppo`` does not say otherwise."""
        known = [each.name for each in dataclasses.fields(PPOSettings)]
        for key in self.ppo:
            if key not in known:
                raise PlanError(unknown_name("option of ppo", key, known))
        return PPOSettings(**{"reward_scale": 1 / self.constant_reward, **defaults, **self.ppo})

    def as_dict(self) -> dict[str, Any]:
        """Plain values, as for JSON."""
        plain = dataclasses.asdict(self)
        return {**plain, "multiples": list(self.multiples), "monotone": dict(self.monotone), "ppo": dict(self.ppo)}


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float, np.number)) and not isinstance(value, bool)
