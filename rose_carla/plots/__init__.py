"""Figures (extra ``plots``): functions that take results and return a matplotlib ``Figure`` or ``Axes``."""

from rose_carla.plots.closed_loop_plots import closed_loop
from rose_carla.plots.learning_curves import learning_curve, learning_curves
from rose_carla.plots.noise_plots import accumulation, lengths, noise_around, noisy_paths, perturbations
from rose_carla.plots.plan_chart import plan_chart
from rose_carla.plots.plane import Plane, patches, savings
from rose_carla.plots.result_plots import (
    RATES,
    action_units,
    critical_difference,
    critical_difference_diagram,
    frontier,
    proximity,
    rank_methods,
    thresholds,
)
from rose_carla.plots.style import COLUMN, FORMATS, PAGE, image, save

__all__ = [
    "COLUMN",
    "FORMATS",
    "PAGE",
    "RATES",
    "Plane",
    "accumulation",
    "action_units",
    "closed_loop",
    "critical_difference",
    "critical_difference_diagram",
    "frontier",
    "image",
    "learning_curve",
    "learning_curves",
    "lengths",
    "noise_around",
    "noisy_paths",
    "patches",
    "perturbations",
    "plan_chart",
    "proximity",
    "rank_methods",
    "save",
    "savings",
    "thresholds",
]
