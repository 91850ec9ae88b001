"""CoGS: costs by hand, K-robustness in closed form, the genetic algorithm against exhaustive search."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from rose_carla import datasets, models
from baseline_examples import array, cube, linear
from rose_carla._lib.runtime import Deadline
from rose_carla.baselines import Cogs, cogs

COLOURS = ["amber", "blue", "coral", "denim", "ebony"]
#: Encoded columns of :func:`mixed`; genes come as height, width, colour, glossy.
ORDER = [*(f"colour_{colour}" for colour in COLOURS), "glossy_yes", "height", "width"]
HEIGHT, WIDTH, COLOUR, GLOSSY = range(4)


def mixed(weights=None, bias=0.0):
    """Two continuous features, one of five categories and one of two."""
    rng = np.random.default_rng(0)
    n = 100
    frame = pd.DataFrame(
        {
            "height": rng.random(n),
            "width": rng.random(n),
            "colour": COLOURS * (n // 5),
            "glossy": ["yes", "no"] * (n // 2),
            "sold": rng.integers(2, size=n),
        }
    )
    data = datasets.from_frame(frame, "sold", name="mixed")
    return linear(data, np.zeros(len(ORDER)) if weights is None else weights, bias, ORDER)


def flat(d, weights, bias, hyperparams=None):
    """CoGS for a linear classifier of d continuous features."""
    return Cogs(linear(cube(d), weights, bias, [f"x{i}" for i in range(d)]), hyperparams)


def test_genes_round_trip():
    genes = Cogs(mixed()).genes
    assert (genes.n, genes.width) == (4, 8)
    assert genes.counts.tolist() == [1, 1, 5, 2]
    some = np.array([[0.25, 0.75, 3, 1], [1.0, 0.0, 0, 0]])
    rows = genes.decode(some)
    np.testing.assert_array_equal(rows, [[0, 0, 0, 1, 0, 1, 0.25, 0.75], [1, 0, 0, 0, 0, 0, 1.0, 0.0]])
    np.testing.assert_array_equal(genes.encode(rows), some)
    assert genes.differ(some[0], some[1]).tolist() == [True, True, True, True]


@pytest.mark.parametrize(
    ("candidate", "plain", "setbacks"),
    [
        # Gower / 2 + L0 / 8: height by 0.4 and another colour; set back by 0.05 and the colour
        ([0.6, 0.5, 2, 1], (0.4 + 1) / 8 + 2 / 8, (0.05 + 1) / 8),
        # width down by 0.3: set back upwards by 0.2
        ([0.2, 0.2, 1, 1], 0.3 / 8 + 1 / 8, 0.2 / 8),
        # a change smaller than what noise may take back
        ([0.23, 0.5, 1, 1], 0.03 / 8 + 1 / 8, 0.03 / 8),
        # everything
        ([0.1, 1.0, 0, 0], (0.1 + 0.5 + 2) / 8 + 4 / 8, (0.1 + 0.05 + 2) / 8),
        ([0.2, 0.5, 1, 1], 0.0, 0.0),
    ],
)
def test_costs_by_hand(candidate, plain, setbacks):
    factual = np.array([[0.2, 0.5, 1, 1]])
    hyperparams = {"decrease": 0.05, "increase": 0.2}
    for switch, expected in ((False, plain), (True, plain + setbacks)):
        method = Cogs(mixed(), {**hyperparams, "setbacks": switch})
        cost = method.plain_costs(np.array([[candidate]]), factual)
        assert cost.shape == (1, 1)
        assert cost[0, 0] == pytest.approx(expected)


def test_costs_against_a_loop():
    method = Cogs(mixed(), {"setbacks": True})
    rng = np.random.default_rng(1)
    factuals = method.genes.random((3, 4), rng)
    candidates = np.where(rng.random((3, 20, 4)) < 0.5, factuals[:, None], method.genes.random((3, 20, 4), rng))
    costs = method.plain_costs(candidates, factuals)
    for person in range(3):
        for number in range(20):
            total = 0.0
            for gene in range(4):
                new, old = candidates[person, number, gene], factuals[person, gene]
                size = float(new != old) if gene >= COLOUR else abs(new - old)
                back = size if gene >= COLOUR else min(size, 0.1)
                total += size + (new != old) + back
            assert costs[person, number] == pytest.approx(total / 8)


@pytest.mark.parametrize("outcome", [1, -1])
@pytest.mark.parametrize("changed", [(), (0,), (1, 2)])
def test_k_is_one_iff_no_perturbation_reaches_the_border(changed, outcome):
    """Linear, far from the bounds: the worst perturbation takes 0.1 * sum of |w| over unchanged features."""
    weights = np.array([3.0, -2.0, 1.0])
    unchanged = [i for i in range(3) if i not in changed]
    largest = 0.1 * np.abs(weights[unchanged]).sum()
    for share, robust in ((1.001, True), (0.8, False)):
        bias = outcome * share * largest - weights @ [0.5, 0.5, 0.5]
        method = flat(3, weights, bias, {"n_samples": 20_000})
        candidate = np.full((1, 3), 0.5)
        factual = candidate.copy()
        factual[0, list(changed)] = 0.3
        score = method.k_robustness(candidate, factual, np.random.default_rng(0))[0]
        assert (score == 1.0) == robust
        assert score > 0.85


@pytest.mark.parametrize(("decrease", "increase"), [(0.1, 0.1), (0.05, 0.2), (0.0, 0.1)])
def test_k_of_one_unchanged_feature_is_a_share_of_an_interval(decrease, increase):
    weights = np.array([5.0, 2.0])
    for margin in (0.01, 0.06, 0.15):
        bias = margin - weights @ [0.5, 0.5]
        method = flat(2, weights, bias, {"n_samples": 40_000, "decrease": decrease, "increase": increase})
        score = method.k_robustness(np.full((1, 2), 0.5), np.array([[0.2, 0.5]]), np.random.default_rng(3))[0]
        expected = min((margin / 2.0 + increase) / (decrease + increase), 1.0) if decrease * 2 > margin else 1.0
        assert score == pytest.approx(expected, abs=4 * 0.5 / 40_000**0.5)


def test_perturbations_stop_at_the_bounds():
    """Next to 0 a decrease of 0.1 becomes one of 0.02: enough room, with 0.05 of it to the border."""
    method = flat(1, [1.0], 0.03, {"n_samples": 2000})
    assert method.k_robustness(np.array([[0.02]]), np.array([[0.02]]), np.random.default_rng(0))[0] == 1.0


def test_k_is_one_where_every_feature_is_changed():
    method = flat(3, [3.0, -2.0, 1.0], 1e-4 - 1.0, {"n_samples": 500})
    candidate, factual = np.full((1, 3), 0.5), np.full((1, 3), 0.6)
    assert method.k_robustness(candidate, factual, np.random.default_rng(0))[0] == 1.0
    factual[0, 2] = 0.5
    assert method.k_robustness(candidate, factual, np.random.default_rng(0))[0] < 1.0
    assert method.k_robustness(candidate[:0], factual[:0], np.random.default_rng(0)).shape == (0,)


def test_unchanged_categories_become_any():
    """Only one of five colours is favourable, so 0.2 of the perturbations keep it; of a changed colour all do."""
    weights = np.zeros(8)
    weights[3] = 1.0
    method = Cogs(mixed(weights, -0.5), {"n_samples": 40_000})
    denim, amber = np.array([[0.5, 0.5, 3, 1]]), np.array([[0.5, 0.5, 0, 1]])
    rng = np.random.default_rng(5)
    assert method.k_robustness(denim, denim, rng)[0] == pytest.approx(0.2, abs=0.01)
    assert method.k_robustness(denim, amber, rng)[0] == 1.0
    assert method.k_robustness(amber, amber, rng)[0] == pytest.approx(0.8, abs=0.01)


def test_perturbed_rows_are_valid_and_change_what_they_may():
    genes = Cogs(mixed()).genes
    rng = np.random.default_rng(6)
    some, chosen = genes.random((4, 4), rng), rng.random((4, 4)) < 0.5
    chosen[0], chosen[1] = True, False
    rows = genes.perturb(some, chosen, rng.random((3000, 4)), 0.05, 0.2)
    for number in range(4):
        found = genes.encode(rows[number])
        np.testing.assert_array_equal(genes.decode(found), rows[number])
        kept = ~chosen[number]
        assert (found[:, kept] == some[number, kept]).all()
        for gene in np.flatnonzero(chosen[number]):
            if gene >= COLOUR:
                shares = np.bincount(found[:, gene].astype(int), minlength=genes.counts[gene]) / 3000
                np.testing.assert_allclose(shares, 1 / genes.counts[gene], atol=0.05)
            else:
                value = some[number, gene]
                assert found[:, gene].min() == pytest.approx(max(value - 0.05, 0), abs=2e-3)
                assert found[:, gene].max() == pytest.approx(min(value + 0.2, 1), abs=2e-3)


@pytest.mark.parametrize("n_samples", [10, 50, 64, 100])
def test_early_stop_keeps_required_scores(n_samples):
    method = flat(3, [3.0, -2.0, 1.0], -1.0, {"n_samples": n_samples})
    rng = np.random.default_rng(7)
    candidates, factuals = rng.random((300, 3)), rng.random((300, 3))
    factuals[:, 1:] = candidates[:, 1:]
    full = method.k_robustness(candidates, factuals, np.random.default_rng(1))
    assert len(np.unique(full)) > 5
    for least in (0.3, 0.9, 1.0, rng.random(300), full, -np.inf):
        fast = method.k_robustness(candidates, factuals, np.random.default_rng(1), least)
        counts = full >= least
        np.testing.assert_array_equal(fast[counts], full[counts])
        assert (fast[~counts] == 0).all()


@pytest.mark.parametrize("quirks", [False, True])
def test_mutation_reaches_every_category(quirks):
    method = Cogs(mixed(bias=-1.0), {"population": 4000, "reference_quirks": quirks})
    factual = np.array([[0.5, 0.5, 2, 1]])
    evolution = cogs._Evolution(method, method.genes.decode(factual), Deadline(60))
    children = np.repeat(factual[:, None], 4000, axis=1)
    mutated = evolution._mutate(children)[0]
    colours, counts = np.unique(mutated[:, COLOUR], return_counts=True)
    assert colours.tolist() == ([0, 2] if quirks else [0, 1, 2, 3, 4])
    if not quirks:  # a quarter is mutated, four fifths of it to any
        np.testing.assert_allclose(counts[[0, 1, 3, 4]] / 4000, 0.25 * 0.8 / 5, atol=0.012)
    assert np.unique(mutated[:, GLOSSY]).tolist() == [0, 1]
    moves = np.abs(mutated[:, HEIGHT] - 0.5)
    assert 0.12 < moves.max() <= 0.125
    assert (moves > 0).mean() == pytest.approx(0.25 * 0.8, abs=0.03)


@pytest.mark.parametrize("colour", range(5))
def test_every_category_can_be_the_answer(colour):
    weights = np.zeros(8)
    weights[colour] = 1.0
    model = mixed(weights, -0.5)
    factuals = model.data.df[model.data.df[f"colour_{COLOURS[colour]}"] == 0].head(4)
    ends = Cogs(model, {"n_generations": 10}).get_counterfactuals(factuals).to_numpy()
    expected = array(model, factuals)
    expected[:, :5] = np.eye(5)[colour]
    np.testing.assert_array_equal(ends, expected)


def exact_costs(points, factual, weights, bias):
    """-F of points (n, 2) for a linear classifier; of one unchanged feature K is a share of an interval."""
    margin = points @ weights + bias
    changed = np.abs(points - factual) > 1e-9
    plain = (np.abs(points - factual).sum(axis=1) + changed.sum(axis=1)) / 4
    lost = np.zeros(len(points))
    for kept in (0, 1):
        reach = weights[kept] * np.array([max(-0.1, -factual[kept]), min(0.1, 1 - factual[kept])])
        # where clipping makes a lump at the edge, nothing of it is near the border in this problem
        share = ((-margin - reach.min()) / (0.2 * abs(weights[kept]))).clip(0, 1)
        lost = np.where(~changed[:, kept] & changed[:, 1 - kept], share, lost)
    return plain + np.where(margin > 0, 0.0, 1.0) + lost / 2


def test_genetic_algorithm_against_exhaustive_search():
    weights, bias = np.array([4.0, 3.0]), -5.0
    hyperparams = {"n_samples": 256, "population": 200}  # fewer may all follow the wrong feature
    method = flat(2, weights, bias, hyperparams)
    rows = 0.15 + 0.5 * np.random.default_rng(8).random((8, 2))
    rows = rows[rows @ weights + bias < -0.2]
    ends = method.get_counterfactuals(pd.DataFrame(rows, columns=["x0", "x1"])).to_numpy()
    axis = np.linspace(0, 1, 401)
    for row, end in zip(rows, ends, strict=True):
        everything = np.stack(np.meshgrid(np.append(axis, row[0]), np.append(axis, row[1])), axis=-1).reshape(-1, 2)
        best = exact_costs(everything, row, weights, bias).min()
        ours = exact_costs(end[None], row, weights, bias)[0]
        assert best < 1
        assert ours < 1.04 * best
        assert ours > 0.98 * best


def test_more_generations_never_make_it_worse(compas_ann):
    factuals = models.negative_instances(compas_ann).head(6)
    rows, costs = array(compas_ann, factuals), []
    for n_generations in (1, 10, 60):
        method = Cogs(compas_ann, {"n_generations": n_generations})
        ends = method.get_counterfactuals(factuals).to_numpy()
        genes, starts = method.genes.encode(ends), method.genes.encode(rows)
        scores = method.k_robustness(genes, starts, np.random.default_rng(99), times=50)
        costs.append(method.plain_costs(genes[:, None], starts)[:, 0] + (1 - scores) / 2)
    # up to the error of 256 samples
    assert (np.diff(costs, axis=0) < 0.03).all()
    assert costs[2].mean() < 0.8 * costs[0].mean()


def test_patience_ends_the_search(compas_ann, monkeypatch):
    generations = []
    advance = cogs._Evolution.advance
    monkeypatch.setattr(cogs._Evolution, "advance", lambda self: generations.append(self.best.copy()) or advance(self))
    Cogs(compas_ann, {"patience": 5}).get_counterfactuals(models.negative_instances(compas_ann).head(1))
    best = np.concatenate(generations)
    assert 5 < len(best) < 100
    # the last five generations, and no five before them, brought nothing
    found_last = np.flatnonzero(np.diff(best) < 0)[-1] + 1
    assert len(best) - found_last == 5
    assert max(np.diff(np.flatnonzero(np.diff(best, prepend=np.inf) < 0))) <= 5


def test_unchanged_features_are_equal_bit_for_bit():
    """Also for categories with rounding errors."""
    model = mixed([0, 0, 0, 0, 0, 0, 4.0, 4.0], -6.0)
    factuals = model.data.df.head(6).copy()
    factuals["glossy_yes"] = np.abs(factuals["glossy_yes"] - 3e-7)
    starts, ends = array(model, factuals), Cogs(model, {"n_generations": 20}).get_counterfactuals(factuals).to_numpy()
    assert np.isfinite(ends).all()
    assert (ends[:, :6] == starts[:, :6]).all()
    assert (ends[:, 6:] != starts[:, 6:]).any(axis=1).all()
