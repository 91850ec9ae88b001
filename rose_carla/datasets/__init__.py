"""Data sets: German Credit, Adult Income and COMPAS from raw files, and any table of a user's own."""

from rose_carla.datasets.builtin import NAMES, load
from rose_carla.datasets.csv_files import from_csv
from rose_carla.datasets.dataset import (
    Dataset,
    Schema,
    encoded_columns,
    feature_groups,
    mutable_columns,
    nearest_valid,
    project_categories,
    valid_encodings,
)
from rose_carla.datasets.frames import from_frame
from rose_carla.datasets.scaling import (
    PiecewiseScaler,
    action_bounds,
    action_units,
    encoded_unit,
    relative_noise,
)

__all__ = [
    "NAMES",
    "Dataset",
    "PiecewiseScaler",
    "Schema",
    "action_bounds",
    "action_units",
    "encoded_columns",
    "encoded_unit",
    "feature_groups",
    "from_csv",
    "from_frame",
    "load",
    "mutable_columns",
    "nearest_valid",
    "project_categories",
    "relative_noise",
    "valid_encodings",
]
