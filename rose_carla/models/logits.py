"""Differentiable logits of a classifier, for gradient methods."""

from __future__ import annotations

from collections.abc import Callable

import torch
from carla.models.api import MLModel
from rose_carla.errors import ModelError, RoseCarlaError, error_text
from rose_carla.models.mlmodel import feature_order
from rose_carla.models.training import Network

#: Function from encoded rows (n, d), a tensor, to logits (n,).
Logit = Callable[[torch.Tensor], torch.Tensor]


def log_odds(probabilities: torch.Tensor) -> torch.Tensor:
    """Return log p1 - log p0 of probabilities (n, 2), finite also where one of them is rounded to 0."""
    logarithms = probabilities.clamp_min(torch.finfo(probabilities.dtype).tiny).log()
    return logarithms[:, 1] - logarithms[:, 0]


def logit(mlmodel: MLModel, method: str = "A gradient method") -> Logit:
    """Return a differentiable function from encoded rows (n, d), a tensor, to g = log p1 - log p0 (> 0: favourable).

    It is the module's method ``logit`` if it has one, as our networks and wrapped modules do, which is exact however
    confident the classifier is. For other modules it is computed from probabilities, exact until they are rounded to 0.

    Parameters
    ----------
    mlmodel
        A CARLA model with the torch backend.
    method
        Name of the method, for messages.

    Raises
    ------
    ModelError
        If the model cannot be differentiated; from the function, if the model raises or does not return
        probabilities (n, 2).

    Examples
    --------
    >>> import torch
    >>> from rose_carla import datasets, models
    >>> model = models.train(datasets.load("compas"), "linear")
    >>> rows = torch.zeros(1, 7, requires_grad=True)
    >>> torch.autograd.grad(models.logit(model)(rows).sum(), rows)[0].shape
    torch.Size([1, 7])
    """
    width = len(feature_order(mlmodel))
    module = mlmodel.raw_model
    if mlmodel.backend != "pytorch" or not isinstance(module, torch.nn.Module):
        raise ModelError(
            f"{method} follows gradients and needs a torch model, this one is {mlmodel.backend or 'unknown'}: wrap a "
            "torch module with models.wrap, or use a method that needs predictions only, such as Cogs, FastAR, RoseOne "
            "or RoseMul."
        )
    parameter = next(module.parameters(), None)
    if parameter is None:
        raise ModelError(f"{method}: the torch model has no parameters, so it cannot have been trained.")

    copy = not isinstance(module, Network)  # other modules may change what they are given

    def g(rows: torch.Tensor) -> torch.Tensor:
        try:
            values = _logits(module, rows.to(parameter, copy=copy)).cpu()
        except RoseCarlaError:
            raise
        except Exception as error:  # the module is the user's code
            raise _failed(method, f"{len(rows)} rows", error) from error
        if values.shape != (len(rows),):
            raise ModelError(
                f"{method}: the torch model's logits of {len(rows)} rows have shape {tuple(values.shape)}, not "
                f"({len(rows)},)."
            )
        return values

    if not _has_gradient(g, width, parameter, method):
        raise ModelError(
            f"{method} follows gradients, but the torch model's output does not depend on its input differentiably: it "
            "detaches, ignores it, or computes outside torch."
        )
    return g


def _logits(module: torch.nn.Module, rows: torch.Tensor) -> torch.Tensor:
    own = getattr(module, "logit", None)
    if callable(own) and not isinstance(own, torch.nn.Module):  # not a layer of that name
        return own(rows)
    values = module(rows)
    shape = tuple(values.shape) if isinstance(values, torch.Tensor) else type(values).__name__
    if shape != (len(rows), 2):
        raise ModelError(
            f"The torch model ({type(module).__name__}) returns {shape} for {len(rows)} rows instead of probabilities "
            "(n, 2): wrap the module with models.wrap, which takes other shapes, too."
        )
    return log_odds(values)


def _has_gradient(g: Logit, width: int, parameter: torch.Tensor, method: str) -> bool:
    try:
        with torch.enable_grad():
            some = torch.full((2, width), 0.5, dtype=parameter.dtype, requires_grad=True)
            values = g(some)
            return values.requires_grad and torch.autograd.grad(values.sum(), some, allow_unused=True)[0] is not None
    except RoseCarlaError:
        raise
    except Exception as error:  # in the backward pass
        raise _failed(method, "gradients", error) from error


def _failed(method: str, what: str, error: Exception) -> ModelError:
    return ModelError(f"{method}: the torch model cannot compute {what}: {type(error).__name__}, {error_text(error)}")
