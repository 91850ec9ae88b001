"""Optional packages, the extras that install them, and the error for a missing one."""

from __future__ import annotations

import importlib
from types import ModuleType

from rose_carla.errors import MissingPackageError

#: Import name: (extras that install it or its dependencies, requirement to install with ``--no-deps``).
#: The latter pin versions that do not exist for supported Pythons, or depend on gigabytes that they do not need.
OPTIONAL_PACKAGES: dict[str, tuple[str, str | None]] = {
    "tensorflow": ("tensorflow", "tf_keras==2.21.0"),
    "tf_keras": ("tensorflow", "tf_keras==2.21.0"),
    "xgboost": ("xgboost", None),
    "dice_ml": ("dice", "dice-ml==0.12"),
    "raiutils": ("dice", None),
    "recourse": ("recourse,cplex", "recourse==1.0.0"),
    "cplex": ("cplex", None),
    "lime": ("recourse", None),
    "prettytable": ("recourse", None),
    "causalgraphicalmodels": ("causal", None),
    "networkx": ("causal", None),
    "graphviz": ("causal", None),
    "matplotlib": ("plots", None),
    "seaborn": ("plots", None),
    "gymnasium": ("gymnasium", None),
    "distributed": ("dask", None),
    "torchvision": ("", "torchvision"),
}


def install_command(package: str) -> str:
    """Return the shell command that installs an optional ``package``.

    Examples
    --------
    >>> install_command("dice_ml")
    'pip install "rose-carla[dice]" && pip install --no-deps dice-ml==0.12'
    """
    extra, no_deps = OPTIONAL_PACKAGES[package]
    steps = [f'pip install "rose-carla[{extra}]"'] if extra else []
    if no_deps:
        steps.append(f"pip install --no-deps {no_deps}")
    return " && ".join(steps)


def import_optional(name: str) -> ModuleType:
    """Import module ``name`` of an optional package.

    Raises
    ------
    MissingPackageError
        With the extra to install, if the package (or one that it needs in turn) is missing.
    """
    package = name.partition(".")[0]
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        missing = (error.name or package).partition(".")[0]
        if missing not in OPTIONAL_PACKAGES:
            if missing != package:
                raise MissingPackageError(
                    f"'{package}' needs the package '{missing}', which is not installed: {install_command(package)}"
                ) from error
            raise
        raise MissingPackageError(
            f"This needs the optional package '{missing}', which is not installed: {install_command(missing)}"
        ) from error
