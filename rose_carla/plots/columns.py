"""What the table of people has to hold for a figure."""

from __future__ import annotations

import pandas as pd
from rose_carla.errors import ExperimentError


def check_columns(people: pd.DataFrame, *names: str) -> None:
    """Refuse a table without some column, such as that of a run in which every cell failed.

    Raises
    ------
    ExperimentError
        With the first that is missing.
    """
    for name in names:
        if name not in people:
            raise ExperimentError(f"The table of people has no column {name!r}: was anybody judged by it?")
