"""The paper's two classifiers as torch modules."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import nn


class Network(nn.Module):
    """Fully connected ReLU network with a softmax over two outcomes; no hidden layer makes logistic regression.

    Parameters
    ----------
    inputs
        Number of encoded features.
    hidden
        Width of each hidden layer.
    generator
        Source of the initial weights; without one they are zero, to be loaded over.

    Examples
    --------
    >>> import torch
    >>> Network(3, (50,))(torch.zeros(1, 3))
    tensor([[0.5000, 0.5000]], grad_fn=<SoftmaxBackward0>)
    """

    def __init__(self, inputs: int, hidden: Sequence[int] = (), generator: torch.Generator | None = None) -> None:
        super().__init__()
        widths = [inputs, *hidden, 2]
        self.layers = nn.ModuleList(
            nn.utils.skip_init(nn.Linear, wide, narrow) for wide, narrow in itertools.pairwise(widths)
        )
        for wide, layer in zip(widths, self.layers, strict=False):
            for parameter in layer.parameters():
                if generator is None:
                    parameter.data.zero_()
                else:  # nn.init takes none before torch 2.3
                    parameter.data.uniform_(-1 / math.sqrt(wide), 1 / math.sqrt(wide), generator=generator)

    def logits(self, x: torch.Tensor) -> torch.Tensor:
        """Values before the softmax, shape (n, 2)."""
        for layer in self.layers[:-1]:
            x = torch.relu(layer(x))
        return self.layers[-1](x)

    def logit(self, x: torch.Tensor) -> torch.Tensor:
        """Logarithm of the odds of the favourable outcome, shape (n,)."""
        values = self.logits(x)
        return values[:, 1] - values[:, 0]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Probabilities of the two outcomes, shape (n, 2)."""
        return torch.softmax(self.logits(x), dim=-1)


def put_weights(module: nn.Module, arrays: Mapping[str, np.ndarray]) -> None:
    """Put weights from a file, whoever made it, into a module, and fix them.

    Raises
    ------
    ValueError
        If they do not fit, or are no finite floating-point numbers.
    """
    if not all(array.dtype.kind == "f" and array.dtype.isnative for array in arrays.values()):
        raise ValueError("the weights are no floating-point numbers of this machine")
    try:
        module.load_state_dict({name: torch.from_numpy(array) for name, array in arrays.items()})
    except (RuntimeError, TypeError) as error:
        raise ValueError(str(error)) from error
    if not is_finite(module):
        raise ValueError("the weights are no finite numbers")
    module.requires_grad_(False)


def is_finite(module: nn.Module) -> bool:
    """Whether all weights of a module are finite."""
    return all(bool(tensor.isfinite().all()) for tensor in module.state_dict().values())
