"""The style of all figures: sizes, legible text, distinguishable colours, and files."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import itertools
import re
import subprocess
import sys
import warnings
import zlib
from types import SimpleNamespace

import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import pytest
from rose_carla import bench, plots
from hypothesis import example, given, settings
from hypothesis import strategies as st
from matplotlib.figure import Figure
from plot_examples import SENTENCE, assert_legible, drawn_texts, log, plan, random_results
from rose_carla._lib.files import FileWriteError
from rose_carla.bench import Scope, layouts
from rose_carla.bench import figure_recipes as recipes
from rose_carla.bench.figure_recipes import RECIPES
from rose_carla.errors import ExperimentError, NoiseError, PlanError
from rose_carla.noise import Density
from rose_carla.plots import style

THREE = Scope(("german", "adult", "compas"), people=10)
ONE = Scope(("compas",), people=10)
PLAN_WIDTH = 5.6
#: Machado, Oliveira and Fernandes (2009), severity 1.0, for linear RGB.
COLOUR_BLIND = {
    "protanopia": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "deuteranopia": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
}


def of_recipe(name, scope, seed=0):
    """Draw the figure of a recipe from synthetic results, plans and logs."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(recipes, "loan_plan", lambda seed: plan([0.2, 0.55, 0.9]))
        patch.setattr(bench, "entry", lambda name: SimpleNamespace(build=lambda *_: SimpleNamespace(log_=log())))
        patch.setattr(bench.Setting, "model", lambda self: None)
        return RECIPES[name].draw(scope, random_results(RECIPES[name].experiments(scope), seed=seed))


def ranked(scope=THREE, seed=3):
    return random_results(layouts.table_1(scope, tuple(bench.METHODS)).experiments, seed=seed)


FIGURES = {
    **{f"{name}, three data sets": functools.partial(of_recipe, name, THREE) for name in RECIPES},
    **{
        f"{name}, one data set": functools.partial(of_recipe, name, ONE)
        for name, recipe in RECIPES.items()
        if recipe.experiments(ONE) or name == "learning"
    },
    "ranks of all methods": lambda: plots.critical_difference_diagram(ranked(), "Acc_AIR", "Acc AIR").figure,
    "one learning curve": lambda: plots.learning_curve(log()).figure,
    "three learning curves": lambda: plots.learning_curves({name: log() for name in "abc"}),
    "one column of learning curves": lambda: plots.learning_curves({name: log() for name in "ab"}, 1),
    "a plan of one step": lambda: plots.plan_chart(plan([0.97]), 0.95).figure,
    "a plan of eight steps": lambda: plots.plan_chart(plan(np.linspace(0.1, 1, 8), SENTENCE), 0.99).figure,
    "a plan for a word": lambda: plots.plan_chart(plan([0.3, 0.5], "x" * 90, ("a", "b")), 0.01).figure,
    "one path": lambda: plots.noisy_paths(plots.patches(), {"a": ([0.8, 0.2], [[-0.4, 0.5]])}, 1e-3, 0.05, 20),
}


@functools.cache
def drawn(name):
    """Return a figure, and whether drawing it had no side effects."""
    before = dict(matplotlib.rcParams)
    figure = FIGURES[name]()
    return figure, dict(matplotlib.rcParams) == before and plt.get_fignums() == []


@pytest.mark.slow
@pytest.mark.parametrize("name", FIGURES)
def test_figures_are_legible_and_without_side_effects(name):
    figure, harmless = drawn(name)
    assert isinstance(figure, Figure)
    assert harmless
    width = figure.get_size_inches()[0]
    a_plan = "plan" in name.split(",")[0].split()
    assert width in ((PLAN_WIDTH,) if a_plan else (plots.COLUMN, plots.PAGE))
    assert_legible(figure)


@pytest.mark.slow
def test_assert_legible_detects_illegible_text():
    def illegible(what):
        figure, axes = style.new_axes(2.0, 2.0, 1, 2)
        what(axes[0])
        with pytest.raises(AssertionError):
            assert_legible(figure)

    illegible(lambda axes: axes[0].set_title("small", fontsize=6))
    illegible(lambda axes: axes[0].text(0.9, 0.5, "beyond the edge of the figure", in_layout=False))
    illegible(lambda axes: [ax.set_title("wider than its axes are", in_layout=False) for ax in axes])
    illegible(lambda axes: [axes[0].text(0.2, 0.2, "twice") for _ in range(2)])
    illegible(lambda axes: axes[0].set_xticks(np.linspace(0, 1, 15), ["0.12345"] * 15))
    figure, _ = style.new_axes(2.0, 2.0, 1, 2)
    assert_legible(figure)


def test_drawn_texts_exclude_ticks_outside_the_axis():
    figure, axes = style.new_axes(2.0, 2.0)
    axes[0, 0].set_xticks([0, 0.5, 7])
    axes[0, 0].set_xlim(0, 1)
    words = [text.get_text() for text, _ in drawn_texts(figure)]
    assert "0.5" in words
    assert "7.0" not in words


chances = st.floats(0, 1)
LONG = f"{SENTENCE} and {SENTENCE}"
steps = st.tuples(chances, st.sampled_from(["age", "credit-amount", SENTENCE, LONG]))


@pytest.mark.slow
@settings(max_examples=10, deadline=None, derandomize=True)
@given(st.lists(steps, min_size=1, max_size=8), chances | st.none())
@example([(0.5, LONG), (0.6, LONG), *[(0.9, "age")] * 6], 1.0)
def test_plans_of_long_and_short_steps_are_legible(given_steps, tau):
    parts = [plan([chance], feature).steps[0] for chance, feature in given_steps]
    whole = dataclasses.replace(plan([0.5], label="a person with a long name"), steps=tuple(parts))
    assert_legible(plots.plan_chart(whole, tau).figure)


def test_user_settings_do_not_affect_figures():
    usual = digest(plots.plan_chart(plan([0.4])).figure, "png")
    with matplotlib.rc_context({"font.size": 20, "axes.titlesize": 30, "axes.spines.top": True, "axes.linewidth": 3}):
        assert digest(plots.plan_chart(plan([0.4])).figure, "png") == usual
        assert matplotlib.rcParams["font.size"] == 20


@pytest.mark.parametrize(
    "draw",
    [
        lambda ax: plots.learning_curve(log(), ax),
        lambda ax: plots.plan_chart(plan([0.4]), ax=ax),
        lambda ax: plots.critical_difference_diagram(ranked(ONE), "Acc_AIR", "Acc AIR", ax=ax),
    ],
)
def test_given_axes_are_used_and_returned(draw):
    figure = Figure(figsize=(4, 3))
    ax = figure.subplots()
    assert draw(ax) is ax
    assert ax.figure is figure
    assert ax.has_data()
    assert tuple(figure.get_size_inches()) == (4, 3)


def test_styles_of_methods_and_datasets_are_unique():
    assert style.METHOD_STYLES.keys() == bench.METHODS.keys()
    for one, other in itertools.combinations(style.METHOD_STYLES.values(), 2):
        assert one != other
    assert style.method_style("another method") not in style.METHOD_STYLES.values()
    for one, other in itertools.combinations(style.DATASET_STYLES.values(), 2):
        assert one[0] != other[0]
        assert one[1] != other[1]


def digest(figure, kind):
    """Return the hash of the file: pytest takes minutes to compare the files themselves."""
    return hashlib.sha256(plots.image(figure, kind)).hexdigest()


def cielab(colour, seen=((1, 0, 0), (0, 1, 0), (0, 0, 1))):
    """Convert a colour to CIELAB, after the transformation ``seen`` of linear RGB."""
    values = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    linear = np.where(values <= 0.04045, values / 12.92, ((values + 0.055) / 1.055) ** 2.4)
    to_xyz = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
    ratio = to_xyz @ np.clip(np.array(seen) @ linear, 0, 1) / to_xyz.sum(axis=1)
    x, y, z = np.where(ratio > (6 / 29) ** 3, np.cbrt(ratio), ratio / (3 * (6 / 29) ** 2) + 4 / 29)
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


def test_cielab_matches_published_values():
    np.testing.assert_allclose(cielab("#FFFFFF"), [100, 0, 0], atol=0.01)
    np.testing.assert_allclose(cielab("#FF0000"), [53.24, 80.09, 67.20], atol=0.05)
    for matrix in COLOUR_BLIND.values():  # greys are not changed
        np.testing.assert_allclose(np.sum(matrix, axis=1), 1, atol=1e-5)


@pytest.mark.parametrize("kind", COLOUR_BLIND)
def test_colours_are_distinguishable_with_colour_blindness(kind):
    seen = np.array(COLOUR_BLIND[kind])

    def apart(one, other):
        return float(np.linalg.norm(cielab(one, seen) - cielab(other, seen)))

    for one, other in itertools.combinations(style.METHOD_STYLES, 2):
        (first, marker), (second, another) = style.METHOD_STYLES[one], style.METHOD_STYLES[other]
        if style.GREY not in (first, second):
            assert apart(first, second) > 15, (one, other)
        if marker == another:
            assert apart(first, second) > 20, (one, other)
    for (first, _), (second, _) in itertools.combinations(style.DATASET_STYLES.values(), 2):
        assert apart(first, second) > 20
    assert apart(style.GREY, style.PURPLE) < 20 < np.linalg.norm(cielab(style.GREY) - cielab(style.PURPLE))


SAVED = ("noise, three data sets", "ranks-acc-air, three data sets", "a plan of one step")


@pytest.mark.slow
@pytest.mark.parametrize("name", SAVED)
def test_files_of_figures_are_reproducible(name):
    twice = [FIGURES[name]() for _ in range(2)]
    for kind in plots.FORMATS:
        assert digest(twice[0], kind) == digest(twice[1], kind), kind
    again = digest(twice[0], "svg")  # after other formats, with other resolutions
    assert again == digest(FIGURES[name](), "svg")
    twice[0].axes[0].set_xlabel("something else")
    assert digest(twice[0], "svg") != again


def words_of(pdf):
    """Return the texts of a PDF and its drawing commands."""
    streams = []
    for stream in re.findall(rb"stream\r?\n(.*?)\r?\nendstream", pdf, re.DOTALL):
        try:
            streams.append(zlib.decompress(stream))
        except zlib.error:
            continue
    page = b"".join(stream for stream in streams if b"\nET" in stream)
    written = [b"".join(re.findall(rb"\((.*?)\)", text)) for text in re.findall(rb"BT.*?ET", page, re.DOTALL)]
    return [text.replace(b"\0", b"").decode("latin-1") for text in written], page


def test_pdfs_are_vector_graphics_with_embedded_truetype():
    for name in ("ranks-acc-air, three data sets", "accumulation, three data sets", "a plan of one step"):
        figure, _ = drawn(name)
        pdf = plots.image(figure, "pdf")
        assert b"/FontFile2" in pdf
        assert b"/Type3" not in pdf
        assert b"/Subtype /Image" not in pdf
        assert b"CreationDate" not in pdf
        words, page = words_of(pdf)
        assert page.count(b" l\n") + page.count(b" c\n") > 20
        titles = [ax.get_title() or ax.get_title("left") for ax in figure.axes]
        for text in filter(None, titles):
            assert text in words, words


def test_png_has_print_resolution():
    png = plots.image(drawn("one learning curve")[0], "png")
    width, height = (int.from_bytes(png[i : i + 4], "big") for i in (16, 20))
    assert (width, height) == (round(300 * plots.COLUMN), round(300 * 2.2))


@pytest.mark.parametrize("kind", plots.FORMATS)
def test_saving_does_not_log_font_warnings(caplog, kind):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", DeprecationWarning)  # among libraries
        plots.image(drawn("accumulation, three data sets")[0], kind)
    assert [record.getMessage() for record in caplog.records] == []


def test_figures_are_saved_in_requested_formats(tmp_path):
    figure, _ = drawn("a plan of one step")
    paths = plots.save(figure, tmp_path / "new" / "tau=0.9", ("svg", "pdf", "svg"))
    assert paths == [tmp_path / "new" / "tau=0.9.svg", tmp_path / "new" / "tau=0.9.pdf"]
    assert sorted(paths) == sorted((tmp_path / "new").iterdir())
    for path in paths:
        assert hashlib.sha256(path.read_bytes()).hexdigest() == digest(figure, path.suffix[1:])
        assert path.read_bytes()[:4] == {".pdf": b"%PDF", ".svg": b"<?xm"}[path.suffix]
    assert [path.name for path in plots.save(figure, str(tmp_path / "usual"))] == ["usual.pdf", "usual.png"]


def test_unknown_formats_and_unwritable_folders_are_rejected(tmp_path):
    figure, _ = style.new_axes(1, 1)
    with pytest.raises(ExperimentError, match="Unknown format of figures 'PGN': did you mean 'png'"):
        plots.image(figure, "PGN")
    with pytest.raises(ExperimentError, match="Unknown format of figures 'pfd': did you mean 'pdf'"):
        plots.save(figure, tmp_path / "figure", ("png", "pfd"))
    assert not [*tmp_path.iterdir()]
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(FileWriteError, match=r"Cannot write .*figure\.pdf'"):
        plots.save(figure, tmp_path / "file" / "figure")


def test_invalid_input_is_rejected():
    with pytest.raises(NoiseError, match="densities of two features can be drawn, this one has 3"):
        plots.Plane(Density().fit(np.random.default_rng(0).random((20, 3))), lambda states: states[:, 0])
    with pytest.raises(PlanError, match="empty"):
        plots.learning_curves({"a": log(), "b": []})
    with pytest.raises(PlanError, match="no logs"):
        plots.learning_curves({})


@pytest.mark.slow
def test_drawing_does_not_import_the_experiment_stack():
    code = "import sys, rose_carla.plots; print(*(name for name in sys.modules if name.startswith('rose_carla.')))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)
    packages = {name.split(".")[1] for name in done.stdout.split()}
    assert "plots" in packages
    assert not packages & {"bench", "cli", "metrics", "baselines", "rose", "ppo", "mdp"}
