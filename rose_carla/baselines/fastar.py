"""FastAR: sequential recourse without noise (Verma et al. 2022), with ROSE's MDP and PPO."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from rose_carla._lib.params import integer, integers, number
from rose_carla._lib.runtime import Deadline
from rose_carla.mdp import Precise, Robustness, StateCost
from rose_carla.models import probability
from rose_carla.ppo import ActorCritic
from rose_carla.rose.search import Planner, Task
from rose_carla.rose.sequential import Sequential, SequentialSettings
from scipy.spatial import cKDTree

#: The planner needs a check; without noise any passes.
_TAU, _CHECKS, _CONFIDENCE = 0.5, 10, 0.9


@dataclass(frozen=True)
class FastARSettings(SequentialSettings):
    """Hyper-parameters of FastAR."""

    #: Sizes of moves, in units.
    multiples: tuple[int, ...] = integers((1,), le=10**6)
    #: Maximum number of actions per episode and per walk.
    max_actions: int = integer(50)
    #: Probability above which a state is a goal; above 0.5 it is the ablation with a margin instead of noise.
    margin: float = number(0.5, ge=0.5, lt=1)
    #: Weight lambda of the distance to the nearest training row.
    density_weight: float = number(0.1, ge=0)
    #: Time limit in seconds, of training and of planning for a chunk of people.
    timeout: float = number(120.0, ge=0)

    presets = {
        "paper": {
            "action_unit": 0.025,
            "gamma": 0.99,
            "constant_reward": 100.0,
            "max_actions": 50,
            "density_weight": 0.1,
            "ppo": {"gae_lambda": 0.95, "clip_range": 0.2, "n_epochs": 4, "ent_coef": 0.01, "vf_coef": 0.5},
        },
    }


class FastAR(Sequential):
    r"""FastAR: a short sequence of unit actions that ends favourably if each is implemented precisely.

    The reward of an action that leads to s is

    .. math::
        r = \begin{cases} R & p(s) > 0.5 \text{, the end} \\ p(s) & \text{otherwise} \end{cases}
        \quad - \lambda \min_i \lVert s - x_i \rVert_1

    with the training rows x_i; moves out of [0, 1] are masked. As in ROSE, the size of an action is time: setting a
    category is discounted like the units of its change. With ``margin`` above 0.5 it is the margin-inflated ablation: a
    distance to the border without a noise model.

    Parameters
    ----------
    mlmodel
        A CARLA model; only its predictions are used.
    hyperparams
        Options of :class:`FastARSettings`; ``{"preset": "paper"}`` for those of the papers.

    Examples
    --------
    >>> from rose_carla import baselines, datasets, models
    >>> model = models.train(datasets.load("compas"), "linear")
    >>> method = baselines.FastAR(model)
    >>> print(method.plan(models.negative_instances(model).head(1))[0].found)
    True
    """

    name = "FastAR"
    settings_class = FastARSettings
    settings: FastARSettings
    partial_moves = False

    def _task(self) -> Task:
        predict, margin = probability(self._mlmodel), self.settings.margin
        return Task(self.space, predict, Precise(lambda states: predict(states) > margin), _TAU, margin)

    def _cost(self) -> StateCost | None:
        weight = self.settings.density_weight
        if weight == 0:
            return None
        rows = self._mlmodel.data.df_train[self._mlmodel.feature_input_order].to_numpy(dtype=float)
        tree = cKDTree(np.unique(rows, axis=0))
        return lambda states: weight * tree.query(states, p=1)[0]

    def _deadline(self) -> Deadline:
        return Deadline(self.settings.timeout)

    def _curriculum(self) -> list[tuple[Robustness, dict[str, Any]]]:
        return [(self.task.robustness, {"ent_coef": 0.01, "max_seconds": max(self.settings.timeout, 1e-9)})]

    def _failure(self, rate: float, reached: bool) -> str:
        s = self.settings
        return f"the policy does not reach the goal within {s.max_actions} actions or {s.timeout:g} s"

    def _planner(self, policy: ActorCritic, slope: float) -> Planner:
        s = self.settings
        return Planner(
            self.task,
            policy,
            slope,
            n_walk=1,
            n_check=_CHECKS,
            confidence=_CONFIDENCE,
            max_actions=s.max_actions,
            search=False,
            shorten=False,
        )
