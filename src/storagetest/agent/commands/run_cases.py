"""System-call cases of a suite: each in a place of its own, several at once, answered as they end.

The request has ``modules`` (name → ``file`` and ``source``), ``cases`` (each with ``id``, ``module``,
``function``, ``arguments``, ``fixture``: a module of :mod:`storagetest.agent.testlib.fixtures`, ``argument``: the
name of the parameter that takes the fixture,
``index``, ``name``, ``alone``), ``path`` (the directory or device) and ``each`` (seconds that a case may
take). With ``beside`` it says how many run at once, else what they are given does. Where it is ``attended``,
it ends when stdin does. ``journal`` says how a case writes undo entries (:mod:`storagetest.agent.undo`).

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

1. This process never touches the target: a case that hangs is killed. One that cannot be killed (it is stuck
   in the kernel) is left and ends the whole. Three that hang end their module.
2. Cases begin in their order. One that is to be ``alone`` waits until none is under way, and none begins
   beside it.
"""

from __future__ import annotations

import gc
import importlib
import os
import select
import sys
import time
from collections import Counter, deque
from contextlib import suppress
from types import ModuleType
from typing import Any

from storagetest.agent import undo
from storagetest.agent.case_worker import CaseWorker
from storagetest.agent.command_context import CommandContext
from storagetest.agent.testlib import pytest_stub
from storagetest.agent.testlib.assert_rewrite import EXPLAIN, compiled, explain

__all__ = ["run"]

_HUNG = 3
"""Cases of a module that may hang before the rest of it is left alone."""

_LOOK = 0.25
"""Seconds between two looks for processes that have died in silence."""


def run(request: dict[str, Any], job: CommandContext) -> dict[str, Any]:
    """Run the cases in their order; return how many were begun."""
    sys.modules["pytest"] = pytest_stub
    undo.configure(request.get("journal", {}))
    found = {name: _imported(**said) for name, said in request["modules"].items()}
    givers = {case["fixture"] for case in request["cases"]}
    given = [importlib.import_module(f"storagetest.agent.testlib.fixtures.{name}") for name in givers]
    with suppress(ImportError):  # what the cases' processes need is imported once
        import ctypes  # noqa: F401, PLC0415  # not every minimal Python has it
    gc.freeze()
    beside = request.get("concurrency") or min((giver.BESIDE for giver in given), default=1)
    crowd = _CasePool(request, job, found, beside)
    try:
        crowd.run()
    finally:
        crowd.close()
    return {"begun": crowd.begun}


class _CasePool:
    """The processes, and the cases that wait for one. ``begun`` counts those that wait no more."""

    def __init__(
        self, request: dict[str, Any], job: CommandContext, found: dict[str, ModuleType | str], beside: int
    ) -> None:
        self.begun = 0
        self._job, self._beside = job, beside
        self._path, self._each = request["path"], request["timeout"]
        self._attended = bool(request.get("end_on_eof"))
        self._modules = {name: one for name, one in found.items() if isinstance(one, ModuleType)}
        self._broken = {name: one for name, one in found.items() if isinstance(one, str)}
        self._waiting = deque(request["cases"])
        self._hung: Counter[str] = Counter()
        self._idle: list[CaseWorker] = []
        self._busy: list[CaseWorker] = []
        self._left_alone = False

    def run(self) -> None:
        """Return when every case has ended, or the rest is left alone."""
        while True:
            while self._waiting and self._may_begin(self._waiting[0]):
                self._begin(self._waiting.popleft())
            if not self._busy:
                return
            self._wait()
            for process in list(self._busy):
                self._look_at(process)

    def close(self) -> None:
        """Kill what is under way."""
        for process in [*self._busy, *self._idle]:
            process.close()

    def _may_begin(self, case: dict[str, Any]) -> bool:
        if self._left_alone or time.monotonic() >= self._job.until:
            self._waiting.clear()
            return False
        alone = case.get("exclusive") or any(one.case.get("exclusive") for one in self._busy if one.case)
        return len(self._busy) < (1 if alone else self._beside)

    def _begin(self, case: dict[str, Any]) -> None:
        if self._hung[case["module"]] >= _HUNG:
            return
        self.begun += 1
        if case["module"] in self._broken:
            self._job.progress(case=case["id"], ended="error", message=self._broken[case["module"]])
            return
        sisters = [*self._busy, *self._idle]
        process = self._idle.pop() if self._idle else CaseWorker(self._modules, self._path, sisters)
        self._busy.append(process)
        process.submit(case, min(self._each, self._job.until - time.monotonic()))

    def _wait(self) -> None:
        """Return when there may be something to look at."""
        poll = select.poll()
        for process in self._busy:
            poll.register(process.answers, select.POLLIN)
        if self._attended:
            poll.register(0, select.POLLIN)
        left = min(process.until for process in self._busy) - time.monotonic()
        for descriptor, _ in poll.poll(max(0.0, min(left, _LOOK)) * 1000):
            if self._attended and descriptor == 0 and not os.read(0, 1 << 12):
                self._waiting.clear()
                self.close()
                self._busy, self._idle = [], []

    def _look_at(self, process: CaseWorker) -> None:
        case = process.case
        answer = process.poll_result()
        if case is None or answer is None:
            return
        self._busy.remove(process)
        if not answer.pop("spent", False):
            self._idle.append(process)
        self._hung[case["module"]] += answer["ended"] == "hung"
        self._left_alone |= bool(answer.get("stuck"))
        self._job.progress(case=case["id"], **answer)


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
