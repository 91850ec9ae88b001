"""Machine code that is kept between processes: whatever happens to the files, loops compute the same."""

from __future__ import annotations

import errno
import importlib
import multiprocessing
import sys

import numpy as np
import pytest
from rose_carla._lib import files
from rose_carla._lib.compiled import _sources

LOOPS = """
from numba import njit
from rose_carla._lib.compiled import compiled
from parts import part

@compiled(nogil=True)
def total(x):
    result = 0.0
    for value in x:
        result += part(value)
    return result
"""
PARTS = "from numba import njit\n\n@njit(inline='always')\ndef part(value):\n    return 2 * value\n"


def loaded(folder):
    """The loop of a folder, as a new process would have it."""
    _sources.cache_clear()
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        for name in ("parts", "loops"):
            sys.modules.pop(name, None)
        return importlib.import_module("loops").total


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "parts.py").write_text(PARTS)
    (tmp_path / "loops.py").write_text(LOOPS)
    return tmp_path


def hits(loop):
    return sum(loop.stats.cache_hits.values())


def kept(folder):
    return sorted((folder / "__pycache__").glob("*.nb*"))


def test_machine_code_is_used_again(folder):
    first = loaded(folder)
    assert first(np.arange(4.0)) == 12
    assert hits(first) == 0
    again = loaded(folder)
    assert again(np.arange(4.0)) == 12
    assert hits(again) == 1
    assert [path.suffix for path in kept(folder)] == [".nbc", ".nbi"]


@pytest.mark.parametrize("suffix", [".nbi", ".nbc"])
@pytest.mark.parametrize("damage", ["truncated", "zeros", "garbage", "empty", "missing"])
def test_damaged_machine_code_is_compiled_anew_and_mended(folder, suffix, damage):
    loaded(folder)(np.arange(4.0))
    (path,) = (path for path in kept(folder) if path.suffix == suffix)
    whole = path.read_bytes()
    broken = {"truncated": whole[: len(whole) // 2], "zeros": bytes(len(whole)), "garbage": b"\xda" * 500, "empty": b""}
    path.unlink() if damage == "missing" else path.write_bytes(broken[damage])
    anew = loaded(folder)
    assert anew(np.arange(4.0)) == 12
    assert hits(anew) == 0
    again = loaded(folder)
    assert again(np.arange(4.0)) == 12
    assert hits(again) == 1
    assert len(kept(folder)) == 2


def test_a_change_of_another_module_of_the_folder_is_seen(folder):
    loaded(folder)(np.arange(4.0))
    stamp = (folder / "loops.py").stat().st_mtime_ns
    (folder / "parts.py").write_text(PARTS.replace("2 * value", "30 * value"))
    changed = loaded(folder)
    assert (folder / "loops.py").stat().st_mtime_ns == stamp
    assert changed(np.arange(4.0)) == 180
    assert len(kept(folder)) == 2


def test_a_disk_that_is_full_is_no_hindrance(folder, monkeypatch):
    def full(path):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(files, "atomic_write", full)
    assert loaded(folder)(np.arange(4.0)) == 12
    assert kept(folder) == []


def test_nowhere_to_keep_it_is_no_hindrance(folder, monkeypatch):
    monkeypatch.setattr("numba.core.caching.CacheImpl._locator_classes", [])
    assert loaded(folder)(np.arange(4.0)) == 12
    assert kept(folder) == []


def _call(folder, kind, start, results):
    loop = loaded(folder)
    start.wait()
    results.put((kind, loop(np.arange(4, dtype=kind))))


@pytest.mark.slow
def test_many_processes_that_compile_for_several_types_at_once_disagree_about_nothing(folder):
    kinds = ["f8", "f4", "i8", "i4", "i2", "u1"] * 4
    fork = multiprocessing.get_context("fork")
    start, results = fork.Barrier(len(kinds)), fork.Queue()
    processes = [fork.Process(target=_call, args=(folder, kind, start, results)) for kind in kinds]
    for process in processes:
        process.start()
    told = [results.get(timeout=120) for _ in kinds]
    for process in processes:
        process.join()
    assert sorted(kind for kind, _ in told) == sorted(kinds)
    assert {total for _, total in told} == {12.0}
    for kind in sorted({*kinds}):
        assert loaded(folder)(np.arange(4, dtype=kind)) == 12
    assert len(kept(folder)) == 7


@pytest.mark.slow
def test_no_two_processes_give_the_same_name_to_what_they_compile(folder):
    """As numba's numbers would, and then one signature would get the machine code of another."""
    first, second = (loaded(folder)._cache._cache_file for _ in range(2))
    names = {kept._data_name(1) for kept in (first, second) for _ in range(50)}
    assert len(names) == 100
