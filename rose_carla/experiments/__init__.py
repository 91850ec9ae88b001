"""Experiments: cells of tables that are generated once, judged, kept, and run here or on a cluster."""

from rose_carla.experiments.backends import Backend, Dask, Local
from rose_carla.experiments.cells import METRICS, Cell, Judgement, Recourse, Result
from rose_carla.experiments.methods import METHODS, OURS, TABLE_1, Entry, entry
from rose_carla.experiments.runner import Finished, run
from rose_carla.experiments.setting import CLASSIFIERS, Setting
from rose_carla.experiments.store import Store

__all__ = [
    "CLASSIFIERS",
    "METHODS",
    "METRICS",
    "OURS",
    "TABLE_1",
    "Backend",
    "Cell",
    "Dask",
    "Entry",
    "Finished",
    "Judgement",
    "Local",
    "Recourse",
    "Result",
    "Setting",
    "Store",
    "entry",
    "run",
]
