"""Check this installation; or, with a method, whether it keeps the contract of recourse methods.

examples:
  rose-carla check
  rose-carla check ROSE-one
  rose-carla check mymethods:Mine --data loans.csv --target loan --favourable granted --model ann

The exit code is 1 if something is missing or breaks.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import importlib.util
import platform
import sys
import tempfile
import time
from collections.abc import Callable, Iterator

import numpy as np
import pandas as pd
from rose_carla import RoseOne, checks, datasets, models
from rose_carla._lib.endings import DONE, FAILED, show
from rose_carla._lib.files import cache_dir
from rose_carla._lib.text import one_line
from rose_carla.bench import sources
from rose_carla.carla_compat.extras import OPTIONAL_PACKAGES, install_command
from rose_carla.cli.classifier import add_model_option, check_name, classifier, told
from rose_carla.cli.data import DataChoice, add_data_options
from rose_carla.cli.method import add_method_options, build, hyperparameters, settings_of
from rose_carla.cli.parser import MANY, CommandError, at_least
from rose_carla.cli.streams import printing_aside
from rose_carla.datasets.raw import RAW_FILES, raw_file
from rose_carla.errors import RoseCarlaError

_PEOPLE = 10
_DATA = "compas"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What can be chosen."""
    parser.add_argument("method", nargs="?", metavar="METHOD", help="a method's name or module:Class; default: none")
    add_data_options(parser, positional=False)
    add_model_option(parser, "linear")
    add_method_options(parser, None)
    parser.add_argument(
        "--limit", type=at_least(1, MANY), default=_PEOPLE, metavar="N", help=f"people to try it on; default {_PEOPLE}"
    )


def run(chosen: argparse.Namespace) -> int:
    """Check the one or the other."""
    if chosen.method is not None:
        return _contract(chosen)
    if chosen.data is not None or chosen.set or chosen.model is not None:
        raise CommandError("Name the method to check; without one the installation is checked, which takes no options.")
    return _installation()


def _contract(chosen: argparse.Namespace) -> int:
    """What of the contract holds, and what breaks."""
    chosen.data = chosen.data or _DATA
    choice, kind, seed = DataChoice.of(chosen), chosen.model or chosen.usual_model, chosen.seed or 0
    options = hyperparameters(chosen.set)
    check_name(kind)
    settings_of(chosen.method, options, seed)
    model = classifier(kind, choice.load(seed), seed)
    factuals = models.negative_instances(model, seed=seed).head(chosen.limit)
    with printing_aside():
        failures = checks.contract_failures(build(chosen.method, model, seed, options), factuals)
    show(one_line(f"{chosen.method} on {len(factuals)} people of {choice.name}, classifier {kind}"))
    width = max(map(len, checks.CHECKS))
    for name in checks.CHECKS:
        show(f"  {name:<{width}}  {'breaks: ' + one_line(failures[name]) if name in failures else 'holds'}")
    return FAILED if failures else DONE


def _installation() -> int:
    """What is there, what is not and how to get it, and whether it works."""
    print(f"{'python':<22}  {platform.python_version()} on {platform.system()} {platform.machine()}")
    for name, version in sources.versions().items():
        print(f"{name:<22}  {version if version != '-' else 'not installed'}")
    for name, state in _optional():
        print(f"{name:<22}  {state}")
    failed = False
    for name, check in _CHECKS.items():
        try:
            state = check()
        except Exception as error:  # whatever goes wrong is what was asked for
            failed = True
            state = f"FAILS: {one_line(told(error))}"
        show(f"{name:<22}  {state}")
        sys.stdout.flush()
    print("Something does not work: see above." if failed else "All is well.")
    return FAILED if failed else DONE


def _optional() -> Iterator[tuple[str, str]]:
    """Optional packages, and how to get those that are not there."""
    distributions = importlib.metadata.packages_distributions()
    for package in OPTIONAL_PACKAGES:
        if importlib.util.find_spec(package) is None:
            yield package, f"not installed (optional): {install_command(package)}"
        else:
            names = distributions.get(package, [])
            yield package, f"{importlib.metadata.version(names[0]) if names else 'installed'} (optional)"


def _data_files() -> str:
    for name in RAW_FILES:
        raw_file(name)
    return "there, as they should be"


def _cache() -> str:
    folder = cache_dir()
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=folder):
        return f"{folder} can be written"


def _self_test() -> str:
    """Train ROSE-one on people of whom nobody knows anything but income and debt, and plan for one of them."""
    start = time.perf_counter()
    rng = np.random.default_rng(0)
    people = pd.DataFrame({"income": rng.uniform(0, 100, 300), "debt": rng.uniform(0, 50, 300)})
    people["loan"] = (people["income"] > people["debt"] + 30).astype(int)
    data = datasets.from_frame(people, "loan", name="self-test")
    model = models.train(data, "linear", use_cache=False, settings=models.TrainingSettings((), 0.05, 50, 20))
    method = RoseOne(model, {"ppo": {"n_updates": 8}, "progress": False})
    plans = method.plan(models.negative_instances(model, split="all").head(5))
    if not any(plan.found and plan.steps for plan in plans):
        raise RoseCarlaError("ROSE-one was trained, but found no plan for anybody.")
    return f"ROSE-one trains and plans, {time.perf_counter() - start:.1f} s"


_CHECKS: dict[str, Callable[[], str]] = {"data files": _data_files, "cache": _cache, "self test": _self_test}
