"""Methods that learn a policy and plan with it: what ROSE and FastAR share."""

from rose_carla.sequential.method import Sequential
from rose_carla.sequential.settings import SequentialSettings

__all__ = ["Sequential", "SequentialSettings"]
