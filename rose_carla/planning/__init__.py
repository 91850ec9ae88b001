"""From a policy to plans that hold."""

from rose_carla.planning.plan import Plan, PlanStep, Success, original_values, steps_of
from rose_carla.planning.planner import Planned, Planner, calibrate
from rose_carla.planning.task import Task
from rose_carla.planning.walk import Walks, walk

__all__ = [
    "Plan",
    "PlanStep",
    "Planned",
    "Planner",
    "Success",
    "Task",
    "Walks",
    "calibrate",
    "original_values",
    "steps_of",
    "walk",
]
