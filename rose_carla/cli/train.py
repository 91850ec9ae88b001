"""Train a classifier and a policy that plans recourse for it, and keep the policy in a folder.

examples:
  rose-carla train compas --out compas-policy
  rose-carla train loans.csv --target loan --favourable granted --immutable age sex --out policy
  rose-carla train loans.csv --target loan --favourable granted --model mymodels:forest --out policy
  rose-carla train adult --method ROSE-mul --set tau=0.9 --set monotone.education-num=increase --out adult-policy

The folder gets policy.safetensors, the policy, and train.json, all that is needed to make data and classifier again;
neither is ever unpickled. 'rose-carla recourse' and 'rose-carla evaluate' take it as --policy DIR.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import time
from pathlib import Path

from rose_carla import models
from carla.models.api import MLModel
from rose_carla._lib.endings import DONE, remark, show
from rose_carla._lib.text import printable
from rose_carla.cli.classifier import add_model_option, check_name, classifier
from rose_carla.cli.data import DataChoice, Loaded, add_data_options
from rose_carla.cli.method import add_method_options, build, hyperparameters, planner_class, settings_of
from rose_carla.cli.parser import CommandError
from rose_carla.cli.streams import STANDARD
from rose_carla.cli.training import Training
from rose_carla.errors import DataError
from rose_carla.rose.sequential import Sequential

#: People of the test split who are planned for in the end: a look at what the policy can do.
_PEOPLE = 200


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What can be chosen."""
    add_data_options(parser, positional=True)
    add_model_option(parser)
    add_method_options(parser)
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="the folder, made if it is not there")
    parser.add_argument("--force", action="store_true", help="write over another training in the folder")


def run(chosen: argparse.Namespace) -> int:
    """Train, write, and tell what came of it."""
    if chosen.data == STANDARD:
        raise CommandError("A training has to be repeatable, which stdin is not: give a file.")
    choice = DataChoice.of(chosen)
    folder = chosen.out.absolute()  # code of somebody else may change the working directory
    seed, name, kind = chosen.seed or 0, chosen.method or "ROSE-one", chosen.model or chosen.usual_model
    options = hyperparameters(chosen.set)
    planner_class(name)
    check_name(kind)
    settings = settings_of(name, options, seed)
    loaded = choice.load(seed)
    training = Training(
        choice if choice.built_in else dataclasses.replace(choice, source=os.path.abspath(choice.source)),
        loaded.sha256,
        kind,
        name,
        json.loads(json.dumps(settings)),  # as it is read back
        seed,
    )
    training.check_folder(chosen.out, chosen.force)
    start = time.perf_counter()
    model = classifier(kind, loaded, seed)
    fitted = time.perf_counter()
    method = build(name, model, seed, options)
    assert isinstance(method, Sequential)
    trained = time.perf_counter()
    training.write(folder, method, chosen.typed)
    show(f"data        {about(choice, loaded)}")
    test = loaded.data.df_test
    accuracy, usual = models.accuracy(model, test), test[loaded.data.target].mean()
    show(
        f"classifier  {printable(kind)}, accuracy {accuracy:.3f} on the {len(test):,} people of the test split, "
        f"{fitted - start:.1f} s"
    )
    if accuracy <= max(usual, 1 - usual):
        remark("the classifier is no better than always predicting the more frequent outcome")
    show(f"policy      {printable(name)}, trained in {trained - fitted:.1f} s")
    show(f"plans       {reached(method, model, seed)}")
    told = printable(str(chosen.out))
    show(f"written     {told}/policy.safetensors, {told}/train.json")
    return DONE


def about(choice: DataChoice, loaded: Loaded) -> str:
    """A data set in a line."""
    data = loaded.data
    fixed = f"{len(data.immutables)} of them immutable" if data.immutables else "none of them immutable"
    favourable = f"{data.df[data.target].mean():.0%} with the favourable outcome"
    return (
        f"{printable(choice.name)}: {len(data.df):,} people, {len(data.raw_features)} features, {fixed}, {favourable}"
    )


def reached(method: Sequential, model: MLModel, seed: int) -> str:
    """For how many people of the test split there is a plan."""
    try:
        everybody = models.negative_instances(model, split="test")
        some = models.negative_instances(model, split="test", limit=_PEOPLE, seed=seed)
    except DataError:
        return "nobody in the test split is turned down"
    plans = method.plan(some)
    with_steps = [plan for plan in plans if plan.found and plan.steps]
    found = sum(plan.found for plan in plans)
    drawn = f"{len(some)} drawn from the {len(everybody):,}" if len(some) < len(everybody) else f"{len(some)}"
    steps = sum(len(plan.steps) for plan in with_steps) / max(len(with_steps), 1)
    return f"for {found} of {drawn} people of the test split who are turned down, {steps:.2f} steps on average"
