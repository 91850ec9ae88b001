"""The listing of what is installed, on made-up environments and on this one."""

from __future__ import annotations

import json
import sys
from importlib.metadata import distributions

import pytest
from benchmark_scripts import script

installed = script("installed")
#: name -> lines of metadata
MADE_UP = {
    "rose-carla": [
        "Provides-Extra: plots",
        "Provides-Extra: cluster",
        "Requires-Dist: Numbers.Py>=1,<2",
        'Requires-Dist: paint[pretty]; extra == "plots"',
        'Requires-Dist: absent; extra == "cluster"',
    ],
    "numbers_py": ["License-Expression: MIT"],
    "paint": [
        "Classifier: License :: OSI Approved :: BSD License",
        "Provides-Extra: pretty",
        "Provides-Extra: loud",
        'Requires-Dist: gloss (>=2) ; python_version > "3" and extra == "pretty"',
        'Requires-Dist: horn; extra == "loud"',
        "Requires-Dist: numbers-py",
    ],
    "gloss": ["License: Apache 2.0", "  with a long text"],
    "horn": ["License: UNKNOWN"],
    "old-method": ["License: GPL"],
}


@pytest.fixture
def rows(tmp_path):
    for name, lines in MADE_UP.items():
        folder = tmp_path / f"{name}-1.0.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text("\n".join(["Metadata-Version: 2.4", f"Name: {name}", "Version: 1.0", *lines]))
    (tmp_path / "gloss.py").write_bytes(bytes(2_000_000))
    (tmp_path / "gloss-1.0.dist-info" / "RECORD").write_text("gloss.py,,\nnot-there.py,,\n")
    return {row.name: row for row in installed.rows(distributions(path=[str(tmp_path)]), ["old_method"])}


def test_who_asked_for_what(rows):
    assert {name: row.asked_for_by for name, row in rows.items()} == {
        "numbers-py": ("paint", "rose-carla"),
        "paint": ("rose-carla[plots]",),
        "gloss": ("paint[pretty]",),
        "horn": (),
        "old-method": ("--no-deps",),
    }
    assert {name for name, row in rows.items() if row.direct} == {"numbers-py", "paint", "old-method"}


def test_licences_and_sizes(rows):
    assert {name: row.licence for name, row in rows.items()} == {
        "numbers-py": "MIT",
        "paint": "BSD License",
        "gloss": "Apache 2.0",
        "horn": "not stated",
        "old-method": "GPL",
    }
    assert rows["gloss"].megabytes == 2.0


def test_the_table_adds_up(rows):
    lines = installed.table(list(rows.values())).splitlines()
    assert len(lines) == 1 + len(rows) + 1
    assert lines[-1] == "5 distributions, 2 MB: 3 direct, 1 indirect, 1 that nobody asked for"
    assert lines[1].split() == ["gloss", "1.0", "2.0", "Apache", "2.0", "paint[pretty]"]


SOUND = {"name": "numbers-py", "version": "1.0", "vulns": []}
SKIPPED = {"name": "torch", "skip_reason": "not on the index"}
FLAW = {"id": "PYSEC-1", "fix_versions": ["1.1", "2.0"], "aliases": [], "description": ""}
UNREACHED = "The advisories could not be reached: nothing is known about vulnerabilities."


@pytest.mark.parametrize(
    ("audited", "flaws", "summary"),
    [
        (None, [], UNREACHED),
        ([SKIPPED], [], UNREACHED),
        ([SOUND, SKIPPED], [], "0 known vulnerabilities; advisories read for 1 of 2 distributions"),
        (
            [{**SOUND, "vulns": [FLAW]}],
            ["numbers-py 1.0: PYSEC-1, mended in 1.1, 2.0"],
            "1 known vulnerabilities; advisories read for 1 of 1 distributions",
        ),
    ],
)
def test_advisories_that_could_not_be_read_are_not_taken_for_good_news(audited, flaws, summary, tmp_path):
    file = tmp_path / "advisories.json"
    if audited is not None:
        file.write_text(json.dumps({"dependencies": audited, "fixes": []}))
    assert installed.vulnerabilities(file) == (flaws, summary)


def test_this_environment(tmp_path, monkeypatch, capsys):
    file = tmp_path / "advisories.json"
    file.write_text(json.dumps({"dependencies": [{**SOUND, "vulns": [FLAW]}], "fixes": []}))
    monkeypatch.setattr(sys, "argv", ["installed.py", "--advisories", str(file)])
    assert installed.main() == 1
    lines = {line.split()[0]: line for line in capsys.readouterr().out.splitlines()}
    assert "direct" in lines["numpy"].split()
    assert lines["llvmlite"].endswith("  numba")
    assert lines["carla-recourse"].endswith("  --no-deps")
    assert "PYSEC-1" in lines["numbers-py"]
