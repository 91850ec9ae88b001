"""Recourse methods that other processes import by name: a simple one, and some that are killed, wait or report."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path

import pandas as pd
import torch
from carla.recourse_methods.api import RecourseMethod
from threadpoolctl import threadpool_info


class Liked(RecourseMethod):
    """Return the training row with the highest probability for all people; subclasses leave files in ``folder``."""

    def __init__(self, mlmodel, hyperparams):
        super().__init__(mlmodel)
        rows = mlmodel.data.df_train[mlmodel.feature_input_order]
        self._goal = rows.iloc[mlmodel.predict_proba(rows)[:, 1].argmax()]
        if "folder" in hyperparams:
            self.prepare(Path(hyperparams["folder"]))

    def prepare(self, folder):
        (folder / f"{type(self).__name__}-{os.getpid()}").touch()

    def get_counterfactuals(self, factuals):
        return pd.DataFrame([self._goal] * len(factuals), index=factuals.index)


class Dies(Liked):
    """Kills its process, always."""

    def prepare(self, folder):
        super().prepare(folder)
        os.kill(os.getpid(), signal.SIGKILL)


class DiesOnce(Liked):
    """Kills its process the first time."""

    def prepare(self, folder):
        first = not [*folder.glob("DiesOnce-*")]
        super().prepare(folder)
        if first:
            os.kill(os.getpid(), signal.SIGKILL)


class Waits(Liked):
    """Waits, so that a test can kill its process."""

    def prepare(self, folder):
        super().prepare(folder)
        time.sleep(600)


class WaitsOnce(Liked):
    """Waits the first time, so that a test can kill its process."""

    def prepare(self, folder):
        first = not [*folder.glob("WaitsOnce-*")]
        super().prepare(folder)
        if first:
            time.sleep(600)


class ReportsThreads(Liked):
    """Records how many threads it may use."""

    def prepare(self, folder):
        libraries = {each["prefix"]: each["num_threads"] for each in threadpool_info()}
        ours = int(os.environ["ROSE_CARLA_THREADS"])
        later = int(os.environ.get("OMP_NUM_THREADS", "0"))  # for libraries that are not loaded yet
        threads = {"ours": ours, "torch": torch.get_num_threads(), "loaded later": later, **libraries}
        (folder / "threads.json").write_text(json.dumps(threads))
