"""Files that are damaged, of other programs, of other versions, or made by somebody who means harm."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

from rose_carla import RoseOne, datasets, models
from bad_files import BOMBS, accidents, payloads, strangers, with_header
from fault_trials import Came, Trial
from rose_carla._lib import files
from rose_carla.bench import Judgement, Recourse, Setting, Store
from rose_carla.cli.options import DataChoice
from rose_carla.cli.policy_folder import POLICY, load_policy, read_training
from rose_carla.errors import RoseCarlaError

#: Places of a file that are damaged, in each of several ways.
PLACES, QUICK_PLACES = 400, 20
SETTINGS = models.TrainingSettings((), 0.1, 512, 1)


@dataclass(frozen=True)
class Rejected:
    """A file that is not used, and the reason that a user is told."""

    why: str


@dataclass(frozen=True)
class Kind:
    """Files of one kind: a sound one, and what a user sees of what is in its place, or that it is rejected."""

    path: Path
    see: Callable[[], object]


def damaged(trial: Trial) -> Came:
    """a saved training, policy, classifier or cell is truncated, has holes, wrong bytes or something added"""
    places = QUICK_PLACES if trial.quick else PLACES

    def contents(whole: bytes) -> Iterator[bytes]:
        for some in accidents(whole, max(1, len(whole) // places)).values():
            yield from some

    return _tried(trial, contents, harmless=True)


def foreign(trial: Trial) -> Came:
    """a file of another program is in the place of one of these"""
    return _tried(trial, lambda whole: strangers().values())


def other_versions(trial: Trial) -> Came:
    """one of these was written by an older or a newer version"""

    def contents(whole: bytes) -> Iterator[bytes]:
        for number in sorted({0, files.FORMAT - 1, files.FORMAT + 1, 99}):
            yield with_header(whole, format=number)

    return _tried(trial, contents, "has format")


def hostile(trial: Trial) -> Came:
    """one of these runs code when it is unpickled, or claims to hold terabytes, endless nesting or a password"""
    mark = trial.folder / "ran"
    n, told = _tried(trial, lambda whole: [*payloads(mark).values(), *(bomb() for bomb in BOMBS.values())])
    assert not mark.exists()
    return n, f"{told}; nothing was run"


def _tried(
    trial: Trial, contents: Callable[[bytes], Iterable[bytes]], reason: str = "", harmless: bool = False
) -> Came:
    """Put each of some contents in the place of a sound file: it is rejected for that reason.

    What is ``harmless`` may also be read, if nothing is different: a byte that nobody looks at may have changed.
    """
    n_rejected = n_same = 0
    for kind in _kinds(trial):
        whole, expected = kind.path.read_bytes(), kind.see()
        assert not isinstance(expected, Rejected)
        for content in contents(whole):
            kind.path.write_bytes(content)
            seen = kind.see()
            if isinstance(seen, Rejected):
                assert reason in seen.why, (kind.path.name, seen.why)
                n_rejected += 1
            else:
                assert harmless, f"{kind.path.name} of {len(content)} bytes is used: {content[:100]!r}"
                assert seen == expected, f"{kind.path.name} of {len(content)} bytes is used"
                n_same += 1
        kind.path.write_bytes(whole)
        assert kind.see() == expected
    same = f"; {n_same:,} read as the sound one, bit for bit" if n_same else ""
    return n_rejected + n_same, f"{n_rejected:,} rejected, with the reason{same}"


def _kinds(trial: Trial) -> Iterator[Kind]:
    small = trial.small()
    trained = load_policy(small.policy, DataChoice(""), None)
    yield Kind(small.policy / POLICY, lambda: _or_rejected(lambda: read_training(small.policy)))
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


def _or_rejected(see: Callable[[], object]) -> object:
    try:
        return see()
    except RoseCarlaError as error:
        return Rejected(str(error)) if len(str(error).split()) > 4 else error


def _contents(method: RoseOne) -> object:
    weights = {name: tensor.tolist() for name, tensor in method.policy_.state_dict().items()}
    return method.settings, weights, method.slope_, repr(method.log_)  # in which NaN is NaN


def _weights(model: models.TorchModel) -> object:
    return {name: tensor.tolist() for name, tensor in model.raw_model.state_dict().items()}


def _trained(data: datasets.Dataset, expected: object) -> object:
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        assert _weights(models.train(data, "linear", settings=SETTINGS)) == expected
    reasons = [str(each.message) for each in told if "Training the classifier again" in str(each.message)]
    return Rejected(reasons[0]) if reasons else expected


def _found(store: Store, cell: Recourse | Judgement) -> object:
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        found = store.find(cell)
    if found is None:
        assert str(told[0].message).startswith("Computing ")
        return Rejected(str(told[0].message))
    return {name: array.tolist() for name, array in found.arrays.items()}, dict(found.about)
