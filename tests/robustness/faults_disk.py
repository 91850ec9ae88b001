"""Disks that are full, folders that cannot be written or disappear, streams that are closed."""

from __future__ import annotations

import contextlib
import os
import resource
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import rose_carla
import pandas as pd
from fault_trials import Came, NotTried, Trial, check_cells, finished, table

FULL = Path("/dev/full")


def _mount(*words: str) -> None:
    if subprocess.run(["mount", *words], capture_output=True, check=False).returncode != 0:
        raise NotTried("needs the right to mount disks")


@contextlib.contextmanager
def disk_of(folder: Path, kilobytes: int) -> Iterator[None]:
    """A small disk of its own in place of a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    _mount("-t", "tmpfs", "-o", f"size={kilobytes}k", "tmpfs", str(folder))
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


@contextlib.contextmanager
def read_only(folder: Path) -> Iterator[None]:
    """Nothing can be written in a folder, nor below it, by root neither."""
    if os.geteuid() != 0:
        below = {path: path.stat().st_mode for path in (folder, *folder.rglob("*")) if path.is_dir()}
        for path in below:
            path.chmod(0o555)
        try:
            yield
        finally:
            for path, mode in below.items():
                path.chmod(mode)
        return
    _mount("--bind", str(folder), str(folder))
    try:
        _mount("-o", "remount,bind,ro", str(folder))
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def full(trial: Trial) -> Came:
    """the disk of the finished cells is full in the middle of a run of the benchmark; later there is room again"""
    expected, kept = trial.calm(), []
    for number in range(trial.times):
        where = trial.folder / f"run {number}"
        with disk_of(where / "cells", 8 if trial.quick else int(trial.rng.integers(12, 40))):
            trial.run(trial.benchmark(where)).check("Cannot write", ".safetensors", "No space left on device")
            check_cells(where)
            before = finished(where)
            kept.append(len(before))
            _mount("-o", "remount,size=100m", str(where / "cells"))
            trial.run(trial.benchmark(where)).check(code=0)
            assert before.items() <= finished(where).items()
            pd.testing.assert_frame_equal(table(where), expected)
    return trial.times, (
        f"'No space left on device'; {min(kept)} to {max(kept)} finished cells were kept, and used by the same command "
        "later, which ended with the tables of a calm run"
    )


def full_for_results(trial: Trial) -> Came:
    """the disk is full for plans, a training and tables"""
    small, folder = trial.small(), trial.folder
    plans = folder / "disk" / "plans.csv"
    trial.run(trial.benchmark(folder)).check(code=0)
    with disk_of(folder / "disk", 8):
        plans.write_text("of last week\n")
        (folder / "disk" / "filler").write_bytes(bytes(4096))
        for words in (
            small.recourse("--out", plans),
            small.train(out=folder / "disk" / "policy"),
            trial.benchmark(folder / "disk", cells=folder / "cells"),
        ):
            trial.run(words).check("error: ", "Cannot write", "No space left on device")
        assert plans.read_text() == "of last week\n"
    return 1, "'No space left on device'; what was there before stayed as it was"


def full_behind_stdout(trial: Trial) -> Came:
    """the disk behind stdout is full"""
    if not FULL.exists():
        raise NotTried(f"needs {FULL}")
    small, folder = trial.small(), trial.folder
    for words in (small.recourse(), ["datasets"], ["--help"], trial.benchmark(folder)):
        trial.run(words, out=FULL).check("error: ", "No space left on device")
    check_cells(folder)
    assert len(finished(folder)) == trial.n_cells
    return 1, "'No space left on device'; the cells of the benchmark were kept"


def cut_off(trial: Trial) -> Came:
    """the system cuts off files at some size: plans, a training, cells"""
    small, folder = trial.small(), trial.folder

    def limited(size: int) -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))

    for words, size in ((small.recourse("--out", folder / "plans.csv"), 512), (small.train(out=folder / "new"), 2048)):
        trial.run(words, before=lambda size=size: limited(size)).check("Cannot write", "File too large")
    assert not (folder / "plans.csv").exists()
    assert not [path for path in (folder / "new").rglob("*") if path.is_file()]
    trial.run(trial.benchmark(folder), before=lambda: limited(1024)).check("Cannot write", "File too large")
    check_cells(folder)
    trial.run(trial.benchmark(folder)).check(code=0)
    return 1, "'File too large'; no part of a file stayed, and the benchmark went on once it could"


def unwritable(trial: Trial) -> Came:
    """folders for cells, tables, a training or plans are read-only"""
    small, folder = trial.small(), trial.folder
    shut = folder / "shut"
    (shut / "cells").mkdir(parents=True)
    with read_only(shut):
        for words in (
            trial.benchmark(folder, cells=shut / "cells"),
            trial.benchmark(shut, cells=folder / "cells"),
            small.train(out=shut / "policy"),
            small.recourse("--out", shut / "plans.csv"),
        ):
            trial.run(words).check("error: ", "Cannot write")
    assert not [path for path in shut.rglob("*") if path.is_file()]
    return 1, "refused in a sentence before any work"


def nothing_writable(trial: Trial) -> Came:
    """nothing can be written at all: not the home, the cache, nor the folder of the package"""
    small, home = trial.small(), trial.folder / "home"
    expected = trial.run(small.recourse("--format", "json"))
    shutil.copytree(Path(rose_carla.__file__).parent, home / "rose_carla", ignore=shutil.ignore_patterns("__pycache__"))
    names = ("HOME", "XDG_CACHE_HOME", "ROSE_CARLA_CACHE", "PYTHONPATH")
    environment = {**os.environ, **dict.fromkeys(names, str(home))}
    with read_only(home):
        done = trial.run(small.recourse("--format", "json"), env=environment)
    done.check("remark: The trained classifier was not cached", code=0)
    assert done.out == expected.out
    return 1, "the same plans, with a remark that the classifier was not kept; loops are compiled in every process"


def removed(trial: Trial) -> Came:
    """somebody removes the folder of the finished cells in the middle of a run"""
    folder = trial.folder
    process = trial.start(trial.benchmark(folder))
    while process.poll() is None and len(finished(folder)) < 2:
        time.sleep(0.01)
    gone = len(finished(folder))
    shutil.rmtree(folder / "cells", ignore_errors=True)
    process.done().check(code=0)
    check_cells(folder)
    whole = table(folder)
    trial.run(trial.benchmark(folder)).check(code=0)
    pd.testing.assert_frame_equal(table(folder), whole)
    return 1, f"the run ended with whole tables; the {gone} cells that were removed are computed by the next one"


def closed_streams(trial: Trial) -> Came:
    """stdin, stdout or stderr are closed when a command starts"""
    small = trial.small()
    expected = trial.run(small.recourse()).out
    for number in (0, 1, 2):
        plans = trial.folder / f"{number}.csv"
        trial.run(small.recourse("--out", plans), before=lambda number=number: os.close(number)).check(code=0)
        assert plans.read_text() == expected
        done = trial.run(small.recourse(), before=lambda number=number: os.close(number))
        done.check(code=0)
        assert done.out == ("" if number == 1 else expected)
    return 1, "the same results; what belongs to one stream goes to no other"
