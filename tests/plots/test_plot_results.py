"""Figures of results against plain loops over people."""

from __future__ import annotations

import itertools
import math
import re
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import pytest
from rose_carla import bench, plots
from matplotlib import cbook
from plot_examples import drawn_texts, log, plan, random_results
from rose_carla.bench import Finished, Scope, layouts, results_frame
from rose_carla.bench.figure_recipes import RECIPES
from rose_carla.bench.table import DATASET_TITLES
from rose_carla.errors import ExperimentError, PlanError
from rose_carla.plots.style import escape_math
from scipy import stats

SCOPE = Scope(("german", "compas"), people=10)
#: Critical values of Nemenyi's test at 0.05 for 2 to 10 methods (Demsar 2006, Table 5a).
NEMENYI = (1.960, 2.343, 2.569, 2.728, 2.850, 2.949, 3.031, 3.102, 3.164)


def people_of(name, scope=SCOPE, **options):
    return random_results(RECIPES[name].experiments(scope), **options)


def mean_of(rows, column, needed=(), **chosen):
    """Return the mean of a group over people with all ``needed`` values, by a loop over records."""
    values = [
        row[column]
        for row in rows
        if all(row[name] == value for name, value in chosen.items())
        and not any(math.isnan(row[name]) for name in (column, *needed))
    ]
    return sum(values) / len(values)


def lines_of(ax):
    return {line.get_label(): line.get_xydata() for line in ax.get_lines() if not line.get_label().startswith("_")}


def legend_of(figure):
    return [text.get_text() for text in figure.legends[0].get_texts()]


def test_thresholds_are_means_over_people_with_recourse():
    frame = people_of("thresholds")
    assert frame["Proximity"].isna().any()
    frame.loc[frame["Proximity"].idxmax(), "Plausible_AIR"] = np.nan  # judged in one way only: in neither mean
    figure, rows = plots.thresholds(frame, DATASET_TITLES), frame.to_dict("records")
    assert [ax.get_title() for ax in figure.axes] == ["German Credit", "COMPAS"]
    for ax, dataset in zip(figure.axes, SCOPE.datasets, strict=True):
        lines = lines_of(ax)
        assert list(lines) == [rf"$\tau$ = {tau}" for tau in (0.6, 0.7, 0.8, 0.9)]
        for tau, points in zip((0.6, 0.7, 0.8, 0.9), lines.values(), strict=True):
            for point, variance in zip(points, (0.005, 0.01, 0.015), strict=True):
                group = {"Dataset": dataset, "Condition": f"tau={tau}, variance={variance}"}
                expected = [
                    mean_of(rows, "Proximity", ["Plausible_AIR"], **group),
                    mean_of(rows, "Plausible_AIR", ["Proximity"], **group),
                ]
                np.testing.assert_allclose(point, expected)
    assert "0.005, 0.01, 0.015" in figure.legends[0].get_title().get_text()


@pytest.mark.parametrize("wrong", ["", "tau=0.8", "tau=0.8, unit_variance=0.01", "variance=0.01"])
def test_thresholds_reject_incomplete_conditions(wrong):
    frame = people_of("thresholds")
    frame.loc[5, "Condition"] = wrong
    with pytest.raises(ExperimentError, match=f"condition '{wrong}' has no value of (tau|variance)"):
        plots.thresholds(frame)


def test_action_units_are_means_with_their_intervals():
    frame = people_of("action-units")
    frame.loc[frame["Proximity"].idxmax(), "Acc_AIR"] = np.nan
    figure, rows = plots.action_units(frame), frame.to_dict("records")
    units = ("0.025", "0.05", "0.1")
    for ax, metric in zip(figure.axes, ("Acc_AIR", "Proximity"), strict=True):
        assert tuple(text.get_text() for text in ax.get_xticklabels()) == units
        for container, dataset in zip(ax.containers, SCOPE.datasets, strict=True):
            line, _, (bars,) = container
            np.testing.assert_allclose(line.get_xdata(orig=False), range(3), atol=0.1)
            for place, unit in enumerate(units):
                mean = mean_of(rows, metric, Dataset=dataset, Condition=f"action_unit={unit}")
                assert line.get_ydata()[place] == pytest.approx(mean)
                chosen = (frame["Dataset"] == dataset) & (frame["Condition"] == f"action_unit={unit}")
                values = frame.loc[chosen, metric].dropna().to_numpy()
                ends = stats.norm.interval(0.95, mean, stats.sem(values))
                drawn = np.array(bars.get_segments()[place], dtype=float)[:, 1]
                np.testing.assert_allclose(drawn, ends, rtol=1e-4)
    assert legend_of(figure) == list(SCOPE.datasets)
    with pytest.raises(ExperimentError, match=r"condition 'tau=0\.7' has no value of action_unit"):
        plots.action_units(frame.assign(Condition="tau=0.7"))


def test_distances_are_shares_of_the_largest():
    frame, largest = people_of("distances"), {"german": 9.0, "compas": 5.0}
    frame.loc[frame["Method"] == "ROSE-mul", "Proximity"] *= 100
    figure, rows = plots.proximity(frame, largest, DATASET_TITLES), frame.to_dict("records")
    (ax,) = figure.axes
    groups = [("ROAR", "ann"), ("ROAR", "linear"), ("ARAR", "linear"), ("ROSE-one", "ann"), ("ROSE-mul", "ann")]
    words = ["ROAR (NN)", "ROAR (LR)", "ARAR (LR)", "ROSE-one (NN)", "ROSE-mul (NN)"]
    assert legend_of(figure) == words
    expected = {
        (place, number): mean_of(rows, "Proximity", Dataset=dataset, Method=method, Classifier=classifier)
        for number, (method, classifier) in enumerate(groups)
        for place, dataset in enumerate(SCOPE.datasets)
    }
    bars = {
        (round(bar.get_center()[0]), words.index(container.get_label())): bar.get_height()
        for pair in zip(ax.containers[::2], ax.containers[1::2], strict=True)
        for container, bar in ((pair[0], pair[0][0]), (pair[0], pair[1][0]))
    }
    assert bars.keys() == expected.keys()
    for (place, number), height in bars.items():
        assert height == pytest.approx(expected[place, number] / largest[SCOPE.datasets[place]])
    written = [text.get_text() for text in ax.texts]
    for number, text in zip(expected.values(), written, strict=True):
        assert float(text) == pytest.approx(number, rel=0.051)
        assert "e" not in text
    edges = sorted((bar.get_x(), bar.get_x() + bar.get_width()) for container in ax.containers for bar in container)
    assert all(before[1] < after[0] for before, after in itertools.pairwise(edges))
    (line,) = [line for line in ax.get_lines() if line.get_linestyle() == ":"]
    assert set(line.get_ydata()) == {1}


def test_method_that_failed_on_first_dataset_is_in_legend():
    frame = people_of("distances")
    frame.loc[(frame["Dataset"] == "german") & (frame["Method"] == "ARAR"), "Proximity"] = np.nan
    frame = frame[~((frame["Dataset"] == "german") & (frame["Method"] == "ROSE-mul"))]
    figure = plots.proximity(frame, {"german": 9.0, "compas": 5.0})
    assert sorted(legend_of(figure)) == ["ARAR (LR)", "ROAR (LR)", "ROAR (NN)", "ROSE-mul (NN)", "ROSE-one (NN)"]
    assert len(figure.axes[0].patches) == 2 * 5 - 2
    with pytest.raises(ExperimentError, match="No method found recourse"):
        plots.proximity(frame.assign(Proximity=np.nan), {})


@pytest.mark.parametrize("metric", plots.RATES)
def test_frontier_excludes_people_without_recourse(metric):
    frame = people_of("frontier-acc-air")
    frame.loc[frame["Method"] == "Wachter", metric] = np.nan
    figure, rows = plots.frontier(frame, metric), frame.to_dict("records")
    for ax, dataset in zip(figure.axes, SCOPE.datasets, strict=True):
        lines = lines_of(ax)
        assert set(lines) == set(bench.TABLE_1) - {"Wachter"}
        for method, points in lines.items():
            entry = bench.METHODS[method]
            conditions = [f"{entry.knob}={level:g}" for level in entry.levels] or [""]
            expected = [
                [mean_of(rows, column, [metric], Dataset=dataset, Method=method, Condition=condition)
                 for column in ("Proximity", metric)]
                for condition in conditions
            ]  # fmt: skip
            np.testing.assert_allclose(points, expected)
        assert ax.get_xscale() == "log"
    assert figure.axes[0].get_ylabel() == plots.RATES[metric]


def test_closed_loop_joins_fixed_recourse_and_coming_back():
    frame = people_of("closed-loop")
    never = (frame["Method"] == "CoGS") & (frame["Dataset"] == "german") & (frame["Person"] == "1")
    frame.loc[never, "Closed_Loop_Cost"] = np.nan  # no try of theirs succeeds: in the rate, not in the cost
    figure, rows = plots.closed_loop(frame, DATASET_TITLES), frame.to_dict("records")
    assert [ax.get_title() for ax in figure.axes] == ["German Credit", "COMPAS"]
    for ax, dataset in zip(figure.axes, SCOPE.datasets, strict=True):
        drawn = [line for line in ax.get_lines() if len(line.get_xdata())]
        for number, method in enumerate(bench.TABLE_1):
            joined, fixed, back = drawn[3 * number : 3 * number + 3]
            group = {"Dataset": dataset, "Method": method}
            expected = [
                [mean_of(rows, cost, **group), 1 - mean_of(rows, rate, **group)]
                for cost, rate in (("Proximity", "Acc_AIR"), ("Closed_Loop_Cost", "Closed_Loop_AIR"))
            ]
            np.testing.assert_allclose(joined.get_xydata(), expected)
            np.testing.assert_allclose([*fixed.get_xydata(), *back.get_xydata()], expected)
            assert (fixed.get_markerfacecolor(), back.get_label()) == ("white", method)
            assert back.get_markerfacecolor() == joined.get_color() == fixed.get_markeredgecolor()
        assert ax.get_xscale() == "log"
    assert legend_of(figure) == [*bench.TABLE_1, "as planned", "coming back"]


@pytest.mark.parametrize(
    "draw",
    [
        plots.thresholds,
        plots.action_units,
        plots.frontier,
        plots.closed_loop,
        lambda frame: plots.proximity(frame, {}),
        lambda frame: plots.critical_difference_diagram(frame, "Acc_AIR", "Acc AIR"),
    ],
)
def test_results_without_columns_are_rejected(draw):
    with pytest.raises(ExperimentError, match="results have no column"):
        draw(results_frame((), Finished({}, {}, 0, 0)))


def brute_force_ranks(frame, metric):
    """Count the better methods plus half of the ties; missing recourse is worst."""
    found = {}
    for key, group in frame.groupby(["Dataset", "Seed", "Person"], sort=False):
        values = {row["Method"]: row[metric] for _, row in group.iterrows()}
        values = {method: math.inf if math.isnan(value) else value for method, value in values.items()}
        found[key] = {
            method: sum((other < value) + (other == value) / 2 for other in values.values()) + 0.5
            for method, value in values.items()
        }
    return found


def test_ranks_match_loop_with_ties_and_missing_recourse():
    frame = random_results(layouts.table_1(Scope(("german", "compas"), seeds=(0, 1))).experiments, missing=0.3)
    frame["Acc_AIR"] = frame["Acc_AIR"].round(1)
    frame = frame.sample(frac=1, random_state=0)
    frame = frame[(frame["Method"] != "GrSp") | (frame["Person"] != "3")]  # not evaluated for that person
    ranks = plots.rank_methods(frame, "Acc_AIR")
    for key, expected in brute_force_ranks(frame, "Acc_AIR").items():
        if key[2] != "3":
            assert ranks.loc[key].to_dict() == expected
        else:
            assert ranks.loc[key, "GrSp"] >= max(expected.values())
    assert len(ranks) == 2 * 2 * 12
    assert (ranks.sum(axis=1) == 9 * 10 / 2).all()
    assert list(ranks.index.get_level_values("Dataset").unique()) == list(frame["Dataset"].unique())


@pytest.mark.parametrize(("k", "q"), enumerate(NEMENYI, start=2))
def test_critical_differences_match_published_values(k, q):
    for n in (10, 153):
        ours = plots.critical_difference(k, n)
        assert ours / math.sqrt(k * (k + 1) / (6 * n)) == pytest.approx(q, abs=0.0011)
    assert plots.critical_difference(k, 10, 0.1) < plots.critical_difference(k, 10)


def table_1(missing=0.1, **options):
    return random_results(layouts.table_1(SCOPE).experiments, missing=missing, **options)


def test_diagram_shows_means_differences_and_friedman_test():
    frame = table_1()
    frame.loc[frame["Method"] == "ROSE-mul", "Acc_AIR"] *= 0.6
    ax = plots.critical_difference_diagram(frame, "Acc_AIR", "Acc AIR", titles=DATASET_TITLES)
    ranks = pd.DataFrame(brute_force_ranks(frame, "Acc_AIR")).T
    means = ranks.mean().sort_values()
    labels = [text.get_text().rsplit(maxsplit=1) for text in ax.get_yticklabels()]
    assert [name.strip() for name, _ in labels] == list(means.index)
    np.testing.assert_allclose([float(mean) for _, mean in labels], means, atol=0.0051)
    bold = [name.strip() for (name, _), text in zip(labels, ax.get_yticklabels(), strict=True)
            if text.get_fontweight() == "bold"]  # fmt: skip
    assert set(bold) == {"ROSE-one", "ROSE-mul"}
    bars = [line for line in ax.get_lines() if line.get_linewidth() == 4]
    for row, (bar, mean) in enumerate(zip(bars, means, strict=True)):
        np.testing.assert_allclose(bar.get_ydata(), row)
        half = 3.102 * math.sqrt(9 * 10 / (6 * 24)) / 2
        np.testing.assert_allclose(bar.get_xdata(), [mean - half, mean + half], atol=0.001)
    assert ax.get_ylim()[0] > ax.get_ylim()[1]  # the best at the top
    dots = [line for line in ax.get_lines() if line.get_marker() == "o" and line.get_markerfacecolor() != "none"]
    np.testing.assert_allclose([dot.get_xdata()[0] for dot in dots], means)
    for name, marker in (("german", "o"), ("compas", "^")):
        open_marks = [line for line in ax.get_lines() if line.get_markerfacecolor() == "none"]
        marks = [line for line in open_marks if line.get_marker() == marker]
        each = ranks.xs(name, level=0).mean()
        np.testing.assert_allclose([mark.get_xdata()[0] for mark in marks], each[means.index])
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["German Credit", "COMPAS"]
    wide = frame.fillna({"Acc_AIR": 2}).pivot(index=["Dataset", "Person"], columns="Method", values="Acc_AIR")
    p = stats.friedmanchisquare(*wide.to_numpy().T).pvalue
    assert 0.001 < p < 0.9
    assert f"24 people, Friedman test p = {p:.3f}" in ax.get_xlabel()


@pytest.mark.parametrize("seed", range(4))
def test_legend_does_not_cover_markers(seed):
    """The best method overall may be the worst on one data set."""
    ax = plots.critical_difference_diagram(table_1(n=3, seed=seed), "Acc_AIR", "Acc AIR", titles=DATASET_TITLES)
    drawn_texts(ax.figure)
    hidden = ax.get_legend().get_window_extent()
    for line in ax.get_lines():
        for x, y in ax.transData.transform(line.get_xydata()):
            assert not (hidden.x0 < x < hidden.x1 and hidden.y0 < y < hidden.y1)


def test_friedman_p_value_of_clear_and_tied_ranks():
    frame = table_1(missing=0)
    place = frame["Method"].map(list(frame["Method"].unique()).index)
    clear = plots.critical_difference_diagram(frame.assign(Acc_AIR=place), "Acc_AIR", "Acc AIR")
    assert "Friedman test p < 0.001" in clear.get_xlabel()
    same = plots.critical_difference_diagram(frame.assign(Acc_AIR=0.0), "Acc_AIR", "Acc AIR")
    assert "Friedman test p = 1.000" in same.get_xlabel()


def test_ranks_reject_invalid_results():
    frame = table_1()
    with pytest.raises(ExperimentError, match="no column 'Acc_IAR'"):
        plots.rank_methods(frame, "Acc_IAR")
    two = frame[frame["Method"].isin(["GrSp", "CROCO"])]
    with pytest.raises(ExperimentError, match=r"at least three methods and two people, got 2 and 24\."):
        plots.critical_difference_diagram(two, "Acc_AIR", "Acc AIR")
    alone = frame[(frame["Person"] == "0") & (frame["Dataset"] == "german")]
    with pytest.raises(ExperimentError, match=r"at least three methods and two people, got 9 and 1\."):
        plots.critical_difference_diagram(alone, "Acc_AIR", "Acc AIR")
    with pytest.raises(ExperimentError, match="'FastAR' occurs more than once for a person"):
        plots.rank_methods(people_of("frontier-acc-air"), "Acc_AIR")


def test_plan_chart_shows_steps_and_chances():
    shown = plan([0.25, 0.5, 0.88], "savings", (100, 2500.5))
    ax = plots.plan_chart(shown, tau=0.85)
    labels = [re.sub(r"\s+", " ", text.get_text()) for text in ax.get_yticklabels()]
    sentence = "increase savings from 100 to 2,500"
    assert labels == ["today: rejected", *(f"{number}. {sentence}" for number in (1, 2, 3))]
    dots = [line.get_xydata()[0] for line in ax.get_lines() if line.get_marker() == "o"]
    np.testing.assert_allclose(dots, [[0.07, 0], [0.25, 1], [0.5, 2], [0.88, 3]])
    hollow = [line.get_markerfacecolor() == "white" for line in ax.get_lines() if line.get_marker() == "o"]
    assert hollow == [True, True, False, False]  # exact states that are not accepted
    whiskers = [line.get_xydata() for line in ax.get_lines() if line.get_linewidth() == 2]
    successes = [shown.without_plan, *(step.success for step in shown.steps)]
    expected = [[[success.lower, row], [success.upper, row]] for row, success in enumerate(successes)]
    np.testing.assert_allclose(whiskers, expected)
    np.testing.assert_allclose([bar.get_width() for bar in ax.patches], [0.07, 0.25, 0.5, 0.88])
    (tau,) = [line for line in ax.get_lines() if line.get_linestyle() == "--"]
    assert set(tau.get_xdata()) == {0.85}
    written = {text.get_text(): text for text in ax.texts}
    assert written.keys() == {"7%", "25%", "50%", "88%", "target"}
    assert [name for name, text in written.items() if text.get_fontweight() == "bold"] == ["88%"]
    assert ax.get_title("left") == "Plan for person 7"
    assert ax.get_ylim()[0] > ax.get_ylim()[1]  # from the top
    without = plots.plan_chart(shown)
    assert not [line for line in without.get_lines() if line.get_linestyle() == "--"]
    assert "target" not in {text.get_text() for text in without.texts}


@pytest.mark.parametrize("name", [r"$\frac{", "$a$ and $b$--><script>alert(1)</script>", "a\0b\x1b[2J$"])
def test_names_from_data_are_drawn_literally(name):
    drawn = plots.plan_chart(plan([0.25], name, (name, "x"), label=name))
    picture = plots.image(drawn, "svg").decode()
    root = ElementTree.fromstring(picture)  # fails if it is not valid XML
    assert not [tag for tag in root.iter() if tag.tag.endswith("script")]
    assert escape_math(name) in drawn.get_title("left")
    assert not cbook.is_math_text(escape_math(name))


def test_names_of_methods_and_data_sets_are_drawn_literally():
    name = "$a$ and $b$--><script>alert(1)</script>\x1b[2J$"
    for figure in _figures_of(name):
        assert any(escape_math(name) in text.get_text() for text, _ in drawn_texts(getattr(figure, "figure", figure)))
        ElementTree.fromstring(plots.image(figure, "svg").decode())


def _figures_of(name):
    """Yield figures with a method and a data set of that name."""
    for recipe, draw in (
        ("thresholds", plots.thresholds),
        ("action-units", plots.action_units),
        ("frontier-acc-air", plots.frontier),
        ("ranks-acc-air", lambda frame: plots.critical_difference_diagram(frame, "Acc_AIR", "Acc AIR")),
        ("distances", lambda frame: plots.proximity(frame, dict.fromkeys(frame["Dataset"], 1.0))),
    ):
        frame = people_of(recipe)
        renamed = {column: {frame[column].iloc[0]: name} for column in ("Dataset", "Method")}
        yield draw(frame.replace(renamed))


def test_plan_without_steps_is_rejected_with_reason():
    with pytest.raises(PlanError, match=r"plan for person 7 has no steps to draw: every feature is immutable\."):
        plots.plan_chart(plan([], reason="every feature is immutable"))


@pytest.mark.parametrize("every", [1, 4])
def test_line_joins_evaluated_updates_only(every):
    updates = log(30, evaluate_every=every)
    ax = plots.learning_curve(updates)
    costs = next(other for other in ax.figure.axes if other is not ax)
    judged = [update for update in updates if not math.isnan(update.greedy_validity)]
    assert len(judged) == -(-30 // every)
    for axes, style, greedy, trained in (
        (ax, "-", "greedy_validity", "validity"),
        (costs, "--", "greedy_cost", "cost"),
    ):
        (line,) = [line for line in axes.get_lines() if line.get_linestyle() == style and len(line.get_xdata())]
        expected = [(update.steps / 1000, getattr(update, greedy)) for update in judged]
        np.testing.assert_allclose(line.get_xydata(), expected)
        (dots,) = [line for line in axes.get_lines() if line.get_marker() == "." and len(line.get_xdata())]
        expected = [(update.steps / 1000, getattr(update, trained)) for update in updates]
        np.testing.assert_allclose(dots.get_xydata(), expected)


def test_learning_curves_have_one_panel_per_method():
    logs = {name: log(seed=seed) for seed, name in enumerate(("one", "two", "three"))}
    figure = plots.learning_curves(logs)
    panels = [ax for ax in figure.axes if ax.get_ylabel() == "validity"]
    assert [ax.get_title() for ax in panels] == list(logs)
    assert len(figure.axes) == 2 * 3
    for ax, updates in zip(panels, logs.values(), strict=True):
        np.testing.assert_allclose(ax.get_lines()[0].get_ydata(), [update.validity for update in updates])
    assert legend_of(figure) == ["without exploration", "in training"]
