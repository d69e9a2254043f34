"""Broken rules of what a controller supports: its lists, forms of features, and discovery controllers.

The rules, from the text (NVM Express Base 2.3), before any case:

- 1.4.1.6: a reserved value, of ACRE, THSEL and TMPSEL, is an error (MUST).
- 3.1.3.3: a discovery controller identifies no namespace (MUST).
- 3.2.1.5: an NSID that is not valid ends a command that uses it with Invalid Namespace or Format (MUST).
- 4.3.2: a command that has more data than its SGL ends with Data SGL Length Invalid (MUST).
- 5.2.12: a log page is read from each dword of it, and a part of it has the bytes of the whole (MUST).
- 5.2.12.1.1, 5.2.12.1.18: a log page, or a feature, that is listed is supported, and no other (MUST).
- 5.2.13.2.7, 5.2.13.2.21: Identify lists the namespaces of a command set, and the combinations (MUST).
- 5.2.26.1.4, 5.2.26.1.5, 5.2.26.1.8, 5.2.26.1.14: a feature has the value that was set last (MUST).
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import replace

from nvme_tcp_proxy_connection import Item, ProxyConnection
from nvme_tcp_rules import (
    accepts,
    commands,
    drops_command,
    fabrics,
    feature,
    host,
    identify,
    log,
    patch,
    refuses,
    shared,
    target,
)

from storagetest.wire.nvme.codes import Admin, Cns, Fctype, Feature, LogPage, StatusCode
from storagetest.wire.nvme.command import Command, Cqe
from storagetest.wire.nvme.fabrics import DISCOVERY_NQN
from storagetest.wire.nvme_tcp.pdu import CapsuleCmd, DecodedPdu

SET_BEHAVIOR = feature(Admin.SET_FEATURES, Feature.HOST_BEHAVIOR)
GET_BEHAVIOR = feature(Admin.GET_FEATURES, Feature.HOST_BEHAVIOR)
LISTED = log(LogPage.FEATURES)
ENTRY = 1024
"""Bytes of the head of the discovery log, and of each entry (5.2.12.3.3)."""


def _either(through: ProxyConnection, command: Command) -> bool:
    return feature(Admin.GET_FEATURES)(through, command) or feature(Admin.SET_FEATURES)(through, command)


def _offset(command: Command) -> int:
    return command.cdw12 | command.cdw13 << 32


# Features

host(
    "behavior-forgotten | Base 5.2.26.1.14 | Set Features (Host Behavior Support) sets nothing",
    drops_command(SET_BEHAVIOR),
)
target(
    "behavior-any | Base 1.4.1.6 | a reserved value of the host behavior is taken",
    accepts(StatusCode.INVALID_FIELD, when=SET_BEHAVIOR),
)
target(
    "behavior-short | Base 4.3.2 | half of the Host Behavior Support data structure is taken",
    accepts(StatusCode.DATA_SGL_LENGTH_INVALID, when=lambda t, c: SET_BEHAVIOR(t, c) or GET_BEHAVIOR(t, c)),
)


def _behavior_of_all(notes: set[object]) -> ProxyConnection:
    """Each controller has the host behavior that any of them was given last."""

    def of_host(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
        if isinstance(got.pdu, CapsuleCmd) and SET_BEHAVIOR(through, Command.decode(got.pdu.sqe)):
            notes.clear()
            notes.add(got.pdu.data[:1])
        return None

    def given(raw: bytes) -> bytes:
        first = next(iter(notes))
        assert isinstance(first, bytes)
        return first + raw[1:]

    changed = patch(given, when=lambda t, c: bool(notes) and GET_BEHAVIOR(t, c))
    return ProxyConnection(of_host=of_host, of_target=changed)


shared("behavior-of-all | Base 5.2.26.1.14 | the host behavior is one of all controllers", _behavior_of_all)
target(
    "threshold-any | Base 5.2.26.1.3 | a temperature threshold that is reserved is taken",
    accepts(
        StatusCode.INVALID_FIELD,
        when=lambda t, c: _either(t, c) and c.cdw10 & 0xFF == Feature.TEMPERATURE_THRESHOLD,
    ),
)
target(
    "write-cache-not-set | Base 5.2.26.1.4 | Set Features (Volatile Write Cache) succeeds, and sets nothing",
    accepts(StatusCode.INVALID_FIELD, when=feature(Admin.SET_FEATURES, Feature.VOLATILE_WRITE_CACHE)),
)
target(
    "feature-any-nsid | Base 3.2.1.5 | features are read and set with any NSID",
    accepts(
        StatusCode.INVALID_NAMESPACE, StatusCode.INVALID_FIELD, when=lambda t, c: _either(t, c) and c.nsid > 4
    ),
)

# Lists

target(
    "set-list-empty | Base 5.2.13.2.7 | the NVM Command Set has no active namespace",
    patch(lambda raw: bytes(len(raw)), when=identify(Cns.CSI_ACTIVE_NAMESPACES)),
)
host(
    "set-list-from | Base 5.2.13.2.7 | the active list of a command set begins with its first namespace",
    commands(
        lambda capsule, c: replace(capsule, sqe=replace(c, nsid=0).encode()),
        when=lambda t, c: identify(Cns.CSI_ACTIVE_NAMESPACES)(t, c) and c.nsid < 0xFFFF_FFFE,
    ),
)
target(
    "set-vectors-empty | Base 5.2.13.2.21 | no combination of command sets is there",
    patch(lambda raw: bytes(len(raw)), when=identify(Cns.CSI_VECTORS)),
)
target(
    "set-vectors-of-number | Base 5.2.13.2.21 | the combinations of CNTID FFFFh are refused",
    refuses(
        StatusCode.INVALID_FIELD,
        when=lambda t, c: identify(Cns.CSI_VECTORS)(t, c) and c.cdw10 >> 16 == 0xFFFF,
    ),
)
target(
    "log-listed-lost | Base 5.2.12.1.1 | a log page that is listed is not supported",
    refuses(StatusCode.INVALID_LOG_PAGE, when=log(LogPage.ANA)),
)


def _entries(raw: bytes, bits: int) -> bytes:
    return b"".join(struct.pack("<I", entry | bits) for (entry,) in struct.iter_unpack("<I", raw))


target(
    "feature-list-lacks-one | Base 5.2.12.1.18 | the list of features lacks one that is supported",
    patch(
        lambda raw: raw[: 4 * Feature.ASYNC_EVENT] + bytes(4) + raw[4 * Feature.ASYNC_EVENT + 4 :],
        when=LISTED,
    ),
)
target(
    "feature-list-all | Base 5.2.12.1.18 | the list of features has all of them",
    patch(lambda raw: _entries(raw, 1), when=LISTED),
)
target(
    "feature-list-reserved | Base 1.4.1.6 | entries of the list of features have a reserved bit set",
    patch(lambda raw: _entries(raw, 1 << 5), when=LISTED),
)
host(
    "feature-list-part | Base 5.2.12 | the list of features is read from its beginning, whatever the offset",
    commands(
        lambda capsule, c: replace(capsule, sqe=replace(c, cdw12=0, cdw13=0).encode()),
        when=lambda t, c: LISTED(t, c) and bool(_offset(c)),
    ),
)
target(
    "notice-part-empty | Base 5.2.12.1.35 | a part of a notification is empty",
    patch(
        lambda raw: bytes(len(raw)),
        when=lambda t, c: (
            log(LogPage.RESERVATION_NOTIFICATION)(t, c) and (_offset(c) > 0 or c.cdw10 >> 16 != 15)
        ),
    ),
)
host(
    "notice-beyond-read | Base 5.2.12 | an offset behind the notification reads it",
    commands(
        lambda capsule, c: replace(capsule, sqe=replace(c, cdw12=0, cdw13=0).encode()),
        when=lambda t, c: log(LogPage.RESERVATION_NOTIFICATION)(t, c) and _offset(c) > 64,
    ),
)

# Discovery controllers


def _forgets(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
    """Set Features of a discovery controller succeeds, and sets nothing."""
    if not isinstance(got.pdu, CapsuleCmd):
        return None
    command = Command.decode(got.pdu.sqe)
    if fabrics(Fctype.CONNECT)(through, command):
        through.memory["discovery"] = DISCOVERY_NQN.encode() in got.pdu.data
    elif through.memory.get("discovery") and feature(Admin.SET_FEATURES)(through, command):
        through.reply(Cqe(command.cid, sqhd=1))
        return []
    return None


host("discovery-feature-forgotten | Base 5.2.26 | a discovery controller forgets its features", _forgets)
target(
    "discovery-identifies-namespaces | Base 3.1.3.3 | Identify of a namespace succeeds on any controller",
    accepts(
        StatusCode.INVALID_FIELD,
        StatusCode.INVALID_NAMESPACE,
        when=lambda t, c: any(
            identify(cns)(t, c) for cns in (Cns.NAMESPACE, Cns.DESCRIPTORS, Cns.CSI_NAMESPACE)
        ),
    ),
)


def _up_to_a_border(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
    """A part that does not begin with an entry is zero behind the end of the first entry."""
    command = through.command_of(got)
    at = _offset(command) % ENTRY if command else 0
    if not at:
        return None
    return patch(lambda raw: raw[: ENTRY - at].ljust(len(raw), b"\0"), when=log(LogPage.DISCOVERY))(
        through, got
    )


target("discovery-odd-part | Base 5.2.12 | a part of the discovery log ends with an entry", _up_to_a_border)
target(
    "discovery-short | Base 4.3.2 | the discovery log page is read with an SGL that is too short",
    accepts(StatusCode.DATA_SGL_LENGTH_INVALID, when=log(LogPage.DISCOVERY)),
)

# Lists of discovery controllers, and extended entries of their log

PLAIN_LIST = log(LogPage.SUPPORTED)
EXTENDED = 1 << 8
"""EXTDLPE of Get Log Page (5.2.12.3.3)."""


def _with_entry(raw: bytes, number: int, entry: int) -> bytes:
    return raw[: 4 * number] + struct.pack("<I", entry) + raw[4 * number + 4 :]


def _of_discovery(raw: bytes, number: int, entry: int) -> bytes:
    """Change the list of log pages of a discovery controller: it has the discovery log."""
    return _with_entry(raw, number, entry) if raw[4 * LogPage.DISCOVERY :][:1] == b"\1" else raw


def _features_of_io(raw: bytes) -> bytes:
    return raw if len(raw) < 1024 else _with_entry(raw, Feature.ARBITRATION, 1 << 21 | 1)


def _longer(raw: bytes) -> bytes:
    return raw[:2048] + struct.pack("<I", 1036) + raw[2052:] if len(raw) >= 2056 else raw


def _extended_log(through: ProxyConnection, command: Command) -> bool:
    return log(LogPage.DISCOVERY)(through, command) and bool(command.cdw10 & EXTENDED)


def _stays(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
    """The log has extended entries from the first request for them on."""
    if not isinstance(got.pdu, CapsuleCmd):
        return None
    command = Command.decode(got.pdu.sqe)
    if _extended_log(through, command):
        through.memory["extended"] = True
    elif through.memory.get("extended") and log(LogPage.DISCOVERY)(through, command):
        changed = replace(command, cdw10=command.cdw10 | EXTENDED)
        return [replace(got.pdu, sqe=changed.encode())]
    return None


target(
    "discovery-list-of-io | Base 5.2.12.1.1 | a discovery controller lists a log page of I/O controllers",
    patch(lambda raw: _of_discovery(raw, LogPage.SMART, 1), when=PLAIN_LIST),
)
target(
    "discovery-list-lacks-one | Base 5.2.12.1.1 | a discovery controller does not list a page that it has",
    patch(lambda raw: _of_discovery(raw, LogPage.FEATURES, 0), when=PLAIN_LIST),
)
host(
    "discovery-list-part | Base 5.2.12 | a part of a list is read from its beginning, whatever the offset",
    commands(
        lambda capsule, c: replace(capsule, sqe=replace(c, cdw12=0, cdw13=0).encode()),
        when=lambda t, c: log(LogPage.SUPPORTED, LogPage.FEATURES)(t, c) and 0 < _offset(c) < 1024,
    ),
)
target(
    "discovery-features-of-io | Base 5.2.12.1.18 | a discovery controller lists a feature of I/O controllers",
    patch(_features_of_io, when=LISTED),
)
target(
    "discovery-tel | Base 5.2.12.3.3 | TEL of an extended entry is not its length",
    patch(_longer, when=_extended_log),
)
host(
    "discovery-extended-lost | Base 5.2.12.3.3 | the discovery log has no extended entries, though announced",
    commands(
        lambda capsule, c: replace(capsule, sqe=replace(c, cdw10=c.cdw10 & ~EXTENDED).encode()),
        when=_extended_log,
    ),
)
host(
    "discovery-extended-part | Base 5.2.12 | a part of the log with extended entries begins at a plain one",
    commands(
        lambda capsule, c: replace(capsule, sqe=replace(c, cdw12=c.cdw12 // 1024 * 1024).encode()),
        when=_extended_log,
    ),
)
host("discovery-extended-stays | Base 5.2.12.3.3 | the discovery log keeps extended entries", _stays)
