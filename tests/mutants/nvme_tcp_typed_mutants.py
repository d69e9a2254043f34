"""Broken rules of single types of reservations.

The rules, from the text (NVM Express Base 2.3), before any case:

- 8.1.24.4, 8.1.24.6: Reservation Released is notified by the type: of Registrants Only, and of All
  Registrants if it is released; not of Write Exclusive and Exclusive Access (MUST).
- 8.1.24.4: a reservation of one holder stays when another registrant unregisters (MUST).
- 8.1.24.7: a Preempt of the holder creates a reservation of its RTYPE; if that is another type, the
  registrants that stay are notified: Reservation Released (MUST).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from nvme_tcp_proxy_connection import Item, ProxyConnection
from nvme_tcp_rules import action, commands, host, log, patch, put, shared

from storagetest.wire.nvme.codes import Io, LogPage, Rtype
from storagetest.wire.nvme.command import Command
from storagetest.wire.nvme_tcp.pdu import CapsuleCmd, DecodedPdu

Notes = set[object]
PAGE = log(LogPage.RESERVATION_NOTIFICATION)
ACQUIRE, PREEMPT = action(Io.RESERVATION_ACQUIRE, 0), action(Io.RESERVATION_ACQUIRE, 1, 2)
RELEASE, UNREGISTER = action(Io.RESERVATION_RELEASE, 0), action(Io.RESERVATION_REGISTER, 1)


def _type_of(command: Command) -> int:
    return command.cdw10 >> 8 & 0xFF


def _noted(
    patches: Callable[[Notes, bytes], bytes], after: Callable[[ProxyConnection, Command], bool]
) -> Callable[[Notes], ProxyConnection]:
    """Return connections that note the type that is held, and whether a command ``after`` has come."""

    def sharing(notes: Notes) -> ProxyConnection:
        def of_host(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
            if isinstance(got.pdu, CapsuleCmd):
                command = Command.decode(got.pdu.sqe)
                if ACQUIRE(through, command):
                    notes.clear()
                    notes.add(_type_of(command))
                elif after(through, command):
                    notes.add("ended")
            return None

        changes = patch(lambda raw: patches(notes, raw), when=lambda t, c: "ended" in notes and PAGE(t, c))
        return ProxyConnection(of_host=of_host, of_target=changes)

    return sharing


def _of_first_only(notes: Notes) -> ProxyConnection:
    def of_host(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
        if not isinstance(got.pdu, CapsuleCmd):
            return None
        command = Command.decode(got.pdu.sqe)
        if ACQUIRE(through, command):
            through.memory["acquired"] = True
        if not RELEASE(through, command) or through.memory.get("acquired"):
            return None
        return [replace(got.pdu, sqe=replace(command, opcode=Io.FLUSH, cdw10=0).encode(), data=b"")]

    return ProxyConnection(of_host=of_host)


shared("release-of-first-only | Base 8.1.24.6 | a Release by a host that has not acquired does nothing",
       _of_first_only)  # fmt: skip


def _ends(through: ProxyConnection, command: Command) -> bool:
    return RELEASE(through, command) or UNREGISTER(through, command)


def _released_of_any(notes: Notes, raw: bytes) -> bytes:
    """The notification of a release, whatever was released."""
    return raw if any(raw[:16]) else put(12, b"\1\0\0\0")(put(0, b"\1\0\0\0\0\0\0\0\2")(raw))


shared(
    "notice-of-any-type | Base 8.1.24.6 | the end of a reservation of any type is notified as a release",
    _noted(_released_of_any, _ends),
)
shared(
    "notice-of-type-lost | Base 8.1.24.6 | the end of a reservation of Registrants Only is not notified",
    _noted(lambda notes, raw: bytes(len(raw)) if notes & {3, 4, 5, 6} else raw, _ends),
)
shared(
    "notice-of-preempt-lost | Base 8.1.24.7 | a Preempt to another type notifies no registrant that stays",
    _noted(lambda notes, raw: bytes(len(raw)) if raw[8] == 2 else raw, PREEMPT),
)
host(
    "preempt-other-type | Base 8.1.24.7 | a Preempt creates a reservation of another type",
    commands(
        lambda capsule, c: replace(
            capsule, sqe=replace(c, cdw10=c.cdw10 & 0xFF | (_type_of(c) % 6 + 1) << 8).encode()
        ),
        when=lambda t, c: PREEMPT(t, c) and _type_of(c) in set(Rtype),
    ),
)


def _frees(notes: Notes) -> ProxyConnection:
    """After an Unregister the report has no reservation."""

    def of_host(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
        if isinstance(got.pdu, CapsuleCmd) and UNREGISTER(through, Command.decode(got.pdu.sqe)):
            notes.add("left")
        return None

    report = patch(put(4, b"\0"), when=lambda t, c: "left" in notes and action(Io.RESERVATION_REPORT)(t, c))
    return ProxyConnection(of_host=of_host, of_target=report)


shared("unregister-frees | Base 8.1.24.4 | an Unregister by any registrant releases the reservation", _frees)
