"""``python -m rose_carla`` is the command ``rose-carla``."""

import sys

from rose_carla.cli import main

if __name__ == "__main__":
    sys.exit(main())
