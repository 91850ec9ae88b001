"""The environment checker accepts our MDPs and detects each defect."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from mdp_examples import GridWorld
from rose_carla.errors import PlanError
from rose_carla.mdp import Accumulated, ActionSpace, Feature, OneOff, Precise, RecourseMDP, check_mdp
from rose_carla.noise import GaussianNoise

FEATURES = [Feature("income", (0,)), Feature("job", (1, 2, 3), np.eye(3)), Feature("age", (4,), direction=1)]


def favourable(rows):
    return rows[:, 0] > 0.7


def recourse(kind=RecourseMDP, actions=ActionSpace, robustness=None, **options):
    """Small MDP whose last column is not in the action space."""
    rng = np.random.default_rng(0)
    starts = np.hstack([rng.random((30, 1)) / 2, np.eye(3)[rng.integers(0, 3, 30)], rng.random((30, 2)) / 2])
    made = actions(FEATURES, width=6, action_unit=0.1, multiples=(1, 2))
    return kind(made, lambda states: states[:, 0] ** 0.5 - 0.3, starts, robustness or Precise(), **options)


@pytest.mark.parametrize(
    "mdp",
    [
        recourse(),
        recourse(robustness=OneOff(favourable, GaussianNoise(), 0.01, 20)),
        recourse(robustness=Accumulated(favourable, GaussianNoise(), 0.001, 0.1, crowd_size=5)),
        recourse(max_actions=1),
        GridWorld(),
        GridWorld(walls=[(1, 1)], max_steps=3),
    ],
)
def test_valid_mdp_passes(mdp):
    check_mdp(mdp)
    check_mdp(mdp, n_envs=1, n_steps=200, seed=1)


def test_global_random_state_is_unchanged():
    before = np.random.get_state()[1].tolist()  # noqa: NPY002
    check_mdp(recourse())
    assert np.random.get_state()[1].tolist() == before  # noqa: NPY002


class Broken(GridWorld):
    """Grid world with modified return values."""

    def __init__(self, reset=None, mask=None, step=None, **attributes):
        super().__init__()
        self.defects = {"reset": reset, "mask": mask, "step": step}
        vars(self).update(attributes)

    def _spoil(self, name, value):
        return value if self.defects[name] is None else self.defects[name](value)

    def reset(self, n_envs, rng):
        return self._spoil("reset", super().reset(n_envs, rng))

    def mask(self):
        return self._spoil("mask", super().mask())

    def step(self, actions):
        return self._spoil("step", super().step(actions))


def field(name, change):
    """A world one field of whose steps is changed."""
    return Broken(step=lambda step: replace(step, **{name: change(getattr(step, name))}))


def first_row(value):
    """Sets the first entry of an array."""

    def change(array):
        array = array.copy()
        array[0] = value
        return array

    return change


def missing_method():
    world = GridWorld()
    world.mask = None
    return world


class GlobalRandomness(GridWorld):
    def step(self, actions):
        return replace(super().step(actions), rewards=np.random.random(len(actions)))  # noqa: NPY002


class NoFreshStart(GridWorld):
    """Counter that survives resets."""

    steps = 0

    def step(self, actions):
        self.steps += 1
        step = super().step(actions)
        return replace(step, rewards=step.rewards + self.steps)


class OneBuffer(GridWorld):
    """Returns its internal array of observations."""

    def reset(self, n_envs, rng):
        self.buffer = super().reset(n_envs, rng)
        return self.buffer

    def step(self, actions):
        step = super().step(actions)
        self.buffer[:] = step.observations
        return replace(step, observations=self.buffer)


class WritesToActions(GridWorld):
    def step(self, actions):
        step = super().step(actions)
        actions[:] = 0
        return step


BROKEN = {
    "no width": (lambda: Broken(width=None), "attribute width .* got None"),
    "no actions": (lambda: Broken(n_actions=0), "attribute n_actions .* got 0"),
    "no mask method": (missing_method, r"method mask\(\) is missing"),
    "reset to a list": (lambda: Broken(reset=lambda a: a.tolist()), r"reset\(\) is of type list"),
    "reset with a wrong shape": (lambda: Broken(reset=lambda a: a[:, :1]), r"reset\(\) has shape \(8, 1\)"),
    "reset to integers": (lambda: Broken(reset=lambda a: a.astype(int)), r"reset\(\) has dtype int64"),
    "reset to NaN": (lambda: Broken(reset=first_row(np.nan)), r"reset\(\) contains nan"),
    "mask with a wrong shape": (lambda: Broken(mask=lambda a: a[:, :-1]), r"mask\(\) has shape \(8, 7\)"),
    "mask of numbers": (lambda: Broken(mask=lambda a: a.astype(float)), r"mask\(\) has dtype float64"),
    "no possible action": (lambda: Broken(mask=first_row(False)), "No action is possible in environment 0"),
    "a step that is a tuple": (lambda: Broken(step=lambda s: (s.observations, s.rewards)), "returned tuple"),
    "rewards as a column": (lambda: field("rewards", lambda a: a[:, None]), r"rewards .* shape \(8, 1\)"),
    "infinite rewards": (lambda: field("rewards", first_row(np.inf)), "rewards .* contains inf"),
    "ends as numbers": (lambda: field("terminated", lambda a: a.astype(float)), "terminated .* convert it to bool"),
    "finals of another width": (lambda: field("finals", lambda a: a[:, :1]), r"finals .* shape \(8, 1\)"),
    "negative sizes": (lambda: field("sizes", lambda a: -a), "sizes .* as low as -2"),
    "a discount of 0": (lambda: field("discounts", first_row(0.0)), r"discounts .* contain 0, not in \(0, 1\]"),
    "a discount above 1": (lambda: field("discounts", first_row(1.5)), r"discounts .* contain 1.5"),
    "reached but not ended": (lambda: field("terminated", np.zeros_like), "reached is set without terminated"),
    "ended twice": (lambda: field("truncated", np.ones_like), "terminated and truncated are both set"),
    "another state without an end": (lambda: field("finals", lambda a: a / 2), "observations differ from finals"),
    "global randomness": (GlobalRandomness, "rewards of step 0 differ in a second run"),
    "state kept over reset": (NoFreshStart, "rewards of step 0 differ in a second run"),
    "one buffer for all": (OneBuffer, "A later step modified the observations of reset"),
    "actions overwritten": (WritesToActions, "modifies the actions"),
}


class Unclipped(ActionSpace):
    """Moves across the bounds."""

    def stop_at_bounds(self, values, columns, signs):
        return values


class HalfCategories(ActionSpace):
    """Sets only the first column of an encoding."""

    def apply(self, states, numbers):
        ends = super().apply(states, numbers)
        ends[:, 2:4] = states[:, 2:4]
        return ends


class MovesFixed(ActionSpace):
    """Changes a column that is not in the action space."""

    def apply(self, states, numbers):
        ends = super().apply(states, numbers)
        ends[:, 5] *= 0.99
        return ends


class Endless(RecourseMDP):
    """Resets the count of actions."""

    def step(self, actions):
        self._taken[:] = 0
        return super().step(actions)


class FixedAtTheEnd(MovesFixed):
    """The same, but only in a state that ends the episode."""

    def apply(self, states, numbers):
        ends = ActionSpace.apply(self, states, numbers)
        return np.where((ends[:, :1] > 0.64) & (np.arange(6) == 5), 0.99 * ends, ends)


BROKEN |= {
    "moves out of range": (lambda: recourse(actions=Unclipped), "beyond a bound: stop there"),
    "half a category": (lambda: recourse(actions=HalfCategories), "categorical feature 'job' .* not a valid encoding"),
    "a fixed column moved": (
        lambda: recourse(actions=MovesFixed),
        "changes column 5, which is not in the action space",
    ),
    "a fixed column moved at an end": (lambda: recourse(actions=FixedAtTheEnd), "changes column 5"),
    "no end in time": (lambda: recourse(Endless, max_actions=4), "continues after max_actions=4"),
}


@pytest.mark.parametrize("defect", BROKEN)
def test_defect_raises_an_error(defect):
    make, message = BROKEN[defect]
    with pytest.raises(PlanError, match=message):
        check_mdp(make())


@pytest.mark.parametrize("options", [{"n_steps": 0}, {"n_envs": 1.5}])
def test_invalid_size_raises_an_error(options):
    with pytest.raises(PlanError, match=f"{next(iter(options))} must be an integer"):
        check_mdp(GridWorld(), **options)
