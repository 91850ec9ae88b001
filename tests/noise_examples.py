"""Data and noise that several tests of the noise model use."""

from __future__ import annotations

import numpy as np
from rose_carla.noise import Density, PlausibleNoise


def rng(seed=0):
    return np.random.default_rng(seed)


def clusters(n=300, d=2, seed=0):
    """Two correlated clouds in the unit cube."""
    generator = rng(seed)
    mixing = generator.normal(size=(d, d)) * 0.08
    centres = generator.choice([0.3, 0.7], size=n)[:, None]
    return centres + generator.normal(size=(n, d)) @ mixing


def plausible(rows, **options):
    return PlausibleNoise(Density(**options).fit(rows))


def kernels_of(noise):
    """Kernel centres and covariance, as the functions of :mod:`rose_carla.noise.reference` take them."""
    return noise.density.points_, noise.density.covariance_
