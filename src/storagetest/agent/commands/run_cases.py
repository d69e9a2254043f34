"""Run a suite's system-call cases, several at once, each with its own fixture, and report each at its end.

The request has ``modules`` (name → ``file``, ``source``, and ``magic`` and ``code`` of
:func:`~storagetest.agent.testlib.assert_rewrite.pack_code`), ``cases`` (each with ``id``, ``module``,
``function``, ``arguments``, ``fixture``: a module of :mod:`storagetest.agent.testlib.fixtures`, ``argument``:
the name of the parameter that takes the fixture, ``index``, ``name``, ``exclusive``), ``path`` (the directory
or device) and ``timeout`` (seconds per case). ``concurrency`` is the number of cases at once; the default is
the smallest ``CONCURRENCY`` of the fixtures. With ``end_on_eof`` the command ends when stdin does.
``journal`` configures undo entries (:mod:`storagetest.agent.undo`).

At the end of each case there is a progress message: ``case`` (its id), ``ended`` (see below), ``message``,
``lines`` (line numbers in its module of the traceback, the outermost first), ``errno`` (a name, if a system
call's error ended the case), ``observed``, ``printed`` and ``seconds``.

======= ===========================================================================================
passed  the body returned
failed  an assertion failed, or a system call that has to succeed raised an error
skipped the case cannot run here, or is not started because of others that hang
hung    a call did not return within the case's timeout
slow    calls returned, but not the body, within :data:`~storagetest.agent.case_worker.LONGEST` times it
error   anything else: the process died, another exception, or the module cannot be imported here
======= ===========================================================================================

Rules:

1. This process never accesses the target: a case that hangs is killed. If its process cannot be killed (it is
   stuck in the kernel), it is left behind. After three such cases no other case is started; after three that
   were hung or slow, no other case of their module. Those are skipped, because of the ones that they name.
2. Cases start in their order. An ``exclusive`` case starts when no other case runs, and no case starts while
   it runs.
"""

from __future__ import annotations

import gc
import importlib
import os
import select
import sys
import time
from collections import defaultdict, deque
from contextlib import suppress
from types import ModuleType
from typing import Any

from storagetest.agent import undo
from storagetest.agent.case_worker import CaseWorker
from storagetest.agent.command_context import CommandContext
from storagetest.agent.testlib import pytest_stub
from storagetest.agent.testlib.assert_rewrite import EXPLAIN, explain, unpack_code

_MAX_HUNG = 3
"""Cases that hang, in a module or in the kernel, after which others are not started (chosen)."""

_POLL_INTERVAL = 0.25
"""Seconds between two checks for processes that have died without a result."""


def run(request: dict[str, Any], context: CommandContext) -> dict[str, Any]:
    """Run the cases in their order; return the number of started cases (``begun``)."""
    sys.modules["pytest"] = pytest_stub
    undo.configure(request.get("journal", {}))
    modules = {name: _imported(**module) for name, module in request["modules"].items()}
    names = {case["fixture"] for case in request["cases"]}
    fixtures = [importlib.import_module(f"storagetest.agent.testlib.fixtures.{name}") for name in names]
    with suppress(ImportError):  # imported once here instead of in each case's process
        import ctypes  # noqa: F401, PLC0415  # not every minimal Python has it
    gc.freeze()
    concurrency = request.get("concurrency") or min((fixture.CONCURRENCY for fixture in fixtures), default=1)
    pool = _CasePool(request, context, modules, concurrency)
    try:
        pool.run()
    finally:
        pool.close()
    return {"begun": pool.begun}


class _CasePool:
    """The worker processes, and the cases that wait for one. ``begun`` counts the started cases."""

    def __init__(
        self,
        request: dict[str, Any],
        context: CommandContext,
        modules: dict[str, ModuleType | str],
        concurrency: int,
    ) -> None:
        self.begun = 0
        self._context, self._concurrency = context, concurrency
        self._path, self._timeout = request["path"], request["timeout"]
        self._end_on_eof = bool(request.get("end_on_eof"))
        self._modules = {name: module for name, module in modules.items() if isinstance(module, ModuleType)}
        self._import_errors = {name: error for name, error in modules.items() if isinstance(error, str)}
        self._waiting = deque(request["cases"])
        self._hung: defaultdict[str, list[str]] = defaultdict(list)
        self._idle: list[CaseWorker] = []
        self._busy: list[CaseWorker] = []
        self._stuck: list[str] = []

    def run(self) -> None:
        """Return when every started case has ended and no further one may start."""
        while True:
            while self._waiting and self._may_start(self._waiting[0]):
                self._start(self._waiting.popleft())
            if not self._busy:
                return
            self._wait()
            for process in list(self._busy):
                self._check(process)

    def close(self) -> None:
        """Kill all processes."""
        for process in [*self._busy, *self._idle]:
            process.close()

    def _may_start(self, case: dict[str, Any]) -> bool:
        if time.monotonic() + self._timeout >= self._context.until:
            self._waiting.clear()
            return False
        running = [process.case for process in self._busy if process.case]
        exclusive = any(each.get("exclusive") for each in [case, *running])
        return len(self._busy) < (1 if exclusive else self._concurrency)

    def _start(self, case: dict[str, Any]) -> None:
        for hung in (self._stuck, self._hung[case["module"]]):
            if len(hung) >= _MAX_HUNG:
                message = f"it was not started, because others did not end: {', '.join(hung)}"
                self._context.progress(case=case["id"], ended="skipped", message=message)
                return
        self.begun += 1
        if case["module"] in self._import_errors:
            self._context.progress(
                case=case["id"], ended="error", message=self._import_errors[case["module"]]
            )
            return
        process = self._idle.pop() if self._idle else CaseWorker(self._modules, self._path, self._busy)
        self._busy.append(process)
        process.submit(case, self._timeout)

    def _wait(self) -> None:
        """Wait until a process may have a result."""
        poll = select.poll()
        for process in self._busy:
            poll.register(process.results, select.POLLIN)
        if self._end_on_eof:
            poll.register(0, select.POLLIN)
        left = min(process.until for process in self._busy) - time.monotonic()
        for descriptor, _ in poll.poll(max(0.0, min(left, _POLL_INTERVAL)) * 1000):
            if self._end_on_eof and descriptor == 0 and not os.read(0, 1 << 12):
                self._waiting.clear()
                self.close()
                self._busy, self._idle = [], []

    def _check(self, process: CaseWorker) -> None:
        case = process.case
        result = process.poll_result()
        if case is None or result is None:
            return
        self._busy.remove(process)
        if not result.pop("spent", False):
            self._idle.append(process)
        name = case["id"].rpartition("::")[2]
        if result["ended"] in ("hung", "slow"):
            self._hung[case["module"]].append(name)
        if result.get("stuck"):
            self._stuck.append(name)
        self._context.progress(case=case["id"], **result)


def _imported(*, file: str, source: str, magic: str = "", code: str = "") -> ModuleType | str:
    """Return the module made from ``code`` or ``source``, or the reason why it cannot be imported."""
    name = os.path.basename(file).rpartition(".")[0]
    module = ModuleType(name)
    module.__dict__.update({"__file__": file, EXPLAIN: explain})
    sys.modules[name] = module
    try:
        exec(unpack_code(source, file, magic, code), module.__dict__)  # noqa: S102  # the suite's own module
    except Exception as error:  # any exception of the module's code
        python = ".".join(map(str, sys.version_info[:2]))
        return f"{file} cannot be imported here (Python {python}): {type(error).__name__}: {error}"
    return module
