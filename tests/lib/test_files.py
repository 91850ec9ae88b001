"""Files are whole or not there, and nothing but files is replaced."""

from __future__ import annotations

import os
import stat

import pytest
from rose_carla._lib.files import atomic_write, check_writable


def put(path, content=b"new"):
    with atomic_write(path) as file:
        file.write(content)


def test_a_file_is_there_at_the_end_only(tmp_path):
    path = tmp_path / "folder" / "file"
    with atomic_write(path) as file:
        file.write(b"new")
        file.flush()
        assert not path.exists()
    assert path.read_bytes() == b"new"
    assert list(path.parent.iterdir()) == [path]


def test_after_an_error_the_old_file_is_there(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"old")
    with pytest.raises(TypeError):
        put(path, "no bytes")
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_devices_pipes_and_folders_are_not_replaced(tmp_path):
    """Root, who may, would otherwise turn a device into a file."""
    pipe, folder = tmp_path / "pipe", tmp_path / "folder"
    os.mkfifo(pipe)
    folder.mkdir()
    for path in (pipe, folder):
        before = path.stat()
        with pytest.raises(OSError, match="a folder, a device or a pipe in its place"):
            put(path)
        assert path.stat().st_ino == before.st_ino
        assert stat.S_IFMT(path.stat().st_mode) == stat.S_IFMT(before.st_mode)
    assert {*tmp_path.iterdir()} == {pipe, folder}


@pytest.mark.parametrize("target", ["there", "nowhere"])
def test_links_are_not_followed(target, tmp_path):
    (tmp_path / "there").write_bytes(b"old")
    link = tmp_path / "link"
    link.symlink_to(tmp_path / target)
    put(link)
    assert link.read_bytes() == b"new"
    assert not link.is_symlink()
    assert (tmp_path / "there").read_bytes() == b"old"


def test_a_replaced_file_stays_private(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"old")
    path.chmod(0o600)
    put(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_what_killed_processes_left_is_removed_a_day_later(tmp_path):
    old, young = tmp_path / ".rose-carla-0.tmp", tmp_path / ".rose-carla-1.tmp"
    for path in (old, young):
        path.write_bytes(b"half")
    os.utime(old, (0, 0))
    put(tmp_path / "file")
    assert not old.exists()
    assert young.exists()


def test_looking_at_a_folder_leaves_nothing(tmp_path):
    check_writable(tmp_path / "a" / "b")
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(NotADirectoryError):
        check_writable(tmp_path / "file" / "b")
