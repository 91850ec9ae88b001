"""Processes that are killed, closed streams, full disks and read-only folders."""

from __future__ import annotations

import contextlib
import itertools
import os
import resource
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import rose_carla
import numpy as np
import pandas as pd
from rose_carla import RoseOne
from fault_trials import (
    NotTried,
    Outcome,
    Trial,
    check_cells,
    crash_points,
    run_until_step,
    stored_cells,
    table,
    workers_of,
)
from rose_carla._lib.files import write_file
from rose_carla.bench import Judgement, Recourse, Result, Setting, Store
from rose_carla.cli.inputs import load_policy
from rose_carla.cli.options import DataChoice

Write = Callable[[], None]
#: Steps of an atomic write: before flushing, before and after renaming, and the write that completes.
ATOMIC_STEPS = 4
FULL = Path("/dev/full")


def kill_benchmark(trial: Trial) -> Outcome:
    """kill -9 of the benchmark and all of its processes at a random moment"""
    expected = trial.undisturbed()
    start = time.monotonic()  # the first run also compiles loops and trains classifiers
    trial.run(trial.benchmark(trial.folder / "timed")).check(code=0)
    duration = time.monotonic() - start
    killed = n_found = n_midway = n_runs = 0
    while killed < trial.times:
        n_runs += 1
        folder = trial.folder / f"run {n_runs}"
        while killed < trial.times:
            process = trial.start(trial.benchmark(folder))
            moment, n_before = trial.rng.uniform(0, duration), len(stored_cells(folder))
            if trial.rng.random() < 0.5 and n_before < trial.n_cells:  # soon after another cell is stored
                wanted = trial.rng.integers(n_before, trial.n_cells)
                while process.poll() is None and len(stored_cells(folder)) <= wanted:
                    time.sleep(0.01)
                moment = trial.rng.uniform(0, 0.5)
            if process.wait(moment):
                break
            process.kill()
            killed += 1
            check_cells(folder)
            n_found += len(stored_cells(folder))
            n_midway += 0 < len(stored_cells(folder)) < trial.n_cells
        before = stored_cells(folder)
        done = trial.run(trial.benchmark(folder))
        done.check(code=0)
        assert f"{len(before)} of {trial.n_cells} cells were stored before" in done.out
        assert before.items() <= stored_cells(folder).items()
        pd.testing.assert_frame_equal(table(folder), expected)
    return killed, (
        f"identical tables after resuming, in {n_runs} runs; {n_midway} kills between the first and the last cell; all "
        f"{n_found} stored cells found after kills were valid, and none was computed again"
    )


def kill_worker(trial: Trial) -> Outcome:
    """kill -9 of one of the benchmark's two worker processes at a random moment"""
    expected = trial.undisturbed()
    killed = n_runs = 0
    while killed < trial.times:
        n_runs += 1
        folder = trial.folder / f"run {n_runs}"
        process = trial.start(trial.benchmark(folder))
        while process.poll() is None and not workers_of(process.pid):
            time.sleep(0.1)
        time.sleep(trial.rng.uniform(0, 8))
        alive = workers_of(process.pid) if process.poll() is None else []
        if alive:
            os.kill(int(trial.rng.choice(alive)), signal.SIGKILL)
            killed += 1
        process.complete().check(code=0)
        pd.testing.assert_frame_equal(table(folder), expected)
    return killed, "the lost cell was computed again in the same run; identical tables"


def kill_recourse(trial: Trial) -> Outcome:
    """kill -9 of 'rose-carla recourse' at a random moment while it replaces an older file"""
    example = trial.example()
    frame = pd.read_csv(example.folder / "people.csv")
    pd.concat([frame] * (2 if trial.quick else 4)).to_csv(example.folder / "people.csv", index=False)
    plans = trial.folder / "plans.csv"
    words = example.recourse("--chunk", "20", "--out", plans)
    start, killed, n_new = time.monotonic(), 0, 0
    trial.run(words).check(code=0)
    duration, new, old = time.monotonic() - start, plans.read_bytes(), b"older plans\n"
    while killed < trial.times:
        plans.write_bytes(old)
        process = trial.start(words)
        if process.wait(trial.rng.uniform(0, duration)):
            assert plans.read_bytes() == new
            continue
        process.kill()
        killed += 1
        found = plans.read_bytes()
        assert found in (old, new), found
        n_new += found == new
    return killed, f"the older file unchanged, or the new one complete ({n_new} times)"


def kill_while_writing(trial: Trial) -> Outcome:
    """kill -9 at every step of replacing a policy folder, a policy, a cell and a table, once and twice in a row"""
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
        assert steps >= ATOMIC_STEPS, "a file is written in place, or not flushed to the disk"
        assert (seen[0], seen[-1]) == (before, after)
        n += steps
        late, early = (range(max(1, steps - 3), steps), (3,)) if trial.quick else [range(1, steps)] * 2
        for first, second in itertools.product(late, early):
            old()
            run_until_step(new, first)
            run_until_step(old, second)
            n += 1
            assert read() in (before, after)
    return n, "the old or the new one, complete"


def _writers(trial: Trial) -> Iterator[tuple[Write, Write, Callable[[], object]]]:
    """Yield functions that write something old, write something new to the same place, and read what is there."""
    folder = trial.folder
    policies = [
        load_policy(trial.example(name, name=name).policy, DataChoice(""), None) for name in ("tau=0.6", "tau=0.7")
    ]
    policy_folder, policy = folder / "policy", folder / "policy.safetensors"
    old, new = (lambda each=each: each.training.save(policy_folder, each.method, ["rose-carla"]) for each in policies)
    yield old, new, lambda: load_policy(policy_folder, DataChoice(""), None).method.settings.tau
    old, new = (lambda each=each: each.method.save(policy) for each in policies)
    yield old, new, lambda: RoseOne.load(policy, policies[0].model).settings.tau
    store, cell = Store(folder / "cells"), Judgement(Recourse(Setting("compas", "linear"), "GrSp"), ("Proximity",))
    old, new = (lambda i=i: store.save(cell, Result({"Proximity": np.full(4, i)})) for i in (1.0, 2.0))
    yield old, new, lambda: store.find(cell).arrays["Proximity"].tolist()
    csv = folder / "table.csv"
    old, new = (lambda i=i: write_file(csv, f"{i}\n" * 10_000) for i in (1, 2))
    yield old, new, csv.read_text


def full_disk_for_cells(trial: Trial) -> Outcome:
    """the disk for cells is full in the middle of the benchmark, and has space again later"""
    expected, kept = trial.undisturbed(), []
    for number in range(trial.times):
        folder = trial.folder / f"run {number}"
        with _small_disk(folder / "cells", 8 if trial.quick else int(trial.rng.integers(12, 40))):
            trial.run(trial.benchmark(folder)).check("error: ", "Cannot write ", "No space left on device")
            check_cells(folder)
            before = stored_cells(folder)
            kept.append(len(before))
            _mount("-o", "remount,size=100m", str(folder / "cells"))
            trial.run(trial.benchmark(folder)).check(code=0)
            assert before.items() <= stored_cells(folder).items()
            pd.testing.assert_frame_equal(table(folder), expected)
    return trial.times, (
        f"'No space left on device'; {min(kept)} to {max(kept)} cells stayed stored and were reused; identical tables "
        "after resuming"
    )


def full_disk_for_results(trial: Trial) -> Outcome:
    """the disk is full for plans, a policy and tables"""
    example, folder = trial.example(), trial.folder
    plans = folder / "disk" / "plans.csv"
    trial.run(trial.benchmark(folder)).check(code=0)
    with _small_disk(folder / "disk", 8):
        plans.write_text("older plans\n")
        (folder / "disk" / "filler").write_bytes(bytes(4096))
        for words in (
            example.recourse("--out", plans),
            example.train(out=folder / "disk" / "policy"),
            trial.benchmark(folder / "disk", cells=folder / "cells"),
        ):
            trial.run(words).check("error: ", "No space left on device")
        assert plans.read_text() == "older plans\n"
    return 1, "'No space left on device'; older files unchanged"


def full_stdout(trial: Trial) -> Outcome:
    """the disk to which stdout is redirected is full"""
    if not FULL.exists():
        raise NotTried(f"needs {FULL}")
    example, folder = trial.example(), trial.folder
    for words in (example.recourse(), ["datasets"], ["--help"], trial.benchmark(folder)):
        trial.run(words, out=FULL).check("error: ", "No space left on device")
    check_cells(folder)
    assert len(stored_cells(folder)) == trial.n_cells
    return 1, "'No space left on device'; all cells of the benchmark were stored"


def file_size_limit(trial: Trial) -> Outcome:
    """the system limits the size of files: plans, a policy, cells"""
    example, folder = trial.example(), trial.folder

    def limit(size: int) -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))

    commands = ((example.recourse("--out", folder / "plans.csv"), 512), (example.train(out=folder / "new"), 2048))
    for words, size in commands:
        trial.run(words, before=lambda size=size: limit(size)).check("error: ", "File too large")
    assert not (folder / "plans.csv").exists()
    assert not [path for path in (folder / "new").rglob("*") if path.is_file()]
    trial.run(trial.benchmark(folder), before=lambda: limit(1024)).check("error: ", "File too large")
    check_cells(folder)
    trial.run(trial.benchmark(folder)).check(code=0)
    return 1, "'File too large'; no partial file; the benchmark resumes without the limit"


def read_only_folders(trial: Trial) -> Outcome:
    """folders for cells, tables, a policy or plans are read-only"""
    example, folder = trial.example(), trial.folder
    locked = folder / "locked"
    (locked / "cells").mkdir(parents=True)
    with _read_only(locked):
        for words in (
            trial.benchmark(folder, cells=locked / "cells"),
            trial.benchmark(locked, cells=folder / "cells"),
            example.train(out=locked / "policy"),
            example.recourse("--out", locked / "plans.csv"),
        ):
            trial.run(words).check("error: Cannot write ")
    assert not [path for path in locked.rglob("*") if path.is_file()]
    return 1, "rejected before any computation, with the reason"


def read_only_machine(trial: Trial) -> Outcome:
    """home, cache and the folder of the package are read-only"""
    example, home = trial.example(), trial.folder / "home"
    expected = trial.run(example.recourse("--format", "json"))
    shutil.copytree(Path(rose_carla.__file__).parent, home / "rose_carla", ignore=shutil.ignore_patterns("__pycache__"))
    names = ("HOME", "XDG_CACHE_HOME", "ROSE_CARLA_CACHE", "PYTHONPATH")
    environment = {**os.environ, **dict.fromkeys(names, str(home))}
    with _read_only(home):
        done = trial.run(example.recourse("--format", "json"), env=environment)
    done.check("The trained classifier was not cached", code=0)
    assert done.out == expected.out
    return 1, "identical plans, and a remark that the classifier was not cached"


def removed_cells(trial: Trial) -> Outcome:
    """the folder of cells is removed in the middle of the benchmark"""
    folder = trial.folder
    process = trial.start(trial.benchmark(folder))
    while process.poll() is None and len(stored_cells(folder)) < 2:
        time.sleep(0.01)
    n_removed = len(stored_cells(folder))
    shutil.rmtree(folder / "cells", ignore_errors=True)
    process.complete().check(code=0)
    check_cells(folder)
    first = table(folder)
    trial.run(trial.benchmark(folder)).check(code=0)
    pd.testing.assert_frame_equal(table(folder), first)
    return 1, f"complete tables; the next run computed the {n_removed} removed cells again, identical tables"


def closed_streams(trial: Trial) -> Outcome:
    """stdin, stdout or stderr are closed when a command starts"""
    example = trial.example()
    expected = trial.run(example.recourse()).out
    for number in (0, 1, 2):
        plans = trial.folder / f"{number}.csv"
        trial.run(example.recourse("--out", plans), before=lambda number=number: os.close(number)).check(code=0)
        assert plans.read_text() == expected
        done = trial.run(example.recourse(), before=lambda number=number: os.close(number))
        done.check(code=0)
        assert done.out == ("" if number == 1 else expected)
    return 1, "identical plans; no output in the wrong stream"


def _mount(*words: str) -> None:
    if subprocess.run(["mount", *words], capture_output=True, check=False).returncode != 0:
        raise NotTried("needs the right to mount disks")


@contextlib.contextmanager
def _small_disk(folder: Path, kilobytes: int) -> Iterator[None]:
    """Mount a small disk at a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    _mount("-t", "tmpfs", "-o", f"size={kilobytes}k", "tmpfs", str(folder))
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


@contextlib.contextmanager
def _read_only(folder: Path) -> Iterator[None]:
    """Make a folder and everything in it read-only, also for root."""
    if os.geteuid() != 0:
        modes = {path: path.stat().st_mode for path in (folder, *folder.rglob("*")) if path.is_dir()}
        for path in modes:
            path.chmod(0o555)
        try:
            yield
        finally:
            for path, mode in modes.items():
                path.chmod(mode)
        return
    _mount("--bind", str(folder), str(folder))
    try:
        _mount("-o", "remount,bind,ro", str(folder))
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)
