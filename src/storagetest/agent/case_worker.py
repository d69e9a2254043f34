"""Worker processes that run the bodies of cases: one case after the other, if each leaves no trace.

Theory. A process per case isolates the cases, but forking an interpreter takes about 30 ms under emulation,
most of a case's time. So a process takes the next case if the previous one returned or was skipped, and left
the process unchanged (:func:`_process_state`): descriptors, children, threads, users, mask, signals, timers
and limits. After any other end a new process is started.

Rules:

1. A case that fails, dies, hangs or changes the process is the last one of its process.
2. Slow is not hung: a case hangs if its processes have waited for its whole timeout without the end of a
   call; a case whose calls end gets more time (:data:`LONGEST`). A process that waits for the target gives up
   the CPU at each call, so voluntary context switches are counted.
3. A process has its own session: the processes that its cases started are killed with it.
4. A result names its case. Anything else in the pipe was written by the body by accident, and is an error.
"""

from __future__ import annotations

import importlib
import json
import os
import resource
import select
import signal
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress
from types import CodeType, ModuleType, TracebackType
from typing import Any

from storagetest.agent import fsutil
from storagetest.agent.testlib.consistency import FAULTS
from storagetest.agent.testlib.outcomes import OBSERVED, CannotRun, name_of
from storagetest.agent.worker_pool import fork_worker, receive, send

Fixture = AbstractContextManager[Any]  # its value is the body's argument

GRACE = 2.0
"""Seconds to wait for the end of a killed process (chosen)."""

LONGEST = 4.0
"""The longest time of a case whose calls end, as a multiple of its timeout (chosen)."""

_STEP = 1 / 6
"""Part of the timeout after which the calls are counted again (chosen): 5 s of 30."""

_MAX_PRINTED = 16 << 10
"""Bytes of a body's output that are reported."""

_STATUS_LINES = (b"Umask", b"Uid", b"Gid", b"Groups", b"Threads", b"SigBlk", b"SigIgn", b"SigCgt", b"CapEff")
"""Lines of /proc/self/status (proc(5)) that a case must not change."""

_STATUS_SIZE = 1 << 16
"""Bytes, more than the file has: it is read by one call, without Python's file objects (2 ms emulated)."""

_LIMITS = range(16)
"""All resource limits of Linux (RLIM_NLIMITS, include/uapi/asm-generic/resource.h)."""


class CaseWorker:
    """A process that runs cases, the parent's side. ``case`` is the running one, or None.

    ``results`` is a descriptor that is readable when :meth:`poll_result` may have a result.
    """

    def __init__(self, modules: dict[str, ModuleType], path: str, others: Sequence[CaseWorker]) -> None:
        self._printed = os.memfd_create("printed")
        self.case: dict[str, Any] | None = None
        self.until = self._began = self._seconds = self._last_call = 0.0
        self._calls: int | None = None
        self._hangs = self._was_late = False
        self._received = b""

        def serve(requests: int, results: int) -> None:
            for other in others:  # a pipe does not end while a sibling has its other end open
                other.close_fds()
            os.setsid()
            os.dup2(self._printed, 1)
            os.dup2(self._printed, 2)
            os.close(self._printed)
            sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]  # a TextIOWrapper
            _serve(requests, results, modules, path)

        self._pid, self._requests, self.results = fork_worker(serve)

    def submit(self, case: dict[str, Any], seconds: float) -> None:
        """Start a case. A call of it may take ``seconds``, the whole case :data:`LONGEST` times as long."""
        self.case, self._seconds, self._received, self._calls = case, seconds, b"", None
        self._hangs = self._was_late = False
        self._began = time.monotonic()
        self.until = self._began + _STEP * seconds
        with suppress(BrokenPipeError):  # the process has died; poll_result reports it
            send(self._requests, case)

    def poll_result(self) -> dict[str, Any] | None:
        """Return the result of the running case, or None if it has not ended.

        ``spent`` in the result: the process has been ended; ``stuck``: it cannot be killed.
        """
        case = self.case
        if case is None:
            return None
        if select.select([self.results], [], [], 0)[0]:
            self._received += os.read(self.results, 1 << 16)
        # A process that the case has started may keep the pipe open, so the end is checked separately.
        if not (self._received.endswith(b"\n") or self._dead() or self._late()):
            return None
        self.case = None
        result = _read(self._received, case) if self._received else None
        if result is None or result.pop("spent"):
            status = self.end()
            result = result or self._no_result(status)
            result["spent"] = True
            if status is None:
                result["stuck"] = True
        result.update(printed=self._text(), seconds=time.monotonic() - self._began)
        if result.get("spent"):
            self.close_fds()
        return result

    def end(self) -> int | None:
        """Kill the process and its children; return its wait status, or None if it cannot be killed."""
        self._kill()
        until = time.monotonic() + GRACE
        while not self._dead():
            if time.monotonic() >= until:
                return None
            time.sleep(0.002)
        self._kill()  # its process group: the process is still a zombie, so the id is not reused
        return os.waitpid(self._pid, 0)[1]

    def close(self) -> None:
        """Kill the process, if it has not ended."""
        if self.results >= 0:
            self.end()
            self.close_fds()

    def close_fds(self) -> None:
        """Close the parent's ends of the pipes. Safe to call twice."""
        if self.results >= 0:
            for descriptor in (self._requests, self.results, self._printed):
                os.close(descriptor)
            self.results = -1

    def _late(self) -> bool:
        """Return whether the case hangs, or has used its longest time; look at it at each step only."""
        now = time.monotonic()
        if now < self.until:
            return False
        before, self._calls = self._calls, self._waits()
        if self._calls is None or self._calls != before:
            self._last_call = now
        self._hangs = now >= self._last_call + self._seconds
        self._was_late = self._hangs or now >= self._began + LONGEST * self._seconds
        self.until = now + _STEP * self._seconds
        return self._was_late

    def _waits(self) -> int | None:
        """Return how often the case's processes have waited (proc(5)); None if one of them runs."""
        total = 0
        for process in _session(self._pid):
            status = fsutil.read_text(f"/proc/{process}/status") or ""
            fields = dict(line.split(":", 1) for line in status.splitlines() if ":" in line)
            if fields.get("State", "").split()[:1] == ["R"]:
                return None
            total += int(fields.get("voluntary_ctxt_switches", "0"))
        return total

    def _dead(self) -> bool:
        return os.waitid(os.P_PID, self._pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is not None

    def _kill(self) -> None:
        with suppress(ProcessLookupError):  # it has no session yet
            os.killpg(self._pid, signal.SIGKILL)
        os.kill(self._pid, signal.SIGKILL)

    def _text(self) -> str:
        return os.pread(self._printed, _MAX_PRINTED, 0).decode(errors="backslashreplace")

    def _no_result(self, status: int | None) -> dict[str, Any]:
        if self._was_late:
            stuck = "; it is stuck in the kernel" if status is None else ""
            if self._hangs:
                return {
                    "ended": "hung",
                    "message": f"a call did not return within {self._seconds:.3g} s{stuck}",
                }
            message = f"it did not end within {LONGEST * self._seconds:.3g} s, though its calls return{stuck}"
            return {"ended": "slow", "message": message}
        if status is None:
            return {"ended": "error", "message": "its process could not be killed; it is stuck in the kernel"}
        if os.WIFSIGNALED(status):
            return {"ended": "error", "message": f"it died: {signal.Signals(os.WTERMSIG(status)).name}"}
        code = os.WEXITSTATUS(status)
        return {"ended": "error", "message": f"its process exited ({code}) before the body returned"}


def _session(leader: int) -> list[int]:
    """Return the processes of the session of ``leader``."""
    found = []
    for process in (int(name) for name in os.listdir("/proc") if name.isdecimal()):
        with suppress(ProcessLookupError):
            if os.getsid(process) == leader:
                found.append(process)
    return found


def _read(received: bytes, case: dict[str, Any]) -> dict[str, Any]:
    """Return the result, or an error if the body wrote into the pipe by accident."""
    try:
        result = json.loads(received)
        if result.pop("of") == case["name"]:
            return dict(result)
    except (ValueError, KeyError, TypeError, AttributeError):
        pass
    return {
        "ended": "error",
        "message": "its result cannot be read: the body wrote to a descriptor that it does not own",
        "spent": True,
    }


# The child's side.


def _serve(requests: int, results: int, modules: dict[str, ModuleType], path: str) -> None:
    """Run cases until the parent closes the pipe."""
    before = _process_state()
    while True:
        try:
            case = receive(requests)
        except EOFError:
            return
        OBSERVED.clear()
        FAULTS.clear()
        os.lseek(1, 0, os.SEEK_SET)
        os.ftruncate(1, 0)
        fixtures = importlib.import_module(f"storagetest.agent.testlib.fixtures.{case['fixture']}")
        check = getattr(fixtures, "check", None)
        outcome = _outcome(case, modules[case["module"]], fixtures.fixture(path, case), check)
        spent = outcome["ended"] not in {"passed", "skipped"} or _process_state() != before
        sys.stdout.flush()
        result = {"of": case["name"], **outcome, "observed": OBSERVED, "faults": FAULTS, "spent": spent}
        fsutil.write_all(results, json.dumps(result).encode() + b"\n")


def _process_state() -> object:
    """Return the state of the process that a case may change; unequal to all others if it is unknown."""
    try:
        with fsutil.open_fd("/proc/self/status", os.O_RDONLY) as file:
            lines = os.read(file, _STATUS_SIZE).splitlines()
        status = [line for line in lines if line.startswith(_STATUS_LINES)]
        limits = [resource.getrlimit(limit) for limit in _LIMITS]
        descriptors = os.listdir("/proc/self/fd")
    except OSError:
        return object()  # equal to no other: each case gets a new process
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT | os.WNOHANG)
        children = True
    except ChildProcessError:
        children = False
    return status, limits, descriptors, children, signal.getitimer(signal.ITIMER_REAL)


def _outcome(
    case: dict[str, Any], module: ModuleType, fixture: Fixture, check: Callable[[Any], None] | None
) -> dict[str, Any]:
    """Run the body; return ``ended``, and ``message``, ``lines`` and ``errno`` if it did not pass.

    If it returned, ``check`` looks at what it has left of the fixture's value.
    """
    step = "setup of its fixture failed"
    try:
        value = fixture.__enter__()
        step = "the body"
        getattr(module, case["function"])(**case["arguments"], **{case["argument"]: value})
        if check is not None:
            step = "the look at what the case has left failed"
            check(value)
        step = "teardown of its fixture failed"
        # What is wrong was found, and may be in the way.
        with suppress(CannotRun, *([OSError] if FAULTS else [])):
            fixture.__exit__(None, None, None)
    except BaseException as error:  # a body can raise anything
        outcome = _failure(error, module, step)
        if step == "the body":
            with suppress(OSError, CannotRun):  # the rest is removed when the target is released
                fixture.__exit__(None, None, None)
        return outcome
    return {"ended": "passed"}


def _failure(error: BaseException, module: ModuleType, step: str) -> dict[str, Any]:
    lines = _lines(error.__traceback__, module.__file__ or "")
    message = str(error)
    kind = type(error).__name__
    if isinstance(error, CannotRun):
        return {"ended": "skipped", "message": message}
    if step != "the body":
        return {"ended": "error", "message": f"{step}: {kind}: {message}", "lines": lines}
    if isinstance(error, AssertionError):
        return {"ended": "failed", "message": message, "lines": lines}
    if isinstance(error, OSError) and error.errno:
        name = name_of(error.errno)
        text = f"a call that has to succeed was refused by {name}: {message}"
        return {"ended": "failed", "message": text, "errno": name, "lines": lines}
    return {"ended": "error", "message": f"{kind}: {message}", "lines": lines}


def _lines(trace: TracebackType | None, file: str) -> list[int]:
    numbers = []
    while trace is not None:
        code: CodeType = trace.tb_frame.f_code
        if code.co_filename == file:
            numbers.append(trace.tb_lineno)
        trace = trace.tb_next
    return numbers
