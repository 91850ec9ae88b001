"""The paper's tables: from finished cells to Markdown, LaTeX, HTML and CSV, the paper's values beside ours."""

from rose_carla.tables.columns import MEASURES
from rose_carla.tables.comparison import claims, dominating, t_tests, tag
from rose_carla.tables.estimates import Estimate, estimate
from rose_carla.tables.layouts import Plan, Scope
from rose_carla.tables.paper import Printed, printed
from rose_carla.tables.people import Point, people
from rose_carla.tables.table import Column, Layout, Table, build

__all__ = [
    "MEASURES",
    "Column",
    "Estimate",
    "Layout",
    "Plan",
    "Point",
    "Printed",
    "Scope",
    "Table",
    "build",
    "claims",
    "dominating",
    "estimate",
    "people",
    "printed",
    "t_tests",
    "tag",
]
