"""System-call cases of a suite, run on a client by the agent: many in one round trip.

A case's module travels to the client as it stands (:mod:`storagetest.agent.commands.cases` says what happens
there). Rules:

1. Every case that was asked for has one answer. Where the client is lost, what it said before counts, and
   the others' answers say why there are none.
2. What breaks on the way is an answer, too (:attr:`Ended.ERROR`): it is for the caller to tell whose it is.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any

from storagetest.errors import StoragetestError
from storagetest.hosts import Host
from storagetest.workloads._agent.run import run_agent

__all__ = ["EACH", "CaseAnswer", "CaseCall", "Ended", "run_cases"]

EACH = 30.0
"""Seconds that a case may take; an emulated client on a busy machine is slow."""

_HUNG = 3
"""Cases that may hang before the agent stops."""

_USUAL = 2.0
"""Seconds that a case takes at most where none hangs, on the slowest client thought of."""


class Ended(Enum):
    """How a case ended: see :mod:`storagetest.agent.commands.cases`."""

    PASSED = "passed"
    FAILED = "failed"
    LACKS = "lacks"
    HUNG = "hung"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class CaseCall:
    """One case: ``function`` of ``module``, called with ``arguments`` (JSON values) and what it is given.

    ``id`` is unique within a round trip; ``gives`` is ``here`` or ``blocks``.
    """

    id: str
    module: Path
    function: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    gives: str = "here"


@dataclass(frozen=True, slots=True)
class CaseAnswer:
    """What came of a case. ``lines`` are those of its module where it broke, the outermost first.

    ``errno`` is the name of a system call's error that broke it, ``observed`` the legal alternatives that
    were seen, ``printed`` what the body printed, ``seconds`` how long it took.
    """

    id: str
    ended: Ended
    message: str = ""
    lines: tuple[int, ...] = ()
    errno: str = ""
    observed: tuple[str, ...] = ()
    printed: str = ""
    seconds: float = 0.0


def run_cases(
    host: Host,
    calls: Sequence[CaseCall],
    *,
    place: str,
    each: float = EACH,
    on_answer: Callable[[CaseAnswer], None] | None = None,
) -> list[CaseAnswer]:
    """Run ``calls`` on ``host`` in the directory or on the device ``place``; return their answers in order.

    A case may take ``each`` seconds. ``on_answer`` is called with each answer as it comes.
    """
    answers: dict[str, CaseAnswer] = {}

    def take(line: str) -> None:
        answer = _answer(line)
        if answer is not None and answer.id not in answers:
            answers[answer.id] = answer
            if on_answer is not None:
                on_answer(answer)

    why = "it was not begun: the cases before it hang, or the time for all was over"
    deadline = _HUNG * each + _USUAL * len(calls) + each
    try:
        run_agent(host, _request(calls, place, each), deadline=deadline, on_line=take)
    except StoragetestError as error:
        why = str(error)
    return [answers.get(call.id) or CaseAnswer(call.id, Ended.ERROR, why) for call in calls]


def _request(calls: Sequence[CaseCall], place: str, each: float) -> dict[str, Any]:
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
            "gives": call.gives,
            "index": index,
            "name": f"{batch}-{index}",
        }
        for index, call in enumerate(calls)
    ]
    return {"command": "cases", "path": place, "each": each, "modules": modules, "cases": cases}


def _answer(line: str) -> CaseAnswer | None:
    """Return the answer that a line of the agent's is, if it is one."""
    try:
        said = json.loads(line)
        return CaseAnswer(
            id=said["case"],
            ended=Ended(said["ended"]),
            message=str(said.get("message", "")),
            lines=tuple(int(number) for number in said.get("lines", ())),
            errno=str(said.get("errno", "")),
            observed=tuple(str(what) for what in said.get("observed", ())),
            printed=str(said.get("printed", "")),
            seconds=float(said.get("seconds", 0.0)),
        )
    except (ValueError, KeyError, TypeError):
        return None  # another line of progress, or somebody else's words
