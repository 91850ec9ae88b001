"""Tables as Markdown, LaTeX, HTML and text, figures, and the files of a report."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from dataclasses import replace
from html.parser import HTMLParser
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from rose_carla import plots
from matplotlib.figure import Figure
from rose_carla.bench import (
    Column,
    Estimate,
    Finished,
    PaperValue,
    Result,
    Scope,
    Table,
    build_table,
    claims,
    layouts,
    results_frame,
    t_tests,
)
from rose_carla.bench.comparison import BETTER, DIFFERS, WITHIN
from rose_carla.bench.render import (
    Part,
    Section,
    escape_latex,
    render_html,
    render_latex,
    render_markdown,
    render_text,
    write_report,
)
from rose_carla.bench.table import DATASET_TITLES, TABLE_METRICS, Row, Value
from rose_carla.errors import ExperimentError
from rose_carla.metrics import METRICS

SCRIPT = "<script>alert('&')</script>"
SPECIAL = r"\&%$#_{}~^<>±σ²²σ↑↓–≥τ|" + '"'
VOID = {"meta", "br"}
PROVENANCE = {"command": f"python run.py --out '{SCRIPT}'", "revision": "abc+", "started": "2024-01-01", "seeds": 1}


def small(name=SCRIPT, reason=f"a reason {SCRIPT}"):
    """Return a table of two data sets and three methods with every kind of value, a hostile name and reason."""
    known = Estimate(0.123, 0.04, 0.1, 0.15, 10)
    rows = [
        (
            Value("1.00", Estimate(1.0, 0.0, 0.7, 1.0, 10), PaperValue(1.0, None), WITHIN, best=True),
            Value("0.12 ± 0.04", known, PaperValue(0.2, 0.1), BETTER, best=True, best_robust=True),
            Value("-3.12 ± 0.04", known, PaperValue(-1.0, 0.5), DIFFERS, reason),
        ),
        (Value("failed"), Value("–"), Value("~0.123", known, PaperValue(0.1, None))),
        (Value("0.50", known), Value("0.12 ± 0.04", known, best_robust=True), Value("9.99", known)),
    ]
    columns = Column("Validity"), Column("Acc_AIR", "action_unit=0.05"), Column("Log_Density", "unit_variance=0.001")
    body = tuple(
        Row(dataset, method, "", values)
        for dataset in ("german", "compas")
        for method, values in zip((name, "GrSp", "ROSE-one"), rows, strict=True)
    )
    return Table("small", "A title & more", "A note.", columns, body)


def random_results(datasets=("german", "compas"), n=8):
    """Return a random results frame of five methods, one of them under several conditions."""
    rng = np.random.default_rng(0)
    points = [("GrSp", ""), ("CROCO", ""), ("ROSE-one", ""), ("ROSE-mul", ""), ("PROBE", "t=1"), ("PROBE", "t=2")]
    keys = [(dataset, *point, 0, str(who)) for dataset in datasets for point in points for who in range(n)]
    frame = pd.DataFrame(keys, columns=["Dataset", "Method", "Condition", "Seed", "Person"])
    for metric in ("Sparsity", "Proximity", "Log_Density", "Gaussian_AIR", "Plausible_AIR", "Acc_AIR"):
        frame[metric] = rng.random(len(frame)).round(6)
    return frame


def parsed(page):
    """Parse a page: its tags with attributes and its text; the tags must be balanced."""
    found, text, opened, parser = [], [], [], HTMLParser()

    def start(tag, attributes):
        found.append((tag, dict(attributes)))
        if tag not in VOID:
            opened.append(tag)

    def end(tag):
        assert opened.pop() == tag

    parser.handle_starttag, parser.handle_endtag, parser.handle_data = start, end, text.append
    parser.handle_startendtag = lambda tag, attributes: found.append((tag, dict(attributes)))
    parser.feed(page)
    parser.close()
    assert not opened
    return SimpleNamespace(tags=found, text="".join(text))


def assert_no_script_or_link(page):
    for tag, attributes in parsed(page).tags:
        assert tag not in ("script", "link", "iframe", "object", "embed", "base")
        for name, value in attributes.items():
            assert not name.startswith("on")
            if name in ("src", "href", "xlink:href", "action", "data", "srcset", "poster"):
                assert value.startswith("#")
            if "http" in (value or ""):
                assert name.startswith("xmlns") or name == "rdf:resource"
    assert not re.search(r"@import|url\((?!#)", page)


def hostile(monkeypatch):
    """Return a table with a script in every text, after the name of the place."""
    monkeypatch.setitem(DATASET_TITLES, SCRIPT, f"dataset {SCRIPT}")
    monkeypatch.setitem(TABLE_METRICS, SCRIPT, replace(TABLE_METRICS["Validity"], label=f"label {SCRIPT}"))
    known = Estimate(0.123, 0.04, 0.1, 0.15, 10)
    value = Value(f"text {SCRIPT}", known, PaperValue(0.2, None), DIFFERS, f"reason {SCRIPT}")
    row = Row(SCRIPT, f"method {SCRIPT}", f"condition {SCRIPT}", (value,))
    return Table("small", f"title {SCRIPT}", f"note {SCRIPT}", (Column(SCRIPT, f"when {SCRIPT}"),), (row,))


def page_of(table, **options):
    return render_html("title", "origin", [Part(table)], **options)


def test_html_escapes_every_text(monkeypatch):
    section = Section(f"heading {SCRIPT}", f"paragraph {SCRIPT}", pd.DataFrame({f"name {SCRIPT}": [f"entry {SCRIPT}"]}))
    figure = "<svg xmlns='http://www.w3.org/2000/svg'></svg>", f"caption {SCRIPT}"
    part = Part(hostile(monkeypatch), [section], [figure], f"message {SCRIPT}")
    page = render_html(f"page {SCRIPT}", f"origin {SCRIPT}", [part], [f"error {SCRIPT}"], f"provenance {SCRIPT}")
    assert_no_script_or_link(page)
    text = parsed(page).text
    for name in (
        "label", "text", "reason", "dataset", "method", "condition", "title", "note", "when", "heading", "paragraph",
        "name", "entry", "caption", "message", "page", "origin", "error", "provenance",
    ):  # fmt: skip
        assert f"{name} {SCRIPT}" in text, name
    assert text.count(SCRIPT) == page.count("&lt;script&gt;") == 20  # the title of the page is there twice


def test_markdown_and_latex_escape_every_text(monkeypatch):
    table = hostile(monkeypatch)
    section = Section("heading", "paragraph", pd.DataFrame({f"name {SCRIPT}": [f"entry {SCRIPT}"]}))
    text = render_markdown(f"page {SCRIPT}", f"origin {SCRIPT}", "command", Part(table, [section]), [f"error {SCRIPT}"])
    assert set(re.findall("<[a-z!/][^>]*>", text)) == {
        "<br>",
        "<!-- origin &lt;script&gt;alert('&amp;')&lt;/script&gt; -->",
    }
    assert text.count("&lt;script&gt;") == 14
    text = render_latex([replace(table, title=SPECIAL, note=r"\input{x}")], "origin")
    assert "<script" not in text
    assert r"\input" not in text


def test_report_with_hostile_names_has_no_script(tmp_path):
    people = random_results().replace({"GrSp": SCRIPT, "CROCO": f"--> {SCRIPT}"})
    write_report(
        tmp_path, SCRIPT, [(small(), people.assign(Person=SCRIPT + people["Person"]))], PROVENANCE, [SCRIPT], ("small",)
    )
    whole = (tmp_path / "report.html").read_text()
    assert whole.count("<svg") == 2
    assert_no_script_or_link(whole)
    for path in tmp_path.iterdir():
        assert path.suffix in (".csv", ".json", ".tex", ".md") or "<script" not in path.read_text(), path


def test_html_shows_every_value_with_marks():
    whole = page_of(small("FastAR", "a reason"))
    tags = [tag for tag, _ in parsed(whole).tags]
    assert tags.count("table") == 2
    assert tags.count("tr") == 2 * 4
    assert tags.count("td") == 2 * 3 * 4
    assert (tags.count("b"), tags.count("u")) == (4, 4)
    assert "<b><u>0.12 ± 0.04</u></b>" in whole
    assert "paper 0.20 ± 0.10 <span class='tag better'>better</span>" in whole
    assert "<span class='tag differs'>differs</span><sup>1</sup>" in whole
    assert "<ol><li>a reason.</li></ol>" in whole
    assert "<th>u = 0.05<br>Acc AIR ↓</th>" in whole


def test_markdown_rows_have_equal_width_and_reasons_follow():
    text = render_markdown("title", "origin", "command", Part(small("a|b", "a reason")))
    lines = [line for line in text.splitlines() if line.startswith("|")]
    assert len(lines) == 2 * (2 + 3)
    assert {len(re.findall(r"(?<!\\)\|", line)) for line in lines} == {5}
    assert "| a\\|b | **1.00**<br>[0.70, 1.00]<br>paper 1.00, within 15 % |" in text
    assert "**<u>0.12 ± 0.04</u>**<br>[0.10, 0.15]<br>paper 0.20 ± 0.10, better" in text
    assert "paper -1.00 ± 0.50, differs [1]" in text
    assert "| GrSp | failed | – | ~0.123<br>[0.10, 0.15]<br>paper 0.10 |" in text
    assert text.endswith("Why values differ:\n\n1. a reason.\n\n")


def test_text_table_has_aligned_columns():
    lines = render_text(small("FastAR")).splitlines()
    assert lines[0] == "A title & more"
    rows = [line for line in lines[1:] if line.startswith((" ", "FastAR", "GrSp", "ROSE-one"))]
    assert len(rows) == 2 + 2 * 3
    assert len({len(row) for row in rows}) == 1
    ends = [{match.end() for match in re.finditer(r"\S(?=  |$)", row)} for row in rows]
    assert all(each <= ends[1] | {len("FastAR"), len("GrSp"), len("ROSE-one")} for each in ends)
    assert "1.00*" in rows[2]
    assert "0.12 ± 0.04*_" in rows[2]
    assert lines[-1].startswith("* best of all methods, _ best of those")


def test_latex_escapes_every_special_character():
    plain = re.sub(r"\\[&%$#_{}]|\\text[a-z]+\{\}|\$[^$]*\$", "", escape_latex(SPECIAL))
    assert set(plain) <= set('-|"')
    assert escape_latex("a_b & 5 % of {x}") == r"a\_b \& 5 \% of \{x\}"
    assert escape_latex("\\n~^<>") == r"\textbackslash{}n$\sim$\textasciicircum{}\textless{}\textgreater{}"
    assert escape_latex("σ² = 3 ± 1 –") == r"$\sigma^2$ = 3 $\pm$ 1 --"
    assert escape_latex("[-3.1, -2.5]") == "[$-$3.1, $-$2.5]"
    assert escape_latex("ROSE-one, 2024-01-01") == "ROSE-one, 2024-01-01"
    assert escape_latex("naïve 中") == "na?ve ?"


def test_latex_keeps_dash_in_ranges():
    assert escape_latex("95–99 people") == "95--99 people"


def test_latex_is_balanced_and_rows_have_equal_width():
    text = render_latex([small(SPECIAL), small()], "made by\ntwo lines")
    assert text.startswith("% made by\n% two lines\n\\documentclass")
    environments = []
    for what, name in re.findall(r"\\(begin|end)\{(\w+\*?)\}", text):
        if what == "begin":
            environments.append(name)
        else:
            assert environments.pop() == name
    assert not environments
    depth = 0
    for brace in re.findall(r"(?<!\\)[{}]", text):
        depth += 1 if brace == "{" else -1
        assert depth >= 0
    assert depth == 0
    bodies = re.findall(r"\\toprule\n(.*?)\\bottomrule", text, flags=re.DOTALL)
    assert len(bodies) == 2 * 3
    for body in bodies:
        rows = [line for line in body.splitlines() if line.endswith(r"\\") and "multicolumn" not in line]
        assert len(rows) == 2 + 2 * 3
        assert {len(re.findall(r"(?<!\\)&", row)) for row in rows} == {3}
    assert r"\textbf{\underline{0.12 $\pm$ 0.04}}" in text
    assert r"$-$3.12 / $-$1.00 $\pm$ 0.50$^{\neq}$" in text


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="LaTeX is not installed")
@pytest.mark.parametrize("name", ["table_1", "frontier"])
def test_latex_compiles_and_fits_pages(tmp_path, name):
    scope = Scope(("german", "adult", "compas"))
    full = build_table(
        getattr(layouts, name)(scope).layout, random_results(scope.datasets).assign(Alone=True), scope.datasets, {}
    )
    (tmp_path / "table.tex").write_text(
        render_latex([small(SPECIAL), full], f"{SPECIAL}\n\\undefined"), encoding="utf-8"
    )
    done = subprocess.run(
        ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "table.tex"],
        cwd=tmp_path,
        capture_output=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout.decode(errors="replace")[-2000:]
    assert (tmp_path / "table.pdf").read_bytes().startswith(b"%PDF")
    assert "too large" not in (tmp_path / "table.log").read_text(errors="replace")


def test_frontier_has_panel_per_dataset_and_line_per_method():
    frame = random_results()
    frame.loc[frame["Dataset"] == "compas", "Plausible_AIR"] *= 3
    figure = plots.frontier(frame, "Plausible_AIR", {"german": "German Credit"})
    assert isinstance(figure, Figure)
    assert [ax.get_title() for ax in figure.axes] == ["German Credit", "compas"]
    for ax, dataset in zip(figure.axes, ("german", "compas"), strict=True):
        lines = {line.get_label(): line.get_xydata() for line in ax.get_lines()}
        assert lines.keys() == {"GrSp", "CROCO", "ROSE-one", "ROSE-mul", "PROBE"}
        for method, points in lines.items():
            part = frame[(frame["Dataset"] == dataset) & (frame["Method"] == method)]
            means = [(each["Proximity"].mean(), each["Plausible_AIR"].mean()) for _, each in part.groupby("Condition")]
            np.testing.assert_allclose(points, means)
            assert np.all(
                (points > [ax.get_xlim()[0], ax.get_ylim()[0]]) & (points < [ax.get_xlim()[1], ax.get_ylim()[1]])
            )


@pytest.mark.parametrize(
    ("metric", "message"),
    [
        ("Proximity", "Unknown invalidation rate 'Proximity': Known: 'Acc_AIR', 'Gaussian_AIR', 'Plausible_AIR'"),
        ("Plausible_air", "Unknown invalidation rate 'Plausible_air': did you mean 'Plausible_AIR'"),
        ("Gaussian_AIR", "no column 'Gaussian_AIR': evaluate that metric first"),
    ],
)
def test_frontier_rejects_other_metrics(metric, message):
    with pytest.raises(ExperimentError, match=message):
        plots.frontier(random_results().drop(columns="Gaussian_AIR"), metric)


def written(folder, frame=None):
    frame = random_results() if frame is None else frame
    write_report(folder, f"title {SCRIPT}", [(small(), frame)], PROVENANCE, [f"a cell: {SCRIPT}"], ("small",))
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.slow
def test_report_files_are_complete_and_reproducible(tmp_path):
    files = written(tmp_path / "one")
    assert set(files) == {
        "report.html", "run.json", "small.csv", "small.md", "small.tex", "small-people.csv", "small-claims.csv",
        "small-tests.csv", "small-plausible-air.svg", "small-acc-air.svg",
    }  # fmt: skip
    assert written(tmp_path / "two") == files
    assert json.loads(files["run.json"]) == PROVENANCE
    page = files["report.html"].decode()
    assert_no_script_or_link(page)
    assert page.count("<figure>") == 2
    for words in (
        "Does any baseline have both a lower rate and a lower cost than ROSE?",
        "Failed cells",
        "Tests",
        "abc+",
    ):
        assert words in page
    stored = pd.read_csv(tmp_path / "one" / "small-people.csv", keep_default_na=False, dtype={"Person": str})
    pd.testing.assert_frame_equal(stored, random_results())


def test_tables_not_compared_have_no_tests_and_no_figures(tmp_path):
    write_report(tmp_path, "title", [(small(), random_results())], PROVENANCE, [])
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {"report.html", "run.json", "small.csv", "small.md", "small.tex", "small-people.csv"}
    assert "Failed cells" not in (tmp_path / "report.html").read_text()


def test_report_without_a_failed_metric(tmp_path):
    spec = layouts.table_1(Scope(("german",)), ("CROCO", "ROSE-mul"))
    about = {"seconds": 1.0, "people": 4, "training_seconds": 1.0, "alone": True, "labels": list("1234")}
    results, errors = {}, {}
    for experiment in spec.experiments:
        results[experiment.judgements[0].recourse] = Result({}, about)
        for judgement in experiment.judgements:
            if "Acc_AIR" in judgement.metrics:
                errors[judgement] = "MemoryError: none left"
            else:
                rng = np.random.default_rng(len(results))
                names = [name for metric in judgement.metrics for name in METRICS[metric].evaluation.columns]
                results[judgement] = Result({name: rng.random(4) for name in names})
    frame = results_frame(spec.experiments, Finished(results, errors, 0, 8))
    assert "Acc_AIR" not in set(t_tests(frame)["Metric"])
    assert len(claims(frame)) <= 1
    assert "small-tests.csv" in written(tmp_path, frame)


def test_markdown_escapes_tags_and_line_breaks_of_names(tmp_path):
    hostile = f"mine:-->{SCRIPT}\n```\x1b[2J|x"
    about = {**PROVENANCE, "command": f"rose-carla table1 --methods '{hostile}'"}
    frame = random_results().replace({"Method": {"CROCO": hostile}})
    write_report(tmp_path, f"title {SCRIPT}", [(small(hostile), frame)], about, [f"a cell: {hostile}"], ("small",))
    text = (tmp_path / "small.md").read_text()
    comment, _, body = text.partition("-->\n")
    assert "-->" not in comment.removesuffix(" ")
    _, code, body = body.split("```\n", 2)
    assert code.count("\n") == 1
    assert set(re.findall("<[a-z!/][^>]*>", body)) == {"<br>", "<u>", "</u>"}
    assert "-->" not in body
    assert "\x1b" not in text
    columns = len(re.findall(r"(?<!\\)\|", next(line for line in body.splitlines() if line.startswith("| GrSp |"))))
    label = next(line for line in body.splitlines() if line.startswith("| --&gt;"))
    assert len(re.findall(r"(?<!\\)\|", label)) == columns
