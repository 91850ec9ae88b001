"""Recourse methods that do to whoever calls them what methods should not."""

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
    """Ends the program as if all was well."""

    def get_counterfactuals(self, factuals):
        sys.exit(0)


class Closes(Liked):
    """Closes the streams that it prints to."""

    def get_counterfactuals(self, factuals):
        sys.stdout.close()
        sys.stderr.close()
        return super().get_counterfactuals(factuals)


class PrintsNames(Liked):
    """Prints the name of a file that is no text."""

    def get_counterfactuals(self, factuals):
        print(os.fsdecode(b"data-\xff.csv"))
        return super().get_counterfactuals(factuals)


class Speechless(Liked):
    """Raises an error that cannot say what it is."""

    def get_counterfactuals(self, factuals):
        class Mute(Exception):
            def __str__(self):
                raise RuntimeError("no words")

        raise Mute


class OddSettings(Liked):
    """Has settings that JSON does not know."""

    class settings:
        """As those of this package."""

        @staticmethod
        def as_dict():
            """Numbers of numpy and other things."""
            return {"rate": np.float32(0.5), "where": os, "seed": 3}


class Talks(Liked):
    """Prints more than a pipe holds."""

    def get_counterfactuals(self, factuals):
        print("x" * 300_000)
        return super().get_counterfactuals(factuals)
