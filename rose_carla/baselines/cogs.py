"""CoGS: sparse counterfactuals robust to perturbations, by a genetic algorithm (Virgolin & Fracaros 2023)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from carla.models.api import MLModel
from rose_carla._lib.params import flag, integer, number
from rose_carla._lib.runtime import Deadline, one_torch_thread, parallel_ranges
from rose_carla.datasets import feature_groups, valid_encodings
from rose_carla.method import OneShot, OneShotSettings
from rose_carla.models import favourable
from rose_carla.noise._sampling import jit
from tqdm.auto import tqdm

#: Perturbed rows per call of the classifier, so that they fit into the cache.
_CHUNK = 16_384
#: Perturbations after which candidates that cannot reach the required score are dropped.
_FIRST = 16
#: Factor on the perturbations that confirm the best candidates.
_CONFIRM = 4
#: Largest difference between equal values.
_SAME = 1e-9


@dataclass(frozen=True)
class CogsSettings(OneShotSettings):
    """Hyper-parameters of CoGS."""

    batch_size: int = integer(200)
    #: Largest decrease and increase of unchanged continuous features.
    decrease: float = number(0.1, ge=0, le=1)
    increase: float = number(0.1, ge=0, le=1)
    #: Perturbations m of the K-robustness score.
    n_samples: int = integer(64)
    #: Candidates per person, and generations.
    population: int = integer(50, ge=4, le=10**6)
    n_generations: int = integer(100)
    #: Generations without a better candidate after which the search for a person ends.
    patience: int = integer(25)
    #: Size of the tournaments that select parents.
    tournament: int = integer(2, le=1000)
    #: Largest mutation of a continuous feature.
    mutation: float = number(0.125, gt=0, le=1)
    #: Share of genes copied from the factual, in the first generation and among mutations.
    copied: float = number(0.2, ge=0, le=1)
    #: Whether to add the cost of setbacks of changed features (C-robustness).
    setbacks: bool = flag(False)

    presets = {
        "paper": {"decrease": 0.1, "increase": 0.1, "n_samples": 64, "population": 1000, "n_generations": 100},
    }


class Cogs(OneShot):
    r"""CoGS: recourse that stays valid when unchanged features are perturbed.

    Maximises for each person, over candidates z with target outcome t,

    .. math::
        F(z) = -\left[\tfrac12 G(z, x) + \tfrac{1}{2d} \lVert z - x \rVert_0 + 1_{f(z) \ne t} + \tfrac12 (1 - K(z))
        \left(+ \tfrac{1}{2d} S(z)\right)\right]

    with Gower's distance G, the share K of perturbations of *unchanged* features that keep f(z), and optional setbacks
    S. The populations of all people evolve at once.

    Parameters
    ----------
    mlmodel
        A CARLA model; only its predictions are used.
    hyperparams
        Options of :class:`CogsSettings`; ``{"preset": "paper"}`` for those of the papers.

    Examples
    --------
    >>> from rose_carla import baselines, datasets, models
    >>> model = models.train(datasets.load("compas"), "linear")
    >>> factuals = models.negative_instances(model).head(5)
    >>> counterfactuals = baselines.Cogs(model).get_counterfactuals(factuals)
    >>> bool(models.favourable(model)(counterfactuals.to_numpy()).all())
    True
    """

    name = "CoGS"
    settings_class = CogsSettings
    settings: CogsSettings

    def __init__(self, mlmodel: MLModel, hyperparams: Mapping[str, Any] | None = None) -> None:
        super().__init__(mlmodel, hyperparams)
        self.genes = Genes(mlmodel)
        self._accepts = favourable(mlmodel)

    def search(self, rows: np.ndarray, deadline: Deadline, bar: tqdm) -> np.ndarray:
        with one_torch_thread():  # of torch: candidates are distributed over our own threads
            evolution = _Evolution(self, rows, deadline)
            for _ in range(self.settings.n_generations):
                if deadline.passed or not len(evolution.people):
                    break
                bar.update(evolution.advance())
        bar.update(len(evolution.people))
        return evolution.found

    def plain_costs(self, candidates: np.ndarray, factuals: np.ndarray) -> np.ndarray:
        """Return the costs (b, p) of candidates (b, p, f) for factuals (b, f): distance, changes and setbacks."""
        s, genes = self.settings, self.genes
        factuals = factuals[:, None, :]
        changed = genes.differ(candidates, factuals)
        size = np.where(genes.categorical, changed, np.abs(candidates - factuals))
        costs = (size.sum(axis=2) + changed.sum(axis=2)) / (2 * genes.n)
        if s.setbacks:
            allowed = np.where(candidates > factuals, s.decrease, s.increase)
            setbacks = np.where(genes.categorical, changed, np.minimum(size, allowed))
            costs += setbacks.sum(axis=2) / (2 * genes.n)
        return costs

    def k_robustness(
        self,
        candidates: np.ndarray,
        factuals: np.ndarray,
        rng: np.random.Generator,
        least: np.ndarray | float = 0.0,
        times: int = 1,
        deadline: Deadline | None = None,
    ) -> np.ndarray:
        """Return the share (c,) of perturbations of unchanged features that keep the outcome of candidates (c, f).

        It is 1 where every feature is changed. All candidates have the same perturbations.

        Parameters
        ----------
        candidates, factuals
            (c, f) genes.
        rng
            Generator of the perturbations.
        least
            Required scores: candidates that cannot reach them get 0.
        times
            Factor on ``n_samples``.
        deadline
            Time after which the remaining candidates get 0.
        """
        s, genes = self.settings, self.genes
        n_samples = times * s.n_samples
        draws = rng.random((n_samples, genes.n))
        outcomes = self._accepts(genes.decode(candidates)) if len(candidates) else np.empty(0, dtype=bool)
        unchanged = ~genes.differ(candidates, factuals)
        lost = np.zeros(len(candidates), dtype=int)
        allowed = n_samples * (1 - np.broadcast_to(least, len(candidates))) + 1e-9  # 1 - 0.9 is below 0.1
        for some in (draws[:_FIRST], draws[_FIRST:]):
            left = np.flatnonzero(lost <= allowed)

            def classify(first: int, last: int, some: np.ndarray = some, left: np.ndarray = left) -> None:
                step = max(1, _CHUNK // len(some))
                for start in range(first, last, step):
                    part = left[start : min(start + step, last)]
                    if deadline is not None and deadline.passed:
                        lost[part] = n_samples + 1
                        continue
                    perturbed = genes.perturb(candidates[part], unchanged[part], some, s.decrease, s.increase)
                    kept = self._accepts(perturbed.reshape(-1, genes.width)).reshape(len(part), len(some))
                    lost[part] += (kept != outcomes[part, None]).sum(axis=1)

            if len(left) and len(some):
                # only torch models are known to be thread-safe
                work = len(left) * some.size if self._mlmodel.backend == "pytorch" else 0
                parallel_ranges(len(left), work, classify)
        return np.where(lost <= allowed, 1 - lost / n_samples, 0.0)


#: Attributes of an evolution with one row per person.
_ROWS = ("people", "factuals", "population", "costs", "valid", "confirmed", "best", "waited")


class _Evolution:
    """Populations of b people that evolve at once on common random numbers.

    The random numbers are those of the generation, so a person's candidates do not depend on the batch.

    Attributes
    ----------
    found : (b, d) array
        Best valid candidate of each person so far, as rows; NaN without one.
    """

    def __init__(self, method: Cogs, rows: np.ndarray, deadline: Deadline) -> None:
        self.deadline = deadline
        self.method, self.settings, self.genes = method, method.settings, method.genes
        self.rng = np.random.default_rng(self.settings.seed)
        self.rows = rows
        self.found = np.full(rows.shape, np.nan)
        self.people = np.arange(len(rows))
        self.factuals = self.genes.encode(rows)
        shape = self.settings.population, self.genes.n
        copied = self.rng.random(shape) < self.settings.copied
        self.population = self._with_immutables(
            np.where(copied, self.factuals[:, None, :], self.genes.random(shape, self.rng))
        )
        self.costs, self.valid = self._costs(self.population, np.full(len(rows), np.inf))
        self.confirmed = np.zeros_like(self.valid)
        self.best = np.full(len(rows), np.inf)
        self.waited = np.zeros(len(rows), dtype=int)
        self._record_best()

    def advance(self) -> int:
        """Evolve by one generation; return the number of people who are done."""
        s = self.settings
        mothers, fathers = self._parents(), self._parents()
        shape = s.population, self.genes.n
        children = np.where(self.rng.random(shape) < 0.5, mothers, fathers)
        children = self._with_immutables(self._mutate(children))
        # candidates that cost more than the worst survivor need no robustness score
        costs, valid = self._costs(children, self.costs.max(axis=1))
        survivors = np.argpartition(np.hstack([self.costs, costs]), s.population - 1, axis=1)[:, : s.population]
        both = np.concatenate([self.population, children], axis=1)
        self.population = np.take_along_axis(both, survivors[:, :, None], axis=1)
        unconfirmed = np.zeros_like(valid)
        for name, more in (("costs", costs), ("valid", valid), ("confirmed", unconfirmed)):
            both = np.hstack([getattr(self, name), more])
            setattr(self, name, np.take_along_axis(both, survivors, axis=1))
        self._record_best()
        done = (self.waited >= s.patience) & np.isfinite(self.best)
        if done.any():
            for name in _ROWS:
                setattr(self, name, getattr(self, name)[~done])
        return int(done.sum())

    def _with_immutables(self, candidates: np.ndarray) -> np.ndarray:
        """Return candidates with the immutable features of the factual."""
        return np.where(self.genes.mutable, candidates, self.factuals[:, None, :])

    def _parents(self) -> np.ndarray:
        s = self.settings
        drawn = self.rng.integers(s.population, size=(s.population, s.tournament))
        winners = self.costs[:, drawn].argmin(axis=2)
        chosen = drawn[np.arange(s.population), winners]
        return np.take_along_axis(self.population, chosen[:, :, None], axis=1)

    def _mutate(self, children: np.ndarray) -> np.ndarray:
        s, genes = self.settings, self.genes
        shape = s.population, genes.n
        mutated = self.rng.random(shape) < 1 / max(genes.mutable.sum(), 1)
        moves = s.mutation * (2 * self.rng.random(shape) - 1)
        others = genes.random(shape, self.rng)
        if s.reference_quirks:
            others = np.where(genes.categorical, 0.0, others)
        fresh = np.where(genes.categorical, others, (children + moves).clip(0.0, 1.0))
        copied = self.rng.random(shape) < s.copied
        fresh = np.where(copied, self.factuals[:, None, :], fresh)
        return np.where(mutated, fresh, children)

    def _costs(self, candidates: np.ndarray, limits: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return -F of candidates (b, p, f), infinite where it is above ``limits`` (b,), and which are valid."""
        method = self.method
        costs = method.plain_costs(candidates, self.factuals)
        valid = np.zeros(costs.shape, dtype=bool)
        people, numbers = np.nonzero(costs < limits[:, None])
        valid[people, numbers] = method._accepts(self.genes.decode(candidates[people, numbers]))
        costs = np.where(valid, costs, costs + 1)
        people, numbers = np.nonzero(costs < limits[:, None])
        least = 1 - 2 * (limits[people] - costs[people, numbers])
        scores = method.k_robustness(
            candidates[people, numbers], self.factuals[people], self.rng, least, 1, self.deadline
        )
        known = np.full(costs.shape, np.inf)
        known[people, numbers] = costs[people, numbers] + (1 - scores) / 2
        return known, valid

    def _record_best(self) -> None:
        """Store the best valid candidates, after confirmation with more perturbations: the first score is biased."""
        every = np.arange(len(self.people))
        first = np.where(self.valid, self.costs, np.inf).argmin(axis=1)
        again = np.flatnonzero(self.valid[every, first] & ~self.confirmed[every, first])
        chosen = self.population[again, first[again]]
        scores = self.method.k_robustness(
            chosen, self.factuals[again], self.rng, times=_CONFIRM, deadline=self.deadline
        )
        plain = self.method.plain_costs(chosen[:, None, :], self.factuals[again])[:, 0]
        self.costs[again, first[again]] = plain + (1 - scores) / 2
        self.confirmed[again, first[again]] = True
        costs = np.where(self.valid & self.confirmed, self.costs, np.inf)
        first = costs.argmin(axis=1)
        lowest = costs[every, first]
        better = np.flatnonzero(lowest < self.best - 1e-9)
        self.best[better] = lowest[better]
        self.waited += 1
        self.waited[better] = 0
        chosen = self.population[better, first[better]]
        same = ~self.genes.differ(chosen, self.factuals[better])
        rows = self.rows[self.people[better]]
        self.found[self.people[better]] = np.where(same @ self.genes.membership, rows, self.genes.decode(chosen))


class Genes:
    """Conversion between encoded rows (n, d) and genes (n, f), one for each feature of the data set.

    Parameters
    ----------
    mlmodel
        Model whose data set has the features, categories and immutables.

    Attributes
    ----------
    n, width : int
        Number of features f and of encoded columns d.
    mutable, categorical : (f,) array of bool
        Which features may change, and which are categorical.
    counts : (f,) array
        Number of categories; 1 for continuous features.
    membership : (f, d) array of bool
        Which columns belong to which feature.
    """

    def __init__(self, mlmodel: MLModel) -> None:
        data, order = mlmodel.data, mlmodel.feature_input_order
        groups = feature_groups(data, order)
        self.n, self.width = len(groups), len(order)
        self.mutable = np.array([name not in data.immutables for name in groups])
        self.categorical = np.array([name in data.categorical for name in groups])
        self.membership = np.zeros((self.n, self.width), dtype=bool)
        self.counts = np.ones(self.n, dtype=int)
        self._plain: list[tuple[int, int]] = []  # gene and column of features whose gene is the value
        self._tables: list[tuple[int, list[int], np.ndarray]] = []
        for gene, (name, columns) in enumerate(groups.items()):
            self.membership[gene, columns] = True
            if name not in data.categorical:
                self._plain.append((gene, columns[0]))
                continue
            encodings = valid_encodings(data, name, len(columns))
            self.counts[gene] = len(encodings)
            if np.array_equal(encodings, [[0.0], [1.0]]):
                self._plain.append((gene, columns[0]))
            else:
                self._tables.append((gene, columns, encodings))

    def encode(self, rows: np.ndarray) -> np.ndarray:
        """Return the genes (n, f) of encoded rows (n, d); categories by their nearest valid encoding."""
        genes = np.empty((len(rows), self.n))
        for gene, column in self._plain:
            genes[:, gene] = rows[:, column].round() if self.categorical[gene] else rows[:, column]
        for gene, columns, encodings in self._tables:
            genes[:, gene] = np.abs(rows[:, None, columns] - encodings).sum(axis=2).argmin(axis=1)
        return genes

    def decode(self, genes: np.ndarray) -> np.ndarray:
        """Return the encoded rows (n, d) of genes (n, f)."""
        rows = np.empty((len(genes), self.width))
        for gene, column in self._plain:
            rows[:, column] = genes[:, gene]
        for gene, columns, encodings in self._tables:
            rows[:, columns] = encodings[genes[:, gene].astype(int)]
        return rows

    def random(self, shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
        """Sample genes (..., f): values in [0, 1], every category equally likely."""
        return self._from_uniform(rng.random(shape))

    def differ(self, genes: np.ndarray, others: np.ndarray) -> np.ndarray:
        """Return which genes differ."""
        return np.abs(genes - others) > _SAME

    def perturb(
        self, genes: np.ndarray, chosen: np.ndarray, draws: np.ndarray, decrease: float, increase: float
    ) -> np.ndarray:
        """Return rows (n, m, d) with the ``chosen`` genes (n, f) perturbed by uniform ``draws`` (m, f).

        Values change by up to ``decrease`` and ``increase`` but do not leave [0, 1]; categories become any.
        """
        moves = np.where(self.categorical, 0.0, draws * (increase + decrease) - decrease) @ self.membership
        categories = self.decode(np.where(self.categorical, self._from_uniform(draws), 0.0))
        rows = np.empty((len(genes), len(draws), self.width))
        _perturb(
            self.decode(genes), chosen @ self.membership, self.categorical @ self.membership, moves, categories, rows
        )
        return rows

    def _from_uniform(self, draws: np.ndarray) -> np.ndarray:
        return np.where(self.categorical, np.floor(draws * self.counts).clip(max=self.counts - 1), draws)


@jit
def _perturb(
    rows: np.ndarray,
    chosen: np.ndarray,
    categorical: np.ndarray,
    moves: np.ndarray,
    categories: np.ndarray,
    perturbed: np.ndarray,
) -> None:
    for i in range(len(rows)):
        for k in range(len(moves)):
            for j in range(rows.shape[1]):
                value = rows[i, j]
                if chosen[i, j]:
                    value = (
                        categories[k, j]
                        if categorical[j]
                        else min(max(value + moves[k, j], min(value, 0.0)), max(value, 1.0))
                    )
                perturbed[i, k, j] = value
