"""The appendix' tables of classifiers: how they are trained, how often they are right, how many people they refuse."""

from __future__ import annotations

import pandas as pd
from rose_carla import models
from rose_carla.bench.layouts import Scope
from rose_carla.bench.setting import CLASSIFIERS
from rose_carla.bench.table import Column, Layout, Table, build

_LAYOUT = Layout(
    "classifiers",
    "Classifiers: training, accuracy on the test split, people who are turned down",
    tuple(Column(metric) for metric in ("Batch_Size", "Epochs", "Learning_Rate", "Accuracy", "People")),
    tuple((kind, "") for kind in reversed(CLASSIFIERS)),
    marked=False,
)


def classifiers(scope: Scope) -> tuple[Table, pd.DataFrame]:
    """The table, and the rows of the test splits that it was made of."""
    frames = []
    for kind in CLASSIFIERS:
        for setting in scope.settings(kind):
            model = setting.model()
            test = model.data.df_test
            favourable = models.favourable(model)(test[model.feature_input_order].to_numpy(dtype=float))
            trained = models.paper_settings(kind, setting.dataset)
            frames.append(
                pd.DataFrame(
                    {
                        "Dataset": setting.dataset,
                        "Method": kind,
                        "Condition": "",
                        "Seed": setting.seed,
                        "Person": test.index,
                        "Accuracy": (favourable == test[model.data.target].to_numpy()).astype(float),
                        "People": len(models.negative_instances(model, seed=setting.seed)),
                        "Batch_Size": trained.batch_size,
                        "Epochs": trained.epochs,
                        "Learning_Rate": trained.learning_rate,
                        "Alone": True,
                    }
                )
            )
    rows = pd.concat(frames, ignore_index=True)
    return build(_LAYOUT, rows, scope.datasets, {}), rows
