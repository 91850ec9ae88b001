"""Faults in a shorter form than ``make faults`` tries them: nothing finished is lost, nothing corrupt is used."""

from __future__ import annotations

import os

import pytest
from fault_trials import NotTried, Trial, crash_points
from faults import FAULTS
from rose_carla.files import whole


@pytest.mark.parametrize("fault", [fault for fault in FAULTS if fault.quick], ids=lambda fault: fault.name)
def test_faults_are_survived(fault, tmp_path):
    try:
        assert fault.try_it(Trial(tmp_path, fault.quick, quick=True))
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
        with whole(path) as file:
            file.write(b"new and more")

    for write, expected in ((in_place, ["new", "new and more"]), (properly, ["old", "old", *["new and more"] * 2])):
        path.write_text("old")
        seen = []
        for _ in crash_points(write):
            seen.append(path.read_text())
            path.write_text("old")
        assert seen == expected
