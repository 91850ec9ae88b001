"""A chart of a plan."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Any

from rose_carla.carla_compat import import_optional
from rose_carla.errors import PlanError
from rose_carla.plots.style import BLUE, GREY, RED, SKY, axes_or_new, draw_grid, escape_math, styled

if TYPE_CHECKING:
    from rose_carla.rose.plan import Plan

#: Characters per line of a step.
_LINE = 40
#: Inches of the chart, of its head and foot, between steps, and of each line of text.
_WIDTH, _MARGIN, _GAP, _LINE_HEIGHT = 5.6, 0.85, 0.12, 0.15


@styled
def plan_chart(plan: Plan, tau: float | None = None, ax: Any = None) -> Any:
    """Draw the steps of a plan from the top, with the chance of success of stopping after each, on ``Axes``.

    It starts with the chance of changing nothing. Whiskers are the confidence intervals of the chances; a hollow dot is
    a state that the classifier does not accept if it is reached exactly.

    Parameters
    ----------
    plan
        One of ``method.plan(people)``.
    tau
        The requested robustness, drawn as a line.
    ax
        Axes to draw on; by default those of a new figure of the right height.

    Raises
    ------
    PlanError
        If the plan has no steps.

    Examples
    --------
    >>> from rose_carla import RoseOne, datasets, models, plots
    >>> model = models.train(datasets.load("compas"), "linear")
    >>> plan = RoseOne(model).plan(models.negative_instances(model).head(1))[0]
    >>> plots.plan_chart(plan).get_xlabel()
    'chance of success after each step'
    """
    if not plan.steps:
        raise PlanError(f"The plan for person {plan.label} has no steps to draw: {plan.reason}.")
    lines = [textwrap.fill(escape_math(f"{number}. {step}"), _LINE) for number, step in enumerate(plan.steps, start=1)]
    longest = max(line.count("\n") + 1 for line in lines)
    height = _MARGIN + (len(lines) + 1) * (_GAP + _LINE_HEIGHT * longest)
    ax = axes_or_new(ax, _WIDTH, height)
    successes = [plan.without_plan, *(step.success for step in plan.steps)]
    accepted = [False, *(step.accepted for step in plan.steps)]
    levels = range(len(successes))
    effects = import_optional("matplotlib.patheffects")
    ax.plot([each.probability for each in successes], levels, "-", color=GREY, linewidth=0.8, zorder=1)
    for level, success in enumerate(successes):
        last = level == len(plan.steps)
        colour = BLUE if last else SKY if level else GREY
        ax.barh(level, success.probability, height=0.5, color=colour, alpha=0.25, zorder=0)
        ax.plot([success.lower, success.upper], [level, level], "-", color=colour, linewidth=2, zorder=2)
        fill = colour if accepted[level] else "white"
        dot = {"markersize": 6, "zorder": 3, "clip_on": False}
        ax.plot(success.probability, level, "o", color=colour, markerfacecolor=fill, **dot)
        right = success.upper <= 0.86  # otherwise the text would be cut off by the end of the axis
        text = ax.annotate(
            f"{success.probability:.0%}",
            (success.upper if right else success.lower, level),
            xytext=(5 if right else -5, 0),
            textcoords="offset points",
            va="center",
            ha="left" if right else "right",
            fontweight="bold" if last else "normal",
        )
        text.set_path_effects([effects.withStroke(linewidth=2, foreground="white")])  # lines may cross it
    if tau is not None:
        ax.axvline(tau, color=RED, linewidth=0.9, linestyle="dashed", zorder=1)
        # between two rows, where no other text is
        ax.annotate("target", (tau, 0.5), xytext=(4, 0), textcoords="offset points", color=RED, va="center")
    ax.set_yticks(list(levels), ["today: rejected", *lines])
    ax.set_ylim(len(plan.steps) + 0.5, -0.5)
    ax.set_xlim(0, 1)
    ax.xaxis.set_major_formatter(import_optional("matplotlib.ticker").PercentFormatter(1.0))
    ax.set_xlabel("chance of success after each step")
    ax.set_title(escape_math(f"Plan for person {plan.label}"), loc="left", fontweight="bold")
    draw_grid(ax, "x")
    ax.tick_params(axis="y", length=0, pad=7)
    ax.spines["left"].set_visible(False)
    return ax
