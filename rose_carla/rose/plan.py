"""The plan as a person reads it: what to change, from what to what, and how likely it is to work after each step."""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from carla.data.catalog import DataCatalog
from carla.models.api import MLModel
from rose_carla.mdp import ActionSpace

#: Columns of a plan as a table.
COLUMNS = (
    "person", "status", "step", "feature", "from", "to", "size", "success", "success_lower", "success_upper", "reason",
)  # fmt: skip
#: Values of :attr:`Plan.status`.
PLAN, ACCEPTED, NO_PLAN = "plan", "accepted", "no plan"
#: Decimal digits of a success.
_DIGITS = 4


@dataclass(frozen=True)
class Success:
    """Probability that the classifier says yes, with its interval.

    Parameters
    ----------
    probability, lower, upper
        Share of noisy implementations that succeed, and the ends of its Wilson interval.
    """

    probability: float
    lower: float
    upper: float

    def __str__(self) -> str:
        return f"{self.probability:.0%} ({self.lower:.0%} to {self.upper:.0%})"

    def to_dict(self) -> dict[str, float]:
        """Return the values rounded to four digits: a few hundred samples do not determine more."""
        return {name: round(value, _DIGITS) for name, value in dataclasses.asdict(self).items()}


@dataclass(frozen=True, eq=False)  # arrays have no one answer to whether they are equal
class PlanStep:
    """One action of a plan.

    Parameters
    ----------
    feature
        What to change.
    before, after
        Its values in original units.
    change
        (d,) the action in the encoded space.
    state
        (d,) where it leads if implemented precisely.
    size
        Its size in units of action.
    success
        Probability of the favourable outcome for somebody who stops after this step.
    """

    feature: str
    before: Any
    after: Any
    change: np.ndarray
    state: np.ndarray
    size: float
    success: Success

    def __str__(self) -> str:
        if isinstance(self.before, (int, float, np.number)) and isinstance(self.after, (int, float, np.number)):
            verb = "increase" if self.after > self.before else "decrease"
            return f"{verb} {self.feature} from {_plain(float(self.before))} to {_plain(float(self.after))}"
        return f"change {self.feature} from {self.before} to {self.after}"


@dataclass(frozen=True, eq=False)
class Plan:
    """Recourse for one person.

    Parameters
    ----------
    label
        The person's row label.
    factual
        (d,) where the person is, encoded.
    steps
        The actions in order; none for somebody who is accepted already, or for whom nothing was found.
    found
        Whether the plan leads to the favourable outcome robustly enough.
    reason
        Why there is no plan, or none is needed; empty if there is one.
    success
        Probability of success at the end; at the factual if there are no steps.

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

    @property
    def status(self) -> str:
        """``"plan"``, ``"accepted"`` (no change needed) or ``"no plan"``."""
        if not self.found:
            return NO_PLAN
        return PLAN if self.steps else ACCEPTED

    @property
    def actions(self) -> np.ndarray:
        """(k, d) the encoded actions in order."""
        return np.array([step.change for step in self.steps]).reshape(-1, len(self.factual))

    @property
    def states(self) -> np.ndarray:
        """(k + 1, d) the factual and the state after each step."""
        return np.array([self.factual, *(step.state for step in self.steps)])

    @property
    def counterfactual(self) -> np.ndarray:
        """(d,) where the plan leads; NaN if none was found."""
        return self.states[-1] if self.found else np.full_like(self.factual, np.nan)

    @property
    def cost(self) -> float:
        """L1 length of the plan in the encoded space."""
        return float(np.abs(self.actions).sum())

    def __str__(self) -> str:
        return "\n".join(self.lines())

    def lines(self) -> list[str]:
        """The plan in words, a line for the person and one for each step."""
        first = f"Person {self.label}: {self.reason}" if self.reason else f"Plan for person {self.label}"
        steps = enumerate(self.steps, start=1)
        return [first, *(f"  {number}. {step}: success {step.success}" for number, step in steps)]

    def to_rows(self) -> Iterator[dict[str, Any]]:
        """Yield the plan as rows with the keys :data:`COLUMNS`, one for each step, in original units.

        A person without steps has one row, with None in the columns of a step.
        """
        person = {"person": self.label, "status": self.status, "reason": self.reason}
        if not self.steps:
            yield {**dict.fromkeys(COLUMNS), **person, **_success_columns(self.success)}
        for number, step in enumerate(self.steps, start=1):
            change = {"feature": step.feature, "from": tidy(step.before), "to": tidy(step.after)}
            row = {**person, "step": number, **change, "size": tidy(step.size), **_success_columns(step.success)}
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
            "steps": [
                {
                    "feature": step.feature,
                    "from": tidy(step.before),
                    "to": tidy(step.after),
                    "size": tidy(step.size),
                    "success": step.success.to_dict(),
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


def _success_columns(success: Success) -> dict[str, float]:
    values = success.to_dict()
    return {
        "success": values["probability"],
        "success_lower": values["lower"],
        "success_upper": values["upper"],
    }


def original_values(mlmodel: MLModel, states: np.ndarray) -> pd.DataFrame:
    """Encoded ``states`` (n, d) in original units; as they are where the data set cannot tell."""
    data, order = mlmodel.data, mlmodel.feature_input_order
    encoded = pd.DataFrame(states, columns=order)
    if not isinstance(data, DataCatalog):
        return encoded
    for column in data.df.columns:  # what the classifier does not take, but the data set's pipeline asks for
        if column not in encoded.columns:
            encoded[column] = data.df[column].iloc[0]
    raw = data.inverse_transform(encoded)
    return raw.reset_index(drop=True)


def steps_of(
    space: ActionSpace, factual: np.ndarray, actions: np.ndarray, raw: pd.DataFrame, successes: Sequence[Success]
) -> tuple[PlanStep, ...]:
    """The steps of one plan from its actions (k, d), the original values of its k + 1 states and k successes."""
    steps, state = [], factual
    for number, (change, success) in enumerate(zip(actions, successes, strict=True)):
        state = state + change
        feature = space.features[int((np.abs(change) @ space.membership).argmax())].name
        before, after = (_value(raw[feature].iloc[row]) for row in (number, number + 1))
        size = float(np.abs(change).sum() / space.action_unit)
        steps.append(PlanStep(feature, before, after, change, state, size, success))
    return tuple(steps)


def _value(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


def _plain(value: float) -> str:
    """A number as people write it: no more digits than matter."""
    if float(value).is_integer():
        return f"{value:,.0f}"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
