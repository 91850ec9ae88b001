"""The table of people, which all others are made of: a row for each data set, method, condition, seed and person."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import pandas as pd
from rose_carla._lib.text import csv_safe_frame
from rose_carla.bench.cells import Cell, Judgement
from rose_carla.bench.runner import Finished


@dataclass(frozen=True)
class Point:
    """A method under a condition on one data set with one seed: what one row of a table looks at.

    Parameters
    ----------
    condition
        What differs from the table's usual settings, such as ``"tau=0.85"``; empty if nothing does.
    judgements
        Of one and the same recourse.
    """

    condition: str
    judgements: tuple[Judgement, ...]

    @property
    def key(self) -> tuple[str, str, str]:
        """Data set, method and condition."""
        recourse = self.judgements[0].recourse
        return recourse.setting.dataset, recourse.method, self.condition


def people(points: Iterable[Point], finished: Finished) -> pd.DataFrame:
    """The table of people, of all points that did not fail altogether.

    ``Recourse_Time`` and ``Training_Time`` are seconds, the first a mean for one person, and ``Alone`` says whether
    they can be compared. ``Steps`` is the number of units of action, the paper's '# of steps'.
    """
    frames = []
    for point in points:
        cell = point.judgements[0].recourse
        recourse = finished.results.get(cell)
        if recourse is None:
            continue
        columns: dict[str, object] = {
            "Dataset": cell.setting.dataset,
            "Classifier": cell.setting.classifier,
            "Method": cell.method,
            "Condition": point.condition,
            "Seed": cell.setting.seed,
            "Person": recourse.about["labels"],
        }
        for judgement in point.judgements:
            judged = finished.results.get(judgement)
            columns |= dict.fromkeys(judgement.metrics, np.nan) if judged is None else judged.arrays
            if judged is not None and "Proximity" in judged.arrays:
                columns["Steps"] = judged.arrays["Proximity"] / judgement.noise.action_unit
        columns["Recourse_Time"] = recourse.about["seconds"] / recourse.about["people"]
        columns["Training_Time"] = recourse.about["training_seconds"]
        columns["Alone"] = recourse.about["alone"]
        frames.append(pd.DataFrame(columns))
    if not frames:
        return pd.DataFrame(columns=["Dataset", "Method", "Condition", "Seed", "Person"])
    return pd.concat(frames, ignore_index=True)


def errors(points: Iterable[Point], finished: Finished) -> dict[tuple[str, str, str], str]:
    """What failed, by data set, method and condition."""
    found = {}
    for point in points:
        cells: list[Cell] = [point.judgements[0].recourse, *point.judgements]
        for cell in cells:
            if cell in finished.errors:
                found[point.key] = finished.errors[cell]
                break
    return found


def tidy_csv(frame: pd.DataFrame) -> str:
    """As CSV with six digits, more than any table prints and half the size, and without formulas."""
    return str(csv_safe_frame(frame).replace({np.inf: np.nan}).to_csv(index=False, float_format="%.6g"))
