"""System-call cases of a suite, run on a client by the agent: many in one round trip, answered as they end.

A case's module travels to the client as it stands (:mod:`storagetest.agent.commands.run_cases` says what happens
there). Rules:

1. Every case that was asked for has one answer. Where the client is lost, what it said before counts, and
   the others' answers say why there are none.
2. What breaks on the way is an answer, too (:attr:`Ended.ERROR`): it is for the caller to tell whose it is.
3. Cases go on while their answers are not asked for yet. Who stops asking closes the round trip, and what is
   under way on the client ends.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any

from storagetest.errors import CommandEnded, DeadlineExceeded, NotInstalled, StoragetestError, WorkloadError
from storagetest.hosts import Host, InteractiveProcess
from storagetest.hosts.undo_journal import agent_journal
from storagetest.workloads._agent.result import read_answer
from storagetest.workloads._agent.run import NO_PYTHON, open_agent_session

__all__ = ["EACH", "ClientCase", "ClientCaseBatch", "ClientCaseResult", "ClientCaseStatus", "run_cases"]

EACH = 30.0
"""Seconds that a case may take; an emulated client on a busy machine is slow."""

_SILENCE = 60.0
"""Seconds beside a case's own after which the agent, which speaks at the end of each, is taken to hang."""

_WHOLE = 4 * 3600.0
"""Seconds after which the agent ends wherever it is; it ends long before, when we hang up."""


class ClientCaseStatus(Enum):
    """How a case ended: see :mod:`storagetest.agent.commands.run_cases`."""

    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"
    HUNG = "hung"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class ClientCase:
    """One case: ``function`` of ``module``, called with ``arguments`` (JSON values) and what it is given.

    ``id`` is unique within a round trip; ``gives`` is ``here`` or ``blocks``. No other case runs beside one
    that is to be ``alone``.
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
    """What came of a case. ``lines`` are those of its module where it broke, the outermost first.

    ``errno`` is the name of a system call's error that broke it, ``observed`` the legal alternatives that
    were seen, ``printed`` what the body printed, ``seconds`` how long it took.
    """

    id: str
    ended: ClientCaseStatus
    message: str = ""
    lines: tuple[int, ...] = ()
    errno: str = ""
    observed: tuple[str, ...] = ()
    printed: str = ""
    seconds: float = 0.0


class ClientCaseBatch:
    """A round trip: ``calls`` in the directory or on the device ``place`` of ``host``.

    A case may take ``each`` seconds; ``beside`` is how many run at once, where it is not for what they are
    given to say. Use as a context manager, or call :meth:`close`: nothing is under way on the client then.
    For one thread.
    """

    def __init__(
        self, host: Host, calls: Sequence[ClientCase], *, place: str, each: float = EACH, beside: int = 0
    ) -> None:
        self._host, self._place, self._each = host, place, each
        self._asked = {call.id for call in calls}
        self._answers: dict[str, ClientCaseResult] = {}
        self._words: list[str] = []
        self._why = ""
        self._stack = ExitStack()
        self._talk: InteractiveProcess | None = None
        request = _request(calls, place, each, beside)
        try:
            self._talk = self._stack.enter_context(open_agent_session(host, request, deadline=_WHOLE))
        except StoragetestError as error:
            self._why = self._explained(error)

    def __enter__(self) -> ClientCaseBatch:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End what is under way. Safe to call twice."""
        self._why = self._why or "it was not begun, or not ended: nobody asked for its answer in time"
        self._talk = None
        with suppress(StoragetestError):  # a client that is lost, or hangs, is in the answers
            self._stack.close()

    def __contains__(self, case: str) -> bool:
        """Whether that case is one of these, and its answer has not been taken yet."""
        return case in self._asked

    def answer(self, case: str) -> ClientCaseResult:
        """Wait for the answer of a case, and take it."""
        while case not in self._answers and self._talk is not None:
            self._listen(self._talk)
        self._asked.discard(case)
        return self._answers.pop(case, None) or ClientCaseResult(case, ClientCaseStatus.ERROR, self._why)

    def _listen(self, talk: InteractiveProcess) -> None:
        """Hear one line."""
        try:
            line = talk.read_line(self._each + _SILENCE)
        except StoragetestError as error:
            self._why = self._explained(error)
            self.close()
            return
        answer = _answer(line)
        if answer is not None:
            if answer.id in self._asked:
                self._answers.setdefault(answer.id, answer)
            return
        self._words = [*self._words, line][-20:]
        if _is_last(line):
            self._why = "it was not begun: the cases before it hang, or the time for all was over"
            try:
                read_answer(line, "")
            except WorkloadError as error:
                self._why = f"{self._name}: {error}"
            self.close()

    @property
    def _name(self) -> str:
        return f"{self._host.name}: cases on {self._place}"

    def _explained(self, error: StoragetestError) -> str:
        if isinstance(error, DeadlineExceeded):
            return f"{self._name}: the agent fell silent. The target may hang: look at the client's dmesg"
        if isinstance(error, NotInstalled):
            return f"{self._name}: {NO_PYTHON}"
        if isinstance(error, CommandEnded):
            return f"{self._name}: the agent ended without a result: it was killed\n{error}"
        return str(error)


def run_cases(
    host: Host, calls: Sequence[ClientCase], *, place: str, each: float = EACH, beside: int = 0
) -> list[ClientCaseResult]:
    """Run ``calls`` on ``host`` as :class:`CasesUnderWay` does; return their answers in order."""
    with ClientCaseBatch(host, calls, place=place, each=each, beside=beside) as under_way:
        return [under_way.answer(call.id) for call in calls]


def _request(calls: Sequence[ClientCase], place: str, each: float, beside: int) -> dict[str, Any]:
    """Build the agent's request. What a case that dies leaves is in nobody's way: names are new each time."""
    batch = secrets.token_hex(3)
    files = dict.fromkeys(call.module for call in calls)
    modules = {str(file): {"file": str(file), "source": file.read_text(encoding="utf-8")} for file in files}
    cases = [
        {
            "id": call.id,
            "module": str(call.module),
            "function": call.function,
            "arguments": dict(call.arguments),
            "fixture": call.fixture,
            "argument": call.argument or call.fixture,
            "exclusive": call.exclusive,
            "index": index,
            "name": f"{batch}-{index}",
        }
        for index, call in enumerate(calls)
    ]
    what = {"path": place, "timeout": each, "concurrency": beside, "modules": modules, "cases": cases}
    return {
        "command": "run_cases",
        "deadline": _WHOLE,
        "end_on_eof": True,
        "journal": agent_journal(),
        **what,
    }


def _is_last(line: str) -> bool:
    """Whether it is the agent's last word."""
    try:
        return json.loads(line).get("t") in {"result", "error"}
    except (ValueError, AttributeError):
        return False


def _answer(line: str) -> ClientCaseResult | None:
    """Return the answer that a line of the agent's is, if it is one."""
    try:
        said = json.loads(line)
        return ClientCaseResult(
            id=said["case"],
            ended=ClientCaseStatus(said["ended"]),
            message=str(said.get("message", "")),
            lines=tuple(int(number) for number in said.get("lines", ())),
            errno=str(said.get("errno", "")),
            observed=tuple(str(what) for what in said.get("observed", ())),
            printed=str(said.get("printed", "")),
            seconds=float(said.get("seconds", 0.0)),
        )
    except (ValueError, KeyError, TypeError):
        return None  # another line of progress, or somebody else's words
