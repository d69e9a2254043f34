from __future__ import annotations

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


def start(python: str, request: dict[str, Any]) -> subprocess.Popen[bytes]:
    """Start an agent as on a client, and send it ``request``."""
    process = subprocess.Popen(
        [python, "-I", "-S", "-c", bundle.START],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd="/",
        env={},
    )
    assert process.stdin
    process.stdin.write(bundle.message(request))
    process.stdin.close()
    return process


@pytest.fixture
def started(python: str) -> Iterator[Callable[[dict[str, Any]], subprocess.Popen[bytes]]]:
    """Return a function that starts agents; they are killed at the end of the test."""
    with ExitStack() as stack:

        def begin(request: dict[str, Any]) -> subprocess.Popen[bytes]:
            process = stack.enter_context(start(python, request))
            stack.callback(process.kill)
            return process

        yield begin


@pytest.fixture
def ask(python: str) -> Callable[..., dict[str, Any]]:
    """Return a function that runs a request to its end and returns its last line; stderr has to be empty."""

    def run(request: dict[str, Any], *, python: str = python) -> dict[str, Any]:
        argv = [python, "-I", "-S", "-c", bundle.START]
        done = subprocess.run(
            argv, input=bundle.message(request), capture_output=True, check=False, timeout=60
        )
        lines = [json.loads(line) for line in done.stdout.splitlines()]
        assert not done.stderr
        assert (lines[-1]["t"] == "result") is (done.returncode == 0)
        assert all(line["t"] == "progress" for line in lines[:-1])
        response: dict[str, Any] = lines[-1]
        return response

    return run


@pytest.fixture
def metadata(tmp_path: Path) -> dict[str, Any]:
    return {**METADATA, "path": str(tmp_path)}
