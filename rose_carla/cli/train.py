"""The command ``rose-carla train`` and its folder: the policy, and what is needed to rebuild data and classifier."""

from __future__ import annotations

import dataclasses
import json
import os
import time
from pathlib import Path
from typing import Any

import click
from rose_carla import models
from carla.models.api import MLModel
from rose_carla.cli import console, inputs, options
from rose_carla.cli.console import CommandError
from rose_carla.cli.inputs import POLICY, SUMMARY, Training
from rose_carla.cli.options import Command, DataChoice
from rose_carla.errors import DataError, printable
from rose_carla.rose import Rose
from rose_carla.rose.sequential import Sequential

#: People of the test split that the report plans for.
_REPORT_PEOPLE = 200
_EPILOG = """\
Examples:
  rose-carla train compas --out compas-policy
  rose-carla train loans.csv --target loan --favourable granted --immutable age sex --out policy
  rose-carla train loans.csv --target loan --favourable granted --model mymodels:forest --out policy
  rose-carla train adult --method ROSE-mul --set tau=0.9 --set monotone.education-num=increase --out adult-policy

The folder gets policy.safetensors, which also holds what is needed to rebuild the data set and the classifier, and
train.json, a readable summary. 'rose-carla recourse' and 'rose-carla evaluate' take it as --policy DIR.
"""


@click.command(cls=Command, epilog=_EPILOG)
@options.data_options("data", required=True)
@options.model_option("ann")
@options.planner_option
@options.method_options
@click.option("--out", required=True, metavar="DIR", help="the folder; created if it does not exist")
@click.option("--force", is_flag=True, help="overwrite another policy in the folder")
@click.pass_obj
def train(
    words: list[str],
    data: DataChoice,
    model: str | None,
    method: str | None,
    hyperparams: dict[str, Any],
    seed: int | None,
    out: str,
    force: bool,
) -> int:
    """Train a classifier and a policy that plans recourse for it, and save the policy in a folder.

    DATA is german, german-typed, adult, compas, or a CSV file with one row per person, in original units.
    """
    if data.source == console.STDIO:
        raise CommandError("The training data must be a file: they are read again together with the policy.")
    data.check()
    folder = Path(out).absolute()  # user code may change the working directory
    name, kind, seed = method or "ROSE-one", model or "ann", seed or 0
    inputs.find_planner(name)
    inputs.check_classifier_name(kind)
    settings = json.loads(json.dumps(inputs.find_method(name).resolve(hyperparams, seed)))  # as read back
    loaded = data.load(seed)
    if not data.is_built_in:
        data = dataclasses.replace(data, source=os.path.abspath(data.source))
    training = Training(data, loaded.sha256, kind, name, settings, seed)
    training.check_folder(Path(out), force)
    start = time.perf_counter()
    classifier = inputs.load_classifier(kind, loaded, seed)
    fitted = time.perf_counter()
    planner = inputs.build_method(name, classifier, seed, hyperparams)
    assert isinstance(planner, Sequential)
    if isinstance(planner, Rose):
        planner.fit_closed_loop()
    trained = time.perf_counter()
    training.save(folder, planner, words)
    test = loaded.data.df_test
    accuracy, share = models.accuracy(classifier, test), test[loaded.data.target].mean()
    console.echo(f"data        {printable(loaded.summary())}")
    console.echo(
        f"classifier  {printable(kind)}, accuracy {accuracy:.3f} on the {len(test):,} people of the test split, "
        f"{fitted - start:.1f} s"
    )
    if accuracy <= max(share, 1 - share):
        console.remark("the classifier is no better than always predicting the more frequent outcome")
    console.echo(f"policy      {printable(name)}, trained in {trained - fitted:.1f} s")
    console.echo(f"plans       {_count_plans(planner, classifier, seed)}")
    console.echo(f"written     {printable(out)}/{POLICY}, {printable(out)}/{SUMMARY}")
    return console.DONE


def _count_plans(method: Sequential, model: MLModel, seed: int) -> str:
    """Describe for how many rejected people of the test split the method finds a plan."""
    try:
        rejected = models.negative_instances(model, split="test")
        sample = models.negative_instances(model, split="test", limit=_REPORT_PEOPLE, seed=seed)
    except DataError:
        return "no person of the test split is rejected"
    plans = method.plan(sample)
    lengths = [len(plan.steps) for plan in plans if plan.found and plan.steps]
    drawn = f"{len(sample)} sampled from the {len(rejected):,}" if len(sample) < len(rejected) else f"{len(sample)}"
    steps = sum(lengths) / max(len(lengths), 1)
    found = sum(plan.found for plan in plans)
    return f"for {found} of {drawn} people of the test split who are rejected, {steps:.2f} steps on average"
