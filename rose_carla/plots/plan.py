"""A plan as a chart that its person can read."""

from __future__ import annotations

import textwrap
from typing import Any

from rose_carla.carla_compat import import_optional
from rose_carla.errors import PlanError
from rose_carla.plots.style import BLUE, GREY, RED, SKY, literally, one_axes, styled
from rose_carla.rose.plan import Plan

#: Characters to a line of a step.
_LINE = 40
#: Inches of the chart, of its head and foot, between steps, and of each line of text.
_WIDTH, _MARGIN, _GAP, _LINE_HEIGHT = 5.6, 0.85, 0.12, 0.15


@styled
def plan_chart(plan: Plan, tau: float | None = None, ax: Any = None) -> Any:
    """What to do, step by step from the top, and the chance of success after each step, as matplotlib ``Axes``.

    Whiskers are the interval of the estimated chance. Somebody who stops after a step has the chance beside it.

    Parameters
    ----------
    plan
        Of ``method.plan(people)``.
    tau
        The robustness that was asked for, drawn as a line.
    ax
        Draw there; otherwise a figure of the right height is made.

    Raises
    ------
    PlanError
        If the plan has no steps; the message says why.

    Examples
    --------
    >>> from rose_carla import RoseOne, datasets, models, plots
    >>> model = models.train(datasets.load("compas"), "linear")
    >>> plan = RoseOne(model).plan(models.negative_instances(model).head(1))[0]
    >>> plots.plan_chart(plan).get_xlabel()
    'chance of success after each step'
    """
    if not plan.steps:
        raise PlanError(f"There is nothing to draw for person {plan.label}: {plan.reason}.")
    lines = [textwrap.fill(literally(f"{number}. {step}"), _LINE) for number, step in enumerate(plan.steps, start=1)]
    longest = max(line.count("\n") + 1 for line in lines)
    height = _MARGIN + (len(lines) + 1) * (_GAP + _LINE_HEIGHT * longest)
    ax = one_axes(ax, _WIDTH, height)
    chances = [0.0, *(step.success.probability for step in plan.steps)]
    levels = range(len(chances))
    effects = import_optional("matplotlib.patheffects")
    ax.plot(chances, levels, "-", color=GREY, linewidth=0.8, zorder=1)
    ax.plot(chances[:1], [0], "o", color=GREY, markersize=6, zorder=3, clip_on=False)
    for level, step in enumerate(plan.steps, start=1):
        success, last = step.success, level == len(plan.steps)
        colour = BLUE if last else SKY
        ax.barh(level, success.probability, height=0.5, color=colour, alpha=0.25, zorder=0)
        ax.plot([success.lower, success.upper], [level, level], "-", color=colour, linewidth=2, zorder=2)
        ax.plot(success.probability, level, "o", color=colour, markersize=6, zorder=3)
        weight = "bold" if last else "normal"
        # beside the whisker, or left of it where the axis ends
        right = success.upper <= 0.86
        text = ax.annotate(
            f"{success.probability:.0%}",
            (success.upper if right else success.lower, level),
            xytext=(5 if right else -5, 0),
            textcoords="offset points",
            va="center",
            ha="left" if right else "right",
            fontweight=weight,
        )
        text.set_path_effects([effects.withStroke(linewidth=2, foreground="white")])  # where lines cross it
    if tau is not None:
        ax.axvline(tau, color=RED, linewidth=0.9, linestyle="dashed", zorder=1)
        ax.annotate("asked for", (tau, 0), xytext=(4, 0), textcoords="offset points", color=RED, va="center")
    ax.set_yticks(list(levels), ["today: turned down", *lines])
    ax.set_ylim(len(plan.steps) + 0.5, -0.5)
    ax.set_xlim(0, 1)
    ax.xaxis.set_major_formatter(import_optional("matplotlib.ticker").PercentFormatter(1.0))
    ax.set_xlabel("chance of success after each step")
    ax.set_title(literally(f"Plan for person {plan.label}"), loc="left", fontweight="bold")
    ax.grid(True, axis="x", alpha=0.3, linewidth=0.5)
    ax.tick_params(axis="y", length=0, pad=7)
    ax.spines["left"].set_visible(False)
    return ax
