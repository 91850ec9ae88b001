"""Classifiers: the paper's two in torch, and wrappers of fitted ones as CARLA models."""

from rose_carla.models.estimators import SklearnModel
from rose_carla.models.mlmodel import (
    EncodedModel,
    accuracy,
    encoded_rows,
    favourable,
    negative_instances,
    probability,
)
from rose_carla.models.networks import (
    Logit,
    Network,
    TorchModel,
    TrainingSettings,
    default_settings,
    logit,
    paper_settings,
    train,
)
from rose_carla.models.wrap import TensorFlowModel, to_tensorflow, wrap

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
    "probability",
    "to_tensorflow",
    "train",
    "wrap",
]
