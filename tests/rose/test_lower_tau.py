"""A lower tau asks for less, so it never serves fewer people: on three tables, each with a policy seed of its own."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from rose_carla import RoseOne, datasets, models

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))
from made_up_tables import correlated

PEOPLE = 60


def paper_table(name):
    model = models.train(datasets.load(name), "ann")
    return model, {}, models.negative_instances(model).head(PEOPLE)


def made_up_table():
    """Half of 20 features are immutable, and the others count for little: some people cannot be helped."""
    table = correlated(1500, hard=3.0)
    data = datasets.from_frame(table.frame, table.target, name="lower-tau", immutables=table.immutables)
    model = models.train(data, "ann")
    return model, table.monotone, models.negative_instances(model, split="test", limit=PEOPLE)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:features with outliers")
@pytest.mark.parametrize(("name", "seed"), [("compas", 0), ("german", 1), ("made-up", 2)])
def test_a_lower_tau_never_serves_fewer_people(name, seed):
    model, monotone, people = made_up_table() if name == "made-up" else paper_table(name)
    served = {}
    for tau in (0.6, 0.75):
        method = RoseOne(model, {"tau": tau, "monotone": monotone, "seed": seed, "progress": False})
        served[tau] = method.get_counterfactuals(people).notna().all(axis=1)
    assert len(people) == PEOPLE
    assert served[0.6].sum() >= served[0.75].sum(), f"not served: {people.index[served[0.75] & ~served[0.6]].tolist()}"
    assert served[0.75].mean() > 0.9
