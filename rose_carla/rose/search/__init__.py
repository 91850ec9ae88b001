"""Search for plans with a policy."""

from rose_carla.rose.search.drafts import Drafts, Task, has_plateaus
from rose_carla.rose.search.planner import Planner, SearchResult, calibrate
from rose_carla.rose.search.walk import Walks, walk

__all__ = ["Drafts", "Planner", "SearchResult", "Task", "Walks", "calibrate", "has_plateaus", "walk"]
