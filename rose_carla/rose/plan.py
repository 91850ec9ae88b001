"""Plans in original units: the changes in order, and the success probability after each."""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from carla.data.catalog import DataCatalog
from carla.models.api import MLModel
from rose_carla.datasets import feature_groups
from rose_carla.mdp import ActionSpace
from rose_carla.models import favourable
from rose_carla.noise import InvalidationRate

#: Columns of a plan as a table.
COLUMNS = (
    "person", "status", "step", "feature", "from", "to", "size", "success", "success_lower", "success_upper",
    "accepted", "without_plan", "without_plan_lower", "without_plan_upper", "revisits", "revisited",
    "revisited_lower", "revisited_upper", "reason",
)  # fmt: skip
#: Those of the success with revisits.
REVISITED = ("revisited", "revisited_lower", "revisited_upper")
#: Values of :attr:`Plan.status`.
PLAN, ACCEPTED, NO_PLAN = "plan", "accepted", "no plan"
#: Decimal digits of a success.
_DIGITS = 4


@dataclass(frozen=True)
class Success:
    """Probability of the favourable outcome under noise.

    Parameters
    ----------
    probability, lower, upper
        Share of noisy implementations that succeed, and its Wilson interval.
    """

    probability: float
    lower: float
    upper: float

    @classmethod
    def from_rates(cls, rates: InvalidationRate) -> list[Success]:
        """Return the success of each of some invalidation rates."""
        return [
            cls(float(1 - rate), float(1 - upper), float(1 - lower))
            for rate, lower, upper in zip(rates.rate, rates.lower, rates.upper, strict=True)
        ]

    def __str__(self) -> str:
        return f"{self.probability:.0%} ({self.lower:.0%} to {self.upper:.0%})"

    def to_dict(self) -> dict[str, float]:
        """Return the values rounded to four digits: a few hundred samples do not determine more."""
        return {name: round(value, _DIGITS) for name, value in dataclasses.asdict(self).items()}


@dataclass(frozen=True, eq=False)  # comparison by identity: == of arrays is not a bool
class PlanStep:
    """One action of a plan.

    Parameters
    ----------
    feature
        Feature to change.
    before, after
        Its values in original units.
    change
        (d,) the action in the encoded space.
    state
        (d,) state after precise implementation.
    size
        Size in units of action.
    success
        Probability of the favourable outcome if the plan ends after this step.
    accepted
        Whether the classifier accepts ``state``. Noise that pulls towards accepted people can give a step a high
        success although its exact state is still refused.
    """

    feature: str
    before: Any
    after: Any
    change: np.ndarray
    state: np.ndarray
    size: float
    success: Success
    accepted: bool

    def __str__(self) -> str:
        if isinstance(self.before, (int, float, np.number)) and isinstance(self.after, (int, float, np.number)):
            verb = "increase" if self.after > self.before else "decrease"
            return f"{verb} {self.feature} from {_format(float(self.before))} to {_format(float(self.after))}"
        return f"change {self.feature} from {self.before} to {self.after}"

    def outcome(self) -> str:
        """Return the success as text, and whether the exact state is refused."""
        return f"success {self.success}" + ("" if self.accepted else ", exact state not accepted yet")


@dataclass(frozen=True, eq=False)
class Plan:
    """Recourse for one person.

    Parameters
    ----------
    label
        The person's row label.
    factual
        (d,) the person's encoded row.
    steps
        Actions in order; empty if the person is accepted already or no plan was found.
    found
        Whether the person is accepted already or the plan passed the check.
    reason
        Reason for the lack of steps; empty if there are steps.
    success
        Success at the end of the plan; at the factual without steps.
    without_plan
        Success of changing nothing, under the same noise. Accumulated noise comes with actions only, so under it this
        is 0 for a rejected person; under one-off noise it is the accepted share of noisy versions of the factual.
    revisits, revisited
        Success of people who implement the plan, look where they landed and, if they are not accepted, come back for
        the next step, at most ``revisits`` times, under accumulated noise; None if this was not asked for.

    Examples
    --------
    >>> from rose_carla import RoseOne, datasets, models
    >>> model = models.train(datasets.load("compas"), "linear")
    >>> method = RoseOne(model, {"monotone": {"age": "increase"}})
    >>> plan = method.plan(models.negative_instances(model).head(1))[0]
    >>> plan.found, len(plan.steps) > 0
    (True, True)
    """

    label: Hashable
    factual: np.ndarray
    steps: tuple[PlanStep, ...]
    found: bool
    reason: str
    success: Success
    without_plan: Success
    revisits: int | None = None
    revisited: Success | None = None

    @property
    def status(self) -> str:
        """``"plan"``, ``"accepted"`` (no change needed) or ``"no plan"``."""
        if not self.found:
            return NO_PLAN
        return PLAN if self.steps else ACCEPTED

    @property
    def actions(self) -> np.ndarray:
        """(k, d) encoded actions in order."""
        return np.array([step.change for step in self.steps]).reshape(-1, len(self.factual))

    @property
    def states(self) -> np.ndarray:
        """(k + 1, d) factual and state after each step."""
        return np.array([self.factual, *(step.state for step in self.steps)])

    @property
    def counterfactual(self) -> np.ndarray:
        """(d,) end of the plan; NaN if none was found."""
        return self.states[-1] if self.found else np.full_like(self.factual, np.nan)

    @property
    def cost(self) -> float:
        """L1 length of the plan in the encoded space."""
        return float(np.abs(self.actions).sum())

    def __str__(self) -> str:
        return "\n".join(self.lines())

    def lines(self) -> list[str]:
        """Return the plan as text: a line for the person, for changing nothing, for each step, and for revisits."""
        first = f"Person {self.label}: {self.reason}" if self.reason else f"Plan for person {self.label}"
        steps = [f"  {number}. {step}: {step.outcome()}" for number, step in enumerate(self.steps, start=1)]
        back = [f"  Coming back up to {self.revisits} times: success {self.revisited}"] if self.revisited else []
        return [first, f"  Without changes: success {self.without_plan}", *steps, *back]

    def to_rows(self) -> Iterator[dict[str, Any]]:
        """Yield the plan as rows with the keys :data:`COLUMNS`, one for each step, in original units.

        A person without steps has one row, with None in the columns of a step; success and ``accepted`` are those of
        the factual.
        """
        person = {"person": self.label, "status": self.status, "reason": self.reason}
        person |= _success_columns("without_plan", self.without_plan) | {"revisits": self.revisits}
        person |= dict.fromkeys(REVISITED) if self.revisited is None else _success_columns("revisited", self.revisited)
        if not self.steps:
            factual = {"accepted": self.found, **_success_columns("success", self.success)}
            yield {**dict.fromkeys(COLUMNS), **person, **factual}
        for number, step in enumerate(self.steps, start=1):
            change = {"feature": step.feature, "from": tidy(step.before), "to": tidy(step.after)}
            outcome = {**_success_columns("success", step.success), "accepted": step.accepted}
            row = {**person, "step": number, **change, "size": tidy(step.size), **outcome}
            yield {name: row[name] for name in COLUMNS}

    def to_frame(self) -> pd.DataFrame:
        """Return :meth:`to_rows` as a frame."""
        return pd.DataFrame(list(self.to_rows()), columns=list(COLUMNS))

    def to_dict(self) -> dict[str, Any]:
        """Return the plan as a JSON object with a list of steps; numbers as in :meth:`to_rows`."""
        return {
            "person": self.label,
            "status": self.status,
            "reason": self.reason,
            "success": self.success.to_dict(),
            "without_plan": self.without_plan.to_dict(),
            "revisits": self.revisits,
            "revisited": self.revisited and self.revisited.to_dict(),
            "steps": [
                {
                    "feature": step.feature,
                    "from": tidy(step.before),
                    "to": tidy(step.after),
                    "size": tidy(step.size),
                    "success": step.success.to_dict(),
                    "accepted": step.accepted,
                }
                for step in self.steps
            ],
        }


def tidy(value: Any) -> Any:
    """Remove rounding errors from floats and return integral ones as int; return other values unchanged.

    Examples
    --------
    >>> tidy(29.0), tidy(2.4000000000000004), tidy("high")
    (29, 2.4, 'high')
    """
    if not isinstance(value, float):
        return value
    rounded = float(f"{value:.12g}")
    return int(rounded) if rounded.is_integer() else rounded


def _success_columns(name: str, success: Success) -> dict[str, float]:
    values = success.to_dict()
    return {name: values["probability"], f"{name}_lower": values["lower"], f"{name}_upper": values["upper"]}


def make_plans(
    mlmodel: MLModel,
    space: ActionSpace,
    rows: np.ndarray,
    labels: Sequence[Hashable],
    plans: Sequence[np.ndarray],
    found: np.ndarray,
    reasons: Sequence[str],
    rates: InvalidationRate,
) -> list[Plan]:
    """Convert encoded plans, each (k, d), of people (b, d) to original units.

    ``rates`` has the invalidation rates after each step, of all people in turn, and then those of all factuals.
    """
    # added up one by one, as below: the classifier judges the very states of the steps
    states = [np.vstack([row, plan]).cumsum(axis=0) for row, plan in zip(rows, plans, strict=True)]
    values = original_values(mlmodel, np.concatenate(states))
    accepted = favourable(mlmodel)(np.concatenate(states))
    successes = Success.from_rates(rates)
    at_factuals = successes[-len(rows) :]
    made, first, at = [], 0, 0
    for row, label, plan, ok, reason, nothing in zip(rows, labels, plans, found, reasons, at_factuals, strict=True):
        steps, state = [], row
        for number, change in enumerate(plan):
            state = state + change
            feature = space.features[int((np.abs(change) @ space.membership).argmax())].name
            before, after = (_python_value(values[feature].iloc[at + number + k]) for k in (0, 1))
            size = float((np.abs(change) / space.units).sum())
            outcome = successes[first + number], bool(accepted[at + number + 1])
            steps.append(PlanStep(feature, before, after, change, state, size, *outcome))
        first, at = first + len(plan), at + len(plan) + 1
        success = steps[-1].success if steps else nothing
        made.append(Plan(label, row, tuple(steps), bool(ok), reason, success, nothing))
    return made


def original_values(mlmodel: MLModel, states: np.ndarray) -> pd.DataFrame:
    """Return the features of encoded ``states`` (n, d) in original units, or ``states`` if the data set cannot invert
    the encoding."""
    data, order = mlmodel.data, mlmodel.feature_input_order
    encoded = pd.DataFrame(states, columns=order)
    if not isinstance(data, DataCatalog):
        return encoded
    for column in data.df.columns:  # columns that the classifier does not use, but the data set's pipeline needs
        if column not in encoded.columns:
            encoded[column] = data.df[column].iloc[0]
    return data.inverse_transform(encoded).reset_index(drop=True)[list(feature_groups(data, order))]


def _python_value(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


def _format(value: float) -> str:
    """Format a number for reading, with three significant digits or as an integer."""
    if float(value).is_integer():
        return f"{value:,.0f}"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
