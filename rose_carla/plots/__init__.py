"""Figures (extra ``plots``): each function takes results and returns a matplotlib ``Figure`` or ``Axes``."""

from rose_carla.plots.distances import proximity
from rose_carla.plots.frontier import RATES, frontier
from rose_carla.plots.learning import learning_curve, learning_curves
from rose_carla.plots.noise import accumulation, lengths, noise_around, perturbations
from rose_carla.plots.parameters import action_units, thresholds
from rose_carla.plots.paths import noisy_paths
from rose_carla.plots.plan import plan_chart
from rose_carla.plots.plane import Plane
from rose_carla.plots.ranks import critical_difference, critical_difference_diagram, mean_ranks
from rose_carla.plots.style import COLUMN, FORMATS, PAGE, image, save
from rose_carla.plots.worlds import patches, savings

__all__ = [
    "COLUMN",
    "FORMATS",
    "PAGE",
    "RATES",
    "Plane",
    "accumulation",
    "action_units",
    "critical_difference",
    "critical_difference_diagram",
    "frontier",
    "image",
    "learning_curve",
    "learning_curves",
    "lengths",
    "mean_ranks",
    "noise_around",
    "noisy_paths",
    "patches",
    "perturbations",
    "plan_chart",
    "proximity",
    "save",
    "savings",
    "thresholds",
]
