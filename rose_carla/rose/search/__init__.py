"""Search for plans with a policy."""

from rose_carla.rose.search.drafts import Drafts, Task, Walks, has_plateaus, walk
from rose_carla.rose.search.planner import Planner, SearchResult, calibrate

__all__ = ["Drafts", "Planner", "SearchResult", "Task", "Walks", "calibrate", "has_plateaus", "walk"]
