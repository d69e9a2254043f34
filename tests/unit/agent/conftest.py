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
    """The oldest Python here that the agent has to run on; else the one that runs the tests."""
    for minor in range(9, 12):
        for place in (f"python3.{minor}", str(Path.home() / f".pyenv/versions/3.{minor}/bin/python3")):
            found = shutil.which(place)
            if found and subprocess.run([found, "-c", ""], check=False, capture_output=True).returncode == 0:
                return found
    return sys.executable


@pytest.fixture(scope="session")
def python() -> str:
    return oldest_python()


def start(python: str, request: dict[str, Any]) -> subprocess.Popen[bytes]:
    """An agent as a client runs it, with its request given."""
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
    """Start agents; whatever becomes of the test, none is left."""
    with ExitStack() as stack:

        def begin(request: dict[str, Any]) -> subprocess.Popen[bytes]:
            process = stack.enter_context(start(python, request))
            stack.callback(process.kill)
            return process

        yield begin


@pytest.fixture
def ask(python: str) -> Callable[..., dict[str, Any]]:
    """Run a request to its end and return the last line; nothing may stand on stderr."""

    def run(request: dict[str, Any], *, python: str = python) -> dict[str, Any]:
        argv = [python, "-I", "-S", "-c", bundle.START]
        done = subprocess.run(
            argv, input=bundle.message(request), capture_output=True, check=False, timeout=60
        )
        lines = [json.loads(line) for line in done.stdout.splitlines()]
        assert not done.stderr
        assert (lines[-1]["t"] == "result") is (done.returncode == 0)
        assert all(line["t"] == "progress" for line in lines[:-1])
        found: dict[str, Any] = lines[-1]
        return found

    return run


@pytest.fixture
def metadata(tmp_path: Path) -> dict[str, Any]:
    return {**METADATA, "path": str(tmp_path)}
