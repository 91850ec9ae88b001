"""The programs in examples/ run, and the notebook equals the script."""

from __future__ import annotations

import importlib.util
import re
import subprocess
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture(scope="module")
def make_notebook():
    spec = importlib.util.spec_from_file_location("make_notebook", EXAMPLES / "make_notebook.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_notebook_equals_the_script(make_notebook):
    script = (EXAMPLES / "loan_plan.py").read_text(encoding="utf-8")
    stored = (EXAMPLES / "loan_plan.ipynb").read_text(encoding="utf-8")
    assert stored == make_notebook.notebook(script), "run python examples/make_notebook.py"
    nbformat.validate(nbformat.reads(stored, as_version=4))


@pytest.mark.slow
def test_loan_plan_runs_without_a_display(tmp_path):
    """Run the notebook, which is the script cell by cell."""
    notebook = nbformat.read(EXAMPLES / "loan_plan.ipynb", as_version=4)
    NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(tmp_path)}}).execute()
    outputs = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    printed = "".join(output.text for output in outputs if output.get("name") == "stdout")
    assert "Plan for person" in printed
    assert "success" in printed
    assert "Next: " in printed
    assert (tmp_path / "loan_plan.png").stat().st_size > 5000


@pytest.mark.slow
def test_five_visits_show_answers_and_success(tmp_path, warm_python):
    program = [warm_python.executable, EXAMPLES / "five_visits.py"]
    done = subprocess.run(program, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    plan, visits, followed = re.split(r"\n(?= *visit)|\n(?=ROSE-mul, closed loop)", done.stdout)
    assert "Coming back up to 5 times: success" in plan
    rows = [line.split() for line in visits.splitlines()[1:]]
    assert [row[0] for row in rows] == [str(number) for number in range(1, len(rows) + 1)]
    assert all(row[-1] == "False" for row in rows[:-1])
    assert 0.5 < float(re.search(r"Success +([\d.]+)%", followed)[1]) / 100 <= 1


@pytest.mark.slow
def test_carla_benchmark_prints_a_row_for_each_method(tmp_path, warm_python):
    program = [warm_python.executable, EXAMPLES / "carla_benchmark.py"]
    done = subprocess.run(program, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.strip().splitlines()
    rows = {line[:16].strip(): [float(value) for value in line[16:].split()] for line in lines[1:]}
    assert list(rows) == ["Wachter", "Growing Spheres", "DiCE", "ROSE-one", "ROSE-mul"]
    for name in ("ROSE-one", "ROSE-mul"):
        validity, features, _, _, acc_air = rows[name]
        assert validity >= 0.9
        assert features < 2
        assert acc_air < min(rows["Wachter"][4], rows["Growing Spheres"][4])
