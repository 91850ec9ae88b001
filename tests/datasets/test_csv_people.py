"""People of CSV files, validated row by row."""

from __future__ import annotations

import pandas as pd
import pytest
from rose_carla import datasets
from rose_carla.datasets.csv_files import PeopleReader, match_value
from rose_carla.errors import DataError


@pytest.fixture
def data():
    frame = pd.DataFrame({"age": range(60), "home": ["x", " x", "y"] * 20, "loan": [0, 1] * 30})
    return datasets.from_frame(frame, "loan", name="spaces")


@pytest.mark.parametrize(
    ("text", "values", "value"),
    [
        ("1", [0, 1], 1),
        ("1", [0.0, 1.0], 1.0),
        ("2.0", [1, 2], 2),
        ("true", [False, True], True),
        ("FALSE", [False, True], False),
        ("1", ["10", "1"], "1"),
        (" own ", ["own", "rent"], "own"),
        (" own ", [" own", "own"], "own"),
        (" own", ["own", " own"], " own"),
        ("Own", ["own", "rent"], None),
        ("1_0", [10], None),
        ("yes", [0, 1], None),
    ],
)
def test_text_matches_numbers_booleans_and_text(text, values, value):
    found = match_value(text, values)
    assert found == value
    assert type(found) is type(value)


def test_categories_that_differ_in_spaces_only_are_distinct(data, tmp_path):
    (tmp_path / "people.csv").write_text("age,home\n 1 , x\n1,x\n1,x \n1,  x\n1, y\n1, z\n1, \n")
    (chunk,) = PeopleReader(data).chunks(str(tmp_path / "people.csv"), 10)
    assert data.inverse_transform(chunk.encoded)["home"].tolist() == [" x", "x", "x", "x", "y"]
    assert chunk.invalid[5].startswith("Unknown category of 'home' 'z'")
    assert chunk.invalid[6] == "home is missing: fill it in"


def test_empty_rows_are_skipped_or_kept(data, tmp_path):
    path = tmp_path / "people.csv"
    path.write_text("age,home\n1,x\n\n,\n2,y\n")
    (chunk,) = PeopleReader(data).chunks(str(path), 10)
    assert (chunk.labels, [*chunk.invalid]) == (["1", "2", "3"], [1])
    (chunk,) = PeopleReader(data, keep_empty=True).chunks(str(path), 10)
    assert (chunk.labels, chunk.empty, chunk.invalid) == (["1", "2", "3", "4"], [1, 2], {})
    assert chunk.encoded.index.tolist() == [0, 3]


def test_values_outside_the_range_are_invalid_unless_extrapolating(data, tmp_path):
    path = tmp_path / "people.csv"
    path.write_text("age,home\n60,x\n59.000000001,x\n1e300,x\n")
    (chunk,) = PeopleReader(data).chunks(str(path), 10)
    assert chunk.invalid[0].startswith("age is 60, outside the range 0 to 59 of the data: check the value")
    assert chunk.invalid[2].startswith("age is 1e300, too far outside")
    assert chunk.encoded.index.tolist() == [1]
    (chunk,) = PeopleReader(data, extrapolate=True).chunks(str(path), 10)
    assert chunk.outside == {0: "age is 60, outside the range 0 to 59 of the data"}
    assert [*chunk.invalid] == [2]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (b"age\n1\n", "lacks the column home"),
        (b"age;home\n", "separated by ';'"),
        (b"age,home,age\n", "'age' twice"),
        (b"age,home\n30,\xff\n", "not UTF-8 text"),
        (b"age,home\n3," + 200_000 * b"a" + b"\n", "from line 2 on: field larger"),
        (b'age,home\n3,x\n3,"1\n\n', "Look for an unclosed quote"),
    ],
)
def test_unreadable_file_is_an_error(content, message, data, tmp_path):
    (tmp_path / "file.csv").write_bytes(content)
    with pytest.raises(DataError, match=message):
        list(PeopleReader(data).chunks(str(tmp_path / "file.csv"), 10))
