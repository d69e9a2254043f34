"""Broken rules of commands that are excluded by reservations, and of seldom forms of admin commands.

The rules, from the text (NVM Express Base 2.3), before any case:

- 3.1.4.21: a controller whose CAP.CRMS is not 0 has CRTO (MUST); CAP.TO is its CRWMT (SHOULD).
- 3.4.2: no admin command is half of a fused operation (SHOULD).
- 4.3.2: a Connect that has more data than its SGL ends with an error (MUST).
- 5.2.12.1.35: the Log Page Count of notifications has 64 bits, and rises (MUST).
- 8.1.24.1: each type excludes Compare and Verify as Read, what writes as Write; no host from Report (MUST).
- 8.1.24.3: a key that was replaced is no key any more (MUST).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from nvme_tcp_proxy_connection import Item, ProxyConnection
from nvme_tcp_rules import (
    accepts,
    action,
    commands,
    fabrics,
    host,
    log,
    on_io,
    patch,
    refuses,
    results,
    shared,
    target,
)

from storagetest.wire.nvme.codes import Fctype, Io, LogPage, Property, StatusCode
from storagetest.wire.nvme.command import Command
from storagetest.wire.nvme_tcp.pdu import CapsuleCmd, DecodedPdu

FURTHER = on_io(Io.COMPARE, Io.VERIFY, Io.FLUSH, Io.WRITE_ZEROES, Io.DATASET_MANAGEMENT, Io.COPY)
CRTO = fabrics(Fctype.PROPERTY_GET, cdw11=Property.CRTO)
CRKEY, OTHER_KEY = slice(0, 8), slice(8, 16)

target(
    "access-too-strict | Base 8.1.24.1 | commands other than Read and Write are excluded of every host",
    refuses(StatusCode.RESERVATION_CONFLICT, when=FURTHER),
)
target(
    "access-unchecked | Base 8.1.24.1 | a reservation excludes Read and Write alone",
    accepts(StatusCode.RESERVATION_CONFLICT, when=FURTHER),
)
target(
    "access-own-refused | Base 8.1.24.1 | a reservation excludes Report",
    refuses(StatusCode.RESERVATION_CONFLICT, when=on_io(Io.RESERVATION_REPORT)),
)
target(
    "notice-count-byte | Base 5.2.12.1.35 | the Log Page Count of notifications has eight bits",
    patch(lambda raw: raw[:1] + bytes(7) + raw[8:], when=log(LogPage.RESERVATION_NOTIFICATION)),
)


def _rekeyed(notes: set[object]) -> ProxyConnection:
    """A Preempt takes keys that were replaced. ``notes``: (old key, new key)."""

    def of_host(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
        if not isinstance(got.pdu, CapsuleCmd):
            return None
        command, data = Command.decode(got.pdu.sqe), got.pdu.data
        if action(Io.RESERVATION_REGISTER, 2)(through, command):
            notes.add((data[CRKEY], data[OTHER_KEY]))
        elif action(Io.RESERVATION_ACQUIRE, 1, 2)(through, command):
            new = [one[1] for one in notes if isinstance(one, tuple) and one[0] == data[OTHER_KEY]]
            return [replace(got.pdu, data=data[CRKEY] + new[0])] if new else None
        return None

    return ProxyConnection(of_host=of_host)


shared("rekeyed-stays | Base 8.1.24.3 | a Preempt of a key that was replaced preempts the host", _rekeyed)

# Forms of admin commands

target(
    "connect-short | Base 4.3.2 | a Connect with a part of its data succeeds",
    accepts(StatusCode.DATA_SGL_LENGTH_INVALID, StatusCode.INVALID_FIELD, when=fabrics(Fctype.CONNECT)),
)
host(
    "fuse-on-admin | Base 3.4.2 | FUSE of an admin command is ignored",
    commands(
        lambda capsule, c: replace(capsule, sqe=replace(c, flags=c.flags & ~3).encode()),
        when=lambda t, c: not t.qid and bool(c.flags & 3),
    ),
)
target("crto-refused | Base 3.1.4.21 | CRTO is refused", refuses(StatusCode.INVALID_FIELD, when=CRTO))
target("crto-zero | Base 3.1.4.21 | CRTO is 0", results(lambda t, c, old: 0, when=CRTO))
