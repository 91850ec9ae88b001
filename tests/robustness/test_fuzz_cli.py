"""Whatever is in a CSV file: an answer for every row, or one sentence that says what is wrong with the file."""

from __future__ import annotations

import csv
import io
import json
import re
from contextlib import redirect_stderr, redirect_stdout

import pandas as pd
import pytest
from cli_examples import folder, inside  # noqa: F401 - a fixture
from fuzz_outcomes import Tally, examples, tell_total, watched
from hypothesis import given
from hypothesis import strategies as st
from rose_carla.cli import main
from test_hostile_files import formulas


@pytest.fixture(scope="module", autouse=True)
def _summary():
    yield
    tell_total()


_CELLS = st.sampled_from(
    [
        *("", " ", "nan", "NA", "inf", "-inf", "1e999", "-", "=1+1", "@SUM(A1)", "9" * 400, "1,5", "1;5", "0x10"),
        *("１２", "٣", " 35 ", "+40", "1_000", "True", "true", "rent", "RENT", "own ", "ß", "\u202eevil", "\x1b[2J"),
        *("a\nb", 'say "x"', "-0", "1e-320", "NaN", "None", "null", "2", "2.0", "3e0", "x" * 5000),
    ]
)
#: From what is odd about a table of text to how it comes about; the first ones leave rows that can be looked at.
ODD = {
    "nothing": lambda frame: frame,
    "further column": lambda frame: frame.assign(note='a, "word"\nor two'),
    "another order": lambda frame: frame[frame.columns[::-1]],
    "column missing": lambda frame: frame.drop(columns="debt"),
    "column renamed": lambda frame: frame.rename(columns={"debt": "Debt"}),
    "column twice": lambda frame: pd.concat([frame, frame[["debt"]]], axis=1),
    "column without a name": lambda frame: frame.rename(columns={"debt": ""}),
    "nobody": lambda frame: frame.head(0),
}
#: From what happens to the bytes of a file to how; the first ones leave the table as it is.
DAMAGE = {
    "none": lambda content: content,
    "byte order mark": lambda content: b"\xef\xbb\xbf" + content,
    "windows": lambda content: content.replace(b"\n", b"\r\n"),
    "blank lines": lambda content: content.replace(b"\n", b"\n\n"),
    "half": lambda content: content[: len(content) // 2],
    "zero": lambda content: content + b"\0\n",
    "quote": lambda content: content + b'"',
    "ragged": lambda content: content + b"1,2\n1,2,3,4,5,6,7,8,9\n",
    "latin": lambda content: content.decode().encode("latin-1", "replace") + b"\xe9",
    "utf-16": lambda content: content.decode().encode("utf-16"),
    "semicolons": lambda content: content.replace(b",", b";"),
    "empty": lambda content: b"",
}
UNHARMED = tuple(DAMAGE)[:4]


@st.composite
def people_files(draw):
    """Changes of cells, of the table and of the bytes of a file, and options of the command."""
    n = draw(st.integers(1, 6))
    cells = draw(st.lists(st.tuples(st.integers(0, n - 1), st.integers(0, 6), _CELLS), max_size=3))
    options = draw(
        st.lists(
            st.sampled_from([("--id", "name"), ("--extrapolate",), ("--chunk", "1"), ("--chunk", "3")]),
            max_size=2,
            unique_by=lambda option: option[0],
        )
    )
    form = draw(st.sampled_from(["csv", "csv", "json", "text"]))
    return (
        n,
        cells,
        draw(st.sampled_from([*["nothing"] * 8, *ODD])),
        draw(st.sampled_from([*["none"] * 8, *DAMAGE])),
        ["--format", form, *(word for option in options for word in option)],
    )


def test_people(folder):  # noqa: F811
    tally = Tally("people in files")
    known = pd.read_csv(folder / "people.csv", dtype=str).drop(columns="loan")

    @examples(0.12)
    @given(people_files())
    def run(case):
        n, cells, odd, damage, options = case
        frame = known.sample(n, random_state=n).reset_index(drop=True)
        for row, column, cell in cells:
            frame.iloc[row, column] = cell
        content = DAMAGE[damage](ODD[odd](frame).to_csv(index=False, lineterminator="\n").encode())
        (folder / "fuzz.csv").write_bytes(content)
        code, out, err = called(folder, "recourse", "fuzz.csv", "--policy", "policy", *options)
        check_told(code, out, err)
        if code < 2:
            tally.ends["result"] += 1
            check_answers(out, err, code, options[1], n if damage in UNHARMED and odd != "nobody" else None)
        else:
            tally.ends["error"] += 1

    run()
    tally.close()


def called(folder, *words):  # noqa: F811
    """Exit code, stdout and stderr of a command."""
    out, err = io.StringIO(), io.StringIO()
    with watched(), inside(folder), redirect_stdout(out), redirect_stderr(err):
        code = main([*words])
    return code, out.getvalue(), err.getvalue()


def check_told(code, out, err):
    """It ends in results, or in one sentence; nothing commands a terminal."""
    assert code in (0, 1, 2)
    assert "Traceback" not in err
    assert "This is a bug" not in err
    errors = [line for line in err.splitlines() if line.startswith("error: ")]
    assert len(errors) == (code == 2), err
    assert all(len(line.split()) > 4 and line[-1] in ".?!)" for line in errors), err
    assert all(sign.isprintable() or sign in "\n\r" for sign in err)


def check_answers(out, err, code, form, n):
    """One status for everybody, numbers in their ranges, and the exit code tells whether there are invalid rows."""
    total = int(re.search(r"^([\d,]+) people:", err, re.MULTILINE)[1].replace(",", ""))
    assert n is None or total == n
    if form == "csv":
        rows = [*csv.DictReader(io.StringIO(out, newline=""))]
        statuses = [row["status"] for row in rows if row["step"] in ("", "1")]
        assert not formulas(out)
    elif form == "json":
        rows = [json.loads(line) for line in out.splitlines()]
        statuses = [row["status"] for row in rows]
    else:
        assert all(sign.isprintable() or sign == "\n" for sign in out)
        return
    assert len(statuses) == total
    assert {*statuses} <= {"plan", "accepted", "no plan", "invalid"}
    assert (code == 1) == ("invalid" in statuses)
    for row in rows:
        if row["status"] == "invalid":
            assert len(row["reason"].split()) >= 3


def test_tables_of_the_command(folder):  # noqa: F811
    tally = Tally("tables in files")
    whole = pd.read_csv(folder / "loans.csv", dtype=str).head(30)
    columns = st.integers(0, whole.shape[1] - 1)

    @examples(0.08)
    @given(
        st.lists(st.tuples(st.integers(0, 29), columns, _CELLS), max_size=2),
        st.sampled_from([*["nothing"] * 6, *ODD]),
        st.sampled_from([*["none"] * 6, *DAMAGE]),
    )
    def run(cells, odd, damage):
        frame = whole.copy()
        for row, column, cell in cells:
            frame.iloc[row, column] = cell
        content = DAMAGE[damage](ODD[odd](frame).to_csv(index=False, lineterminator="\n").encode())
        (folder / "table.csv").write_bytes(content)
        code, out, err = called(
            folder, "datasets", "table.csv", "--target", "loan", "--favourable", "granted", "--immutable", "age"
        )
        check_told(code, out, err)
        if code == 1:
            assert "problem: " in out
        tally.ends[{0: "result", 1: "problems", 2: "error"}[code]] += 1

    run()
    tally.close(0.2)
