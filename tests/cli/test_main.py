"""The command ``rose-carla``: help, parsing of arguments, and usage errors."""

from __future__ import annotations

import subprocess
import sys

import rose_carla
import click
import pytest
from cli_examples import ROLES, SMALL
from rose_carla.cli.console import COMMANDS
from rose_carla.cli.options import Command, NameType, WordsOption

pytest_plugins = ("cli_examples",)


def test_help_and_version_import_no_heavy_package(tmp_path):
    script = (
        "import sys; from rose_carla.cli import main\n"
        "assert main(['--help']) == main(['--version']) == 0\n"
        "heavy = ('torch', 'pandas', 'numpy', 'carla', 'sklearn', 'rose_carla.bench')\n"
        "print([name for name in sys.modules if name.startswith(heavy)])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert done.stdout.endswith(f"rose-carla {rose_carla.__version__}\n[]\n")
    for name in COMMANDS:
        assert f"\n  {name} " in done.stdout
    assert done.stderr == ""


@pytest.mark.parametrize("name", COMMANDS)
def test_each_command_has_help(name, run):
    done = run(name, "--help")
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith(f"Usage: rose-carla {name} ")
    if name not in ("table1", "appendix", "figures"):
        assert f"Examples:\n  rose-carla {name}" in done.out


NO_TRAINING = ["--out", "none", *SMALL]
USAGE_ERRORS = [
    ([], "Missing command: datasets, train"),
    (["recours"], "Unknown command 'recours': did you mean 'recourse'"),
    (["train", "loans.csv", "--ot", "x"], "Unknown option '--ot': did you mean '--out'"),
    (["table1", "--quik"], "Unknown option '--quik': did you mean '--quick'"),
    (["train", "compas"], "Missing option '--out'"),
    (["train", "compas", "--out"], "Option '--out' requires a value"),
    (["train", "compas", "--out", "--force"], "Option '--out' requires a value"),
    (["train", "comps", *NO_TRAINING], "Unknown data set 'comps': did you mean 'compas'"),
    (["train", "lons.csv", *NO_TRAINING], "There is no file 'lons.csv'"),
    (["train", "policy", *NO_TRAINING], "'policy' is a directory"),
    (["train", "-", *ROLES, *NO_TRAINING], "must be a file"),
    (["train", "compas", "--target", "score", *NO_TRAINING], "--target is for CSV files"),
    (["train", "loans.csv", "--all-actionable", *NO_TRAINING], "--all-actionable is for built-in data"),
    (["train", "loans.csv", *NO_TRAINING], "--target COL"),
    (["train", "loans.csv", "--target", "laon", *NO_TRAINING], "Unknown target column 'laon': did you mean 'loan'"),
    (["train", "loans.csv", "--target", "loan", *NO_TRAINING], "--favourable VALUE; 'loan' has 'granted', 'refused'"),
    (["train", "loans.csv", "--target", "loan", "--favourable", "grant", *NO_TRAINING], "did you mean 'granted'"),
    (["train", "loans.csv", *ROLES, "--immutable", "agee", *NO_TRAINING], "immutable feature 'agee': did you mean"),
    (["train", "loans.csv", *ROLES, "--ignore", "nme", *NO_TRAINING], "Unknown column to ignore 'nme'"),
    (["train", "loans.csv", *ROLES, *NO_TRAINING, "--model", "lineer"], "did you mean 'linear'"),
    (["train", "loans.csv", *ROLES, *NO_TRAINING, "--model", "nowhere:model"], "No module named 'nowhere'"),
    (["train", "loans.csv", *ROLES, *NO_TRAINING, "--model", "cli_models:missing"], "cannot be imported"),
    (["train", "loans.csv", *ROLES, *NO_TRAINING, "--model", "cli_models:broken"], "ZeroDivisionError: division by"),
    (["train", "loans.csv", *ROLES, *NO_TRAINING, "--model", "cli_models:nothing"], "int"),
    (["train", "compas", *NO_TRAINING, "--method", "ROSE-won"], "Unknown method 'ROSE-won': did you mean 'ROSE-one'"),
    (["train", "compas", *NO_TRAINING, "--method", "ROAR"], "ROAR does not plan steps"),
    (["train", "compas", *NO_TRAINING, "--method", "ROSE-one-plain", "--set", "search=true"], "search is False in"),
    (["train", "compas", *NO_TRAINING, "--set", "tua=0.9"], "Unknown hyper-parameter 'tua': did you mean 'tau'"),
    (["train", "compas", *NO_TRAINING, "--set", "tau=9"], "below 1, got 9"),
    (["train", "compas", *NO_TRAINING, "--set", "ppo.n_update=9"], "'n_update': did you mean 'n_updates'"),
    (["train", "compas", *NO_TRAINING, "--set", "tau"], "--set takes NAME=VALUE"),
    (["train", "compas", *NO_TRAINING, "--set", "seed=3"], "--seed N"),
    (["train", "compas", *NO_TRAINING, "--seed", "-3"], "'--seed': -3 is not in the range 0<=x<=4294967295"),
    (["train", "compas", *NO_TRAINING, "--set", "ppo=" + "[" * 200_000], "too large"),
    (["train", "compas", *NO_TRAINING, "--set", "tau=" + "9" * 5000], "too large"),
    (["train", "loans.csv", *ROLES, *SMALL, "--out", "loans.csv"], "'loans.csv' is a file"),
    (["train", "loans.csv", *ROLES, *SMALL, "--out", "loans.csv/x"], "Cannot write"),
    (["train", "named/policy.safetensors", *ROLES, *SMALL, "--out", "named", "--force"], "would be overwritten"),
    (["train", "loans.csv", *ROLES, *SMALL, "--out", "policy", "--set", "tau=0.8"], "holds another policy"),
    (["recourse", "people.csv"], "--policy DIR"),
    (["recourse", "missing.csv", "--policy", "policy"], "Cannot read 'missing.csv'"),
    (["recourse", "people.csv", "--policy", "polic"], "There is no folder 'polic'"),
    (["recourse", "people.csv", "--policy", "."], "has no policy.safetensors"),
    (["recourse", "people.csv", "--policy", "policy", "--seed", "1"], "--seed is part of the training"),
    (["recourse", "people.csv", "--policy", "policy", "--target", "loan"], "--target is part of the training"),
    (["recourse", "people.csv", "--policy", "policy", "--method", "ROSE-mul"], "trained with --method ROSE-one"),
    (["recourse", "people.csv", "--policy", "policy", "--format", "jsn"], "Unknown format 'jsn': did you mean 'json'"),
    (["recourse", "people.csv", "--policy", "policy", "--id", "nam"], "Unknown column 'nam': did you mean 'name'"),
    (["recourse", "people.csv", "--policy", "policy", "--out", "people.csv"], "would be overwritten"),
    (["recourse", "people.csv", "--policy", "policy", "--out", "loans.csv"], "'loans.csv' is an input"),
    (["recourse", "people.csv", "--policy", "policy", "--out", "policy/policy.safetensors"], "would be overwritten"),
    (["recourse", "people.csv", "--data", "loans.csv", *ROLES, *SMALL, "--out", "loans.csv"], "would be overwritten"),
    (["recourse", "people.csv", "--policy", "policy", "--out", "no/where.csv"], "there is no directory"),
    (["recourse", "people.csv", "--policy", "policy", "--data", "people.csv"], "has changed since training"),
    (["recourse", "-", "--data", "-"], "stdin, which can be read only once"),
    (["recourse", "people.csv", "one"], "Got unexpected extra argument (one)"),
    (["evaluate"], "Missing DATA"),
    (["evaluate", "compas", "--counterfactuals", "people.csv"], "requires --people"),
    (["evaluate", "loans.csv", *ROLES, "--methods", "GrSp", "--per-person", "loans.csv"], "would be overwritten"),
    (["evaluate", "--policy", "policy", "--per-person", "loans.csv"], "would be overwritten"),
    (
        ["evaluate", "--policy", "policy", "--methods", "GrSp", "--people", "people.csv", "--counterfactuals", "GrSp"],
        "'GrSp' has the name of another row of the table: rename the file",
    ),
    (["evaluate", "compas", "--limit", "0"], "0 is not in the range"),
    (["evaluate", "compas", "--samples", "9" * 20], "is not in the range"),
    (
        ["evaluate", "compas", "--methods", "Wachter", "--set", "n_itr=1"],
        "'n_itr': did you mean 'n_iter'",
    ),
    (["evaluate", "compas", "--methods", "GrSp", "--set", "n=1"], "Unknown hyper-parameter 'n'"),
    (["datasets", "--immutable", "age", "loans.csv"], "Name the data before"),
    (["check", "--data", "compas"], "Name the method to check"),
    (["check", "cli_models:missing"], "cannot be imported"),
    (["table1", "--classifier", "lineer"], "Unknown classifier 'lineer': did you mean 'linear'"),
    (["table1", "--backend", "dusk"], "Unknown backend 'dusk': did you mean 'dask'"),
    (["table1", "--backend", "dask"], "requires --scheduler"),
    (["table1", "--scheduler", "tcp://127.0.0.1:9"], "requires --backend dask"),
    (["table1", "--methods", "nowhere:Method"], "The method 'nowhere:Method' cannot be imported"),
    (["table1", "--methods", "GrSp", "ROSE-won"], "Unknown method 'ROSE-won': did you mean 'ROSE-one'"),
    (["table1", "--methods", "ROSE-mul-plane"], "Unknown method 'ROSE-mul-plane': did you mean 'ROSE-mul-plain'"),
    (["table1", "--datasets", "germen"], "Unknown data set 'germen': did you mean 'german'"),
    (["table1", "--seeds", "0"], "0 is not in the range"),
    (["table1", "--jobs", "9" * 20], "is not in the range"),
    (["appendix", "plausibel"], "Unknown part 'plausibel': did you mean 'plausible'"),
    (["figures", "nois"], "Unknown figure 'nois': did you mean 'noise'"),
    (["figures", "--formats", "pfd"], "Unknown format 'pfd': did you mean 'pdf'"),
]


@pytest.mark.parametrize(("words", "message"), USAGE_ERRORS)
def test_usage_error_is_one_line_and_writes_nothing(words, message, run, folder):
    def files():
        return sorted(path.name for path in folder.iterdir() if path.name != "__pycache__")

    before = files()
    done = run(*words)
    lines = [line for line in done.err.splitlines() if not line.startswith("remark: ")]
    assert (done.code, done.out, len(lines)) == (2, "", 1), done.err
    assert lines[0].startswith("error: ")
    assert message in lines[0]
    assert files() == before


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ([], {}),
        (["x", "--cols", "a", "b"], {"place": "x", "cols": ("a", "b")}),
        (["--cols", "a", "--cols", "b", "--flag", "x"], {"place": "x", "cols": ("a", "b"), "flag": True}),
        (["--cols", "a", "b", "--n", "-3"], {"cols": ("a", "b"), "n": -3}),
        (["--cols", "a", "-", "--", "x"], {"place": "x", "cols": ("a", "-")}),
        (["--cols=a", "x"], {"place": "x", "cols": ("a",)}),
        (["--kinds", "one", "two"], {"kinds": ("one", "two")}),
    ],
)
def test_option_with_several_words_may_also_be_repeated(words, expected):
    @click.command(cls=Command)
    @click.argument("place", required=False)
    @click.option("--cols", cls=WordsOption)
    @click.option("--kinds", cls=WordsOption, type=NameType("kind", ("one", "two")))
    @click.option("--n", type=int)
    @click.option("--flag", is_flag=True)
    def command(**params):
        return params

    defaults = {"place": None, "cols": (), "kinds": (), "n": None, "flag": False}
    assert command.main(words, standalone_mode=False) == {**defaults, **expected}
