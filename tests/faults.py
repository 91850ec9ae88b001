"""Faults on purpose, and what comes of each: ``make faults`` tries all of them and prints docs/reliability.md's table.

``make test`` tries the quick ones in a shorter form: fewer times, in forks of one process.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import conftest  # noqa: F401 - a home and a cache of our own, before anything reads them
import faults_disk as disk
import faults_files as files
import faults_killed as killed
import numpy as np
from fault_trials import NotTried, Trial


@dataclass(frozen=True)
class Fault:
    """Something that happens, how often it is tried, and how often in the tests; 0: other tests do."""

    try_it: Callable[[Trial], str]
    times: int = 1
    quick: int = 1

    @property
    def name(self) -> str:
        """For people who want to try this one alone."""
        return self.try_it.__name__

    @property
    def words(self) -> str:
        """What happens."""
        return str(self.try_it.__doc__)


FAULTS = (
    Fault(killed.the_benchmark, 20, quick=0),  # test_run_table1
    Fault(killed.a_worker, 10, quick=0),  # test_backends, also for Dask
    Fault(killed.the_command, 10, quick=2),
    Fault(killed.while_writing),
    Fault(disk.full, 5),
    Fault(disk.full_for_results),
    Fault(disk.cut_off),
    Fault(disk.unwritable),
    Fault(disk.nothing_writable, quick=0),  # test_compiled, test_training
    Fault(disk.removed),
    Fault(disk.closed_streams),
    Fault(files.damaged),
    Fault(files.foreign),
    Fault(files.other_versions),
    Fault(files.hostile),
)


def main() -> int:
    """Try faults one after the other, and print how often and what came of it."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("names", nargs="*", help=f"some of {', '.join(fault.name for fault in FAULTS)}; default: all")
    parser.add_argument("--seed", type=int, default=int(time.time()), help="of random moments and sizes")
    chosen = parser.parse_args()
    print(f"seed {chosen.seed}", file=sys.stderr)
    lines, code = ["| fault | tried | outcome |", "|---|---|---|"], 0
    for fault in FAULTS:
        if chosen.names and fault.name not in chosen.names:
            continue
        started = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="rose_carla_faults_") as folder:
            trial = Trial(Path(folder), fault.times, rng=np.random.default_rng(chosen.seed))
            try:
                outcome, times = fault.try_it(trial), f"{trial.times:,}"
            except NotTried as why:
                outcome, times = f"not tried: {why}", "0"
            except AssertionError as error:
                outcome, times, code = f"**failed**: {error}", f"{trial.times:,}", 1
        print(f"{fault.name}: {outcome} ({time.monotonic() - started:.0f} s)", file=sys.stderr, flush=True)
        lines.append(f"| {fault.words} | {times} | {outcome} |")
    print("\n".join(lines))
    return code


if __name__ == "__main__":
    sys.exit(main())
