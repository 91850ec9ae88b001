"""Classifiers: the paper's two in torch, and wrappers of fitted ones as CARLA models."""

from rose_carla.models.mlmodel import EncodedModel, SklearnModel, TensorFlowModel, TorchModel
from rose_carla.models.predictions import (
    Logit,
    accuracy,
    encoded_rows,
    favourable,
    logit,
    negative_instances,
    probabilities,
    probability,
)
from rose_carla.models.training import Network, TrainingSettings, default_settings, paper_settings, train
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
