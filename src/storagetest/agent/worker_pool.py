"""Many worker processes, one clock: forked, started together, timed, and never left behind.

Theory. Threads of one Python do not run at once, so every worker is a process. A phase goes like this:

1. every worker prepares, says that it is ready, and waits at its :class:`Gate`;
2. the parent names a moment a little ahead, at which all begin; where other clients begin with them, all wait
   at
   the client's :mod:`~storagetest.agent.barrier` for it;
3. every worker says when it began and ended;
4. the parent names the *window*, from when the last began to when the first ended: only then were all at
   work. Each worker counts what ended in that window. What came after is the tail, reported beside it.

Where the phase is so short that there was no such moment, the window is the whole span, from the first begin
to the last end, and the report says so (``overlap`` false).

Rules:

1. A worker that fails is an error of the whole: the others are killed and no number is given.
2. Workers die with their parent, however it dies: the kernel kills them (PR_SET_PDEATHSIG), and where that
   cannot be asked for they end when the pipe from the parent does.
3. The parent waits for nothing but pipes, and never past its deadline.
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

from storagetest.agent import barrier
from storagetest.agent.op_log import OpLog, now

__all__ = [
    "CommandError",
    "PhaseBarrier",
    "WorkerPool",
    "init_worker",
    "kill",
    "load_prctl",
    "os_error_fields",
    "reap",
    "receive",
    "send",
    "set_parent_death_signal",
]

_HEAD = struct.Struct("!I")
_PR_SET_PDEATHSIG = 1
_BURIAL = 2.0
"""Seconds that a killed worker may take to be gone; one that hangs in the kernel is left to its fate."""


class CommandError(Exception):
    """The command cannot give a number; ``fields`` become the agent's error line."""

    def __init__(self, kind: str, message: str, **fields: Any) -> None:  # noqa: ANN401  # JSON values
        super().__init__(message)
        self.fields = {"kind": kind, "message": message, **fields}


def os_error_fields(error: OSError, op: str = "") -> dict[str, Any]:
    """Return the fields of an error line for what a system call said."""
    name = errno.errorcode.get(error.errno or 0, "")
    path = error.filename if error.filename is not None else ""
    path = path.decode(errors="replace") if isinstance(path, bytes) else str(path)
    return {"kind": "os", "errno": name, "message": error.strerror or str(error), "op": op, "path": path}


class PhaseBarrier:
    """Where a worker waits until all are ready. ``began`` is when it was let go."""

    def __init__(self, orders: int, answers: int) -> None:
        self._orders, self._answers = orders, answers
        self.began = 0
        self.cpu = 0

    def wait(self) -> int:
        """Say that all is prepared, wait for the common start, and return the time."""
        send(self._answers, ("ready", None))
        start: int = receive(self._orders)
        time.sleep(max(0, start - now()) * 1e-9)
        self.cpu = time.process_time_ns()
        self.began = now()
        return self.began


class _Member:
    """A worker as the parent sees it."""

    def __init__(self, index: int, pid: int, orders: int, answers: int) -> None:
        self.index, self.pid, self.orders, self.answers = index, pid, orders, answers
        self.received = bytearray()

    def frame(self) -> Any:  # noqa: ANN401  # whatever was sent
        """Return the next frame that has arrived whole, or None."""
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
    With ``slot`` (seconds) phases say what they did in each such part of their window. ``place`` is where the
    door is at which every phase waits for the other clients; without, it waits for none.
    """

    def __init__(
        self,
        count: int,
        make: Callable[[int], object],
        until: float,
        *,
        slot: float = 0.0,
        place: str = "",
    ) -> None:
        self.until = until
        self._slot = round(slot * 1e9)
        self._place = place
        self._members: list[_Member] = []
        gc.collect()
        gc.freeze()  # so that workers do not copy our memory only to look for rubbish in it
        try:
            for index in range(count):
                self._members.append(self._fork(index, make))
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> WorkerPool:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def call(self, name: str, *arguments: Any, only: int | None = None) -> list[Any]:  # noqa: ANN401
        """Call the method of that name in each worker, or in one; return what each returned."""
        members = self._members if only is None else [self._members[only]]
        self._tell(("call", name, arguments), members)
        return [answer for _, answer in self._gather(members)]

    def phase(
        self,
        name: str,
        *arguments: Any,  # noqa: ANN401  # whatever the worker takes
        only: Sequence[int] | None = None,
        to_the_last: bool = False,
    ) -> dict[str, Any]:
        """Run the method ``name(gate, *arguments)`` in all workers at once, or in those of ``only``.

        ``to_the_last`` makes the whole span the window: for loads that end when the last one has ended.

        Return ``seconds`` (of the window), ``operations`` (name → ops, bins, bytes …,
        summed), ``spread`` (s, between the first and the last begin), ``tail`` (s), ``span`` (s), ``cpu``
        (share of one core that the workers used, summed), ``overlap``, ``began`` (of the window, seconds
        since the epoch) and ``times`` (ns of CLOCK_MONOTONIC: the first begin, the window's two ends, the
        last end).
        """
        members = self._members if only is None else [self._members[index] for index in only]
        self._tell(("phase", name, arguments), members)
        self._gather(members)
        start = self._instant(len(members))
        self._tell(start, members)
        times = [answer for _, answer in self._gather(members)]
        first, since = min(time[0] for time in times), max(time[0] for time in times)
        until, last = min(time[1] for time in times), max(time[1] for time in times)
        overlap = until > since
        if to_the_last or not overlap:
            since, until = first, last
        self._tell((since, until, self._slot), members)
        reports = [answer for _, answer in self._gather(members)]
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

    def _instant(self, members: int) -> int:
        """Return when all begin: soon, or when those of all clients do."""
        if not self._place:
            return now() + 2_000_000 + 500_000 * members
        instant = barrier.wait_at_barrier(self._place, self.until)
        if instant is None:
            raise CommandError("stopped", "the clients' common start was called off")
        return instant

    def close(self) -> None:
        """Kill every worker and wait until they are gone. Safe to call twice."""
        for member in self._members:
            kill(member.pid)
        end = time.monotonic() + _BURIAL
        for member in self._members:
            reap(member.pid, end)
            os.close(member.orders)
            os.close(member.answers)
        self._members = []

    def _fork(self, index: int, make: Callable[[int], object]) -> _Member:
        orders_in, orders_out = os.pipe()
        answers_in, answers_out = os.pipe()
        parent = os.getpid()
        pid = os.fork()
        if pid:
            os.close(orders_in)
            os.close(answers_out)
            os.set_blocking(answers_in, False)
            return _Member(index, pid, orders_out, answers_in)
        try:
            # A pipe's end that a sister holds open would never end.
            for other in self._members:
                os.close(other.orders)
                os.close(other.answers)
            os.close(orders_out)
            os.close(answers_in)
            init_worker(parent)
            _serve(make, index, orders_in, answers_out)
        finally:
            os._exit(0)

    @staticmethod
    def _tell(value: Any, members: Sequence[_Member]) -> None:  # noqa: ANN401
        for member in members:
            with suppress(BrokenPipeError):  # it died, which whoever waits for its answer finds out
                send(member.orders, value)

    def _gather(self, members: Sequence[_Member]) -> list[tuple[str, Any]]:
        """Return the next frame of each member. Raises :class:`Failed`."""
        found: dict[int, tuple[str, Any]] = {}
        waiting = {member.answers: member for member in members}
        poll = select.poll()
        for descriptor in waiting:
            poll.register(descriptor, select.POLLIN)
        while waiting:
            left = self.until - time.monotonic()
            if left <= 0:
                raise CommandError(
                    "deadline", f"{len(waiting)} of {len(members)} workers were not done in time"
                )
            for descriptor, _ in poll.poll(min(left, 1.0) * 1000):
                member = waiting[descriptor]
                frame = self._read(member)
                if frame is not None:
                    if frame[0] == "failed":
                        fields = dict(frame[1])
                        raise CommandError(fields.pop("kind"), fields.pop("message"), **fields)
                    found[member.index] = frame
                    poll.unregister(descriptor)
                    del waiting[descriptor]
        return [found[member.index] for member in members]

    @staticmethod
    def _read(member: _Member) -> Any:  # noqa: ANN401
        data = os.read(member.answers, 1 << 16)
        if not data:
            message = f"worker {member.index} (process {member.pid}) died: killed, or out of memory"
            raise CommandError("died", message)
        member.received += data
        return member.frame()


def set_parent_death_signal(parent: int, by: int) -> None:
    """Have the kernel send us the signal ``by`` when the parent ends, however it does."""
    prctl = load_prctl()
    if prctl is not None:  # else rule 2: the pipe's end ends us too
        prctl(_PR_SET_PDEATHSIG, by)
    if os.getppid() != parent:
        os._exit(1)


@cache
def load_prctl() -> Callable[[int, int], int] | None:
    """Return prctl(2), or None. Who forks much asks for it before, as it takes long to find."""
    try:
        import ctypes  # noqa: PLC0415  # not every minimal Python has it

        found: Callable[[int, int], int] = ctypes.CDLL(None).prctl
    except (ImportError, OSError, AttributeError):
        return None
    return found


def init_worker(parent: int) -> None:
    """Die with the parent, keep none of its streams open, and take signals as they come."""
    set_parent_death_signal(parent, signal.SIGKILL)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    null = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(null, stream)


def _serve(make: Callable[[int], object], index: int, orders: int, answers: int) -> None:
    """Follow the parent's orders until it hangs up."""
    op = "start"
    try:
        worker = make(index)
        while True:
            try:
                kind, op, arguments = receive(orders)
            except EOFError:
                return
            if kind == "call":
                send(answers, ("done", getattr(worker, op)(*arguments)))
                continue
            gate = PhaseBarrier(orders, answers)
            lanes: dict[str, OpLog] = getattr(worker, op)(gate, *arguments)
            cpu = time.process_time_ns() - gate.cpu
            end = max([gate.began, *(lane.last for lane in lanes.values())])
            send(answers, ("ended", (gate.began, end, cpu)))
            window = receive(orders)
            send(answers, ("done", {name: lane.report(*window) for name, lane in lanes.items()}))
    except OSError as error:
        send(answers, ("failed", os_error_fields(error, op)))
    except CommandError as failed:
        send(answers, ("failed", failed.fields))
    except Exception as error:  # the parent tells the other side
        send(answers, ("failed", {"kind": "bug", "message": f"{op}: {type(error).__name__}: {error}"}))


def _sum_up(reports: Sequence[dict[str, dict[str, Any]]]) -> dict[str, dict[str, Any]]:
    lanes: dict[str, dict[str, Any]] = {}
    for report in reports:
        for name, lane in report.items():
            whole = lanes.setdefault(name, {})
            for key, value in lane.items():
                if isinstance(value, dict):  # bins, or a course
                    counts = whole.setdefault(key, {})
                    for place, count in value.items():
                        counts[place] = counts.get(place, 0) + count
                else:
                    whole[key] = whole.get(key, 0) + value
    return lanes


def kill(pid: int) -> None:
    """Kill a process, which may be gone already."""
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def reap(pid: int, end: float) -> bool:
    """Wait for a killed child until ``end``; return whether it is gone."""
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
    rest = memoryview(_HEAD.pack(len(data)) + data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def receive(descriptor: int) -> Any:  # noqa: ANN401
    """Read the next frame's value from a pipe; :class:`EOFError` where there is none."""
    return marshal.loads(_exactly(descriptor, _HEAD.unpack(_exactly(descriptor, _HEAD.size))[0]))  # noqa: S302


def _exactly(descriptor: int, size: int) -> bytes:
    data = b""
    while len(data) < size:
        part = os.read(descriptor, size - len(data))
        if not part:
            raise EOFError
        data += part
    return data
