"""``rose-carla recourse`` as people come: nobody waits for the end of a file, and no file has to fit into memory."""

from __future__ import annotations

import json
import subprocess
import threading

pytest_plugins = ("cli_examples",)  # its fixtures


def test_answers_come_before_the_last_people_do(folder, warm_python):
    lines = (folder / "people.csv").read_text().splitlines(keepends=True)
    words = [warm_python.executable, "-m", "rose_carla", "recourse", "-", "--policy", "policy", "--format", "json"]
    with subprocess.Popen(
        [*words, "--chunk", "5"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=folder
    ) as process:
        patience = threading.Timer(60, process.stdin.close)
        patience.start()
        process.stdin.writelines(lines[:8])  # the columns and seven people
        process.stdin.flush()
        first = [json.loads(process.stdout.readline()) for _ in range(5)]
        patience.cancel()
        assert not process.stdin.closed, "the command waits for the end of its input"
        process.stdin.writelines(lines[8:])
        process.stdin.close()
        answers = [*first, *map(json.loads, process.stdout)]
    assert process.returncode == 0
    assert [answer["person"] for answer in answers] == [str(number) for number in range(1, 41)]
