"""Shared fixtures: the paper's data sets and classifiers, created once per test process."""

from __future__ import annotations

import os
import tempfile

# CARLA and this package store trained models below these; tests must not touch the user's home.
# Parallel test processes share what their parent process made, and so the classifiers that any of them has trained.
_HOME = os.environ.get("ROSE_CARLA_TESTS_HOME") or tempfile.mkdtemp(prefix="rose_carla_tests_")
os.environ["ROSE_CARLA_TESTS_HOME"] = _HOME
os.environ.update(
    HOME=_HOME,
    ROSE_CARLA_CACHE=os.path.join(_HOME, "cache"),
    CF_MODELS=os.path.join(_HOME, "carla"),
    MPLBACKEND="agg",
    TF_CPP_MIN_LOG_LEVEL="3",
    CUDA_VISIBLE_DEVICES="-1",
    # Parallel test processes keep all cores busy: further threads would only compete with them.
    OMP_NUM_THREADS="1",
    TF_NUM_INTRAOP_THREADS="1",
    TF_NUM_INTEROP_THREADS="1",
)

from pathlib import Path

import pytest
import torch
from rose_carla import datasets, models
from warm_python import WarmPython

#: Doctests that train a policy or a method.
SLOW_DOCTESTS = ("Arar", "Croco", "FastAR", "Plan", "RoseMul", "RoseOne", "learning_curve", "plan_chart")

torch.set_num_threads(1)
pytest.register_assert_rewrite("cli_examples")  # before its first import


def pytest_collection_modifyitems(items):
    for item in items:
        if isinstance(item, pytest.DoctestItem) and item.name.rpartition(".")[2] in SLOW_DOCTESTS:
            item.add_marker(pytest.mark.slow)
        if "warm_python" in getattr(item, "fixturenames", ()):  # starts Python anew
            item.add_marker(pytest.mark.slow)
        if Path(__file__).parent / "robustness" in item.path.parents:
            item.add_marker(pytest.mark.robustness)


@pytest.fixture(scope="session")
def compas():
    return datasets.load("compas")


@pytest.fixture(scope="session")
def german():
    return datasets.load("german")


@pytest.fixture(scope="session")
def adult():
    return datasets.load("adult")


@pytest.fixture(scope="session")
def compas_ann(compas):
    return models.train(compas, "ann")


@pytest.fixture(scope="session")
def compas_linear(compas):
    return models.train(compas, "linear")


@pytest.fixture(scope="session")
def warm_python():
    with WarmPython() as python:
        yield python


@pytest.fixture(scope="session")
def encoded(compas):
    return compas.df_train.drop(columns=compas.target), compas.df_train[compas.target]
