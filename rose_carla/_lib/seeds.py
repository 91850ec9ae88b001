"""Global random generators: CARLA's methods draw from them, ours do not."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch


def global_state() -> tuple[Any, ...]:
    """The states of Python's, numpy's and torch's global generators, to be compared by ``==``."""
    legacy: Any = np.random.get_state()  # noqa: NPY002
    words = legacy[1].tobytes(), *legacy[2:]
    return random.getstate(), words, torch.get_rng_state().numpy().tobytes()


@contextlib.contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Seed the global generators for a while, then put them back as they were."""
    before = random.getstate(), np.random.get_state(), torch.get_rng_state()  # noqa: NPY002
    random.seed(seed)
    np.random.seed(seed)  # noqa: NPY002
    torch.manual_seed(seed)
    try:
        yield
    finally:
        random.setstate(before[0])
        np.random.set_state(before[1])  # noqa: NPY002
        torch.set_rng_state(before[2])
