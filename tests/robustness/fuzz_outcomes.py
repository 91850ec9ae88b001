"""How examples of the fuzz tests may end: in a result, or in one of our own errors that helps. Both are counted."""

from __future__ import annotations

import contextlib
import math
import os
import re
import warnings
from collections import Counter

from hypothesis import HealthCheck, Phase, settings
from rose_carla._lib.runtime import global_state, time_limit
from rose_carla.errors import RoseCarlaError

MANY = os.environ.get("ROSE_CARLA_FUZZ", "few")
#: Examples are short descriptions already; making them shorter takes minutes.
_COMMON = {
    "deadline": None,
    "database": None,
    "suppress_health_check": list(HealthCheck),
    "print_blob": True,
    "phases": [Phase.explicit, Phase.generate],
}
settings.register_profile("fuzz-few", max_examples=200, derandomize=True, **_COMMON)
settings.register_profile("fuzz-many", max_examples=2000, **_COMMON)
PROFILE = settings.get_profile(f"fuzz-{MANY}")
#: An example takes a fraction of a second; one that takes so many hangs, however busy the machine is.
LONGEST = 120.0
#: Features of tables that recourse is looked for in.
WIDEST = 60 if MANY == "many" else 12
TOTAL: Counter[str] = Counter()


def examples(share: float) -> settings:
    """So large a share of the examples."""
    return settings(PROFILE, max_examples=round(share * PROFILE.max_examples))


@contextlib.contextmanager
def watched():
    """No hang, no global generator touched."""
    before = global_state()
    with time_limit(LONGEST, "the example hangs"):
        yield
    assert global_state() == before


class Tally:
    """How the examples of a property ended."""

    def __init__(self, name: str) -> None:
        self.name, self.ends = name, Counter()

    @contextlib.contextmanager
    def example(self):
        """One example: no error but ours, no hang, no global generator touched."""
        with watched(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                yield
                self.ends["result"] += 1
            except RoseCarlaError as error:
                check_helpful(error)
                self.ends[type(error).__name__] += 1

    def close(self, least: float = 0.4) -> None:
        """Tell, and check that enough ended in a result: ``least`` of them, but for twice the error of so few."""
        TOTAL.update(self.ends)
        print(f"\n{self.name}: {told(self.ends)}")
        n = self.ends.total()
        assert self.ends["result"] >= least * n - 2 * math.sqrt(n * least * (1 - least))


def told(ends: Counter[str]) -> str:
    """Counts in words."""
    share = ends["result"] / max(ends.total(), 1)
    return f"{ends.total()} examples, {share:.0%} results; {', '.join(f'{k} {v}' for k, v in ends.most_common())}"


def check_helpful(error: RoseCarlaError) -> None:
    """A message is a sentence about something, not a dump."""
    text = str(error)
    assert len(text.split()) >= 3, text
    assert text[-1] in ".?!)…" or text.endswith("..."), text
    assert not re.search(r"array\(|tensor\(|dtype=|object at 0x|Traceback|Name: |Length: ", text), text
    assert len(text) < 1500, text


def tell_total() -> None:
    """How all examples of this process ended so far."""
    print(f"\nfuzzing: {told(TOTAL)}")
