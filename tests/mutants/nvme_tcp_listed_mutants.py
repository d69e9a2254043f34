"""Broken rules from the histories of targets: lists, discovery, Abort, and namespaces other than the first.

Each of these faults, or its neighbour, was mended in a target. The rules (NVM Express Base 2.3, NVM Command
Set 1.2):

- 4.6.2: unused entries of a list of namespaces are zero (MUST).
- 5.2.13.2.3, 3.2.1.5: there are no descriptors of an NSID that is not active (MUST).
- 3.1.3.4: a discovery controller that supports explicit persistent connections has Keep Alive (MUST).
- 5.2.1: Abort is of the command that it names (MUST).
- 3.2.1: a command is of the namespace that it names (MUST).
- 5.2.13.2.1: VWC announces the feature Volatile Write Cache; without it, the feature is refused (MUST).
- NVM 3.3.3.1: all limits of Dataset Management are zero, or none is (MUST).
- 7.8: the report has registrants without a controller, too; their CNTLID is FFFFh (MUST).
- 5.2.11, 4.2.3.1: a feature that is not there has no value, default or capability (MUST).
- 4.3.2: a command that needs more data than its SGL has is aborted (MUST).
"""

from __future__ import annotations

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
    on_io,
    patch,
    put,
    shared,
    target,
)

from storagetest.wire.nvme.codes import Admin, Cns, Fctype, Feature, Io, StatusCode
from storagetest.wire.nvme.command import Command, Cqe
from storagetest.wire.nvme.fabrics import DISCOVERY_NQN
from storagetest.wire.nvme_tcp.pdu import C2HData, CapsuleCmd, CapsuleResp, DecodedPdu

CONNECT = fabrics(Fctype.CONNECT)
INACTIVE = (3, 4)
"""NSIDs of the controller that are valid, and not active."""


target(
    "namespace-list-rest | Base 4.6.2 | the list of namespaces has old data after its last entry",
    patch(put(2048, b"SECOND"), when=identify(Cns.ACTIVE_NAMESPACES)),
)


def _empty_list(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
    if not isinstance(got.pdu, CapsuleCmd):
        return None
    asked = Command.decode(got.pdu.sqe)
    if not identify(Cns.DESCRIPTORS)(through, asked) or asked.nsid not in INACTIVE:
        return None
    through.send_to_host(through.encode(C2HData(asked.cid, 0, bytes(4096)), through.icreq.hpda))
    through.reply(Cqe(asked.cid, sqhd=1))
    return []


host(
    "descriptors-of-inactive | Base 5.2.13.2.3 | an inactive namespace has an empty list of descriptors",
    _empty_list,
)


def _no_keep_alive(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
    if not isinstance(got.pdu, CapsuleCmd):
        return None
    asked = Command.decode(got.pdu.sqe)
    if CONNECT(through, asked):
        through.memory["discovery"] = DISCOVERY_NQN.encode() in got.pdu.data
    elif asked.opcode == Admin.KEEP_ALIVE and through.memory.get("discovery"):
        through.reply(Cqe(asked.cid, StatusCode.INVALID_OPCODE, sqhd=1))
        return []
    return None


host(
    "discovery-keep-alive-refused | Base 3.1.3.4 | a discovery controller has no Keep Alive",
    _no_keep_alive,
)


# Abort (5.2.1)


def _takes_event(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
    asked = through.command_of(got)
    if not isinstance(got.pdu, CapsuleResp) or asked is None or asked.opcode != Admin.ABORT or through.qid:
        return None
    if Cqe.decode(got.pdu.cqe).dw0 & 1:
        waiting = [
            cid for cid, one in through.commands.items() if one.opcode == Admin.ASYNCHRONOUS_EVENT_REQUEST
        ]
        for cid in waiting[-1:]:
            through.reply(Cqe(cid, StatusCode.ABORTED_BY_REQUEST, sqhd=1))
    return None


target(
    "abort-none-takes-event | Base 5.2.1 | an Abort that finds no command ends the last event request",
    _takes_event,
)


def _takes_write(notes: set[object]) -> ProxyConnection:
    """``notes``: whether an Abort of a command in an I/O queue has found none."""

    def of_host(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
        if isinstance(got.pdu, CapsuleCmd):
            asked = Command.decode(got.pdu.sqe)
            if asked.opcode == Admin.ABORT and not through.qid and asked.cdw10 & 0xFFFF:
                through.memory["abort"] = asked.cid
        return None

    def of_target(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
        if not isinstance(got.pdu, CapsuleResp):
            return None
        cqe, asked = Cqe.decode(got.pdu.cqe), through.command_of(got)
        if not through.qid and cqe.cid == through.memory.get("abort") and cqe.dw0 & 1:
            notes.add("aborted")
        if asked is not None and on_io(Io.WRITE)(through, asked) and notes:
            return [CapsuleResp(replace(cqe, status=StatusCode.ABORTED_BY_REQUEST).encode())]
        return None

    return ProxyConnection(of_host=of_host, of_target=of_target)


shared(
    "abort-none-takes-write | Base 5.2.1 | an Abort that finds no command ends the write that waits",
    _takes_write,
)


# Namespaces other than the first (3.2.1)


def _reads_past_end(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
    asked = through.command_of(got)
    if not isinstance(got.pdu, CapsuleResp) or asked is None or not on_io(Io.READ)(through, asked):
        return None
    cqe = Cqe.decode(got.pdu.cqe)
    if asked.nsid == 1 or cqe.status != StatusCode.LBA_OUT_OF_RANGE:
        return None
    length = int.from_bytes(asked.dptr[8:12], "little")
    done = replace(cqe, status=StatusCode.SUCCESS, dnr=False)
    return [C2HData(asked.cid, 0, bytes(length)), CapsuleResp(done.encode())]


target(
    "end-of-first-namespace | NVM 3.3.4 | reads past the end of any namespace but the first are done",
    _reads_past_end,
)
host(
    "namespace-of-busy-queue | Base 3.2.1 | a read is of the first namespace if another command is in flight",
    commands(
        lambda capsule, asked: CapsuleCmd(replace(asked, nsid=1).encode(), capsule.data),
        when=lambda t, c: on_io(Io.READ)(t, c) and c.nsid != 1 and len(t.commands) > 1,
    ),
)


# What Identify announces, and what an SGL has


host(
    "write-cache-refused | Base 5.2.26.1.4 | Get Features of the write cache that VWC announces is refused",
    drops_command(feature(Admin.GET_FEATURES, Feature.VOLATILE_WRITE_CACHE), status=StatusCode.INVALID_FIELD),
)
target(
    "write-cache-unannounced | Base 5.2.13.2.1 | VWC announces no write cache, and its feature is taken",
    patch(put(525, b"\0"), when=identify(Cns.CONTROLLER)),
)
target(
    "unknown-selected | Base 4.2.3.1 | defaults and capabilities of any feature are read",
    accepts(
        StatusCode.INVALID_FIELD,
        when=lambda t, c: feature(Admin.GET_FEATURES)(t, c) and bool(c.cdw10 >> 8 & 3),
    ),
)
target(
    "dsm-limits-one | NVM 3.3.3.1 | DMRL is 1, DMRSL and DMSL are 0",
    patch(put(3, b"\1"), when=identify(Cns.CSI_CONTROLLER)),
)
target(
    "ranges-beyond-sgl | Base 4.3.2 | Copy and Dataset Management of more ranges than their SGL has succeed",
    accepts(StatusCode.DATA_SGL_LENGTH_INVALID, when=on_io(Io.COPY, Io.DATASET_MANAGEMENT)),
)


# Registrants without a controller (7.8)

HEAD, ENTRY = 64, 64
"""Bytes of a Reservation Report before its entries, and of an entry (extended)."""
NO_CONTROLLER = b"\xff\xff"


def _connected_only(raw: bytes) -> bytes:
    count = int.from_bytes(raw[5:7], "little")
    entries = [raw[at : at + ENTRY] for at in range(HEAD, HEAD + count * ENTRY, ENTRY)]
    kept = [one for one in entries if one[:2] != NO_CONTROLLER]
    head = raw[:5] + len(kept).to_bytes(2, "little") + raw[7:HEAD]
    return (head + b"".join(kept)).ljust(len(raw), b"\0")


target(
    "report-of-connected | Base 7.8 | the report leaves out registrants that have no controller",
    patch(_connected_only, when=on_io(Io.RESERVATION_REPORT)),
)
target(
    "report-cntlid-of-gone | Base 7.8 | CNTLID of a registrant without a controller is FFFDh",
    patch(
        lambda raw: raw[:HEAD] + raw[HEAD:].replace(NO_CONTROLLER, b"\xfd\xff"),
        when=on_io(Io.RESERVATION_REPORT),
    ),
)
