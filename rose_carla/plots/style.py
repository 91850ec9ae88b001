"""How all figures look: print sizes, colours that everybody tells apart, and files for papers.

Nothing global changes: settings hold while a figure is made and are part of it from then on.
"""

from __future__ import annotations

import contextlib
import functools
import io
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar, cast

import numpy as np
from rose_carla._lib.files import write_file
from rose_carla._lib.text import printable
from rose_carla.carla_compat import import_optional
from rose_carla.errors import ExperimentError, unknown_name

Draw = TypeVar("Draw", bound=Callable[..., Any])

#: Inches of one column and of the whole width of a two-column paper; figures are made to be printed as they are.
COLUMN, PAGE = 3.33, 7.0
#: Points of text; the smallest that is still read in print.
TEXT, SMALL = 8.0, 7.0
#: Files for papers, for slides and for pages.
FORMATS = ("pdf", "png", "svg")
_DPI = 300
#: Colours that also people who are colour-blind tell apart (Okabe and Ito).
BLUE, RED, GREEN, ORANGE, PURPLE, SKY, GREY = (
    "#0072B2",
    "#D55E00",
    "#009E73",
    "#E69F00",
    "#CC79A7",
    "#56B4E9",
    "#8C8C8C",
)
#: Colour and marker of each method; two methods share one of them at most.
METHOD_STYLES = {
    "Wachter": (GREY, "v"),
    "GrSp": (GREY, "s"),
    "DiCE": (GREY, "D"),
    "FastAR": (ORANGE, "^"),
    "ROAR": (GREY, "P"),
    "ARAR": (GREY, "X"),
    "CoGS": (SKY, "o"),
    "PROBE": (PURPLE, "<"),  # not of a grey one: with red-green blindness purple and green look grey
    "CROCO": (GREEN, ">"),
    "ROSE-one": (BLUE, "o"),
    "ROSE-mul": (RED, "o"),
}
#: Colour and marker of each data set.
DATASET_STYLES = {"german": (BLUE, "o"), "adult": (RED, "s"), "compas": (GREEN, "^")}
_OTHER = ("#000000", "*")
_SETTINGS = {
    "font.size": TEXT,
    "axes.titlesize": TEXT,
    "axes.labelsize": TEXT,
    "legend.fontsize": SMALL,
    "axes.linewidth": 0.6,
    "lines.linewidth": 1.2,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "mathtext.default": "it",
}
#: Text stays text in papers, and the same figure is the same file.
_SAVED = {"pdf.fonttype": 42, "svg.hashsalt": "rose_carla"}


def styled(function: Draw) -> Draw:
    """A function that draws, with our settings while it does: matplotlib reads sizes whenever a text is made."""

    @functools.wraps(function)
    def drawing(*arguments: Any, **options: Any) -> Any:
        with import_optional("matplotlib").rc_context(_SETTINGS):
            return function(*arguments, **options)

    return cast(Draw, drawing)


def new_axes(width: float, height: float, n_rows: int = 1, n_columns: int = 1, **options: Any) -> tuple[Any, Any]:
    """A figure of so many inches and its axes, an array (n_rows, n_columns); ``options`` as in ``Figure.subplots``.

    The figure belongs to nobody but the caller: pyplot does not know it, so there is nothing to close.
    """
    figure = import_optional("matplotlib.figure").Figure(figsize=(width, height), layout="constrained")
    axes = figure.subplots(n_rows, n_columns, squeeze=False, **options)
    for ax in np.ravel(axes):
        small_ticks(ax)
    return figure, axes


def small_ticks(ax: Any) -> None:
    """Ticks are made when they are drawn, and then by the settings of that time unless they are told now."""
    ax.tick_params(which="both", labelsize=SMALL, width=0.6, length=2.5, pad=2)


def one_axes(ax: Any, width: float, height: float) -> Any:
    """``ax`` itself, or axes in a figure of their own if there is none."""
    return new_axes(width, height)[1][0, 0] if ax is None else ax


def method_style(method: str) -> tuple[str, str]:
    """Colour and marker of a method; a star for one that the paper does not know."""
    return METHOD_STYLES.get(method, _OTHER)


def dataset_style(dataset: str) -> tuple[str, str]:
    """Colour and marker of a data set."""
    return DATASET_STYLES.get(dataset, _OTHER)


def legend_beside(figure: Any, axes: Sequence[Any], where: str = "outside right center", **options: Any) -> None:
    """One legend for all ``axes``, outside of them, each label once."""
    handles: dict[str, Any] = {}
    for ax in axes:
        for handle, label in zip(*ax.get_legend_handles_labels(), strict=True):
            handles.setdefault(label, handle)
    figure.legend(handles.values(), handles.keys(), loc=where, frameon=False, fontsize=SMALL, **options)


def literally(text: str) -> str:
    """A text from data, drawn as it is: dollars make no equation of it, and what cannot be drawn is told.

    Examples
    --------
    >>> print(literally("rent in $ a month, $ a year"))
    rent in \\$ a month, \\$ a year
    """
    return printable(text).replace("$", r"\$")


def dataset_title(dataset: str, titles: Mapping[str, str] | None) -> str:
    """What a data set is called for people; its own name from data if nobody gave it another."""
    return (titles or {}).get(dataset) or literally(dataset)


def image(figure: Any, kind: str) -> bytes:
    """A figure as the contents of a file: the same for the same figure, without a date.

    Parameters
    ----------
    figure
        Of matplotlib, or axes in one.
    kind
        One of :data:`FORMATS`.

    Raises
    ------
    ExperimentError
        If there is no such format.
    """
    if kind not in FORMATS:
        raise ExperimentError(unknown_name("format of figures", kind, FORMATS))
    matplotlib = import_optional("matplotlib")
    metadata: dict[str, Any] = {"pdf": {"CreationDate": None}, "png": {}, "svg": {"Date": None}}[kind]
    figure, drawn = figure.figure, io.BytesIO()
    with matplotlib.rc_context(_SAVED), _layout_kept(figure), _fonts_not_told_about():
        figure.savefig(drawn, format=kind, dpi=_DPI, metadata=metadata)
    return drawn.getvalue()


@contextlib.contextmanager
def _layout_kept(figure: Any) -> Iterator[None]:
    """Axes where they were: a layout starts from the last one and would be another every time."""
    places = [(ax, ax.get_position(original=True), ax.get_in_layout()) for ax in figure.axes]
    yield
    for ax, place, inside in places:
        ax.set_position(place)
        ax.set_in_layout(inside)


@contextlib.contextmanager
def _fonts_not_told_about() -> Iterator[None]:
    """Without what fontTools says about the dates of matplotlib's own fonts."""
    logger = logging.getLogger("fontTools")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)


def save(figure: Any, stem: str | Path, formats: Sequence[str] = ("pdf", "png")) -> list[Path]:
    """Write a figure to ``stem.pdf`` and ``stem.png``, or in other formats; returns the paths.

    Examples
    --------
    >>> import tempfile
    >>> figure, _ = new_axes(COLUMN, 2.0)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     [path.name for path in save(figure, f"{folder}/empty")]
    ['empty.pdf', 'empty.png']
    """
    contents = {kind: image(figure, kind) for kind in dict.fromkeys(formats)}
    paths = []
    for kind, content in contents.items():
        path = Path(f"{stem}.{kind}")
        write_file(path, content)
        paths.append(path)
    return paths
