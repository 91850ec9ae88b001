"""The classifier as gradient methods see it: a differentiable logit."""

from __future__ import annotations

from collections.abc import Callable

import torch
from carla.models.api import MLModel
from rose_carla.errors import ModelError

#: From encoded rows (n, d) as a tensor to logits (n,).
Logit = Callable[[torch.Tensor], torch.Tensor]


def log_odds(probabilities: torch.Tensor) -> torch.Tensor:
    """log p1 - log p0 of probabilities (n, 2); finite also where one of them is rounded to 0."""
    logarithms = probabilities.clamp_min(torch.finfo(probabilities.dtype).tiny).log()
    return logarithms[:, 1] - logarithms[:, 0]


def logit(mlmodel: MLModel, method: str = "A gradient method") -> Logit:
    """Function from encoded rows (n, d), a tensor, to g = log p1 - log p0, differentiable; above 0 is favourable.

    If the module has a method ``logit``, as our networks and wrapped modules do, it is that: exact however sure the
    classifier is. Of others it is the logarithms of their probabilities, which is exact until these are rounded to 0.

    Parameters
    ----------
    mlmodel
        A CARLA model with the torch backend.
    method
        Who asks, for the message.

    Raises
    ------
    ModelError
        If the model cannot be differentiated.

    Examples
    --------
    >>> import torch
    >>> from rose_carla import datasets, models
    >>> model = models.train(datasets.load("compas"), "linear")
    >>> rows = torch.zeros(1, 7, requires_grad=True)
    >>> torch.autograd.grad(models.logit(model)(rows).sum(), rows)[0].shape
    torch.Size([1, 7])
    """
    module = mlmodel.raw_model
    if mlmodel.backend != "pytorch" or not isinstance(module, torch.nn.Module):
        raise ModelError(
            f"{method} follows gradients and needs a torch model, this one is {mlmodel.backend or 'of no known kind'}: "
            "wrap a torch module with models.wrap, or use a method that asks for predictions only, such as Cogs, "
            "FastAR, RoseOne or RoseMul."
        )
    parameter = next(module.parameters(), None)
    if parameter is None:
        raise ModelError(f"{method}: the torch model has no parameters, so nothing can have been trained.")

    def g(rows: torch.Tensor) -> torch.Tensor:
        rows = rows.to(parameter)
        own: Logit | None = getattr(module, "logit", None)
        if own is not None:
            return own(rows).cpu()
        return log_odds(module(rows)).cpu()

    with torch.enable_grad():
        some = torch.full((2, len(mlmodel.feature_input_order)), 0.5, dtype=parameter.dtype, requires_grad=True)
        values = g(some)
        if values.shape != (2,):
            raise ModelError(
                f"{method}: the torch model's logits of 2 rows have shape {tuple(values.shape)}, not (2,)."
            )
        known = values.requires_grad and torch.autograd.grad(values.sum(), some, allow_unused=True)[0] is not None
    if not known:
        raise ModelError(
            f"{method} follows gradients, but the torch model's output does not depend on its input differentiably: it "
            "detaches, ignores it, or computes outside torch."
        )
    return g
