"""System-call cases of a suite: each in a process and a place of its own, answered as it ends.

The request has ``modules`` (name → ``file`` and ``source``), ``cases`` (each with ``id``, ``module``,
``function``, ``arguments``, ``gives``: the argument's name and :mod:`storagetest.agent.casekit.given` module,
``index``, ``name``), ``path`` (the directory or device) and ``each`` (seconds that a case may take).

Each case ends with a line of progress: ``case`` (its id), ``ended`` (see below), ``message``, ``lines`` (of
its module, the outermost first, where it broke), ``errno`` (a name, where a system call's error broke it),
``observed``, ``printed`` and ``seconds``.

====== =====================================================================================
passed the body came to its end
failed a claim does not hold, or a system call was refused that is not to be refused
lacks  it cannot be tried here
hung   it was still at work when its time was over
error  anything else: it died, it raised what is no claim, its module cannot be imported here
====== =====================================================================================

Rules:

1. This process never touches the target: a case that hangs is killed, and one that cannot be killed (it is
   stuck in the kernel) is left and ends the whole. So do three that hang: the target does.
2. A body's session is its own: what it started is killed with it.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import select
import signal
import sys
import time
from contextlib import AbstractContextManager, suppress
from types import CodeType, ModuleType, TracebackType
from typing import Any

from storagetest.agent.casekit import stand_in
from storagetest.agent.casekit.asserts import EXPLAIN, compiled, explain
from storagetest.agent.casekit.claims import OBSERVED, Lacks, name_of
from storagetest.agent.crew import become_worker
from storagetest.agent.job import Job

__all__ = ["run"]

Place = AbstractContextManager[Any]  # of what the body is given

_HUNG = 3
"""Cases that may hang before the rest is left alone."""

_GRACE = 2.0
"""Seconds in which a process that has answered, or was killed, is gone."""

_LONGEST = 16 << 10
"""Bytes of what a body printed that are passed on."""


def run(request: dict[str, Any], job: Job) -> dict[str, Any]:
    """Run the cases in their order; return how many were begun."""
    sys.modules["pytest"] = stand_in
    modules = {name: _imported(**said) for name, said in request["modules"].items()}
    givers = {case["gives"] for case in request["cases"]}
    given = {name: importlib.import_module(f"storagetest.agent.casekit.given.{name}") for name in givers}
    with suppress(ImportError):  # what each case's process needs is imported once
        import ctypes  # noqa: F401, PLC0415  # not every minimal Python has it
    gc.freeze()
    hung = begun = 0
    for case in request["cases"]:
        left = min(request["each"], job.until - time.monotonic())
        if left <= 0 or hung >= _HUNG:
            break
        begun += 1
        module = modules[case["module"]]
        if isinstance(module, str):
            answer: dict[str, Any] = {"ended": "error", "message": module}
        else:
            place = given[case["gives"]].give(request["path"], case)
            answer = _Child(case, module, place, left).answer()
        job.tell(case=case["id"], **answer)
        hung += _HUNG if answer.get("stuck") else answer["ended"] == "hung"
    return {"begun": begun}


def _imported(*, file: str, source: str) -> ModuleType | str:
    """Return the module made of ``source``, or why it cannot be imported here."""
    name = os.path.basename(file).rpartition(".")[0]
    module = ModuleType(name)
    module.__dict__.update({"__file__": file, EXPLAIN: explain})
    sys.modules[name] = module
    try:
        exec(compiled(source, file), module.__dict__)  # noqa: S102  # the suite's own module
    except Exception as error:  # whatever a module does when it is imported
        python = ".".join(map(str, sys.version_info[:2]))
        return f"{file} cannot be imported here (Python {python}): {type(error).__name__}: {error}"
    return module


class _Child:
    """The process of one case."""

    def __init__(self, case: dict[str, Any], module: ModuleType, place: Place, seconds: float) -> None:
        self._began = time.monotonic()
        self._until = self._began + seconds
        self._seconds = seconds
        self._answers, answers = os.pipe()
        self._printed = os.memfd_create("printed")
        parent = os.getpid()
        self._pid = os.fork()
        if self._pid == 0:
            try:
                become_worker(parent)
                os.setsid()
                os.dup2(self._printed, 1)
                os.dup2(self._printed, 2)
                sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]  # a TextIOWrapper
                os.close(self._answers)
                said = _outcome(case, module, place)
                _write(answers, {**said, "observed": OBSERVED})
            finally:
                os._exit(0)
        os.close(answers)

    def answer(self) -> dict[str, Any]:
        """Wait for the body's end, end what it started, and return what came of it."""
        try:
            said = self._said()
        except BaseException:  # told to end: what it started dies with it
            self._kill()
            raise
        stuck = not self._gone(time.monotonic() + (_GRACE if said else 0.0))
        status = None
        if stuck:
            self._kill()
            stuck = not self._gone(time.monotonic() + _GRACE)
        if not stuck:
            self._kill()  # what it started: it is a zombie still, so its number is nobody else's
            _, status = os.waitpid(self._pid, 0)
        os.close(self._answers)
        answer = _read(said) if said else self._why_silent(status)
        with open(self._printed, "rb") as printed:
            printed.seek(0)
            text = printed.read(_LONGEST).decode(errors="backslashreplace")
        answer.update(printed=text, seconds=time.monotonic() - self._began)
        if stuck:
            answer["stuck"] = True
        return answer

    def _kill(self) -> None:
        with suppress(ProcessLookupError):  # it has not come as far as to have a session
            os.killpg(self._pid, signal.SIGKILL)
        os.kill(self._pid, signal.SIGKILL)

    def _said(self) -> bytes:
        """Return the line that the body's process wrote, or nothing where it died or takes too long."""
        said = b""
        poll = select.poll()
        poll.register(self._answers, select.POLLIN)
        while not said.endswith(b"\n"):
            left = self._until - time.monotonic()
            if left <= 0:
                return b""
            # What it started may hold the pipe open: that it has died is looked for besides.
            if poll.poll(min(left, 0.25) * 1000):
                part = os.read(self._answers, 1 << 16)
                if not part:
                    return b""
                said += part
            elif self._gone(0.0):
                return b""
        return said

    def _gone(self, until: float) -> bool:
        """Whether it has ended by then; it is not reaped yet."""
        while True:
            if os.waitid(os.P_PID, self._pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is not None:
                return True
            if time.monotonic() >= until:
                return False
            time.sleep(0.002)

    def _why_silent(self, status: int | None) -> dict[str, Any]:
        if time.monotonic() >= self._until or status is None:
            stuck = "; it is stuck in the kernel" if status is None else ""
            return {"ended": "hung", "message": f"it did not end within {self._seconds:g} s{stuck}"}
        if os.WIFSIGNALED(status):
            return {"ended": "error", "message": f"it died: {signal.Signals(os.WTERMSIG(status)).name}"}
        code = os.WEXITSTATUS(status)
        return {"ended": "error", "message": f"it exited ({code}) before it had come to its end"}


def _outcome(case: dict[str, Any], module: ModuleType, place: Place) -> dict[str, Any]:
    """Run the body and say what came of it."""
    step = "a place of its own could not be made"
    try:
        given = place.__enter__()
        step = "the body"
        getattr(module, case["function"])(**case["arguments"], **{case["gives"]: given})
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
    if isinstance(error, Lacks):
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


def _write(descriptor: int, value: dict[str, Any]) -> None:
    data = json.dumps(value).encode() + b"\n"
    while data:
        data = data[os.write(descriptor, data) :]


def _read(said: bytes) -> dict[str, Any]:
    """Return the answer; a body that wrote into the pipe by accident has spoilt it."""
    try:
        answer = json.loads(said)
    except ValueError:
        answer = None
    if not isinstance(answer, dict) or "ended" not in answer:
        return {
            "ended": "error",
            "message": "its answer cannot be read: the body wrote to a strange descriptor",
        }
    return answer
