"""COMPAS, as CARLA processes it: 6,172 rows, 4 continuous and 3 binary features.

Source: ProPublica's two-year recidivism file (Larson et al., 2016). The raw file holds names of real people: it is
read where its package put it and never copied.
"""

from __future__ import annotations

import pandas as pd
from rose_carla.datasets.raw import raw_file
from rose_carla.datasets.schema import Schema

SCHEMA = Schema(
    name="compas",
    target="score",
    continuous=("age", "length_of_stay", "priors_count", "two_year_recid"),
    categorical=("c_charge_degree", "race", "sex"),
    immutables=("age", "race", "sex"),
)

_COLUMNS = ["age", "two_year_recid", "c_charge_degree", "race", "sex", "priors_count", "length_of_stay", "score"]


def frame() -> pd.DataFrame:
    """The table, row for row and column for column as in CARLA's ``compas.csv``."""
    raw = pd.read_csv(raw_file("compas/compas-scores-two-years.csv"))
    usable = (
        raw["days_b_screening_arrest"].between(-30, 30)
        & (raw["is_recid"] != -1)
        & (raw["c_charge_degree"] != "O")
        & raw["score_text"].notna()
    )
    raw = raw[usable].reset_index(drop=True)
    stay = pd.to_datetime(raw["c_jail_out"]) - pd.to_datetime(raw["c_jail_in"])
    black = raw["race"] == "African-American"
    table = raw.assign(
        length_of_stay=stay.dt.days,
        race=black.map({True: "African-American", False: "Other"}),
        score=(raw["score_text"] != "High").astype("int64"),
    )[_COLUMNS]
    for column in SCHEMA.categorical:
        table[column] = table[column].astype(object)
    # CARLA's file has the first two rows the other way round; splits by position should match it.
    order = [1, 0, *range(2, len(table))]
    return table.iloc[order].reset_index(drop=True)
