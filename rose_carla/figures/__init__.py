"""The paper's figures, made from runs of this package."""

from rose_carla.figures.worlds import patches, savings

__all__ = ["patches", "savings"]
