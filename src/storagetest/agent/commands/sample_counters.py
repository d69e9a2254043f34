"""Read counters again and again until told to end, and only then say what was read.

Theory. What is looked at must not be disturbed by the looking: texts are kept in memory (those that have not
changed since the moment before are left out, the rest is compressed) and nothing is sent while the load runs,
unless somebody watches: then a kilobyte or so goes out now and then, from what was read anyway.
Between two readings the program sleeps in one system call. Files are found once, at the start, and again
every :data:`_LOOK_AGAIN` readings.

It ends when it is told to (SIGTERM), when nobody reads its output any more (whoever asked is gone), when its
deadline is near, or when its memory is full; in each case with what it has.

The request: ``paths`` (globs), ``lines`` (path → how the lines begin that are kept), ``interval`` (s), and
``live``, where somebody watches: ``every`` (s), and its own ``paths`` and ``lines``. Told are ``at`` (s) and
``now`` (base64 of zlib of a JSON object, path → text). The result: ``data`` (base64 of zlib of lines, each a
JSON list of the monotonic time in seconds and of path → text of what has changed; null: the file is gone),
``wall`` (what to add to those times for seconds since the
epoch), ``stopped`` (when the signal came, in seconds since the epoch), ``count``, ``cost`` (processor seconds
of the readings), ``span`` (seconds from first to last).
"""

from __future__ import annotations

import base64
import fnmatch
import glob
import json
import os
import select
import signal
import time
import zlib
from typing import Any

from storagetest.agent.command_context import CommandContext

__all__ = ["run"]

_LOOK_AGAIN = 16
_FULL = 24 << 20
"""Bytes of compressed readings: some hours at one a second."""

_BEFORE_DEADLINE = 5.0
_CHUNK = 1 << 16
_MOST_TOLD = 16 << 20
"""Bytes told in all: whoever listens keeps what it hears."""


def run(request: dict[str, Any], job: CommandContext) -> dict[str, Any]:
    """Sample until something ends it; return the result."""
    interval = float(request["interval"])
    wake, told = os.pipe()
    os.set_blocking(told, False)
    signal.set_wakeup_fd(told)
    signal.signal(signal.SIGTERM, lambda _number, _frame: None)  # the byte in the pipe says it all
    ends = select.poll()
    ends.register(wake, select.POLLIN)
    ends.register(1, 0)  # POLLERR comes unasked when the reader has gone
    job.progress(phase="sampling", pid=os.getpid())
    began = due = time.monotonic()
    wall, cpu = time.time() - began, time.process_time()
    tape = _SampleBuffer(request["paths"], request.get("lines", {}))
    teller = _LiveReporter(request["live"], tape, job) if "live" in request else None
    while True:
        tape.read(time.monotonic())
        if teller is not None:
            teller.tell(time.monotonic())
        due = max(due + interval, time.monotonic())
        late = due > job.until - _BEFORE_DEADLINE
        if late or tape.full or ends.poll(max(0.0, due - time.monotonic()) * 1000):
            break
    stopped = time.time()
    return {
        "wall": wall,
        "stopped": stopped,
        "count": tape.count,
        "cost": time.process_time() - cpu,
        "span": time.monotonic() - began,
        "data": tape.finish(),
    }


class _SampleBuffer:
    """What was read, packed as it comes."""

    def __init__(self, globs: list[str], lines: dict[str, list[str]]) -> None:
        self.count = 0
        self._globs = globs
        self._starts = {path: tuple(start.encode() for start in starts) for path, starts in lines.items()}
        self._paths: list[str] = []
        self._known: dict[str, bytes] = {}
        self._packer = zlib.compressobj(1)
        self._packed: list[bytes] = []
        self._size = 0

    @property
    def full(self) -> bool:
        return self._size >= _FULL

    def now(self, globs: list[str]) -> dict[str, bytes]:
        """Return what the files that ``globs`` name held when they were last read."""
        return {
            path: text
            for path, text in self._known.items()
            if any(fnmatch.fnmatchcase(path, one) for one in globs)
        }

    def read(self, now: float) -> None:
        """Read all files; keep of them what has changed."""
        if self.count % _LOOK_AGAIN == 0:
            self._paths = [path for pattern in self._globs for path in _matches(pattern)]
        changed: dict[str, Any] = {}
        for path in self._paths:
            text = _content(path)
            starts = self._starts.get(path)
            if text and starts:
                text = b"\n".join(line for line in text.split(b"\n") if line.startswith(starts))
            if text != self._known.get(path):
                changed[path] = None if text is None else text.decode("utf-8", "replace")
                if text is None:
                    del self._known[path]
                else:
                    self._known[path] = text
        self.count += 1
        piece = self._packer.compress(json.dumps([round(now, 4), changed]).encode() + b"\n")
        if piece:
            self._packed.append(piece)
            self._size += len(piece)

    def finish(self) -> str:
        self._packed.append(self._packer.flush())
        return base64.b64encode(b"".join(self._packed)).decode()


class _LiveReporter:
    """Says now and then what a few of the files hold."""

    def __init__(self, request: dict[str, Any], tape: _SampleBuffer, job: CommandContext) -> None:
        self._every = float(request["every"])
        self._paths = request["paths"]
        self._lines = request["lines"]
        self._tape, self._job = tape, job
        self._due = 0.0
        self._told = 0

    def tell(self, now: float) -> None:
        if now < self._due or self._told >= _MOST_TOLD:
            return
        self._due = now + self._every
        texts = {}
        for path, text in self._tape.now(self._paths).items():
            starts = tuple(start.encode() for start in self._lines.get(path, ()))
            kept = [line for line in text.split(b"\n") if not starts or line.startswith(starts)]
            texts[path] = b"\n".join(kept).decode("utf-8", "replace")
        packed = base64.b64encode(zlib.compress(json.dumps(texts).encode(), 1)).decode()
        self._told += len(packed)
        self._job.progress(at=round(now, 4), now=packed)


def _matches(pattern: str) -> list[str]:
    return sorted(glob.glob(pattern)) if "*" in pattern else [pattern]


def _content(path: str) -> bytes | None:
    """Return what the file holds now; None where it is not there or cannot be read."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        chunks = []
        while chunk := os.read(descriptor, _CHUNK):
            chunks.append(chunk)
        return b"".join(chunks)
    except OSError:
        return None
    finally:
        os.close(descriptor)
