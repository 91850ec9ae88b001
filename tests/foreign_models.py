"""A third-party CARLA model and quick options for the tests of unusual models."""

from __future__ import annotations

from rose_carla import baselines
from carla.models.api import MLModel

TINY = {
    "ppo": {"n_updates": 2, "n_envs": 8, "n_steps": 4, "n_epochs": 1, "hidden": 8, "batch_size": 16},
    "max_actions": 6,
    "action_unit": 0.1,
}
GRADIENT = (baselines.Probe, baselines.Croco, baselines.Roar, baselines.Arar)


class Foreign(MLModel):
    """A third-party CARLA model that delegates to one of ours."""

    feature_input_order = None  # abstract in CARLA's class
    backend = "foreign"
    raw_model = None

    def __init__(self, inner, order=None, module=None):
        super().__init__(inner.data)
        self.inner = inner
        self.feature_input_order = inner.feature_input_order if order is None else order
        if module is not None:
            self.raw_model, self.backend = module, "pytorch"

    def predict(self, x):
        return self.predict_proba(x)[:, [1]]

    def predict_proba(self, x):
        return self.inner.predict_proba(x)
