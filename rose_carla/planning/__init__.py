"""From a policy to plans that hold."""

from rose_carla.planning.planner import Planned, Planner, calibrate
from rose_carla.planning.task import Task
from rose_carla.planning.walk import Walks, walk

__all__ = ["Planned", "Planner", "Task", "Walks", "calibrate", "walk"]
