"""The tables of the paper's appendix, and robustness against cost over every method's knob.

Run as ``make appendix`` or ``python benchmarks/run_appendix.py [PART ...]``; ``--help`` lists parts and options.
Recourse is generated once and shared with Table 1: the sweeps over the noise of the evaluation generate nothing.
"""

import sys

from rose_carla.cli import main

if __name__ == "__main__":
    sys.exit(main(command="appendix"))
