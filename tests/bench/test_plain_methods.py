"""The plain method of the paper, without search and shortening, as a method of the tables."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pandas as pd
import pytest
from rose_carla import RoseMul, RoseOne, models, plots
from plot_examples import random_results
from rose_carla.bench import (
    METHODS,
    OURS,
    PLAIN,
    TABLE_1,
    VARIANTS,
    Recourse,
    Setting,
    build_table,
    claims,
    layouts,
    paper_value,
    t_tests,
)
from rose_carla.bench.comparison import DIFFERS, explain_difference, paper_frame
from rose_carla.bench.layouts import Scope
from rose_carla.cli import main
from rose_carla.errors import PlanError

SHORT_TRAINING = {"ppo": {"n_updates": 3, "n_envs": 64, "n_steps": 16}}


def results(methods, **options):
    return random_results(layouts.table_1(Scope(("german",)), methods).experiments, **options)


def test_names_follow_their_full_versions_and_are_in_tables_on_request_only():
    assert VARIANTS == ("ROSE-one", "ROSE-one-plain", "ROSE-mul", "ROSE-mul-plain")
    assert tuple(METHODS)[-4:] == VARIANTS
    scope = Scope(("german",))
    makers = (layouts.table_1, layouts.linear, layouts.plausible, layouts.accumulated, layouts.units, layouts.frontier)
    for make in makers:
        assert not {method for method, _ in make(scope).layout.rows} & PLAIN.keys(), make
    assert not PLAIN.keys() & {*TABLE_1, *OURS}


@pytest.mark.parametrize(("name", "kind"), [("ROSE-one-plain", RoseOne), ("ROSE-mul-plain", RoseMul)])
def test_plain_method_is_the_full_one_without_search_and_shortening(name, kind):
    entry, full = METHODS[name], METHODS[PLAIN[name]]
    assert entry.make is full.make is kind
    assert (entry.robust, entry.knob, entry.levels) == (True, "tau", full.levels)
    assert entry.resolve({"tau": 0.9}) == {**full.resolve({"tau": 0.9}), "search": False, "shorten": False}
    assert Recourse(Setting("compas"), name).key != Recourse(Setting("compas"), PLAIN[name]).key


def test_plain_method_stays_plain(compas_linear):
    entry = METHODS["ROSE-one-plain"]
    assert entry.resolve({"shorten": False, "tau": 0.9})["shorten"] is False
    for call in (entry.resolve, lambda given: entry.build(compas_linear, 0, given)):
        with pytest.raises(PlanError, match="shorten is False in this method, and cannot be True"):
            call({"shorten": True})


def test_plain_method_returns_the_walks_of_its_policy(compas_linear):
    method = METHODS["ROSE-one-plain"].build(compas_linear, 0, SHORT_TRAINING)
    people = models.negative_instances(compas_linear).head(20)
    plans = method.plan(people)
    assert any(plan.found for plan in plans)
    for plan in plans:
        if plan.found:
            assert method.task.margins(plan.counterfactual[None])[0] > 0
            assert plan.steps[-1].accepted
            # as they were taken: moves of the policy, of at most the largest multiple
            assert max(step.size for step in plan.steps) <= max(method.settings.multiples) + 1e-9
    found = [plan for plan in plans if plan.found]
    starts, actions = np.array([plan.factual for plan in found]), [plan.actions for plan in found]
    fresh = method.task.robustness.evaluate(starts, actions, 1000, np.random.default_rng(5), 0.99)
    assert (fresh.lower < method.task.limit).all()


def test_paper_values_are_those_of_the_papers_rows():
    for table, dataset, method, condition, metric in paper_frame()[
        ["table", "dataset", "method", "condition", "metric"]
    ].itertuples(index=False, name=None):
        if method in OURS:
            printed = paper_value(table, dataset, method, metric, condition)
            assert printed is not None
            assert paper_value(table, dataset, f"{method}-plain", metric, condition) == printed
    assert paper_value("table1", "german", "CROCO-plain", "Validity") is None


def test_table_compares_plain_methods_with_the_paper():
    frame = results(VARIANTS, missing=0.1)
    table = build_table(layouts.table_1(Scope(("german",)), VARIANTS).layout, frame, ["german"], {})
    assert [row.method for row in table.rows] == list(VARIANTS)
    values = {row.method: row.values for row in table.rows}
    for plain, full in PLAIN.items():
        for column, ours, other in zip(table.columns, values[plain], values[full], strict=True):
            assert ours.printed == other.printed, column
            assert bool(ours.tag) == bool(other.tag)
            assert bool(ours.reason) == (ours.tag == DIFFERS)
    assert "ours shortens" in explain_difference("german", "ROSE-one", "Plausible_AIR")
    assert "shortens" not in explain_difference("german", "ROSE-one-plain", "Plausible_AIR")


def test_plain_methods_are_variants_of_rose_and_not_baselines():
    frame = results(("CROCO", "PROBE", *VARIANTS), missing=0)
    frame.loc[frame["Method"].isin([*PLAIN]), ["Acc_AIR", "Plausible_AIR", "Proximity"]] = 0.0
    tests, verdicts = t_tests(frame), claims(frame)
    assert list(dict.fromkeys(tests["Ours"])) == list(VARIANTS)
    assert set(tests["Other"]) <= {"CROCO", "PROBE"}
    assert set(verdicts["Ours"]) == set(VARIANTS)
    metric = dict(verdicts[["Ours", "Metric"]].to_numpy())
    assert all(metric[plain] == metric[full] for plain, full in PLAIN.items())
    assert not verdicts["Safer and shorter"].str.contains("plain").any()
    assert verdicts.set_index("Ours").loc[[*PLAIN], "Held"].all()


@pytest.mark.parametrize("metric", ["Plausible_AIR", "Acc_AIR"])
def test_figures_take_plain_methods(metric):
    frame = random_results(layouts.frontier(Scope(("german",), n_samples=100), VARIANTS).experiments)
    labels = plots.frontier(frame, metric).axes[0].get_legend_handles_labels()[1]
    assert labels == list(VARIANTS)
    ax = plots.critical_difference_diagram(results(tuple(METHODS)), metric, metric)
    assert {text.get_text().split()[0] for text in ax.get_yticklabels()} == set(METHODS)


@pytest.mark.slow
def test_quick_table_with_plain_methods(tmp_path, monkeypatch, capsys):
    for name in VARIANTS:
        options = {**METHODS[name].options, **SHORT_TRAINING}
        monkeypatch.setitem(METHODS, name, dataclasses.replace(METHODS[name], options=options))
    monkeypatch.setattr("rose_carla.cli.tables._QUICK_PEOPLE", 4)
    words = ["table1", "--quick", "--jobs", "1", "--datasets", "compas", "--methods", *VARIANTS]
    assert main([*words, "--out", str(tmp_path / "out"), "--cells", str(tmp_path / "cells")]) == 0
    table = pd.read_csv(tmp_path / "out" / "table1.csv")
    assert list(dict.fromkeys(table["method"])) == list(VARIANTS)
    assert (table.loc[table["metric"] == "Validity", "mean"] > 0).all()
    printed = table.set_index(["method", "metric"])["paper_mean"]
    for plain, full in PLAIN.items():
        np.testing.assert_array_equal(printed[plain], printed[full])
    settings = json.loads((tmp_path / "out" / "run.json").read_text())["hyperparams"]
    assert {name: (each["search"], each["shorten"]) for name, each in settings.items()} == {
        name: (name in OURS, name in OURS) for name in VARIANTS
    }
    out = capsys.readouterr().out
    assert "than ROSE-mul-plain" in out
    assert {line.split()[0] for line in out.splitlines() if line.startswith("ROSE-")} == set(VARIANTS)
