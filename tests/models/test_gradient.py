"""The differentiable logit: exact however sure the classifier is, and refused where there is none."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch
from rose_carla import baselines, checks, models
from rose_carla.errors import ContractError, DataError, ModelError


class Scaled(torch.nn.Module):
    """The logistic regression of a model with its logits times a factor, as one column or two."""

    def __init__(self, network, factor, columns):
        super().__init__()
        (layer,) = network.layers
        self.linear = torch.nn.Linear(layer.in_features, 1)
        with torch.no_grad():
            self.linear.weight.copy_(factor * (layer.weight[1] - layer.weight[0])[None])
            self.linear.bias.copy_(factor * (layer.bias[1] - layer.bias[0])[None])
        self.columns = columns

    def forward(self, x):
        values = self.linear(x)
        return values if self.columns == 1 else torch.cat([-values / 2, values / 2], dim=1)


@pytest.mark.parametrize("columns", [1, 2])
@pytest.mark.parametrize("factor", [1.0, 40.0, 1000.0])
def test_wrapped_logits_stay_exact_when_the_classifier_is_sure(compas_linear, factor, columns):
    module = Scaled(compas_linear.raw_model, factor, columns)
    wrapped = models.wrap(module, compas_linear.data, feature_order=compas_linear.feature_input_order, output="logit")
    rows = torch.tensor(compas_linear.data.df_test[compas_linear.feature_input_order].to_numpy(np.float32))
    ours, theirs = models.logit(wrapped)(rows), factor * models.logit(compas_linear)(rows)
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-3 * factor)
    people = models.negative_instances(compas_linear).head(10)
    same = [baselines.Arar(model).get_counterfactuals(people).to_numpy() for model in (compas_linear, wrapped)]
    np.testing.assert_allclose(same[0], same[1], atol=1e-4)


def test_other_modules_go_by_their_probabilities(compas_linear):
    class Softmax(torch.nn.Module):
        def __init__(self, network):
            super().__init__()
            self.network = network

        def forward(self, x):
            return self.network(x)

    model = models.TorchModel(compas_linear.data, Softmax(compas_linear.raw_model), compas_linear.feature_input_order)
    rows = torch.rand(50, 7, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(models.logit(model)(rows), models.logit(compas_linear)(rows), rtol=1e-4, atol=1e-4)


class Detached(Scaled):
    def forward(self, x):
        return super().forward(x.detach())


class Ignores(Scaled):
    def forward(self, x):
        return super().forward(torch.zeros_like(x))


class Empty(torch.nn.Module):
    def forward(self, x):
        return torch.stack([x.sum(dim=1), -x.sum(dim=1)], dim=1).softmax(dim=1)


@pytest.mark.parametrize("kind", [Detached, Ignores])
def test_modules_without_a_gradient_are_refused(compas_linear, kind):
    module = kind(compas_linear.raw_model, 1.0, 2)
    model = models.wrap(module, compas_linear.data, feature_order=compas_linear.feature_input_order, output="logit")
    with pytest.raises(ModelError, match=r"PROBE follows gradients, but .* does not depend on its input"):
        baselines.Probe(model)


def test_modules_without_parameters_are_refused(compas_linear):
    model = models.TorchModel(compas_linear.data, Empty(), compas_linear.feature_input_order)
    with pytest.raises(ModelError, match="no parameters"):
        models.logit(model)


def test_a_classifier_that_predicts_no_number_is_told(compas_linear):
    class Broken(type(compas_linear)):
        def predict_proba(self, x):
            return np.full((len(x), 2), np.nan)

    model = Broken(compas_linear.data, compas_linear.raw_model, compas_linear.feature_input_order)
    people = models.negative_instances(compas_linear).head(3)
    with pytest.raises(ModelError, match=f"predicts no number for rows {people.index[0]}"):
        baselines.Arar(model).get_counterfactuals(people)


def test_factuals_at_no_category_are_refused(compas_linear):
    people = models.negative_instances(compas_linear).head(3)
    people["c_charge_degree_M"] = [0.0, 0.4, 1.0]
    with pytest.raises(DataError, match=f"no valid encoding in rows {people.index[1]}:"):
        baselines.Cogs(compas_linear).get_counterfactuals(people)


def test_numbers_of_numpy_are_options_like_any_other(compas_linear):
    people = models.negative_instances(compas_linear).head(2)
    plain, numpy = (
        baselines.Croco(compas_linear, {"seed": seed, "n_steps": steps, "target": 0.8}).get_counterfactuals(people)
        for seed, steps in ((3, 50), (np.int64(3), np.int32(50)))
    )
    assert plain.equals(numpy)


def test_what_cannot_be_checked_is_told(compas_linear):
    people = models.negative_instances(compas_linear).head(2)
    with pytest.raises(ContractError, match="Arar is a class"):
        checks.check_recourse_method(baselines.Arar, people)
    with pytest.raises(ContractError, match="is unknown: pass it as mlmodel"):
        checks.check_recourse_method(object(), people)
    with pytest.raises(DataError, match="lack the columns"):
        checks.check_recourse_method(baselines.Arar(compas_linear), people.drop(columns="age"))


def test_factuals_with_columns_twice_or_far_away_are_refused(compas_linear):
    people = models.negative_instances(compas_linear).head(3)
    with pytest.raises(DataError, match="columns twice"):
        baselines.Cogs(compas_linear).get_counterfactuals(pd.concat([people, people], axis=1))
    with pytest.raises(DataError, match="values beyond 1e"):
        baselines.Cogs(compas_linear).get_counterfactuals(people.assign(age=1e300))
    with pytest.raises(DataError, match="labels of the factuals are missing"):
        baselines.Cogs(compas_linear).get_counterfactuals(people.set_axis([1, np.nan, 2], axis=0))
