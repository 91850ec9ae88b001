"""A plan as a table, as JSON and as text."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pandas as pd
import pytest
from rose_carla.mdp import ActionSpace, Feature
from rose_carla.noise import InvalidationRate
from rose_carla.rose import Plan, PlanStep, Success
from rose_carla.rose import plan as plan_module
from rose_carla.rose.plan import COLUMNS, tidy

NOTHING = np.zeros(2)


def make_plan(steps=2, found=True, reason="", accepted=True, probability=0.444444444):
    changes = [("duration", 36.0, 25.799999999999997), ("other-debtors", "none", "guarantor")][:steps]
    success = Success(probability, 0.40001, 0.5)
    made = tuple(
        PlanStep(name, before, after, NOTHING, NOTHING, 6.000000000000001, success, accepted)
        for name, before, after in changes
    )
    return Plan("P1", NOTHING, made, found, reason, success, Success(0.12, 0.1, 0.140001))


def test_one_row_for_each_step():
    frame = make_plan().to_frame()
    assert tuple(frame.columns) == COLUMNS
    outcome = [6, 0.4444, 0.4, 0.5, True, 0.12, 0.1, 0.14, None, None, None, None, ""]
    assert frame.to_numpy().tolist() == [
        ["P1", "plan", 1, "duration", 36, 25.8, *outcome],
        ["P1", "plan", 2, "other-debtors", "none", "guarantor", *outcome],
    ]


@pytest.mark.parametrize(("found", "status"), [(True, "accepted"), (False, "no plan")])
def test_one_row_without_steps(found, status):
    plan = make_plan(0, found, "why")
    frame = plan.to_frame()
    assert tuple(frame.columns) == COLUMNS
    assert len(frame) == 1
    row = frame.iloc[0]
    assert [row["person"], row["status"], row["reason"], row["success"]] == ["P1", status, "why", 0.4444]
    assert [row["accepted"], row["without_plan"]] == [found, 0.12]
    assert row[["step", "feature", "from", "to", "size"]].isna().all()


def test_tables_of_several_people_have_one_schema():
    plans = [make_plan(), make_plan(0), make_plan(1)]
    rows = [row for plan in plans for row in plan.to_rows()]
    assert all(tuple(row) == COLUMNS for row in rows)
    assert pd.DataFrame(rows)["step"].tolist() == pytest.approx([1, 2, np.nan, 1], nan_ok=True)


def test_json_object():
    plan = make_plan()
    success = {"probability": 0.4444, "lower": 0.4, "upper": 0.5}
    outcome = {"size": 6, "success": success, "accepted": True}
    assert json.loads(json.dumps(plan.to_dict())) == {
        "person": "P1",
        "status": "plan",
        "reason": "",
        "success": success,
        "without_plan": {"probability": 0.12, "lower": 0.1, "upper": 0.14},
        "revisits": None,
        "revisited": None,
        "steps": [
            {"feature": "duration", "from": 36, "to": 25.8, **outcome},
            {"feature": "other-debtors", "from": "none", "to": "guarantor", **outcome},
        ],
    }


def test_success_of_people_who_come_back():
    back = {"revisits": 3, "revisited": Success(0.98764, 0.96, 0.99)}
    plan = dataclasses.replace(make_plan(1), **back)
    assert plan.lines()[-1] == "  Coming back up to 3 times: success 99% (96% to 99%)"
    columns = ["revisits", "revisited", "revisited_lower", "revisited_upper"]
    for each in (plan, dataclasses.replace(make_plan(0), **back)):
        assert each.to_frame()[columns].to_numpy().tolist() == [[3, 0.9876, 0.96, 0.99]]
    about = plan.to_dict()
    assert about["revisits"] == 3
    assert about["revisited"] == {"probability": 0.9876, "lower": 0.96, "upper": 0.99}


def test_tidy_keeps_other_values():
    assert [tidy(value) for value in (True, 3, "x", None, float("inf"))] == [True, 3, "x", None, float("inf")]


def test_text():
    assert str(make_plan(1)).splitlines() == [
        "Plan for person P1",
        "  Without changes: success 12% (10% to 14%)",
        "  1. decrease duration from 36 to 25.8: success 44% (40% to 50%)",
    ]
    assert str(make_plan(0, False, "no plan found: x")).splitlines() == [
        "Person P1: no plan found: x",
        "  Without changes: success 12% (10% to 14%)",
    ]


@pytest.mark.parametrize("probability", [0.01, 0.62])
@pytest.mark.parametrize("accepted", [False, True])
def test_steps_that_are_not_accepted_exactly_are_marked(accepted, probability):
    plan = make_plan(1, accepted=accepted, probability=probability)
    assert plan.lines()[-1].endswith(", exact state not accepted yet") == (not accepted)
    assert [plan.to_frame()["accepted"].item(), plan.to_dict()["steps"][0]["accepted"]] == [accepted, accepted]


def test_the_classifier_judges_the_very_states_of_the_steps(monkeypatch):
    judged = []
    monkeypatch.setattr(plan_module, "favourable", lambda model: lambda rows: judged.append(rows) or rows[:, 0] > 0)
    monkeypatch.setattr(plan_module, "original_values", lambda model, rows: pd.DataFrame(rows, columns=["x", "y"]))
    rng = np.random.default_rng(0)
    people, plans = rng.random((20, 2)), [rng.random((6, 2)) * [[1, 0]] for _ in range(20)]
    space = ActionSpace([Feature("x", (0,)), Feature("y", (1,))], 2, 0.025, (1,))
    rates = InvalidationRate(*np.full((3, 140), 0.5), 10)
    made = plan_module.make_plans(None, space, people, range(20), plans, np.full(20, True), [""] * 20, rates)
    np.testing.assert_array_equal(np.concatenate(judged), np.concatenate([each.states for each in made]))
