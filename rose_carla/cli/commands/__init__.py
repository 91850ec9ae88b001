"""A module for each command: ``add_arguments(parser)`` and ``run(chosen)``, which returns the exit code."""
