"""The benchmark: cells that are generated once, judged and stored; the paper's tables and figures made of them."""

from rose_carla.bench.backends import Backend, Dask, Local
from rose_carla.bench.cells import METRICS, Cell, Judgement, Recourse, Result
from rose_carla.bench.comparison import claims, dominating, t_tests, tag
from rose_carla.bench.estimates import Estimate, estimate
from rose_carla.bench.layouts import Plan, Scope
from rose_carla.bench.measures import MEASURES
from rose_carla.bench.methods import METHODS, OURS, TABLE_1, Entry, entry
from rose_carla.bench.paper import Printed, printed
from rose_carla.bench.people import Point, people
from rose_carla.bench.runner import Finished, run
from rose_carla.bench.setting import CLASSIFIERS, Setting
from rose_carla.bench.store import Store
from rose_carla.bench.table import Column, Layout, Table, build

__all__ = [
    "CLASSIFIERS",
    "MEASURES",
    "METHODS",
    "METRICS",
    "OURS",
    "TABLE_1",
    "Backend",
    "Cell",
    "Column",
    "Dask",
    "Entry",
    "Estimate",
    "Finished",
    "Judgement",
    "Layout",
    "Local",
    "Plan",
    "Point",
    "Printed",
    "Recourse",
    "Result",
    "Scope",
    "Setting",
    "Store",
    "Table",
    "build",
    "claims",
    "dominating",
    "entry",
    "estimate",
    "people",
    "printed",
    "run",
    "t_tests",
    "tag",
]
