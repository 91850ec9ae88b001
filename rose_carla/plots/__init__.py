"""Figures (extra ``plots``)."""

from rose_carla.plots.learning import learning_curve

__all__ = ["learning_curve"]
