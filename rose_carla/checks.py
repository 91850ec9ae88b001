"""Checks of the contract of a CARLA recourse method: for ours, CARLA's own and those of users."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from carla.models.api import MLModel
from rose_carla._lib.runtime import global_state, seeded
from rose_carla.datasets import mutable_columns, project_categories
from rose_carla.errors import ContractError, short_repr
from rose_carla.models import encoded_rows, favourable

#: Tolerance for values, and for results that should be equal.
_TOLERANCE = 1e-6
#: An unusual seed, so that a method which seeds the global generators itself is detected.
_SEED = 20_771
#: Noisy versions in the check of a claim, and its confidence for each row.
_SAMPLES, _CONFIDENCE = 2000, 0.9999


class _Failure(Exception):
    """Failed check; the message says what is wrong."""


@dataclass(frozen=True)
class _Run:
    """One call of a method and its result."""

    method: Any
    mlmodel: MLModel
    factuals: pd.DataFrame
    rows: np.ndarray
    result: Any
    #: The factuals after the call.
    passed: pd.DataFrame
    #: Whether the global generators were left alone.
    is_local: bool

    @property
    def order(self) -> list[str]:
        return list(self.mlmodel.feature_input_order)

    @property
    def ends(self) -> np.ndarray:
        """Counterfactuals (n, d) by position, whatever their labels."""
        if not isinstance(self.result, pd.DataFrame) or len(self.result) != len(self.rows):
            raise _Failure("the result is not a frame with one row per factual")
        missing = [column for column in self.order if column not in self.result.columns]
        if missing:
            raise _Failure(f"columns {', '.join(map(str, missing[:3]))} are missing")
        return self.result[self.order].to_numpy(dtype=float)

    @property
    def found(self) -> np.ndarray:
        """Mask (n,) of rows with a counterfactual."""
        return ~np.isnan(self.ends).all(axis=1)

    def fail_where(self, wrong: np.ndarray, message: str, advice: str = "") -> None:
        """Raise an error that names the first rows of a mask (n,), if there are any."""
        if wrong.any():
            labels = ", ".join(map(str, self.factuals.index[np.flatnonzero(wrong)[:3]]))
            raise _Failure(f"{message} in {int(wrong.sum())} of {len(wrong)} rows, such as {labels}{advice}")


def _shape(run: _Run) -> None:
    if not isinstance(run.result, pd.DataFrame):
        raise _Failure(f"get_counterfactuals returns {type(run.result).__name__}, not a DataFrame")
    if len(run.result) != len(run.factuals):
        raise _Failure(
            f"{len(run.result)} rows for {len(run.factuals)} factuals: return a NaN row where nothing is found"
        )


def _columns(run: _Run) -> None:
    columns = list(getattr(run.result, "columns", []))
    if columns != run.order:
        further = [str(column) for column in columns if column not in run.order]
        unexpected = f"; unexpected: {', '.join(further[:3])}" if further else ""
        raise _Failure(f"the columns are not those of feature_input_order in that order{unexpected}")


def _finds_recourse(run: _Run) -> None:
    if not run.found.any():
        raise _Failure("no counterfactual is found, so there is little to check: pass people with recourse")


def _nan_only_on_failure(run: _Run) -> None:
    found = run.found
    run.fail_where(found & ~np.isfinite(run.ends).all(axis=1), "some, but not all values are missing or infinite")
    if found.any():
        found[found] = ~favourable(run.mlmodel)(run.ends[found])
    run.fail_where(found, "the classifier does not accept the counterfactual", ": return NaN there")


def _bounds(run: _Run) -> None:
    low, high = np.minimum(run.rows, 0.0), np.maximum(run.rows, 1.0)
    outside = (run.ends < low - _TOLERANCE) | (run.ends > high + _TOLERANCE)
    run.fail_where(outside.any(axis=1), "values are outside [0, 1]")


def _immutables(run: _Run) -> None:
    fixed = ~mutable_columns(run.mlmodel.data, run.order)
    changed = (run.ends[:, fixed] != run.rows[:, fixed]).any(axis=1)
    run.fail_where(run.found & changed, "immutable features differ from the factual")


def _valid_encodings(run: _Run) -> None:
    finite = np.where(np.isfinite(run.ends), run.ends, np.nan)
    off = np.abs(project_categories(run.mlmodel.data, run.order, finite) - finite) > _TOLERANCE
    run.fail_where(off.any(axis=1), "categorical features have no valid encoding")


def _claimed_robustness(run: _Run) -> None:
    claim = run.method.claim() if hasattr(run.method, "claim") else None
    changed = run.found & (run.ends != run.rows).any(axis=1)  # claims do not cover people who need no recourse
    if claim is None or not changed.any():
        return
    starts, ends, labels = run.rows[changed], run.ends[changed], run.factuals.index[changed]
    known = getattr(run.method, "plans", {})
    plans = [known.get(label, (end - row)[None]) for label, end, row in zip(labels, ends, starts, strict=True)]
    rates = claim.evaluate(starts, plans, _SAMPLES, np.random.default_rng(2**40 + 7), _CONFIDENCE)
    changed[changed] = rates.lower > claim.limit
    run.fail_where(changed, f"{claim.words}; on fresh noise up to {rates.rate.max():.3f},")


def _input_not_mutated(run: _Run) -> None:
    if not run.passed.equals(run.factuals):
        raise _Failure("get_counterfactuals changes its argument")


def _seeds_are_local(run: _Run) -> None:
    if not run.is_local:
        raise _Failure("global random generators are used or seeded: take a seed, and create a generator from it")


def _same_result(first: _Run, second: _Run, change: str) -> None:
    same = np.isclose(first.ends, second.ends, atol=_TOLERANCE, equal_nan=True)
    first.fail_where(~same.all(axis=1), f"{change} gives another result")


def _index(first: _Run, relabelled: _Run) -> None:
    if not relabelled.result.index.equals(relabelled.factuals.index):
        raise _Failure("the row labels are not those of the factuals")
    _same_result(first, relabelled, "another set of row labels")


#: Checks that need one call only.
_OF_ONE_CALL: dict[str, Callable[[_Run], None]] = {
    "shape": _shape,
    "columns": _columns,
    "finds recourse": _finds_recourse,
    "NaN only on failure": _nan_only_on_failure,
    "bounds": _bounds,
    "immutables": _immutables,
    "valid encodings": _valid_encodings,
    "claimed robustness": _claimed_robustness,
    "input not mutated": _input_not_mutated,
    "seeds are local": _seeds_are_local,
}
#: All checks, in the order of reports.
CHECKS = (*_OF_ONE_CALL, "same seed, same result", "order of columns", "index")


def contract_failures(method: Any, factuals: pd.DataFrame, mlmodel: MLModel | None = None) -> dict[str, str]:
    """Return the failed checks of a method: descriptions by name, one of :data:`CHECKS`.

    Parameters
    ----------
    method
        An instance of a CARLA recourse method.
    factuals
        A few encoded rows: the method is called four times. Rows are numbered from 0 for all calls but one.
    mlmodel
        The method's model, if the method does not store it as CARLA's base class does.

    Notes
    -----
    A method that reaches a timeout of its own cannot give the same result twice: pass fewer people, or more time. The
    global random generators are seeded before each call and restored afterwards, so a method that draws from them is
    only reported under "seeds are local".
    """
    if isinstance(method, type):
        raise ContractError(f"{method.__name__} is a class: pass an instance.")
    mlmodel = getattr(method, "_mlmodel", None) if mlmodel is None else mlmodel
    if not isinstance(mlmodel, MLModel):
        raise ContractError(f"The model of {type(method).__name__} is unknown: pass it as mlmodel=...")
    encoded_rows(mlmodel, factuals)
    factuals = factuals.reset_index(drop=True)

    def call(frame: pd.DataFrame) -> _Run:
        passed = frame.copy()
        with seeded(_SEED):
            before = global_state()
            result = method.get_counterfactuals(passed)
            is_local = global_state() == before
        return _Run(method, mlmodel, frame, encoded_rows(mlmodel, frame), result, passed, is_local)

    try:
        first = call(factuals)
    except Exception as error:
        return {"shape": _describe(error)}
    reordered = factuals[[*factuals.columns[1:], factuals.columns[0]]]
    relabelled = factuals.set_axis([1000 - 7 * i for i in range(len(factuals))], axis=0)
    checks: dict[str, Callable[[], None]] = {
        **{name: partial(check, first) for name, check in _OF_ONE_CALL.items()},
        "same seed, same result": lambda: _same_result(first, call(factuals), "a second call"),
        "order of columns": lambda: _same_result(first, call(reordered), "another order of columns"),
        "index": lambda: _index(first, call(relabelled)),
    }
    failures = {}
    for name, check in checks.items():
        try:
            check()
        except Exception as error:  # methods of users may raise anything
            failures[name] = _describe(error)
    return failures


def _describe(error: Exception) -> str:
    return str(error) if isinstance(error, _Failure) else f"raises {type(error).__name__}: {error}"


def check_recourse_method(
    method: Any, factuals: pd.DataFrame, mlmodel: MLModel | None = None, skip: Collection[str] = ()
) -> None:
    """Check that a recourse method fulfils CARLA's contract and its own claims.

    The contract: one row per factual, in order and with its label; columns of ``feature_input_order``; counterfactuals
    that the classifier accepts, in [0, 1], at valid categories, with immutable features unchanged, or rows of NaN; the
    same result for the same seed, whatever the order of columns and the labels; the input unchanged; no use of global
    generators; and, if the method has a ``claim``, robustness as claimed, on fresh noise.

    Parameters
    ----------
    method, factuals, mlmodel
        As in :func:`contract_failures`.
    skip
        Names of :data:`CHECKS` whose failures are ignored.

    Raises
    ------
    ContractError
        With all failed checks.

    Examples
    --------
    >>> from rose_carla import baselines, checks, datasets, models
    >>> model = models.train(datasets.load("compas"), "linear")
    >>> checks.check_recourse_method(baselines.Arar(model), models.negative_instances(model).head(5))
    """
    unknown = [name for name in skip if name not in CHECKS] if isinstance(skip, Collection) else [skip]
    if unknown:
        raise ContractError(f"Unknown checks: {', '.join(map(short_repr, unknown))}. Known: {', '.join(CHECKS)}.")
    failures = {name: text for name, text in contract_failures(method, factuals, mlmodel).items() if name not in skip}
    if failures:
        lines = "\n".join(f"- {name}: {text}" for name, text in failures.items())
        raise ContractError(f"{type(method).__name__} violates the contract of recourse methods:\n{lines}")
