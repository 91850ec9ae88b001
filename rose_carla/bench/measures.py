"""What the columns of the tables are called, which way is better, and how they are printed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

#: Data sets by their names in the paper.
DATASETS = {"german": "German Credit", "adult": "Adult Income", "compas": "COMPAS"}


@dataclass(frozen=True)
class Measure:
    """A column of a table.

    Parameters
    ----------
    label
        Its name in the paper.
    higher
        Whether higher is better.
    digits
        After the point.
    spread
        Whether the standard deviation over people is printed, as the paper does.
    """

    label: str
    higher: bool
    digits: int = 2
    spread: bool = True

    def text(self, number: float) -> str:
        """A number as it is printed."""
        return f"{number:.{self.digits}f}"


#: By the column of the table of people.
MEASURES: Mapping[str, Measure] = {
    "Validity": Measure("Validity", True, spread=False),
    "Sparsity": Measure("Sparsity", False),
    "Proximity": Measure("Proximity", False),
    "Recourse_Time": Measure("Time (s)", False, 3, spread=False),
    "Training_Time": Measure("Training (s)", False, 1, spread=False),
    "Log_Density": Measure("Log density", True),
    "Gaussian_AIR": Measure("Gaussian AIR", False),
    "Plausible_AIR": Measure("Plausible AIR", False),
    "Acc_AIR": Measure("Acc AIR", False),
    "Steps": Measure("# of steps", False),
    "Accuracy": Measure("Accuracy", True, spread=False),
    "People": Measure("# of points", True, 0, spread=False),
    "Batch_Size": Measure("Batch size", True, 0, spread=False),
    "Epochs": Measure("Epochs", True, 0, spread=False),
    "Learning_Rate": Measure("Learning rate", True, 3, spread=False),
}

#: Symbols of what conditions set, for people.
_SYMBOLS = {"variance": "σ²", "unit_variance": "σ² of a unit", "action_unit": "u", "tau": "τ"}


def condition_words(condition: str) -> str:
    """``"action_unit=0.05"`` as ``"u = 0.05"``; a method's own hyper-parameter keeps its name.

    Examples
    --------
    >>> condition_words("action_unit=0.05")
    'u = 0.05'
    >>> condition_words("tau=0.9, variance=0.01")
    'τ = 0.9, σ² = 0.01'
    """
    pairs = [part.partition("=") for part in condition.split(", ")]
    return ", ".join(f"{_SYMBOLS.get(name, name)} = {value}" if value else name for name, _, value in pairs)
