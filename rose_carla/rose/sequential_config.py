"""Hyper-parameters of methods that learn a policy and plan with it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rose_carla._lib.params import Hyperparameters, flag, integer, mapping, number, optional_flag, seed
from rose_carla.errors import PlanError, short_repr
from rose_carla.ppo import PPOSettings


@dataclass(frozen=True)
class SequentialSettings(Hyperparameters):
    """What ROSE and FastAR share: the actions, the reward, the learner."""

    #: Size u of a unit of action.
    action_unit: float = number(0.025, gt=0)
    #: Discount of one unit of action.
    gamma: float = number(0.99, gt=0, lt=1)
    #: The large constant reward.
    constant_reward: float = number(100.0, gt=0)
    #: Sizes of moves that the policy chooses from, in units.
    multiples: tuple[int, ...] = (1, 2, 4, 8)
    #: From a continuous feature to "increase" or "decrease", the only way it may move.
    monotone: Mapping[str, str] = mapping()
    #: Actions to an episode, and to a walk.
    max_actions: int = integer(50)
    #: Options of the learner; see :class:`rose_carla.ppo.PPOSettings`.
    ppo: Mapping[str, Any] = mapping()
    #: Seed of training and planning.
    seed: int = seed()
    #: Train when the method is made; otherwise call ``fit()``.
    fit: bool = flag(True)
    #: Show progress bars; None: if they go to a terminal.
    progress: bool | None = optional_flag()

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.multiples, (str, bytes)) or not hasattr(self.multiples, "__iter__"):
            raise PlanError(f"multiples has to be a list of whole numbers, got {short_repr(self.multiples)}.")
        if 1 not in self.multiples:
            raise PlanError(
                f"multiples have to contain 1, or states in between cannot be reached: {short_repr(self.multiples)}."
            )
        object.__setattr__(self, "multiples", tuple(self.multiples))
        self.learner()

    def learner(self, **defaults: Any) -> PPOSettings:
        """The learner's settings: ``defaults`` where ``ppo`` does not say otherwise."""
        known = {"reward_scale": 1 / self.constant_reward, **defaults}
        return PPOSettings.from_mapping(self.ppo, known, "option of ppo")
