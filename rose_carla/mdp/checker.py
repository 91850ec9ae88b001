"""Environment checker: verify that an MDP satisfies the interface that PPO relies on."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from rose_carla.errors import PlanError
from rose_carla.mdp.actions import Feature
from rose_carla.mdp.environment import RecourseMDP, Step, VectorMDP

#: Kind of the dtype of each field of a step.
_KINDS = {
    "observations": "f",
    "rewards": "f",
    "sizes": "f",
    "discounts": "f",
    "terminated": "b",
    "truncated": "b",
    "reached": "b",
    "finals": "f",
}
_KIND_NAMES = {"f": "floating point", "b": "bool"}
#: Tolerance for rounding errors in encodings, which are sums of units.
_CLOSE = 1e-9


def check_mdp(mdp: VectorMDP, n_envs: int = 8, n_steps: int = 50, seed: int = 0) -> None:
    """Take random actions in ``mdp``, twice, and check everything it returns.

    Checked are shapes, dtypes and ranges of all arrays; that an action is always possible; that terminated, truncated
    and reached are consistent; that the same seed and actions give the same bits; and that later steps do not modify
    arrays returned earlier. For a :class:`RecourseMDP` states must also stay in bounds and at valid encodings, columns
    outside the action space must not change, and episodes must end after ``max_actions``.

    Parameters
    ----------
    mdp
        Object with the attributes and methods of :class:`VectorMDP`; it is reset.
    n_envs, n_steps
        Number of environments and steps. Errors in rare states need many steps to be found.
    seed
        Seed of the MDP and of the actions.

    Raises
    ------
    PlanError
        At the first violation; the message states what is wrong and how to fix it.

    Examples
    --------
    >>> from rose_carla.mdp import ActionSpace, Feature, Precise
    >>> actions = ActionSpace([Feature("income", (0,))], width=1, action_unit=0.25)
    >>> check_mdp(RecourseMDP(actions, lambda states: states[:, 0], np.array([[0.0], [0.25]]), Precise()))
    """
    for name, number in (("n_envs", n_envs), ("n_steps", n_steps)):
        if not _is_positive_integer(number):
            raise PlanError(f"{name} must be an integer of at least 1, got {number!r}.")
    _check_attributes(mdp)
    first = _Record()
    actions = _walk(mdp, n_envs, n_steps, seed, first, None)
    first.check_unmodified()
    _walk(mdp, n_envs, n_steps, seed, _Record(first.copies), actions)


def _walk(
    mdp: VectorMDP,
    n_envs: int,
    n_steps: int,
    seed: int,
    record: _Record,
    replay: Sequence[np.ndarray] | None,
) -> list[np.ndarray]:
    """Take random possible actions, or those of ``replay``, check each step, and return the actions."""
    chooser = np.random.default_rng([seed, 1])
    observations = mdp.reset(n_envs, np.random.default_rng(seed))
    _check_array("reset()", observations, (n_envs, mdp.width), "f")
    record.keep("the observations of reset()", observations)
    recourse = _RecourseChecker(mdp, n_envs) if isinstance(mdp, RecourseMDP) else None
    taken = []
    for number in range(n_steps):
        mask = mdp.mask()
        _check_mask(mask, n_envs, mdp.n_actions)
        record.keep(f"the mask before step {number}", mask)
        chosen = np.where(mask, chooser.random(mask.shape), -1.0).argmax(axis=1) if replay is None else replay[number]
        given = chosen.copy()
        if recourse is not None:
            recourse.before()
        step = mdp.step(given)
        if not np.array_equal(given, chosen):
            raise PlanError("step() modifies the actions passed to it: work on a copy.")
        _check_step(step, n_envs, mdp.width)
        if recourse is not None:
            recourse.after(chosen, step)
        for name in _KINDS:
            record.keep(f"the {name} of step {number}", getattr(step, name))
        taken.append(chosen)
    return taken


class _Record:
    """Arrays returned by the MDP, and copies of them at that time.

    Parameters
    ----------
    expected
        Copies from the first run that the second must reproduce.
    """

    def __init__(self, expected: Sequence[np.ndarray] | None = None) -> None:
        self.expected = expected
        self.names: list[str] = []
        self.arrays: list[np.ndarray] = []
        self.copies: list[np.ndarray] = []

    def keep(self, name: str, array: np.ndarray) -> None:
        """Store an array and compare it with the expected one, bit for bit."""
        if self.expected is not None and array.tobytes() != self.expected[len(self.names)].tobytes():
            raise PlanError(
                f"With the same seed and the same actions {name} differ in a second run: take all randomness from the "
                "generator passed to reset(), and restore the initial state in reset()."
            )
        self.names.append(name)
        self.arrays.append(array)
        self.copies.append(array.copy())

    def check_unmodified(self) -> None:
        """Raise an error if an array changed after it was returned."""
        for name, array, copy in zip(self.names, self.arrays, self.copies, strict=True):
            if array.tobytes() != copy.tobytes():
                raise PlanError(f"A later step modified {name}: return a copy, not the MDP's internal array.")


class _RecourseChecker:
    """Checks of a :class:`RecourseMDP` beyond the interface."""

    def __init__(self, mdp: RecourseMDP, n_envs: int) -> None:
        self.mdp = mdp
        self.lengths = np.zeros(n_envs, dtype=int)
        self.fixed = mdp.actions.membership.sum(axis=1) == 0

    def before(self) -> None:
        """Store the states before a step."""
        self.states = self.mdp.states

    def _in_bounds(self, states: np.ndarray) -> np.ndarray:
        space = self.mdp.actions
        return (states >= space.lower) & (states <= space.upper)

    def after(self, actions: np.ndarray, step: Step) -> None:
        """Check the states after the step."""
        ended = step.terminated | step.truncated
        # environments that ended have been reset already, so the action space computes where the action led
        ends = np.where(ended[:, None], self.mdp.actions.apply(self.states, actions), self.mdp.states)
        left = self._in_bounds(self.states) & ~self._in_bounds(ends)
        if left.any():
            row, column = np.argwhere(left)[0]
            raise PlanError(
                f"Action {actions[row]} leads from {self.states[row, column]:g} to {ends[row, column]:g} in column "
                f"{column}, beyond a bound: stop there or mask the action."
            )
        moved = (ends != self.states) & self.fixed
        if moved.any():
            row, column = np.argwhere(moved)[0]
            raise PlanError(
                f"Action {actions[row]} changes column {column}, which is not in the action space: leave it unchanged, "
                "or add its feature to the actions."
            )
        for feature in self.mdp.actions.features:
            broken = _is_valid(feature, self.states) & ~_is_valid(feature, ends)
            if broken.any():
                row = np.flatnonzero(broken)[0]
                raise PlanError(
                    f"Action {actions[row]} sets the categorical feature {feature.name!r} to "
                    f"{ends[row, list(feature.columns)].tolist()}, which is not a valid encoding: set all its columns "
                    "to one."
                )
        self.lengths += 1
        if (~ended & (self.lengths >= self.mdp.max_actions)).any():
            raise PlanError(
                f"An episode continues after max_actions={self.mdp.max_actions} actions: truncate it there."
            )
        self.lengths[ended] = 0


def _check_attributes(mdp: VectorMDP) -> None:
    for name in ("width", "n_actions"):
        number = getattr(mdp, name, None)
        if not _is_positive_integer(number):
            raise PlanError(f"The attribute {name} must be an integer of at least 1, got {number!r}.")
    for name in ("reset", "mask", "step"):
        if not callable(getattr(mdp, name, None)):
            raise PlanError(f"The method {name}() is missing: implement it as in rose_carla.mdp.VectorMDP.")


def _check_mask(mask: np.ndarray, n_envs: int, n_actions: int) -> None:
    _check_array("mask()", mask, (n_envs, n_actions), "b")
    if not mask.any(axis=1).all():
        raise PlanError(
            f"No action is possible in environment {np.flatnonzero(~mask.any(axis=1))[0]}: terminate the episode in "
            "step() when no action is possible any more, and do not start episodes in such a state."
        )


def _check_step(step: Step, n_envs: int, width: int) -> None:
    if not isinstance(step, Step):
        raise PlanError(f"step() returned {type(step).__name__}: return a rose_carla.mdp.Step.")
    for name, kind in _KINDS.items():
        shape = (n_envs, width) if name in ("observations", "finals") else (n_envs,)
        _check_array(f"{name} of step()", getattr(step, name), shape, kind)
    if (step.sizes < 0).any():
        raise PlanError(f"sizes of step() are as low as {step.sizes.min():g}: sizes must be at least 0.")
    if not ((step.discounts > 0) & (step.discounts <= 1)).all():
        odd = step.discounts[(step.discounts <= 0) | (step.discounts > 1)][0]
        raise PlanError(
            f"discounts of step() contain {odd:g}, not in (0, 1]: set terminated, not a discount of 0, at the end."
        )
    if (step.reached & ~step.terminated).any():
        raise PlanError("reached is set without terminated: set terminated wherever reached is set.")
    if (step.terminated & step.truncated).any():
        raise PlanError("terminated and truncated are both set: set truncated only where terminated is not set.")
    running = ~(step.terminated | step.truncated)
    if not np.array_equal(step.observations[running], step.finals[running]):
        raise PlanError(
            "observations differ from finals where an episode continues: reset only environments that ended, and "
            "return their last observation in finals."
        )


def _check_array(name: str, array: np.ndarray, shape: tuple[int, ...], kind: str) -> None:
    if not isinstance(array, np.ndarray):
        raise PlanError(f"{name} is of type {type(array).__name__}: return a numpy array of shape {shape}.")
    if array.shape != shape:
        raise PlanError(f"{name} has shape {array.shape}: return shape {shape}, one row per environment.")
    if array.dtype.kind != kind:
        raise PlanError(f"{name} has dtype {array.dtype}: convert it to {_KIND_NAMES[kind]}.")
    if kind == "f" and not np.isfinite(array).all():
        raise PlanError(f"{name} contains {array[~np.isfinite(array)][0]}: all values must be finite.")


def _is_positive_integer(number: object) -> bool:
    return isinstance(number, (int, np.integer)) and not isinstance(number, bool) and int(number) >= 1


def _is_valid(feature: Feature, states: np.ndarray) -> np.ndarray:
    """Return whether each state has a valid encoding of the feature; always True for a continuous one."""
    if feature.encodings is None:
        return np.ones(len(states), dtype=bool)
    distances = np.abs(states[:, None, list(feature.columns)] - feature.encodings).max(axis=2)
    return (distances <= _CLOSE).any(axis=1)
