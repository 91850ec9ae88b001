"""Differentiable logits: exact for confident classifiers, an error for modules without a gradient."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch
from rose_carla import baselines, checks, models
from foreign_models import GRADIENT, Foreign
from rose_carla.errors import ContractError, DataError, ModelError


class Scaled(torch.nn.Module):
    """Logistic regression of a model with its logits scaled by a factor, as one column or two."""

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
def test_wrapped_logits_are_exact_for_confident_classifiers(compas_linear, factor, columns):
    module = Scaled(compas_linear.raw_model, factor, columns)
    wrapped = models.wrap(module, compas_linear.data, feature_order=compas_linear.feature_input_order, output="logit")
    rows = torch.tensor(compas_linear.data.df_test[compas_linear.feature_input_order].to_numpy(np.float32))
    ours, theirs = models.logit(wrapped)(rows), factor * models.logit(compas_linear)(rows)
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-3 * factor)
    people = models.negative_instances(compas_linear).head(10)
    same = [baselines.Arar(model).get_counterfactuals(people).to_numpy() for model in (compas_linear, wrapped)]
    np.testing.assert_allclose(same[0], same[1], atol=1e-4)


def test_logits_of_other_modules_come_from_probabilities(compas_linear):
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
def test_module_without_gradient_is_rejected(compas_linear, kind):
    module = kind(compas_linear.raw_model, 1.0, 2)
    model = models.wrap(module, compas_linear.data, feature_order=compas_linear.feature_input_order, output="logit")
    with pytest.raises(ModelError, match=r"PROBE follows gradients, but .* does not depend on its input"):
        baselines.Probe(model)


def test_module_without_parameters_is_rejected(compas_linear):
    model = models.TorchModel(compas_linear.data, Empty(), compas_linear.feature_input_order)
    with pytest.raises(ModelError, match="no parameters"):
        models.logit(model)


def test_nan_predictions_are_reported(compas_linear):
    class Broken(type(compas_linear)):
        def predict_proba(self, x):
            return np.full((len(x), 2), np.nan)

    model = Broken(compas_linear.data, compas_linear.raw_model, compas_linear.feature_input_order)
    people = models.negative_instances(compas_linear).head(3)
    with pytest.raises(ModelError, match=f"returned NaN or infinity for rows {people.index[0]}"):
        baselines.Arar(model).get_counterfactuals(people)


def test_factuals_between_categories_are_rejected(compas_linear):
    people = models.negative_instances(compas_linear).head(3)
    people["c_charge_degree_M"] = [0.0, 0.4, 1.0]
    with pytest.raises(DataError, match=f"not at a valid encoding in rows {people.index[1]}:"):
        baselines.Cogs(compas_linear).get_counterfactuals(people)


def test_numpy_numbers_are_accepted_as_options(compas_linear):
    people = models.negative_instances(compas_linear).head(2)
    plain, numpy = (
        baselines.Croco(compas_linear, {"seed": seed, "n_steps": steps, "target": 0.8}).get_counterfactuals(people)
        for seed, steps in ((3, 50), (np.int64(3), np.int32(50)))
    )
    assert plain.equals(numpy)


def test_methods_that_cannot_be_checked_are_rejected(compas_linear):
    people = models.negative_instances(compas_linear).head(2)
    with pytest.raises(ContractError, match="Arar is a class"):
        checks.check_recourse_method(baselines.Arar, people)
    with pytest.raises(ContractError, match="is unknown: pass it as mlmodel"):
        checks.check_recourse_method(object(), people)
    with pytest.raises(DataError, match="lack the columns"):
        checks.check_recourse_method(baselines.Arar(compas_linear), people.drop(columns="age"))


def test_factuals_with_duplicate_columns_or_large_values_are_rejected(compas_linear):
    people = models.negative_instances(compas_linear).head(3)
    with pytest.raises(DataError, match=r"have the column .* twice"):
        baselines.Cogs(compas_linear).get_counterfactuals(pd.concat([people, people], axis=1))
    with pytest.raises(DataError, match="values beyond 1e"):
        baselines.Cogs(compas_linear).get_counterfactuals(people.assign(age=1e300))
    with pytest.raises(DataError, match="labels of the factuals are missing"):
        baselines.Cogs(compas_linear).get_counterfactuals(people.set_axis([1, np.nan, 2], axis=0))


@pytest.fixture(scope="module")
def people(compas_linear):
    return models.negative_instances(compas_linear).head(4)


class Two(torch.nn.Module):
    """Module that changes probabilities (n, 2) by a function."""

    def __init__(self, odd=lambda values: values):
        super().__init__()
        self.linear, self.odd = torch.nn.Linear(7, 2), odd

    def forward(self, x):
        return self.odd(self.linear(x).softmax(dim=1))


class RaisesAtTwo(Two):
    def forward(self, x):
        if len(x) == 2:
            raise KeyError("no pairs")
        return super().forward(x)


class BrokenBackward(Two):
    def forward(self, x):
        values = super().forward(x)
        squares = values * values
        values += 1
        return squares


ODD_MODULES = {
    "one column": (Two(lambda values: values[:, :1]), r"returns \(2, 1\) for 2 rows instead of probabilities \(n, 2\)"),
    "flat": (Two(lambda values: values[:, 0]), r"returns \(2,\) for 2 rows .*: wrap the module with models.wrap"),
    "three": (torch.nn.Linear(7, 3), r"returns \(2, 3\) for 2 rows"),
    "nothing": (Two(lambda values: None), "returns NoneType for 2 rows"),
    "pair": (Two(lambda values: (values, values)), "returns tuple for 2 rows"),
    "truth": (Two(lambda values: values > 0.5), "cannot compute 2 rows: TypeError"),
    "raises": (Two(lambda values: 1 / 0), "cannot compute 2 rows: ZeroDivisionError, division by zero"),
    "at two": (RaisesAtTwo(), "cannot compute 2 rows: KeyError, 'no pairs'"),
    "backward": (BrokenBackward(), "cannot compute gradients: RuntimeError"),
    "width": (torch.nn.Linear(3, 2), "cannot compute 2 rows: RuntimeError"),
}


@pytest.mark.parametrize("kind", ODD_MODULES)
@pytest.mark.parametrize("method", GRADIENT)
def test_invalid_modules_are_rejected(compas_linear, kind, method):
    module, message = ODD_MODULES[kind]
    with pytest.raises(ModelError, match=message):
        method(Foreign(compas_linear, module=module))


def test_wrapped_module_that_raises_for_two_rows(compas):
    model = models.wrap(RaisesAtTwo(), compas)
    for method in GRADIENT:
        with pytest.raises(ModelError, match="cannot compute 2 rows: KeyError, 'no pairs'"):
            method(model)


def test_module_that_fails_later_is_reported(compas, compas_linear):
    class Tires(Two):
        def forward(self, x):
            return super().forward(x) if len(x) < 3 else super().forward(x)[:, :1]

    g = models.logit(Foreign(compas_linear, module=Tires()), "PROBE")
    assert g(torch.zeros(2, 7)).shape == (2,)
    with pytest.raises(ModelError, match=r"returns \(3, 1\) for 3 rows"):
        g(torch.zeros(3, 7))


class InPlace(torch.nn.Module):
    """Network that changes its rows after the prediction."""

    def __init__(self, network):
        super().__init__()
        self.network = network

    def forward(self, x):
        x -= 0.25
        return self.network(x + 0.25)


@pytest.mark.slow
def test_module_may_change_its_rows(compas_linear, people):
    rows = torch.rand(5, 7, generator=torch.Generator().manual_seed(0), requires_grad=True)
    kept = rows.detach().clone()
    model = models.TorchModel(compas_linear.data, InPlace(compas_linear.raw_model), compas_linear.feature_input_order)
    odd, plain = models.logit(model), models.logit(compas_linear)
    torch.testing.assert_close(odd(rows), plain(rows), rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(
        *(torch.autograd.grad(g(rows).sum(), rows)[0] for g in (odd, plain)), rtol=1e-4, atol=1e-4
    )
    assert torch.equal(rows.detach(), kept)
    for method in GRADIENT:
        options = {"n_steps": 300, "learning_rate": 0.01}
        ends = [method(each, options).get_counterfactuals(people) for each in (model, compas_linear)]
        assert np.isfinite(ends[1]).any(axis=None)
        np.testing.assert_allclose(ends[0], ends[1], atol=0.02)


@pytest.mark.parametrize("odd", [5, torch.nn.Linear(7, 1), None])
def test_attribute_logit_that_is_not_a_method_is_ignored(compas_linear, odd):
    module = Two()
    module.logit = odd
    rows = torch.rand(5, 7, generator=torch.Generator().manual_seed(0))
    g = models.logit(Foreign(compas_linear, module=module))
    torch.testing.assert_close(g(rows), module.linear(rows)[:, 1] - module.linear(rows)[:, 0], rtol=1e-4, atol=1e-4)
