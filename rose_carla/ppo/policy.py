"""Actor and critic, the policy and the value function, and their files with the log of the training."""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from carla.models.api import MLModel
from rose_carla._lib.files import FileFormatError, load_arrays, save_arrays
from rose_carla._lib.runtime import one_torch_thread
from rose_carla.datasets import project_categories
from rose_carla.errors import PlanError, error_text, short_repr
from rose_carla.models import probability
from rose_carla.models.mlmodel import check_model
from rose_carla.models.networks import put_weights
from torch import nn

#: Logit of a masked action: its probability and its part in the entropy are exactly 0 in single precision.
_MASKED = -1e8
#: Name of a method's own policy in a file, and of the predictions of its model.
POLICY, _FINGERPRINT = "weights", "fingerprint"
#: Number of random states at which two models are compared, and the largest difference between equal models.
_PROBES, _CLOSE = 256, 1e-3


class ActorCritic(nn.Module):
    """Policy over numbered actions and value function: two networks with two hidden layers each.

    Parameters
    ----------
    width
        Size of an observation.
    n_actions
        Number of actions.
    hidden
        Width of the hidden layers.
    generator
        Generator of the initial weights; without one they are zero, to be replaced by loaded ones.

    Examples
    --------
    >>> policy = ActorCritic(3, 4, generator=torch.Generator().manual_seed(0))
    >>> mask = np.array([[False, True, False, False]])
    >>> policy.greedy(np.zeros((1, 3)), mask).tolist()
    [1]
    """

    def __init__(self, width: int, n_actions: int, hidden: int = 64, generator: torch.Generator | None = None) -> None:
        super().__init__()
        self.hidden = hidden
        self.actor = _layers(width, hidden, n_actions, 0.01, generator)
        self.critic = _layers(width, hidden, 1, 1.0, generator)

    def log_probabilities(self, observations: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """Return the log-probability of each action, (b, n_actions); masked actions have probability 0."""
        logits = self.actor(_centre(observations))
        # Invalid action masking
        return torch.log_softmax(logits.masked_fill(~mask, _MASKED), dim=-1)

    def values(self, observations: torch.Tensor) -> torch.Tensor:
        """Return the expected discounted return from each observation, (b,)."""
        return self.critic(_centre(observations)).squeeze(-1)

    def predict_log_probabilities(self, observations: np.ndarray, mask: np.ndarray) -> np.ndarray:
        """Return :meth:`log_probabilities` of numpy arrays, without gradients."""
        with torch.no_grad(), one_torch_thread():
            return self.log_probabilities(_tensor(observations), torch.from_numpy(mask)).numpy()

    def predict_values(self, observations: np.ndarray) -> np.ndarray:
        """Return :meth:`values` of a numpy array, without gradients."""
        with torch.no_grad(), one_torch_thread():
            return self.values(_tensor(observations)).numpy()

    def greedy(self, observations: np.ndarray, mask: np.ndarray) -> np.ndarray:
        """Return the most probable action of each observation, (b,)."""
        return self.predict_log_probabilities(observations, mask).argmax(axis=1)


def _tensor(observations: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(np.asarray(observations, dtype=np.float32))


def _centre(observations: torch.Tensor) -> torch.Tensor:
    """Map [0, 1] to [-1, 1], where networks learn faster."""
    return 2.0 * observations - 1.0


def _layers(inputs: int, hidden: int, outputs: int, gain: float, generator: torch.Generator | None) -> nn.Sequential:
    layers = []
    for wide, narrow, scale in (
        (inputs, hidden, math.sqrt(2)),
        (hidden, hidden, math.sqrt(2)),
        (hidden, outputs, gain),
    ):
        layer = nn.utils.skip_init(nn.Linear, wide, narrow)
        if generator is None:
            nn.init.zeros_(layer.weight)
        else:
            # Orthogonal initialisation
            _orthogonal_(layer.weight, scale, generator)
        nn.init.zeros_(layer.bias)
        layers += [layer, nn.Tanh()]
    return nn.Sequential(*layers[:-1])


@torch.no_grad()
def _orthogonal_(weight: torch.Tensor, gain: float, generator: torch.Generator) -> None:
    """Fill ``weight`` like ``nn.init.orthogonal_``, which accepts a generator only from torch 2.3 on."""
    normal = torch.empty_like(weight).normal_(generator=generator)
    tall = normal if len(normal) >= normal.shape[1] else normal.T
    q, r = torch.linalg.qr(tall)
    q = q * r.diagonal().sign()
    weight.copy_(gain * (q if tall is normal else q.T))


@dataclass(frozen=True)
class Update:
    """Log entry of one update."""

    #: Environment steps and time since the start of training.
    steps: int
    seconds: float
    #: Speed of this update, rollout and gradient steps together.
    steps_per_second: float
    #: Share of the episodes ended in this rollout that reached the goal; NaN if none ended.
    validity: float
    #: Mean size of the plans that reached it, in units of action; NaN without one.
    cost: float
    #: Entropy of the policy.
    entropy: float
    #: Approximate KL divergence from the policy before the update.
    approx_kl: float
    #: Share of steps whose probability ratio was clipped.
    clip_fraction: float
    #: Share of the variance of returns that the critic predicted.
    explained_variance: float
    #: Clipped value loss.
    value_loss: float
    #: Validity and cost of the greedy policy on held-out rows; NaN where it was not evaluated.
    greedy_validity: float = float("nan")
    greedy_cost: float = float("nan")


def save_policy(
    path: str | os.PathLike[str],
    about: Mapping[str, Any],
    policies: Mapping[str, ActorCritic],
    log: list[Update],
    mlmodel: MLModel,
) -> None:
    """Write policies by name; ``about`` holds the method's name, settings and slope as JSON-able values.

    Raises
    ------
    FileWriteError
        If the file cannot be written.
    """
    metadata = {
        **about,
        "features": mlmodel.feature_input_order,
        "log": [[float(value) for value in dataclasses.astuple(each)] for each in log],
    }
    arrays = {
        f"{name}.{key}": tensor.numpy()
        for name, policy in policies.items()
        for key, tensor in policy.state_dict().items()
    }
    save_arrays(_as_path(path), {**arrays, _FINGERPRINT: fingerprint(mlmodel)}, metadata)


def load_policy(
    path: str | os.PathLike[str], method: str, mlmodel: MLModel
) -> tuple[dict[str, Any], dict[str, dict[str, np.ndarray]], list[Update]]:
    """Return the metadata, the weights of each policy and the training log of ``method`` for ``mlmodel``.

    Raises
    ------
    PlanError
        If the file is not a policy, or was written for another method or model.
    ModelError
        If ``mlmodel`` is not a CARLA model.
    """
    where = str(_as_path(path))
    check_model(mlmodel)
    if not os.path.exists(where):
        raise PlanError(f"There is no file {where!r}.")
    try:
        arrays, about = load_arrays(Path(where))
        trained_method, features, known = about["method"], about["features"], arrays.pop(_FINGERPRINT)
        about["slope"], about["settings"] = float(about["slope"]), dict(about["settings"])
        if not (0 < about["slope"] < math.inf and np.isfinite(known).all()):
            raise ValueError("the slope must be above 0, and predictions finite")
        log = [Update(int(steps), *map(float, values)) for steps, *values in about.pop("log")]
        weights: dict[str, dict[str, np.ndarray]] = {POLICY: {}}
        for name, array in arrays.items():
            policy, _, key = name.partition(".")
            weights.setdefault(policy, {})[key] = array
    except FileFormatError as error:
        raise PlanError(f"The policy cannot be loaded: {error} Train and save it again.") from error
    except (LookupError, TypeError, ValueError, OverflowError, AttributeError) as error:
        raise PlanError(
            f"The policy cannot be loaded: {where!r} is damaged or not a policy of rose-carla. Train and save it again."
        ) from error
    if trained_method != method:
        raise PlanError(f"{where!r} holds a policy of {short_repr(trained_method)}, not of {method!r}.")
    if features != mlmodel.feature_input_order:
        raise PlanError(f"{where!r} was trained for a model with other features: {short_repr(features)}.")
    here = fingerprint(mlmodel)
    if known.shape != here.shape or not (np.abs(known - here) <= _CLOSE).all():
        raise PlanError(f"{where!r} was trained for another model, with other predictions. Train a new policy.")
    return about, weights, log


def policy_from_weights(weights: Mapping[str, np.ndarray], width: int, n_actions: int, hidden: int) -> ActorCritic:
    """Build the policy for ``width`` features and ``n_actions`` actions with weights from a file.

    Raises
    ------
    PlanError
        If the weights do not fit.
    """
    try:
        if hidden**2 > sum(array.size for array in weights.values()):  # before the network allocates memory
            raise ValueError(f"they are too few for {hidden:,} hidden units")
        policy = ActorCritic(width, n_actions, hidden)
        put_weights(policy, weights)
    except ValueError as error:
        raise PlanError(
            "The policy cannot be loaded: the file is damaged, its weights do not fit the features and settings: "
            f"{error_text(error)} Train and save it again."
        ) from error
    return policy


def fingerprint(mlmodel: MLModel) -> np.ndarray:
    """Return the model's predictions at fixed random states; models that agree there are taken to be the same."""
    order = mlmodel.feature_input_order
    states = np.random.default_rng(0).random((_PROBES, len(order)))
    return probability(mlmodel)(project_categories(mlmodel.data, order, states))


def _as_path(path: str | os.PathLike[str]) -> Path:
    try:
        return Path(path)
    except TypeError as error:
        raise PlanError(f"The path of a policy must be a string or a Path, got {short_repr(path)}.") from error
