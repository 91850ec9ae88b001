"""Files that are not what they should be: by accident, of another time or place, or made by somebody on purpose."""

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
    """An entry of ours with another header."""
    with np.load(io.BytesIO(content)) as file:
        parts = dict(file)
    parts["header"] = np.array(json.dumps({**json.loads(str(parts["header"])), **header}))
    made = io.BytesIO()
    np.savez(made, **parts)
    return made.getvalue()


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


def _archive(parts: dict[str, bytes], packing: int = zipfile.ZIP_STORED) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", packing) as archive:
        for name, content in parts.items():
            archive.writestr(name, content)
    return file.getvalue()


def _saved(array: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def _npy(shape: tuple[int, ...], kind: str) -> bytes:
    return _npy_of(repr({"descr": kind, "fortran_order": False, "shape": shape}))


def _npy_of(header: str) -> bytes:
    header += "\n"
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header.encode()


def _with_flag(content: bytes, flag: int) -> bytes:
    """Both headers of a zip file's only part with a flag set."""
    for signature, offset in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        at = content.index(signature) + offset
        content = content[:at] + bytes([content[at] | flag]) + content[at + 1 :]
    return content


#: Small files that claim much: memory, depth, or a password.
BOMBS = {
    "an array of 8 TB": lambda: _archive({"header.npy": _npy((HUGE,), "<f8")}),
    "a text of 4 TB": lambda: _archive({"header.npy": _npy((), f"<U{HUGE}")}),
    "an array of nothing, often": lambda: _archive({"header.npy": _npy((HUGE, 0), "<f8")}),
    "a text of nothing, often": lambda: _archive({"header.npy": _npy((20_000_000,), "<U0")}),
    "a negative shape": lambda: _archive({"header.npy": _npy((-2, -4), "<f8") + bytes(64)}),
    "a hundred megabytes of zeros, packed": lambda: _archive({"header.npy": bytes(10**8)}, zipfile.ZIP_DEFLATED),
    "a deep header": lambda: _archive({"header.npy": _npy_of("(" * 5000)}),
    "deep JSON": lambda: _archive({"header.npy": _saved(np.array("[" * 200_000))}),
    "a number of many digits": lambda: _archive({"header.npy": _saved(np.array('{"format": ' + "9" * 10**5 + "}"))}),
    "an object type": lambda: _archive({"header.npy": _npy((1,), "|O") + pickle.dumps([1])}),
    "a record type": lambda: _archive({"header.npy": _saved(np.zeros(2, dtype=[("a", "<f8"), ("b", "<i4")]))}),
    "another version": lambda: _archive({"header.npy": b"\x93NUMPY\x03\x00" + bytes(100)}),
    "a path": lambda: _archive({"../../evil.npy": _saved(np.ones(3))}),
    "a password": lambda: _with_flag(_archive({"header.npy": _saved(np.array("{}"))}), 1),
}

#: Arrays of a policy that are changed, from the name of a weight, the weight, and all of them; None leaves one out.
ODD_ARRAYS = {
    "nan": lambda name, weight, arrays: {name: np.full_like(weight, np.nan)},
    "shape": lambda name, weight, arrays: {name: weight[..., :-1]},
    "missing": lambda name, weight, arrays: {name: None},
    "further": lambda name, weight, arrays: {"weights.further": weight},
    "text": lambda name, weight, arrays: {name: weight.astype(str)},
    "big-endian": lambda name, weight, arrays: {name: weight.astype(">f4")},
    "whole numbers": lambda name, weight, arrays: {name: weight.astype("u2")},
    "truth values": lambda name, weight, arrays: {name: weight.astype("?")},
    "log": lambda name, weight, arrays: {"log": np.ones((3, 1))},
    "a log of nothing": lambda name, weight, arrays: {"log": np.ones((3, 0))},
    "infinite log": lambda name, weight, arrays: {"log": np.full_like(arrays["log"], np.inf)},
    "fingerprint": lambda name, weight, arrays: {"fingerprint": np.array("x")},
    "fingerprint as text": lambda name, weight, arrays: {"fingerprint": arrays["fingerprint"].astype(str)},
    "fingerprint of NaN": lambda name, weight, arrays: {"fingerprint": np.full_like(arrays["fingerprint"], np.nan)},
}
