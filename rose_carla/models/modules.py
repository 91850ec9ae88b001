"""torch modules of other people as CARLA models."""

from __future__ import annotations

import numpy as np
import torch
from carla.data.catalog import DataCatalog
from rose_carla.errors import ModelError, error_text
from rose_carla.models.contract import check_favourable_is_one, encoded_features
from rose_carla.models.gradient import log_odds
from rose_carla.models.mlmodel import TorchModel


class TwoProbabilities(torch.nn.Module):
    """A module's output turned into probabilities of shape (n, 2), which CARLA's gradient methods expect."""

    def __init__(self, module: torch.nn.Module, output: str) -> None:
        super().__init__()
        self.module = module
        self.output = output

    def logit(self, x: torch.Tensor) -> torch.Tensor:
        """Logarithm of the odds of the favourable outcome, shape (n,), exact if the module returns logits."""
        values = self._values(x)
        if values.dim() == 2 and values.shape[1] == 2:
            return values[:, 1] - values[:, 0] if self.output == "logit" else log_odds(values)
        values = values.reshape(-1)
        return values if self.output == "logit" else torch.logit(values, torch.finfo(values.dtype).eps)

    def _values(self, x: torch.Tensor) -> torch.Tensor:
        values = self.module(x.to(next(self.module.parameters()).dtype))
        # numpy knows no bfloat16, and its rounding would keep two probabilities from adding up to 1
        return values.float() if values.dtype == torch.bfloat16 else values

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Probabilities of the two outcomes."""
        values = self._values(x)
        if values.dim() == 2 and values.shape[1] == 2:
            return torch.softmax(values, dim=-1) if self.output == "logit" else values
        values = values.reshape(-1)
        favourable = torch.sigmoid(values) if self.output == "logit" else values
        return torch.stack([1 - favourable, favourable], dim=-1)


def wrap_module(
    module: torch.nn.Module, data: DataCatalog, order: list[str] | None, favourable: object, output: str | None
) -> TorchModel:
    """A CARLA model around a torch module; arguments as those of :func:`rose_carla.models.wrap`."""
    parameter = next(module.parameters(), None)
    if parameter is None:
        raise ModelError("The torch module has no parameters, so nothing can have been trained.")
    check_favourable_is_one(module, favourable)
    order = encoded_features(data) if order is None else order
    _check_encoded(order, data)
    known = np.ascontiguousarray(data.df_train[order].to_numpy(dtype=float)[:1000])
    module.eval()
    try:
        with torch.no_grad():
            values = module(torch.tensor(known, dtype=parameter.dtype).to(parameter.device))
    except Exception as error:  # whatever a module may raise, the caller should know what was tried
        raise ModelError(
            f"The torch module does not take rows of {len(order)} features ({error_text(error)[:-1]}): give its "
            "columns in feature_order=[...]."
        ) from error
    _check_values(values, len(known))
    return TorchModel(data, TwoProbabilities(module, output or _kind_of(module, values.cpu())), order)


def _check_values(values: object, n: int) -> None:
    """Refuse what a module returned for ``n`` rows, unless it is one or two finite real numbers for each."""
    shape = tuple(values.shape) if isinstance(values, torch.Tensor) else type(values).__name__
    if not isinstance(values, torch.Tensor) or shape not in ((n, 2), (n, 1), (n,)):
        raise ModelError(f"The torch module returns {shape} for {n} rows: expected (n, 2), (n, 1) or (n,).")
    if values.is_meta:
        raise ModelError("The torch module is on the device meta, where there are no weights: load them first.")
    if values.layout != torch.strided or values.is_complex() or values.dtype == torch.bool:
        raise ModelError(
            f"The torch module returns {_type_of(values)} values: have it return a dense tensor of probabilities or "
            "logits, which are real numbers."
        )
    if not torch.isfinite(values).all():
        raise ModelError("The torch module returns values that are not finite on training rows.")


def _type_of(values: torch.Tensor) -> str:
    return str(values.dtype if values.layout == torch.strided else values.layout).removeprefix("torch.")


def _kind_of(module: torch.nn.Module, values: torch.Tensor) -> str:
    """Probabilities or logits, if that can be told."""
    inside = bool(((values >= 0) & (values <= 1)).all())
    if not inside:
        return "logit"
    if values.dim() == 2 and values.shape[1] == 2:
        ones = torch.ones(len(values), dtype=values.dtype)
        return "probability" if torch.allclose(values.sum(dim=1), ones, atol=1e-4) else "logit"
    last = list(module.modules())[-1]
    if isinstance(last, torch.nn.Sigmoid):
        return "probability"
    raise ModelError(
        "The torch module returns numbers between 0 and 1, which may be probabilities or small logits: say "
        "output='probability' or output='logit'."
    )


def _check_encoded(order: list[str], data: DataCatalog) -> None:
    strange = sorted(map(str, set(order) - set(encoded_features(data))))
    if strange:
        raise ModelError(f"No such encoded columns in the data set: {', '.join(strange[:5])}.")
