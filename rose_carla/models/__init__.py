"""Classifiers: the paper's two in torch, and any fitted one as a CARLA ``MLModel``."""

from rose_carla.models.gradient import Logit, logit
from rose_carla.models.mlmodel import EncodedModel, SklearnModel, TensorFlowModel, TorchModel
from rose_carla.models.negatives import negative_instances
from rose_carla.models.network import Network
from rose_carla.models.outcome import favourable, probabilities, probability
from rose_carla.models.rows import encoded_rows
from rose_carla.models.training import TrainingSettings, accuracy, default_settings, paper_settings, train
from rose_carla.models.wrap import to_tensorflow, wrap

__all__ = [
    "EncodedModel",
    "Logit",
    "Network",
    "SklearnModel",
    "TensorFlowModel",
    "TorchModel",
    "TrainingSettings",
    "accuracy",
    "default_settings",
    "encoded_rows",
    "favourable",
    "logit",
    "negative_instances",
    "paper_settings",
    "probabilities",
    "probability",
    "to_tensorflow",
    "train",
    "wrap",
]
