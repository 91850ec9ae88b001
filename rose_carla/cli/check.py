"""The command ``rose-carla check``."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import platform
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import click
import numpy as np
import pandas as pd
from rose_carla import RoseOne, checks, datasets, models
from rose_carla._lib.files import cache_dir
from rose_carla.bench import provenance
from rose_carla.carla_compat import OPTIONAL_PACKAGES, install_command
from rose_carla.cli import console, options
from rose_carla.cli.inputs import build_method, load_model
from rose_carla.cli.options import Command, DataChoice
from rose_carla.datasets.builtin import RAW_FILES, raw_file
from rose_carla.errors import RoseCarlaError, one_line

_EPILOG = """\
Examples:
  rose-carla check
  rose-carla check ROSE-one
  rose-carla check mymethods:Mine --data loans.csv --target loan --favourable granted --model ann

The exit code is 1 if something is missing or a check fails.
"""


@click.command(cls=Command, epilog=_EPILOG)
@click.argument("method", metavar="[METHOD]", required=False)
@options.data_options("--data")
@options.model_option("linear")
@options.method_options
@click.option("--limit", type=click.IntRange(1, 10**9), default=10, metavar="N", help="people to use; default 10")
def check(
    method: str | None,
    data: DataChoice,
    model: str | None,
    hyperparams: dict[str, Any],
    seed: int | None,
    limit: int,
) -> int:
    """Check this installation; or, with a METHOD (a name or module:Class), the contract of recourse methods, on COMPAS
    unless --data is given.
    """
    if method is not None:
        data = data if data.source else replace(data, source="compas")
        return _check_contract(method, data, model or "linear", hyperparams, seed or 0, limit)
    if data.source or data.given_options or model or hyperparams or seed is not None:
        raise console.CommandError("Name the method to check; the check of the installation takes no options.")
    return _check_installation()


def _check_contract(name: str, data: DataChoice, kind: str, hyperparams: dict[str, Any], seed: int, limit: int) -> int:
    model = load_model(data, kind, seed, [name], hyperparams)
    factuals = models.negative_instances(model, seed=seed).head(limit)
    with console.user_code():
        failures = checks.contract_failures(build_method(name, model, seed, hyperparams), factuals)
    console.echo(one_line(f"{name} on {len(factuals)} people of {data.name}, classifier {kind}"))
    width = max(map(len, checks.CHECKS))
    for each in checks.CHECKS:
        console.echo(f"  {each:<{width}}  {'fails: ' + one_line(failures[each]) if each in failures else 'holds'}")
    return console.FAILED if failures else console.DONE


def _check_installation() -> int:
    rows = [("python", f"{platform.python_version()} on {platform.system()} {platform.machine()}")]
    rows += [(name, "not installed" if version == "-" else version) for name, version in provenance.versions().items()]
    for name, state in [*rows, *_optional_packages()]:
        print(f"{name:<22}  {state}")
    failed = False
    for name, run in _CHECKS.items():
        try:
            state = run()
        except Exception as error:  # any failure is a result of this check
            failed = True
            state = f"FAILS: {one_line(console.describe_error(error))}"
        console.echo(f"{name:<22}  {state}")
        sys.stdout.flush()
    print("Some checks failed, see above." if failed else "All checks passed.")
    return console.FAILED if failed else console.DONE


def _optional_packages() -> Iterator[tuple[str, str]]:
    """Yield optional packages with their versions, or how to install them."""
    distributions = importlib.metadata.packages_distributions()
    for package in OPTIONAL_PACKAGES:
        if importlib.util.find_spec(package) is None:
            yield package, f"not installed (optional): {install_command(package)}"
        else:
            names = distributions.get(package, [])
            yield package, f"{importlib.metadata.version(names[0]) if names else 'installed'} (optional)"


def _check_data_files() -> str:
    for name in RAW_FILES:
        raw_file(name)
    return "complete"


def _check_cache() -> str:
    folder = cache_dir()
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=folder):
        return f"{folder} is writable"


def _self_test() -> str:
    """Train ROSE-one on synthetic data and plan for a few people."""
    start = time.perf_counter()
    rng = np.random.default_rng(0)
    people = pd.DataFrame({"income": rng.uniform(0, 100, 300), "debt": rng.uniform(0, 50, 300)})
    people["loan"] = (people["income"] > people["debt"] + 30).astype(int)
    data = datasets.from_frame(people, "loan", name="self-test")
    model = models.train(data, "linear", use_cache=False, settings=models.TrainingSettings((), 0.05, 50, 20))
    method = RoseOne(model, {"ppo": {"n_updates": 8}, "progress": False})
    plans = method.plan(models.negative_instances(model, split="all").head(5))
    if not any(plan.found and plan.steps for plan in plans):
        raise RoseCarlaError("ROSE-one was trained, but found no plans.")
    return f"ROSE-one trains and plans, {time.perf_counter() - start:.1f} s"


_CHECKS: dict[str, Callable[[], str]] = {
    "data files": _check_data_files,
    "cache": _check_cache,
    "self test": lambda: _self_test(),
}
