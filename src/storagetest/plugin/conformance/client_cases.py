"""System-call cases: the agent runs a test with ``client_dir`` or ``block_range`` on the client.

Rules:

1. The body never runs on the controller. The first case is sent to the client in one batch with all cases
   that follow it on the same variant, also of other modules; each item then waits for its result and reports
   it. A test of another kind ends the batch: nothing runs at the same time as a batch. An xdist worker sends
   only cases that it will run: those in its queue, unless another worker may take them
   (``--dist worksteal``); then only the next one.
2. Such a body takes ``client_dir`` (an empty directory on the mount) or ``block_range`` (a range of the
   device), parameters that are JSON values, and nothing else.
3. The locks of a batch's first case (:mod:`storagetest.plugin.case_guard`) are held until the batch ends. The
   batch ends before the target is released, also after Ctrl-C.
4. While a case marked ``exclusive`` runs, no other case runs, in any process: its server is locked
   exclusively, and a batch has either only such cases or none.
5. A false claim, an unexpected error of a system call, or a call that does not return is a failure, the last
   at every level. A case that dies, is slow or cannot be imported is an error. After a hang or an error the
   plugin checks whether the target is dead.
6. A case that passed and left files that do not agree with each other fails, the first of its target
   (:mod:`storagetest.agent.testlib.consistency`). So does the first whose directory cannot be made or
   removed; the others that have none are skipped. On a full target that one is an error, and so is a case
   that fails with too little space (:mod:`storagetest.plugin.conformance.free_space`).
7. A case marked ``server_inodes`` that fails is skipped if the client's mount has inode numbers of its own by
   then: SMB's client may drop ``serverino`` at any time (mount.cifs(8)).
"""

from __future__ import annotations

import json
from fnmatch import fnmatchcase
from itertools import pairwise
from typing import Any

import pytest

from storagetest.agent.testlib.consistency import NO_SPACE, NOT_MADE
from storagetest.agent.testlib.fixtures.client_dir import CONCURRENCY
from storagetest.errors import TargetDead, WorkloadError
from storagetest.plugin.conformance import cases, findings
from storagetest.plugin.conformance.free_space import space_missing
from storagetest.plugin.conformance.repeated_faults import ONCE, new_faults
from storagetest.plugin.fixtures import core, deprecated
from storagetest.plugin.items import item_variant, once_for_marks, parameters_of
from storagetest.plugin.run_state import KEY
from storagetest.protocols._mount import find_mount, parse_mountinfo
from storagetest.protocols.base import Attachment
from storagetest.runner.client_cases import ClientCase, ClientCaseBatch, ClientCaseResult, ClientCaseStatus

DIST = "storagetest_dist"
"""The key of a worker's input under which xdist's controller gives it the value of ``--dist``."""

_FIXTURES = {
    "client_dir": "client_dir",
    "block_range": "block_range",
    "here": "client_dir",
    "blocks": "block_range",
}
"""The fixtures of a directory or a range of blocks on the client, with their deprecated names."""

_NEVER_WITHDRAWN = {"load", "each", "loadscope", "loadfile", "loadgroup"}
"""Values of ``--dist`` with which a case in a worker's queue stays there until the worker runs it."""

_NEXT = pytest.StashKey[pytest.Item | None]()
_UNDER_WAY = pytest.StashKey["ClientCaseRunner"]()
_CONTEXT_LINES = 4
"""Lines of the body that are shown before the line that failed."""

_LOST = {"EIO", "ENOTCONN", "EHOSTDOWN", "EHOSTUNREACH", "ETIMEDOUT", "ESTALE", "ECONNABORTED", "ECONNRESET"}
"""Errors after which the plugin checks whether the target is dead."""


_TABLE_SECONDS = 30.0
"""Timeout in seconds for reading the client's mount table (chosen)."""

_NEAR = 2 * CONCURRENCY
"""Cases that are named as those in which a target may have died (chosen)."""


class ClientCaseRunner:
    """The value of the fixtures ``client_dir`` and ``block_range``: runs cases on the client, in batches."""

    def __init__(self, attachment: Attachment) -> None:
        self.attachment = attachment
        self._under_way: ClientCaseBatch | None = None
        self._items: tuple[pytest.Item, ...] = ()

    def __contains__(self, item: pytest.Item | None) -> bool:
        """Whether ``item`` is in the batch, or between two items that are."""
        return item in self._items

    def result(self, item: pytest.Function) -> ClientCaseResult:
        """Return the item's result; send it first, with the items that follow it, if it is in no batch."""
        if self._under_way is None or item.nodeid not in self._under_way:
            self.close()
            self._items = _batch(item)
            sent = [other for other in self._items if other is item or not other.get_closest_marker("skip")]
            calls = [call for sent_item in sent if (call := client_call(sent_item)) is not None]
            self._under_way = ClientCaseBatch(self.attachment.client, calls, path=self.attachment.path)
        return self._under_way.wait_result(item.nodeid)

    def suspects(self, item: pytest.Item) -> list[str]:
        """Return the names of the cases that ended without success near ``item``, the first ones to end.

        The case in which the target died is among them, unless many others ended before it did.
        """
        if self._under_way is None:
            return []
        first = self._items.index(item) + 1
        for other in self._items[first : first + _NEAR]:
            if other.nodeid in self._under_way:
                self._under_way.peek(other.nodeid)
        names = {other.nodeid: other.name for other in self._items}
        done = (ClientCaseStatus.PASSED, ClientCaseStatus.SKIPPED)
        return [names[each.id] for each in self._under_way.arrived() if each.status not in done][:_NEAR]

    def close(self) -> None:
        """End the batch."""
        if self._under_way is not None:
            self._under_way.close()
            self._under_way, self._items = None, ()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Refuse a body that cannot be sent."""
    for item in items:
        client_call(item)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """Store the next item, which a worker has removed from its queue."""
    item.config.stash[_NEXT] = nextitem


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run the body on the client if it takes ``client_dir`` or ``block_range``."""
    arguments = _declared_arguments(pyfuncitem)
    runner = next((pyfuncitem.funcargs.get(name) for name in _FIXTURES if name in arguments), None)
    if not isinstance(runner, ClientCaseRunner):
        return None
    pyfuncitem.config.stash[_UNDER_WAY] = runner
    _report_result(pyfuncitem, runner.result(pyfuncitem), runner.attachment)
    return True


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """End the batch after its last case, also if some of its results were not used."""
    runner = item.config.stash.get(_UNDER_WAY, None)
    if runner is not None and nextitem not in runner:
        runner.close()


def under_way(item: pytest.Item | None) -> bool:
    """Whether ``item`` is in the batch that is running."""
    return item is not None and item in item.config.stash.get(_UNDER_WAY, ())


def _batch(item: pytest.Item) -> tuple[pytest.Item, ...]:
    """Return ``item`` and the following items that are sent to the client in one batch with it.

    A case that runs again is not in the previous batch; it is sent with the items after it.
    """
    items = [item]
    for previous, other in pairwise([item, *_to_come(item)]):
        if not _may_follow(previous, other):
            break
        items.append(other)
    return tuple(items)


def _to_come(item: pytest.Item) -> list[pytest.Item]:
    """Return the items that this process will certainly run after ``item``, in order."""
    items, config = item.session.items, item.config
    workerinput: dict[str, Any] | None = getattr(config, "workerinput", None)
    if workerinput is None:
        return items[items.index(item) + 1 :]
    following = config.stash[_NEXT]
    if following is None or workerinput.get(DIST) not in _NEVER_WITHDRAWN:
        return [following] if following else []
    interactor: Any = next(
        plugin for plugin in config.pluginmanager.get_plugins() if hasattr(plugin, "torun")
    )
    with interactor.torun.lock() as queue:
        return [following, *(items[index] for index in queue if isinstance(index, int))]


def _may_follow(item: pytest.Item, following: pytest.Item) -> bool:
    """Whether ``following`` may be in the same batch as ``item``."""
    first, second = client_call(item), client_call(following)
    if first is None or second is None or item_variant(item) != item_variant(following):
        return False
    return first.exclusive == second.exclusive


def client_call(item: pytest.Item) -> ClientCase | None:
    """Return the call of ``item`` on a client, or None if it runs on the controller.

    Raises :class:`pytest.UsageError` if an argument cannot be sent to a client.
    """
    if not isinstance(item, pytest.Function):
        return None
    names = _declared_arguments(item)
    fixtures = [name for name in names if name in _FIXTURES and _is_ours(item, name)]
    if not fixtures:
        return None
    parameters = parameters_of(item)
    arguments = {name: parameters[name] for name in names if name in parameters}
    unexpected = [name for name in names if name not in {*arguments, fixtures[0]}]
    if unexpected or item.cls is not None:
        problem = f"takes {', '.join(unexpected)}" if unexpected else "is in a class"
        raise pytest.UsageError(
            f"{item.nodeid}: a test that runs on a client is a function with `{fixtures[0]}` and parameters; "
            f"this test {problem}"
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
        fixture=_FIXTURES[fixtures[0]],
        exclusive=is_exclusive(item),
        argument=fixtures[0],
    )


def is_exclusive(item: pytest.Item) -> bool:
    """Whether no other case may run at the same time; ``alone`` is the former name of the mark."""
    return once_for_marks(item, _is_exclusive)


def _is_exclusive(item: pytest.Item) -> bool:
    return any(item.get_closest_marker(name) is not None for name in ("exclusive", "alone"))


def _declared_arguments(item: pytest.Function) -> tuple[str, ...]:
    """Return the fixtures and parameters in the function's signature."""
    return item._fixtureinfo.argnames  # noqa: SLF001  # pytest has no public way


def _is_ours(item: pytest.Function, name: str) -> bool:
    """Whether the plugin defines the fixture, and not a suite."""
    definitions = item._fixtureinfo.name2fixturedefs.get(name, ())  # noqa: SLF001  # as above
    return bool(definitions) and definitions[-1].func.__module__ in {core.__name__, deprecated.__name__}


def _report_result(item: pytest.Function, result: ClientCaseResult, attachment: Attachment) -> None:
    __tracebackhide__ = True
    for observation in result.observed:
        cases.record_observation(item, observation)
    cases.set_duration(item, result.seconds)
    if result.printed:
        item.add_report_section("call", "on client", result.printed)
    where = f"on {attachment.client.name}, under {attachment.path}"
    if result.status in (ClientCaseStatus.PASSED, ClientCaseStatus.SKIPPED):
        _report_faults(item, result, attachment, where)
        if result.status is ClientCaseStatus.PASSED:
            return
        # As pytest's marks do: the skip is reported at the test, not at this line.
        raise pytest.skip.Exception(result.message, _use_item_location=True)
    hung = result.status is ClientCaseStatus.HUNG
    failed = result.status is ClientCaseStatus.FAILED
    if failed and _compares_own_inodes(item, result.message, attachment):
        reason = "inode numbers are compared, and the client's mount reports numbers of its own"
        raise pytest.skip.Exception(reason, _use_item_location=True)
    death = "" if failed and result.errno not in _LOST else _death(item, attachment)
    shown = f"{result.message}\n{_source_lines(item, result)}\n{where}"
    short = space_missing(attachment) if failed and not death else ""
    if short:
        raise WorkloadError(f"{short}\n{shown}")
    if failed and not death and result.lines and not result.errno:
        findings.note_assertion(item, result.lines[-1])
    if hung:
        cases.fail_at_every_level(item)
    if failed or hung or death:
        pytest.fail(f"{death}\n{shown}" if death else shown, pytrace=False)
    raise WorkloadError(f"{item.originalname}: {shown}")


def _report_faults(item: pytest.Item, result: ClientCaseResult, attachment: Attachment, where: str) -> None:
    """Raise what the case's directory shows, if no case has reported it."""
    __tracebackhide__ = True
    new = new_faults(item, result.faults)
    if not new:
        return
    found = "\n".join(f"{rule}: {result.faults[rule]}" for rule in new)
    death = _death(item, attachment) if NOT_MADE in new else ""
    first = f"{death}\n" if death else ""
    sentence = f"{first}{'; '.join(new)}. {ONCE}\nfound: {found}\n{where}"
    if new == [NO_SPACE]:
        raise WorkloadError(sentence)
    pytest.fail(sentence, pytrace=False)


def _compares_own_inodes(item: pytest.Item, message: str, attachment: Attachment) -> bool:
    """Whether the failure is about inode numbers (mark ``server_inodes``) that the client has made itself."""
    mark = item.get_closest_marker("server_inodes")
    if mark is None or not any(fnmatchcase(message, glob) for glob in mark.args or ("*",)):
        return False
    state = item.config.stash[KEY]
    table = attachment.client.run(["cat", "/proc/self/mountinfo"], deadline=_TABLE_SECONDS)
    options = find_mount(parse_mountinfo(table.stdout), attachment.path).options
    return not state.protocol(state.variants[item_variant(item) or ""]).has_server_inodes(options)


def _death(item: pytest.Item, attachment: Attachment) -> str:
    """Return that the target died, and which cases ran at the same time; "" if it responds."""
    state = item.config.stash[KEY]
    try:
        state.check_alive(state.variants[item_variant(item) or ""], attachment)
    except TargetDead as dead:
        runner = item.config.stash.get(_UNDER_WAY, None)
        others = runner.suspects(item) if runner is not None else []
        among = f" (or in a case that ran at the same time: {', '.join(others)})" if others else ""
        return f"the target died in this case{among}: {dead}"
    return ""


def _source_lines(item: pytest.Item, result: ClientCaseResult) -> str:
    """Return the lines of the body up to the line that failed, which is marked."""
    if not result.lines:
        return ""
    lines = item.path.read_text(encoding="utf-8").splitlines()
    blocks = []
    for failed in result.lines:
        first = max(1, failed - _CONTEXT_LINES)
        while first < failed and not lines[first - 1].strip():
            first += 1
        rows = [
            f"{'>' if number == failed else ' '} {lines[number - 1]}" for number in range(first, failed + 1)
        ]
        blocks.append("\n".join([f"{item.path.name}:{failed}:", *rows]))
    return "\n".join(blocks)
