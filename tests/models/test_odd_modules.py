"""torch modules that nobody planned for: a right gradient, or a sentence that says what is wrong."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from rose_carla import models
from foreign_models import GRADIENT, Foreign
from rose_carla.errors import ModelError


@pytest.fixture(scope="module")
def people(compas_linear):
    return models.negative_instances(compas_linear).head(4)


class Two(torch.nn.Module):
    """Probabilities (n, 2), and then something odd."""

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
def test_odd_modules_are_explained(compas_linear, kind, method):
    module, message = ODD_MODULES[kind]
    with pytest.raises(ModelError, match=message):
        method(Foreign(compas_linear, module=module))


def test_a_wrapped_module_that_raises_at_two_rows(compas):
    model = models.wrap(RaisesAtTwo(), compas)
    for method in GRADIENT:
        with pytest.raises(ModelError, match="cannot compute 2 rows: KeyError, 'no pairs'"):
            method(model)


def test_a_module_that_fails_later_is_told(compas, compas_linear):
    class Tires(Two):
        def forward(self, x):
            return super().forward(x) if len(x) < 3 else super().forward(x)[:, :1]

    g = models.logit(Foreign(compas_linear, module=Tires()), "PROBE")
    assert g(torch.zeros(2, 7)).shape == (2,)
    with pytest.raises(ModelError, match=r"returns \(3, 1\) for 3 rows"):
        g(torch.zeros(3, 7))


class InPlace(torch.nn.Module):
    """The network, and afterwards its rows are something else."""

    def __init__(self, network):
        super().__init__()
        self.network = network

    def forward(self, x):
        x -= 0.25
        return self.network(x + 0.25)


def test_a_module_may_change_its_rows(compas_linear, people):
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
        ends = [method(each).get_counterfactuals(people) for each in (model, compas_linear)]
        np.testing.assert_allclose(ends[0], ends[1], atol=0.02)


@pytest.mark.parametrize("odd", [5, torch.nn.Linear(7, 1), None])
def test_what_is_only_called_logit_is_not_taken_for_one(compas_linear, odd):
    module = Two()
    module.logit = odd
    rows = torch.rand(5, 7, generator=torch.Generator().manual_seed(0))
    g = models.logit(Foreign(compas_linear, module=module))
    torch.testing.assert_close(g(rows), module.linear(rows)[:, 1] - module.linear(rows)[:, 0], rtol=1e-4, atol=1e-4)
