"""Damaged, foreign and hostile files."""

from __future__ import annotations

import io
import json
import os
import pickle
import zipfile
from pathlib import Path

import joblib
import numpy as np
import torch
from rose_carla._lib.files import FORMAT

#: Much more than any test needs, and more than what is claimed below costs to write.
HUGE = 10**12


def flipped(content: bytes, place: int) -> bytes:
    """With one byte changed."""
    return content[:place] + bytes([content[place] ^ 0x55]) + content[place + 1 :]


def accidents(content: bytes, step: int) -> dict[str, list[bytes]]:
    """What disks, cables and editors do to a file."""
    places = range(0, len(content), step)
    return {
        "truncated": [content[:place] for place in places],
        "a byte changed": [flipped(content, place) for place in places],
        "a hole of zeros": [content[:place] + bytes(64) + content[place + 64 :] for place in places],
        "something added": [content + b"\0" * 100_000, content + content, b"junk" + content],
        "line ends changed": [content.replace(b"\n", b"\r\n")],
    }


def strangers() -> dict[str, bytes]:
    """Files of other programs."""
    table = io.BytesIO()
    np.save(table, np.arange(3.0))
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("readme.txt", "hello")
    weights = io.BytesIO()
    torch.save({"weight": torch.ones(3)}, weights)
    return {
        "CSV": b"a,b\n1,2\n",
        "JSON": b'{"format": 1}',
        "picture": b"\x89PNG\r\n\x1a\n" + bytes(100),
        "array": table.getvalue(),
        "zip": archive.getvalue(),
        "torch": weights.getvalue(),
        "HTML": b"<!doctype html><title>Not found</title>",
    }


def with_header(content: bytes, **header: object) -> bytes:
    """One of our files with other entries in its header."""
    size = int.from_bytes(content[:8], "little")
    parts = json.loads(content[8 : 8 + size])
    ours = {**json.loads(parts["__metadata__"]["rose_carla"]), **header}
    return safetensors_file({**parts, "__metadata__": {"rose_carla": json.dumps(ours)}}, content[8 + size :])


def safetensors_file(header: object, data: bytes = b"") -> bytes:
    """Any header, as an object or as text, before any data."""
    text = (header if isinstance(header, str) else json.dumps(header)).encode()
    return len(text).to_bytes(8, "little") + text + data


class Payload:
    """Touches a file when it is unpickled."""

    def __init__(self, mark: Path) -> None:
        self.mark = str(mark)

    def __reduce__(self):
        return os.system, (f"touch '{self.mark}'",)


def payloads(mark: Path) -> dict[str, bytes]:
    """Files that run code in whatever unpickles them."""
    evil = Payload(mark)
    objects = np.empty(1, dtype=object)
    objects[0] = evil
    array, archive, compressed, torchs, dumped = (io.BytesIO() for _ in range(5))
    np.save(array, objects, allow_pickle=True)
    np.savez(archive, header=objects, weights=objects)
    np.savez_compressed(compressed, header=np.array("{}"), about=objects)
    torch.save({"weights": evil}, torchs)
    joblib.dump(evil, dumped)
    return {
        "pickle": pickle.dumps(evil),
        "array of objects": array.getvalue(),
        "archive of objects": archive.getvalue(),
        "one object in an archive": compressed.getvalue(),
        "torch": torchs.getvalue(),
        "joblib": dumped.getvalue(),
    }


def _tensor(shape: list[int], kind: str = "F64", end: int = 0, **further: object) -> bytes:
    ours = {"rose_carla": json.dumps({"format": FORMAT, "sha256": "", "metadata": "{}", "names": ["weights"]})}
    header = {"__metadata__": ours, "weights": {"dtype": kind, "shape": shape, "data_offsets": [0, end]}, **further}
    return safetensors_file(header, bytes(end))


#: Small files that claim much memory or depth, or types that numpy does not have.
BOMBS = {
    "an array of 8 TB": lambda: _tensor([HUGE], end=8),
    "offsets of 8 TB": lambda: safetensors_file(
        {"weights": {"dtype": "F64", "shape": [HUGE], "data_offsets": [0, 8 * HUGE]}}, bytes(8)
    ),
    "a shape that overflows": lambda: _tensor([2**62, 2**62, 8], end=8),
    "an array of nothing, often": lambda: _tensor([HUGE, 0]),
    "a negative shape": lambda: _tensor([-2, -4], end=64),
    "a header of 8 EB": lambda: (2**63).to_bytes(8, "little") + b"{}",
    "a deep header": lambda: safetensors_file("[" * 200_000),
    "deep JSON": lambda: safetensors_file({"__metadata__": {"rose_carla": "[" * 200_000}}),
    "deep metadata": lambda: safetensors_file(
        {"__metadata__": {"rose_carla": json.dumps({"format": FORMAT, "sha256": "", "metadata": "[" * 200_000})}}
    ),
    "a number of many digits": lambda: safetensors_file({"__metadata__": {"rose_carla": "9" * 10**5}}),
    "an unknown type": lambda: _tensor([1], "OBJECT", 8),
    "a type numpy lacks": lambda: _tensor([4], "BF16", 8),
    "overlapping arrays": lambda: _tensor([1], end=8, more={"dtype": "F64", "shape": [1], "data_offsets": [0, 8]}),
    "no metadata": lambda: safetensors_file(
        {"weights": {"dtype": "F64", "shape": [1], "data_offsets": [0, 8]}}, bytes(8)
    ),
    "metadata of another kind": lambda: safetensors_file({"__metadata__": {"rose_carla": 5}}),
}

#: Arrays of a policy that are changed, from the name of a weight, the weight, and all of them; None leaves one out.
ODD_ARRAYS = {
    "nan": lambda name, weight, arrays: {name: np.full_like(weight, np.nan)},
    "shape": lambda name, weight, arrays: {name: weight[..., :-1]},
    "missing": lambda name, weight, arrays: {name: None},
    "further": lambda name, weight, arrays: {"weights.further": weight},
    "integers": lambda name, weight, arrays: {name: weight.astype("u2")},
    "truth values": lambda name, weight, arrays: {name: weight.astype("?")},
    "no fingerprint": lambda name, weight, arrays: {"fingerprint": None},
    "fingerprint of integers": lambda name, weight, arrays: {"fingerprint": arrays["fingerprint"].astype(int)},
    "fingerprint of NaN": lambda name, weight, arrays: {"fingerprint": np.full_like(arrays["fingerprint"], np.nan)},
}
