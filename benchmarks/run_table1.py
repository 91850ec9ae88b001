"""The paper's Table 1: three data sets, nine methods, eight metrics, the paper's values beside ours.

Run as ``make table1`` or ``python benchmarks/run_table1.py [--quick] [--datasets ...] [--methods ...]``; ``--help``
lists all options. The protocol is the paper's: every feature actionable, negative instances as the paper selects them,
one-off noise of variance 0.01 with 1000 samples, accumulated noise of variance 0.0005 per unit of 0.025 with 1000
tries. Finished cells are kept, so an interrupted run goes on where it stopped.
"""

import sys

from rose_carla.cli import main

if __name__ == "__main__":
    sys.exit(main(command="table1"))
