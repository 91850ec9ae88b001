"""Import CARLA with views of libraries and stand-ins for packages, which its modules get instead of the real ones.

Loaded at the first ``import carla``, because the views need torch and pandas.

A view is a module object with the attributes of the real module except for a few, so that the library has the interface
that CARLA 0.0.5, and two packages it depends on, expect.

Stand-ins are for packages that are optional or slow to load, all of which CARLA imports. While CARLA is being imported,
``import tensorflow as tf`` and ``from keras.layers import Dense`` return stand-ins. Their first use afterwards loads
the package, or raises :class:`~rose_carla.errors.MissingPackageError` with the extra to install.
"""

from __future__ import annotations

import collections
import collections.abc
import contextlib
import functools
import importlib
import inspect
import logging
import logging.config
import pkgutil
import sys
import threading
from collections.abc import Iterable, Iterator
from importlib.abc import Loader
from types import ModuleType, SimpleNamespace
from typing import Any

import joblib
import numpy as np
import pandas as pd
import torch
from rose_carla.carla_compat import OPTIONAL_PACKAGES, import_optional
from rose_carla.carla_compat.checkpoints import load_keras, load_torch, reject_forest, skip_forest
from rose_carla.carla_compat.importer import Scope, ScopedLoader, scoped_import


class View(ModuleType):
    """Module ``real`` with some attributes replaced or added."""

    def __init__(self, real: ModuleType, **replaced: Any) -> None:
        super().__init__(real.__name__, real.__doc__)
        self.__dict__.update(replaced)
        self._real = real

    def __getattr__(self, attribute: str) -> Any:
        return getattr(self._real, attribute)


def _sum(a: Any, *args: Any, **kwargs: Any) -> Any:
    """``np.sum`` that still takes a generator."""
    return sum(a) if inspect.isgenerator(a) else np.sum(a, *args, **kwargs)


#: Names that numpy removed between 1.20 and 2.0.
NUMPY = View(
    np,
    float=float,
    int=int,
    bool=bool,
    object=object,
    float_=np.float64,
    infty=np.inf,
    NaN=np.nan,
    in1d=np.isin,
    sum=_sum,
)

#: CARLA loads whole networks, which torch rejects since 2.6.
TORCH = View(torch, load=load_torch)

#: CARLA saves forests as pickles.
JOBLIB = View(joblib, load=reject_forest, dump=skip_forest)


@functools.cache
def sklearn() -> ModuleType:
    """Return scikit-learn with the ``OneHotEncoder`` of 0.23; loaded late because that takes a second."""
    real = importlib.import_module("sklearn")
    preprocessing = importlib.import_module("sklearn.preprocessing")

    class OneHotEncoder(preprocessing.OneHotEncoder):  # type: ignore[name-defined]
        """Encoder with ``get_feature_names`` of scikit-learn before 1.2, also for data without categorical columns."""

        def fit(self, X: Any, y: Any = None) -> Any:
            self._no_columns = X.shape[1] == 0
            return self if self._no_columns else super().fit(X, y)

        def transform(self, X: Any) -> Any:
            return np.empty((len(X), 0)) if self._no_columns else super().transform(X)

        def get_feature_names(self, input_features: Any = None) -> Any:
            return np.array([], dtype=object) if self._no_columns else self.get_feature_names_out(input_features)

    def one_hot_encoder(*args: Any, sparse: bool | None = None, **kwargs: Any) -> OneHotEncoder:
        """Construct with ``sparse``, which is ``sparse_output`` since scikit-learn 1.2."""
        if sparse is not None:
            kwargs["sparse_output"] = sparse
        return OneHotEncoder(*args, **kwargs)

    return View(real, preprocessing=View(preprocessing, OneHotEncoder=one_hot_encoder))


def _frame(data: Any = None, index: Any = None, columns: Any = None, **kwargs: Any) -> pd.DataFrame:
    """``pd.DataFrame`` that still takes a set as columns (CARLA's synthetic data)."""
    return pd.DataFrame(data, index, list(columns) if isinstance(columns, set) else columns, **kwargs)


PANDAS_WITH_SETS = View(pd, DataFrame=_frame)


class _AppendableFrame(pd.DataFrame):
    """Frame with ``append``, removed in pandas 2.0."""

    @property
    def _constructor(self) -> type[_AppendableFrame]:
        return _AppendableFrame

    def append(self, other: Any, ignore_index: bool = False, sort: bool = False) -> _AppendableFrame:
        return _AppendableFrame(pd.concat([self, pd.DataFrame(other)], ignore_index=ignore_index, sort=sort))


PANDAS_WITH_APPEND = View(pd, DataFrame=_AppendableFrame)

#: CARLA configures the *root* logger on import, which belongs to the application.
LOGGING = View(logging, config=View(logging.config, dictConfig=lambda config: None))

COLLECTIONS = View(collections, Iterable=collections.abc.Iterable)


@functools.cache
def tensorflow_1() -> ModuleType:
    """Return TensorFlow's version 1 interface with Keras 2, and disable eager execution in the process.

    CARLA itself disables it at import, here at the first use of its TensorFlow code.
    """
    real = import_optional("tensorflow.compat.v1")
    keras = import_optional("tf_keras")
    real.disable_eager_execution()
    contrib = SimpleNamespace(eager=SimpleNamespace(py_func=real.py_function))
    models = View(keras.models, load_model=load_keras)
    return View(real, keras=View(keras, models=models), contrib=contrib)


@functools.cache
def xgboost_1() -> ModuleType:
    """Return xgboost with the classifier of 1.4.

    ``fit`` takes ``eval_metric`` (a constructor argument since 2.1), and trees start from 0.5 instead of the share of
    favourable outcomes (since 2.0): FeatureTweak and FOCUS evaluate each tree on its own and rely on that.
    """
    real = import_optional("xgboost")

    class XGBClassifier(real.XGBClassifier):  # type: ignore[name-defined]
        def __init__(self, *, base_score: Any = 0.5, **kwargs: Any) -> None:
            super().__init__(base_score=base_score, **kwargs)

        def fit(self, X: Any, y: Any, *, eval_metric: Any = None, **kwargs: Any) -> Any:
            if eval_metric is not None:
                self.set_params(eval_metric=eval_metric)
            # a plain classifier from here on, without our overrides
            self.__class__ = real.XGBClassifier
            return self.fit(X, y, **kwargs)

    return View(real, XGBClassifier=XGBClassifier)


@functools.cache
def dice_ml() -> ModuleType:
    """Return DiCE for CARLA's wrapper, with pandas 3's strict dtypes and rows without a counterfactual.

    DiCE writes categories as text into the query, which must be of dtype ``object``; the classifier and CARLA need
    numbers. For a row without counterfactual DiCE returns ``None``, which CARLA drops silently, so that later rows
    would be compared with the wrong person: here it becomes a row of NaN.
    """
    real = import_optional("dice_ml")
    not_found = import_optional("raiutils.exceptions").UserConfigValidationException

    class Numeric:
        """CARLA model that accepts frames of any dtype."""

        def __init__(self, mlmodel: Any) -> None:
            self._mlmodel = mlmodel

        def __getattr__(self, attribute: str) -> Any:
            return getattr(self._mlmodel, attribute)

        def predict(self, x: Any) -> Any:
            return self._mlmodel.predict(x.astype(float))

        def predict_proba(self, x: Any) -> Any:
            return self._mlmodel.predict_proba(x.astype(float))

    class Dice:
        """``dice_ml.Dice`` with numeric input and output."""

        def __init__(self, data: Any, model: Any, **kwargs: Any) -> None:
            self._categorical = list(data.categorical_feature_names)
            self._explainer = real.Dice(data, model, **kwargs)

        def generate_counterfactuals(self, query: pd.DataFrame, **kwargs: Any) -> Any:
            try:
                found = self._explainer.generate_counterfactuals(
                    query.astype(dict.fromkeys(self._categorical, object)), **kwargs
                )
                frames = [example.final_cfs_df for example in found.cf_examples_list]
            except not_found:  # for no row at all
                frames = [None] * len(query)
            nothing = pd.DataFrame(np.nan, index=[0], columns=query.columns)
            return SimpleNamespace(
                cf_examples_list=[
                    SimpleNamespace(final_cfs_df=nothing if frame is None else frame.astype(float)) for frame in frames
                ]
            )

    return View(real, Model=lambda model, **kwargs: real.Model(model=Numeric(model), **kwargs), Dice=Dice)


#: Packages that CARLA's modules get a stand-in for: the optional ones, and two that would double the import time.
_DEFERRED = frozenset(OPTIONAL_PACKAGES) | {"keras", "sklearn", "scipy"}
_SEEN_BY_CARLA = {view.__name__: view for view in (NUMPY, TORCH, JOBLIB, LOGGING)}
#: Two modules that call ``pd.DataFrame`` in removed ways; all others need the real class for ``isinstance``.
_PANDAS_SEEN_BY = {
    "carla.data.causal_model.synthethic_data": PANDAS_WITH_SETS,
    "recourse.flipset": PANDAS_WITH_APPEND,
}
_VIEWS_ON_USE = {"dice_ml": dice_ml, "sklearn": sklearn, "tensorflow": tensorflow_1, "xgboost": xgboost_1}


def _for_carla(importer: str, module: ModuleType) -> ModuleType:
    if module.__name__ == "pandas":
        return _PANDAS_SEEN_BY.get(importer, module)
    return _SEEN_BY_CARLA.get(module.__name__, module)


def _for_causal_models(importer: str, module: ModuleType) -> ModuleType:
    return COLLECTIONS if module.__name__ == "collections" else module


def _deferred(name: str, wants_leaf: bool) -> ModuleType:
    package = name.partition(".")[0]
    if _is_importing():
        return _stand_in(name if wants_leaf else package)
    leaf = _load(name)
    return leaf if wants_leaf else _load(package)


#: The scope of CARLA's modules.
CARLA = Scope(_for_carla, _deferred, _DEFERRED)


@functools.cache
def _load(name: str) -> ModuleType:
    """Return the real optional module ``name``, or CARLA's view of it."""
    package = name.partition(".")[0]
    if name in _VIEWS_ON_USE:
        return _VIEWS_ON_USE[name]()
    if package == "keras":
        tensorflow_1()  # Keras follows TensorFlow's mode: set that first
        return import_optional("tf_keras" + name[len(package) :])
    if package in ("sklearn", "scipy"):
        return importlib.import_module(name)
    if name == "recourse":
        # Without this solver the package falls back on another one that aborts the whole process.
        import_optional("cplex")
        plots = Scope(_for_carla, _deferred, frozenset({"seaborn", "matplotlib"}))
        with scoped_import("recourse", plots), importing():
            return import_optional("recourse")
    if name == "causalgraphicalmodels":
        with scoped_import("causalgraphicalmodels", Scope(_for_causal_models)):
            return import_optional(name)
    return import_optional(name)


_thread = threading.local()  # other threads may be using CARLA meanwhile


def _is_importing() -> bool:
    return getattr(_thread, "importing", False)


@contextlib.contextmanager
def importing() -> Iterator[None]:
    """Return stand-ins for attributes of stand-ins within the context, because looking them up would load packages."""
    before, _thread.importing = _is_importing(), True
    try:
        yield
    finally:
        _thread.importing = before


def _attribute(module: Any, name: str) -> Any:
    """Return attribute ``name`` of ``module``, or import the submodule of that name, as ``from`` does."""
    try:
        return getattr(module, name)
    except AttributeError:
        if not isinstance(module, ModuleType):
            raise
        return importlib.import_module(f"{module.__name__}.{name}")


class _StandInModule(ModuleType):
    """Stand-in for a module."""

    def __getattr__(self, attribute: str) -> Any:
        if attribute.startswith("__"):
            raise AttributeError(attribute)
        if _is_importing():
            return _StandInAttribute(self.__name__, (attribute,))
        return _attribute(_load(self.__name__), attribute)


#: Return the stand-in for a module.
_stand_in = functools.cache(_StandInModule)


class _StandInAttribute:
    """Stand-in for an attribute of a module, such as a class in an annotation or a function that is called later."""

    def __init__(self, module: str, path: tuple[str, ...]) -> None:
        self._module = module
        self._path = path

    def _real(self) -> Any:
        return functools.reduce(_attribute, self._path, _load(self._module))

    def __getattr__(self, attribute: str) -> Any:
        if attribute.startswith("__"):
            raise AttributeError(attribute)
        if _is_importing():
            return _StandInAttribute(self._module, (*self._path, attribute))
        return getattr(self._real(), attribute)

    def __instancecheck__(self, instance: Any) -> bool:
        return isinstance(instance, self._real())

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if _is_importing():
            # CARLA's autoencoders disable TensorFlow's eager mode at import; our view of TensorFlow does so on load.
            return None
        return self._real()(*args, **kwargs)


def import_carla(carla: ModuleType, loader: Loader) -> None:
    """Execute CARLA's top-level module and import all modules below it.

    Parameters
    ----------
    carla
        The module, empty so far.
    loader
        The loader that Python found for it.
    """
    for leftover in [name for name in sys.modules if name.startswith("carla.")]:
        del sys.modules[leftover]  # of an earlier 'import carla' that failed
    with scoped_import("carla", CARLA), importing():
        ScopedLoader(loader, CARLA).exec_module(carla)
        for module in pkgutil.walk_packages(carla.__path__, "carla."):
            importlib.import_module(module.name)
    _repair()


class _Ordered(dict[Any, None]):
    """A ``set`` in insertion order, with the operations that Growing Spheres uses."""

    def __init__(self, items: Iterable[Any]) -> None:
        super().__init__(dict.fromkeys(items))

    def __sub__(self, other: _Ordered) -> list[Any]:
        return [item for item in self if item not in other]


def _save_weights(self: Any, filename: str) -> None:
    """Save CLUE's autoencoder as plain numbers instead of a pickled object."""
    torch.save({"epoch": self.epoch, "lr": self.lr, "model": self.model.state_dict()}, filename)


def _load_weights(self: Any, filename: str) -> int:
    """Load weights into CLUE's autoencoder, which has been built before."""
    state = torch.load(filename, weights_only=True)
    self.epoch, self.lr = state["epoch"], state["lr"]
    self.model.load_state_dict(state["model"])
    self.model.eval()
    return self.epoch


def _repair() -> None:
    """Repair CARLA's own code, where a view of a library is not enough."""
    trees = sys.modules["carla.models.catalog.trees"]
    parse_booster = trees.parse_booster

    @functools.wraps(parse_booster)
    def parse_booster_to_floats(booster: Any) -> tuple[Any, ...]:
        # The scores get compared and the result indexes a list, which numpy's booleans no longer do.
        *structure, scores = parse_booster(booster)
        return (*structure, scores.tolist())

    trees.parse_booster = parse_booster_to_floats  # type: ignore[attr-defined]
    # It draws features in the order of a set of names, which differs between processes whatever the seed.
    spheres = sys.modules["carla.recourse_methods.catalog.growing_spheres.library.gs_counterfactuals"]
    spheres.set = _Ordered  # type: ignore[attr-defined]
    clue = sys.modules["carla.recourse_methods.catalog.clue.library.clue_ml.src.utils"].BaseNet
    clue.save, clue.load = _save_weights, _load_weights
