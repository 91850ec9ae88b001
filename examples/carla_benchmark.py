"""ROSE and three of CARLA's own methods on COMPAS: distances, and how often the counterfactuals fail under noise.

Ten people, 300 noisy versions of each counterfactual. Any CARLA method can be added. ``rose_carla`` is imported before
``carla``: it makes CARLA importable.
"""

from __future__ import annotations

import pandas as pd
from rose_carla import Benchmark, RoseMul, RoseOne, datasets, models, seeded
from carla.recourse_methods import Dice, GrowingSpheres, Wachter

COLUMNS = {
    "Validity": "validity",
    "Sparsity": "features",
    "Proximity": "L1 distance",
    "Plausible_AIR": "Plausible AIR",
    "Acc_AIR": "Acc AIR",
}


def main() -> None:
    """Print the table."""
    model = models.train(datasets.load("compas", all_actionable=True), "ann")  # as in the paper's tables
    people = models.negative_instances(model).head(10)
    with seeded(0):  # CARLA's methods draw from the global generators
        methods = {
            "Wachter": Wachter(model, {"loss_type": "MSE", "y_target": [1]}),
            "Growing Spheres": GrowingSpheres(model, {}),
            "DiCE": Dice(model, {}),
            "ROSE-one": RoseOne(model, {"progress": False}),
            "ROSE-mul": RoseMul(model, {"progress": False}),
        }
        rows = {}
        for name, method in methods.items():
            result = Benchmark(model, method, people, {"n_samples": 300}).run_benchmark()
            rows[name] = result[list(COLUMNS)].mean()
    table = pd.DataFrame(rows).T.rename(columns=COLUMNS)
    print(table.round(2).to_string())


if __name__ == "__main__":
    main()
