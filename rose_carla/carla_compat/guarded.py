"""Unpicklers that call a few known functions and make objects of a few known classes, whatever a pickle asks for.

A list of allowed names is not enough. A class may be called with arguments of the file's choice, so here only listed
functions are called, and objects come about as pickles of objects do: empty, and then filled. And numpy believes what a
file says about a type of numbers, that its bytes are references to objects for one, so types are described anew.
"""

from __future__ import annotations

import collections
import math
import pickle
from typing import Any

import numpy as np

#: Truth values and numbers; fields of records and scalars are of these.
_NUMBERS = "biuf"


def refused(what: str, whole: str) -> pickle.UnpicklingError:
    """That something is no part of a ``whole``."""
    return pickle.UnpicklingError(f"The file holds {what}, which is no part of {whole}: it is not loaded.")


class Kind:
    """A type of numbers as a file describes it; :attr:`dtype` is made by numpy's own rules."""

    def __init__(self, name: object, *_: object) -> None:
        if not isinstance(name, str):
            raise refused("an odd type of numbers", "an array")
        self.dtype = np.dtype(name)

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        _, order, parts, names, fields, size, *_ = state
        if parts is not None or (names is None) != (fields is None):
            raise refused("an odd type of numbers", "an array")
        if names is None:
            self.dtype = self.dtype.newbyteorder(order)
            return
        formats = [plain(fields[name][0]) for name in names]
        if any(each.kind not in _NUMBERS for each in formats):
            raise refused("a record of other things than numbers", "an array")
        offsets = [int(fields[name][1]) for name in names]
        self.dtype = np.dtype({"names": list(names), "formats": formats, "offsets": offsets, "itemsize": int(size)})


def plain(kind: object) -> np.dtype[Any]:
    """The type of numbers that a :class:`Kind` stands for."""
    if not isinstance(kind, Kind):
        raise refused("something else in place of a type of numbers", "an array")
    return kind.dtype


def scalar(kind: object, content: object) -> Any:
    """A number from its bytes."""
    dtype = plain(kind)
    if dtype.kind not in _NUMBERS or not isinstance(content, bytes) or len(content) != dtype.itemsize:
        raise refused("an odd number", "an array")
    return np.frombuffer(content, dtype)[0]


def encode(text: object, encoding: object = "latin1") -> bytes:
    """Bytes, as pickles for older Pythons write them."""
    if not isinstance(text, str) or encoding != "latin1":
        raise refused("an odd text", "an array")
    return text.encode("latin1")


def buffer(content: object = b"", *_: object) -> bytearray:
    """Bytes that may change."""
    if not isinstance(content, bytes):
        raise refused("an odd buffer", "a booster")
    return bytearray(content)


def _filled(state: Any) -> tuple[Any, ...]:
    """What an array is to be filled with, of a type that is what it says, and as much of it as there is room."""
    version, shape, kind, by_columns, content = state
    dtype = plain(kind)
    if dtype.hasobject and (not isinstance(content, list) or len(content) != math.prod(shape)):
        raise refused("an array of an odd size", "anything")
    return version, shape, dtype, by_columns, content


#: Names that stand for something else here, wherever numpy keeps or kept it.
STAND_INS: dict[tuple[str, str], Any] = {
    ("numpy", "dtype"): Kind,
    ("numpy.core.multiarray", "scalar"): scalar,
    ("numpy._core.multiarray", "scalar"): scalar,
    ("_codecs", "encode"): encode,
    ("builtins", "bytearray"): buffer,
    ("__builtin__", "bytearray"): buffer,
}
_CALLED = (*{*STAND_INS.values()}, collections.OrderedDict, set, dict)


#: The one in Python: that in C cannot be stopped at a call.
_Unpickler: Any = pickle._Unpickler


class Guard(_Unpickler):
    """Base of unpicklers; a subclass says what it finds, which functions may be called, and has these operations."""

    #: What is read.
    whole = "a pickle"
    #: Functions that may be called, beside those of this module.
    functions: tuple[Any, ...] = ()
    stack: list[Any]

    def guarded_call(self) -> None:
        """``REDUCE``: the result of a function."""
        function = self.stack[-2]
        if not any(function is each for each in (*_CALLED, *self.functions)):
            raise refused(f"a call of {getattr(function, '__name__', 'something')}", self.whole)
        self.load_reduce()

    def guarded_new(self) -> None:
        """``NEWOBJ``: an empty object."""
        if not isinstance(self.stack[-2], type):
            raise refused("an object of something that is no class", self.whole)
        self.load_newobj()

    def guarded_build(self) -> None:
        """``BUILD``: fill an object, by the rules of its class and not by rules that it was filled with before."""
        target = self.stack[-2]
        if "__setstate__" in getattr(target, "__dict__", ()):
            raise refused("an object that fills itself", self.whole)
        if isinstance(target, np.ndarray):
            self.stack[-1] = _filled(self.stack[-1])
        self.load_build()

    def unknown_way(self) -> None:
        """All other operations that make objects."""
        raise refused("an object made in an odd way", self.whole)


#: From operations of pickles that run something to what is done instead.
OPERATIONS: dict[int, Any] = {
    pickle.REDUCE[0]: Guard.guarded_call,
    pickle.NEWOBJ[0]: Guard.guarded_new,
    pickle.BUILD[0]: Guard.guarded_build,
    **dict.fromkeys(
        (each[0] for each in (pickle.INST, pickle.OBJ, pickle.NEWOBJ_EX, pickle.EXT1, pickle.EXT2, pickle.EXT4)),
        Guard.unknown_way,
    ),
}
