"""From a policy to plans that pass the check."""

from rose_carla.rose.search.planner import Planned, Planner, calibrate
from rose_carla.rose.search.task import Task
from rose_carla.rose.search.walk import Walks, walk

__all__ = ["Planned", "Planner", "Task", "Walks", "calibrate", "walk"]
