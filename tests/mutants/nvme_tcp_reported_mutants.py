"""Broken rules of what a controller reports: log pages by parts, errors, notifications, refusals, defaults.

The rules, from the text (NVM Express Base 2.3), before any case:

- 5.2.12: a read from LPO returns what the log page has there, whichever log page it is (MUST).
- 5.2.12.1.2: an entry of the error log has the queue, the identifier, the status and the namespace of the
  command that failed; 5.2.12.1.3: SMART counts the entries (MUST).
- 5.2.12.1.35: Log Page Count is incremented with each notification, the number of those that are left is
  stated, and each controller that may access the namespace has its own log (MUST).
- 6.3: a refused Connect states by IPO and IATTR which parameter is wrong, on each queue (MUST).
- 5.2.1.2: bit 0 of the result of Abort is set if nothing was aborted, also if there is no such queue (MUST).
- 5.2.11: Set Features without Save changes the current value, and neither the default nor the saved one.
- 5.2.13.2.2: no list of namespaces begins after FFFFFFFEh (SHOULD).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from nvme_tcp_pair_mutants import Notes, _knows_host
from nvme_tcp_proxy_connection import Item, ProxyConnection
from nvme_tcp_rules import (
    When,
    accepts,
    add,
    commands,
    fabrics,
    host,
    identify,
    log,
    on_admin,
    patch,
    put,
    response,
    results,
    shared,
    target,
)

from storagetest.wire.nvme.codes import Admin, Cns, Fctype, LogPage, StatusCode
from storagetest.wire.nvme.command import Command, Cqe
from storagetest.wire.nvme_tcp.pdu import DecodedPdu

CONNECT = fabrics(Fctype.CONNECT)
IN_DATA = 1 << 16
CNTLID = 16 | IN_DATA
"""IPO and IATTR of CNTLID (6.3)."""

host(
    "log-offset-one-page | Base 5.2.12 | the offset is obeyed for the firmware slot log page alone",
    commands(
        lambda capsule, command: replace(capsule, sqe=replace(command, cdw12=0).encode()),
        when=lambda t, c: on_admin(Admin.GET_LOG_PAGE)(t, c) and c.cdw10 & 0xFF != LogPage.FIRMWARE_SLOT,
    ),
)
for _name, _words, _at, _value in (
    ("sqid", "SQID", 8, b"\0\0"),
    ("cid", "Command ID", 10, b"\xff\xff"),
    ("status", "Status Field", 12, b"\0\0"),
    ("nsid", "namespace", 24, bytes(4)),
):
    target(
        f"error-log-{_name} | Base 5.2.12.1.2 | an entry of the error log lacks the {_words} of the command",
        patch(put(_at, _value), when=log(LogPage.ERROR)),
    )
target(
    "error-log-smart-count | Base 5.2.12.1.3 | SMART counts no entries of the error log",
    patch(put(176, bytes(16)), when=log(LogPage.SMART)),
)
target(
    "error-log-smart-four | Base 5.2.12.1.3 | SMART counts four entries of the error log at most",
    patch(lambda raw: put(176, min(raw[176], 4).to_bytes(16, "little"))(raw), when=log(LogPage.SMART)),
)
target(
    "notice-count-stays | Base 5.2.12.1.35 | each notification has the Log Page Count 1",
    patch(
        lambda raw: put(0, (1).to_bytes(8, "little"))(raw) if raw[8] else raw,
        when=log(LogPage.RESERVATION_NOTIFICATION),
    ),
)
target(
    "notice-left-none | Base 5.2.12.1.35 | a notification states that no more are available",
    patch(put(9, b"\0"), when=log(LogPage.RESERVATION_NOTIFICATION)),
)


def _notifies(row: str, *, first: bool) -> None:
    """A mutant that reports events to the first or to the last controller of a host alone."""

    def sharing(notes: Notes) -> ProxyConnection:
        def of_host(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
            command = _knows_host(through, got)
            if command is not None and CONNECT(through, command) and not through.qid:
                place = sum(1 for one in notes if isinstance(one, tuple) and one[0] == through.memory["host"])
                notes.add((through.memory["host"], place))
                through.memory["place"] = place
            return None

        def of_target(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
            command = through.command_of(got)
            if command is None or not on_admin(Admin.ASYNCHRONOUS_EVENT_REQUEST)(through, command):
                return None
            return None if bool(through.memory.get("place")) != first else []

        return ProxyConnection(of_host=of_host, of_target=of_target)

    shared(row, sharing)


_notifies(
    "notice-first-controller | Base 5.2.12.1.35 | the first controller of a host alone is notified",
    first=True,
)
_notifies(
    "notice-last-controller | Base 5.2.12.1.35 | a second controller of a host is notified, the first is not",
    first=False,
)


# Refusals


def _states_nothing(row: str, when: When) -> None:
    """A mutant whose refused Connects have the result 0."""
    target(
        row,
        response(
            lambda t, c, cqe: (
                replace(cqe, result=0) if c and CONNECT(t, c) and not cqe.ok and when(t, c) else None
            )
        ),
    )


_states_nothing(
    "connect-ipo-of-io | Base 6.3 | a refused Connect of an I/O queue states no parameter",
    lambda t, c: bool(c.cdw10 >> 16),
)
target(
    "connect-ipo-of-cntlid | Base 6.3 | a Connect that is refused for its CNTLID states no parameter",
    response(
        lambda t, c, cqe: (
            replace(cqe, result=0) if c and CONNECT(t, c) and not cqe.ok and cqe.result == CNTLID else None
        )
    ),
)


def _keeps_result(notes: Notes) -> ProxyConnection:
    """Return a connection whose refused Connect has the result of the first one that was refused."""

    def change(through: ProxyConnection, command: Command | None, cqe: Cqe) -> Cqe | None:
        if command is None or not CONNECT(through, command) or cqe.ok:
            return None
        if not notes:
            notes.add(cqe.result)
        (first,) = notes
        assert isinstance(first, int)
        return replace(cqe, result=first)

    return ProxyConnection(of_target=response(change))


shared(
    "connect-ipo-kept | Base 6.3 | each refused Connect states the parameter of the first one", _keeps_result
)
target(
    "abort-of-no-queue | Base 5.2.1.2 | an Abort in a queue that does not exist states that it has aborted",
    results(lambda t, c, old: 0, when=lambda t, c: on_admin(Admin.ABORT)(t, c) and c.cdw10 & 0xFFFF > 1),
)
target(
    "namespace-list-any | Base 5.2.13.2.2 | a list of namespaces after FFFFFFFEh is empty, and no error",
    accepts(StatusCode.INVALID_NAMESPACE, when=identify(Cns.ACTIVE_NAMESPACES)),
)


# Defaults


def _follows_current(row: str, select: int) -> None:
    """A mutant whose default or saved value is the current one."""

    def of_host(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
        command = _knows_host(through, got)
        if command is not None and on_admin(Admin.SET_FEATURES)(through, command):
            through.memory[f"feature {command.cdw10 & 0xFF}"] = command.cdw11
        return None

    def change(through: ProxyConnection, command: Command | None, cqe: Cqe) -> Cqe | None:
        if command is None or not cqe.ok or not on_admin(Admin.GET_FEATURES)(through, command):
            return None
        current = through.memory.get(f"feature {command.cdw10 & 0xFF}")
        if command.cdw10 >> 8 & 7 != select or current is None:
            return None
        return replace(cqe, result=current)

    add(row, lambda: ProxyConnection(of_host=of_host, of_target=response(change)))


_follows_current(
    "default-follows-current | Base 5.2.11 | the default value of a feature is the one that was set last", 1
)
_follows_current(
    "saved-follows-current | Base 5.2.11 | the saved value of a feature is the one that was set without Save",
    2,
)
