"""Run a program, and read counters right before and right after it.

Theory. On a slow client it is beginning that costs: each little program that makes a directory or reads a
counter takes a tenth of a second. Here one program is started, the one that is wanted; the rest is done in
between.

The request: ``argv``; ``count`` (globs, may be empty): files whose texts are read before and after; ``files``
(names, may be empty): files that the program leaves in its working directory, which is an empty one in
memory, and gone afterwards.

The result has ``status`` (128 + its number, if a signal ended the program), ``out``, ``err``, ``before``,
``after`` and ``files`` (path → text), and ``seconds`` of the program. Or ``missing``: there is no such
program. Or ``late``: it was not done by the deadline, and was killed with all that it had started. Or
``long``: it printed more than :data:`MOST` bytes.
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

__all__ = ["run"]

MOST = 24 << 20
"""Bytes of stdout or stderr: a line of the conversation has a limit too."""
_GRACE = 2.0
"""Seconds between TERM and KILL."""
_ABANDONED = 0.2
"""As many, where nobody waits for the answer any more: we are killed too before long."""
_MARK = "STORAGETEST_PROGRAM"
"""Beside the mark of the run itself, which everything here has."""
_MEMORY, _ELSE = "/dev/shm", "/tmp"  # noqa: S108  # a directory is made there, never one taken that is there


def run(request: dict[str, Any], job: CommandContext) -> dict[str, Any]:
    """Run the program; see the module."""
    parent = _MEMORY if os.path.isdir(_MEMORY) else _ELSE
    place = f"{parent}/storagetest-program-{os.getpid()}-{os.urandom(4).hex()}"
    os.mkdir(place, 0o700)
    try:
        return _run(request, place, job.until)
    finally:
        fsutil.remove(place.encode())


def _run(order: dict[str, Any], place: str, until: float) -> dict[str, Any]:
    paths = [f"{place}/.out", f"{place}/.err"]
    with open(paths[0], "wb") as out, open(paths[1], "wb") as err:
        before, began = _texts(order["count"]), time.monotonic()
        try:
            process = subprocess.Popen(
                order["argv"], cwd=place, stdin=subprocess.DEVNULL, stdout=out, stderr=err,
                start_new_session=True, env={**os.environ, _MARK: place},
            )  # fmt: skip
        except FileNotFoundError:
            return {"missing": True}
        grace = _ABANDONED
        try:
            in_time = _wait(process, until)
            grace = _GRACE
        finally:
            if process.returncode is None:
                _end(process, place, grace)
    seconds, after = time.monotonic() - began, _texts(order["count"])
    if not in_time:
        return {"late": True}
    if max(map(os.path.getsize, paths)) > MOST:
        return {"long": True}
    said = [_text(path) or "" for path in paths]
    left = {name: text for name in order["files"] if (text := _text(f"{place}/{name}")) is not None}
    status = process.returncode if process.returncode >= 0 else 128 - process.returncode
    return {
        "status": status, "out": said[0], "err": said[1], "seconds": seconds,
        "before": before, "after": after, "files": left,
    }  # fmt: skip


def _wait(process: subprocess.Popen[bytes], until: float) -> bool:
    """Wait for the program, and return whether it ended in time. Failed: nobody waits for it any more."""
    ended, end = os.pipe()

    def watch() -> None:
        process.wait()
        os.close(end)

    threading.Thread(target=watch, daemon=True).start()
    try:
        readable, _, _ = select.select([0, ended], [], [], max(0.0, until - time.monotonic()))
        if 0 in readable and ended not in readable:
            raise CommandError("stopped", "whoever wanted the program has gone")  # nobody speaks meanwhile
        return ended in readable
    finally:
        os.close(ended)


def _end(process: subprocess.Popen[bytes], mark: str, grace: float) -> None:
    """End the program and whatever it has started, also what left its process group (fio's jobs do)."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
    with suppress(subprocess.TimeoutExpired):
        process.wait(grace)
    kill_marked(_MARK, mark)


def _texts(globs: list[str]) -> dict[str, str]:
    paths = [path for one in globs for path in (glob.glob(one) if glob.has_magic(one) else [one])]
    texts = {path: _text(path) for path in dict.fromkeys(paths)}
    return {path: text for path, text in texts.items() if text is not None}


def _text(path: str) -> str | None:
    """Return what is in a file, or None where there is none that can be read."""
    try:
        with open(path, "rb") as file:
            return file.read().decode("utf-8", "replace")
    except OSError:
        return None
