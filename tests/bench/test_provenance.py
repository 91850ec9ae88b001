"""Provenance of results."""

from __future__ import annotations

import importlib
import json
import os
import sys
import time

from rose_carla.bench import provenance as module


def test_provenance_is_json_with_positive_memory():
    about = module.provenance(time.time() - 2, "abc", {"seeds": 1})
    assert json.loads(json.dumps(about)) == about
    assert about["seconds"] >= 2
    assert about["machine"]["memory_gb"] > 0
    assert about["peak_memory_gb"] > 0


def test_memory_is_unknown_on_windows(monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(sys, "platform", "win32")
        patch.setitem(sys.modules, "resource", None)
        patch.delattr(os, "sysconf")
        windows = importlib.reload(module)
        about = windows.provenance(time.time(), "abc", {})
        assert about["machine"]["memory_gb"] is about["peak_memory_gb"] is None
    importlib.reload(module)
