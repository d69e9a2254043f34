"""Worker pool: fork worker processes, start them at the same time, measure them, and kill them at the end.

Theory. Threads of one Python process do not run in parallel, so every worker is a process. A phase:

1. Every worker prepares, reports that it is ready, and waits at its :class:`PhaseBarrier`.
2. The parent sends a start time a little ahead. If other clients start together with this one, the parent
   gets the time from the client's start barrier (:mod:`storagetest.agent.barrier`).
3. Every worker reports when it began and ended.
4. The parent sends the *window*, from the last begin to the first end, in which all workers ran. Each worker
   counts the operations that ended in that window. The time after it is the tail, reported separately.

If the phase is so short that the workers did not overlap, the window is the whole span, from the first begin
to the last end, and the report has ``overlap`` false.

Rules:

1. If a worker fails, the command fails: the others are killed and no values are reported.
2. Workers end with their parent, however it ends: the kernel kills them (PR_SET_PDEATHSIG). Without prctl(2)
   they end when the pipe from the parent is closed.
3. The parent waits only for pipes and the start barrier, and never past its deadline.
"""

from __future__ import annotations

import errno
import gc
import marshal
import os
import select
import signal
import struct
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache
from typing import Any

from storagetest.agent import fsutil
from storagetest.agent.barrier import wait_at_barrier
from storagetest.agent.op_log import OpLog, now, sleep_until

_HEAD = struct.Struct("!I")
_FOREVER = 1 << 62  # ns
_PR_SET_PDEATHSIG = 1
_REAP_TIMEOUT = 2.0
"""Seconds to wait for the end of a killed worker; one that hangs in the kernel is left behind (chosen)."""


class CommandError(Exception):
    """The command failed; ``fields`` become the agent's error line."""

    def __init__(self, kind: str, message: str, **fields: Any) -> None:  # noqa: ANN401  # JSON values
        super().__init__(message)
        self.fields = {"kind": kind, "message": message, **fields}


def os_error_fields(error: OSError, op: str = "") -> dict[str, Any]:
    """Return the fields of an error line for a failed system call."""
    name = errno.errorcode.get(error.errno or 0, "")
    path = error.filename if error.filename is not None else ""
    path = path.decode(errors="replace") if isinstance(path, bytes) else str(path)
    return {"kind": "os", "errno": name, "message": error.strerror or str(error), "op": op, "path": path}


class PhaseBarrier:
    """One worker's barrier at the start of a phase. ``began`` is when the wait ended, in ns."""

    def __init__(self, commands: int, replies: int) -> None:
        self._commands, self._replies = commands, replies
        self.began = 0
        self.cpu = 0

    def wait(self) -> int:
        """Report that the worker is ready, wait for the common start, and return the time in ns."""
        send(self._replies, ("ready", None))
        start: int = receive(self._commands)
        sleep_until(start)
        self.cpu = time.process_time_ns()
        self.began = now()
        return self.began

    def start(self, limit: float | None) -> int:
        """Wait for the common start; return the end (ns) of a phase of ``limit`` seconds (None: no limit)."""
        return self.wait() + (_FOREVER if limit is None else int(limit * 1e9))


class _WorkerProcess:
    """A worker process, as seen by the parent."""

    def __init__(self, index: int, pid: int, commands: int, replies: int) -> None:
        self.index, self.pid, self.commands, self.replies = index, pid, commands, replies
        self.received = bytearray()

    def frame(self) -> Any:  # noqa: ANN401  # whatever was sent
        """Return the next complete frame, or None."""
        if len(self.received) < _HEAD.size:
            return None
        end = _HEAD.size + _HEAD.unpack_from(self.received)[0]
        if len(self.received) < end:
            return None
        value = marshal.loads(bytes(self.received[_HEAD.size : end]))  # noqa: S302  # from our own child
        del self.received[:end]
        return value


class WorkerPool:
    """``count`` workers, each an object that ``make(index)`` returned in a process of its own.

    Use as a context manager: at its end no worker is left. ``until`` is the deadline (``time.monotonic``).
    With ``slot`` (seconds) phases report the operations of each such part of their window. ``barrier_path``
    is the directory of the start barrier at which every phase waits for the other clients; "" is none.
    """

    def __init__(
        self,
        count: int,
        make: Callable[[int], object],
        until: float,
        *,
        slot: float = 0.0,
        barrier_path: str = "",
    ) -> None:
        self.until = until
        self._slot = round(slot * 1e9)
        self._barrier_path = barrier_path
        self._workers: list[_WorkerProcess] = []
        gc.collect()
        gc.freeze()  # so that the workers' garbage collection does not copy the parent's memory
        try:
            for index in range(count):
                self._workers.append(self._fork(index, make))
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> WorkerPool:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def call(self, name: str, *arguments: Any, only: int | None = None) -> list[Any]:  # noqa: ANN401
        """Call the method of that name in each worker, or in one; return what each returned."""
        workers = self._workers if only is None else [self._workers[only]]
        self._send_all(("call", name, arguments), workers)
        return [value for _, value in self._gather(workers)]

    def phase(
        self,
        name: str,
        *arguments: Any,  # noqa: ANN401  # whatever the worker takes
        only: Sequence[int] | None = None,
        until_last_end: bool = False,
    ) -> dict[str, Any]:
        """Run the method ``name(barrier, *arguments)`` in all workers at once, or in those of ``only``.

        The method returns operation logs by name. ``until_last_end`` makes the whole span the window, for
        loads that end when their last worker ends.

        Return ``seconds`` (of the window), ``operations`` (name → ops, bins, bytes …, summed), ``spread`` (s,
        between the first and the last begin), ``tail`` (s), ``span`` (s), ``cpu`` (processor time of the
        workers as a share of one core), ``overlap``, ``began`` (of the window, seconds since the epoch) and
        ``times`` (ns of CLOCK_MONOTONIC: the first begin, the window's two ends, the last end).
        """
        workers = self._workers if only is None else [self._workers[index] for index in only]
        self._send_all(("phase", name, arguments), workers)
        self._gather(workers)
        start = self._start_time(len(workers))
        self._send_all(start, workers)
        times = [value for _, value in self._gather(workers)]
        first, since = min(time[0] for time in times), max(time[0] for time in times)
        until, last = min(time[1] for time in times), max(time[1] for time in times)
        overlap = until > since
        if until_last_end or not overlap:
            since, until = first, last
        self._send_all((since, until, self._slot), workers)
        reports = [value for _, value in self._gather(workers)]
        used = sum(time[2] for time in times)
        return {
            "seconds": (until - since) * 1e-9,
            "operations": _sum_up(reports),
            "spread": (max(time[0] for time in times) - first) * 1e-9,
            "tail": (last - min(time[1] for time in times)) * 1e-9,
            "span": (last - first) * 1e-9,
            "cpu": used / max(1, last - first),
            "overlap": overlap,
            "began": time.time() - (now() - since) * 1e-9,
            "times": (first, since, until, last),
        }

    def _start_time(self, workers: int) -> int:
        """Return the start time in ns: a little ahead, or the common start of all clients."""
        if not self._barrier_path:
            return now() + 2_000_000 + 500_000 * workers
        instant = wait_at_barrier(self._barrier_path, self.until)
        if instant is None:
            raise CommandError("stopped", "the common start of the clients was cancelled")
        return instant

    def close(self) -> None:
        """Kill every worker and wait until they are gone. Safe to call twice."""
        for worker in self._workers:
            kill(worker.pid)
        end = time.monotonic() + _REAP_TIMEOUT
        for worker in self._workers:
            reap(worker.pid, end)
            os.close(worker.commands)
            os.close(worker.replies)
        self._workers = []

    def _fork(self, index: int, make: Callable[[int], object]) -> _WorkerProcess:
        def serve(commands: int, replies: int) -> None:
            for other in self._workers:  # a pipe does not end while a sibling has its other end open
                os.close(other.commands)
                os.close(other.replies)
            _serve(make, index, commands, replies)

        worker = _WorkerProcess(index, *fork_worker(serve))
        os.set_blocking(worker.replies, False)
        return worker

    @staticmethod
    def _send_all(value: Any, workers: Sequence[_WorkerProcess]) -> None:  # noqa: ANN401
        for worker in workers:
            with suppress(BrokenPipeError):  # the worker died; _gather reports it
                send(worker.commands, value)

    def _gather(self, workers: Sequence[_WorkerProcess]) -> list[tuple[str, Any]]:
        """Return the next frame of each worker. Raises :class:`CommandError`."""
        frames: dict[int, tuple[str, Any]] = {}
        waiting = {worker.replies: worker for worker in workers}
        poll = select.poll()
        for descriptor in waiting:
            poll.register(descriptor, select.POLLIN)
        while waiting:
            left = self.until - time.monotonic()
            if left <= 0:
                raise CommandError(
                    "deadline", f"{len(waiting)} of {len(workers)} workers did not end by the deadline"
                )
            for descriptor, _ in poll.poll(min(left, 1.0) * 1000):
                worker = waiting[descriptor]
                frame = self._read(worker)
                if frame is not None:
                    if frame[0] == "failed":
                        fields = dict(frame[1])
                        raise CommandError(fields.pop("kind"), fields.pop("message"), **fields)
                    frames[worker.index] = frame
                    poll.unregister(descriptor)
                    del waiting[descriptor]
        return [frames[worker.index] for worker in workers]

    @staticmethod
    def _read(worker: _WorkerProcess) -> Any:  # noqa: ANN401
        data = os.read(worker.replies, 1 << 16)
        if not data:
            message = f"worker {worker.index} (process {worker.pid}) died: killed, or out of memory"
            raise CommandError("died", message)
        worker.received += data
        return worker.frame()


def set_parent_death_signal(parent: int, signal_number: int) -> None:
    """Make the kernel send this process ``signal_number`` when the process ``parent`` ends."""
    prctl = load_prctl()
    if prctl is not None:  # else rule 2: the end of the pipe ends this process
        prctl(_PR_SET_PDEATHSIG, signal_number)
    if os.getppid() != parent:
        os._exit(1)


@cache
def load_prctl() -> Callable[[int, int], int] | None:
    """Return prctl(2), or None. Call it before forking many children, because the lookup takes long."""
    try:
        import ctypes  # noqa: PLC0415  # not every minimal Python has it

        prctl: Callable[[int, int], int] = ctypes.CDLL(None).prctl
    except (ImportError, OSError, AttributeError):
        return None
    return prctl


def fork_worker(serve: Callable[[int, int], None]) -> tuple[int, int, int]:
    """Fork a process that calls ``serve(commands, replies)``, the descriptors of two pipes.

    Return its process id and the parent's ends of the pipes.
    """
    commands, parent_commands = os.pipe()
    parent_replies, replies = os.pipe()
    parent, pid = os.getpid(), os.fork()
    if pid:
        os.close(commands)
        os.close(replies)
        return pid, parent_commands, parent_replies
    try:
        os.close(parent_commands)
        os.close(parent_replies)
        init_worker(parent)
        serve(commands, replies)
    finally:
        os._exit(0)


def init_worker(parent: int) -> None:
    """End with the parent, replace the standard streams by /dev/null, and reset the signal handlers."""
    set_parent_death_signal(parent, signal.SIGKILL)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    null = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(null, stream)


def _serve(make: Callable[[int], object], index: int, commands: int, replies: int) -> None:
    """Run the parent's commands until it closes the pipe."""
    op = "start"
    try:
        worker = make(index)
        while True:
            try:
                kind, op, arguments = receive(commands)
            except EOFError:
                return
            if kind == "call":
                send(replies, ("done", getattr(worker, op)(*arguments)))
                continue
            barrier = PhaseBarrier(commands, replies)
            op_logs: dict[str, OpLog] = getattr(worker, op)(barrier, *arguments)
            cpu = time.process_time_ns() - barrier.cpu
            end = max([barrier.began, *(op_log.last for op_log in op_logs.values())])
            send(replies, ("ended", (barrier.began, end, cpu)))
            window = receive(commands)
            send(replies, ("done", {name: op_log.report(*window) for name, op_log in op_logs.items()}))
    except OSError as error:
        send(replies, ("failed", os_error_fields(error, op)))
    except CommandError as failed:
        send(replies, ("failed", failed.fields))
    except Exception as error:  # the parent reports it
        send(replies, ("failed", {"kind": "bug", "message": f"{op}: {type(error).__name__}: {error}"}))


def _sum_up(reports: Sequence[dict[str, dict[str, Any]]]) -> dict[str, dict[str, Any]]:
    totals: dict[str, dict[str, Any]] = {}
    for report in reports:
        _add(totals, report)
    return totals


def _add(totals: dict[Any, Any], counts: dict[Any, Any]) -> None:
    """Add the counts to the totals of the same keys, at every level."""
    for key, value in counts.items():
        if isinstance(value, dict):
            _add(totals.setdefault(key, {}), value)
        else:
            totals[key] = totals.get(key, 0) + value


def kill(pid: int) -> None:
    """Kill a process; do nothing if there is none of that id."""
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def reap(pid: int, end: float) -> bool:
    """Wait for a killed child until ``end`` (``time.monotonic``); return whether it has ended."""
    while True:
        try:
            if os.waitpid(pid, os.WNOHANG)[0] == pid:
                return True
        except ChildProcessError:
            return True
        if time.monotonic() >= end:
            return False
        time.sleep(0.002)


def send(descriptor: int, value: Any) -> None:  # noqa: ANN401
    """Write a value to a pipe, as a frame."""
    data = marshal.dumps(value)
    fsutil.write_all(descriptor, _HEAD.pack(len(data)) + data)


def receive(descriptor: int) -> Any:  # noqa: ANN401
    """Read the next frame's value from a pipe. Raises :class:`EOFError` at the end of the pipe."""
    return marshal.loads(_exactly(descriptor, _HEAD.unpack(_exactly(descriptor, _HEAD.size))[0]))  # noqa: S302


def _exactly(descriptor: int, size: int) -> bytes:
    data = b""
    while len(data) < size:
        part = os.read(descriptor, size - len(data))
        if not part:
            raise EOFError
        data += part
    return data
