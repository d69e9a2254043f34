"""System-call cases: a test whose argument is ``here`` or ``blocks`` is run on the client, by the agent.

Rules:

1. The body never runs on this machine. All cases of its module that are selected for the same variant go to
   the client in one round trip when the first one's turn comes; each item then reports its own answer.
2. Such a body takes ``here`` (a directory of the case's own on the mount) or ``blocks`` (a range of its own
   on the device) and parameters that are JSON values, and nothing else.
3. A claim that does not hold, and a system call that is refused where it is to succeed, are failures. A case
   that hangs, dies or cannot be imported is an error: whether the target is dead is then asked for.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from storagetest.errors import WorkloadError
from storagetest.plugin import conformance
from storagetest.plugin.matrix import item_variant
from storagetest.plugin.state import KEY
from storagetest.protocols.base import Attachment
from storagetest.runner.cases import CaseAnswer, CaseCall, Ended, run_cases

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Given", "blocks", "call_of", "here"]

_ANSWERS = pytest.StashKey[dict[str, CaseAnswer]]()
_SENT = pytest.StashKey[set[tuple[Path, str]]]()
_GIVEN = ("here", "blocks")
_AROUND = 4
"""Lines of the body that are shown before the one that broke."""

_LOST = {"EIO", "ENOTCONN", "EHOSTDOWN", "EHOSTUNREACH", "ETIMEDOUT", "ESTALE", "ECONNABORTED", "ECONNRESET"}
"""Errors after which the target is asked whether it still lives."""


@dataclass(frozen=True, slots=True)
class Given:
    """What ``here`` and ``blocks`` are on this machine: where the client has them."""

    attachment: Attachment


@pytest.fixture(scope="session")
def here(attachment: Attachment) -> Given:
    """Run the case on the client, in an empty directory of its own on the mount (a :class:`pathlib.Path`)."""
    return Given(attachment)


@pytest.fixture(scope="session")
def blocks(attachment: Attachment) -> Given:
    """Run the case on the client, with a range of its own on the device."""
    return Given(attachment)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Refuse a body that cannot be sent."""
    for item in items:
        call_of(item)


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Have the client run it, where it takes ``here`` or ``blocks``."""
    given = next((pyfuncitem.funcargs.get(name) for name in _GIVEN if name in _named(pyfuncitem)), None)
    if not isinstance(given, Given):
        return None
    answer = _answer(pyfuncitem, given.attachment)
    _conclude(pyfuncitem, answer, given.attachment)
    return True


def call_of(item: pytest.Item) -> CaseCall | None:
    """Return the call that ``item`` is on a client, or None where it runs here.

    Raises :class:`pytest.UsageError` where it takes what cannot be sent there.
    """
    if not isinstance(item, pytest.Function):
        return None
    names = _named(item)
    gives = [name for name in names if name in _GIVEN and _is_ours(item, name)]
    if not gives:
        return None
    callspec = getattr(item, "callspec", None)
    arguments = {name: callspec.params[name] for name in names if callspec and name in callspec.params}
    strange = [name for name in names if name not in {*arguments, gives[0]}]
    if strange or item.cls is not None:
        raise pytest.UsageError(
            f"{item.nodeid}: a body that runs on a client is a function of `{gives[0]}` and of parameters; "
            f"this one {'takes ' + ', '.join(strange) if strange else 'stands in a class'}"
        )
    try:
        json.dumps(arguments)
    except (TypeError, ValueError) as error:
        raise pytest.UsageError(
            f"{item.nodeid}: its parameters cannot be sent to a client: {error}"
        ) from None
    return CaseCall(item.nodeid, item.path, item.originalname, arguments, gives[0])


def _named(item: pytest.Function) -> tuple[str, ...]:
    return item._fixtureinfo.argnames  # noqa: SLF001  # what the function itself names; there is no other way


def _is_ours(item: pytest.Function, name: str) -> bool:
    """Whether the fixture is this module's, and not a suite's own of the same name."""
    definitions = item._fixtureinfo.name2fixturedefs.get(name, ())  # noqa: SLF001  # as above
    return bool(definitions) and definitions[-1].func.__module__ == __name__


def _answer(item: pytest.Function, attachment: Attachment) -> CaseAnswer:
    """Return the item's answer; its module's cases are sent to the client where they have not been."""
    answers = item.config.stash.setdefault(_ANSWERS, {})
    sent = item.config.stash.setdefault(_SENT, set())
    batch = (item.path, item_variant(item) or "")
    calls = [call for call in map(call_of, [item]) if call]
    if batch not in sent:
        sent.add(batch)
        calls = [call for call in map(call_of, _siblings(item)) if call]
    if item.nodeid not in answers:  # a case that is run again is run alone
        answers.update(
            (answer.id, answer) for answer in run_cases(attachment.client, calls, place=attachment.path)
        )
    return answers.pop(item.nodeid)


def _siblings(item: pytest.Function) -> Iterator[pytest.Item]:
    """Yield the items of this one's module and variant that are going to run."""
    for other in item.session.items:
        same = other.path == item.path and item_variant(other) == item_variant(item)
        if same and (other is item or not other.get_closest_marker("skip")):
            yield other


def _conclude(item: pytest.Function, answer: CaseAnswer, attachment: Attachment) -> None:
    __tracebackhide__ = True
    for what in answer.observed:
        conformance.observed(item, what)
    conformance.took(item, answer.seconds)
    if answer.printed:
        item.add_report_section("call", "on client", answer.printed)
    where = f"on {attachment.client.name}, under {attachment.path}"
    if answer.ended is Ended.LACKS:
        # As pytest's own marks do: the skip is said to be the suite's, not this line's.
        raise pytest.skip.Exception(answer.message, _use_item_location=True)
    if answer.ended is Ended.FAILED:
        if answer.errno in _LOST:
            state, variant = item.config.stash[KEY], item_variant(item)
            state.check_alive(state.variants[variant or ""], attachment.client)
        pytest.fail(f"{answer.message}\n{_shown(item, answer)}\n{where}", pytrace=False)
    if answer.ended is not Ended.PASSED:
        shown = f"\n{_shown(item, answer)}" if answer.lines else ""
        raise WorkloadError(f"{item.originalname}: {answer.message}{shown}\n{where}")


def _shown(item: pytest.Item, answer: CaseAnswer) -> str:
    """Return the lines of the body up to the one that broke, which is marked."""
    if not answer.lines:
        return ""
    lines = item.path.read_text(encoding="utf-8").splitlines()
    blocks = []
    for broken in answer.lines:
        first = max(1, broken - _AROUND)
        while first < broken and not lines[first - 1].strip():
            first += 1
        rows = [
            f"{'>' if number == broken else ' '} {lines[number - 1]}" for number in range(first, broken + 1)
        ]
        blocks.append("\n".join([f"{item.path.name}:{broken}:", *rows]))
    return "\n".join(blocks)
