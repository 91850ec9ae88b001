"""The style of all figures: print sizes, colours for readers with colour blindness, and files for papers.

Global settings of matplotlib are not changed: ours apply while a figure is drawn.
"""

from __future__ import annotations

import contextlib
import functools
import io
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar, cast

import numpy as np
import pandas as pd
from rose_carla._lib.files import write_file
from rose_carla.carla_compat import import_optional
from rose_carla.errors import ExperimentError, printable, unknown_name

Draw = TypeVar("Draw", bound=Callable[..., Any])

#: Inches of a column and of the full width of a two-column paper; figures are printed without scaling.
COLUMN, PAGE = 3.33, 7.0
#: Points of text; the smaller size is the smallest that is legible in print.
TEXT, SMALL = 8.0, 7.0
#: Files for papers, slides and web pages.
FORMATS = ("pdf", "png", "svg")
_DPI = 300
#: Colours that readers with colour blindness can distinguish (Okabe and Ito), and a grey.
BLUE, RED, GREEN, ORANGE = "#0072B2", "#D55E00", "#009E73", "#E69F00"
PURPLE, SKY, GREY = "#CC79A7", "#56B4E9", "#8C8C8C"
#: Dark shades, for variants of a method.
DARK_BLUE, DARK_RED = "#003F66", "#7F3700"
#: Colour and marker of each method; two methods differ in at least one of them.
METHOD_STYLES = {
    "Wachter": (GREY, "v"),
    "GrSp": (GREY, "s"),
    "DiCE": (GREY, "D"),
    "FastAR": (ORANGE, "^"),
    "ROAR": (GREY, "P"),
    "ARAR": (GREY, "X"),
    "CoGS": (SKY, "o"),
    "PROBE": (PURPLE, "<"),  # not the marker of a grey one: purple looks grey with red-green blindness
    "CROCO": (GREEN, ">"),
    "ROSE-one": (BLUE, "o"),
    "ROSE-one-plain": (DARK_BLUE, "d"),
    "ROSE-mul": (RED, "o"),
    "ROSE-mul-plain": (DARK_RED, "d"),
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
#: Text stays text in papers, and files are reproducible.
_SAVE_SETTINGS = {"pdf.fonttype": 42, "svg.hashsalt": "rose_carla"}


def styled(function: Draw) -> Draw:
    """Decorate a drawing function so that our settings apply while it runs: matplotlib reads them for each text."""

    @functools.wraps(function)
    def draw(*args: Any, **kwargs: Any) -> Any:
        with import_optional("matplotlib").rc_context(_SETTINGS):
            return function(*args, **kwargs)

    return cast(Draw, draw)


def new_axes(width: float, height: float, n_rows: int = 1, n_columns: int = 1, **options: Any) -> tuple[Any, Any]:
    """Return a figure (size in inches) and its axes (n_rows, n_columns); ``options`` as in ``Figure.subplots``.

    The figure is not registered with pyplot, so it need not be closed.
    """
    figure = import_optional("matplotlib.figure").Figure(figsize=(width, height), layout="constrained")
    axes = figure.subplots(n_rows, n_columns, squeeze=False, **options)
    for ax in np.ravel(axes):
        set_small_ticks(ax)
    return figure, axes


def axes_or_new(ax: Any, width: float, height: float) -> Any:
    """Return ``ax``, or the axes of a new figure if it is None."""
    return new_axes(width, height)[1][0, 0] if ax is None else ax


def set_small_ticks(ax: Any) -> None:
    """Fix the size of ticks now: matplotlib creates them when the figure is drawn, with the settings of that time."""
    ax.tick_params(which="both", labelsize=SMALL, width=0.6, length=2.5, pad=2)


def draw_grid(ax: Any, axis: str = "both") -> None:
    """Draw thin grid lines."""
    ax.grid(True, axis=axis, alpha=0.3, linewidth=0.5)


def set_log_scale(ax: Any) -> None:
    """Make the x axis logarithmic, with plain numbers as tick labels."""
    ticker = import_optional("matplotlib.ticker")
    ax.set_xscale("log")
    ax.xaxis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5)))
    ax.xaxis.set_major_formatter(ticker.FuncFormatter(lambda x, _: f"{x:g}"))
    ax.xaxis.set_minor_formatter(ticker.NullFormatter())


def method_style(method: str) -> tuple[str, str]:
    """Return the colour and marker of a method; a black star for methods outside the paper."""
    return METHOD_STYLES.get(method, _OTHER)


def dataset_style(dataset: str) -> tuple[str, str]:
    """Return the colour and marker of a data set."""
    return DATASET_STYLES.get(dataset, _OTHER)


def dataset_title(dataset: str, titles: Mapping[str, str] | None) -> str:
    """Return the title of a data set, by default its name."""
    return (titles or {}).get(dataset) or escape_math(dataset)


def legend_beside(figure: Any, axes: Iterable[Any], where: str = "outside right center", **options: Any) -> None:
    """Draw one legend for all ``axes``, outside of them, with each label once."""
    handles: dict[str, Any] = {}
    for ax in axes:
        for handle, label in zip(*ax.get_legend_handles_labels(), strict=True):
            handles.setdefault(label, handle)
    figure.legend(handles.values(), handles.keys(), loc=where, frameon=False, fontsize=SMALL, **options)


def escape_math(text: str) -> str:
    """Escape text from data: dollar signs do not start an equation, and control characters are visible.

    Examples
    --------
    >>> print(escape_math("rent in $ a month, $ a year"))
    rent in \\$ a month, \\$ a year
    """
    return printable(text).replace("$", r"\$")


def check_columns(results: pd.DataFrame, *names: str) -> None:
    """Raise an error if a results frame lacks a column of a figure, as it does if every cell of a run failed."""
    for name in names:
        if name not in results:
            raise ExperimentError(f"The results have no column {name!r}: evaluate that metric first.")


def image(figure: Any, kind: str) -> bytes:
    """Return a figure as the contents of a file, reproducibly: without a date.

    Parameters
    ----------
    figure
        A matplotlib figure, or axes of one.
    kind
        One of :data:`FORMATS`.

    Raises
    ------
    ExperimentError
        If the format is unknown.
    """
    if kind not in FORMATS:
        raise ExperimentError(unknown_name("format of figures", kind, FORMATS))
    metadata: dict[str, Any] = {"pdf": {"CreationDate": None}, "png": {}, "svg": {"Date": None}}[kind]
    figure, buffer = figure.figure, io.BytesIO()
    with import_optional("matplotlib").rc_context(_SAVE_SETTINGS), _restore_layout(figure), _quiet_fonts():
        figure.savefig(buffer, format=kind, dpi=_DPI, metadata=metadata)
    return buffer.getvalue()


@contextlib.contextmanager
def _restore_layout(figure: Any) -> Iterator[None]:
    """Restore the positions of axes: constrained layout starts from the last one, so files would differ."""
    places = [(ax, ax.get_position(original=True), ax.get_in_layout()) for ax in figure.axes]
    yield
    for ax, place, in_layout in places:
        ax.set_position(place)
        ax.set_in_layout(in_layout)


@contextlib.contextmanager
def _quiet_fonts() -> Iterator[None]:
    """Silence warnings of fontTools about the dates of matplotlib's own fonts."""
    logger = logging.getLogger("fontTools")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)


def save(figure: Any, stem: str | Path, formats: Sequence[str] = ("pdf", "png")) -> list[Path]:
    """Write a figure to a file ``stem.FORMAT`` for each format, and return the paths.

    Examples
    --------
    >>> import tempfile
    >>> figure, _ = new_axes(COLUMN, 2.0)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     [path.name for path in save(figure, f"{folder}/empty")]
    ['empty.pdf', 'empty.png']
    """
    contents = {Path(f"{stem}.{kind}"): image(figure, kind) for kind in formats}
    for path, content in contents.items():
        write_file(path, content)
    return list(contents)
