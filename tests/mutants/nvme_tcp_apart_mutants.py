"""Broken rules of a second namespace: its reservations, its size, and NSIDs of no namespace.

The rules, from the text (NVM Express Base 2.3, NVM Command Set 1.2), before any case:

- 3.2.1.5: a command of an NSID that is invalid, or inactive, is aborted (MUST), whichever it is.
- 5.2.12.1.35: a Reservation Notification names the namespace of the reservation (MUST).
- 8.1.24: a registration, and a reservation, is of one namespace: what ends it there ends no other (MUST).
- NVM 3.1: a range past the end of its own namespace ends with LBA Out of Range (MUST).
"""

from __future__ import annotations

from collections.abc import Iterable

from nvme_tcp_proxy_connection import Item, ProxyConnection
from nvme_tcp_rules import accepts, action, log, on_io, patch, put, shared, target

from storagetest.wire.nvme.codes import Io, LogPage, StatusCode
from storagetest.wire.nvme.command import Command
from storagetest.wire.nvme_tcp.pdu import CapsuleCmd, DecodedPdu

INACTIVE = 3
"""An NSID of the controller of these runs that is valid and inactive."""
NO_NAMESPACE = (0, 0xFFFFFFFE)

REPORT = action(Io.RESERVATION_REPORT)
RESERVING = on_io(
    Io.RESERVATION_REGISTER, Io.RESERVATION_REPORT, Io.RESERVATION_ACQUIRE, Io.RESERVATION_RELEASE
)
OTHERS = on_io(
    Io.WRITE, Io.COMPARE, Io.WRITE_ZEROES, Io.DATASET_MANAGEMENT, Io.COPY, Io.VERIFY, Io.WRITE_UNCORRECTABLE
)

target(
    "inactive-others-used | Base 3.2.1.5 | commands of an inactive namespace succeed, but Read and Flush",
    accepts(
        StatusCode.INVALID_NAMESPACE,
        StatusCode.INVALID_FIELD,
        when=lambda t, c: c.nsid == INACTIVE and OTHERS(t, c),
    ),
)
target(
    "inactive-reserved | Base 3.2.1.5 | reservation commands of an inactive namespace succeed",
    accepts(
        StatusCode.INVALID_NAMESPACE,
        StatusCode.INVALID_FIELD,
        when=lambda t, c: c.nsid == INACTIVE and RESERVING(t, c),
    ),
)
target(
    "nsid-of-copy-unchecked | Base 3.2.1.5 | Copy and Write Uncorrectable of an invalid NSID succeed",
    accepts(
        StatusCode.INVALID_NAMESPACE,
        when=lambda t, c: c.nsid in NO_NAMESPACE and on_io(Io.COPY, Io.WRITE_UNCORRECTABLE)(t, c),
    ),
)
target(
    "nsid-of-reservations-unchecked | Base 3.2.1.5 | reservation commands of an invalid NSID succeed",
    accepts(StatusCode.INVALID_NAMESPACE, when=lambda t, c: c.nsid in NO_NAMESPACE and RESERVING(t, c)),
)
target(
    "end-of-others-unchecked | NVM 3.1 | past the end of namespace 2 each command but Read succeeds",
    accepts(StatusCode.LBA_OUT_OF_RANGE, when=lambda t, c: c.nsid == 2 and OTHERS(t, c)),
)
target(
    "reservation-of-first-alone | Base 8.1.24.1 | a reservation of namespace 2 excludes no host",
    accepts(
        StatusCode.RESERVATION_CONFLICT, when=lambda t, c: c.nsid == 2 and on_io(Io.READ, Io.WRITE)(t, c)
    ),
)
target(
    "registrant-of-all-namespaces | Base 8.1.24.5 | a registrant of namespace 1 is one of namespace 2",
    accepts(StatusCode.RESERVATION_CONFLICT, when=lambda t, c: c.nsid == 2 and RESERVING(t, c)),
)
target(
    "notice-of-first-namespace | Base 5.2.12.1.35 | each notification has NSID 1",
    patch(
        lambda raw: put(12, b"\1\0\0\0")(raw) if raw[8] else raw, when=log(LogPage.RESERVATION_NOTIFICATION)
    ),
)


def _ends(through: ProxyConnection, command: Command) -> bool:
    return (
        action(Io.RESERVATION_RELEASE)(through, command)
        or action(Io.RESERVATION_REGISTER, 1, 2)(through, command)
        or action(Io.RESERVATION_ACQUIRE, 1, 2)(through, command)
    )


def _together(notes: set[object]) -> ProxyConnection:
    """What ends a reservation of namespace 1 ends that of namespace 2. ``notes``: whether it has."""

    def of_host(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
        if isinstance(got.pdu, CapsuleCmd):
            command = Command.decode(got.pdu.sqe)
            if command.nsid == 1 and _ends(through, command):
                notes.add("ended")
            elif command.nsid == 2 and action(Io.RESERVATION_REGISTER, 0)(through, command):
                notes.clear()
        return None

    report = patch(
        lambda raw: raw[:4] + bytes(len(raw) - 4),
        when=lambda t, c: "ended" in notes and c.nsid == 2 and REPORT(t, c),
    )
    return ProxyConnection(of_host=of_host, of_target=report)


shared(
    "reservations-end-together | Base 8.1.24 | what ends one of namespace 1 ends that of namespace 2",
    _together,
)
