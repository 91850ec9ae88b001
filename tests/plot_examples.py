"""Synthetic results, plans and logs for figures, and checks of drawn figures."""

from __future__ import annotations

import contextlib
import itertools

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.text import Text
from rose_carla.bench import Finished, Result, results_frame
from rose_carla.metrics import METRICS
from rose_carla.ppo import Update
from rose_carla.rose.plan import Plan, PlanStep, Success

RATES = ("Gaussian_AIR", "Plausible_AIR", "Acc_AIR", "Closed_Loop_AIR")
SENTENCE = "the percentage of monthly disposable income that goes into instalments"


def random_results(experiments, n=12, seed=0, missing=0.1):
    """Return a random results frame of ``experiments``, with some people without recourse."""
    results = {}
    for number, experiment in enumerate(experiments):
        rng = np.random.default_rng([seed, number])
        without_recourse = rng.random(n) < missing
        about = {"seconds": 1.0, "people": n, "training_seconds": 2.0, "alone": True}
        about["labels"] = [str(person) for person in range(n)]
        results[experiment.judgements[0].recourse] = Result({}, about)
        typical = 10 ** rng.uniform(-1.5, 1.0)
        for judgement in experiment.judgements:
            arrays = {}
            for metric in judgement.metrics:
                values = rng.random(n) if metric in RATES else typical * rng.uniform(0.5, 1.5, n)
                values = np.where(without_recourse, np.nan, values.round(6))
                arrays |= dict.fromkeys(METRICS[metric].evaluation.columns, values)
            results[judgement] = Result(arrays)
    return results_frame(experiments, Finished(results, {}, 0, len(results)))


def log(n=30, seed=0, evaluate_every=1):
    """Return a log of training in which every ``evaluate_every``-th update is evaluated."""
    rng = np.random.default_rng(seed)
    validity, cost = np.linspace(0.1, 1, n) ** 0.5, 40 / np.arange(1, n + 1) + rng.random(n)
    return [
        Update(
            4096 * (i + 1), 0.1 * i, 1e4, validity[i] * rng.random(), 1.5 * cost[i], 1.0, 0.01, 0.1, 0.5, 0.2,
            *((validity[i], cost[i]) if i % evaluate_every == 0 else ()),
        )
        for i in range(n)
    ]  # fmt: skip


def plan(chances, feature="savings", values=(100, 12_345_678), label=7, reason="", half=0.03):
    """Return a plan whose steps succeed with ``chances``."""
    zero = np.zeros(2)
    nothing = Success(0.07, 0.05, 0.1)
    successes = [Success(chance, max(chance - half, 0), min(chance + half, 1)) for chance in chances]
    steps = tuple(
        PlanStep(feature, *values, zero, zero, 1.0, success, success.probability > 0.4) for success in successes
    )
    return Plan(label, zero, steps, bool(steps), reason, [nothing, *successes][-1], nothing)


@contextlib.contextmanager
def _recording(texts):
    """Collect every text that is drawn meanwhile."""
    draw = Text.draw

    def drawing(self, renderer):
        if self.get_visible() and self.get_text().strip():
            texts.append(self)
        return draw(self, renderer)

    Text.draw = drawing
    try:
        yield
    finally:
        Text.draw = draw


def drawn_texts(figure, dpi=300):
    """Return all visible texts of ``figure`` and their extents in pixels."""
    figure.set_dpi(dpi)
    canvas = FigureCanvasAgg(figure)
    texts = []
    with _recording(texts):
        figure.draw_without_rendering()
    unique = list(dict.fromkeys(texts))
    return [(text, text.get_window_extent(canvas.get_renderer())) for text in unique]


def overlapping(texts):
    """Return pairs of texts that overlap by more than a pixel."""
    return [
        (one.get_text(), other.get_text())
        for (one, here), (other, there) in itertools.combinations(texts, 2)
        if min(here.x1, there.x1) - max(here.x0, there.x0) > 1 and min(here.y1, there.y1) - max(here.y0, there.y0) > 1
    ]


def assert_legible(figure):
    """Assert that no text is too small for print, cut off or overlapping."""
    texts = drawn_texts(figure)
    assert texts
    small = {text.get_text(): text.get_fontsize() for text, _ in texts if text.get_fontsize() < 6.5}
    assert not small
    width, height = figure.get_size_inches() * figure.dpi
    cut = {
        text.get_text(): place.extents.round(1).tolist()
        for text, place in texts
        if place.x0 < -1 or place.y0 < -1 or place.x1 > width + 1 or place.y1 > height + 1
    }
    assert not cut, (cut, width, height)
    assert overlapping(texts) == []
