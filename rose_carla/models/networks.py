"""Classifiers in torch: the paper's two, trained reproducibly for a seed, and differentiable logits of any other."""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch
from carla.data.api import Data
from carla.data.catalog import DataCatalog
from carla.models.api import MLModel
from rose_carla._lib.files import FileWriteError, cache_dir, key_of, load_arrays, save_arrays
from rose_carla._lib.params import REQUIRED, Hyperparameters, check_seed, integer, integers, number
from rose_carla._lib.runtime import one_torch_thread, parallel_ranges
from rose_carla.datasets.frames import RESERVED_NAMES
from rose_carla.errors import ModelError, error_text, short_repr, unknown_name
from rose_carla.models.mlmodel import EncodedModel, check_data, feature_order, model_errors
from tqdm.auto import tqdm

#: About the number of training steps on COMPAS, and the batch size of logistic regression on small tables.
_STEPS = {"ann": 500, "linear": 5000}
_SMALL_BATCH, _LARGE = 50, 10_000
#: Rows that one thread predicts at a time.
_BLOCK = 4096
#: Training rows on which a trained classifier must return finite numbers.
_TRIED = 1000
#: Function from encoded rows (n, d), a tensor, to logits (n,).
Logit = Callable[[torch.Tensor], torch.Tensor]


class Network(torch.nn.Module):
    """Fully connected ReLU network with a softmax over two outcomes; without hidden layers, logistic regression.

    Parameters
    ----------
    inputs
        Number of encoded features.
    hidden
        Width of each hidden layer.
    generator
        Source of the initial weights; without one they are zero.

    Examples
    --------
    >>> import torch
    >>> Network(3, (50,))(torch.zeros(1, 3))
    tensor([[0.5000, 0.5000]], grad_fn=<SoftmaxBackward0>)
    """

    def __init__(self, inputs: int, hidden: Sequence[int] = (), generator: torch.Generator | None = None) -> None:
        super().__init__()
        widths = [inputs, *hidden, 2]
        self.layers = torch.nn.ModuleList(
            torch.nn.utils.skip_init(torch.nn.Linear, wide, narrow) for wide, narrow in itertools.pairwise(widths)
        )
        for wide, layer in zip(widths, self.layers, strict=False):
            for parameter in layer.parameters():
                if generator is None:
                    parameter.data.zero_()
                else:  # nn.init takes no generator before torch 2.3
                    parameter.data.uniform_(-1 / math.sqrt(wide), 1 / math.sqrt(wide), generator=generator)

    def logits(self, x: torch.Tensor) -> torch.Tensor:
        """Return the values before the softmax, shape (n, 2)."""
        for layer in self.layers[:-1]:
            x = torch.relu(layer(x))
        return self.layers[-1](x)

    def logit(self, x: torch.Tensor) -> torch.Tensor:
        """Return the log-odds of the favourable outcome, shape (n,)."""
        values = self.logits(x)
        return values[:, 1] - values[:, 0]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the probabilities of the two outcomes, shape (n, 2)."""
        return torch.softmax(self.logits(x), dim=-1)


class TorchModel(EncodedModel):
    """A torch module that returns probabilities of shape (n, 2); differentiable for tensors."""

    _backend = "pytorch"

    def __init__(self, data: DataCatalog, raw_model: torch.nn.Module, feature_input_order: Sequence[str]) -> None:
        super().__init__(data, raw_model.eval(), feature_input_order)

    def predict_proba(self, x: Any) -> Any:
        """Return probabilities of the two outcomes, shape (n, 2), as a tensor if ``x`` is one."""
        x = self._ordered(x)
        parameter = next(self._raw_model.parameters())
        if isinstance(x, torch.Tensor):
            return self._raw_model(x.to(parameter.dtype))
        narrow = np.float32 if parameter.dtype == torch.float32 else np.float64
        rows = torch.as_tensor(np.array(x, dtype=narrow), dtype=parameter.dtype, device=parameter.device)
        blocks: list[np.ndarray] = [np.empty(0)] * max(1, -(-len(rows) // _BLOCK))

        def predict(first: int, last: int) -> None:
            with torch.no_grad():
                for block in range(first, last):
                    blocks[block] = self._raw_model(rows[block * _BLOCK : (block + 1) * _BLOCK]).cpu().numpy()

        with one_torch_thread():
            parallel_ranges(len(blocks), float(rows.numel()), predict)
        return blocks[0] if len(blocks) == 1 else np.concatenate(blocks)


def put_weights(module: torch.nn.Module, arrays: Mapping[str, np.ndarray]) -> None:
    """Load weights from a file into a module and freeze them.

    Raises
    ------
    ValueError
        If they do not fit the module, or are not finite floating-point numbers.
    """
    if not all(array.dtype.kind == "f" and array.dtype.isnative for array in arrays.values()):
        raise ValueError("the weights are not floating-point numbers in the byte order of this machine")
    try:
        module.load_state_dict({name: torch.from_numpy(array) for name, array in arrays.items()})
    except (RuntimeError, TypeError) as error:
        raise ValueError(str(error)) from error
    if not is_finite(module):
        raise ValueError("the weights are not finite")
    module.requires_grad_(False)


def is_finite(module: torch.nn.Module) -> bool:
    """Return whether all weights of a module are finite."""
    return all(bool(tensor.isfinite().all()) for tensor in module.state_dict().values())


@dataclass(frozen=True)
class TrainingSettings(Hyperparameters):
    """Settings of the training of a classifier.

    Parameters
    ----------
    hidden
        Width of each hidden layer; empty for logistic regression.
    learning_rate
        Step size of RMSprop, the optimiser of CARLA's own models.
    batch_size
        Rows per step.
    epochs
        Passes over the training rows.
    """

    hidden: tuple[int, ...] = integers(REQUIRED, le=10**4)
    learning_rate: float = number(REQUIRED, gt=0, le=1e6)
    batch_size: int = integer(REQUIRED)
    epochs: int = integer(50)

    error = ModelError


def paper_settings(kind: str, data_name: str) -> TrainingSettings:
    """Return the paper's settings (table 'Training details'); other data sets are treated as Adult."""
    if kind == "ann":
        return TrainingSettings(hidden=(50,), learning_rate=0.002, batch_size=512)
    if kind == "linear":
        small = data_name in ("german", "german-typed", "compas")
        return TrainingSettings(hidden=(), learning_rate=0.001, batch_size=50 if small else 512)
    raise ModelError(unknown_name("kind of classifier", kind, ("ann", "linear")))


def default_settings(kind: str, data: Data) -> TrainingSettings:
    """Return the paper's settings for its data sets, and at least as many steps as on COMPAS for other tables.

    The paper's 50 epochs are too few for a small table: 50 steps for 200 rows.

    Examples
    --------
    >>> from rose_carla import datasets
    >>> default_settings("linear", datasets.load("german")).epochs
    50
    """
    check_data(data)
    name = getattr(data, "name", "")
    usual = paper_settings(kind, name)
    if name in RESERVED_NAMES:
        return usual
    n = len(data.df_train)
    batch = min(usual.batch_size, _SMALL_BATCH) if kind == "linear" and n < _LARGE else usual.batch_size
    epochs = math.ceil(_STEPS[kind] / max(math.ceil(n / batch), 1))
    return dataclasses.replace(usual, batch_size=batch, epochs=max(usual.epochs, epochs))


def train(
    data: Data,
    kind: str = "ann",
    *,
    seed: int = 0,
    settings: TrainingSettings | None = None,
    use_cache: bool = True,
    progress: bool = False,
) -> TorchModel:
    """Train a classifier on the training split of ``data``, or load it from the cache.

    Parameters
    ----------
    data
        A CARLA data set.
    kind
        ``"ann"``: one hidden layer of 50 with ReLU; ``"linear"``: logistic regression.
    seed
        Seed of initial weights and batches. Global generators are not touched.
    settings
        Instead of :func:`default_settings`.
    use_cache
        Load the weights from :func:`rose_carla._lib.files.cache_dir` if they are there, and save them otherwise.
    progress
        Show a progress bar.

    Examples
    --------
    >>> from rose_carla import datasets, models
    >>> model = models.train(datasets.load("compas"), use_cache=False)
    >>> model.predict_proba(model.data.df_test.head(3)).shape
    (3, 2)
    """
    check_data(data)
    seed = check_seed(seed, ModelError)
    usual = default_settings(kind, data)
    settings = usual if settings is None else settings
    if not isinstance(settings, TrainingSettings):
        raise ModelError(f"settings must be a models.TrainingSettings, got {short_repr(settings)}.")
    frame = data.df_train
    order = sorted(column for column in frame.columns if column != data.target)
    inputs, outcomes = frame[order].to_numpy(dtype=np.float32), frame[data.target].to_numpy(dtype=np.int64)
    if not np.isfinite(inputs).all():
        raise ModelError("The training rows contain missing or infinite values: clean the data set first.")
    if set(np.unique(outcomes)) != {0, 1}:
        raise ModelError(
            f"The target {data.target!r} must be 0 and 1 in the training split, both of them, found "
            f"{np.unique(outcomes).tolist()}."
        )
    key = key_of(
        {
            "data": _fingerprint(frame[[*order, data.target]]),
            "settings": dataclasses.asdict(settings),
            "seed": seed,
            "torch": torch.__version__,
        }
    )
    name = f"{kind}-{key[:32]}.safetensors"
    network = _load(name, key, len(order), settings) if use_cache else None
    if network is None:
        network = _fit(inputs, outcomes, settings, seed, progress)
        if use_cache:
            _save(name, key, network)
    return TorchModel(data, network, order)


def _fit(inputs: np.ndarray, outcomes: np.ndarray, settings: TrainingSettings, seed: int, progress: bool) -> Network:
    generator = torch.Generator().manual_seed(seed)
    network = Network(inputs.shape[1], settings.hidden, generator)
    optimiser = torch.optim.RMSprop(network.parameters(), lr=settings.learning_rate)
    # a view with negative strides, as reversed columns make it, is an error in torch
    x, y = torch.tensor(np.ascontiguousarray(inputs)), torch.tensor(outcomes)
    with one_torch_thread(), torch.enable_grad():
        for _ in tqdm(range(settings.epochs), desc="classifier", disable=not progress, leave=False):
            for rows in torch.randperm(len(x), generator=generator).split(settings.batch_size):
                loss = torch.nn.functional.cross_entropy(network.logits(x[rows]), y[rows])
                optimiser.zero_grad()
                loss.backward()
                optimiser.step()
    network.requires_grad_(False)
    if not (is_finite(network) and network.logits(x[:_TRIED]).isfinite().all()):
        raise ModelError(
            "The training diverged, the classifier returns NaN or infinity: try a learning_rate below "
            f"{settings.learning_rate:g}."
        )
    return network


def _fingerprint(frame: pd.DataFrame) -> str:
    digest = hashlib.sha256("\0".join(frame.columns).encode())
    digest.update(np.ascontiguousarray(frame.to_numpy(dtype=np.float64)).tobytes())
    return digest.hexdigest()


def _load(name: str, key: str, inputs: int, settings: TrainingSettings) -> Network | None:
    try:
        path = cache_dir() / "models" / name
        if not path.exists():
            return None
        network = Network(inputs, settings.hidden)
        put_weights(network, load_arrays(path, key)[0])
    except FileWriteError:  # there is no cache, as the warning after the training says
        return None
    except ValueError as error:
        warnings.warn(f"Training the classifier again, the cached one is unusable: {error_text(error)}", stacklevel=3)
        return None
    return network


def _save(name: str, key: str, network: Network) -> None:
    arrays = {name: tensor.numpy() for name, tensor in network.state_dict().items()}
    try:
        save_arrays(cache_dir() / "models" / name, arrays, {"key": key})
    except FileWriteError as error:
        warnings.warn(f"The trained classifier was not cached: {error}", stacklevel=3)


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
        with model_errors(f"{method}: the torch model cannot compute {len(rows)} rows"):
            values = _logits(module, rows.to(parameter, copy=copy)).cpu()
        if values.shape != (len(rows),):
            raise ModelError(
                f"{method}: the torch model's logits of {len(rows)} rows have shape {tuple(values.shape)}, not "
                f"({len(rows)},)."
            )
        return values

    with torch.enable_grad(), model_errors(f"{method}: the torch model cannot compute gradients"):
        some = torch.full((2, width), 0.5, dtype=parameter.dtype, requires_grad=True)
        values = g(some)
        known = values.requires_grad and torch.autograd.grad(values.sum(), some, allow_unused=True)[0] is not None
    if not known:
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
