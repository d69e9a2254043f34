"""Run a program, and read counters immediately before and after it.

Theory. Starting a process is expensive on a slow client: each small program that makes a directory or reads a
counter takes a tenth of a second. Here only the requested program is started; this process does the rest.

The request: ``argv``; ``count`` (globs, may be empty): files that are read before and after; ``files``
(names, may be empty): files that the program leaves in its working directory, which is an empty directory in
memory and is removed afterwards.

The result has ``status`` (128 + the signal's number, if a signal ended the program), ``out``, ``err``,
``before``, ``after`` and ``files`` (path → text), and ``seconds`` of the program. Or ``missing``: the program
does not exist. Or ``late``: it did not end by the deadline, and was killed with all processes that it had
started. Or ``long``: it printed more than :data:`MAX_OUTPUT` bytes.
"""

from __future__ import annotations

import glob
import os
import select
import signal
import subprocess
import threading
import time
from contextlib import suppress
from typing import Any

from storagetest.agent import fsutil
from storagetest.agent.command_context import CommandContext
from storagetest.agent.process_markers import kill_marked
from storagetest.agent.worker_pool import CommandError

MAX_OUTPUT = 24 << 20
"""Bytes of stdout or stderr, because the length of a message is limited."""
_GRACE = 2.0
"""Seconds between TERM and KILL."""
_ABANDONED = 0.2
"""The same, if the controller is gone: this process is killed soon, too."""
_MARK = "STORAGETEST_PROGRAM"
"""Environment variable that marks the program's processes, in addition to the mark of the whole run."""


def run(request: dict[str, Any], context: CommandContext) -> dict[str, Any]:
    """Run the program; see the module."""
    directory = fsutil.make_memory_directory(f"storagetest-program-{os.getpid()}")
    try:
        return _run(request, directory, context.until)
    finally:
        fsutil.remove(directory.encode())


def _run(request: dict[str, Any], directory: str, until: float) -> dict[str, Any]:
    paths = [f"{directory}/.out", f"{directory}/.err"]
    with open(paths[0], "wb") as out, open(paths[1], "wb") as err:
        before, began = _texts(request["count"]), time.monotonic()
        try:
            process = subprocess.Popen(
                request["argv"], cwd=directory, stdin=subprocess.DEVNULL, stdout=out, stderr=err,
                start_new_session=True, env={**os.environ, _MARK: directory},
            )  # fmt: skip
        except FileNotFoundError:
            return {"missing": True}
        grace = _ABANDONED
        try:
            in_time = _wait(process, until)
            grace = _GRACE
        finally:
            if process.returncode is None:
                _end(process, directory, grace)
    seconds, after = time.monotonic() - began, _texts(request["count"])
    if not in_time:
        return {"late": True}
    if max(map(os.path.getsize, paths)) > MAX_OUTPUT:
        return {"long": True}
    stdout, stderr = (fsutil.read_text(path) or "" for path in paths)
    left = {name: fsutil.read_text(f"{directory}/{name}") for name in request["files"]}
    files = {name: text for name, text in left.items() if text is not None}
    status = process.returncode if process.returncode >= 0 else 128 - process.returncode
    return {
        "status": status, "out": stdout, "err": stderr, "seconds": seconds,
        "before": before, "after": after, "files": files,
    }  # fmt: skip


def _wait(process: subprocess.Popen[bytes], until: float) -> bool:
    """Wait for the program; return whether it ended in time. CommandError: the controller closed stdin."""
    ended, end = os.pipe()

    def watch() -> None:
        process.wait()
        os.close(end)

    threading.Thread(target=watch, daemon=True).start()
    try:
        readable, _, _ = select.select([0, ended], [], [], max(0.0, until - time.monotonic()))
        if 0 in readable and ended not in readable:
            raise CommandError("stopped", "the controller closed the connection")  # it sends nothing here
        return ended in readable
    finally:
        os.close(ended)


def _end(process: subprocess.Popen[bytes], mark: str, grace: float) -> None:
    """End the program and all processes that it has started, even in other process groups (fio's jobs)."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
    with suppress(subprocess.TimeoutExpired):
        process.wait(grace)
    kill_marked(_MARK, mark)


def _texts(globs: list[str]) -> dict[str, str]:
    paths = [path for name in globs for path in (glob.glob(name) if glob.has_magic(name) else [name])]
    texts = {path: fsutil.read_text(path) for path in dict.fromkeys(paths)}
    return {path: text for path, text in texts.items() if text is not None}
