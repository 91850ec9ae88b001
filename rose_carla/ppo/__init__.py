"""The policy: actor, critic, and the PPO that trains them."""

from rose_carla.ppo.policy import ActorCritic, Update
from rose_carla.ppo.ppo import PPOSettings, generalised_advantages, train

__all__ = ["ActorCritic", "PPOSettings", "Update", "generalised_advantages", "train"]
