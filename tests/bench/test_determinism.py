"""The same seed gives the same numbers on any number of threads; ``make determinism`` is the long form."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch
from rose_carla import RoseMul, RoseOne, baselines, models
from benchmark_scripts import script
from rose_carla._lib.files import save_arrays

pytestmark = pytest.mark.slow

TINY = {"ppo": {"n_updates": 2, "n_envs": 64, "n_steps": 8}, "n_check": 100}
#: Methods with few steps; the people of COMPAS are enough for our loops to share them out.
METHODS = {
    "RoseOne": (RoseOne, TINY),
    "RoseMul": (RoseMul, TINY),
    "Croco": (baselines.Croco, {"n_steps": 20}),
    "Cogs": (baselines.Cogs, {"n_generations": 3}),
}


@pytest.mark.parametrize("name", METHODS)
def test_recourse_and_metrics_are_the_same_on_any_number_of_threads(name, compas_ann):
    kind, options = METHODS[name]
    people = models.negative_instances(compas_ann).head(12)
    evaluate = script("determinism").evaluate
    one = evaluate(kind, options, compas_ann, people, (1, 1, 1))
    several = evaluate(kind, options, compas_ann, people, (3, 4, 2))
    pd.testing.assert_frame_equal(several, one, check_exact=True)
    assert one.notna().any(axis=None)


def test_classifier_is_the_same_on_any_number_of_threads(compas, monkeypatch):
    seen, usual = set(), torch.optim.RMSprop.step

    def step(self, *arguments):
        seen.add(torch.get_num_threads())  # so small a network might give the same bits by chance
        return usual(self, *arguments)

    monkeypatch.setattr(torch.optim.RMSprop, "step", step)
    classify = script("determinism").classify
    one, several = (classify(compas, threads) for threads in ((1, 1, 1), (3, 4, 2)))
    pd.testing.assert_frame_equal(several, one, check_exact=True)
    assert seen == {1}


def test_comparison_reports_differences(tmp_path):
    determinism = script("determinism")
    frame = pd.DataFrame({"a": [1.0, np.nan], "b": ["x", "y"]})
    assert determinism.compare(frame.copy(), frame) == "4 of 4 values the same, largest difference 0"
    other = pd.DataFrame({"a": [1.5, np.nan], "b": ["x", "z"]})
    assert determinism.compare(other, frame) == "2 of 4 values the same, largest difference 0.5"
    save_arrays(tmp_path / "cell.safetensors", {"values": np.ones(3)}, {"seconds": 1.5})
    assert determinism.arrays(tmp_path) == {("cell.safetensors", "values"): np.ones(3).tobytes()}
