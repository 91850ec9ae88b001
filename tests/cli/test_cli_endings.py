"""How commands end when streams go away, when they are told to stop, and when code of somebody else exits or moves."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from pathlib import Path

import pytest
from rose_carla import bench
from cli_examples import ROLES, SMALL, inside
from fault_trials import Process
from rose_carla._lib.endings import STOPPED, ended
from rose_carla.bench import Local
from rose_carla.bench.table_commands import table_1
from rose_carla.cli.data import DataChoice
from rose_carla.cli.training import Training, read

pytest_plugins = ("cli_examples",)  # its fixtures

QUICK = ["table1", "--quick", "--datasets", "compas", "--classifier", "linear", "--jobs", "1"]
MODULE = """
import os, sys
from pathlib import Path
from fake_methods import Liked
from sklearn.linear_model import LogisticRegression

def exits(data):
    sys.exit(0)

class ExitingModel(LogisticRegression):
    def predict_proba(self, rows):
        sys.exit()

def exits_later(data):
    return ExitingModel().fit(data.df_train.drop(columns=data.target), data.df_train[data.target])

def terminated(data):
    os.kill(os.getpid(), int(os.environ["SIGNAL"]))
    return 1 / 0

def late(data):
    import kept_in_the_folder

class Exits(Liked):
    def get_counterfactuals(self, factuals):
        sys.exit("enough")

class Moves(Liked):
    def get_counterfactuals(self, factuals):
        Path("elsewhere").mkdir(exist_ok=True)
        os.chdir("elsewhere")
        return super().get_counterfactuals(factuals)
"""


@pytest.fixture(scope="module", autouse=True)
def module(folder):
    (folder / "cli_endings.py").write_text(MODULE)
    (folder / "kept_in_the_folder.py").write_text("")
    (folder / "exits_at_once.py").write_text("import sys\nsys.exit(0)")


def broken_pipe():
    """stderr is a pipe that nobody reads."""
    reading, writing = os.pipe()
    os.close(reading)
    os.dup2(writing, 2)


def full_disk():
    """stderr is on a disk that is full."""
    os.dup2(os.open("/dev/full", os.O_WRONLY), 2)


@pytest.mark.parametrize("lose", [broken_pipe, full_disk])
def test_work_goes_on_without_stderr(lose, run, folder, tmp_path):
    if lose is full_disk and not os.path.exists("/dev/full"):
        pytest.skip("there is no /dev/full here")
    plans = tmp_path / "plans.csv"
    words = ["recourse", "people.csv", "--policy", "policy", "--out", str(plans)]
    assert Process(words, tmp_path, True, before=lose).done().code == 0
    assert plans.read_text() == run(*words[:-2]).out
    words = [*QUICK, "--methods", "GrSp", "--out", str(tmp_path / "out"), "--cells", str(tmp_path / "cells")]
    assert Process(words, tmp_path, True, before=lose).done().code == 0
    assert (tmp_path / "out" / "table1.csv").is_file()
    words = ["recourse", "none.csv", "--policy", "policy"]
    assert Process(words, tmp_path, True, before=lose).done().code == 2, "the exit code tells what stderr cannot"


TRAINED = ["train", "loans.csv", *ROLES, *SMALL, "--out", "exited"]


@pytest.mark.parametrize(
    ("words", "where"),
    [
        ([*QUICK, "--methods", "exits_at_once:A"], "exits_at_once.py, line 2"),
        ([*TRAINED, "--model", "exits_at_once:A"], "exits_at_once.py, line 2"),
        ([*TRAINED, "--method", "exits_at_once:A"], "exits_at_once.py, line 2"),
        ([*TRAINED, "--model", "cli_endings:exits"], "cli_endings.py, line 8"),
        ([*TRAINED, "--model", "cli_endings:exits_later"], "cli_endings.py, line 12"),
        (["check", "cli_endings:Exits"], "cli_endings.py, line 26"),
    ],
)
def test_code_of_somebody_else_does_not_end_a_command_silently(words, where, run, folder):
    done = run(*words)
    assert (done.code, done.out) == (2, "")
    assert done.err.count("\n") == 1
    assert done.err.startswith("error: ")
    assert "sys.exit() was called" in done.err
    assert where in done.err
    assert not (folder / "exited").exists()


def test_a_method_that_exits_does_not_stop_the_others(run):
    judged = ["--policy", "policy", "--people", "people.csv", "--id", "name", "--limit", "2", "--samples", "5"]
    done = run("evaluate", *judged, "--methods", "cli_endings:Exits", "GrSp", "--format", "csv")
    assert done.code == 1
    assert [line.split(",")[0] for line in done.out.splitlines()] == ["Method", "ROSE-one of policy", "GrSp"]
    assert "failed: cli_endings:Exits: sys.exit() was called in " in done.err


@pytest.fixture
def handlers():
    """Signals as a shell has them for a command that is not in the background."""
    before = {number: signal.signal(number, signal.SIG_DFL) for number in (signal.SIGTERM, signal.SIGHUP)}
    before[signal.SIGINT] = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


STOPPED_TRAINING = ["train", "loans.csv", *ROLES, "--model", "cli_endings:terminated", "--out", "terminated"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_signals_end_a_command_as_ctrl_c_does(number, run, folder, tmp_path, monkeypatch, handlers):
    monkeypatch.setenv("SIGNAL", str(int(number)))
    done = Process(STOPPED_TRAINING, tmp_path, True).done()
    assert (done.code, done.err) == (130, "Stopped.\n")
    assert run("datasets", "loans.csv", *ROLES).code == 0
    assert signal.getsignal(number) == signal.SIG_DFL
    assert not (folder / "terminated").exists()


def test_a_hangup_that_is_ignored_stays_so(run, monkeypatch, handlers):
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    monkeypatch.setenv("SIGNAL", str(int(signal.SIGHUP)))
    assert "ZeroDivisionError" in run(*STOPPED_TRAINING).err
    assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN


def test_a_benchmark_that_is_terminated_ends_its_processes(tmp_path, monkeypatch, handlers):
    closed = tmp_path / "closed"
    monkeypatch.setattr(bench, "run", lambda *_: signal.raise_signal(signal.SIGTERM))
    monkeypatch.setattr(Local, "close", lambda self: closed.write_text(f"{self.jobs} jobs"))
    words = [*QUICK[:-1], "3", "--methods", "GrSp", "--out", str(tmp_path / "out"), "--cells", str(tmp_path / "cells")]
    done = Process(words, tmp_path, True).done()
    assert (done.code, closed.read_text()) == (130, "3 jobs")
    assert done.err == "Stopped. Finished cells are kept: the same command goes on from here.\n"


def test_other_threads_have_no_signals():
    codes = []
    thread = threading.Thread(target=lambda: codes.append(ended(lambda: 7, last=True)))
    thread.start()
    thread.join()
    assert codes == [7]


def interrupted():
    raise KeyboardInterrupt


def test_a_second_ctrl_c_does_not_disturb_the_end_of_the_process(handlers):
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
            code = ended(interrupted, last=True)
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                signal.raise_signal(number)
        except BaseException:
            code = 1
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == STOPPED


def test_whoever_calls_a_command_from_python_can_be_interrupted_afterwards(handlers, capsys):
    before = sys.stderr
    assert ended(interrupted) == STOPPED
    assert signal.getsignal(signal.SIGINT) == signal.default_int_handler
    assert sys.stderr is before


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["recourse", "people.csv", "--policy", "policy", "--chunk"], "at most 1000000000"),
        (["evaluate", "--policy", "policy", "--limit"], "at most 1000000000"),
        (["evaluate", "--policy", "policy", "--samples"], "at most 1000000"),
        (["check", "GrSp", "--limit"], "at most 1000000000"),
        (["table1", "--seeds"], "--seeds has to be at most 10000, got 99999999999999999999"),
        (["appendix", "--jobs"], "--jobs has to be at most 1024, got 99999999999999999999"),
    ],
)
def test_numbers_beyond_reason_are_refused(words, told, run):
    done = run(*words, "99999999999999999999")
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
    assert told in done.err


def test_folders_stay_where_they_were_typed(run, folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "moving_method.py").write_text("from cli_endings import Moves")
    monkeypatch.setattr(sys, "path", [*sys.path, str(folder)])
    words = ["--quick", "--datasets", "compas", "--classifier", "linear", "--jobs", "1", "--methods"]
    assert table_1([*words, "moving_method:Moves", "--out", "tables", "--cells", "cells"]) == 0
    assert not [*(tmp_path / "elsewhere").rglob("*.safetensors")]
    assert len([*(tmp_path / "cells").rglob("*.safetensors")]) == 4
    assert (tmp_path / "tables" / "table1.csv").is_file()
    assert '"out": "tables"' in (tmp_path / "tables" / "run.json").read_text()


def test_modules_of_the_folder_are_found_by_name_only(run, folder):
    before = [*sys.path]
    done = run(*TRAINED, "--model", "cli_endings:late")
    assert (done.code, sys.path) == (2, before)
    assert "No module named 'kept_in_the_folder'" in done.err


def test_libraries_find_nothing_in_the_folder(folder, tmp_path, warm_python):
    """Some look for optional packages, which are not installed here, long after they are imported."""
    script, ran = tmp_path / "script" / "rose.py", tmp_path / "ran"
    script.parent.mkdir()
    script.write_text("import sys\nfrom rose_carla.cli import main\nsys.exit(main(sys.argv[1:]))")
    here = tmp_path / "here"
    here.mkdir()
    for name in ("gmpy2", "gmpy", "flint", "cffi", "distributed"):
        (here / f"{name}.py").write_text(f"open({str(ran)!r}, 'w').write({name!r})\nraise ImportError")
    words = ["recourse", str(folder / "people.csv"), "--policy", str(folder / "policy"), "--out", "plans.csv"]
    with inside(here):
        assert os.spawnv(os.P_WAIT, warm_python.executable, ["python", str(script), *words]) == 0
    assert not ran.exists()


class Slow:
    """Something that can be saved, not at once."""

    def save(self, path):
        path.write_bytes(b"policy")
        time.sleep(0.3)


def test_two_trainings_into_one_folder_wait_for_one_another(tmp_path):
    training = Training(DataChoice("compas"), None, "ann", "ROSE-one", {}, 0)
    failed = []

    def write():
        try:
            training.write(tmp_path / "policy", Slow(), ["rose-carla", "train"])
        except Exception as error:
            failed.append(error)

    threads = [threading.Thread(target=write) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    assert read(tmp_path / "policy")[0] == training
    assert {path.name for path in Path(tmp_path / "policy").iterdir()} == {"policy.safetensors", "train.json"}


def test_plans_and_trainings_stay_where_they_were_typed_too(run, folder):
    text = "import os\nfrom cli_models import fitted\n\ndef moves(data):\n    os.chdir('..')\n    return fitted(data)\n"
    (folder / "moving_model.py").write_text(text)
    words = ["train", "loans.csv", *ROLES, *SMALL[:2], "--model", "moving_model:moves", "--out", "moved"]
    assert run(*words).code == 0
    assert (folder / "moved" / "train.json").is_file()
    os.chdir(folder)
    people, moved = folder / "people.csv", folder / "moved"
    done = run("recourse", people, "--policy", moved, "--model", "moving_model:moves", "--out", "moved.csv")
    assert done.code == 0
    assert (folder / "moved.csv").is_file()
