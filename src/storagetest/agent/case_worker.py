"""The processes that run the bodies of cases: one case after the other, as long as each leaves no trace.

Theory. A process of its own a case is what keeps cases apart, and is what costs most: to fork an interpreter
takes some 30 ms under emulation, most of a case's time. So a process takes the next case when the one before
came to its end and left the process as it had found it (:func:`_trace`): its descriptors, children, threads,
users, mask, signals, timers and limits. After any other end there is a new one.

Rules:

1. A case that fails, dies, hangs or leaves something is the last one of its process.
2. A process has a session: what its cases started is killed with it.
3. What is answered names the case that was asked for. Anything else was written by the body, by accident.
"""

from __future__ import annotations

import importlib
import json
import os
import select
import signal
import sys
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager, suppress
from types import CodeType, ModuleType, TracebackType
from typing import Any

from storagetest.agent.testlib.outcomes import OBSERVED, CannotRun, name_of
from storagetest.agent.worker_pool import init_worker, receive, send

__all__ = ["CaseWorker"]

Place = AbstractContextManager[Any]  # of what the body is given

GRACE = 2.0
"""Seconds in which a process that was killed is gone."""

_LONGEST = 16 << 10
"""Bytes of what a body printed that are passed on."""

_KEPT = ("Umask", "Uid", "Gid", "Groups", "Threads", "SigBlk", "SigIgn", "SigCgt", "CapEff")
"""Lines of /proc/self/status (proc(5)) that a case leaves as they were."""


class CaseWorker:
    """A process that runs cases, the parent's side. ``case`` is the one under way, if any.

    ``answers`` is a descriptor that can be read when there may be something for :meth:`heard`.
    """

    def __init__(self, modules: dict[str, ModuleType], path: str, others: Sequence[CaseWorker]) -> None:
        orders, self._orders = os.pipe()
        self.answers, answers = os.pipe()
        self._printed = os.memfd_create("printed")
        self.case: dict[str, Any] | None = None
        self.until = self._began = self._seconds = 0.0
        self._said = b""
        parent = os.getpid()
        self._pid = os.fork()
        if self._pid:
            os.close(orders)
            os.close(answers)
            return
        try:
            for other in others:  # a pipe's end that a sister holds open would never end
                other.close_fds()
            os.close(self._orders)
            os.close(self.answers)
            init_worker(parent)
            os.setsid()
            os.dup2(self._printed, 1)
            os.dup2(self._printed, 2)
            os.close(self._printed)
            sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]  # a TextIOWrapper
            _serve(orders, answers, modules, path)
        finally:
            os._exit(0)

    def submit(self, case: dict[str, Any], seconds: float) -> None:
        """Have it run a case, which may take so many seconds."""
        self.case, self._seconds, self._said = case, seconds, b""
        self._began = time.monotonic()
        self.until = self._began + seconds
        with suppress(BrokenPipeError):  # it has died, which its answer says
            send(self._orders, case)

    def poll_result(self) -> dict[str, Any] | None:
        """Return the answer of the case under way, once it has ended in any way.

        ``spent`` in it: the process is of no use any more, and gone; ``stuck``: it cannot be killed.
        """
        case = self.case
        if case is None:
            return None
        part = os.read(self.answers, 1 << 16) if self._ready() else b""
        self._said += part
        over = time.monotonic() >= self.until
        # What it started may hold the pipe open: that it has died is looked for besides.
        if not (self._said.endswith(b"\n") or over or self._dead()):
            return None
        self.case = None
        answer = _read(self._said, case) if self._said else None
        if answer is None or answer.pop("spent"):
            status = self.end()
            answer = answer or self._why_silent(status)
            answer["spent"] = True
            if status is None:
                answer["stuck"] = True
        answer.update(printed=self._text(), seconds=time.monotonic() - self._began)
        if answer.get("spent"):
            self.close_fds()
        return answer

    def end(self) -> int | None:
        """Kill the process and what its cases started; return its status, or None: it cannot be killed."""
        self._kill()
        until = time.monotonic() + GRACE
        while not self._dead():
            if time.monotonic() >= until:
                return None
            time.sleep(0.002)
        self._kill()  # what it started: it is a zombie still, so its number is nobody else's
        return os.waitpid(self._pid, 0)[1]

    def close(self) -> None:
        """Kill it, where it is not gone yet."""
        if self.answers >= 0:
            self.end()
            self.close_fds()

    def close_fds(self) -> None:
        """Close our ends of its pipes. Safe to call twice."""
        if self.answers >= 0:
            for descriptor in (self._orders, self.answers, self._printed):
                os.close(descriptor)
            self.answers = -1

    def _ready(self) -> bool:
        return bool(select.select([self.answers], [], [], 0)[0])

    def _dead(self) -> bool:
        return os.waitid(os.P_PID, self._pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is not None

    def _kill(self) -> None:
        with suppress(ProcessLookupError):  # it has not come as far as to have a session
            os.killpg(self._pid, signal.SIGKILL)
        os.kill(self._pid, signal.SIGKILL)

    def _text(self) -> str:
        return os.pread(self._printed, _LONGEST, 0).decode(errors="backslashreplace")

    def _why_silent(self, status: int | None) -> dict[str, Any]:
        if status is None or (os.WIFSIGNALED(status) and time.monotonic() >= self.until):
            stuck = "; it is stuck in the kernel" if status is None else ""
            return {"ended": "hung", "message": f"it did not end within {self._seconds:g} s{stuck}"}
        if os.WIFSIGNALED(status):
            return {"ended": "error", "message": f"it died: {signal.Signals(os.WTERMSIG(status)).name}"}
        code = os.WEXITSTATUS(status)
        return {"ended": "error", "message": f"it exited ({code}) before it had come to its end"}


def _read(said: bytes, case: dict[str, Any]) -> dict[str, Any]:
    """Return the answer; a body that wrote into the pipe by accident has spoilt it."""
    try:
        answer = json.loads(said)
        if answer.pop("of") == case["name"]:
            return dict(answer)
    except (ValueError, KeyError, TypeError, AttributeError):
        pass
    return {
        "ended": "error",
        "message": "its answer cannot be read: the body wrote to a strange descriptor",
        "spent": True,
    }


# What follows is the child's side.


def _serve(orders: int, answers: int, modules: dict[str, ModuleType], path: str) -> None:
    """Run cases until the parent hangs up."""
    before = _trace()
    while True:
        try:
            case = receive(orders)
        except EOFError:
            return
        OBSERVED.clear()
        os.lseek(1, 0, os.SEEK_SET)
        os.ftruncate(1, 0)
        given = importlib.import_module(f"storagetest.agent.testlib.fixtures.{case['fixture']}")
        said = _outcome(case, modules[case["module"]], given.give(path, case))
        spent = said["ended"] not in {"passed", "lacks"} or _trace() != before
        sys.stdout.flush()
        data = json.dumps({"of": case["name"], **said, "observed": OBSERVED, "spent": spent}).encode() + b"\n"
        while data:
            data = data[os.write(answers, data) :]


def _trace() -> object:
    """Return what a case could leave behind in its process; None where that cannot be told."""
    try:
        with open("/proc/self/status", encoding="ascii") as file:
            status = [line for line in file if line.startswith(_KEPT)]
        with open("/proc/self/limits", encoding="ascii") as file:
            limits = file.read()
        descriptors = os.listdir("/proc/self/fd")
    except OSError:
        return object()  # like nothing else: a process a case
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT | os.WNOHANG)
        children = True
    except ChildProcessError:
        children = False
    return status, limits, descriptors, children, signal.getitimer(signal.ITIMER_REAL)


def _outcome(case: dict[str, Any], module: ModuleType, place: Place) -> dict[str, Any]:
    """Run the body and say what came of it."""
    step = "a place of its own could not be made"
    try:
        given = place.__enter__()
        step = "the body"
        getattr(module, case["function"])(**case["arguments"], **{case["argument"]: given})
        step = "what it made could not be removed"
        place.__exit__(None, None, None)
    except BaseException as error:  # all that a body can raise
        said = _why(error, module, step)
        if step == "the body":
            _tidy(place)
        return said
    return {"ended": "passed"}


def _tidy(place: Place) -> None:
    """Remove what a body that broke has left; what cannot be removed goes when the target is released."""
    with suppress(OSError):
        place.__exit__(None, None, None)


def _why(error: BaseException, module: ModuleType, step: str) -> dict[str, Any]:
    lines = _lines(error.__traceback__, module.__file__ or "")
    message = str(error)
    kind = type(error).__name__
    if step != "the body":
        return {"ended": "error", "message": f"{step}: {kind}: {message}", "lines": lines}
    if isinstance(error, CannotRun):
        return {"ended": "lacks", "message": message}
    if isinstance(error, AssertionError):
        return {"ended": "failed", "message": message, "lines": lines}
    if isinstance(error, OSError) and error.errno:
        name = name_of(error.errno)
        told = f"a call that is to succeed was refused by {name}: {message}"
        return {"ended": "failed", "message": told, "errno": name, "lines": lines}
    return {"ended": "error", "message": f"{kind}: {message}", "lines": lines}


def _lines(trace: TracebackType | None, file: str) -> list[int]:
    found = []
    while trace is not None:
        code: CodeType = trace.tb_frame.f_code
        if code.co_filename == file:
            found.append(trace.tb_lineno)
        trace = trace.tb_next
    return found
