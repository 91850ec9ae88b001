"""Read the whole networks that CARLA pickles, and nothing else that a pickle can hold."""

from __future__ import annotations

import codecs
import collections
import pickle
import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

#: What tensors, numbers of numpy and the state of optimisers are made of.
_ALLOWED = (
    torch._utils._rebuild_parameter,
    torch._utils._rebuild_tensor_v2,
    torch.device,
    torch.Size,
    np.float64(0).__reduce__()[0],
    np.dtype,
    codecs.encode,
    collections.OrderedDict,
    collections.defaultdict,
    dict,
    set,
)


class _Unpickler(pickle.Unpickler):
    """Finds layers, optimisers, tensors and numbers of modules that are loaded already; nothing is imported for it."""

    def find_class(self, module: str, name: str) -> Any:
        known = sys.modules.get("builtins" if module == "__builtin__" else module)
        found = getattr(known, name, None)
        part = isinstance(found, type) and issubclass(found, (torch.nn.Module, torch.optim.Optimizer))
        storage = module == "torch" and name.endswith("Storage")
        if part or storage or any(found is each for each in _ALLOWED):
            return found
        raise pickle.UnpicklingError(
            f"The file holds {module}.{name}, which is no part of a network: it is not loaded."
        )


_RESTRICTED = SimpleNamespace(Unpickler=_Unpickler, __name__=__name__)


def load(file: Any, *arguments: Any, **options: Any) -> Any:
    """``torch.load`` of whole networks, as torch had it before 2.6, for files from anywhere.

    Raises
    ------
    pickle.UnpicklingError
        If there is something in the file that networks are not made of.
    """
    return torch.load(file, *arguments, **{"pickle_module": _RESTRICTED, **options, "weights_only": False})
