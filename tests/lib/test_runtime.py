"""Time limits stop code without an end, and leave everything else alone."""

from __future__ import annotations

import contextlib
import signal
import threading
import time

import pytest
from rose_carla._lib.runtime import global_state, seeded, time_limit


def spin(seconds):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        with contextlib.suppress(Exception):
            sum(range(100))


def test_endless_code_is_stopped_even_where_it_catches_every_exception():
    with pytest.raises(TimeoutError, match="too slow"), time_limit(0.05, "too slow"):
        spin(60)


def test_inner_limit_restores_the_outer_one():
    def nested():
        with pytest.raises(TimeoutError, match="inner"), time_limit(0.05, "inner"):
            spin(60)
        spin(60)

    with pytest.raises(TimeoutError, match="outer"), time_limit(0.3, "outer"):
        nested()
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


def test_code_that_ends_in_time_is_not_interrupted_later():
    handler = signal.getsignal(signal.SIGALRM)
    for _ in range(5):
        with time_limit(0.2, "too slow"):
            pass
    with pytest.raises(KeyError), time_limit(0.2, "too slow"):
        {}["its own error"]
    spin(0.4)
    assert signal.getsignal(signal.SIGALRM) == handler


def test_other_threads_run_without_a_limit():
    ended = []

    def other():
        with time_limit(0.05, "too slow"):
            spin(0.2)
        ended.append(True)

    thread = threading.Thread(target=other)
    thread.start()
    thread.join(30)
    assert ended == [True]


def test_seeds_of_global_generators_are_restored():
    before = global_state()
    with seeded(3):
        assert global_state() != before
    assert global_state() == before
