"""ROSE-one and ROSE-mul: train a policy, search with it, return plans that pass the check."""

from rose_carla.rose.methods import Rose, RoseMul, RoseOne, RoseSettings
from rose_carla.rose.plan import Plan, PlanStep, Success
from rose_carla.rose.sequential import Sequential, SequentialSettings

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
