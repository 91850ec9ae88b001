"""Whether an MDP keeps the promises that PPO relies on: a check for ours and for those of users."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from rose_carla.errors import PlanError
from rose_carla.mdp.actions import Feature
from rose_carla.mdp.environment import RecourseMDP, Step, VectorMDP

#: Kinds of numbers in the fields of a step.
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
#: Encodings that agree up to that are the same: sums of units carry rounding errors.
_CLOSE = 1e-9


def check_mdp(mdp: VectorMDP, n_envs: int = 8, n_steps: int = 50, seed: int = 0) -> None:
    """Walk at random through ``mdp``, twice, and look whether all that it says fits together.

    Looked at are shapes, types and ranges of everything handed out; that there is always something to do; that episodes
    end in one way only; that the same seed and actions give the same bits; and that later steps leave alone what
    earlier ones handed out. In a :class:`RecourseMDP` states have to stay within [0, 1] and at valid encodings, what no
    action is about has to stay as it is, and episodes have to end in time.

    Parameters
    ----------
    mdp
        Anything with the attributes and methods of :class:`VectorMDP`. It is started anew.
    n_envs, n_steps
        Size of the walk. What is wrong in rare states only takes a long one to be found.
    seed
        Of the MDP's randomness and of the actions.

    Raises
    ------
    PlanError
        At the first broken promise; the message says what is wrong and what to do.

    Examples
    --------
    >>> from rose_carla.mdp import ActionSpace, Feature, Precise
    >>> actions = ActionSpace([Feature("income", (0,))], width=1, action_unit=0.25)
    >>> check_mdp(RecourseMDP(actions, lambda states: states[:, 0], np.array([[0.0], [0.25]]), Precise()))
    """
    for name, number in (("n_envs", n_envs), ("n_steps", n_steps)):
        if not _whole(number):
            raise PlanError(f"{name} has to be a whole number of at least 1, got {number!r}.")
    _check_attributes(mdp)
    first = _Record()
    actions = _walk(mdp, n_envs, n_steps, seed, first, None)
    first.check_untouched()
    _walk(mdp, n_envs, n_steps, seed, _Record(first.copies), actions)


def _walk(
    mdp: VectorMDP,
    n_envs: int,
    n_steps: int,
    seed: int,
    record: _Record,
    replay: Sequence[np.ndarray] | None,
) -> list[np.ndarray]:
    """Start and step, checking as we go; random possible actions, or those of ``replay``. Returns the actions."""
    chooser = np.random.default_rng([seed, 1])
    observations = mdp.reset(n_envs, np.random.default_rng(seed))
    _check_array("reset()", observations, (n_envs, mdp.width), "f")
    record.keep("the observations of reset()", observations)
    watch = _RecourseWatch(mdp, n_envs) if isinstance(mdp, RecourseMDP) else None
    taken = []
    for number in range(n_steps):
        mask = mdp.mask()
        _check_mask(mask, n_envs, mdp.n_actions)
        record.keep(f"the mask before step {number}", mask)
        chosen = np.where(mask, chooser.random(mask.shape), -1.0).argmax(axis=1) if replay is None else replay[number]
        given = chosen.copy()
        if watch is not None:
            watch.before()
        step = mdp.step(given)
        if not np.array_equal(given, chosen):
            raise PlanError("step() changes the actions it is given: work on a copy of them.")
        _check_step(step, n_envs, mdp.width)
        if watch is not None:
            watch.after(chosen, step)
        for name in _KINDS:
            record.keep(f"the {name} of step {number}", getattr(step, name))
        taken.append(chosen)
    return taken


class _Record:
    """Arrays as they were handed out, with copies made at once.

    Parameters
    ----------
    expected
        Copies of an earlier walk that this one has to repeat.
    """

    def __init__(self, expected: Sequence[np.ndarray] | None = None) -> None:
        self.expected = expected
        self.names: list[str] = []
        self.arrays: list[np.ndarray] = []
        self.copies: list[np.ndarray] = []

    def keep(self, name: str, array: np.ndarray) -> None:
        """Keep an array, which has to be the same as the expected one."""
        # Bytes, not values: the promise is about every bit.
        if self.expected is not None and array.tobytes() != self.expected[len(self.names)].tobytes():
            raise PlanError(
                f"With the same seed and the same actions {name} differ in a second run: take all randomness from the "
                "generator given to reset(), and let reset() put everything back to its start."
            )
        self.names.append(name)
        self.arrays.append(array)
        self.copies.append(array.copy())

    def check_untouched(self) -> None:
        """Nothing that was handed out has changed since."""
        for name, array, copy in zip(self.names, self.arrays, self.copies, strict=True):
            if array.tobytes() != copy.tobytes():
                raise PlanError(f"A later step changed {name}: return a copy, not the array the MDP goes on with.")


class _RecourseWatch:
    """What holds in a :class:`RecourseMDP` beyond the protocol."""

    def __init__(self, mdp: RecourseMDP, n_envs: int) -> None:
        self.mdp = mdp
        self.lengths = np.zeros(n_envs, dtype=int)
        self.fixed = mdp.actions.membership.sum(axis=1) == 0

    def before(self) -> None:
        """Remember where a step starts."""
        self.states = self.mdp.states

    def after(self, actions: np.ndarray, step: Step) -> None:
        """Check where the step led."""
        ended = step.terminated | step.truncated
        # Where an episode ended the MDP is at the next start already, so the action space has to say where it led.
        ends = np.where(ended[:, None], self.mdp.actions.apply(self.states, actions), self.mdp.states)
        left = _inside(self.states) & ~_inside(ends)
        if left.any():
            row, column = np.argwhere(left)[0]
            raise PlanError(
                f"Action {actions[row]} leads from {self.states[row, column]:g} to {ends[row, column]:g} in column "
                f"{column}, outside [0, 1]: mask it there."
            )
        moved = (ends != self.states) & self.fixed
        if moved.any():
            row, column = np.argwhere(moved)[0]
            raise PlanError(
                f"Action {actions[row]} changes column {column}, which belongs to no feature of the action space: "
                "leave it as it is, or add its feature to the actions."
            )
        for feature in self.mdp.actions.features:
            broken = _valid(feature, self.states) & ~_valid(feature, ends)
            if broken.any():
                row = np.flatnonzero(broken)[0]
                raise PlanError(
                    f"Action {actions[row]} sets the categorical feature {feature.name!r} to "
                    f"{ends[row, list(feature.columns)].tolist()}, which is none of its encodings: set all its columns "
                    "to one of them."
                )
        self.lengths += 1
        if (~ended & (self.lengths >= self.mdp.max_actions)).any():
            raise PlanError(
                f"An episode goes on after max_actions={self.mdp.max_actions} actions: truncate it when that many are "
                "taken."
            )
        self.lengths[ended] = 0


def _check_attributes(mdp: VectorMDP) -> None:
    for name in ("width", "n_actions"):
        number = getattr(mdp, name, None)
        if not _whole(number):
            raise PlanError(f"The attribute {name} has to be a whole number of at least 1, got {number!r}: set it.")
    for name in ("reset", "mask", "step"):
        if not callable(getattr(mdp, name, None)):
            raise PlanError(f"The method {name}() is missing: write it as rose_carla.mdp.VectorMDP describes it.")


def _check_mask(mask: np.ndarray, n_envs: int, n_actions: int) -> None:
    _check_array("mask()", mask, (n_envs, n_actions), "b")
    if not mask.any(axis=1).all():
        raise PlanError(
            f"In environment {np.flatnonzero(~mask.any(axis=1))[0]} no action is possible: end the episode in step() "
            "(terminated) when nothing can be done any more, and start no episode in such a state."
        )


def _check_step(step: Step, n_envs: int, width: int) -> None:
    if not isinstance(step, Step):
        raise PlanError(f"step() returned {type(step).__name__}: return a rose_carla.mdp.Step.")
    for name, kind in _KINDS.items():
        shape = (n_envs, width) if name in ("observations", "finals") else (n_envs,)
        _check_array(f"{name} of step()", getattr(step, name), shape, kind)
    if (step.sizes < 0).any():
        raise PlanError(f"sizes of step() are as low as {step.sizes.min():g}: the size of an action is 0 or more.")
    if not ((step.discounts > 0) & (step.discounts <= 1)).all():
        odd = step.discounts[(step.discounts <= 0) | (step.discounts > 1)][0]
        raise PlanError(
            f"discounts of step() hold {odd:g}, not in (0, 1]: say with terminated, not with a discount of 0, that "
            "nothing follows."
        )
    if (step.reached & ~step.terminated).any():
        raise PlanError("A step has reached the goal but is not terminated: set terminated wherever reached is set.")
    if (step.terminated & step.truncated).any():
        raise PlanError("A step is both terminated and truncated: set truncated only where terminated is not set.")
    goes_on = ~(step.terminated | step.truncated)
    if not np.array_equal(step.observations[goes_on], step.finals[goes_on]):
        raise PlanError(
            "observations differ from finals where an episode goes on: start anew only environments that ended, and "
            "report their state before that in finals."
        )


def _check_array(name: str, array: np.ndarray, shape: tuple[int, ...], kind: str) -> None:
    if not isinstance(array, np.ndarray):
        raise PlanError(f"{name} is of type {type(array).__name__}: return a numpy array of shape {shape}.")
    if array.shape != shape:
        raise PlanError(f"{name} has the shape {array.shape}: return shape {shape}, one row for each environment.")
    if array.dtype.kind != kind:
        raise PlanError(f"{name} holds {array.dtype} values: convert them to {_KIND_NAMES[kind]} ones.")
    if kind == "f" and not np.isfinite(array).all():
        raise PlanError(f"{name} holds {array[~np.isfinite(array)][0]}: only finite numbers can be learned from.")


def _whole(number: object) -> bool:
    return isinstance(number, (int, np.integer)) and not isinstance(number, bool) and int(number) >= 1


def _inside(states: np.ndarray) -> np.ndarray:
    return (states >= 0) & (states <= 1)


def _valid(feature: Feature, states: np.ndarray) -> np.ndarray:
    """Whether each state has one of the feature's encodings; always so for a continuous one."""
    if feature.encodings is None:
        return np.ones(len(states), dtype=bool)
    distances = np.abs(states[:, None, list(feature.columns)] - feature.encodings).max(axis=2)
    return (distances <= _CLOSE).any(axis=1)
