"""The contract of a CARLA recourse method as a check: for ours, for CARLA's own and for those of users."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from carla.models.api import MLModel
from rose_carla._lib.seeds import global_state, seeded
from rose_carla.datasets import mutable_columns, project_categories
from rose_carla.errors import ContractError, short_repr
from rose_carla.models import encoded_rows, favourable

#: Two results that agree up to that are the same.
_SAME = 1e-6
#: Values that are off by less are taken for rounding.
_ROUNDING = 1e-6
#: Nobody's favourite seed, so that a method which seeds global generators by itself is told.
_SEED = 20_771
#: Noisy versions in the check of a claim, and its confidence for each row.
_SAMPLES, _CONFIDENCE = 2000, 0.9999


@dataclass(frozen=True)
class _Run:
    """One call of a method, and what is needed to judge it."""

    method: Any
    mlmodel: MLModel
    factuals: pd.DataFrame
    rows: np.ndarray
    result: Any

    @property
    def order(self) -> list[str]:
        return list(self.mlmodel.feature_input_order)

    @property
    def ends(self) -> np.ndarray:
        """Counterfactuals (n, d) by position, whatever their labels."""
        if not isinstance(self.result, pd.DataFrame) or len(self.result) != len(self.rows):
            raise _Broken("no frame with one row for each factual")
        missing = [column for column in self.order if column not in self.result.columns]
        if missing:
            raise _Broken(f"columns {', '.join(map(str, missing[:3]))} are missing")
        return self.result[self.order].to_numpy(dtype=float)

    @property
    def found(self) -> np.ndarray:
        """Which rows hold a counterfactual."""
        return ~np.isnan(self.ends).all(axis=1)

    def some(self, wrong: np.ndarray) -> str:
        """Names of rows, for messages."""
        labels = self.factuals.index[np.flatnonzero(wrong)[:3]]
        return f"{int(wrong.sum())} of {len(wrong)} rows, such as {', '.join(map(str, labels))}"


class _Broken(Exception):
    """What is wrong, in words."""


def _shape(run: _Run) -> None:
    if not isinstance(run.result, pd.DataFrame):
        raise _Broken(f"get_counterfactuals returns {type(run.result).__name__}, not a DataFrame")
    if len(run.result) != len(run.factuals):
        raise _Broken(
            f"{len(run.result)} rows for {len(run.factuals)} factuals: return a NaN row where nothing is found"
        )


def _columns(run: _Run) -> None:
    columns = list(getattr(run.result, "columns", []))
    if columns != run.order:
        strange = [column for column in columns if column not in run.order]
        more = f", {', '.join(map(str, strange[:3]))} too many" if strange else ""
        raise _Broken(f"the columns are not those of feature_input_order in that order{more}")


def _finds(run: _Run) -> None:
    if not run.found.any():
        raise _Broken("nothing is found for anybody, so there is little to check: pass people with recourse")


def _nan_only_on_failure(run: _Run) -> None:
    broken = run.found & ~np.isfinite(run.ends).all(axis=1)
    if broken.any():
        raise _Broken(f"some, but not all values are missing or infinite in {run.some(broken)}")
    wrong = run.found.copy()
    wrong[run.found] = ~favourable(run.mlmodel)(run.ends[run.found]) if run.found.any() else False
    if wrong.any():
        raise _Broken(f"what is returned is not classified favourably in {run.some(wrong)}: return NaN there")


def _bounds(run: _Run) -> None:
    low, high = np.minimum(run.rows, 0.0), np.maximum(run.rows, 1.0)
    wrong = ((run.ends < low - _ROUNDING) | (run.ends > high + _ROUNDING)).any(axis=1)
    if wrong.any():
        raise _Broken(f"values are outside [0, 1] in {run.some(wrong)}")


def _immutables(run: _Run) -> None:
    fixed = ~mutable_columns(run.mlmodel.data, run.order)
    wrong = run.found & (run.ends[:, fixed] != run.rows[:, fixed]).any(axis=1)
    if wrong.any():
        raise _Broken(f"immutable features differ from the factual in {run.some(wrong)}")


def _encodings(run: _Run) -> None:
    finite = np.where(np.isfinite(run.ends), run.ends, np.nan)
    off = np.abs(project_categories(run.mlmodel.data, run.order, finite) - finite) > _ROUNDING
    if off.any():
        raise _Broken(f"categorical features are at no valid encoding in {run.some(off.any(axis=1))}")


def _robustness(run: _Run) -> None:
    claim = run.method.claim() if hasattr(run.method, "claim") else None
    changed = run.found & (run.ends != run.rows).any(axis=1)  # nothing is promised of people who need no recourse
    if claim is None or not changed.any():
        return
    rows, labels = run.rows[changed], run.factuals.index[changed]
    plans = getattr(run.method, "plans", {})
    taken = [
        plans.get(label, (end - row)[None]) for label, end, row in zip(labels, run.ends[changed], rows, strict=True)
    ]
    rates = claim.judge(rows, taken, _SAMPLES, np.random.default_rng(2**40 + 7), _CONFIDENCE)
    wrong = changed.copy()
    wrong[changed] = rates.lower > claim.limit
    if wrong.any():
        raise _Broken(f"{claim.words}; on fresh noise up to {rates.rate.max():.3f}, in {run.some(wrong)}")


def _same(first: _Run, second: _Run, what: str) -> None:
    differs = ~(np.isclose(first.ends, second.ends, atol=_SAME) | (np.isnan(first.ends) & np.isnan(second.ends)))
    if differs.any():
        raise _Broken(f"{what} gives another result in {first.some(differs.any(axis=1))}")


#: Checks that need one call only.
_OF_ONE_CALL: dict[str, Callable[[_Run], None]] = {
    "shape": _shape,
    "columns": _columns,
    "finds recourse": _finds,
    "NaN only on failure": _nan_only_on_failure,
    "bounds": _bounds,
    "immutables": _immutables,
    "valid encodings": _encodings,
    "claimed robustness": _robustness,
}
#: All checks, in the order of reports.
CHECKS = (*_OF_ONE_CALL, "input not mutated", "seeds are local", "same seed, same result", "order of columns", "index")


def contract_failures(method: Any, factuals: pd.DataFrame, mlmodel: MLModel | None = None) -> dict[str, str]:
    """What of the contract a method breaks: from the check's name, one of :data:`CHECKS`, to what is wrong.

    Parameters
    ----------
    method
        A CARLA recourse method, ready to use.
    factuals
        Encoded rows, a few of them: the method is called four times. Rows are numbered from 0 for all calls but one.
    mlmodel
        The method's model, if it does not have it as CARLA's base class does.

    Notes
    -----
    A method that runs into a timeout of its own cannot give the same result twice: pass fewer people, or more time. The
    global random generators are seeded alike before each call and put back afterwards, so a method that draws from
    them is only reported under "seeds are local".
    """
    if isinstance(method, type):
        raise ContractError(f"{method.__name__} is a class: pass an instance, made for a model.")
    mlmodel = getattr(method, "_mlmodel", None) if mlmodel is None else mlmodel
    if not isinstance(mlmodel, MLModel):
        raise ContractError(f"{type(method).__name__} does not tell its model: pass it as mlmodel=...")
    encoded_rows(mlmodel, factuals)
    factuals = factuals.reset_index(drop=True)
    failures: dict[str, str] = {}

    def attempt(name: str, check: Callable[[], None]) -> None:
        try:
            check()
        except _Broken as error:
            failures[name] = str(error)
        except Exception as error:  # whatever a method raises is a finding
            failures[name] = f"raises {type(error).__name__}: {error}"

    def called(frame: pd.DataFrame) -> _Run:
        with seeded(_SEED):
            result = method.get_counterfactuals(frame.copy())
        return _Run(method, mlmodel, frame, encoded_rows(mlmodel, frame), result)

    def input_not_mutated() -> None:
        frame = factuals.copy()
        with seeded(_SEED):
            before = global_state()
            result = method.get_counterfactuals(frame)
            runs.append(_Run(method, mlmodel, factuals, encoded_rows(mlmodel, factuals), result))
            drew.append(global_state() != before)
        if not frame.equals(factuals):
            raise _Broken("get_counterfactuals changes the frame of factuals it is given")

    runs: list[_Run] = []
    drew: list[bool] = []
    attempt("input not mutated", input_not_mutated)
    if not runs:
        return {"shape": failures["input not mutated"]}
    first = runs[0]
    if drew and drew[0]:
        failures["seeds are local"] = (
            "it draws from global random generators, or seeds them: take a seed, and a generator of its own"
        )
    for name, check in _OF_ONE_CALL.items():
        attempt(name, lambda check=check: check(first))  # type: ignore[misc]
    attempt("same seed, same result", lambda: _same(first, called(factuals), "a second call"))
    turned = factuals[[*factuals.columns[1:], factuals.columns[0]]]
    attempt("order of columns", lambda: _same(first, called(turned), "another order of columns"))
    attempt("index", lambda: _index(called(factuals.set_axis(_strange_labels(len(factuals)), axis=0)), first))
    return {name: failures[name] for name in CHECKS if name in failures}


def _strange_labels(n: int) -> list[Hashable]:
    return [1000 - 7 * i for i in range(n)]


def _index(run: _Run, first: _Run) -> None:
    if not run.result.index.equals(run.factuals.index):
        raise _Broken("the row labels are not those of the factuals")
    _same(first, run, "other row labels")


def check_recourse_method(
    method: Any, factuals: pd.DataFrame, mlmodel: MLModel | None = None, skip: Collection[str] = ()
) -> None:
    """Check that a recourse method keeps CARLA's contract, and what it claims.

    One row for each factual, in order and under its label; columns of ``feature_input_order``; counterfactuals that
    the classifier accepts, in [0, 1], at valid categories, with immutable features as they were, or rows of NaN; the
    same result for the same seed, whatever the order of columns and the labels; the input left alone; no global
    generator touched; and, if the method has a ``claim``, robustness as claimed, on fresh noise.

    Parameters
    ----------
    method, factuals, mlmodel
        As in :func:`contract_failures`.
    skip
        Names of :data:`CHECKS` that are not asked for.

    Raises
    ------
    ContractError
        With everything that is wrong.

    Examples
    --------
    >>> from rose_carla import baselines, checks, datasets, models
    >>> model = models.train(datasets.load("compas"), "linear")
    >>> checks.check_recourse_method(baselines.Arar(model), models.negative_instances(model).head(5))
    """
    unknown = [name for name in skip if name not in CHECKS] if isinstance(skip, Collection) else [skip]
    if unknown:
        raise ContractError(f"No such checks: {', '.join(map(short_repr, unknown))}. Known: {', '.join(CHECKS)}.")
    failures = {name: text for name, text in contract_failures(method, factuals, mlmodel).items() if name not in skip}
    if failures:
        listed = "\n".join(f"- {name}: {text}" for name, text in failures.items())
        raise ContractError(f"{type(method).__name__} breaks the contract of recourse methods:\n{listed}")
