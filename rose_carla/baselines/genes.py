"""Genes of CoGS: one number for each feature, a value or the number of a category."""

from __future__ import annotations

import numpy as np
from carla.models.api import MLModel
from rose_carla.datasets import feature_groups, valid_encodings
from rose_carla.noise._sampling import jit

#: Largest difference between equal values.
_SAME = 1e-9


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
