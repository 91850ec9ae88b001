"""Examples, commands and links in README and docs work as printed, and the site builds without a warning."""

from __future__ import annotations

import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
EVERYWHERE = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
PAGES = [page.relative_to(ROOT).as_posix() for page in EVERYWHERE if page.parent in (ROOT, ROOT / "docs")]
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
NUMBER = re.compile(r"-?\d[\d,]*(?:\.\d+)?%?")

#: Set-up of pages whose examples start from the reader's own table or model.
GIVEN = {
    "docs/datasets.md": """
import pandas as pd
frame = pd.DataFrame({"age": range(20, 60), "income": range(0, 40_000, 1000), "loan": ["granted", "refused"] * 20})
frame.to_csv("loans.csv", index=False)
""",
    "docs/models.md": """
import torch
from rose_carla import datasets
from sklearn.compose import make_column_transformer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder
data = datasets.load("compas")
encoded = data.df_train.drop(columns=data.target)
fitted = LogisticRegression().fit(encoded, data.df_train[data.target])
columns = make_column_transformer((OneHotEncoder(), data.categorical), remainder="passthrough")
words = data.df_train[data.target].map({0: "refused", 1: "granted"})
pipeline = make_pipeline(columns, LogisticRegression(max_iter=1000))
pipeline.fit(data.inverse_transform(data.df_train)[data.raw_features], words)
module = torch.nn.Linear(7, 1)
""",
}

#: Commands in plain fences take long or fail on purpose; the test runs a shorter variant of each.
TABLE_1, APPENDIX = "python benchmarks/run_table1.py --help", "python benchmarks/run_appendix.py --help"
LOANS = "--target loan --favourable granted"
LONG = {
    "make table1": "make -n table1",
    "make table1 ARGS=--quick": "make -n table1 ARGS=--quick",
    "make appendix": "make -n appendix",
    "make test": "make -n test",
    "make test-lowest": "make -n test-lowest",
    "make audit": "make -n audit",
    "make fuzz": "make -n fuzz",
    "make fuzz SEED=1": "make -n fuzz SEED=1",
    "make faults": "make -n faults",
    "make faults ARGS=kill_benchmark": "make -n faults ARGS=kill_benchmark",
    "make load": "make -n load",
    'make load ARGS="stream --people 10000"': "make -n load ARGS=stream",
    "make determinism": "make -n determinism",
    "make install && . .venv/bin/activate": "make -n install",
    "make install-test && . .venv/bin/activate": "make -n install-test",
    "python benchmarks/run_table1.py --out docs/results/table1": TABLE_1,
    "python benchmarks/run_table1.py --backend dask --scheduler tcp://SCHEDULER:8786": TABLE_1,
    "python benchmarks/run_table1.py --quick --datasets compas --methods neighbour:Neighbour ROSE-one": (
        "python benchmarks/run_table1.py --quick --datasets compas --methods neighbour:Neighbour --jobs 1 "
        "--out out --cells cells"
    ),
    "python benchmarks/run_appendix.py frontier --jobs 2 --out docs/results/frontier": APPENDIX,
    "python benchmarks/run_appendix.py rose-mul plausible units linear classifiers --jobs 2 --out "
    "docs/results/appendix": APPENDIX,
    "python benchmarks/make_figures.py --jobs 2 --formats png --out docs/figures": (
        "python benchmarks/make_figures.py --help"
    ),
    "rose-carla datasets": "rose-carla datasets",
    f"rose-carla datasets loans.csv {LOANS}": "rose-carla datasets --help",
    f"rose-carla train loans.csv {LOANS} --ignore applicant --model bank:forest --out forest": (
        "rose-carla train --help"
    ),
    "rose-carla recourse applicants.csv --policy forest --model bank:forest": "rose-carla recourse --help",
    "rose-carla recourse late.csv --policy policy --id applicant --format text": "rose-carla recourse --help",
    f"rose-carla recourse applicants.csv --data loans.csv {LOANS} --immutable age --ignore applicant": (
        "rose-carla recourse --help"
    ),
    f"rose-carla evaluate loans.csv {LOANS} --immutable age --ignore applicant --people people.csv "
    "--counterfactuals counterfactuals.csv": "rose-carla evaluate --help",
    "rose-carla check": "rose-carla check --help",
    "rose-carla check GrSp": "rose-carla check --help",
    "rose-carla table1 --quick --datasets compas --methods GrSp ROSE-one": "rose-carla table1 --help",
    "rose-carla appendix frontier --quick": "rose-carla appendix --help",
    "rose-carla figures --quick": "rose-carla figures --help",
}


#: Steps of a plan.
STEP = re.compile(r"^( +\d+\. |Next: ).*\n?", re.MULTILINE)


def text_of(page):
    return (ROOT / page).read_text(encoding="utf-8")


def fences(page, language):
    return [body for kind, body in FENCE.findall(text_of(page)) if kind == language]


def assert_same_output(printed, expected):
    """Compare words exactly and numbers roughly, without steps of plans, which may differ between machines."""
    assert bool(STEP.search(printed)) == bool(STEP.search(expected)), (printed, expected)
    printed, expected = STEP.sub("", printed), STEP.sub("", expected)

    def words(text):
        return NUMBER.sub("#", text).split()

    def numbers(text):
        return [(float(number.rstrip("%").replace(",", "")), "%" in number) for number in NUMBER.findall(text)]

    assert words(printed) == words(expected)
    for (here, percent), (there, _) in zip(numbers(printed), numbers(expected), strict=True):
        assert here == pytest.approx(there, rel=0.2, abs=5 if percent else 0.1), (printed, expected)


@pytest.mark.slow
@pytest.mark.parametrize("page", [page for page in PAGES if fences(page, "python")])
def test_python_examples_run_and_print_the_documented_output(page, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    names = {"__name__": "__main__"}
    exec(compile(GIVEN.get(page, ""), page, "exec"), names)
    before, printed = "", ""
    for kind, body in FENCE.findall(text_of(page)):
        if kind == "python":
            capsys.readouterr()
            exec(compile(body, page, "exec"), names)
            printed = capsys.readouterr().out
        elif kind == "text" and before == "python":
            assert_same_output(printed, body)
        before = kind


@pytest.mark.parametrize(("page", "most"), [("README.md", 5), ("docs/add_a_method.md", 30)])
def test_first_example_is_short(page, most):
    assert len([line for line in fences(page, "python")[0].splitlines() if line.strip()]) <= most


@pytest.mark.slow
@pytest.mark.parametrize("page", [page for page in PAGES if fences(page, "bash")])
def test_bash_examples_run(page, tmp_path, warm_python):
    """Run the README's with the installed command, all others with a faster one."""
    commands = Path(sys.executable).parent if page == "README.md" else warm_python.folder
    environment = {**os.environ, "PATH": f"{commands}{os.pathsep}{os.environ['PATH']}"}
    for example in fences(page, "bash"):
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", example],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{example}\n{done.stdout}\n{done.stderr}"


def long_commands():
    """Return commands of this project in plain fences, without comments."""
    whole = [re.sub(r"\s*\\\n\s*", " ", body) for page in EVERYWHERE for body in fences(page, "")]
    commands = [re.sub(r"\s+#.*", "", line).removeprefix("$ ").strip() for body in whole for line in body.splitlines()]
    return {each for each in commands if re.match(r"(make|python benchmarks/|rose-carla)\b", each)}


def test_every_long_command_has_a_shorter_variant():
    assert long_commands() == set(LONG)


def in_process(command):
    """Run a command in this process, to save the time of imports."""
    program, *arguments = command.split()
    if program == "rose-carla":
        sys.argv = [program, *arguments]
        program = ROOT / "rose_carla" / "__main__.py"
    else:
        program, *arguments = arguments
        sys.argv = [program, *arguments]
        program = ROOT / program
    with pytest.raises(SystemExit) as ending:
        runpy.run_path(str(program), run_name="__main__")
    assert not ending.value.code


@pytest.mark.slow
@pytest.mark.parametrize("shorter", sorted(set(LONG.values())))
def test_shorter_variants_of_long_commands_run(shorter, tmp_path, monkeypatch, capsys):
    if shorter.startswith("make"):
        subprocess.run(shorter.split(), cwd=ROOT, capture_output=True, check=True)
        return
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", sys.argv)
    monkeypatch.setattr(sys, "path", sys.path)
    classes, *_ = fences("docs/add_a_method.md", "python")[0].partition("\nmodel = ")
    Path("neighbour.py").write_text(classes)
    in_process(shorter)
    printed = capsys.readouterr().out
    if "--help" in shorter:
        for long in (long for long, variant in LONG.items() if variant == shorter):
            for option in re.findall(r"--\w[\w-]*", long):
                assert option in printed, f"{option} of {long}"


@pytest.mark.parametrize("page", EVERYWHERE, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_have_targets(page):
    for link in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text(encoding="utf-8")):
        assert link.startswith("https://") or (page.parent / link).exists(), link


def pages_in(nav):
    if isinstance(nav, str):
        return {nav}
    parts = nav.values() if isinstance(nav, dict) else nav
    return set().union(*map(pages_in, parts))


def test_every_page_is_in_the_nav():
    nav = yaml.safe_load(text_of("mkdocs.yml"))["nav"]
    docs = ROOT / "docs"
    assert pages_in(nav) == {page.relative_to(docs).as_posix() for page in docs.rglob("*.md")}


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    build = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    done = subprocess.run(build, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.slow
def test_site_builds_without_warnings_and_external_resources(site):
    for page in site.rglob("*.html"):
        if page.name == "report.html":  # of the tables, tested with them
            continue
        html = page.read_text(encoding="utf-8")
        assert not re.findall(r'<(?:script|img|link)[^>]+(?:src|href)="(?:https?:)?//[^"]*"', html), page


@pytest.mark.slow
def test_equations_are_rendered_outside_of_code(site):
    metrics = (site / "metrics.html").read_text(encoding="utf-8")
    assert metrics.count("<math") > 20
    assert "$" not in re.sub(r"<code.*?</code>", "", metrics, flags=re.DOTALL)
    assert "$ROSE_CARLA_CACHE" in (site / "models.html").read_text(encoding="utf-8")


@pytest.mark.parametrize("equation", [r"\frac{1}{", r"\nonsense{x}"])
def test_invalid_equation_fails_the_build(equation, tmp_path):
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "index.md").write_text(f"# Page\n\nAn equation: ${equation}$.\n")
    config = {"site_name": "x", "hooks": [str(ROOT / "docs/site/hooks.py")], "plugins": []}
    (tmp_path / "mkdocs.yml").write_text(yaml.safe_dump(config))
    build = [sys.executable, "-m", "mkdocs", "build", "--strict"]
    done = subprocess.run(build, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "Equation" in done.stderr
