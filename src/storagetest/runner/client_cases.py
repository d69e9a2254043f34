"""Run the system call cases of a suite on a client by the agent: a batch of cases in one round trip.

The source of a case's module is sent to the client (:mod:`storagetest.agent.commands.run_cases`). Rules:

1. Every case of a batch has one result. If the client is lost, results received before count, and the other
   cases get a result that states the reason.
2. An error on the way is a result too (:attr:`ClientCaseStatus.ERROR`); the caller decides whose error it is.
3. The agent runs the cases whether or not their results are read. Closing the batch ends what still runs on
   the client.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any

from storagetest.agent.case_worker import LONGEST
from storagetest.agent.testlib.assert_rewrite import pack_code
from storagetest.errors import CommandEnded, DeadlineExceeded, NotInstalled, StoragetestError, WorkloadError
from storagetest.hosts import Host, InteractiveProcess
from storagetest.hosts.undo_journal import agent_journal
from storagetest.workloads._agent.result import read_result
from storagetest.workloads._agent.run import NO_PYTHON, open_agent_session

CASE_TIMEOUT = 30.0
"""Timeout in seconds of one call of a case; the whole case may take ``LONGEST`` times as long."""

_MARGIN = 60.0
"""Seconds beyond a case's timeout after which the agent is taken to hang; it reports at the end of each case.
"""

_LIFETIME = 4 * 3600.0
"""Deadline in seconds of the agent. It ends long before, when its session is closed."""


class ClientCaseStatus(Enum):
    """Status of a case as the agent reports it: see :mod:`storagetest.agent.commands.run_cases`."""

    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"
    HUNG = "hung"
    SLOW = "slow"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class ClientCase:
    """One case: ``function`` of ``module``, called with ``arguments`` (JSON values) and its ``fixture``.

    ``id`` is unique in its batch. ``fixture`` is a module of :mod:`storagetest.agent.testlib.fixtures`, and
    ``argument`` the parameter that takes it (default: of the same name). No other case runs at the same time
    as an ``exclusive`` one.
    """

    id: str
    module: Path
    function: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    fixture: str = "client_dir"
    exclusive: bool = False
    argument: str = ""


@dataclass(frozen=True, slots=True)
class ClientCaseResult:
    """Result of one case. ``lines`` are those of its module in the traceback, the outermost first.

    ``errno`` is the name of the system call's error that ended it, ``observed`` the recorded legal
    alternatives, ``printed`` the output of the body, ``seconds`` the duration. ``faults`` are the rules that
    the directory broke after the case, with what was found (:mod:`storagetest.agent.testlib.consistency`).
    """

    id: str
    status: ClientCaseStatus
    message: str = ""
    lines: tuple[int, ...] = ()
    errno: str = ""
    observed: tuple[str, ...] = ()
    printed: str = ""
    seconds: float = 0.0
    faults: Mapping[str, str] = field(default_factory=dict)


class ClientCaseBatch:
    """One batch: ``calls`` in the directory or on the device ``path`` of ``host``.

    ``timeout`` is that of one case in seconds; ``concurrency`` is how many run at the same time (0: the
    fixture decides). Use as a context manager, or call :meth:`close`: nothing runs on the client afterwards.
    Not thread-safe.
    """

    def __init__(
        self,
        host: Host,
        calls: Sequence[ClientCase],
        *,
        path: str,
        timeout: float = CASE_TIMEOUT,
        concurrency: int = 0,
    ) -> None:
        self._host, self._path, self._timeout = host, path, timeout
        self._pending = {call.id for call in calls}
        self._results: dict[str, ClientCaseResult] = {}
        self._tail: list[str] = []
        self._reason = ""
        self._stack = ExitStack()
        self._process: InteractiveProcess | None = None
        request = _request(calls, path, timeout, concurrency)
        try:
            self._process = self._stack.enter_context(open_agent_session(host, request, deadline=_LIFETIME))
        except StoragetestError as error:
            self._reason = self._explain_error(error)

    def __enter__(self) -> ClientCaseBatch:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End what still runs on the client. Safe to call twice."""
        self._reason = self._reason or "it did not run, or did not end before the batch was closed"
        self._process = None
        with suppress(StoragetestError):  # a client that is lost or hangs is in the results
            self._stack.close()

    def __contains__(self, case: str) -> bool:
        """Whether the result of ``case`` is still to be read."""
        return case in self._pending

    def wait_result(self, case: str) -> ClientCaseResult:
        """Wait for the result of ``case`` and return it; it is then no longer in the batch."""
        result = self.peek(case)
        self._pending.discard(case)
        self._results.pop(case, None)
        return result

    def peek(self, case: str) -> ClientCaseResult:
        """Wait for the result of ``case`` and return it; it stays in the batch."""
        while case not in self._results and self._process is not None:
            self._read_line(self._process)
        return self._results.get(case) or ClientCaseResult(case, ClientCaseStatus.ERROR, self._reason)

    def arrived(self) -> list[ClientCaseResult]:
        """Return the results that have arrived and are still in the batch, in the order of their arrival."""
        return list(self._results.values())

    def _read_line(self, process: InteractiveProcess) -> None:
        """Read one line of the agent's output."""
        try:
            line = process.read_line(LONGEST * self._timeout + _MARGIN)
        except StoragetestError as error:
            self._reason = self._explain_error(error)
            self.close()
            return
        result = _parse_result(line)
        if result is not None:
            if result.id in self._pending:
                self._results.setdefault(result.id, result)
            return
        self._tail = [*self._tail, line][-20:]
        if _is_last(line):
            self._reason = "it did not run: the deadline of the batch passed"
            try:
                read_result(line, "")
            except WorkloadError as error:
                self._reason = f"{self._name}: {error}"
            self.close()

    @property
    def _name(self) -> str:
        return f"{self._host.name}: cases on {self._path}"

    def _explain_error(self, error: StoragetestError) -> str:
        if isinstance(error, DeadlineExceeded):
            return f"{self._name}: no output of the agent. The target may hang: look at the client's dmesg"
        if isinstance(error, NotInstalled):
            return f"{self._name}: {NO_PYTHON}"
        if isinstance(error, CommandEnded):
            return f"{self._name}: the agent ended without a result: it was killed\n{error}"
        return str(error)


def run_cases(
    host: Host, calls: Sequence[ClientCase], *, path: str, timeout: float = CASE_TIMEOUT, concurrency: int = 0
) -> list[ClientCaseResult]:
    """Run ``calls`` on ``host`` in one :class:`ClientCaseBatch`; return their results in order."""
    with ClientCaseBatch(host, calls, path=path, timeout=timeout, concurrency=concurrency) as under_way:
        return [under_way.wait_result(call.id) for call in calls]


def _request(calls: Sequence[ClientCase], path: str, timeout: float, concurrency: int) -> dict[str, Any]:
    """Build the agent's request. Names are new in each batch, so leftovers of a killed case do not matter."""
    batch = secrets.token_hex(3)
    files = dict.fromkeys(call.module for call in calls)
    sources = {str(file): file.read_text(encoding="utf-8") for file in files}
    modules = {
        file: {"file": file, "source": source, **pack_code(source, file)} for file, source in sources.items()
    }
    cases = [
        {
            **asdict(call),
            "module": str(call.module),
            "argument": call.argument or call.fixture,
            "index": index,
            "name": f"{batch}-{index}",
        }
        for index, call in enumerate(calls)
    ]
    return {
        "command": "run_cases",
        "deadline": _LIFETIME,
        "end_on_eof": True,
        "journal": agent_journal(),
        "path": path,
        "timeout": timeout,
        "concurrency": concurrency,
        "modules": modules,
        "cases": cases,
    }


def _is_last(line: str) -> bool:
    """Whether ``line`` is the agent's result or error, which is its last line."""
    try:
        return json.loads(line).get("t") in {"result", "error"}
    except (ValueError, AttributeError):
        return False


def _parse_result(line: str) -> ClientCaseResult | None:
    """Return the result of a case that ``line`` holds; None if it holds none."""
    try:
        report = json.loads(line)
        return ClientCaseResult(
            id=report["case"],
            status=ClientCaseStatus(report["ended"]),
            message=str(report.get("message", "")),
            lines=tuple(int(number) for number in report.get("lines", ())),
            errno=str(report.get("errno", "")),
            observed=tuple(map(str, report.get("observed", ()))),
            printed=str(report.get("printed", "")),
            seconds=float(report.get("seconds", 0.0)),
            faults={str(rule): str(found) for rule, found in report.get("faults", {}).items()},
        )
    except (ValueError, KeyError, TypeError):
        return None  # another line of progress, or of another program
