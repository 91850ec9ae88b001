"""The six methods of the paper's comparison that CARLA lacks."""

from rose_carla.baselines.arar import Arar, ArarSettings
from rose_carla.baselines.cogs import Cogs, CogsSettings
from rose_carla.baselines.croco import Croco, CrocoSettings
from rose_carla.baselines.fastar import FastAR, FastARSettings
from rose_carla.baselines.probe import Probe, ProbeSettings
from rose_carla.baselines.roar import Roar, RoarSettings

__all__ = [
    "Arar",
    "ArarSettings",
    "Cogs",
    "CogsSettings",
    "Croco",
    "CrocoSettings",
    "FastAR",
    "FastARSettings",
    "Probe",
    "ProbeSettings",
    "Roar",
    "RoarSettings",
]
