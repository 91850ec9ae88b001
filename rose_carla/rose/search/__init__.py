"""Search for plans with a policy."""

from rose_carla.rose.search.planner import Planner, SearchResult, calibrate
from rose_carla.rose.search.walk import Drafts, Task, Walks, walk

__all__ = ["Drafts", "Planner", "SearchResult", "Task", "Walks", "calibrate", "walk"]
