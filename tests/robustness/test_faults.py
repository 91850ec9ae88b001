"""Faults in their quick form: finished work is kept, and damaged files are not used."""

from __future__ import annotations

import pytest
from fault_trials import NotTried, Trial
from faults import FAULTS


@pytest.mark.parametrize("fault", [fault for fault in FAULTS if fault.quick], ids=lambda fault: fault.name)
def test_fault(fault, tmp_path):
    try:
        n, _ = fault.inject(Trial(tmp_path, fault.quick, quick=True))
    except NotTried as reason:
        pytest.skip(str(reason))
    assert n > 0
