import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from storagetest.agent import bundle

START = ("-I", "-S", "-c", bundle.START)
METADATA = {
    "command": "loads.metadata",
    "deadline": 30,
    "operations": ["create", "stat", "unlink"],
    "processes": 2,
    "files": 200,
    "shared": False,
    "depth": 0,
    "width": 1,
    "file_size": 0,
    "cold": False,
    "seconds": None,
    "seed": 1,
}


def oldest_python() -> str:
    """Return the oldest installed Python that the agent supports, or the Python that runs the tests."""
    for minor in range(9, 12):
        for program in (f"python3.{minor}", str(Path.home() / f".pyenv/versions/3.{minor}/bin/python3")):
            path = shutil.which(program)
            if path and subprocess.run([path, "-c", ""], check=False, capture_output=True).returncode == 0:
                return path
    return sys.executable


@pytest.fixture(scope="session")
def python() -> str:
    return oldest_python()


@pytest.fixture
def started(python: str) -> Iterator[Callable[[dict[str, Any]], subprocess.Popen[bytes]]]:
    """Return a function that starts agents; they are killed at the end of the test."""
    with ExitStack() as stack:

        def begin(request: dict[str, Any]) -> subprocess.Popen[bytes]:
            pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
            process = stack.enter_context(subprocess.Popen([python, *START], cwd="/", env={}, **pipes))
            stack.callback(process.kill)
            assert process.stdin
            process.stdin.write(bundle.message(request))
            process.stdin.close()
            return process

        yield begin


@pytest.fixture
def ask_lines(python: str) -> Callable[..., list[dict[str, Any]]]:
    """Return a function that runs a request to its end and returns its lines; stderr has to be empty."""

    def run(request: dict[str, Any], *, python: str = python) -> list[dict[str, Any]]:
        message = bundle.message(request)
        done = subprocess.run([python, *START], input=message, capture_output=True, check=False, timeout=60)
        assert not done.stderr
        lines = [json.loads(line) for line in done.stdout.splitlines()]
        assert (lines[-1]["t"] == "result") is (done.returncode == 0)
        return lines

    return run


@pytest.fixture
def ask(ask_lines: Callable[..., list[dict[str, Any]]]) -> Callable[..., dict[str, Any]]:
    """Return a function that runs a request to its end and returns its last line."""

    def run(request: dict[str, Any], **more: str) -> dict[str, Any]:
        *progress, response = ask_lines(request, **more)
        assert all(line["t"] == "progress" for line in progress)
        return response

    return run


@pytest.fixture
def metadata(tmp_path: Path) -> dict[str, Any]:
    return {**METADATA, "path": str(tmp_path)}
