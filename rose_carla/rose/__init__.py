"""The paper's two methods."""

from rose_carla.rose.method import Rose, RoseMul, RoseOne
from rose_carla.rose.settings import RoseSettings

__all__ = ["Rose", "RoseMul", "RoseOne", "RoseSettings"]
