"""The benchmark: cells that are computed once and stored, and the paper's tables and figures made from them."""

from rose_carla.bench.cells import CLASSIFIERS, METRICS, Cell, Judgement, Recourse, Result, Setting
from rose_carla.bench.comparison import PaperValue, claims, dominating, paper_value, t_tests, tag
from rose_carla.bench.engine import Dask, Engine, Local
from rose_carla.bench.layouts import Scope, TableSpec
from rose_carla.bench.method_registry import METHODS, OURS, PLAIN, TABLE_1, VARIANTS, Entry, entry
from rose_carla.bench.runner import Experiment, Finished, Store, results_frame, run
from rose_carla.bench.table import TABLE_METRICS, Column, Estimate, Layout, Table, build_table, estimate

__all__ = [
    "CLASSIFIERS",
    "METHODS",
    "METRICS",
    "OURS",
    "PLAIN",
    "TABLE_1",
    "TABLE_METRICS",
    "VARIANTS",
    "Cell",
    "Column",
    "Dask",
    "Engine",
    "Entry",
    "Estimate",
    "Experiment",
    "Finished",
    "Judgement",
    "Layout",
    "Local",
    "PaperValue",
    "Recourse",
    "Result",
    "Scope",
    "Setting",
    "Store",
    "Table",
    "TableSpec",
    "build_table",
    "claims",
    "dominating",
    "entry",
    "estimate",
    "paper_value",
    "results_frame",
    "run",
    "t_tests",
    "tag",
]
