"""Create loan_plan.ipynb from loan_plan.py: python examples/make_notebook.py

Cells of the script start with ``# %%``, cells of text with ``# %% [markdown]``.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

SCRIPT = Path(__file__).with_name("loan_plan.py")


def notebook(script: str) -> str:
    """Return the notebook of a script, without outputs."""
    cells = []
    for number, part in enumerate(re.split(r"^# %%", script, flags=re.MULTILINE)[1:]):
        head, _, body = part.partition("\n")
        source = body.strip("\n")
        cell: dict[str, Any] = {
            "cell_type": "code",
            "execution_count": None,
            "id": f"cell-{number}",
            "metadata": {},
            "outputs": [],
        }
        if head.strip() == "[markdown]":
            cell = {"cell_type": "markdown", "id": f"cell-{number}", "metadata": {}}
            source = re.sub(r"^# ?", "", source, flags=re.MULTILINE)
        cells.append({**cell, "source": source.splitlines(keepends=True)})
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    whole = {"cells": cells, "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5}
    return json.dumps(whole, indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    SCRIPT.with_suffix(".ipynb").write_text(notebook(SCRIPT.read_text(encoding="utf-8")), encoding="utf-8")
