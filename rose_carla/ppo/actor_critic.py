"""Actor and critic: which action to take in a state, and what the state is worth."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import nn

#: Logit of an action that is not possible: its probability is exactly 0 in single precision, its entropy too.
_IMPOSSIBLE = -1e8


class ActorCritic(nn.Module):
    """Two fully connected networks with two hidden layers each, a policy over numbered actions and a value.

    Parameters
    ----------
    width
        Numbers in an observation.
    n_actions
        Number of actions.
    hidden
        Width of the hidden layers.
    generator
        Source of the initial weights; without one they are zero, to be loaded over.

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
        """Log of the probability of each action, (b, n_actions); what the mask forbids has probability 0."""
        logits = self.actor(_centred(observations))
        return torch.log_softmax(logits.masked_fill(~mask, _IMPOSSIBLE), dim=-1)

    def values(self, observations: torch.Tensor) -> torch.Tensor:
        """Expected discounted return from each observation, (b,)."""
        return self.critic(_centred(observations)).squeeze(-1)

    def preferences(self, observations: np.ndarray, mask: np.ndarray) -> np.ndarray:
        """:meth:`log_probabilities` from and to arrays."""
        with torch.no_grad():
            return self.log_probabilities(_tensor(observations), torch.from_numpy(mask)).numpy()

    def worth(self, observations: np.ndarray) -> np.ndarray:
        """:meth:`values` from and to arrays."""
        with torch.no_grad():
            return self.values(_tensor(observations)).numpy()

    def greedy(self, observations: np.ndarray, mask: np.ndarray) -> np.ndarray:
        """The most probable possible action of each observation, (b,)."""
        return self.preferences(observations, mask).argmax(axis=1)


def _tensor(observations: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(np.asarray(observations, dtype=np.float32))


def _centred(observations: torch.Tensor) -> torch.Tensor:
    """Features are in [0, 1]; networks learn faster around 0."""
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
            _orthogonal(layer.weight, scale, generator)
        nn.init.zeros_(layer.bias)
        layers += [layer, nn.Tanh()]
    return nn.Sequential(*layers[:-1])


@torch.no_grad()
def _orthogonal(weight: torch.Tensor, gain: float, generator: torch.Generator) -> None:
    """``nn.init.orthogonal_``, which takes no generator before torch 2.3."""
    normal = torch.empty_like(weight).normal_(generator=generator)
    tall = normal if len(normal) >= normal.shape[1] else normal.T
    q, r = torch.linalg.qr(tall)
    q = q * r.diagonal().sign()
    weight.copy_(gain * (q if tall is normal else q.T))
