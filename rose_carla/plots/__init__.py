"""Figures (extra ``plots``)."""

from rose_carla.plots.frontier import frontier
from rose_carla.plots.learning import learning_curve

__all__ = ["frontier", "learning_curve"]
