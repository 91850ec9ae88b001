"""Train the paper's classifiers, in seconds, the same bits for the same seed."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import math
import numbers
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from carla.data.api import Data
from carla.models.api import MLModel
from rose_carla._lib.files import FileFormatError, FileWriteError, cache_dir, key_of, load_arrays, save_arrays
from rose_carla._lib.params import REQUIRED, Hyperparameters, check_seed, integer, integers, number
from rose_carla.datasets.dataset import RESERVED_NAMES
from rose_carla.errors import DataError, ModelError, error_text, short_repr, unknown_name
from rose_carla.models.contract import check_data, check_model
from rose_carla.models.mlmodel import TorchModel
from rose_carla.models.network import Network, is_finite, put_weights
from rose_carla.models.outcome import probabilities
from tqdm.auto import tqdm

#: Steps of training on COMPAS, about, and the size of a batch of logistic regression on small tables.
_STEPS = {"ann": 500, "linear": 5000}
_SMALL_BATCH, _LARGE = 50, 10_000
#: Rows that a trained classifier has to have an answer for.
_TRIED = 1000


@dataclass(frozen=True)
class TrainingSettings(Hyperparameters):
    """How a classifier is trained.

    Parameters
    ----------
    hidden
        Width of each hidden layer; none for logistic regression.
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
    """The paper's Table 'Training details' for ``kind`` and a data set; unknown data sets are treated as Adult."""
    if kind == "ann":
        return TrainingSettings(hidden=(50,), learning_rate=0.002, batch_size=512)
    if kind == "linear":
        small = data_name in ("german", "german-typed", "compas")
        return TrainingSettings(hidden=(), learning_rate=0.001, batch_size=50 if small else 512)
    raise ModelError(unknown_name("kind of classifier", kind, ("ann", "linear")))


def default_settings(kind: str, data: Data) -> TrainingSettings:
    """The paper's settings for its data sets; other tables get as many steps as COMPAS does, at least.

    The paper's 50 epochs would leave a small table untrained: of 200 rows they are 50 steps.

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
        Seed of initial weights and batches. No global seed is touched.
    settings
        Instead of :func:`default_settings`.
    use_cache
        Look for the weights on disk first and keep them there; see :func:`rose_carla._lib.files.cache_dir`.
    progress
        Show a progress bar.

    Examples
    --------
    >>> from rose_carla import datasets, models
    >>> model = models.train(datasets.load("compas"), "linear", use_cache=False)
    >>> model.predict_proba(model.data.df_test.head(3)).shape
    (3, 2)
    """
    check_data(data)
    seed = check_seed(seed, ModelError)
    usual = default_settings(kind, data)
    settings = usual if settings is None else settings
    if not isinstance(settings, TrainingSettings):
        raise ModelError(f"settings has to be a models.TrainingSettings, got {short_repr(settings)}.")
    frame = data.df_train
    order = sorted(column for column in frame.columns if column != data.target)
    inputs, outcomes = frame[order].to_numpy(dtype=np.float32), frame[data.target].to_numpy(dtype=np.int64)
    if not np.isfinite(inputs).all():
        raise ModelError("The training rows hold missing or infinite values: clean the data set first.")
    if set(np.unique(outcomes)) != {0, 1}:
        raise ModelError(
            f"The target {data.target!r} has to hold both outcomes 0 and 1 in the training split, found "
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
    path = _place(f"{kind}-{key[:32]}.safetensors") if use_cache else None
    network = _load(path, key, len(order), settings) if path else None
    if network is None:
        network = _fit(inputs, outcomes, settings, seed, progress)
        if path:
            _keep(path, key, network)
    return TorchModel(data, network, order)


def accuracy(model: MLModel, frame: pd.DataFrame) -> float:
    """Share of rows of an encoded ``frame``, target included, whose outcome the classifier predicts.

    Raises
    ------
    ModelError
        If the target is missing, or the model cannot predict the rows.
    DataError
        If there are no rows, or outcomes other than 0 and 1.
    """
    check_model(model)
    if not isinstance(frame, pd.DataFrame):
        raise DataError(f"Expected encoded rows and their target as a DataFrame, got {type(frame).__name__}.")
    if model.data.target not in frame.columns:
        raise ModelError(f"The rows lack the target {model.data.target!r}, so nothing can be compared.")
    if len(frame) == 0:
        raise DataError("There is nothing to compare: the frame has no rows.")
    outcomes = frame[model.data.target]
    _check_outcomes(outcomes)
    predicted = probabilities(model, frame, frame.index).argmax(axis=1)
    return float((predicted == outcomes.to_numpy()).mean())


def _check_outcomes(outcomes: pd.Series) -> None:
    """Refuse outcomes that no prediction could be equal to: words, missing ones, other numbers."""
    if isinstance(outcomes, pd.DataFrame):
        raise DataError(f"The target {outcomes.columns[0]!r} is there more than once: drop all but one of its columns.")
    for label, value in outcomes.items():
        if not isinstance(value, (numbers.Real, np.bool_)) or value not in (0, 1):
            raise DataError(
                f"The target {outcomes.name!r} has to hold the outcomes 0 and 1, but is {short_repr(value)} in row "
                f"{short_repr(label)}: pass encoded rows, such as data.df_test."
            )


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """Small networks run fastest, and the same bits every time, on one thread."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _fit(inputs: np.ndarray, outcomes: np.ndarray, settings: TrainingSettings, seed: int, progress: bool) -> Network:
    generator = torch.Generator().manual_seed(seed)
    network = Network(inputs.shape[1], settings.hidden, generator)
    optimiser = torch.optim.RMSprop(network.parameters(), lr=settings.learning_rate)
    # columns of one type in reversed order are a view with negative strides, which torch refuses
    x, y = torch.tensor(np.ascontiguousarray(inputs)), torch.tensor(outcomes)
    with one_thread(), torch.enable_grad():
        for _ in tqdm(range(settings.epochs), desc="classifier", disable=not progress, leave=False):
            for rows in torch.randperm(len(x), generator=generator).split(settings.batch_size):
                loss = torch.nn.functional.cross_entropy(network.logits(x[rows]), y[rows])
                optimiser.zero_grad()
                loss.backward()
                optimiser.step()
    network.requires_grad_(False)
    if not (is_finite(network) and network.logits(x[:_TRIED]).isfinite().all()):
        raise ModelError(
            "The training diverged, the classifier predicts no finite numbers: try a learning_rate below "
            f"{settings.learning_rate:g}."
        )
    return network


def _fingerprint(frame: pd.DataFrame) -> str:
    digest = hashlib.sha256("\0".join(frame.columns).encode())
    digest.update(np.ascontiguousarray(frame.to_numpy(dtype=np.float64)).tobytes())
    return digest.hexdigest()


def _place(name: str) -> Path | None:
    try:
        return cache_dir() / "models" / name
    except FileWriteError as error:
        warnings.warn(f"The trained classifier was not cached: {error}", stacklevel=3)
        return None


def _load(path: Path, key: str, inputs: int, settings: TrainingSettings) -> Network | None:
    if not path.exists():
        return None
    network = Network(inputs, settings.hidden)
    try:
        arrays, metadata = load_arrays(path)
        if metadata.get("key") != key:
            raise FileFormatError(f"{str(path)!r} belongs to another data set or other settings.")
        put_weights(network, arrays)
    except ValueError as error:
        warnings.warn(f"Training the classifier again, the cached one is unusable: {error_text(error)}", stacklevel=3)
        return None
    return network


def _keep(path: Path, key: str, network: Network) -> None:
    try:
        save_arrays(path, {name: tensor.numpy() for name, tensor in network.state_dict().items()}, {"key": key})
    except FileWriteError as error:
        warnings.warn(f"The trained classifier was not cached: {error}", stacklevel=3)
