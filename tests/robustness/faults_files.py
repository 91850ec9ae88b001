"""Stored files that are damaged, of other programs, of other versions, or hostile."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

from rose_carla import RoseOne, datasets, models
from fault_trials import Outcome, Trial
from hostile_files import BOMBS, accidents, foreign_files, payloads, with_header
from rose_carla._lib import files
from rose_carla.bench import Judgement, Recourse, Setting, Store
from rose_carla.cli.inputs import POLICY, load_policy, read_training
from rose_carla.cli.options import DataChoice
from rose_carla.errors import RoseCarlaError

#: Number of places of a file that are damaged, each in several ways.
PLACES, QUICK_PLACES = 400, 20
SETTINGS = models.TrainingSettings((), 0.1, 512, 1)


@dataclass(frozen=True)
class Rejected:
    """The reason that a user reads why a file is not used."""

    reason: str


@dataclass(frozen=True)
class Kind:
    """A valid file, and what a user gets from the file at its path."""

    path: Path
    load: Callable[[], object]


def damaged_files(trial: Trial) -> Outcome:
    """a policy folder, policy, classifier or cell is truncated, or has zeros, changed or additional bytes"""
    places = QUICK_PLACES if trial.quick else PLACES
    return _replace_by(trial, lambda valid: accidents(valid, max(1, len(valid) // places)), harmless=True)


def files_of_other_programs(trial: Trial) -> Outcome:
    """one of these files is replaced by that of another program"""
    return _replace_by(trial, lambda valid: foreign_files().values())


def files_of_other_versions(trial: Trial) -> Outcome:
    """one of these files has an older or a newer format"""
    numbers = sorted({0, files.FORMAT - 1, files.FORMAT + 1, 99})
    return _replace_by(trial, lambda valid: [with_header(valid, format=n) for n in numbers], "has format")


def hostile_files(trial: Trial) -> Outcome:
    """one of these files is a pickle that runs code, or claims terabytes or endless nesting"""
    mark = trial.folder / "ran"
    n, outcome = _replace_by(trial, lambda valid: [*payloads(mark).values(), *(bomb() for bomb in BOMBS.values())])
    assert not mark.exists()
    return n, f"{outcome}; no code was run"


def _replace_by(
    trial: Trial, contents: Callable[[bytes], Iterable[bytes]], reason: str = "", harmless: bool = False
) -> Outcome:
    """Replace valid files by each of ``contents`` and check that they are rejected for the ``reason``.

    Those that are ``harmless`` may also load as the valid one does: a byte that has no meaning may have changed.
    """
    n_rejected = n_same = 0
    for kind in _kinds(trial):
        valid, expected = kind.path.read_bytes(), kind.load()
        assert not isinstance(expected, Rejected)
        for content in contents(valid):
            kind.path.write_bytes(content)
            loaded = kind.load()
            if isinstance(loaded, Rejected):
                assert reason in loaded.reason, (kind.path.name, loaded.reason)
                n_rejected += 1
            else:
                assert harmless, f"{kind.path.name} of {len(content)} bytes is used: {content[:100]!r}"
                assert loaded == expected, f"{kind.path.name} of {len(content)} bytes is used"
                n_same += 1
        kind.path.write_bytes(valid)
        assert kind.load() == expected
    same = f"; {n_same:,} loaded as the valid one, bit for bit" if n_same else ""
    return n_rejected + n_same, f"{n_rejected:,} rejected, with the reason{same}"


def _kinds(trial: Trial) -> Iterator[Kind]:
    example = trial.example()
    trained = load_policy(example.policy, DataChoice(""), None)
    yield Kind(example.policy / POLICY, lambda: _or_rejected(lambda: read_training(example.policy)))
    policy = trial.folder / "policy.safetensors"
    trained.method.save(policy)
    yield Kind(policy, lambda: _or_rejected(lambda: _contents(RoseOne.load(policy, trained.model))))
    data = datasets.load("compas")
    with mock.patch.dict(os.environ, ROSE_CARLA_CACHE=str(trial.folder / "cache")):
        expected = _weights(models.train(data, "linear", settings=SETTINGS))
        (classifier,) = (trial.folder / "cache").rglob("*.safetensors")
        yield Kind(classifier, lambda: _trained(data, expected))
    store, recourse = Store(trial.folder / "cells"), Recourse(Setting("compas", "linear", people=2), "GrSp")
    judgement = Judgement(recourse, ("Proximity",))
    result = recourse.run()
    store.save(recourse, result)
    store.save(judgement, judgement.run(result))
    yield Kind(store.path(recourse), lambda: _found(store, recourse))
    yield Kind(store.path(judgement), lambda: _found(store, judgement))


def _or_rejected(load: Callable[[], object]) -> object:
    try:
        return load()
    except RoseCarlaError as error:
        return Rejected(str(error))


def _contents(method: RoseOne) -> object:
    weights = {name: tensor.tolist() for name, tensor in method.policy_.state_dict().items()}
    return method.settings, weights, method.slope_, repr(method.log_)  # repr: NaN differs from itself


def _weights(model: models.TorchModel) -> object:
    return {name: tensor.tolist() for name, tensor in model.raw_model.state_dict().items()}


def _trained(data: datasets.Dataset, expected: object) -> object:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert _weights(models.train(data, "linear", settings=SETTINGS)) == expected
    reasons = [str(each.message) for each in caught if "Training the classifier again" in str(each.message)]
    return Rejected(reasons[0]) if reasons else expected


def _found(store: Store, cell: Recourse | Judgement) -> object:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = store.find(cell)
    if found is None:
        assert str(caught[0].message).startswith("Computing ")
        return Rejected(str(caught[0].message))
    return {name: array.tolist() for name, array in found.arrays.items()}, dict(found.about)
