"""The paper's Algorithm 3: robust recourse as a Markov decision process."""

from rose_carla.mdp.actions import ActionSpace, Feature
from rose_carla.mdp.checker import check_mdp
from rose_carla.mdp.environment import Probability, RecourseMDP, StateCost, Step, VectorMDP
from rose_carla.mdp.gymnasium_adapter import gymnasium_env
from rose_carla.mdp.noise_models import Accumulated, OneOff, Precise, Revisited, Robustness

__all__ = [
    "Accumulated",
    "ActionSpace",
    "Feature",
    "OneOff",
    "Precise",
    "Probability",
    "RecourseMDP",
    "Revisited",
    "Robustness",
    "StateCost",
    "Step",
    "VectorMDP",
    "check_mdp",
    "gymnasium_env",
]
