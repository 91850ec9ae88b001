"""How fast plausible noise is, side by side with the obvious alternatives in one run.

Run as ``python benchmarks/noise_speed.py [--skip-accumulated]``. Machines differ and are noisy: read the ratios. The
two sides of each ratio take turns; times are medians.
"""

from __future__ import annotations

import argparse
import resource
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from rose_carla import datasets, models
from rose_carla.noise import (
    Density,
    PlausibleNoise,
    accumulated_invalidation_rate,
    common_noise,
    invalidation_rate,
)
from scipy.stats import gaussian_kde

VARIANCE, UNIT_VARIANCE, UNIT = 0.01, 0.0005, 0.025


def in_turns(slow: Callable[[], Any], fast: Callable[[], Any], turns: int = 5) -> tuple[float, float]:
    """Median seconds of two calls that take turns; the fast one gets ten goes each time."""
    slow(), fast()
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(turns):
        for call, goes, taken in ((slow, 1, times[0]), (fast, 10, times[1])):
            for _ in range(goes):
                start = time.perf_counter()
                call()
                taken.append(time.perf_counter() - start)
    return float(np.median(times[0])), float(np.median(times[1]))


def resampled(kde: gaussian_kde, state: np.ndarray, n: int, rng: np.random.Generator) -> np.ndarray:
    """Gaussian proposals, five for each sample wanted, resampled by their density."""
    proposals = state + VARIANCE**0.5 * rng.standard_normal((5 * n, len(state)))
    weights = kde.pdf(proposals.T)
    return proposals[rng.choice(len(proposals), n, p=weights / weights.sum())]


def by_matrix_multiplication(states: np.ndarray, points: np.ndarray, covariance: np.ndarray) -> np.ndarray:
    """One kernel drawn for each state from all its weights, with torch."""
    root = torch.linalg.cholesky(torch.linalg.inv(torch.as_tensor(covariance))).float()
    z, y = torch.as_tensor(states).float() @ root, torch.as_tensor(points).float() @ root
    logs = z @ y.T - 0.5 * (y**2).sum(dim=1)
    cumulative = torch.exp(logs - logs.max(dim=1, keepdim=True).values).cumsum(dim=1)
    levels = torch.rand(len(z), 1) * cumulative[:, -1:]
    return torch.searchsorted(cumulative, levels).numpy()


def one_state(noises: dict[str, PlausibleNoise]) -> None:
    print("1000 plausible samples of one state: scipy's density with 5x oversampling against the mixture")
    for name, noise in noises.items():
        rows = noise.density.points_
        # scipy needs a regular covariance; the ridge is far below anything measured here
        kde = gaussian_kde((rows + 1e-4 * np.random.default_rng(0).standard_normal(rows.shape)).T)
        rng, state = np.random.default_rng(0), rows[0]
        slow, fast = in_turns(
            lambda: resampled(kde, state, 1000, rng),  # noqa: B023
            lambda: noise.sample(state[None], VARIANCE, 1000, rng),  # noqa: B023
            turns=3,
        )
        print(f"  {name:7} {len(rows):6d} points: {1e3 * slow:8.1f} ms / {1e3 * fast:6.3f} ms = {slow / fast:6.0f} x")


def many_states(noises: dict[str, PlausibleNoise]) -> None:
    print("One draw for each of 1000 states (a NoisyStep): torch against the boxes, per (state, data point) pair")
    for name, noise in noises.items():
        density = noise.density
        n, width = density.points_.shape
        rng = np.random.default_rng(0)
        states = density.points_[rng.integers(n, size=1000)] + 0.05 * rng.standard_normal((1000, width))
        total = density.covariance_ + UNIT_VARIANCE * np.eye(width)
        parts = np.array_split(states, 10)
        slow, fast = in_turns(
            lambda: [by_matrix_multiplication(part, density.points_, total) for part in parts],  # noqa: B023
            lambda: noise.sample(states, UNIT_VARIANCE, 1, rng),  # noqa: B023
        )
        pairs = 1000 * n
        print(
            f"  {name:7} {n:6d} points: {1e9 * slow / pairs:6.2f} ns / {1e9 * fast / pairs:6.3f} ns = "
            f"{slow / fast:5.1f} x   ({1e3 * fast:6.2f} ms, {1e6 * fast / 1000:5.2f} us per state)"
        )


def accumulated(model: models.TorchModel, noise: PlausibleNoise) -> None:
    print("Acc AIR, 1000 tries for each of 200 Adult counterfactuals of length 0.5, all training rows in the density")
    order = model.feature_input_order
    factuals = models.negative_instances(model)[order].to_numpy()
    action = np.zeros((1, len(order)))
    action[0, order.index("education-num")] = 0.5
    start = time.perf_counter()
    rate = accumulated_invalidation_rate(
        models.favourable(model),
        factuals,
        [action] * len(factuals),
        noise,
        UNIT_VARIANCE,
        UNIT,
        1000,
        common_noise(0, range(len(factuals))),
    )
    taken = time.perf_counter() - start
    steps = len(factuals) * 1000 * 20
    print(
        f"  {taken:.1f} s for {steps / 1e6:.0f} million noisy steps, {1e6 * taken / steps:.1f} us each; "
        f"mean IR {rate.rate.mean():.3f}"
    )


def caps(model: models.TorchModel) -> None:
    print("Fewer kernels with the bandwidth of all rows: difference of Plausible IR from that with all (2000 samples)")
    order = model.feature_input_order
    adult = model.data.df_train[order].to_numpy()
    generator = np.random.default_rng(0)
    wide = generator.random((200_000, 8)) ** 2
    border = float(np.median(wide.sum(axis=1)))
    for name, rows, predict, sizes in (
        ("Adult", adult, models.favourable(model), (1_000, 5_000, 20_000)),
        ("200,000 made-up rows", wide, lambda x: x.sum(axis=1) > border, (5_000, 20_000, 50_000, 100_000)),
    ):
        everything, _ = _rates(rows, predict, len(rows))
        for cap in sizes:
            rate, taken = _rates(rows, predict, cap)
            print(
                f"  {name}, {cap:6d} of {len(rows)} rows: {np.abs(rate - everything).mean():.4f} on average, "
                f"{np.abs(rate - everything).max():.3f} at most, {taken:.2f} s"
            )


def _rates(rows: np.ndarray, predict: Callable[[np.ndarray], np.ndarray], cap: int) -> tuple[np.ndarray, float]:
    noise = PlausibleNoise(Density(max_points=cap).fit(rows))
    start = time.perf_counter()
    rate = invalidation_rate(predict, rows[:200], noise, VARIANCE, 2000, common_noise(0, range(200))).rate
    return rate, time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--skip-accumulated", action="store_true", help="leave out the part that takes a minute")
    skip = parser.parse_args().skip_accumulated
    trained = {name: models.train(datasets.load(name)) for name in datasets.NAMES}
    noises = {name: PlausibleNoise(Density.from_model(model)) for name, model in trained.items()}
    one_state(noises)
    many_states(noises)
    if not skip:
        accumulated(trained["adult"], noises["adult"])
    caps(trained["adult"])
    print(f"Peak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6:.2f} GB")


if __name__ == "__main__":
    main()
