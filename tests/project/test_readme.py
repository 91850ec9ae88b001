"""The README's numbers are those of the committed results."""

from __future__ import annotations

import re
from pathlib import Path

import pandas as pd

ROOT = Path(__file__).parents[2]


def test_results_table_matches_the_latest_full_run():
    readme = (ROOT / "README.md").read_text()
    rows = re.findall(r"^\| (?:\*\*)?([\w-]+)(?:\*\*)? \| (.*·.*) \|$", readme, flags=re.MULTILINE)
    printed = {method: [cell.split(" · ") for cell in cells.split(" | ")] for method, cells in rows}
    means = pd.read_csv(ROOT / "docs" / "results" / "table1" / "table1.csv").set_index(["method", "dataset", "metric"])
    methods = list(means.index.unique("method"))
    assert list(printed) == methods
    for method in methods:
        measured = [
            [
                f"{means.loc[(method, dataset, metric), 'mean']:.2f}"
                for metric in ("Proximity", "Plausible_AIR", "Acc_AIR")
            ]
            for dataset in ("german", "adult", "compas")
        ]
        assert printed[method] == measured, method
