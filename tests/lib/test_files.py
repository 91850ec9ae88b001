"""Atomic writes, and arrays that come back bit for bit or raise an error."""

from __future__ import annotations

import os
import stat

import numpy as np
import pytest
from rose_carla._lib import files
from rose_carla._lib.files import (
    FileFormatError,
    FileWriteError,
    atomic_write,
    check_writable,
    load_arrays,
    save_arrays,
    write_file,
)


def put(path, content=b"new"):
    with atomic_write(path) as file:
        file.write(content)


def test_file_appears_when_the_block_ends(tmp_path):
    path = tmp_path / "folder" / "file"
    with atomic_write(path) as file:
        file.write(b"new")
        file.flush()
        assert not path.exists()
    assert path.read_bytes() == b"new"
    assert list(path.parent.iterdir()) == [path]


def test_error_keeps_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "file"
    write_file(path, "± old")
    with pytest.raises(TypeError):
        put(path, "not bytes")

    def full(*_):
        raise OSError("No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(FileWriteError, match="No space left"):
        write_file(path, "new")
    assert path.read_text(encoding="utf-8") == "± old"
    assert list(tmp_path.iterdir()) == [path]


def test_devices_pipes_and_folders_are_not_replaced(tmp_path):
    """Root, who may, would otherwise turn a device into a file."""
    pipe, folder = tmp_path / "pipe", tmp_path / "folder"
    os.mkfifo(pipe)
    folder.mkdir()
    for path in (pipe, folder):
        before = path.stat()
        with pytest.raises(OSError, match="a folder, a device or a pipe"):
            put(path)
        assert path.stat().st_ino == before.st_ino
        assert stat.S_IFMT(path.stat().st_mode) == stat.S_IFMT(before.st_mode)
    assert {*tmp_path.iterdir()} == {pipe, folder}


@pytest.mark.parametrize("target", ["there", "nowhere"])
def test_links_are_replaced(target, tmp_path):
    (tmp_path / "there").write_bytes(b"old")
    link = tmp_path / "link"
    link.symlink_to(tmp_path / target)
    put(link)
    assert link.read_bytes() == b"new"
    assert not link.is_symlink()
    assert (tmp_path / "there").read_bytes() == b"old"


def test_mode_is_kept(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"old")
    path.chmod(0o600)
    put(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_temporary_files_of_killed_processes_are_removed_after_a_day(tmp_path):
    old, young = tmp_path / ".rose-carla-0.tmp", tmp_path / ".rose-carla-1.tmp"
    for path in (old, young):
        path.write_bytes(b"half")
    os.utime(old, (0, 0))
    put(tmp_path / "file")
    assert not old.exists()
    assert young.exists()


def test_checking_a_folder_leaves_nothing_behind(tmp_path):
    check_writable(tmp_path / "a" / "b")
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "file").write_bytes(b"")
    for bad in (tmp_path / "file" / "b", tmp_path / "a\0b"):
        with pytest.raises(FileWriteError, match="Cannot write"):
            check_writable(bad)


ARRAYS = {
    "floats": np.array([[1.5, np.nan, -np.inf], [0.0, -0.0, 5e-324]]),
    "integers": np.arange(6).reshape(2, 3).T,  # not contiguous
    "single": np.float32([1, 2, 3]),
    "flags": np.array([True, False]),
    "empty": np.empty((0, 3)),
    "scalar": np.array(7.0),
}


def test_arrays_and_metadata_come_back_bit_for_bit(tmp_path):
    path = tmp_path / "file.safetensors"
    metadata = {"key": "a", "labels": ["Ä", "\udcff", "x\0"], "log": [[1, float("inf")], []], "deep": {"none": None}}
    save_arrays(path, ARRAYS, metadata)
    arrays, found = load_arrays(path)
    assert found == metadata
    assert list(arrays) == list(ARRAYS)
    for name, array in ARRAYS.items():
        assert (arrays[name].dtype, arrays[name].shape) == (array.dtype, array.shape)
        assert arrays[name].tobytes() == array.tobytes()
    content = path.read_bytes()
    save_arrays(path, ARRAYS, metadata)
    assert path.read_bytes() == content


def test_every_changed_byte_is_noticed(tmp_path):
    path = tmp_path / "file.safetensors"
    save_arrays(path, {"a": np.arange(3.0), "b": np.arange(2)}, {"key": "x", "n": 3})
    content = path.read_bytes()
    for place in range(len(content)):
        flipped = content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :]
        for changed in (flipped, *([content[:place]] if place % 7 == 0 else [])):
            path.write_bytes(changed)
            try:
                arrays, metadata = load_arrays(path)
            except FileFormatError:
                continue
            assert metadata == {"key": "x", "n": 3}, place  # white space between tokens may change
            assert [array.tolist() for array in arrays.values()] == [[0, 1, 2], [0, 1]]


def test_other_formats_and_missing_files_are_reported(tmp_path, monkeypatch):
    path = tmp_path / "file.safetensors"
    with monkeypatch.context() as patch:
        patch.setattr(files, "FORMAT", 1)
        save_arrays(path, ARRAYS, {})
    with pytest.raises(FileFormatError, match="has format 1, this version reads format 2"):
        load_arrays(path)
    with pytest.raises(FileFormatError, match="does not exist or is not a regular file"):
        load_arrays(tmp_path / "missing")
