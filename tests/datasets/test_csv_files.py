"""Data sets from CSV files."""

from __future__ import annotations

import os
import threading

import pytest
from rose_carla import datasets
from cli_examples import people
from rose_carla.cli.options import read_frame
from rose_carla.datasets.csv_files import read_table
from rose_carla.errors import DataError


def test_from_csv(tmp_path):
    path = tmp_path / "my loans.csv"
    people().to_csv(path, index=False)
    data = datasets.from_csv(path, "loan", favourable="granted")
    assert data.name == "my loans"
    assert len(data.df) == 240
    with pytest.raises(DataError, match="Cannot read"):
        datasets.from_csv(tmp_path / "nothing.csv", "loan")


@pytest.mark.parametrize("end", ["gz", "zip", "bz2", "xz"])
def test_files_may_be_compressed(end, tmp_path):
    path = tmp_path / f"loans.csv.{end}"
    people().to_csv(path, index=False)
    assert len(datasets.from_csv(path, "loan", favourable="granted").df) == 240
    path.write_bytes(b"a,b\n1,2\n")
    with pytest.raises(DataError, match=r"Cannot read .*\.$"):
        datasets.from_csv(path, "b")


def test_files_may_be_pipes(tmp_path):
    path = tmp_path / "loans.csv"
    os.mkfifo(path)
    writer = threading.Thread(target=people().to_csv, args=(path,), kwargs={"index": False})
    writer.start()
    assert len(datasets.from_csv(path, "loan", favourable="granted").df) == 240
    writer.join()


@pytest.mark.slow
def test_wide_tables_are_read():
    names = ",".join(f"x{i}" for i in range(10_000))
    assert read_table(f"{names}\n{names}\n".encode(), "wide").shape == (1, 10_000)
    with pytest.raises(DataError, match="the column 'x7' twice"):
        read_table(f"{names},x7\n".encode(), "wide")


def test_unreadable_files_are_rejected(tmp_path):
    path = tmp_path / "table.csv"
    for content in (b"", b"a,b\n1,2\n1,2,3,4\n", "a,ü\n1,2\n".encode("utf-16")):
        path.write_bytes(content)
        with pytest.raises(DataError, match=r"Cannot read .*\.$"):
            datasets.from_csv(path, "loan")
    with pytest.raises(DataError, match=r"Cannot read .*null"):
        datasets.from_csv("table\0.csv", "loan")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"a,b,y\n0,0,y,1\n1,2,n,0\n", "more values than there are column names"),
        (b"a,b,y\nx,0,y,1\nz,2,n,0\n", "more values than there are column names"),
        (b"a,b,y\n0,0,y,1\n1,2,n\n", "more values than there are column names"),
        (b"a,b,y\n0,0,y\n1,2,n,0\n", "line 3"),
        (b"a,a,y\n0,0,y\n1,2,n\n", "the column 'a' twice"),
        (b"a,,y\n0,0,y\n1,2,n\n", "Column 2 of .* has no name"),
        (b"\xef\xbb\xbf ,b,y\n0,0,y\n1,2,n\n", "Column 1 of .* has no name"),
    ],
)
def test_rows_too_long_and_unnamed_columns_are_rejected(content, message, tmp_path):
    path = tmp_path / "table.csv"
    path.write_bytes(content)
    with pytest.raises(DataError, match=message):
        datasets.from_csv(path, "y", favourable="y")
    with pytest.raises(DataError, match=message):
        read_frame(str(path))


@pytest.mark.parametrize(
    "content",
    [b"a,b\n0,1\n2,3\n", b"a,b\n0,1,\n2,3,\n", b"\xef\xbb\xbfa,b\r\n0,1\r\n\r\n2,3\r\n", b'\n"a",b\n0,1\n2,3'],
)
def test_trailing_commas_and_byte_order_marks_are_ignored(content):
    assert read_table(content, "table").to_dict("list") == {"a": [0, 2], "b": [1, 3]}
