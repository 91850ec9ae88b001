"""Cells for tests: a small setting, methods without computation, and a short way to run them."""

from __future__ import annotations

from types import SimpleNamespace

import pandas as pd
from rose_carla import bench
from rose_carla.bench import METHODS, Entry, Judgement, Local, Recourse, Setting, Store
from rose_carla.metrics import NoiseSettings

SETTING = Setting("compas", "linear", people=4)
FEW = NoiseSettings.from_mapping({"n_samples": 50})


def fake(monkeypatch, prepare=lambda: None, name="GrSp", plans=None):
    """Replace the method ``name`` by one that calls ``prepare`` and returns the most favourable training row."""

    def make(model, options):
        prepare()
        rows = model.data.df_train[model.feature_input_order]
        goal = rows.iloc[model.predict_proba(rows)[:, 1].argmax()]
        method = SimpleNamespace(plans={}) if plans else SimpleNamespace()

        def get_counterfactuals(factuals):
            ends = pd.DataFrame([goal] * len(factuals), index=factuals.index)
            if plans:
                ends, method.plans = plans(factuals[model.feature_input_order], ends)
            return ends

        method.get_counterfactuals = get_counterfactuals
        return method

    monkeypatch.setitem(METHODS, name, Entry(make, {}, False, seeded=False))


def judgement(method="GrSp", metric="Proximity", setting=SETTING, noise=FEW, **options):
    return Judgement(Recourse.with_options(setting, method, **options), (metric,), noise)


def run(judgements, folder, engine=None, **options):
    return bench.run(judgements, Store(folder), engine or Local(1), progress=False, **options)
