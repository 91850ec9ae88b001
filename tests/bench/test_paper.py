"""The stored values of the paper: unchanged, complete and consistent."""

from __future__ import annotations

import hashlib
from importlib import resources

import pytest
from rose_carla import datasets, models
from rose_carla.bench import TABLE_1, layouts, paper_value
from rose_carla.bench.comparison import paper_frame
from rose_carla.bench.layouts import Scope

#: Of the file that was compared, value by value, with the paper's source.
SHA256 = "357fcb63c31b39120068014dba9878636db96e5cd1ed7c6f9e613eb8f949bd98"
#: Tables, and how many values each of them has.
COUNTS = {
    "table1": 3 * 9 * 8,
    "rose-mul": 3 * 5 * 5,
    "plausible": 3 * 9 * 3,
    "accumulated": 3 * 9 * 4,
    "units": 3 * 9 * 3 * 2,
    "linear": 3 * 7 * 7,
    "classifiers": 3 * 2 * 5,
}
PLACES = [(dataset, method) for dataset in datasets.NAMES for method in TABLE_1]


def test_paper_csv_is_unchanged():
    stored = resources.files("rose_carla.bench").joinpath("paper.csv").read_bytes()
    assert hashlib.sha256(stored).hexdigest() == SHA256


def test_paper_tables_are_complete_and_unique():
    frame = paper_frame()
    assert frame.groupby("table").size().to_dict() == COUNTS
    assert not frame.duplicated(["table", "dataset", "method", "condition", "metric"]).any()
    assert set(frame["dataset"]) == set(datasets.NAMES)
    assert frame["mean"].notna().all()
    spread = frame["metric"].isin(["Validity", "Recourse_Time"]) | (frame["table"] == "classifiers")
    assert (frame["std"].isna() == spread).all()


@pytest.mark.parametrize(
    ("place", "mean", "std"),
    [
        (("table1", "german", "Wachter", "Log_Density"), -10.31, 0.28),
        (("table1", "adult", "PROBE", "Proximity"), 12.24, 6.64),
        (("table1", "compas", "ROSE-mul", "Recourse_Time"), 0.62, None),
        (("table1", "german", "CROCO", "Validity"), 0.49, None),
        (("rose-mul", "german", "ROSE-mul", "Acc_AIR", "unit_variance=0.001"), 0.19, 0.18),
        (("rose-mul", "adult", "ROSE-mul", "Recourse_Time", "action_unit=0.1"), 0.113, None),
        (("plausible", "compas", "DiCE", "Plausible_AIR", "variance=0.015"), 0.24, 0.18),
        (("accumulated", "adult", "CoGS", "Acc_AIR", "unit_variance=0.0007"), 0.61, 0.25),
        (("units", "german", "GrSp", "Steps", "action_unit=0.025"), 43.92, 31.19),
        (("units", "compas", "PROBE", "Acc_AIR", "action_unit=0.1"), 0.23, 0.15),
        (("linear", "compas", "ROAR", "Sparsity"), 4.0, 4.0),
        (("classifiers", "german", "ann", "People"), 285, None),
        (("classifiers", "adult", "linear", "Batch_Size"), 512, None),
    ],
)
def test_paper_values_read_by_hand(place, mean, std):
    assert paper_value(*place) == (mean, std)


def test_missing_paper_value_is_none():
    assert paper_value("table1", "german", "ROAR", "Validity") is None
    assert paper_value("plausible", "german", "GrSp", "Plausible_AIR") is None
    assert paper_value("table1", "german", "GrSp", "Plausible_AIR", "variance=0.01") is None


def test_our_layouts_cover_all_paper_values():
    scope = Scope(datasets.NAMES)
    makers = (layouts.table_1, layouts.linear, layouts.rose_mul, layouts.plausible, layouts.accumulated, layouts.units)
    ours = {
        (layout.name, dataset, method, condition or column.condition, column.metric)
        for layout in (*(make(scope).layout for make in makers), layouts.CLASSIFIERS_LAYOUT)
        for dataset in datasets.NAMES
        for method, condition in layout.rows
        for column in layout.columns
    }
    theirs = set(
        paper_frame()[["table", "dataset", "method", "condition", "metric"]].itertuples(index=False, name=None)
    )
    assert theirs <= ours
    assert {metric for *_, metric in ours - theirs} == {"Training_Time"}


def test_appendix_repeats_table_1_except_for_four_methods():
    differing = {}
    for dataset, method in PLACES:
        for table, metric, condition in (
            ("plausible", "Plausible_AIR", "variance=0.01"),
            ("accumulated", "Acc_AIR", "unit_variance=0.0005"),
            ("units", "Acc_AIR", "action_unit=0.025"),
        ):
            first, again = (
                paper_value("table1", dataset, method, metric),
                paper_value(table, dataset, method, metric, condition),
            )
            if first != again:
                differing[table, dataset, method] = (*first, *again)
    assert differing == {
        ("accumulated", "adult", "PROBE"): (0.47, 0.19, 0.47, 0.18),
        ("units", "adult", "PROBE"): (0.47, 0.19, 0.47, 0.18),
        ("accumulated", "compas", "FastAR"): (0.05, 0.11, 0.05, 0.16),
        ("accumulated", "compas", "GrSp"): (0.66, 0.13, 0.5, 0.16),
        ("units", "compas", "GrSp"): (0.66, 0.13, 0.5, 0.16),
        ("plausible", "compas", "ROSE-mul"): (0.1, 0.08, 0.11, 0.08),
    }


def test_steps_are_distance_in_units_except_for_croco_and_one_misprint():
    differing = set()
    for dataset, method in PLACES:
        distance = paper_value("table1", dataset, method, "Proximity")
        for unit in (0.025, 0.05, 0.1):
            steps = paper_value("units", dataset, method, "Steps", f"action_unit={unit:g}")
            for kind in ("mean", "std"):
                gap = abs(getattr(steps, kind) * unit - getattr(distance, kind))
                if gap > 0.005 + 0.005 * unit + 1e-9:  # both are rounded to two digits
                    differing.add((dataset, method, unit, kind))
    croco = {
        (dataset, "CROCO", unit, kind)
        for dataset in datasets.NAMES
        for unit in (0.025, 0.05, 0.1)
        for kind in ("mean", "std")
    }
    assert differing == croco | {("german", "DiCE", 0.1, "mean")}
    assert paper_value("units", "german", "DiCE", "Steps", "action_unit=0.1").mean == 22.21  # 11.21 would agree


def test_classifiers_use_training_settings_of_paper():
    for dataset in datasets.NAMES:
        for kind in ("ann", "linear"):
            ours = models.paper_settings(kind, dataset)
            values = {"Batch_Size": ours.batch_size, "Epochs": ours.epochs, "Learning_Rate": ours.learning_rate}
            for metric, value in values.items():
                assert paper_value("classifiers", dataset, kind, metric).mean == value, (dataset, kind, metric)
