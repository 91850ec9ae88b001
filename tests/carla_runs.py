"""How each of CARLA's thirteen catalog methods is run in the tests: model, hyper-parameters, needs.

The table in ``docs/carla.md`` is generated from this list (``python tests/carla_runs.py``) and a test compares them.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

#: Sizes of the autoencoders on COMPAS: small, because they only need to run.
_VAE = {"train": True, "epochs": 1, "lr": 1e-3, "batch_size": 64}


@dataclass(frozen=True)
class CarlaRun:
    """One method on one kind of model.

    Parameters
    ----------
    method
        Name in ``carla.recourse_methods``.
    model
        Kind of model: torch, tensorflow, sklearn, xgboost or scm.
    needs
        Import names of the optional packages that the run uses.
    hyperparams
        From the number of encoded features to the method's hyper-parameters.
    every_measure
        Whether all of CARLA's measures run; constraint violation crashes for forests in CARLA itself.
    note
        What a user should know.
    checks_outcome
        Whether the method returns only rows that its model accepts.
    may_break
        What else of the contract it keeps or not: CausalRecourse by the order of Python's sets, CEM by which of two
        assignments TensorFlow happens to run first (one reads what the other writes).
    people
        How many get recourse; fewer of methods that take long.
    """

    method: str
    model: str
    needs: tuple[str, ...]
    hyperparams: Callable[[int], dict[str, Any]] = field(repr=False)
    every_measure: bool = True
    note: str = ""
    checks_outcome: bool = True
    may_break: tuple[str, ...] = ()
    people: int = 4

    @property
    def breaks(self) -> tuple[str, ...]:
        """What of the contract of recourse methods (``rose_carla.checks``) it does not keep."""
        return _BREAKS[self.id]

    @property
    def id(self) -> str:
        """Name of the run in test reports."""
        return f"{self.method}-{self.model}"


def _wachter(width: int) -> dict[str, Any]:
    return {"loss_type": "MSE", "y_target": [1], "binary_cat_features": True}


def _dice(width: int) -> dict[str, Any]:
    return {"num": 1, "desired_class": 1, "posthoc_sparsity_param": 0.1}


def _face(width: int) -> dict[str, Any]:
    return {"mode": "knn", "fraction": 0.1}


def _focus(width: int) -> dict[str, Any]:
    return {
        "optimizer": "adam",
        "lr": 0.05,
        "n_class": 2,
        "n_iter": 20,
        "sigma": 10.0,
        "temperature": 1.0,
        "distance_weight": 0.01,
        "distance_func": "l1",
    }


def _cem(width: int) -> dict[str, Any]:
    return {
        "data_name": "compas",
        "max_iterations": 60,
        "binary_search_steps": 4,
        "kappa": 0.1,
        "gamma": 1.0,
        "mode": "PN",
        "num_classes": 2,
        "ae_params": {"hidden_layer": [width, 5], "train_ae": True, "epochs": 2},
    }


def _causal(width: int) -> dict[str, Any]:
    from carla.recourse_methods.catalog.causal_recourse import constraints, samplers

    return {
        "optimization_approach": "brute_force",
        "num_samples": 10,
        "constraint_handle": constraints.point_constraint,
        "sampler_handle": samplers.sample_true_m0,
    }


#: What of the contract each run breaks.
_BREAKS: dict[str, tuple[str, ...]] = {
    "Wachter-torch": ("bounds", "immutables", "seeds are local"),
    "GrowingSpheres-torch": ("bounds", "seeds are local", "index"),
    "GrowingSpheres-tensorflow": ("bounds", "seeds are local", "index"),
    "Dice-torch": ("immutables", "seeds are local", "index"),
    "Dice-tensorflow": ("immutables", "seeds are local", "index"),
    "Face-torch": ("immutables", "seeds are local", "index"),
    "ActionableRecourse-torch": ("seeds are local", "index"),
    "CCHVAE-torch": ("immutables", "seeds are local"),
    "CRUD-torch": ("bounds", "immutables", "seeds are local"),
    "Clue-torch": ("bounds", "immutables", "valid encodings", "index"),
    "Revise-torch": ("immutables", "seeds are local", "index"),
    "FeatureTweak-sklearn": ("bounds", "immutables", "index"),
    "FeatureTweak-xgboost": ("immutables", "index"),
    "FOCUS-sklearn": ("immutables", "same seed, same result", "order of columns", "index"),
    "FOCUS-xgboost": ("immutables", "same seed, same result", "order of columns", "index"),
    "CEM-tensorflow": ("immutables", "index"),
    "CausalRecourse-scm": ("NaN only on failure", "bounds", "index"),
}

CARLA_RUNS = (
    CarlaRun("Wachter", "torch", (), _wachter, note="use loss MSE with y_target [1]: its BCE crashes"),
    CarlaRun("GrowingSpheres", "torch", (), lambda width: {}, note="renumbers the index"),
    CarlaRun("GrowingSpheres", "tensorflow", ("tensorflow", "tf_keras"), lambda width: {}),
    CarlaRun("Dice", "torch", ("dice_ml",), _dice, note="renumbers the index"),
    CarlaRun("Dice", "tensorflow", ("dice_ml", "tensorflow", "tf_keras"), _dice, people=2),
    CarlaRun("Face", "torch", (), _face, note="crashes without immutables; renumbers the index"),
    CarlaRun(
        "ActionableRecourse",
        "torch",
        ("recourse", "cplex", "lime"),
        lambda width: {"fs_size": 30, "discretize": False, "sample": True},
        note="binary categories only",
    ),
    CarlaRun(
        "CCHVAE",
        "torch",
        (),
        lambda width: {"data_name": "compas", "max_iter": 200, "vae_params": {**_VAE, "layers": [width, 8, 4]}},
        note="binary categories only",
    ),
    CarlaRun(
        "CRUD",
        "torch",
        (),
        lambda width: {"data_name": "compas", "max_iter": 100, "vae_params": {**_VAE, "layers": [width, 8, 4]}},
        people=2,
    ),
    CarlaRun(
        "Clue",
        "torch",
        (),
        lambda width: {"data_name": "compas", "epochs": 1, "latent_dim": 6, "width": 10, "depth": 2},
        people=2,
    ),
    CarlaRun(
        "Revise",
        "torch",
        (),
        lambda width: {"data_name": "compas", "max_iter": 100, "vae_params": {**_VAE, "layers": [width, 8, 4]}},
        people=2,
    ),
    CarlaRun("FeatureTweak", "sklearn", (), lambda width: {"eps": 0.1}, False, "forests on continuous features"),
    CarlaRun("FeatureTweak", "xgboost", ("xgboost",), lambda width: {"eps": 0.1}, False, "continuous features"),
    CarlaRun(
        "FOCUS",
        "sklearn",
        ("tensorflow", "tf_keras", "xgboost"),
        _focus,
        False,
        "forests on continuous features",
        people=2,
    ),
    CarlaRun("FOCUS", "xgboost", ("tensorflow", "tf_keras", "xgboost"), _focus, False, "continuous features", people=2),
    CarlaRun(
        "CEM",
        "tensorflow",
        ("tensorflow", "tf_keras"),
        _cem,
        may_break=("same seed, same result", "order of columns"),
        people=2,
    ),
    CarlaRun(
        "CausalRecourse",
        "scm",
        ("causalgraphicalmodels",),
        _causal,
        note="needs a structural causal model; returns the intervention without its effects, whatever the outcome",
        checks_outcome=False,
        may_break=("columns",),
        people=2,
    ),
)


def skip_unless_installed(run: CarlaRun) -> None:
    """Skip the test if a package that the run needs is missing: TensorFlow does not go with every numpy."""
    for package in run.needs:
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"{package} is not installed")


def model_for(kind: str, network: Any) -> Any:
    """A model of some kind, given our network on COMPAS; forests know its continuous features only, as CARLA's do."""
    from rose_carla import models
    from carla.data.causal_model import CausalModel
    from rose_carla.carla_compat import import_optional
    from sklearn.ensemble import RandomForestClassifier

    data = network.data
    if kind == "torch":
        return network
    if kind == "tensorflow":
        return models.to_tensorflow(network)
    if kind == "scm":
        scm = CausalModel("sanity-3-lin")
        scm._immutables = ["x1"]  # of each of the others ten values are tried, in all combinations
        settings = models.TrainingSettings(hidden=(), learning_rate=0.01, batch_size=50, epochs=50)
        return models.train(scm.generate_dataset(400), "linear", settings=settings, use_cache=False)
    if kind == "sklearn":
        forest = RandomForestClassifier(n_estimators=5, max_depth=4, random_state=0)
    else:
        forest = import_optional("xgboost").XGBClassifier(n_estimators=5, max_depth=4, base_score=0.5)
    return models.wrap(forest.fit(data.df_train[data.continuous], data.df_train[data.target]), data, space="encoded")


def build(run: CarlaRun, mlmodel: Any, width: int) -> Any:
    """The method of ``run`` for a model; three of CARLA's constructors have an order of arguments of their own."""
    import carla.recourse_methods

    method = getattr(carla.recourse_methods, run.method)
    hyperparams = run.hyperparams(width)
    if run.method == "Clue":
        return method(mlmodel.data, mlmodel, hyperparams)
    if run.method == "Revise":
        return method(mlmodel, mlmodel.data, hyperparams)
    if run.method == "CEM":
        return method(mlmodel.session, mlmodel, hyperparams)
    if run.method == "CausalRecourse":
        hyperparams["scm"] = mlmodel.data.scm
    return method(mlmodel, hyperparams)


def table() -> str:
    """The table of ``docs/carla.md``."""
    from rose_carla.carla_compat import OPTIONAL_PACKAGES

    lines = [
        "| method | model | extras to install | CARLA's measures | breaks of the contract | note |",
        "|---|---|---|---|---|---|",
    ]
    for run in CARLA_RUNS:
        extras = dict.fromkeys(extra for need in run.needs for extra in OPTIONAL_PACKAGES[need][0].split(","))
        measures = "all" if run.every_measure else "all but constraint violation"
        broken = "; ".join([*run.breaks, *(f"{name} (at times)" for name in run.may_break)]) or "nothing"
        cells = [run.method, run.model, ", ".join(extras) or "none", measures, broken, run.note]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    print(table())
