"""The results frame behind tables and figures: a row for each data set, method, condition, seed and person."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import pandas as pd
from rose_carla._lib.text import csv_safe_frame
from rose_carla.bench.cells import Cell, Judgement
from rose_carla.bench.runner import Finished


@dataclass(frozen=True)
class Experiment:
    """A method under a condition, on one data set with one seed."""

    #: What differs from the default settings of the table, such as ``"tau=0.85"``; empty if nothing does.
    condition: str
    #: Evaluations of the same recourse.
    judgements: tuple[Judgement, ...]

    @property
    def key(self) -> tuple[str, str, str]:
        """Data set, method and condition."""
        recourse = self.judgements[0].recourse
        return recourse.setting.dataset, recourse.method, self.condition


def results_frame(experiments: Iterable[Experiment], finished: Finished) -> pd.DataFrame:
    """Collect the results of experiments; those without recourse, which failed, are left out.

    ``Recourse_Time`` (mean per person) and ``Training_Time`` are in seconds; ``Alone`` is whether they can be compared.
    ``Steps`` is the number of units of action, the paper's '# of steps'.
    """
    frames = []
    for experiment in experiments:
        cell = experiment.judgements[0].recourse
        recourse = finished.results.get(cell)
        if recourse is None:
            continue
        columns: dict[str, object] = {
            "Dataset": cell.setting.dataset,
            "Classifier": cell.setting.classifier,
            "Method": cell.method,
            "Condition": experiment.condition,
            "Seed": cell.setting.seed,
            "Person": recourse.about["labels"],
        }
        for judgement in experiment.judgements:
            evaluated = finished.results.get(judgement)
            arrays = dict.fromkeys(judgement.metrics, np.nan) if evaluated is None else evaluated.arrays
            for metric in judgement.metrics:  # stored arrays are sorted by name: restore the order of the metrics
                columns |= {name: values for name, values in arrays.items() if name.startswith(metric)}
            if evaluated is not None and "Proximity" in arrays:
                columns["Steps"] = arrays["Proximity"] / judgement.noise.action_unit
        columns["Recourse_Time"] = recourse.about["seconds"] / recourse.about["people"]
        columns["Training_Time"] = recourse.about["training_seconds"]
        columns["Alone"] = recourse.about["alone"]
        frames.append(pd.DataFrame(columns))
    if not frames:
        return pd.DataFrame(columns=["Dataset", "Method", "Condition", "Seed", "Person"])
    return pd.concat(frames, ignore_index=True)


def experiment_errors(experiments: Iterable[Experiment], finished: Finished) -> dict[tuple[str, str, str], str]:
    """Return the first error message of each failed experiment, by data set, method and condition."""
    found = {}
    for experiment in experiments:
        cells: list[Cell] = [experiment.judgements[0].recourse, *experiment.judgements]
        messages = [finished.errors[cell] for cell in cells if cell in finished.errors]
        if messages:
            found[experiment.key] = messages[0]
    return found


def to_csv(frame: pd.DataFrame) -> str:
    """Return a frame as CSV with six digits, more than any table prints, and without spreadsheet formulas."""
    return str(csv_safe_frame(frame).replace({np.inf: np.nan}).to_csv(index=False, float_format="%.6g"))
