"""A pytest process of its own, run to its end or to a deadline."""

import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path


def run_pytest(
    arguments: Sequence[str], cwd: Path, environment: Mapping[str, str], *, timeout: float = 1800
) -> subprocess.CompletedProcess[str]:
    """Run ``python -m pytest`` with ``arguments``; ``environment`` is added to this process's own.

    ``timeout`` (s) bounds a hang and is no measure of speed. After it, AssertionError is raised with the end
    of the output and the stack of every thread.
    """
    argv = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *arguments]
    every = os.environ | {"PYTHONFAULTHANDLER": "1"} | environment
    with subprocess.Popen(
        argv, cwd=cwd, env=every, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            stdout, stderr = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGABRT)  # faulthandler writes the stacks
            stdout, stderr = _rest(process)
            message = f"pytest did not end within {timeout:g} s: {' '.join(arguments)}"
            raise AssertionError(f"{message}\n{stdout[-3000:]}\n{stderr[-6000:]}") from None
        finally:
            process.kill()
    return subprocess.CompletedProcess(argv, process.returncode, stdout, stderr)


def _rest(process: subprocess.Popen[str]) -> tuple[str, str]:
    """Return the output of a process that was sent SIGABRT; its children may keep the pipes open."""
    try:
        return process.communicate(timeout=20)
    except subprocess.TimeoutExpired as error:
        parts = (error.output or b"", error.stderr or b"")
        stdout, stderr = (
            part.decode(errors="replace") if isinstance(part, bytes) else part for part in parts
        )
        return stdout, stderr
