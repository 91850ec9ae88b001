"""Ours beside the paper's, ROSE beside the others: tags, t-tests, and whether anybody is both safer and shorter."""

from __future__ import annotations

import warnings
from collections.abc import Iterable

import numpy as np
import pandas as pd
from rose_carla.bench.measures import MEASURES, Measure
from rose_carla.bench.methods import OURS
from rose_carla.bench.paper import Printed
from scipy import stats

#: Tags of a value beside the paper's.
WITHIN, BETTER, DIFFERS = "within 15 %", "better", "differs"
#: Metrics that are tested, and the claim: the metric in which a variant of ROSE has no better method at lower cost.
TESTED = ("Sparsity", "Proximity", "Log_Density", "Gaussian_AIR", "Plausible_AIR", "Acc_AIR")
CLAIMS = {"ROSE-mul": "Acc_AIR", "ROSE-one": "Plausible_AIR"}
_RIVAL = "CROCO"
_PERSON = ["Seed", "Person"]


def tag(ours: float, paper: Printed, measure: Measure) -> str:
    """How a mean compares with the printed one; equal in the printed digits counts as within.

    Examples
    --------
    >>> tag(0.25, Printed(0.23, 0.02), MEASURES["Acc_AIR"]), tag(0.1, Printed(0.23, 0.02), MEASURES["Acc_AIR"])
    ('within 15 %', 'better')
    """
    gap = ours - paper.mean
    if abs(gap) <= max(0.15 * abs(paper.mean), 0.5 * 10.0**-measure.digits):
        return WITHIN
    return BETTER if (gap > 0) == measure.higher else DIFFERS


def best(means: dict[str, float], metric: str) -> set[str]:
    """Names with the best mean in the printed digits; none if nobody has one."""
    measure = MEASURES[metric]
    known = {name: round(mean, measure.digits) for name, mean in means.items() if np.isfinite(mean)}
    if not known:
        return set()
    top = (max if measure.higher else min)(known.values())
    return {name for name, mean in known.items() if mean == top}


def t_tests(people: pd.DataFrame) -> pd.DataFrame:
    """Each variant of ROSE against CROCO and against the best baseline, for each data set and metric.

    Welch's test compares everybody who has a value; the paired test those who have one from both methods, who also saw
    the same noise. ``difference`` is ROSE minus the other, of the paired; ``better`` tells whether that is the good
    direction.
    """
    rows = []
    for dataset, part in people.groupby("Dataset", sort=False):
        baselines = [name for name in part["Method"].unique() if name not in OURS]
        for metric in TESTED:
            means = part.groupby("Method")[metric].mean()
            known = means.reindex(baselines).dropna()
            if known.empty:
                continue
            top = str(known.idxmax() if MEASURES[metric].higher else known.idxmin())
            rivals = {_RIVAL: _RIVAL, top: "best baseline"} if _RIVAL in known.index else {top: "best baseline"}
            for ours in OURS:
                for rival, why in rivals.items():
                    test = _test(part, metric, ours, rival)
                    if test is not None:
                        role = "also the best baseline" if rival == _RIVAL == top else why
                        rows.append(
                            {"Dataset": dataset, "Metric": metric, "Ours": ours, "Other": rival, "As": role} | test
                        )
    return pd.DataFrame(rows)


def _test(part: pd.DataFrame, metric: str, ours: str, rival: str) -> dict[str, float | bool] | None:
    mine, theirs = _of(part, ours, metric), _of(part, rival, metric)
    pairs = pd.concat([mine, theirs], axis=1, join="inner").to_numpy()
    if len(mine) < 2 or len(theirs) < 2 or len(pairs) < 2:
        return None
    gaps = pairs[:, 0] - pairs[:, 1]
    # where nobody differs from anybody there is no test, and scipy says so in many words
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        welch = stats.ttest_ind(mine, theirs, equal_var=False).pvalue
        paired = stats.ttest_1samp(gaps, 0.0).pvalue if np.ptp(gaps) > 0 else float(gaps[0] == 0)
    return {
        "Mean": float(mine.mean()),
        "Other mean": float(theirs.mean()),
        "Welch p": float(welch),
        "Pairs": len(pairs),
        "Difference": float(gaps.mean()),
        "Paired p": float(paired),
        "Better": bool(gaps.mean() > 0) == MEASURES[metric].higher and bool(gaps.mean() != 0),
    }


def _of(part: pd.DataFrame, method: str, metric: str) -> pd.Series:
    return part[part["Method"] == method].set_index(_PERSON)[metric].dropna()


def dominating(people: pd.DataFrame, ours: tuple[str, str], others: Iterable[tuple[str, str]]) -> pd.DataFrame:
    """Others with both a lower invalidation rate and a lower L1 distance than a variant of ROSE, on the same people.

    Parameters
    ----------
    people
        Of one data set.
    ours, others
        Method and condition.

    Returns
    -------
    pd.DataFrame
        One row for each that dominates: its method and condition, the two differences of means over the people whom
        both have recourse for, their number, and whether both differences are beyond chance (paired, p < 0.05).
    """
    metric = CLAIMS[ours[0]]
    mine = _points(people, ours, metric)
    rows = []
    for other in others:
        gaps = (_points(people, other, metric) - mine).dropna()
        if len(gaps) < 2 or not (gaps.mean() < 0).all():
            continue
        sure = all(stats.ttest_1samp(gaps[column], 0.0).pvalue < 0.05 for column in gaps if np.ptp(gaps[column]) > 0)
        rows.append(
            {
                "Method": other[0],
                "Condition": other[1],
                metric: float(gaps[metric].mean()),
                "Proximity": float(gaps["Proximity"].mean()),
                "People": len(gaps),
                "Beyond chance": sure,
            }
        )
    return pd.DataFrame(rows)


def _points(people: pd.DataFrame, point: tuple[str, str], metric: str) -> pd.DataFrame:
    chosen = people[(people["Method"] == point[0]) & (people["Condition"] == point[1])]
    return chosen.set_index(_PERSON)[[metric, "Proximity"]].dropna()


def claims(people: pd.DataFrame) -> pd.DataFrame:
    """For each data set and variant of ROSE at each of its conditions: who is both safer and shorter, if anybody.

    ``Held`` says that nobody is. Both ROSE variants and every baseline at every condition are looked at.
    """
    rows = []
    for dataset, part in people.groupby("Dataset", sort=False):
        points = list(part[["Method", "Condition"]].drop_duplicates().itertuples(index=False, name=None))
        others = [point for point in points if point[0] not in OURS]
        for ours in [point for point in points if point[0] in CLAIMS]:
            found = dominating(part, ours, others)
            words = [f"{row.Method} {row.Condition}".strip() for row in found.itertuples()]
            sure = [word for word, yes in zip(words, found.get("Beyond chance", ()), strict=True) if yes]
            rows.append(
                {
                    "Dataset": dataset,
                    "Ours": ours[0],
                    "Condition": ours[1],
                    "Metric": CLAIMS[ours[0]],
                    "Held": not words,
                    "Safer and shorter": ", ".join(words),
                    "Beyond chance": ", ".join(sure),
                }
            )
    return pd.DataFrame(rows)
