"""A fast ``python`` command for tests: its processes are forked from one that has imported large libraries.

Importing these takes most of the time of a short program. This package, CARLA and its optional packages are not
imported before the fork. Tests of the installed command, of signals to a session or of imports start a new Python.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

LIBRARIES = ("numpy", "pandas", "torch", "scipy.stats", "sklearn.model_selection", "sklearn.pipeline", "numba")
#: Seconds after which a program is killed.
TIMEOUT = 600


class WarmPython:
    """Commands ``python`` and ``rose-carla`` in a temporary folder, and the server process that forks for them.

    Streams, working directory, environment and exit code are those of the command. Of Python's own options ``-c`` and
    ``-m`` are supported.
    """

    def __enter__(self):
        self._folder = tempfile.TemporaryDirectory(prefix="warm_")  # short, because socket addresses are limited
        self.folder = Path(self._folder.name)
        address = self.folder / "socket"
        for name, words in {"python": "", "rose-carla": "-m rose_carla"}.items():
            command = self.folder / name
            command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -IS "{__file__}" "{address}" {words} "$@"\n')
            command.chmod(0o755)
        self.executable = str(self.folder / "python")
        self._server = subprocess.Popen(
            [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=self.folder
        )
        self._server.stdout.readline()  # wait until it listens
        return self

    def __exit__(self, *_):
        self._server.communicate()
        self._folder.cleanup()


def _ask(address, words):
    """Client: run a program on the server with this process' streams, and exit with its exit code."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(address)
        socket.send_fds(connection, [b"?"], [0, 1, 2])
        connection.sendall(json.dumps([words, os.getcwd(), dict(os.environ)]).encode())
        connection.shutdown(socket.SHUT_WR)
        sys.exit(int(connection.makefile().read()))


def _serve():
    """Server: fork for every connection, until the test process ends."""
    for name in LIBRARIES:
        importlib.import_module(name)
    gc.freeze()  # garbage collection would copy shared memory
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("socket")
        listener.listen()
        print("listening", flush=True)
        while sys.stdin not in select.select([listener, sys.stdin], [], [])[0]:
            connection, _ = listener.accept()
            if not os.fork():
                listener.close()
                _answer(connection)
                return
            connection.close()
    with contextlib.suppress(ChildProcessError):
        while True:
            os.wait()


def _answer(connection):
    """Run a program in a child process, and send its exit code."""
    _, streams, _, _ = socket.recv_fds(connection, 1, 3)
    words, folder, environment = json.load(connection.makefile())
    child = os.fork()
    if child:
        _, status = os.waitpid(child, 0)
        code = os.waitstatus_to_exitcode(status)
        connection.sendall(str(code if code >= 0 else 128 - code).encode())
        os._exit(0)
    connection.close()
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    signal.alarm(TIMEOUT)
    _run(*words)


def _run(program, *arguments):
    sys.argv = [program, *arguments]
    if program == "-m":
        sys.path[0] = os.getcwd()
        runpy.run_module(sys.argv.pop(1), run_name="__main__", alter_sys=True)
    elif program in ("-c", "-"):
        sys.path[0] = ""
        code = sys.argv.pop(1) if program == "-c" else sys.stdin.read()
        exec(compile(code, "<string>", "exec"), {"__name__": "__main__"})
    else:
        sys.path[0] = str(Path(program).parent)
        runpy.run_path(program, run_name="__main__")


if __name__ == "__main__":
    if sys.argv[1:]:
        _ask(sys.argv[1], sys.argv[2:])
    else:
        _serve()
