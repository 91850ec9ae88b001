"""The policy: actor, critic, and the PPO that trains them."""

from rose_carla.policy.network import ActorCritic
from rose_carla.policy.ppo import generalised_advantages, train
from rose_carla.policy.settings import PPOSettings, Update

__all__ = ["ActorCritic", "PPOSettings", "Update", "generalised_advantages", "train"]
