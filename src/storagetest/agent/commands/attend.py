"""An attendant: a process on the client that runs one command after another, as it is told.

Theory. On a slow client it is beginning that costs: a session, a login shell, the supervisor, and each little
program that makes a directory or reads counters, a tenth of a second each. An attendant is there already: it
starts the one program that is wanted, and does the rest itself.

The request has only a deadline, for the whole conversation. Then, a JSON object a line:

- ``n``, which the answer bears; ``argv``; ``deadline`` (s).
- ``count`` (globs, may be empty): files whose texts are read right before and right after the command.
- ``files`` (names, may be empty): files that the command leaves in its working directory, which is an empty
  one in memory, and gone afterwards.

The answer has ``status`` (128 + its number, if a signal ended the command), ``out``, ``err``, ``before``,
``after`` and ``files`` (path → text), and ``seconds`` of the command. Or ``missing``: there is no such
program. Or ``late``: it was not done in time, and was killed with all that it had started. Or ``long``: it
printed more than :data:`MOST` bytes. The conversation ends when stdin does, and with it a command that still
runs.
"""

from __future__ import annotations

import glob
import json
import os
import select
import signal
import subprocess
import threading
import time
from contextlib import suppress
from typing import Any

from storagetest.agent import files
from storagetest.agent.crew import Failed
from storagetest.agent.job import Job

__all__ = ["run"]

MOST = 24 << 20
"""Bytes of stdout or stderr: a line of the conversation has a limit too."""
_CHUNK = 1 << 16
_GRACE = 2.0
"""Seconds between TERM and KILL."""
_ABANDONED = 0.2
"""As many, where nobody waits for the answer any more: we are killed too before long."""
_MARK = "STORAGETEST_RUN"
_MEMORY, _ELSE = "/dev/shm", "/tmp"  # noqa: S108  # a directory is made there, never one taken that is there


def run(_request: dict[str, Any], job: Job) -> dict[str, Any]:
    """Do as told until stdin ends."""
    served = 0
    rest = b""
    job.tell(phase="ready")
    while line_and_rest := _line(rest, job.until):
        line, rest = line_and_rest
        order = json.loads(line)
        served += 1
        job.tell(n=order["n"], **_obey(order))
    return {"served": served}


def _line(rest: bytes, until: float) -> tuple[bytes, bytes] | None:
    """Return the next line of stdin and what came after it; None where stdin or the time is over."""
    while b"\n" not in rest:
        readable, _, _ = select.select([0], [], [], max(0.0, until - time.monotonic()))
        data = os.read(0, _CHUNK) if readable else b""
        if not data:
            return None
        rest += data
    line, _, rest = rest.partition(b"\n")
    return line, rest


def _obey(order: dict[str, Any]) -> dict[str, Any]:
    parent = _MEMORY if os.path.isdir(_MEMORY) else _ELSE
    place = f"{parent}/storagetest-attend-{os.getpid()}-{os.urandom(4).hex()}"
    os.mkdir(place, 0o700)
    try:
        return _run(order, place)
    finally:
        files.remove(place.encode())


def _run(order: dict[str, Any], place: str) -> dict[str, Any]:
    paths = [f"{place}/.out", f"{place}/.err"]
    with open(paths[0], "wb") as out, open(paths[1], "wb") as err:
        before, began = _texts(order["count"]), time.monotonic()
        try:
            process = subprocess.Popen(
                order["argv"], cwd=place, stdin=subprocess.DEVNULL, stdout=out, stderr=err,
                start_new_session=True,
            )  # fmt: skip
        except FileNotFoundError:
            return {"missing": True}
        grace = _ABANDONED
        try:
            in_time = _wait(process, began + order["deadline"])
            grace = _GRACE
        finally:
            if process.returncode is None:
                _end(process, grace)
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
    """Wait for the command, and return whether it ended in time. Failed: nobody waits for it any more."""
    ended, end = os.pipe()

    def watch() -> None:
        process.wait()
        os.close(end)

    threading.Thread(target=watch, daemon=True).start()
    try:
        readable, _, _ = select.select([0, ended], [], [], max(0.0, until - time.monotonic()))
        if 0 in readable and ended not in readable:
            raise Failed("stopped", "whoever wanted the command has gone")  # nobody speaks while one runs
        return ended in readable
    finally:
        os.close(ended)


def _end(process: subprocess.Popen[bytes], grace: float) -> None:
    """End the command and whatever it has started, also what left its process group (fio's jobs do)."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
    with suppress(subprocess.TimeoutExpired):
        process.wait(grace)
    for _ in range(10):
        marked = _marked()
        for pid in marked:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if not marked:
            break
        time.sleep(0.1)


def _marked() -> list[int]:
    """Return the processes that this one has started, by the name of the run in their environment."""
    mark = os.environ.get(_MARK, "")
    found = []
    for path in glob.glob("/proc/[0-9]*/environ") if mark else ():
        pid = int(path.split("/")[2])
        with suppress(OSError), open(path, "rb") as file:
            if pid != os.getpid() and f"{_MARK}={mark}".encode() in file.read().split(b"\0"):
                found.append(pid)
    return found


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
