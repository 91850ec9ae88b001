"""The choice of people who are turned down."""

from __future__ import annotations

import pandas as pd
import pytest
from rose_carla import datasets, models
from rose_carla.errors import DataError, ModelError
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression


def test_negative_instances_are_all_and_only_those_refused(compas, compas_ann):
    chosen = models.negative_instances(compas_ann)
    refused = [
        label
        for label, row in compas.df_test.iterrows()
        if compas_ann.predict_proba(row[compas_ann.feature_input_order].to_numpy(dtype=float)[None])[0, 1] < 0.5
    ]
    assert chosen.index.tolist() == refused
    assert chosen.columns.tolist() == [*compas_ann.feature_input_order, "score"]


def test_the_papers_selection_per_data_set(german, adult):
    on_german = models.train(german)
    everyone = models.negative_instances(on_german)
    assert set(everyone.index) & set(german.df_train.index)
    on_adult = models.train(adult, "linear", settings=models.TrainingSettings((), 0.01, 4096, epochs=2))
    drawn = models.negative_instances(on_adult)
    assert len(drawn) == 200
    assert set(drawn.index) <= set(adult.df_test.index)
    pd.testing.assert_frame_equal(drawn, models.negative_instances(on_adult))
    assert set(models.negative_instances(on_adult, seed=1).index) != set(drawn.index)


def test_bad_selections_are_explained(compas, compas_ann, encoded):
    with pytest.raises(DataError, match="Unknown split 'tset': did you mean 'test'"):
        models.negative_instances(compas_ann, split="tset")
    with pytest.raises(DataError, match="at least 1"):
        models.negative_instances(compas_ann, limit=0)
    with pytest.raises(DataError, match="lacks columns"):
        models.negative_instances(compas_ann, datasets.load("german"))
    with pytest.raises(ModelError, match="Expected a CARLA model"):
        models.negative_instances(LogisticRegression(), compas)
    forest = RandomForestClassifier(n_estimators=1, max_depth=1).fit(encoded[0].iloc[:50], [1] * 49 + [0])
    with pytest.raises(DataError, match="turns nobody down"):
        models.negative_instances(models.wrap(forest, compas))
