"""Same seed, same numbers: whatever the number of jobs and of threads, and again.

Run as ``make determinism`` or ``python benchmarks/determinism.py [jobs] [threads] [--datasets ...]``. For each way to
run it prints how many values are the same, and the largest difference of the others; for runs with several jobs also
how many arrays of the cells, which are not rounded as the tables are.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pandas as pd
import torch
from rose_carla import Benchmark, RoseMul, RoseOne, baselines, datasets, models
from rose_carla._lib.files import load_arrays
from rose_carla.method import Method
from threadpoolctl import threadpool_limits

PARTS = ("jobs", "threads")
JOBS = (1, 2, 3, 1)
#: Threads of our own loops, of torch, and of linear algebra.
THREADS = ((1, 1, 1), (2, 1, 1), (3, 4, 1), (1, 1, 4), (2, 2, 2))
METHODS: tuple[type[Method], ...] = (
    RoseOne, RoseMul, baselines.FastAR, baselines.Probe, baselines.Croco, baselines.Cogs, baselines.Roar,
    baselines.Arar,
)  # fmt: skip
#: Columns of times, which differ between runs.
HOW = ["Recourse_Time", "Training_Time", "Alone"]
PEOPLE = 20


def compare(ours: pd.DataFrame, expected: pd.DataFrame) -> str:
    """Return how many values are the same, and the largest difference of the others."""
    assert list(ours.columns) == list(expected.columns)
    assert ours.index.equals(expected.index)
    numbers = ours.select_dtypes("number").columns
    same = (ours == expected) | (ours.isna() & expected.isna())
    apart = np.nanmax(np.abs(ours[numbers] - expected[numbers]).to_numpy(dtype=float), initial=0.0)
    return f"{same.to_numpy().sum():,} of {same.size:,} values the same, largest difference {apart:g}"


def by_jobs(names: list[str]) -> None:
    """Compute Table 1 with several numbers of jobs, and once more with the first."""
    script = Path(__file__).with_name("run_table1.py")
    with tempfile.TemporaryDirectory() as folder:
        expected, expected_arrays = None, {}
        for number, jobs in enumerate(JOBS):
            where = Path(folder, str(number))
            places = ["--out", str(where / "out"), "--cells", str(where / "cells")]
            words = [sys.executable, str(script), "--quick", "--datasets", *names, "--jobs", str(jobs), *places]
            subprocess.run(words, check=True, capture_output=True)
            people = pd.read_csv(where / "out" / "table1-people.csv").drop(columns=HOW)
            found = arrays(where / "cells")
            if expected is None:
                expected, expected_arrays = people, found
                print(f"--jobs {jobs}: {len(people):,} rows of {', '.join(names)}, nine methods", flush=True)
            else:
                assert found.keys() == expected_arrays.keys()
                same = sum(found[each] == expected_arrays[each] for each in found)
                summary = f"{same:,} of {len(found):,} arrays of cells the same to the last bit"
                print(f"--jobs {jobs}: {compare(people, expected)}; {summary}", flush=True)


def arrays(cells: Path) -> dict[tuple[str, str], bytes]:
    """Return the bytes of all arrays of finished cells, by file and name."""
    found = {}
    for path in cells.rglob("*.safetensors"):
        for name, array in load_arrays(path)[0].items():
            found[str(path.relative_to(cells)), name] = array.tobytes()
    return found


def by_threads(names: list[str]) -> None:
    """Training of classifiers and policies, recourse and all metrics with several numbers of threads."""
    for name in names:
        data = datasets.load(name, all_actionable=True)
        predicted = [classify(data, threads) for threads in THREADS]
        summary = {compare(each, predicted[0]) for each in predicted[1:]}
        print(f"{name:7} network   {len(THREADS)} ways: {'; '.join(sorted(summary))}", flush=True)
        model = models.train(data, "ann")
        people = models.negative_instances(model).head(PEOPLE)
        for kind in METHODS:
            results = [evaluate(kind, {}, model, people, threads) for threads in THREADS]
            summary = {compare(each, results[0]) for each in results[1:]}
            print(f"{name:7} {kind.name:9} {len(THREADS)} ways: {'; '.join(sorted(summary))}", flush=True)


@contextlib.contextmanager
def limit_threads(threads: tuple[int, int, int]) -> Iterator[None]:
    """Set the numbers of threads of our loops, of torch and of linear algebra."""
    ours, of_torch, of_algebra = threads
    before = torch.get_num_threads()
    try:
        with mock.patch.dict(os.environ, ROSE_CARLA_THREADS=str(ours)), threadpool_limits(of_algebra):
            torch.set_num_threads(of_torch)
            yield
    finally:
        torch.set_num_threads(before)


def classify(data: datasets.Dataset, threads: tuple[int, int, int]) -> pd.DataFrame:
    """Train a network and return its predictions for all test rows."""
    with limit_threads(threads):
        model = models.train(data, "ann", use_cache=False)
        return pd.DataFrame(model.predict_proba(data.df_test), index=data.df_test.index)


def evaluate(
    kind: type[Method],
    options: Mapping[str, Any],
    model: models.TorchModel,
    people: pd.DataFrame,
    threads: tuple[int, int, int],
) -> pd.DataFrame:
    """Counterfactuals and all metrics."""
    with limit_threads(threads):
        benchmark = Benchmark(model, kind(model, options), people, {"n_samples": 200})
        metrics = benchmark.run_benchmark()
    timed = [column for column in metrics.columns if "time" in column.lower()]
    return pd.concat([benchmark.counterfactuals, metrics.drop(columns=timed)], axis=1)


def main() -> None:
    """Compare the requested parts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", default=PARTS, metavar="PART", help=f"some of {', '.join(PARTS)}")
    parser.add_argument("--datasets", nargs="+", default=list(datasets.NAMES), choices=list(datasets.NAMES))
    chosen = parser.parse_args()
    if "jobs" in chosen.parts:
        by_jobs(chosen.datasets)
    if "threads" in chosen.parts:
        by_threads(chosen.datasets)


if __name__ == "__main__":
    main()
