"""Faults on purpose, and what comes of each: ``make faults`` tries all of them and prints docs/reliability.md's table.

``make test`` tries the quick ones in a shorter form: fewer times, in forks of one process.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import conftest  # noqa: F401 - a home and a cache of our own, before anything reads them
import faults_disk as disk
import faults_files as files
import faults_killed as killed
import numpy as np
from fault_trials import Came, NotTried, Trial
from rose_carla._lib.text import one_line


@dataclass(frozen=True)
class Fault:
    """Something that happens, how often it is tried, and how often in the tests; 0: other tests do."""

    try_it: Callable[[Trial], Came]
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
    Fault(killed.a_worker, 10, quick=0),  # test_engine, also for Dask
    Fault(killed.the_command, 10, quick=2),
    Fault(killed.while_writing),
    Fault(disk.full, 5),
    Fault(disk.full_for_results),
    Fault(disk.full_behind_stdout),
    Fault(disk.cut_off),
    Fault(disk.unwritable),
    Fault(disk.nothing_writable, quick=0),  # test_compiled, test_training
    Fault(disk.removed),
    Fault(disk.closed_streams),
    Fault(files.damaged),
    Fault(files.foreign, quick=0),  # test_faults, as a whole
    Fault(files.other_versions),
    Fault(files.hostile),
)


def main(words: Sequence[str] | None = None) -> int:
    """Try faults one after the other, and print how often and what came of it."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("names", nargs="*", help=f"some of {', '.join(fault.name for fault in FAULTS)}; default: all")
    parser.add_argument("--seed", type=int, default=int(time.time()), help="of random moments and sizes")
    chosen = parser.parse_args(words)
    print(f"seed {chosen.seed}", file=sys.stderr)
    lines, failed = ["| fault | tried | outcome |", "|---|---|---|"], False
    for fault in FAULTS:
        if chosen.names and fault.name not in chosen.names:
            continue
        started = time.monotonic()
        times, outcome, sound = came_of(fault, chosen.seed)
        failed |= not sound
        print(f"{fault.name}: {outcome} ({time.monotonic() - started:.0f} s)", file=sys.stderr, flush=True)
        lines.append(f"| {fault.words} | {times:,} | {outcome} |")
    print("\n".join(lines))
    return int(failed)


def came_of(fault: Fault, seed: int) -> tuple[int, str, bool]:
    """How often a fault was tried, what came of it, and whether that is what should; no error loses the others."""
    with tempfile.TemporaryDirectory(prefix="rose_carla_faults_", ignore_cleanup_errors=True) as folder:
        try:
            return *fault.try_it(Trial(Path(folder), fault.times, rng=np.random.default_rng(seed))), True
        except NotTried as why:
            return 0, f"not tried: {why}", True
        except Exception as error:
            traceback.print_exc()
            told = error if isinstance(error, AssertionError) else f"{type(error).__name__}: {error}"
            return fault.times, f"**failed**: {one_line(told)}", False


if __name__ == "__main__":
    sys.exit(main())
