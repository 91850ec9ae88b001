"""Actor and critic: the policy and the value function."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import nn

#: Logit of a masked action: its probability and its part in the entropy are exactly 0 in single precision.
_MASKED = -1e8


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
        with torch.no_grad():
            return self.log_probabilities(_tensor(observations), torch.from_numpy(mask)).numpy()

    def predict_values(self, observations: np.ndarray) -> np.ndarray:
        """Return :meth:`values` of a numpy array, without gradients."""
        with torch.no_grad():
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
