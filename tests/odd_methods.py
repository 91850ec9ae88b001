"""Recourse methods that exit, close streams, or raise errors that cannot be printed."""

from __future__ import annotations

import os
import sys

import numpy as np
from fake_methods import Liked


class Exits(Liked):
    """Ends the program."""

    def get_counterfactuals(self, factuals):
        sys.exit("licence expired")


class ExitsWell(Liked):
    """Ends the program with exit code 0."""

    def get_counterfactuals(self, factuals):
        sys.exit(0)


class Closes(Liked):
    """Closes stdout and stderr."""

    def get_counterfactuals(self, factuals):
        sys.stdout.close()
        sys.stderr.close()
        return super().get_counterfactuals(factuals)


class PrintsNames(Liked):
    """Prints a file name that is not valid UTF-8."""

    def get_counterfactuals(self, factuals):
        print(os.fsdecode(b"data-\xff.csv"))
        return super().get_counterfactuals(factuals)


class Speechless(Liked):
    """Raises an error whose message cannot be formatted."""

    def get_counterfactuals(self, factuals):
        class Mute(Exception):
            def __str__(self):
                raise RuntimeError("no words")

        raise Mute


class OddSettings(Liked):
    """Has settings that JSON cannot store."""

    class settings:
        """Like the settings of this package."""

        @staticmethod
        def as_dict():
            """Return numpy numbers and a module."""
            return {"rate": np.float32(0.5), "where": os, "seed": 3}


class Talks(Liked):
    """Prints more than a pipe buffers."""

    def get_counterfactuals(self, factuals):
        print("x" * 300_000)
        return super().get_counterfactuals(factuals)
