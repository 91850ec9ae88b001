"""The policy: actor, critic, and the PPO that trains them."""

from rose_carla.policy.network import ActorCritic
from rose_carla.policy.ppo import PPOSettings, Update, generalised_advantages, train

__all__ = ["ActorCritic", "PPOSettings", "Update", "generalised_advantages", "train"]
