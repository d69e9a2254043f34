"""Sample counter files until SIGTERM, and return all samples at the end.

Theory. Sampling must not disturb the load: samples are lines in memory (unchanged files are left out, the
rest is compressed), and nothing is sent while the load runs. Only with ``live`` about a kilobyte is sent from
time to time, from samples that were read anyway. Between two samples the process sleeps in one system call.
Globs are expanded at the start and again every :data:`_GLOB_EVERY` samples.

It ends at SIGTERM, when the reader of its output is gone, shortly before its deadline, or when its memory
limit is reached; it always returns the samples so far.

``commands`` (name → ``argv``, ``every`` in seconds, ``if_exists``) print counters to stdout. A sample never
waits for one: it takes the output of the last run that has ended with status 0, and starts the next one.

The request: ``paths`` (globs), ``lines`` (path → the prefixes of the lines to keep), ``interval`` (s),
``commands``, and optionally ``live``: ``every`` (s), and its own ``paths`` and ``lines``. A live report is a
progress message with ``at`` (s) and ``now`` (base64 of zlib of a JSON object, path → text). The result:
``data`` (base64 of zlib of lines, each a JSON list of the monotonic time in seconds and of path → text of
the changed files; null: the file is gone), ``wall`` (what to add to those times for seconds since the
epoch), ``stopped`` (when the sampling ended, in seconds since the epoch), ``count``, ``cost`` (processor
seconds of the sampling), ``span`` (seconds from the first sample to the last).
"""

from __future__ import annotations

import base64
import fnmatch
import json
import os
import select
import signal
import time
import zlib
from typing import TYPE_CHECKING, Any

from storagetest.agent import counter_files
from storagetest.agent.command_context import CommandContext

if TYPE_CHECKING:
    import subprocess

_GLOB_EVERY = 16
_MEMORY_LIMIT = 24 << 20
"""Bytes of compressed samples: some hours at one a second."""

_BEFORE_DEADLINE = 5.0
_COMMAND_TIMEOUT = 10.0
_OUTPUT_LIMIT = 1 << 20
_LIVE_LIMIT = 16 << 20
"""Bytes of all live reports, because the controller keeps them in memory."""


def run(request: dict[str, Any], context: CommandContext) -> dict[str, Any]:
    """Sample until an end condition; return the result."""
    interval = float(request["interval"])
    wake, wakeup_fd = os.pipe()
    os.set_blocking(wakeup_fd, False)
    signal.set_wakeup_fd(wakeup_fd)
    signal.signal(signal.SIGTERM, lambda _number, _frame: None)  # the byte in the pipe is enough
    ends = select.poll()
    ends.register(wake, select.POLLIN)
    ends.register(1, 0)  # POLLERR is always reported: the reader has gone
    context.progress(phase="sampling", pid=os.getpid())
    began = due = time.monotonic()
    wall, cpu = time.time() - began, time.process_time()
    commands = [_CounterCommand(name, **each) for name, each in request.get("commands", {}).items()]
    samples = _SampleBuffer(request["paths"], request.get("lines", {}), commands)
    reporter = _LiveReporter(request["live"], samples, context) if "live" in request else None
    while True:
        samples.read(time.monotonic())
        if reporter is not None:
            reporter.report(time.monotonic())
        due = max(due + interval, time.monotonic())
        late = due > context.until - _BEFORE_DEADLINE
        if late or samples.full or ends.poll(max(0.0, due - time.monotonic()) * 1000):
            break
    stopped = time.time()
    for command in commands:
        command.stop()
    return {
        "wall": wall,
        "stopped": stopped,
        "count": samples.count,
        "cost": time.process_time() - cpu,
        "span": time.monotonic() - began,
        "data": samples.finish(),
    }


class _CounterCommand:
    """Runs one command again and again; ``output`` is that of its last good run."""

    def __init__(self, name: str, argv: list[str], every: float, if_exists: str) -> None:
        self.name = name
        self.output: bytes | None = None
        self._argv, self._every, self._if_exists = argv, every, if_exists
        self._process: subprocess.Popen[bytes] | None = None
        self._began = -every

    def poll(self, now: float) -> None:
        """Read the output of a run that has ended, end one that hangs, and start the next if it is due."""
        process = self._process
        if process is not None:
            if process.poll() is None:
                if now - self._began > _COMMAND_TIMEOUT:
                    process.kill()
                return
            self._file.seek(0)
            self.output = self._file.read(_OUTPUT_LIMIT) if process.returncode == 0 else None
            self._file.close()
            self._process = None
        if now - self._began >= self._every and (not self._if_exists or os.path.exists(self._if_exists)):
            self._began = now
            self._start()

    def _start(self) -> None:
        # Imported here: they take a slow client a tenth of a second, and few sources need them.
        import subprocess  # noqa: PLC0415
        import tempfile  # noqa: PLC0415

        self._file = tempfile.TemporaryFile()  # noqa: SIM115  # closed when the command has ended
        try:
            self._process = subprocess.Popen(
                self._argv, stdin=subprocess.DEVNULL, stdout=self._file, stderr=subprocess.DEVNULL
            )
        except OSError:  # not there, not executable
            self.output = None
            self._file.close()

    def stop(self) -> None:
        """End a run that has not ended."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._file.close()


class _SampleBuffer:
    """The compressed samples, and the current text of each file. ``count`` is the number of samples."""

    def __init__(
        self, globs: list[str], lines: dict[str, list[str]], commands: list[_CounterCommand]
    ) -> None:
        self.count = 0
        self._commands = commands
        self._globs = globs
        self._starts = _encoded(lines)
        self._paths: list[str] = []
        self._current: dict[str, bytes] = {}
        self._packer = zlib.compressobj(1)
        self._packed: list[bytes] = []
        self._size = 0

    @property
    def full(self) -> bool:
        return self._size >= _MEMORY_LIMIT

    def now(self, globs: list[str]) -> dict[str, bytes]:
        """Return the last sampled contents of the files that match ``globs``."""
        return {
            path: text
            for path, text in self._current.items()
            if any(fnmatch.fnmatchcase(path, pattern) for pattern in globs)
        }

    def read(self, now: float) -> None:
        """Read all files and store the changed ones."""
        if self.count % _GLOB_EVERY == 0:
            self._paths = counter_files.expand(self._globs)
        changed: dict[str, Any] = {}
        for command in self._commands:
            command.poll(now)
        outputs = ((command.name, command.output) for command in self._commands)
        for path, text in (*((path, self._read_file(path)) for path in self._paths), *outputs):
            if text != self._current.get(path):
                changed[path] = None if text is None else text.decode("utf-8", "replace")
                if text is None:
                    del self._current[path]
                else:
                    self._current[path] = text
        self.count += 1
        piece = self._packer.compress(json.dumps([round(now, 4), changed]).encode() + b"\n")
        if piece:
            self._packed.append(piece)
            self._size += len(piece)

    def _read_file(self, path: str) -> bytes | None:
        text = counter_files.content(path)
        return _keep_lines(text, self._starts.get(path)) if text else text

    def finish(self) -> str:
        self._packed.append(self._packer.flush())
        return base64.b64encode(b"".join(self._packed)).decode()


class _LiveReporter:
    """Sends the contents of some files every few seconds."""

    def __init__(self, request: dict[str, Any], samples: _SampleBuffer, context: CommandContext) -> None:
        self._every = float(request["every"])
        self._paths = request["paths"]
        self._starts = _encoded(request["lines"])
        self._samples, self._context = samples, context
        self._due = 0.0
        self._sent = 0

    def report(self, now: float) -> None:
        if now < self._due or self._sent >= _LIVE_LIMIT:
            return
        self._due = now + self._every
        texts = {}
        for path, text in self._samples.now(self._paths).items():
            texts[path] = _keep_lines(text, self._starts.get(path)).decode("utf-8", "replace")
        packed = base64.b64encode(zlib.compress(json.dumps(texts).encode(), 1)).decode()
        self._sent += len(packed)
        self._context.progress(at=round(now, 4), now=packed)


def _encoded(lines: dict[str, list[str]]) -> dict[str, tuple[bytes, ...]]:
    return {path: tuple(start.encode() for start in starts) for path, starts in lines.items()}


def _keep_lines(text: bytes, starts: tuple[bytes, ...] | None) -> bytes:
    """Return the lines that begin with one of ``starts``; all lines without ``starts``."""
    return b"\n".join(line for line in text.split(b"\n") if line.startswith(starts)) if starts else text
