"""Same seed, same numbers, in a shorter form than ``make determinism`` compares them; jobs are in ``test_backends``."""

from __future__ import annotations

import pandas as pd
import pytest
from rose_carla import RoseMul, RoseOne, baselines, models
from benchmark_scripts import script

TINY = {"ppo": {"n_updates": 2, "n_environments": 64, "n_steps": 8}, "n_check": 100}
#: Methods with few steps; the people of COMPAS are enough for our loops to share them out.
METHODS = {
    "RoseOne": (RoseOne, TINY),
    "RoseMul": (RoseMul, TINY),
    "Croco": (baselines.Croco, {"n_steps": 20}),
    "Cogs": (baselines.Cogs, {"n_generations": 3}),
}


@pytest.mark.parametrize("name", METHODS)
def test_threads_change_no_bit_of_recourse_and_metrics(name, compas_ann):
    kind, options = METHODS[name]
    people = models.negative_instances(compas_ann).head(12)
    judged = script("determinism").judged
    one = judged(kind, options, compas_ann, people, (1, 1, 1))
    several = judged(kind, options, compas_ann, people, (3, 4, 2))
    pd.testing.assert_frame_equal(several, one, check_exact=True)
    assert one.notna().any(axis=None)
