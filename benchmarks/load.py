"""Much at once: 100,000 people, 1,000,000 training rows, 24 processes that share a folder.

Run as ``make load`` or ``python benchmarks/load.py [methods] [stream] [density] [processes] [--people N] [--rows N]``.
Every measurement is a process of its own, so its peak of memory is its own. Each part is run at a tenth of the size and
at the full size: memory that is bounded is about the same for both, times ten times as long.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import resource
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from rose_carla import RoseMul, RoseOne, baselines, datasets, models, noise
from rose_carla.bench import Judgement, Recourse, Result, Setting, Store
from rose_carla.cli import main as rose_carla
from rose_carla.method import Method

PARTS = ("methods", "stream", "density", "processes")
PROCESSES = 24
METHODS: dict[str, type[Method]] = {
    kind.name: kind
    for kind in (
        RoseOne, RoseMul, baselines.FastAR, baselines.Probe, baselines.Croco, baselines.Cogs, baselines.Roar,
        baselines.Arar,
    )
}  # fmt: skip
#: These take ten times as long as the others or more: they are measured with a tenth of the people.
SLOW = ("ROSE-mul", "CROCO", "CoGS")
COMPAS = "compas"


def measured(call: Callable[..., Any], *arguments: Any) -> tuple[Any, float, float]:
    """Run a call in its own process; return its result, its seconds and the peak megabytes of it or of a child."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(_measured, call, *arguments).result()


def _measured(call: Callable[..., Any], *arguments: Any) -> tuple[Any, float, float]:
    result, seconds = call(*arguments)
    unit = 1e6 if sys.platform == "darwin" else 1e3
    peaks = [resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return result, seconds, max(peaks) / unit


def crowd(model: models.TorchModel, n: int) -> pd.DataFrame:
    """Return ``n`` different people who are rejected: rows of the data with small changes."""
    data, rng = model.data, np.random.default_rng(0)
    rejected = data.df[model.predict_proba(data.df)[:, 1] < 0.45].drop(columns=data.target)
    people = rejected.sample(2 * n, replace=True, random_state=0).reset_index(drop=True)
    for feature in data.continuous:
        people[feature] = (people[feature] + rng.uniform(-0.01, 0.01, len(people))).clip(0, 1)
    return people[model.predict_proba(people)[:, 1] <= 0.5].head(n).reset_index(drop=True)


def counterfactuals(name: str, n: int) -> tuple[str, float]:
    """``get_counterfactuals`` for ``n`` people, without the training."""
    data = datasets.load(COMPAS)
    model = models.train(data, "ann")
    people = crowd(model, n)
    method = METHODS[name](model)
    start = time.perf_counter()
    ends = method.get_counterfactuals(people)
    seconds = time.perf_counter() - start
    assert ends.index.equals(people.index)
    return f"recourse for {ends.notna().all(axis=1).mean():.1%} of {len(ends):,}", seconds


def stream(folder: str, n: int) -> tuple[str, float]:
    """``rose-carla recourse`` from a file to a file."""
    plans = Path(folder, f"{n}-plans.csv")
    start = time.perf_counter()
    code = rose_carla(["recourse", f"{folder}/{n}.csv", "--policy", f"{folder}/policy", "--out", str(plans)])
    seconds = time.perf_counter() - start
    answered = pd.read_csv(plans)["person"].nunique()
    return f"exit code {code}, answers for {answered:,}, {plans.stat().st_size / 1e6:.1f} MB", seconds


def prepare_stream(folder: str, sizes: list[int], *options: str) -> tuple[str, float]:
    """Train a policy with these options and write files of people in original units."""
    assert rose_carla(["train", COMPAS, "--out", f"{folder}/policy", *options]) == 0
    data = datasets.load(COMPAS)
    model = models.train(data, "ann")
    for n in sizes:
        people = data.inverse_transform(crowd(model, n))
        people.drop(columns=data.target, errors="ignore").to_csv(f"{folder}/{n}.csv", index=False)
    return "", 0.0


def density(n: int, max_points: int) -> tuple[str, float]:
    """Fit K(X) on ``n`` rows of 14 features and draw plausible noise for 1,000 states."""
    rng = np.random.default_rng(0)
    rows = rng.random((n, 14), dtype=np.float64)
    rows[:, 7:] = rows[:, 7:] > 0.5
    start = time.perf_counter()
    fitted = noise.Density(max_points=max_points).fit(rows)
    seconds = time.perf_counter() - start
    noisy = noise.PlausibleNoise(fitted)
    noisy.sample(rows[:10], 0.01, 10, rng)
    start = time.perf_counter()
    noisy.sample(rows[:1000], 0.01, 100, rng)
    drawing = time.perf_counter() - start
    return f"{len(fitted.points_):,} kernels, 100 draws for each of 1,000 states in {drawing:.2f} s", seconds


def share(folder: str, number: int, n_models: int, start: Any, results: Any) -> None:
    """Train the same classifiers and store the same cell as other processes at the same time."""
    os.environ["ROSE_CARLA_CACHE"] = folder
    data = datasets.load(COMPAS)
    settings = models.TrainingSettings((4,), 0.01, 512, 2)
    cell = Judgement(Recourse(Setting(COMPAS, "linear"), "GrSp"), ("Proximity",))
    store = Store(Path(folder, "cells"))
    start.wait(300)  # if one of them dies before, all others give up
    seen = []
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # a damaged file would cause one
        for turn in range(n_models):
            seed = (turn + number) % n_models
            model = models.train(data, "ann", seed=seed, settings=settings)
            seen.append((seed, float(model.predict_proba(data.df.head(100))[:, 1].sum())))
            store.save(cell, Result({"Proximity": np.full(1000, float(number))}))
            found = store.find(cell)
            assert found is not None
            assert len({*found.arrays["Proximity"].tolist()}) == 1
    results.put(seen)


def processes(folder: str, n: int, n_models: int) -> tuple[str, float]:
    """Run many processes that share one cache and one folder of cells."""
    fork = multiprocessing.get_context("fork")
    start, results = fork.Barrier(n), fork.Queue()
    began = time.perf_counter()
    started = [fork.Process(target=share, args=(folder, number, n_models, start, results)) for number in range(n)]
    for process in started:
        process.start()
    for process in started:
        process.join()
    seconds = time.perf_counter() - began
    failed = sum(process.exitcode != 0 for process in started)
    answers = {answer for _ in range(n - failed) for answer in results.get()}
    files = [path for path in Path(folder).rglob("*") if path.is_file()]
    left = sum(path.suffix != ".safetensors" for path in files)
    words = f"{failed} failed, {len(answers)} answers of {n_models} classifiers"
    return f"{words}, {len(files) - left} files, {left} leftovers", seconds


def show(what: str, result: tuple[Any, float, float]) -> None:
    """Print one measurement in a line."""
    words, seconds, megabytes = result
    print(f"{what:<34} {seconds:8.1f} s  peak {megabytes:6,.0f} MB  {words}", flush=True)


def main() -> None:
    """Measure the requested parts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", default=PARTS, metavar="PART", help=f"some of {', '.join(PARTS)}")
    parser.add_argument("--people", type=int, default=100_000)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=list(METHODS))
    chosen = parser.parse_args()
    sizes = [chosen.people // 10, chosen.people]
    if "methods" in chosen.parts:
        for name in chosen.methods:
            for n in [size // 10 for size in sizes] if name in SLOW else sizes:
                show(f"get_counterfactuals {name} {n:,}", measured(counterfactuals, name, n))
    if "stream" in chosen.parts:
        with tempfile.TemporaryDirectory() as folder:
            measured(prepare_stream, folder, sizes)
            for n in sizes:
                show(f"rose-carla recourse {n:,}", measured(stream, folder, n))
    if "density" in chosen.parts:
        for n in (50_000, chosen.rows):
            show(f"density of {n:,} rows", measured(density, n, 50_000))
    if "processes" in chosen.parts:
        with tempfile.TemporaryDirectory() as folder:
            show(f"{PROCESSES} processes, one cache", measured(processes, folder, PROCESSES, 6))


if __name__ == "__main__":
    main()
