"""System-call cases: a test that takes ``client_dir`` or ``block_range`` is run on the client, by the agent.

Rules:

1. The body never runs on this machine. When the first case's turn comes, it goes to the client in one round
   trip with all that follow it on the same variant, whatever their modules; each item then waits for its own
   answer and reports it. What is not such a case ends the round trip: nothing else runs beside one. A worker
   of xdist sends only cases that it will run itself: those in its queue, unless another worker may take them
   from there (``--dist worksteal``); then only the next one.
2. Such a body takes ``client_dir`` (a directory of the case's own on the mount) or ``block_range`` (a range
   of its own on the device) and parameters that are JSON values, and nothing else.
3. The locks of a round trip's first case (:mod:`storagetest.plugin.case_guard`) are held until it has ended,
   and it ends before the target is released, also after Ctrl-C.
4. A case marked ``exclusive`` runs while no other does, in this process or another: its server is locked
   exclusively, and a round trip has either only such cases or none.
5. A claim that does not hold, and a system call that is refused where it is to succeed, are failures. A case
   that hangs, dies or cannot be imported is an error: whether the target is dead is then asked for.
"""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest

from storagetest.errors import WorkloadError
from storagetest.plugin.conformance import cases
from storagetest.plugin.fixtures import core, deprecated
from storagetest.plugin.parametrize import item_variant
from storagetest.plugin.run_state import KEY
from storagetest.protocols.base import Attachment
from storagetest.runner.client_cases import ClientCase, ClientCaseBatch, ClientCaseResult, ClientCaseStatus

__all__ = ["DIST", "ClientCaseRunner", "client_call", "is_exclusive", "under_way"]

DIST = "storagetest_dist"
"""The key of a worker's input under which xdist's controller gives it the value of ``--dist``."""

_FIXTURES = {
    "client_dir": "client_dir",
    "block_range": "block_range",
    "here": "client_dir",
    "blocks": "block_range",
}
"""The fixtures that stand for a directory or a range of blocks on the client, by all their names."""

_NEVER_WITHDRAWN = {"load", "each", "loadscope", "loadfile", "loadgroup"}
"""Values of ``--dist`` with which a case in a worker's queue stays there until the worker runs it."""

_NEXT = pytest.StashKey[pytest.Item | None]()
_UNDER_WAY = pytest.StashKey["ClientCaseRunner"]()
_AROUND = 4
"""Lines of the body that are shown before the one that broke."""

_LOST = {"EIO", "ENOTCONN", "EHOSTDOWN", "EHOSTUNREACH", "ETIMEDOUT", "ESTALE", "ECONNABORTED", "ECONNRESET"}
"""Errors after which the target is asked whether it still lives."""


class ClientCaseRunner:
    """The value of the fixtures ``client_dir`` and ``block_range``: runs cases on the client, in batches."""

    def __init__(self, attachment: Attachment) -> None:
        self.attachment = attachment
        self._under_way: ClientCaseBatch | None = None
        self._items: tuple[pytest.Item, ...] = ()

    def __contains__(self, item: pytest.Item | None) -> bool:
        """Whether ``item`` is of the round trip, or between two items that are."""
        return item in self._items

    def answer(self, item: pytest.Function) -> ClientCaseResult:
        """Return the item's answer; it is sent with those that follow it, where it has not been."""
        if self._under_way is None or item.nodeid not in self._under_way:
            self.close()
            self._items = _batch(item)
            sent = [one for one in self._items if one is item or not one.get_closest_marker("skip")]
            calls = [call for one in sent if (call := client_call(one)) is not None]
            self._under_way = ClientCaseBatch(self.attachment.client, calls, path=self.attachment.path)
        return self._under_way.wait_result(item.nodeid)

    def close(self) -> None:
        """End what is under way."""
        if self._under_way is not None:
            self._under_way.close()
            self._under_way, self._items = None, ()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Refuse a body that cannot be sent."""
    for item in items:
        client_call(item)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """Keep the next item, which a worker has taken out of its queue."""
    item.config.stash[_NEXT] = nextitem


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Have the client run it, where it takes ``client_dir`` or ``block_range``."""
    given = next(
        (pyfuncitem.funcargs.get(name) for name in _FIXTURES if name in _declared_arguments(pyfuncitem)), None
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
    if given is not None and nextitem not in given:
        given.close()


def under_way(item: pytest.Item | None) -> bool:
    """Whether ``item`` is of the round trip that is under way."""
    return item is not None and item in item.config.stash.get(_UNDER_WAY, ())


def _batch(item: pytest.Item) -> tuple[pytest.Item, ...]:
    """Return ``item`` and those of the items to come that go to the client in one round trip with it.

    A case that is run again follows those that have their answers: it is sent with what comes after it.
    """
    items = [item]
    for previous, other in pairwise([item, *_to_come(item)]):
        if not _may_follow(previous, other):
            break
        items.append(other)
    return tuple(items)


def _to_come(item: pytest.Item) -> list[pytest.Item]:
    """Return the items that this process will run after ``item``, in order, as far as that is certain."""
    items, config = item.session.items, item.config
    workerinput: dict[str, Any] | None = getattr(config, "workerinput", None)
    if workerinput is None:
        return items[items.index(item) + 1 :]
    following = config.stash[_NEXT]
    if following is None or workerinput.get(DIST) not in _NEVER_WITHDRAWN:
        return [following] if following else []
    interactor: Any = next(each for each in config.pluginmanager.get_plugins() if hasattr(each, "torun"))
    with interactor.torun.lock() as queue:
        return [following, *(items[index] for index in queue if isinstance(index, int))]


def _may_follow(item: pytest.Item, following: pytest.Item) -> bool:
    """Whether ``following`` may be in one round trip with ``item``."""
    first, second = client_call(item), client_call(following)
    if first is None or second is None or item_variant(item) != item_variant(following):
        return False
    return first.exclusive == second.exclusive


def client_call(item: pytest.Item) -> ClientCase | None:
    """Return the call that ``item`` is on a client, or None where it runs here.

    Raises :class:`pytest.UsageError` where it takes what cannot be sent there.
    """
    if not isinstance(item, pytest.Function):
        return None
    names = _declared_arguments(item)
    gives = [name for name in names if name in _FIXTURES and _is_ours(item, name)]
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
    return ClientCase(
        item.nodeid,
        item.path,
        item.originalname,
        arguments,
        fixture=_FIXTURES[gives[0]],
        exclusive=is_exclusive(item),
        argument=gives[0],
    )


def is_exclusive(item: pytest.Item) -> bool:
    """Whether no other case may run at the same time; ``alone`` is the former name of the mark."""
    return any(item.get_closest_marker(name) is not None for name in ("exclusive", "alone"))


def _declared_arguments(item: pytest.Function) -> tuple[str, ...]:
    """Return the fixtures and parameters that the function itself names."""
    return item._fixtureinfo.argnames  # noqa: SLF001  # what the function itself names; there is no other way


def _is_ours(item: pytest.Function, name: str) -> bool:
    """Whether the fixture is the plugin's, and not a suite's own of the same name."""
    definitions = item._fixtureinfo.name2fixturedefs.get(name, ())  # noqa: SLF001  # as above
    return bool(definitions) and definitions[-1].func.__module__ in {core.__name__, deprecated.__name__}


def _conclude(item: pytest.Function, answer: ClientCaseResult, attachment: Attachment) -> None:
    __tracebackhide__ = True
    for what in answer.observed:
        cases.record_observation(item, what)
    cases.set_duration(item, answer.seconds)
    if answer.printed:
        item.add_report_section("call", "on client", answer.printed)
    where = f"on {attachment.client.name}, under {attachment.path}"
    if answer.status is ClientCaseStatus.SKIPPED:
        # As pytest's own marks do: the skip is said to be the suite's, not this line's.
        raise pytest.skip.Exception(answer.message, _use_item_location=True)
    if answer.status is ClientCaseStatus.FAILED:
        if answer.errno in _LOST:
            state, variant = item.config.stash[KEY], item_variant(item)
            state.check_alive(state.variants[variant or ""], attachment.client)
        pytest.fail(f"{answer.message}\n{_shown(item, answer)}\n{where}", pytrace=False)
    if answer.status is not ClientCaseStatus.PASSED:
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
