"""Adapter of an MDP to Gymnasium, for the algorithms of other libraries."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
from rose_carla.carla_compat import import_optional
from rose_carla.errors import PlanError
from rose_carla.mdp.environment import VectorMDP


def gymnasium_env(mdp: VectorMDP) -> Any:
    """Return ``mdp`` as a ``gymnasium.Env`` with one environment.

    Observations are a ``Box`` of ``mdp.width`` numbers without bounds, as noise may lead outside [0, 1]; actions are
    ``Discrete(mdp.n_actions)``. ``action_masks()`` returns which of them are possible now, as sb3-contrib's
    ``MaskablePPO`` expects. The info of a step has the ``discount`` of the action, which algorithms with one discount
    for all steps ignore, its ``size`` in units, whether it ``reached`` the goal, and whether it was ``possible``.

    Algorithms without masks choose impossible actions as well: these change nothing, have reward 0, and do not count
    towards the length of the episode. Wrap the environment in ``gymnasium.wrappers.TimeLimit`` for such an algorithm.

    Parameters
    ----------
    mdp
        MDP to adapt. Environments cannot share one.

    Raises
    ------
    MissingPackageError
        If Gymnasium is not installed.

    Examples
    --------
    >>> from rose_carla.mdp import ActionSpace, Feature, Precise, RecourseMDP
    >>> actions = ActionSpace([Feature("income", (0,))], width=1, action_unit=0.25)
    >>> env = gymnasium_env(RecourseMDP(actions, lambda states: states[:, 0], np.array([[0.0]]), Precise()))
    >>> observation, info = env.reset(seed=0)
    >>> env.action_masks().tolist()
    [False, True]
    >>> observation, reward, terminated, truncated, info = env.step(1)
    >>> observation.tolist(), reward, info["size"]
    ([0.25], 0.25, 1.0)
    """
    return _env_class()(mdp)


@functools.cache
def _env_class() -> type:
    """Define the class on first use: its base class belongs to an optional package."""
    gymnasium: Any = import_optional("gymnasium")

    class GymnasiumEnv(gymnasium.Env):
        """One environment of a :class:`rose_carla.mdp.VectorMDP`; see :func:`gymnasium_env`."""

        metadata: dict[str, Any] = {"render_modes": []}

        def __init__(self, mdp: VectorMDP) -> None:
            self.mdp = mdp
            self.observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (mdp.width,), np.float32)
            self.action_space = gymnasium.spaces.Discrete(mdp.n_actions)
            self._running = False

        def reset(
            self, *, seed: int | None = None, options: dict[str, Any] | None = None
        ) -> tuple[np.ndarray, dict[str, Any]]:
            """Start an episode; without a seed the generator continues."""
            super().reset(seed=seed)
            self._observation = self.mdp.reset(1, self.np_random)[0].astype(np.float32)
            self._running = True
            return self._observation.copy(), {}

        def action_masks(self) -> np.ndarray:
            """Return which actions are possible now, (n_actions,)."""
            return self.mdp.mask()[0]

        def step(self, action: int | np.integer) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
            """Take an action; at the end of an episode, return its last observation."""
            if not self._running:
                raise PlanError("Call reset() before the first step and after the end of each episode.")
            number = int(action)
            if not 0 <= number < self.mdp.n_actions:
                raise PlanError(f"Actions are numbered from 0 to {self.mdp.n_actions - 1}, got {number}.")
            if not self.action_masks()[number]:
                info = {"discount": 1.0, "size": 0.0, "reached": False, "possible": False}
                return self._observation.copy(), 0.0, False, False, info
            step = self.mdp.step(np.array([number]))
            # after an end the MDP has been reset already, while Gymnasium returns the final observation
            self._observation = step.finals[0].astype(np.float32)
            terminated, truncated = bool(step.terminated[0]), bool(step.truncated[0])
            self._running = not (terminated or truncated)
            info = {
                "discount": float(step.discounts[0]),
                "size": float(step.sizes[0]),
                "reached": bool(step.reached[0]),
                "possible": True,
            }
            return self._observation.copy(), float(step.rewards[0]), terminated, truncated, info

    return GymnasiumEnv
