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
from nvme_tcp_rules import accepts, action, identify, log, on_io, patch, put, shared, target

from storagetest.wire.nvme.codes import Cns, Io, LogPage, StatusCode
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

# NSID 0, and data of namespaces


target(
    "nsid-0-is-first | Base 3.2.1.5 | each command but Read and Copy succeeds for NSID 0",
    accepts(
        StatusCode.INVALID_NAMESPACE,
        when=lambda t, c: (
            not c.nsid
            and on_io(Io.FLUSH, Io.WRITE, Io.COMPARE, Io.WRITE_ZEROES, Io.VERIFY, Io.DATASET_MANAGEMENT)(t, c)
        ),
    ),
)


def _reserved_set(raw: bytes) -> bytes:
    changed = bytearray(raw)
    for at, bits in ((26, 0x80), (27, 0x80), (28, 0x80), (29, 0x80), (33, 0x80), (99, 0x02)):
        changed[at] |= bits
    return bytes(changed)


target(
    "namespace-reserved-bits | NVM 4.1.5.1 | reserved bits of fields of Identify Namespace are set",
    patch(_reserved_set, when=identify(Cns.NAMESPACE)),
)
target(
    "format-reserved-bits | NVM 4.1.5.1 | reserved bits of an LBA format are set",
    patch(put(131, b"\x80"), when=identify(Cns.NAMESPACE)),
)
target(
    "format-progress-over | NVM 4.1.5.1 | the Format Progress Indicator is 101 percent",
    patch(put(32, b"\xe5"), when=identify(Cns.NAMESPACE)),
)
target(
    "inactive-described | Base 5.2.13.2.8 | CNS 05h and CNS 08h of an inactive namespace have data",
    patch(
        put(14, b"\1"),
        when=lambda t, c: (
            c.nsid == INACTIVE and (identify(Cns.CSI_NAMESPACE)(t, c) or identify(Cns.CSI_INDEPENDENT)(t, c))
        ),
    ),
)


def _counts_marks(notes: set[object]) -> ProxyConnection:
    """``notes``: the blocks of each Write Uncorrectable, numbered."""

    def of_host(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
        if isinstance(got.pdu, CapsuleCmd):
            asked = Command.decode(got.pdu.sqe)
            if on_io(Io.WRITE_UNCORRECTABLE)(through, asked):
                notes.add((len(notes), (asked.cdw12 & 0xFFFF) + 1))
        return None

    def counted(raw: bytes) -> bytes:
        marked = sum(one[1] for one in notes if isinstance(one, tuple))
        units = int.from_bytes(raw[48:64], "little") + -(-marked // 1000)
        return put(48, units.to_bytes(16, "little"))(raw)

    return ProxyConnection(of_host=of_host, of_target=patch(counted, when=log(LogPage.SMART)))


shared(
    "smart-counts-marks | Base 5.2.12.1.3 | Data Units Written counts blocks of Write Uncorrectable",
    _counts_marks,
)
