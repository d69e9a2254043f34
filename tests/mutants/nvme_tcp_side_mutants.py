"""Rules that a controller keeps on one side alone: for the first piece, the first entry, the first queue.

The rules, from the text (NVMe/TCP 1.1; NVM Express Base 2.3), before any case:

- NVMe/TCP 3.3.2.2: the H2CData of an R2T are contiguous and in its range; 3.5: each DDGST is checked (MUST).
- NVMe/TCP 3.3.2.1: no CapsuleResp follows SUCCESS, on any queue (MUST).
- Base 6.3: SQSIZE 0 is refused (MUST); 6.4: so is a record format of Disconnect that is not there (MUST).
- Base 5.2.12: a part of a log page is that of the whole one, at any offset (MUST).
- Base 5.2.12.1.2: an entry of the error log has SQID and CID of its own command (MUST).
- Base 3.9.1: a Keep Alive Timeout is rounded up (MUST); 3.9.4.1: I/O commands are traffic (MUST).
- Base 5.2.13.2.2: the list has every active NSID that is greater than the given one (MUST).
- NVM 3.3.7: a write clears the mark of Write Uncorrectable, and nothing else (MUST).
- Base 4.2.1: SQHD is of the queue of the command (MUST). 4.4: what was not saved ends with a reset (SHOULD).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from nvme_tcp_proxy_connection import Item, ProxyConnection
from nvme_tcp_rules import (
    MUTANTS,
    accepts,
    add,
    fabrics,
    feature,
    host,
    identify,
    log,
    patch,
    response,
    results,
    shared,
    target,
)
from nvme_tcp_timer_mutants import expires
from proxy import Mutant

from storagetest.wire.nvme.codes import Admin, Cns, Fctype, Feature, Io, LogPage, StatusCode
from storagetest.wire.nvme.command import Command, Cqe
from storagetest.wire.nvme_tcp.pdu import R2T, C2HData, CapsuleCmd, CapsuleResp, DecodedPdu, H2CData

CONNECT, DISCONNECT = fabrics(Fctype.CONNECT), fabrics(Fctype.DISCONNECT)
NO_FLOW_CONTROL = 1 << 18
"""Dword 11 of Connect: SQ flow control is to be disabled (Base 6.3)."""
UNDER = 1 << 20
"""Dword 11 of Temperature Threshold: THSEL is the under temperature threshold (Base 5.2.26.1.3)."""
ENTRY = 64
"""Bytes of an entry of the error log (Base 5.2.12.1.2)."""


# H2CData (NVMe/TCP 3.3.2.2)


def _drops_behind(row: str, *, gap: bool) -> None:
    """Drop H2CData that leave a gap behind others of their command, or that repeat them."""

    def of_host(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
        if not isinstance(got.pdu, H2CData):
            return None
        ends = through.memory.setdefault("ends", {})
        end = ends.get(got.pdu.cccid)
        if end is not None and (got.pdu.offset > end if gap else got.pdu.offset < end):
            return []
        ends[got.pdu.cccid] = got.pdu.offset + len(got.pdu.data)
        return None

    host(row, of_host)


_drops_behind("data-later-gap-ignored | NVMe/TCP 3.3.2.2 | H2CData that skip bytes behind others", gap=True)
_drops_behind("data-again-ignored | NVMe/TCP 3.3.2.2 | H2CData that were sent before are skipped", gap=False)


def _notes_r2t(through: ProxyConnection, got: DecodedPdu) -> None:
    if isinstance(got.pdu, R2T):
        through.memory["end", got.pdu.ttag] = got.pdu.offset + got.pdu.length


def _completes_at_last(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
    if not isinstance(got.pdu, H2CData) or not got.pdu.last:
        return None
    if got.pdu.offset + len(got.pdu.data) >= through.memory.get(("end", got.pdu.ttag), 0):
        return None
    through.reply(Cqe(got.pdu.cccid, sqhd=1))
    return []


add(
    "last-pdu-completes | NVMe/TCP 3.6.2.8 | LAST_PDU completes a write, also if more data were asked for",
    lambda: ProxyConnection(of_target=_notes_r2t, of_host=_completes_at_last),
)


def _middle_unchecked(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
    if not isinstance(got.pdu, H2CData) or got.data_digest_ok is not False:
        return None
    return [got.pdu] if got.pdu.offset and not got.pdu.last else None


host("ddgst-middle-unchecked | NVMe/TCP 3.5 | DDGST of H2CData is checked at the ends", _middle_unchecked)


# SUCCESS on the admin queue (NVMe/TCP 3.3.2.1)


def _notes_flow_control(through: ProxyConnection, got: DecodedPdu) -> None:
    if isinstance(got.pdu, CapsuleCmd) and not through.qid:
        sent = Command.decode(got.pdu.sqe)
        if CONNECT(through, sent) and sent.cdw11 & NO_FLOW_CONTROL:
            through.memory["free"] = True


def _adds_success(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
    if not isinstance(got.pdu, C2HData) or not got.pdu.last or "free" not in through.memory:
        return None
    return [replace(got.pdu, success=True)]


add(
    "c2h-success-and-response-admin | NVMe/TCP 3.3.2.1 | a CapsuleResp follows SUCCESS on the admin queue",
    lambda: ProxyConnection(of_host=_notes_flow_control, of_target=_adds_success),
)


# Connect and Disconnect (Base 6.3, 6.4)


target(
    "connect-io-size-0 | Base 6.3 | SQSIZE 0 of an I/O queue is accepted",
    accepts(
        StatusCode.CONNECT_INVALID_PARAMETERS,
        when=lambda t, c: CONNECT(t, c) and bool(t.qid) and not c.cdw11 & 0xFFFF,
    ),
)
target(
    "disconnect-any-format | Base 6.4 | a Disconnect of any record format succeeds",
    accepts(StatusCode.CONNECT_INCOMPATIBLE_FORMAT, when=DISCONNECT),
)


# Log pages and lists (Base 5.2.12, 5.2.13.2.2)


target(
    "discovery-late-part | Base 5.2.12 | a part of the discovery log from byte 4,096 on is zeroes",
    patch(
        lambda raw: bytes(len(raw)),
        when=lambda t, c: log(LogPage.DISCOVERY)(t, c) and c.cdw12 >= 4096,
    ),
)


def _cid_of_other(raw: bytes) -> bytes:
    """Give each entry of the error log the CID of the entry behind it, which is the error before."""
    new = bytearray(raw)
    for at in range(0, len(raw) - ENTRY, ENTRY):
        if any(raw[at + ENTRY : at + ENTRY + 8]):
            new[at + 10 : at + 12] = raw[at + ENTRY + 10 : at + ENTRY + 12]
    return bytes(new)


target(
    "error-log-cid-of-other | Base 5.2.12.1.2 | an entry of the error log has the Command ID of another",
    patch(_cid_of_other, when=log(LogPage.ERROR)),
)
target(
    "identify-list-after-inactive | Base 5.2.13.2.2 | the list after an inactive NSID is empty",
    patch(
        lambda raw: bytes(len(raw)),
        when=lambda t, c: identify(Cns.ACTIVE_NAMESPACES)(t, c) and c.nsid == 2,
    ),
)
_MADE = MUTANTS["identify-list-after-inactive"]
MUTANTS[_MADE.name] = Mutant(_MADE.name, _MADE.section, _MADE.description, _MADE.make, kind="gaps")


# Features and the timer (Base 3.9, 4.4)


add(
    "io-traffic-not-counted | Base 3.9.4.1 | TBKAS is set, but I/O commands do not start the timer again",
    lambda: ProxyConnection(
        of_host=expires(
            enabled=True,
            restarts=(Admin.KEEP_ALIVE, Admin.SET_FEATURES, Admin.IDENTIFY, Admin.GET_LOG_PAGE),
        )
    ),
)
target(
    "kato-rounded-down | Base 3.9.1 | a Keep Alive Timeout is rounded down to the units of KAS",
    results(
        lambda t, c, old: old - 100 if old % 1000 else old, when=feature(Admin.GET_FEATURES, Feature.KATO)
    ),
)


def _notes_under(through: ProxyConnection, got: DecodedPdu) -> None:
    if isinstance(got.pdu, CapsuleCmd):
        sent = Command.decode(got.pdu.sqe)
        if feature(Admin.SET_FEATURES, Feature.TEMPERATURE_THRESHOLD)(through, sent) and sent.cdw11 & UNDER:
            through.memory["under"] = sent.cdw11 & 0xFFFF


add(
    "reset-keeps-under | Base 4.4 | the under temperature threshold outlives a reset without Save",
    lambda: ProxyConnection(
        of_host=_notes_under,
        of_target=results(
            lambda t, c, old: t.memory.get("under", old),
            when=lambda t, c: (
                feature(Admin.GET_FEATURES, Feature.TEMPERATURE_THRESHOLD)(t, c) and bool(c.cdw11 & UNDER)
            ),
        ),
    ),
)


# SQHD (Base 4.2.1)


def _head_of_first(notes: set[Any]) -> ProxyConnection:
    """``notes``: SQHD of the last completion of I/O queue 1."""

    def of_target(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
        if not isinstance(got.pdu, CapsuleResp) or not through.qid:
            return None
        cqe = Cqe.decode(got.pdu.cqe)
        if through.qid == 1:
            notes.clear()
            notes.add(cqe.sqhd)
            return None
        return [CapsuleResp(replace(cqe, sqhd=head).encode()) for head in notes] or None

    return ProxyConnection(of_target=of_target)


shared("sqhd-of-first-queue | Base 4.2.1 | SQHD of each I/O queue is that of the first one", _head_of_first)


# Marks of Write Uncorrectable (NVM 3.3.7)


def _notes_after_mark(through: ProxyConnection, got: DecodedPdu) -> None:
    """Note the last of Copy, Dataset Management without AD, and Write."""
    if isinstance(got.pdu, CapsuleCmd) and through.qid:
        sent = Command.decode(got.pdu.sqe)
        if sent.opcode in (Io.COPY, Io.WRITE, Io.DATASET_MANAGEMENT):
            through.memory["last"] = sent.opcode, sent.cdw10


def _copied(through: ProxyConnection, sent: Command | None, cqe: Cqe) -> Cqe | None:
    """Refuse a read of the first block that Copy has written."""
    if sent is None or sent.opcode != Io.READ or not through.qid:
        return None
    if through.memory.get("last") != (Io.COPY, sent.cdw10):
        return None
    return replace(cqe, status=StatusCode.UNRECOVERED_READ_ERROR)


add(
    "copy-leaves-mark | NVM 3.3.7 | a marked block cannot be read after a Copy to it",
    lambda: ProxyConnection(of_host=_notes_after_mark, of_target=response(_copied)),
)
add(
    "dsm-clears-mark | NVM 3.3.7 | Dataset Management without AD clears the marks of its blocks",
    lambda: ProxyConnection(
        of_host=_notes_after_mark,
        of_target=accepts(
            StatusCode.UNRECOVERED_READ_ERROR,
            when=lambda t, c: t.memory.get("last", (0,))[0] == Io.DATASET_MANAGEMENT,
        ),
    ),
)
