"""Many people and processes at once; ``make load`` measures the long form."""

from __future__ import annotations

import json
import tracemalloc
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from rose_carla import RoseMul, RoseOne, baselines
from benchmark_scripts import script
from rose_carla.noise import Density
from rose_carla.rose import sequential
from rose_carla.rose.search import Planner

pytestmark = pytest.mark.slow

TINY = {"ppo": {"n_updates": 1, "n_envs": 8, "n_steps": 4, "hidden": 4}, "search": False, "n_check": 20}


@pytest.fixture(scope="module")
def load():
    """The benchmark as a module."""
    return script("load")


@pytest.mark.parametrize("kind", [RoseOne, RoseMul, baselines.FastAR])
def test_many_people_are_planned_for_in_chunks_with_the_same_plans(kind, load, compas_linear, monkeypatch):
    options = {"ppo": TINY["ppo"]} if kind is baselines.FastAR else TINY
    method, people = kind(compas_linear, options), load.crowd(compas_linear, 25)
    whole, plans = method.get_counterfactuals(people), method.plan(people)
    sizes = []
    usual = Planner.plan

    def counted(self, factuals, *further):
        sizes.append(len(factuals))
        return usual(self, factuals, *further)

    monkeypatch.setattr(Planner, "plan", counted)
    monkeypatch.setattr(sequential, "_CHUNK", 10)
    pd.testing.assert_frame_equal(method.get_counterfactuals(people), whole, check_exact=True)
    assert sizes == [10, 10, 5]
    assert [str(plan) for plan in method.plan(people)] == [str(plan) for plan in plans]
    assert sizes == [10, 10, 5] * 2


def test_density_of_many_rows_has_the_covariance_of_all_and_kernels_of_some():
    rows = np.random.default_rng(0).random((200_000, 5))
    tracemalloc.start()
    density = Density(max_points=2000).fit(rows)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert density.points_.shape == (2000, 5)
    assert len(np.unique(density.points_, axis=0)) == 2000
    expected = np.cov(rows, rowvar=False) * 200_000 ** (-2 / 9) + 1e-6 * np.eye(5)
    np.testing.assert_allclose(density.covariance_, expected, rtol=1e-12)
    assert peak < 3 * rows.nbytes  # the rows, themselves without their mean, and what is small


def test_processes_share_a_cache_and_a_folder_of_cells(load, tmp_path):
    summary, _ = load.processes(str(tmp_path), load.PROCESSES, 2)
    assert summary == "0 failed, 2 answers of 2 classifiers, 3 files, 0 leftovers"


def test_every_measurement_runs(load, tmp_path, monkeypatch):
    """The long form takes an hour, and should not fail at its end."""
    monkeypatch.setattr(load.models, "train", lambda data, kind: load.models.networks.train(data, "linear"))
    words, seconds = load.counterfactuals("ROAR", 20)
    assert words == "recourse for 100.0% of 20"
    assert seconds > 0
    assert load.density(3000, 1000)[0].startswith("1,000 kernels, 100 draws for each of 1,000 states")


def test_stream_is_measured_from_file_to_file(load, tmp_path, capsys):
    quick = [f"{name}={json.dumps(value)}" for name, value in TINY.items()]
    load.prepare_stream(str(tmp_path), [5, 20], *(word for each in quick for word in ("--set", each)))
    assert len(pd.read_csv(tmp_path / "5.csv")) == 5
    words, seconds = load.stream(str(tmp_path), 20)
    assert words.startswith("exit code 0, answers for 20, ")
    assert seconds > 0


@pytest.mark.parametrize(("own", "of_a_child"), [(700_000, 300_000), (300_000, 700_000)])
def test_peak_memory_includes_child_processes(load, own, of_a_child, monkeypatch):
    """With made-up peaks, as the real ones depend on earlier tests."""
    peaks = {load.resource.RUSAGE_SELF: own, load.resource.RUSAGE_CHILDREN: of_a_child}
    monkeypatch.setattr(load.resource, "getrusage", lambda who: SimpleNamespace(ru_maxrss=peaks[who]))
    monkeypatch.setattr(load.sys, "platform", "linux")
    assert load._measured(lambda: ("done", 1.5)) == ("done", 1.5, 700)
