"""System-call cases: a test whose argument is ``here`` or ``blocks`` is run on the client, by the agent.

Rules:

1. The body never runs on this machine. When the first case's turn comes, it goes to the client in one round
   trip with all that follow it on the same variant, whatever their modules; each item then waits for its own
   answer and reports it. What is not such a case ends the round trip: nothing else runs beside one.
2. Such a body takes ``here`` (a directory of the case's own on the mount) or ``blocks`` (a range of its own
   on the device) and parameters that are JSON values, and nothing else.
3. A round trip ends before the locks of its first case are let go (:mod:`storagetest.plugin.case_guard` hands
   them on from case to case), and before the target is released, also after Ctrl-C.
4. A case marked ``alone`` runs while no other does.
5. A claim that does not hold, and a system call that is refused where it is to succeed, are failures. A case
   that hangs, dies or cannot be imported is an error: whether the target is dead is then asked for.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from storagetest.errors import WorkloadError
from storagetest.plugin.conformance import cases
from storagetest.plugin.conformance.client_calls import GIVEN, client_call, declared_arguments, same_batch
from storagetest.plugin.parametrize import item_variant
from storagetest.plugin.run_state import KEY
from storagetest.protocols.base import Attachment
from storagetest.runner.client_cases import ClientCase, ClientCaseBatch, ClientCaseResult, ClientCaseStatus

__all__ = ["ClientCaseRunner", "block_range", "client_dir"]

_UNDER_WAY = pytest.StashKey["ClientCaseRunner"]()
_AROUND = 4
"""Lines of the body that are shown before the one that broke."""

_LOST = {"EIO", "ENOTCONN", "EHOSTDOWN", "EHOSTUNREACH", "ETIMEDOUT", "ESTALE", "ECONNABORTED", "ECONNRESET"}
"""Errors after which the target is asked whether it still lives."""


class ClientCaseRunner:
    """What ``here`` and ``blocks`` are here: where the client has them, and what is under way there."""

    def __init__(self, attachment: Attachment) -> None:
        self.attachment = attachment
        self._under_way: ClientCaseBatch | None = None

    def answer(self, item: pytest.Function) -> ClientCaseResult:
        """Return the item's answer; it is sent with those that follow it, where it has not been."""
        if self._under_way is None or item.nodeid not in self._under_way:
            self.close()
            calls = list(_from(item))
            self._under_way = ClientCaseBatch(self.attachment.client, calls, place=self.attachment.path)
        return self._under_way.answer(item.nodeid)

    def close(self) -> None:
        """End what is under way."""
        if self._under_way is not None:
            self._under_way.close()
            self._under_way = None


@pytest.fixture(scope="session")
def client_dir(attachment: Attachment) -> Iterator[ClientCaseRunner]:
    """Run the case on the client, in an empty directory of its own on the mount (a :class:`pathlib.Path`)."""
    with closing(ClientCaseRunner(attachment)) as given:
        yield given


@pytest.fixture(scope="session")
def block_range(attachment: Attachment) -> Iterator[ClientCaseRunner]:
    """Run the case on the client, with a range of its own on the device."""
    with closing(ClientCaseRunner(attachment)) as given:
        yield given


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Refuse a body that cannot be sent."""
    for item in items:
        client_call(item)


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Have the client run it, where it takes ``here`` or ``blocks``."""
    given = next(
        (pyfuncitem.funcargs.get(name) for name in GIVEN if name in declared_arguments(pyfuncitem)), None
    )
    if not isinstance(given, ClientCaseRunner):
        return None
    pyfuncitem.config.stash[_UNDER_WAY] = given
    _conclude(pyfuncitem, given.answer(pyfuncitem), given.attachment)
    return True


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """End the round trip with the last of its cases, whether all were asked for or not."""
    given = item.config.stash.get(_UNDER_WAY, None)
    if given is not None and not same_batch(item, nextitem):
        given.close()


def _from(item: pytest.Function) -> Iterator[ClientCase]:
    """Yield the calls of this item and of those that follow it, up to the first that is none on this variant.

    A case that is run again follows those that have their answers: it is sent alone with what comes after it.
    """
    items = item.session.items
    previous: pytest.Item = item
    for other in items[items.index(item) :]:
        call = client_call(other)
        if call is None or not same_batch(previous, other):
            return
        if other is item or not other.get_closest_marker("skip"):
            yield call
        previous = other


def _conclude(item: pytest.Function, answer: ClientCaseResult, attachment: Attachment) -> None:
    __tracebackhide__ = True
    for what in answer.observed:
        cases.record_observation(item, what)
    cases.set_duration(item, answer.seconds)
    if answer.printed:
        item.add_report_section("call", "on client", answer.printed)
    where = f"on {attachment.client.name}, under {attachment.path}"
    if answer.ended is ClientCaseStatus.LACKS:
        # As pytest's own marks do: the skip is said to be the suite's, not this line's.
        raise pytest.skip.Exception(answer.message, _use_item_location=True)
    if answer.ended is ClientCaseStatus.FAILED:
        if answer.errno in _LOST:
            state, variant = item.config.stash[KEY], item_variant(item)
            state.check_alive(state.variants[variant or ""], attachment.client)
        pytest.fail(f"{answer.message}\n{_shown(item, answer)}\n{where}", pytrace=False)
    if answer.ended is not ClientCaseStatus.PASSED:
        shown = f"\n{_shown(item, answer)}" if answer.lines else ""
        raise WorkloadError(f"{item.originalname}: {answer.message}{shown}\n{where}")


def _shown(item: pytest.Item, answer: ClientCaseResult) -> str:
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
