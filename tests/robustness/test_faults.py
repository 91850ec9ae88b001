"""Faults in a shorter form than ``make faults`` tries them: nothing finished is lost, nothing corrupt is used."""

from __future__ import annotations

import os

import faults
import faults_files as files
import pytest
from fault_trials import NotTried, Trial, crash_points
from faults import FAULTS, Fault
from rose_carla._lib.files import atomic_write


@pytest.mark.parametrize("fault", [fault for fault in FAULTS if fault.quick], ids=lambda fault: fault.name)
def test_faults_are_survived(fault, tmp_path):
    try:
        times, words = fault.try_it(Trial(tmp_path, fault.quick, quick=True))
        assert times
        assert words
    except NotTried as why:
        pytest.skip(str(why))


def test_the_crashes_would_show_what_is_written_in_place(tmp_path):
    """Otherwise the trial of crashes would prove nothing."""
    path = tmp_path / "file"

    def in_place():
        with path.open("w") as file:
            file.write("new")
            file.flush()
            os.fsync(file.fileno())
            file.write(" and more")

    def properly():
        with atomic_write(path) as file:
            file.write(b"new and more")

    for write, expected in ((in_place, ["new", "new and more"]), (properly, ["old", "old", *["new and more"] * 2])):
        path.write_text("old")
        seen = []
        for _ in crash_points(write):
            seen.append(path.read_text())
            path.write_text("old")
        assert seen == expected


def calm(trial):
    """nothing happens"""
    return 1234, "all was as before"


def impossible(trial):
    """something that needs more than there is"""
    raise NotTried("needs more")


def harmful(trial):
    """something that does harm"""
    raise AssertionError("harm\nwas done")


def broken(trial):
    """a trial with a mistake of its own"""
    raise KeyError("mistake")


def test_whatever_comes_of_a_fault_the_table_has_a_row_of_it(monkeypatch, capsys):
    monkeypatch.setattr(faults, "FAULTS", [Fault(harmful, 7), Fault(broken), Fault(impossible), Fault(calm)])
    assert faults.main([]) == 1
    assert capsys.readouterr().out.splitlines() == [
        "| fault | tried | outcome |",
        "|---|---|---|",
        "| something that does harm | 7 | **failed**: harm was done |",
        "| a trial with a mistake of its own | 1 | **failed**: KeyError: 'mistake' |",
        "| something that needs more than there is | 0 | not tried: needs more |",
        "| nothing happens | 1,234 | all was as before |",
    ]
    assert faults.main(["calm", "impossible"]) == 0


def test_the_whole_trial_of_a_fault_starts_interpreters_and_tells_what_came_of_it(capsys):
    assert faults.main(["foreign", "--seed", "1"]) == 0
    told = capsys.readouterr()
    assert told.err.startswith("seed 1\n")
    assert told.out.splitlines()[2:] == [f"| {files.foreign.__doc__} | 35 | 35 rejected, with the reason |"]
