"""The checker of MDPs accepts ours and finds whatever is broken on purpose."""

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
    """A small MDP of ours; its last column belongs to no feature."""
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
def test_what_keeps_its_promises_is_accepted(mdp):
    check_mdp(mdp)
    check_mdp(mdp, n_envs=1, n_steps=200, seed=1)


def test_global_random_state_is_untouched():
    before = np.random.get_state()[1].tolist()  # noqa: NPY002
    check_mdp(recourse())
    assert np.random.get_state()[1].tolist() == before  # noqa: NPY002


class Broken(GridWorld):
    """A world whose answers are spoiled on their way out."""

    def __init__(self, reset=None, mask=None, step=None, **attributes):
        super().__init__()
        self.spoil = {"reset": reset, "mask": mask, "step": step}
        vars(self).update(attributes)

    def _spoiled(self, name, answer):
        return answer if self.spoil[name] is None else self.spoil[name](answer)

    def reset(self, n_envs, rng):
        return self._spoiled("reset", super().reset(n_envs, rng))

    def mask(self):
        return self._spoiled("mask", super().mask())

    def step(self, actions):
        return self._spoiled("step", super().step(actions))


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
    """Goes on counting over resets."""

    steps = 0

    def step(self, actions):
        self.steps += 1
        step = super().step(actions)
        return replace(step, rewards=step.rewards + self.steps)


class OneBuffer(GridWorld):
    """Hands out the array that it writes every step's observations to."""

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
    "reset with a wrong shape": (lambda: Broken(reset=lambda a: a[:, :1]), r"reset\(\) has the shape \(8, 1\)"),
    "reset to whole numbers": (lambda: Broken(reset=lambda a: a.astype(int)), r"reset\(\) holds int64"),
    "reset to NaN": (lambda: Broken(reset=first_row(np.nan)), r"reset\(\) holds nan"),
    "mask with a wrong shape": (lambda: Broken(mask=lambda a: a[:, :-1]), r"mask\(\) has the shape \(8, 7\)"),
    "mask of numbers": (lambda: Broken(mask=lambda a: a.astype(float)), r"mask\(\) holds float64"),
    "nothing to do": (lambda: Broken(mask=first_row(False)), "environment 0 no action is possible"),
    "a step that is a tuple": (lambda: Broken(step=lambda s: (s.observations, s.rewards)), "returned tuple"),
    "rewards as a column": (lambda: field("rewards", lambda a: a[:, None]), r"rewards .* shape \(8, 1\)"),
    "infinite rewards": (lambda: field("rewards", first_row(np.inf)), "rewards .* holds inf"),
    "ends as numbers": (lambda: field("terminated", lambda a: a.astype(float)), "terminated .* convert them to bool"),
    "finals of another width": (lambda: field("finals", lambda a: a[:, :1]), r"finals .* shape \(8, 1\)"),
    "negative sizes": (lambda: field("sizes", lambda a: -a), "sizes .* as low as -2"),
    "a discount of 0": (lambda: field("discounts", first_row(0.0)), r"discounts .* hold 0, not in \(0, 1\]"),
    "a discount above 1": (lambda: field("discounts", first_row(1.5)), r"discounts .* hold 1.5"),
    "reached but not ended": (lambda: field("terminated", np.zeros_like), "reached the goal but is not terminated"),
    "ended twice": (lambda: field("truncated", np.ones_like), "both terminated and truncated"),
    "another state without an end": (lambda: field("finals", lambda a: a / 2), "observations differ from finals"),
    "global randomness": (GlobalRandomness, "rewards of step 0 differ in a second run"),
    "no fresh start": (NoFreshStart, "rewards of step 0 differ in a second run"),
    "one buffer for all": (OneBuffer, "A later step changed the observations of reset"),
    "actions overwritten": (WritesToActions, "changes the actions it is given"),
}


class Unclipped(ActionSpace):
    """Masks nothing but categories, so that moves leave [0, 1]."""

    def mask(self, states):
        return super().mask(states) | (self.moves != 0)


class HalfCategories(ActionSpace):
    """Sets the first column of a category's encoding only."""

    def apply(self, states, numbers):
        ends = super().apply(states, numbers)
        ends[:, 2:4] = states[:, 2:4]
        return ends


class MovesFixed(ActionSpace):
    """Has a side effect on a column that belongs to no feature."""

    def apply(self, states, numbers):
        ends = super().apply(states, numbers)
        ends[:, 5] *= 0.99
        return ends


class Endless(RecourseMDP):
    """Forgets how many actions were taken."""

    def step(self, actions):
        self._taken[:] = 0
        return super().step(actions)


class FixedAtTheEnd(MovesFixed):
    """The same, but only in a state that ends the episode."""

    def apply(self, states, numbers):
        ends = ActionSpace.apply(self, states, numbers)
        return np.where((ends[:, :1] > 0.64) & (np.arange(6) == 5), 0.99 * ends, ends)


BROKEN |= {
    "moves out of range": (lambda: recourse(actions=Unclipped), r"outside \[0, 1\]: mask it there"),
    "half a category": (lambda: recourse(actions=HalfCategories), "categorical feature 'job' .* none of its encodings"),
    "a fixed column moved": (lambda: recourse(actions=MovesFixed), "changes column 5, which belongs to no feature"),
    "a fixed column moved at an end": (lambda: recourse(actions=FixedAtTheEnd), "changes column 5"),
    "no end in time": (lambda: recourse(Endless, max_actions=4), "goes on after max_actions=4"),
}


@pytest.mark.parametrize("defect", BROKEN)
def test_a_broken_promise_is_found_and_explained(defect):
    make, message = BROKEN[defect]
    with pytest.raises(PlanError, match=message):
        check_mdp(make())


@pytest.mark.parametrize("options", [{"n_steps": 0}, {"n_envs": 1.5}])
def test_the_size_of_the_walk_is_checked(options):
    with pytest.raises(PlanError, match=f"{next(iter(options))} has to be a whole number"):
        check_mdp(GridWorld(), **options)
