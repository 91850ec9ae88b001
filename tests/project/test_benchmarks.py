"""The scripts in benchmarks/ can be imported; running them takes minutes. Their logic against known answers."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
from rose_carla import RoseMul, RoseOne
from benchmark_scripts import script
from rose_carla.errors import DataError
from rose_carla.mdp import ActionSpace, Feature, OneOff
from rose_carla.noise import GaussianNoise, wilson_interval
from rose_carla.ppo import ActorCritic
from rose_carla.rose.search import Task
from scipy.special import expit, ndtr

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
#: Little training and few samples.
TINY = {"ppo": {"n_updates": 1, "n_envs": 8, "n_steps": 8, "restarts": 0}, "n_check": 60, "progress": False}
WEIGHTS, BIAS, DEVIATION = np.array([4.0, 3.0, 2.0]), -3.5, 0.1
SPACE = ActionSpace([Feature(f"x{i}", (i,)) for i in range(3)], 3, 0.05, (1, 2, 4))


@pytest.fixture(autouse=True)
def benchmark_modules(monkeypatch):
    monkeypatch.syspath_prepend(BENCHMARKS)


@pytest.mark.parametrize("path", sorted(BENCHMARKS.glob("*.py")), ids=lambda path: path.stem)
def test_script_imports(path):
    script(path.stem)


@pytest.fixture
def plan_quality():
    return script("plan_quality")


def linear_task(noise=None):
    """A linear classifier under Gaussian noise, whose invalidation rates have a closed form."""
    noise = noise or OneOff(lambda rows: rows @ WEIGHTS + BIAS > 0, GaussianNoise(), DEVIATION**2, 64)
    return Task(SPACE, lambda states: expit(states @ WEIGHTS + BIAS), noise, 0.75, one_off=noise)


def rate_of(end):
    return ndtr(-(np.asarray(end) @ WEIGHTS + BIAS) / (DEVIATION * np.linalg.norm(WEIGHTS)))


def linear_method():
    return SimpleNamespace(task=linear_task(), space=SPACE)


def test_a_useless_step_is_found_and_needed_ones_are_not(plan_quality):
    """The first plan has a step that is not needed, the second not, the third leads too close to the border."""
    rows = np.zeros((3, 3))
    plans = [
        np.array([[0.9, 0, 0], [0, 0.3, 0], [0, 0, 0.05]]),
        np.array([[0.5, 0, 0], [0, 0.65, 0]]),
        np.array([[0.5, 0, 0], [0, 0.5, 0]]),
    ]
    ends = [plan.sum(axis=0) for plan in plans]
    assert rate_of(ends[0] - [0, 0, 0.05]) < 0.1
    assert rate_of(ends[1]) < 0.24
    assert rate_of(ends[1] - [0.5, 0, 0]) > 0.9
    assert rate_of(ends[2]) > 0.45
    quality = plan_quality.judge(linear_method(), rows, plans)
    assert (quality.droppable, quality.surely_droppable) == (1, 1)
    np.testing.assert_allclose(quality.rates, [rate_of(end) for end in ends], atol=0.05)
    lower, _ = wilson_interval(quality.rates * 1000, 1000)
    assert quality.beyond == (lower >= 0.25).sum() == 1


def test_steps_that_can_be_shortened_by_a_unit(plan_quality):
    """The border of 0.2 in closed form: on its inside one unit less is still enough."""
    just_enough = (0.8416 * DEVIATION * np.linalg.norm(WEIGHTS) - BIAS) / WEIGHTS[0]
    plans = [np.array([[just_enough + more, 0, 0]]) for more in (0.10, 0.03)]
    variants = plan_quality.with_a_shorter_step(SPACE, plans[0])
    np.testing.assert_allclose(variants, [plans[0] - [[0.05, 0, 0]]])
    method = linear_method()
    assert plan_quality.spare(
        method, np.zeros((2, 3)), plans, lambda plan: plan_quality.with_a_shorter_step(SPACE, plan)
    ) == (1, 1)
    assert plan_quality.judge(method, np.zeros((2, 3)), plans).shortenable == 1


def test_categories_and_last_units_are_not_shortened(plan_quality):
    space = ActionSpace([Feature("x", (0,)), Feature("c", (1, 2), np.eye(2))], 3, 0.05, (1, 2))
    plan = np.array([[0, -1.0, 1.0], [-0.05, 0, 0]])
    assert plan_quality.with_a_shorter_step(space, plan) == []
    shorter = plan_quality.with_a_shorter_step(space, np.array([[0, -1.0, 1.0], [-0.2, 0, 0]]))
    np.testing.assert_allclose(shorter, [[[0, -1.0, 1.0], [-0.15, 0, 0]]])
    assert [len(each) for each in plan_quality.without_a_step(plan)] == [1, 1]


def test_quality_of_no_plans(plan_quality):
    quality = plan_quality.judge(linear_method(), np.empty((0, 3)), [])
    assert (len(quality.rates), quality.droppable, quality.shortenable, quality.beyond) == (0, 0, 0, 0)


def test_crude_search_reports_accepted_states_also_if_all_noise_undoes_them():
    """Accepted in one point of the grid only, from which all noise leads away."""
    import oracle

    noise = OneOff(lambda rows: np.zeros(len(rows), dtype=bool), GaussianNoise(), 0.01, 64)
    task = linear_task(noise)
    rows = np.random.default_rng(0).random((50, 3))
    state, rate = oracle.most_robust(task, np.zeros(3), rows, np.random.default_rng(1))
    assert rate == 1.0
    assert task.margins(state[None])[0] > 0
    state, rate = oracle.most_robust(linear_task(), np.zeros(3), rows, np.random.default_rng(1))
    assert rate < 0.01
    assert rate_of(state) < 0.01


@dataclass(frozen=True)
class Row:
    name: str
    seed: int
    value: float
    words: str


def test_results_are_read_again_and_an_incomplete_line_is_measured_anew(tmp_path):
    result_file = script("result_file")
    path = tmp_path / "rows.csv"
    rows = [Row("a", 0, 0.1 + 0.2, 'quoted, "text"'), Row("a", 1, float("nan"), ""), Row("b", 0, 2.0, "x")]
    results = result_file.ResultFile(Row, ("name", "seed"), path)
    for row in rows:
        results.add(row)
    again = result_file.ResultFile(Row, ("name", "seed"), path)
    assert again.find("a", 0) == rows[0]
    assert np.isnan(again.find("a", 1).value)
    assert again.find("a", 2) is None
    path.write_text(path.read_text()[:-3])  # interrupted in the last line
    again = result_file.ResultFile(Row, ("name", "seed"), path)
    assert again.find("b", 0) is None
    again.add(rows[2])
    assert result_file.ResultFile(Row, ("name", "seed"), path).find("b", 0) == rows[2]
    assert path.read_text().count("name") == 1
    with pytest.raises(SystemExit, match="other columns"):
        result_file.ResultFile(_other_row(), ("setting",), path)


def _other_row():
    return script("ablation").AblationRow


def test_people_resume_and_summary(tmp_path, monkeypatch, capsys):
    """A second run measures only what is missing, and prints the same table."""
    rose = script("rose")
    measured = []
    usual = rose.people_row

    def counted(table, method, seed, n):
        measured.append((table.name, method, seed))
        return usual(table, method, seed, n)

    monkeypatch.setattr(rose, "people_row", counted)
    monkeypatch.setattr(
        rose.MeasuredTable,
        "method",
        lambda self, name, seed: (RoseOne if name == "ROSE-one" else RoseMul)(self.model, {**TINY, "seed": seed}),
    )
    chosen = argparse.Namespace(
        seeds=[0], methods=["ROSE-one"], first=4, people=4, out=str(tmp_path / "people.csv"), csv=None
    )
    tables = {"compas": rose.TABLES["compas"]}
    rose.people(tables, chosen)
    first = capsys.readouterr().out.split("\n\n")[-1]
    assert first.startswith("|  | seeds |")
    assert "| compas, ROSE-one | 1 |" in first
    rose.people(tables, chosen)
    assert capsys.readouterr().out.split("\n\n")[-1] == first
    chosen.seeds = [0, 1]
    rose.people(tables, chosen)
    assert measured == [("compas", "ROSE-one", 0), ("compas", "ROSE-one", 1)]
    assert "best and worst of 2 seeds" in capsys.readouterr().out


def people_row(rose, **changes):
    values = dict.fromkeys(rose.PeopleRow.__dataclass_fields__, 0)
    return rose.PeopleRow(**{**values, "people": 100, "served": 80, "given_up": "", **changes})


def test_share_of_those_who_can_be_helped():
    """Of 20 without a plan 10 were tried, of whom 2 can be helped: 80 of 84."""
    rose = script("rose")
    assert people_row(rose, tried=10, helpable=2).share_of_helpable == pytest.approx(80 / 84)
    assert people_row(rose, tried=20, helpable=0).share_of_helpable == 1
    assert people_row(rose, served=100).share_of_helpable == 1
    assert people_row(rose, served=0, tried=10, helpable=10).share_of_helpable == 0


def ablation_row(ablation, variant, costs, **changes):
    values = {"setting": "s", "seed": 0, "method": "ROSE-one", "air": 0.2, "features": 1.0, "droppable": 0.0, "ms": 1.0}
    return ablation.AblationRow(**{**values, "variant": variant, "costs": costs, **changes})


def test_ablation_compares_the_same_people():
    ablation = script("ablation")
    rows = {
        "everything": [ablation_row(ablation, "everything", "1.0 2.0 3.0 nan")],
        "rivals": [ablation_row(ablation, "rivals", "nan 2.2 3.3 9.0")],
        "rows": [ablation_row(ablation, "rows", "1.0 2.0 nan nan")],
    }
    whole, rivals, others = ablation.compare(rows)
    assert (whole.found, whole.cost, whole.cost_of_common) == (0.75, 2.0, 2.0)  # common to all: the second person
    assert (rivals.found, rivals.cost_of_common, rivals.lost) == (0.75, 2.2, 0.0)
    assert rivals.dearer == pytest.approx(0.1)
    assert (others.lost, others.dearer) == (0.25, 0.0)
    assert not ablation.gains_little([rivals])
    assert not ablation.gains_little([others])
    assert ablation.gains_little([whole])


def test_ablation_switches_parts_off_and_resumes(tmp_path, monkeypatch, capsys):
    ablation = script("ablation")
    trained = []

    def method(self, name, seed, **options):
        trained.append(options)
        return RoseOne(self.model, {**TINY, "seed": seed, **options})

    monkeypatch.setattr(ablation.MeasuredTable, "method", method)
    path = str(tmp_path / "ablation.csv")
    parts = ["rivals", "rows+ascent", ablation.TRAINING, ablation.PLAIN]
    monkeypatch.setattr(
        "sys.argv",
        [
            "ablation.py",
            "--settings",
            "compas",
            "--methods",
            "ROSE-one",
            "--first",
            "4",
            "--out",
            path,
            "--parts",
            *parts,
        ],
    )
    ablation.main()
    printed = capsys.readouterr().out
    assert trained == [{}, {"ppo": ablation.UNTRAINED}]
    assert all(f"| {part} |" in printed for part in parts)
    assert list(pd.read_csv(path)["variant"]) == ["everything", *parts]
    ablation.main()
    assert len(trained) == 2
    assert capsys.readouterr().out.split("\n\n")[1:] == printed.split("\n\n")[1:]


def test_ablation_leaves_out_what_it_says(compas_linear):
    ablation = script("ablation")
    method = RoseOne(compas_linear, TINY)
    planners = {name: ablation.without(method, name).planner for name in ablation.VARIANTS}
    assert planners["rivals"].without == {"rivals"}
    assert planners["rows+ascent"].without == {"rows", "ascent"}
    assert not planners["plain paper method"].search
    assert not planners["plain paper method"].shorten
    assert ablation.without(method, "everything").planner.without == frozenset()
    assert method.planner.search
    assert method.planner.shorten


@pytest.mark.parametrize("method_name", ["ROSE-one", "ROSE-mul"])
def test_untrained_policy_has_its_first_weights(method_name, compas_linear):
    ablation = script("ablation")
    table = ablation.MeasuredTable("compas", compas_linear, {}, compas_linear.data.df.head(1))
    method = ablation.untrained(table, method_name, 3)
    first = ActorCritic(method.space.width, method.space.n, generator=torch.Generator().manual_seed(3)).state_dict()
    for name, weights in method.policy_.state_dict().items():
        np.testing.assert_allclose(weights, first[name], atol=1e-9)


def test_tables_of_a_users_own(tmp_path, capsys):
    tables = script("measured_tables")
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"age": rng.integers(18, 70, 300), "income": rng.normal(size=300), "debt": rng.random(300)})
    frame["paid"] = np.where(frame["income"] - frame["debt"] > -0.5, "yes", "no")
    frame.loc[:9, "income"] = np.nan
    path = tmp_path / "loans.csv"
    frame.to_csv(path, index=False)
    parser = argparse.ArgumentParser()
    tables.add_options(parser, ["compas"], [0])
    options = ["--csv", str(path), "--target", "paid", "--immutables", "age", "--monotone", "debt=decrease"]
    chosen = parser.parse_args([*options, "--favourable", "yes", "--settings", "csv", "csv-trees"])
    makes = tables.chosen_tables(parser, chosen)
    assert list(makes) == ["csv", "csv-trees"]
    table = tables.build("csv-trees", makes["csv-trees"], 0, first=3)
    assert "10 of 300 rows have missing values" in capsys.readouterr().out
    assert len(table.factuals) == 3
    assert table.model.data.immutables == ["age"]
    assert table.monotone == {"debt": "decrease"}
    chosen = parser.parse_args([*options, "--favourable", "maybe"])
    with pytest.raises(DataError, match="maybe"):
        tables.chosen_tables(parser, chosen)["csv"](0)
    for wrong in (["--settings", "csv"], ["--settings", "germany"], ["--csv", "x.csv"]):
        with pytest.raises(SystemExit):
            tables.chosen_tables(parser, parser.parse_args(wrong))


@pytest.mark.parametrize("name", ["made-up-trees", "cancer"])
def test_made_up_and_real_tables_have_rejected_people_and_rules(name):
    tables = script("measured_tables")
    table = tables.build(name, tables.TABLES[name], 1)
    assert 20 < len(table.factuals) <= tables.PEOPLE
    data = table.model.data
    assert set(table.factuals.index) <= set(data.df_test.index)
    assert not set(data.immutables) & set(table.monotone)
    assert len(data.immutables) == 10
    other = tables.build(name, tables.TABLES[name], 1)
    pd.testing.assert_frame_equal(table.factuals, other.factuals)
