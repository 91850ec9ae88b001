"""Contents of files that are damaged, of other programs, or made to run code or to use up memory."""

from __future__ import annotations

import io
import json
import os
import pickle
import zipfile
from collections.abc import Iterator
from pathlib import Path

import joblib
import numpy as np
import pytest
import torch
from rose_carla._lib.files import FORMAT

#: Elements of arrays that do not fit into memory.
HUGE = 10**12


def flip(content: bytes, place: int) -> bytes:
    """Change one byte."""
    return content[:place] + bytes([content[place] ^ 0x55]) + content[place + 1 :]


def accidents(content: bytes, step: int) -> Iterator[bytes]:
    """Yield the content truncated, with a changed byte and with zeros at every ``step``-th place, and extended."""
    for place in range(0, len(content), step):
        yield content[:place]
        yield flip(content, place)
        yield content[:place] + bytes(64) + content[place + 64 :]
    yield from (content + b"\0" * 100_000, content + content, b"junk" + content, content.replace(b"\n", b"\r\n"))


def foreign_files() -> dict[str, bytes]:
    """Return files of other programs."""
    array, archive, weights = io.BytesIO(), io.BytesIO(), io.BytesIO()
    np.save(array, np.arange(3.0))
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("readme.txt", "hello")
    torch.save({"weight": torch.ones(3)}, weights)
    return {
        "CSV": b"a,b\n1,2\n",
        "JSON": b'{"format": 1}',
        "picture": b"\x89PNG\r\n\x1a\n" + bytes(100),
        "array": array.getvalue(),
        "zip": archive.getvalue(),
        "torch": weights.getvalue(),
        "HTML": b"<!doctype html><title>Not found</title>",
    }


def safetensors_file(header: object, data: bytes = b"") -> bytes:
    """Return a safetensors file with any header, as an object or as text."""
    text = (header if isinstance(header, str) else json.dumps(header)).encode()
    return len(text).to_bytes(8, "little") + text + data


def with_header(content: bytes, **header: object) -> bytes:
    """Return one of our files with changed entries in its header."""
    size = int.from_bytes(content[:8], "little")
    parts = json.loads(content[8 : 8 + size])
    ours = {**json.loads(parts["__metadata__"]["rose_carla"]), **header}
    return safetensors_file({**parts, "__metadata__": {"rose_carla": json.dumps(ours)}}, content[8 + size :])


class Payload:
    """Object that creates a file when it is unpickled."""

    def __init__(self, mark: Path) -> None:
        self.mark = str(mark)

    def __reduce__(self):
        return os.system, (f"touch '{self.mark}'",)


def payloads(mark: Path) -> dict[str, bytes]:
    """Return files that create ``mark`` when they are unpickled."""
    payload = Payload(mark)
    objects = np.empty(1, dtype=object)
    objects[0] = payload
    array, archive, network, dump = (io.BytesIO() for _ in range(4))
    np.save(array, objects, allow_pickle=True)
    np.savez(archive, header=objects, weights=objects)
    torch.save({"weights": payload}, network)
    joblib.dump(payload, dump)
    return {
        "pickle": pickle.dumps(payload),
        "array": array.getvalue(),
        "archive": archive.getvalue(),
        "torch": network.getvalue(),
        "joblib": dump.getvalue(),
    }


_HEADER = {"format": FORMAT, "sha256": "", "metadata": "{}", "names": []}


def _tensor(shape: list[int], kind: str = "F64", end: int = 0, **further: object) -> bytes:
    names = ["weights", *further]
    ours = {"rose_carla": json.dumps({**_HEADER, "names": names})}
    header = {"__metadata__": ours, "weights": {"dtype": kind, "shape": shape, "data_offsets": [0, end]}, **further}
    return safetensors_file(header, bytes(end))


#: Small files that claim to need much memory or recursion, or types that numpy does not have.
BOMBS = {
    "an array of 8 TB": lambda: _tensor([HUGE], end=8),
    "offsets of 8 TB": lambda: safetensors_file(
        {"weights": {"dtype": "F64", "shape": [HUGE], "data_offsets": [0, 8 * HUGE]}}, bytes(8)
    ),
    "a shape that overflows": lambda: _tensor([2**62, 2**62, 8], end=8),
    "a long empty array": lambda: _tensor([HUGE, 0]),
    "a negative shape": lambda: _tensor([-2, -4], end=64),
    "a header of 8 EB": lambda: (2**63).to_bytes(8, "little") + b"{}",
    "a deep header": lambda: safetensors_file("[" * 200_000),
    "deep JSON": lambda: safetensors_file({"__metadata__": {"rose_carla": "[" * 200_000}}),
    "deep metadata": lambda: safetensors_file(
        {"__metadata__": {"rose_carla": json.dumps({**_HEADER, "metadata": "[" * 200_000})}}
    ),
    "a number of many digits": lambda: safetensors_file({"__metadata__": {"rose_carla": "9" * 10**5}}),
    "an unknown type": lambda: _tensor([1], "OBJECT", 8),
    "a type that numpy lacks": lambda: _tensor([4], "BF16", 8),
    "overlapping arrays": lambda: _tensor([1], end=8, more={"dtype": "F64", "shape": [1], "data_offsets": [0, 8]}),
    "metadata of another type": lambda: safetensors_file({"__metadata__": {"rose_carla": 5}}),
}


# --- in place of classifiers that CARLA has saved


def save_torchscript(mark: Path, path: Path) -> None:
    """Save a TorchScript network that writes a file when it is loaded."""

    class Writes(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.mark = str(mark)

        @torch.jit.export
        def __getstate__(self):
            return self.mark, self.training

        @torch.jit.export
        def __setstate__(self, state: tuple[str, bool]):
            self.mark, self.training = state
            torch.save(torch.zeros(1), self.mark)

        def forward(self, x):
            return x

    torch.jit.script(Writes()).save(str(path))


def save_lambda_layer(mark: Path, path: Path) -> None:
    """Save a Keras network with a lambda layer."""
    keras = pytest.importorskip("tf_keras")
    touch = keras.layers.Lambda(lambda x, where=str(mark): __import__("pathlib").Path(where).touch() or x)
    keras.Sequential([keras.layers.InputLayer((7,)), touch, keras.layers.Dense(2)]).save(path)
    mark.unlink(missing_ok=True)  # building the layer has run it


#: Backend, and a function that saves a file which creates ``mark`` when it is loaded carelessly, or is damaged.
SAVED_CLASSIFIERS = {
    "torch": ("pytorch", lambda mark, path: torch.save(Payload(mark), path)),
    "torch before 1.6": (
        "pytorch",
        lambda mark, path: torch.save(Payload(mark), path, _use_new_zipfile_serialization=False),
    ),
    "TorchScript": ("pytorch", save_torchscript),
    "damaged torch": ("pytorch", lambda mark, path: path.write_bytes(b"PK\x03\x04")),
    "scikit-learn": ("sklearn", lambda mark, path: joblib.dump(Payload(mark), path)),
    "xgboost": ("xgboost", lambda mark, path: joblib.dump(Payload(mark), path)),
    "Keras": ("tensorflow", save_lambda_layer),
    "damaged Keras": ("tensorflow", lambda mark, path: path.write_bytes(b"\x89HDF")),
}
