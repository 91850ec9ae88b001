"""Any CSV file ends in an answer for each row, or in one sentence about what is wrong with the file."""

from __future__ import annotations

import csv
import io
import json
import re
from contextlib import redirect_stderr, redirect_stdout

import pandas as pd
from cli_examples import folder, inside  # noqa: F401 - a fixture
from fuzz_inputs import Tally, examples, guard
from hypothesis import given
from hypothesis import strategies as st
from rose_carla.cli import main
from test_hostile_files import formulas

_CELLS = st.sampled_from(
    [
        *("", " ", "nan", "NA", "inf", "-inf", "1e999", "-", "=1+1", "@SUM(A1)", "9" * 400, "1,5", "1;5", "0x10"),
        *("１２", "٣", " 35 ", "+40", "1_000", "True", "true", "rent", "RENT", "own ", "ß", "\u202eevil", "\x1b[2J"),
        *("a\nb", 'say "x"', "-0", "1e-320", "NaN", "None", "null", "2", "2.0", "3e0", "x" * 5000),
    ]
)
CHANGES = {
    "none": lambda frame: frame,
    "further column": lambda frame: frame.assign(note='a, "word"\nor two'),
    "other order": lambda frame: frame[frame.columns[::-1]],
    "missing column": lambda frame: frame.drop(columns="debt"),
    "renamed column": lambda frame: frame.rename(columns={"debt": "Debt"}),
    "duplicate column": lambda frame: pd.concat([frame, frame[["debt"]]], axis=1),
    "column without name": lambda frame: frame.rename(columns={"debt": ""}),
    "no rows": lambda frame: frame.head(0),
}
#: Changes of the bytes of a file that leave its table as it is, and others.
HARMLESS = {
    "none": lambda content: content,
    "byte order mark": lambda content: b"\xef\xbb\xbf" + content,
    "windows": lambda content: content.replace(b"\n", b"\r\n"),
    "blank lines": lambda content: content.replace(b"\n", b"\n\n"),
}
DAMAGE = {
    "half": lambda content: content[: len(content) // 2],
    "zero": lambda content: content + b"\0\n",
    "quote": lambda content: content + b'"',
    "ragged": lambda content: content + b"1,2\n1,2,3,4,5,6,7,8,9\n",
    "latin": lambda content: content.decode().encode("latin-1", "replace") + b"\xe9",
    "utf-16": lambda content: content.decode().encode("utf-16"),
    "semicolons": lambda content: content.replace(b",", b";"),
    "empty": lambda content: b"",
}


@st.composite
def people_files(draw):
    """Draw changes of cells, of the table and of the bytes of a file, and options of the command."""
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
        draw(st.sampled_from([*["none"] * 8, *CHANGES])),
        draw(st.sampled_from([*["none"] * 8, *HARMLESS, *DAMAGE])),
        ["--format", form, *(word for option in options for word in option)],
    )


def test_people_in_files(folder):  # noqa: F811
    tally = Tally("people in files")
    known = pd.read_csv(folder / "people.csv", dtype=str).drop(columns="loan")

    @examples(0.12)
    @given(people_files())
    def run(case):
        n, cells, change, damage, options = case
        frame = known.sample(n, random_state=n).reset_index(drop=True)
        (folder / "fuzz.csv").write_bytes(csv_bytes(frame, cells, change, damage))
        code, out, err = call(folder, "recourse", "fuzz.csv", "--policy", "policy", *options)
        check_message(code, err)
        if code < 2:
            check_answers(out, err, code, options[1], n if damage in HARMLESS and change != "no rows" else None)
        tally.counts["error" if code == 2 else "result"] += 1

    run()
    tally.close()


def csv_bytes(frame, cells, change, damage):
    """Return the changed frame as a CSV file."""
    for row, column, cell in cells:
        frame.iloc[row, column] = cell
    content = CHANGES[change](frame).to_csv(index=False, lineterminator="\n").encode()
    return {**HARMLESS, **DAMAGE}[damage](content)


def call(folder, *words):  # noqa: F811
    """Return exit code, stdout and stderr of a command."""
    out, err = io.StringIO(), io.StringIO()
    with guard(), inside(folder), redirect_stdout(out), redirect_stderr(err):
        code = main([*words])
    return code, out.getvalue(), err.getvalue()


def check_message(code, err):
    """Check that exit code 2 comes with one sentence, and that there are no control characters."""
    assert code in (0, 1, 2)
    assert "Traceback" not in err
    assert "This is a bug" not in err
    errors = [line for line in err.splitlines() if line.startswith("error: ")]
    assert len(errors) == (code == 2), err
    assert all(len(line.split()) > 4 and line[-1] in ".?!)" for line in errors), err
    assert all(character.isprintable() or character in "\n\r" for character in err)


def check_answers(out, err, code, form, n):
    """Check that each person has a status, and that exit code 1 means that rows are invalid."""
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
        assert all(character.isprintable() or character == "\n" for character in out)
        return
    assert len(statuses) == total
    assert {*statuses} <= {"plan", "accepted", "no plan", "invalid"}
    assert (code == 1) == ("invalid" in statuses)
    for row in rows:
        if row["status"] == "invalid":
            assert len(row["reason"].split()) >= 3


def test_tables_in_files(folder):  # noqa: F811
    tally = Tally("tables in files")
    loans = pd.read_csv(folder / "loans.csv", dtype=str).head(30)
    columns = st.integers(0, loans.shape[1] - 1)

    @examples(0.08)
    @given(
        st.lists(st.tuples(st.integers(0, 29), columns, _CELLS), max_size=2),
        st.sampled_from([*["none"] * 6, *CHANGES]),
        st.sampled_from([*["none"] * 6, *HARMLESS, *DAMAGE]),
    )
    def run(cells, change, damage):
        (folder / "table.csv").write_bytes(csv_bytes(loans.copy(), cells, change, damage))
        code, out, err = call(
            folder, "datasets", "table.csv", "--target", "loan", "--favourable", "granted", "--immutable", "age"
        )
        check_message(code, err)
        if code == 1:
            assert "problem: " in out
        tally.counts[{0: "result", 1: "problems", 2: "error"}[code]] += 1

    run()
    tally.close(0.2)
