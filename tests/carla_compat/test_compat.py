"""Importing this package makes ``import carla`` work and changes nothing else in the process."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
import textwrap

import pytest
from rose_carla.carla_compat import OPTIONAL_PACKAGES, import_optional, install_command
from rose_carla.carla_compat.importer import Scope, scoped_import
from rose_carla.carla_compat.views import View
from rose_carla.errors import MissingPackageError


def output(program, python=sys.executable):
    """Return the output of ``program`` in a new interpreter."""
    words = [python, "-c", textwrap.dedent(program)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def run(warm_python):
    """Return the output of a program in an interpreter in which the packages ``without`` cannot be imported."""
    hide = """
        import sys
        from importlib.machinery import PathFinder
        def hide(without, find=PathFinder.find_spec):
            assert not without & {name.partition(".")[0] for name in sys.modules}
            PathFinder.find_spec = lambda name, path=None, target=None: (
                None if name.partition(".")[0] in without else find(name, path, target)
            )
    """

    def run(program, without):
        hidden = f"{textwrap.dedent(hide)}hide({set(without)})\n"
        return output(hidden + textwrap.dedent(program), warm_python.executable)

    return run


def test_import_is_lazy():
    out = output("""
        import sys
        import rose_carla, rose_carla.cli
        print([name for name in ("torch", "carla", "pandas", "numpy", "sklearn") if name in sys.modules])
    """)
    assert out == "[]\n"


def test_finding_carla_does_not_import_it():
    out = output("""
        import importlib.util, sys
        import rose_carla
        print(importlib.util.find_spec("carla").name, "carla" in sys.modules, "torch" in sys.modules)
    """)
    assert out == "carla False False\n"


def test_carla_imported_first_runs_natively(tmp_path):
    (tmp_path / "carla.py").write_text("import math\n")
    out = output(f"""
        import sys
        sys.path.insert(0, {str(tmp_path)!r})
        import carla
        finders = list(sys.meta_path)
        import rose_carla
        print(sys.meta_path == finders, carla.__builtins__ is __builtins__.__dict__)
    """)
    assert out == "True True\n"


@pytest.mark.slow
def test_failed_import_of_carla_can_be_repeated():
    out = output("""
        import sys
        import rose_carla
        sys.modules["pkgutil"] = sys.modules["yaml"] = None
        try:
            import carla
        except ImportError:
            print("carla" in sys.modules)
        del sys.modules["pkgutil"], sys.modules["yaml"]
        import carla
        print(carla.Benchmark.__module__)
    """)
    assert out == "False\ncarla.evaluation.benchmark\n"


@pytest.fixture(scope="module")
def imported():
    """Return what the import changes in the process, and the modules it loads."""
    out = output("""
        import builtins, collections, json, logging, os, random, sys
        import numpy as np, pandas as pd, torch
        logging.basicConfig(level=logging.ERROR)
        def state():
            return dict(
                meta_path=list(sys.meta_path), path_hooks=list(sys.path_hooks), environ=dict(os.environ),
                numpy=sorted(vars(np)), frame=sorted(vars(pd.DataFrame)), pandas=sorted(vars(pd)),
                torch_load=torch.load, collections=sorted(vars(collections)), built_in=dict(vars(builtins)),
                handlers=list(logging.root.handlers), level=logging.root.level, disabled=logging.root.manager.disable,
                threads=torch.get_num_threads(), filters=list(__import__("warnings").filters),
                tensorflow_log=logging.getLogger("tensorflow").handlers, random=random.getstate(),
                numpy_random=np.random.get_state()[1].tolist(), torch_random=torch.get_rng_state().tolist(),
            )
        before = state()
        import rose_carla, carla
        after = state()
        changed = [name for name in before if before[name] != after[name]]
        print(json.dumps({"changed": changed, "packages": list(sys.modules)}))
    """)
    return json.loads(out)


@pytest.mark.slow
def test_import_changes_nothing_else(imported):
    assert [name for name in imported["changed"] if "random" not in name] == []


@pytest.mark.slow
def test_import_loads_no_slow_packages(imported):
    slow = ("tensorflow", "keras", "matplotlib", "xgboost", "dice_ml", "recourse", "sklearn", "scipy")
    assert [name for name in slow if name in imported["packages"]] == []


@pytest.mark.slow
def test_import_does_not_change_random_state(imported):
    assert [name for name in imported["changed"] if "random" in name] == []


@pytest.mark.slow
def test_import_after_failed_import_of_carla(warm_python):
    out = output(
        """
        try:
            import carla
            raise SystemExit("CARLA imports by itself here")
        except ImportError:
            pass
        import rose_carla, carla
        print(carla.Benchmark.__module__)
        """,
        warm_python.executable,
    )
    assert out.splitlines()[-1] == "carla.evaluation.benchmark"  # CARLA's own attempt may have logged before


def test_core_works_without_extras(run):
    everything = (*OPTIONAL_PACKAGES, "keras")
    out = run(
        """
        import rose_carla, carla
        from carla.recourse_methods import GrowingSpheres
        from rose_carla import datasets, models
        model = models.train(datasets.load("compas"), use_cache=False)
        factuals = models.negative_instances(model).head(3).reset_index(drop=True)
        print(len(carla.Benchmark(model, GrowingSpheres(model, {}), factuals).run_benchmark()))
        """,
        without=tuple(name for name in everything if name not in ("networkx", "torchvision")),
    )
    assert out == "3\n"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("missing", "use", "extra"),
    [
        ("dice_ml", "Dice(model, {'num': 1})", "rose-carla[dice]"),
        ("recourse", "ActionableRecourse(model, {'fs_size': 5})", "rose-carla[recourse,cplex]"),
        ("cplex", "ActionableRecourse(model, {'fs_size': 5})", "rose-carla[cplex]"),
        ("tensorflow", "FOCUS(model, {'optimizer': 'adam', 'lr': 0.1})", "rose-carla[tensorflow]"),
        ("tf_keras", "FOCUS(model, {'optimizer': 'adam', 'lr': 0.1})", "rose-carla[tensorflow]"),
    ],
)
def test_missing_package_names_its_extra(missing, use, extra, run):
    out = run(
        f"""
        import rose_carla
        from carla.recourse_methods import ActionableRecourse, Dice, FOCUS
        from rose_carla import datasets, models
        model = models.train(datasets.load("compas"), "linear")
        try:
            {use}
        except rose_carla.errors.MissingPackageError as error:
            print(error)
        """,
        without=(missing,),
    )
    assert extra in out
    assert missing in out


def test_missing_carla_names_the_install_command(warm_python):
    out = output(
        """
        from importlib.machinery import PathFinder
        find = PathFinder.find_spec
        PathFinder.find_spec = lambda name, *a: None if name == "carla" else find(name, *a)
        import rose_carla
        try:
            from rose_carla import datasets
        except ImportError as error:
            print(error)
        """,
        warm_python.executable,
    )
    assert "pip install --no-deps carla-recourse==0.0.5" in out


def test_every_optional_package_has_an_install_command():
    for package in OPTIONAL_PACKAGES:
        assert install_command(package).startswith("pip install ")


def test_import_error_inside_an_optional_package_names_both(tmp_path, monkeypatch):
    (tmp_path / "lime").mkdir()
    (tmp_path / "lime" / "__init__.py").write_text("import a_missing_package")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "lime", raising=False)
    with pytest.raises(MissingPackageError, match="'lime' needs the package 'a_missing_package'"):
        import_optional("lime")
    sys.modules.pop("lime", None)


def test_scope_applies_to_its_package_only_and_permanently(tmp_path, monkeypatch):
    package = tmp_path / "scoped_example"
    package.mkdir()
    (package / "__init__.py").write_text("import math\nfrom math import tau\nfrom . import late\n")
    (package / "late.py").write_text("def pi():\n    import math\n    return math.pi\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    import math

    rounded = View(math, pi=3, tau=6)
    finders = list(sys.meta_path)
    with scoped_import("scoped_example", Scope(lambda importer, module: rounded if module is math else module)):
        example = importlib.import_module("scoped_example")
    assert sys.meta_path == finders
    assert (example.math.pi, example.tau, example.late.pi()) == (3, 6, 3)
    assert example.math.sqrt(4) == 2
    assert math.pi > 3.14
    assert example.__spec__.loader.get_source("scoped_example").startswith("import math")
    for name in ("scoped_example", "scoped_example.late"):
        del sys.modules[name]
