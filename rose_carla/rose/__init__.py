"""ROSE-one and ROSE-mul: learn a policy, search with it, return plans that pass the check."""

from rose_carla.rose.config import RoseSettings
from rose_carla.rose.methods import Rose, RoseMul, RoseOne
from rose_carla.rose.plan import Plan, PlanStep, Success
from rose_carla.rose.sequential import Sequential
from rose_carla.rose.sequential_config import SequentialSettings

__all__ = [
    "Plan",
    "PlanStep",
    "Rose",
    "RoseMul",
    "RoseOne",
    "RoseSettings",
    "Sequential",
    "SequentialSettings",
    "Success",
]
