"""The paper's values and why ours differ, and ROSE beside the other methods: tags, t-tests and the paper's claims."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Iterable, Mapping
from importlib import resources
from typing import NamedTuple

import numpy as np
import pandas as pd
from rose_carla.bench.method_registry import OURS, PLAIN, VARIANTS
from rose_carla.metrics.registry import METRICS, PAPER_METRICS, Metric
from scipy import stats

#: Tags of a value beside the paper's.
WITHIN, BETTER, DIFFERS = "within 15 %", "better", "differs"
#: Metrics that are tested: those with a standard deviation over people.
TESTED = tuple(name for name in PAPER_METRICS if METRICS[name].show_std)
#: The claim for each variant of ROSE: no baseline has both a lower rate, in this metric, and a lower L1 distance.
CLAIMS = {name: "Acc_AIR" if name.startswith("ROSE-mul") else "Plausible_AIR" for name in VARIANTS}
_REFERENCE = "CROCO"
_PERSON = ["Seed", "Person"]


class PaperValue(NamedTuple):
    """A value printed in the paper."""

    mean: float
    std: float | None


@functools.lru_cache(maxsize=1)
def paper_frame() -> pd.DataFrame:
    """Return all printed values: table, dataset, method, condition, metric, mean, std (NaN where none is printed)."""
    with resources.files(__package__).joinpath("paper.csv").open() as file:
        return pd.read_csv(file, keep_default_na=False, na_values={"std": [""]})


@functools.lru_cache(maxsize=1)
def _values() -> Mapping[tuple[str, ...], PaperValue]:
    return {
        tuple(row[:5]): PaperValue(float(row[5]), None if pd.isna(row[6]) else float(row[6]))
        for row in paper_frame().itertuples(index=False)
    }


def paper_value(table: str, dataset: str, method: str, metric: str, condition: str = "") -> PaperValue | None:
    """Return one printed value, or None if the paper does not have it.

    The paper's rows of ROSE are those of the plain method too, which is the paper's.

    Examples
    --------
    >>> paper_value("table1", "german", "ROSE-mul", "Acc_AIR")
    PaperValue(mean=0.23, std=0.02)
    """
    return _values().get((table, dataset, PLAIN.get(method, method), condition, metric))


class Reason(NamedTuple):
    """A reason for differences, and the values it applies to; an empty tuple stands for all."""

    text: str
    datasets: tuple[str, ...] = ()
    methods: tuple[str, ...] = ()
    metrics: tuple[str, ...] = ()

    def applies(self, dataset: str, method: str, metric: str) -> bool:
        """Whether this reason explains the given value."""
        pairs = ((dataset, self.datasets), (method, self.methods), (metric, self.metrics))
        return all(not allowed or name in allowed for name, allowed in pairs)


#: From specific to general: the first one that applies is reported.
REASONS = (
    Reason(
        "another machine: the paper does not say which, nor how many people were served at a time",
        metrics=("Recourse_Time", "Training_Time"),
    ),
    Reason(
        "printed value is an artefact: the paper's evaluation points were stored in [0, 1] and read as [-1, 1], so "
        "most of them were not negative to begin with",
        datasets=("compas",),
        methods=("FastAR", *VARIANTS),
    ),
    Reason(
        "the paper does not say which density it means; ours is a Gaussian KDE with Scott's bandwidth on the training "
        "rows of class 1",
        metrics=("Log_Density",),
    ),
    Reason(
        "ours gives a person up rather than return a plan that fails the check on fresh noise: under the noise of the "
        "evaluation, on the density of all training rows, none was found for them",
        methods=VARIANTS,
        metrics=("Validity",),
    ),
    Reason(
        "the paper's plans were made for less noise (a deviation of 0.1 in coordinates of [-1, 1] is a quarter of the "
        "variance in [0, 1], and a transition was a mean of 50 points); under the noise stated in the paper an "
        "exhaustive search finds no shorter single change on Adult either",
        methods=VARIANTS,
        metrics=("Proximity", "Sparsity"),
    ),
    Reason(
        "ours shortens a plan until it just stands the check, a rate below 1 - tau = 0.25, so its rates lie nearer to "
        "that limit",
        methods=OURS,
        metrics=("Gaussian_AIR", "Plausible_AIR", "Acc_AIR"),
    ),
    Reason("another classifier and other people; the method is CARLA's own", methods=("Wachter", "GrSp")),
    Reason("another release of dice-ml, another classifier and other people", methods=("DiCE",)),
    Reason(
        "ours goes on until its guarantee holds and keeps people within [0, 1] and at valid categories, the published "
        "code does neither; longer or shorter recourse shifts every rate",
        methods=("PROBE", "CROCO", "ROAR", "ARAR"),
    ),
    Reason("not known; another classifier and other people are part of it"),
)


def explain_difference(dataset: str, method: str, metric: str) -> str:
    """Return the reason why our value differs from the printed one.

    Examples
    --------
    >>> explain_difference("german", "CoGS", "Recourse_Time")[:15]
    'another machine'
    """
    return next(reason.text for reason in REASONS if reason.applies(dataset, method, metric))


def tag(ours: float, paper: PaperValue, metric: Metric) -> str:
    """Compare a mean with the printed one; means that are equal in the printed digits count as within 15 %.

    Examples
    --------
    >>> tag(0.25, PaperValue(0.23, 0.02), METRICS["Acc_AIR"]), tag(0.1, PaperValue(0.23, 0.02), METRICS["Acc_AIR"])
    ('within 15 %', 'better')
    """
    gap = ours - paper.mean
    if abs(gap) <= max(0.15 * abs(paper.mean), 0.5 * 10.0**-metric.digits):
        return WITHIN
    return BETTER if (gap > 0) == metric.higher_is_better else DIFFERS


def best_methods(means: dict[str, float], metric: Metric) -> set[str]:
    """Return the methods with the best mean in the printed digits."""
    known = {name: round(mean, metric.digits) for name, mean in means.items() if np.isfinite(mean)}
    top = (max if metric.higher_is_better else min)(known.values(), default=None)
    return {name for name, mean in known.items() if mean == top}


def t_tests(results: pd.DataFrame) -> pd.DataFrame:
    """Test each variant of ROSE against CROCO and against the best baseline, for each data set and metric.

    Welch's test compares all people who have a value; the paired test compares the people who have one from both
    methods, under the same noise. ``Difference`` is ROSE minus the other over the pairs; ``Better`` is whether its sign
    is the better direction.
    """
    rows = []
    for dataset, part in results.groupby("Dataset", sort=False):
        baselines = [name for name in part["Method"].unique() if name not in VARIANTS]
        for name in TESTED:
            means = part.groupby("Method")[name].mean().reindex(baselines).dropna()
            if means.empty:
                continue
            top = str(means.idxmax() if METRICS[name].higher_is_better else means.idxmin())
            others = {_REFERENCE: _REFERENCE} if _REFERENCE in means.index else {}
            others[top] = "also the best baseline" if top == _REFERENCE else "best baseline"
            for ours in VARIANTS:
                for other, role in others.items():
                    test = _test(part, name, ours, other)
                    if test is not None:
                        rows.append(
                            {"Dataset": dataset, "Metric": name, "Ours": ours, "Other": other, "As": role} | test
                        )
    return pd.DataFrame(rows)


def _test(part: pd.DataFrame, metric: str, ours: str, other: str) -> dict[str, float | bool] | None:
    mine, theirs = (part[part["Method"] == method].set_index(_PERSON)[metric].dropna() for method in (ours, other))
    pairs = pd.concat([mine, theirs], axis=1, join="inner").to_numpy()
    if len(pairs) < 2:
        return None
    gaps = pairs[:, 0] - pairs[:, 1]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # scipy warns if all values are equal
        welch = stats.ttest_ind(mine, theirs, equal_var=False).pvalue
        paired = stats.ttest_1samp(gaps, 0.0).pvalue if np.ptp(gaps) > 0 else float(gaps[0] == 0)
    return {
        "Mean": float(mine.mean()),
        "Other mean": float(theirs.mean()),
        "Welch p": float(welch),
        "Pairs": len(pairs),
        "Difference": float(gaps.mean()),
        "Paired p": float(paired),
        "Better": bool(gaps.mean() > 0) == METRICS[metric].higher_is_better and bool(gaps.mean() != 0),
    }


def dominating(results: pd.DataFrame, ours: tuple[str, str], others: Iterable[tuple[str, str]]) -> pd.DataFrame:
    """Find the methods with both a lower invalidation rate and a lower L1 distance than a variant of ROSE.

    Parameters
    ----------
    results
        Of one data set.
    ours, others
        Method and condition.

    Returns
    -------
    pd.DataFrame
        One row for each that dominates: method and condition, the two differences of means over the people who have
        recourse from both, their number, and whether both differences are significant (paired, p < 0.05).
    """
    metric = CLAIMS[ours[0]]

    def select(method: str, condition: str) -> pd.DataFrame:
        chosen = results[(results["Method"] == method) & (results["Condition"] == condition)]
        return chosen.set_index(_PERSON)[[metric, "Proximity"]].dropna()

    mine = select(*ours)
    rows = []
    for method, condition in others:
        gaps = (select(method, condition) - mine).dropna()
        if len(gaps) < 2 or not (gaps.mean() < 0).all():
            continue
        significant = all(
            stats.ttest_1samp(gaps[column], 0.0).pvalue < 0.05 for column in gaps if np.ptp(gaps[column]) > 0
        )
        rows.append(
            {
                "Method": method,
                "Condition": condition,
                metric: float(gaps[metric].mean()),
                "Proximity": float(gaps["Proximity"].mean()),
                "People": len(gaps),
                "Beyond chance": significant,
            }
        )
    return pd.DataFrame(rows)


def claims(results: pd.DataFrame) -> pd.DataFrame:
    """Check the paper's claims for each data set and each condition of each variant of ROSE.

    Every baseline at every condition is compared. ``Held`` is whether none of them has both a lower rate and a lower
    L1 distance; the last two columns list those that do, and those whose differences are significant.
    """
    rows = []
    for dataset, part in results.groupby("Dataset", sort=False):
        points = list(part[["Method", "Condition"]].drop_duplicates().itertuples(index=False, name=None))
        others = [point for point in points if point[0] not in VARIANTS]
        for ours in [point for point in points if point[0] in CLAIMS]:
            found = dominating(part, ours, others).to_dict("records")
            names = [f"{row['Method']} {row['Condition']}".strip() for row in found]
            significant = [name for name, row in zip(names, found, strict=True) if row["Beyond chance"]]
            rows.append(
                {
                    "Dataset": dataset,
                    "Ours": ours[0],
                    "Condition": ours[1],
                    "Metric": CLAIMS[ours[0]],
                    "Held": not names,
                    "Safer and shorter": ", ".join(names),
                    "Beyond chance": ", ".join(significant),
                }
            )
    return pd.DataFrame(rows)
