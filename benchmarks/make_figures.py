"""The paper's figures and a few more, from runs of this package.

Run as ``python benchmarks/make_figures.py [NAME ...] [--quick]``; ``--help`` lists the figures and all options. Results
come from ``results/cells``, where ``run_table1.py`` and ``run_appendix.py`` leave theirs; what is missing is computed
first, so an interrupted run goes on where it stopped.
"""

import sys

from rose_carla.cli import main

if __name__ == "__main__":
    sys.exit(main(command="figures"))
