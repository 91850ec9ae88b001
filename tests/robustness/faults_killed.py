"""Processes that are killed: by the machine, for want of memory, by somebody in a hurry."""

from __future__ import annotations

import itertools
import os
import signal
import time
from collections.abc import Callable, Iterator

import numpy as np
import pandas as pd
from rose_carla import RoseOne
from fault_trials import Came, Trial, check_cells, crash_points, finished, gets_through, table, workers_of
from rose_carla._lib.files import write_file
from rose_carla.bench import Judgement, Recourse, Result, Setting, Store
from rose_carla.cli.options import DataChoice
from rose_carla.cli.policy_folder import load_policy

Write = Callable[[], None]
#: Of writing a file whole: it is brought to the disk, about to be renamed, renamed, and the writer gets through.
LEAST_STEPS = 4


def the_benchmark(trial: Trial) -> Came:
    """kill -9 of the benchmark and all of its processes at a random moment"""
    start = time.monotonic()
    expected = trial.calm()
    duration = time.monotonic() - start
    killed = n_kept = n_midway = n_runs = 0
    while killed < trial.times:
        n_runs += 1
        where = trial.folder / f"run {n_runs}"
        while killed < trial.times:
            process = trial.start(trial.benchmark(where))
            moment, there = trial.rng.uniform(0, duration), len(finished(where))
            if trial.rng.random() < 0.5 and there < trial.n_cells:  # when one more is finished, or several
                wanted = trial.rng.integers(there, trial.n_cells)
                while process.poll() is None and len(finished(where)) <= wanted:
                    time.sleep(0.01)
                moment = trial.rng.uniform(0, 0.5)
            if process.wait(moment):
                break
            process.kill()
            killed += 1
            check_cells(where)
            n_kept += len(finished(where))
            n_midway += 0 < len(finished(where)) < trial.n_cells
        before = finished(where)
        done = trial.run(trial.benchmark(where))
        done.check(code=0)
        assert f"of {trial.n_cells} cells {len(before)} had been finished before" in done.out
        assert before.items() <= finished(where).items()
        pd.testing.assert_frame_equal(table(where), expected)
    return killed, (
        f"{n_runs} runs went on after each and ended with the tables of a calm one; {n_midway} of the kills came when "
        f"some cells were finished and others not; of {n_kept} finished cells found all were whole, none computed again"
    )


def a_worker(trial: Trial) -> Came:
    """kill -9 of one of the benchmark's two workers at a random moment"""
    expected = trial.calm()
    killed = n_runs = 0
    while killed < trial.times:
        n_runs += 1
        where = trial.folder / f"run {n_runs}"
        process = trial.start(trial.benchmark(where))
        for _ in range(2):
            while process.poll() is None and not workers_of(process.pid):
                time.sleep(0.1)
            time.sleep(trial.rng.uniform(0, 8))
            alive = workers_of(process.pid) if process.poll() is None else []
            if alive and killed < trial.times:
                os.kill(int(trial.rng.choice(alive)), signal.SIGKILL)
                killed += 1
        process.done().check(code=0)
        pd.testing.assert_frame_equal(table(where), expected)
    return killed, (
        f"{n_runs} runs computed what was lost again and ended with the tables of a calm one; up to two kills a run"
    )


def the_command(trial: Trial) -> Came:
    """kill -9 of 'rose-carla recourse' at a random moment, while it writes over an older file"""
    small = trial.small()
    frame = pd.read_csv(small.folder / "people.csv")
    pd.concat([frame] * (2 if trial.quick else 4)).to_csv(small.folder / "people.csv", index=False)
    plans = trial.folder / "plans.csv"
    words = small.recourse("--chunk", "20", "--out", plans)
    start, killed, n_new = time.monotonic(), 0, 0
    trial.run(words).check(code=0)
    duration, whole, older = time.monotonic() - start, plans.read_bytes(), b"of last week\n"
    while killed < trial.times:
        plans.write_bytes(older)
        process = trial.start(words)
        if process.wait(trial.rng.uniform(0, duration)):
            assert plans.read_bytes() == whole
            continue
        process.kill()
        killed += 1
        found = plans.read_bytes()
        assert found in (older, whole), found
        n_new += found == whole
    return killed, f"the older file stayed as it was, or the new one was whole ({n_new} times: killed on its way out)"


def while_writing(trial: Trial) -> Came:
    """kill -9 at every step of writing a training, a policy, a cell and a table over older ones, once and twice"""
    n = 0
    for old, new, read in _writers(trial):
        new()
        after = read()
        old()
        before = read()
        assert before != after
        seen = []
        for _ in crash_points(new):
            seen.append(read())
            assert seen[-1] in (before, after), seen[-1]
        steps = len(seen)
        assert steps >= LEAST_STEPS, "something is written in place, or not brought to the disk"
        assert (seen[0], seen[-1]) == (before, after)
        n += steps
        late, early = (range(max(1, steps - 3), steps), (3,)) if trial.quick else [range(1, steps)] * 2
        for first, second in itertools.product(late, early):
            old()
            gets_through(new, first)
            gets_through(old, second)
            n += 1
            assert read() in (before, after)
    return n, "after each the old one or the new one was there, and whole"


def _writers(trial: Trial) -> Iterator[tuple[Write, Write, Callable[[], object]]]:
    """Ways to write something old and something new to the same place, and to read what is there."""
    folder = trial.folder
    trainings = [
        load_policy(trial.small(name, name=name).policy, DataChoice(""), None) for name in ("tau=0.6", "tau=0.7")
    ]
    training, policy = folder / "training", folder / "policy.safetensors"
    old, new = (lambda each=each: each.training.save(training, each.method, ["rose-carla"]) for each in trainings)
    yield old, new, lambda: load_policy(training, DataChoice(""), None).method.settings.tau
    old, new = (lambda each=each: each.method.save(policy) for each in trainings)
    yield old, new, lambda: RoseOne.load(policy, trainings[0].model).settings.tau
    store, cell = Store(folder / "cells"), Judgement(Recourse(Setting("compas", "linear"), "GrSp"), ("Proximity",))
    old, new = (lambda i=i: store.save(cell, Result({"Proximity": np.full(4, i)})) for i in (1.0, 2.0))
    yield old, new, lambda: store.find(cell).arrays["Proximity"].tolist()
    table = folder / "table.csv"
    old, new = (lambda i=i: write_file(table, f"{i}\n" * 10_000) for i in (1, 2))
    yield old, new, table.read_text
