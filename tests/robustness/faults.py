"""All faults: ``make faults`` tries each of them and prints the table of docs/reliability.md.

``make test`` tries most of them in a quick form: fewer times, in forks of one process.
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

import conftest  # noqa: F401 - sets temporary folders for home and cache, and one thread for torch
import faults_files as files
import faults_processes as processes
import numpy as np
from fault_trials import NotTried, Outcome, Trial
from rose_carla.errors import one_line


@dataclass(frozen=True)
class Fault:
    """A fault and how often it is tried."""

    #: Injects the fault and checks the outcome; its docstring describes the fault.
    inject: Callable[[Trial], Outcome]
    #: Number of trials, and in the quick form; 0 if other tests cover it.
    times: int = 1
    quick: int = 1

    @property
    def name(self) -> str:
        """Name on the command line."""
        return self.inject.__name__


FAULTS = (
    Fault(processes.kill_benchmark, 20, quick=0),  # tests/bench/test_run_table1.py
    Fault(processes.kill_worker, 10, quick=0),  # tests/bench/test_engine.py
    Fault(processes.kill_recourse, 10, quick=2),
    Fault(processes.kill_while_writing),
    Fault(processes.full_disk_for_cells, 5),
    Fault(processes.full_disk_for_results),
    Fault(processes.full_stdout),
    Fault(processes.file_size_limit),
    Fault(processes.read_only_folders),
    Fault(processes.read_only_machine, quick=0),  # needs new interpreters
    Fault(processes.removed_cells),
    Fault(processes.closed_streams),
    Fault(files.damaged_files),
    Fault(files.files_of_other_programs),
    Fault(files.files_of_other_versions),
    Fault(files.hostile_files),
)


def main(words: Sequence[str] | None = None) -> int:
    """Try faults one after the other and print a table of the outcomes."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("names", nargs="*", help=f"some of {', '.join(fault.name for fault in FAULTS)}; default: all")
    parser.add_argument("--seed", type=int, default=int(time.time()), help="of random moments and sizes")
    chosen = parser.parse_args(words)
    print(f"seed {chosen.seed}", file=sys.stderr)
    lines, n_failed = ["| fault | trials | outcome |", "|---|---|---|"], 0
    for fault in FAULTS:
        if chosen.names and fault.name not in chosen.names:
            continue
        start = time.monotonic()
        try:
            with tempfile.TemporaryDirectory(prefix="rose_carla_faults_", ignore_cleanup_errors=True) as folder:
                n, outcome = fault.inject(Trial(Path(folder), fault.times, rng=np.random.default_rng(chosen.seed)))
        except NotTried as reason:
            n, outcome = 0, f"not tried: {reason}"
        except Exception as error:  # the other faults are tried all the same
            traceback.print_exc()
            n, outcome = fault.times, f"**failed**: {one_line(f'{type(error).__name__}: {error}')}"
            n_failed += 1
        print(f"{fault.name}: {outcome} ({time.monotonic() - start:.0f} s)", file=sys.stderr, flush=True)
        lines.append(f"| {fault.inject.__doc__} | {n:,} | {outcome} |")
    print("\n".join(lines))
    return int(n_failed > 0)


if __name__ == "__main__":
    sys.exit(main())
