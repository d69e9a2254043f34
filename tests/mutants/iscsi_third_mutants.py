"""Broken rules of three nexuses, of transfers over 16 MiB, of TSIHs, and of tasks that wait for their data.

The rules, from the text:

- SPC-4 MODE SELECT, PREEMPT AND ABORT, SAM-5 5.14: each nexus that is concerned is notified, or has its commands aborted, and no other (MUST).
- RFC 7143 11.7.5, 11.8.3: buffer offsets have 32 bits (MUST).
- RFC 7143 6.3.1, 11.12.6: a TSIH of 16 bits names one session (MUST).
- RFC 7143 11.5.1, 4.2.3.3: a function ends each task that it covers (MUST).
"""

# ruff: noqa: E501  # a mutant is a row of a table

from __future__ import annotations

from dataclasses import replace

from iscsi_proxy_connection import Out, ProxyConnection, mutant, on_request
from iscsi_reinstatement_mutants import both
from iscsi_rules import attention, good

from storagetest.wire.iscsi.codes import Stage, TaskFunction
from storagetest.wire.iscsi.encoding import Pdu
from storagetest.wire.iscsi.pdu import (
    DataIn,
    DataOut,
    LoginRequest,
    LoginResponse,
    ReadyToTransfer,
    ScsiCommand,
    ScsiResponse,
    TaskResponse,
)
from storagetest.wire.scsi.codes import Asc, PrOut, ScsiStatus
from storagetest.wire.scsi.sense import decode_sense

MODE_SELECT_6, PR_OUT, WRITE_10, VERIFY_16, UNMAP, CACHING = 0x15, 0x5F, 0x2A, 0x8F, 0x42, 0x08
SERVICE_IN, GET_LBA_STATUS = 0x9E, 0x12
FAR = 1 << 24
LOW = FAR - 1

# Three nexuses


def _notes_page(talk: ProxyConnection, pdu: Pdu) -> Pdu:
    if isinstance(pdu, DataOut) and talk.cdb(pdu)[0] == MODE_SELECT_6:
        talk.shared["page"] = pdu.data[4] & 0x3F
    return pdu


def _caching_unreported(talk: ProxyConnection, pdu: Pdu) -> Out:
    if not attention(pdu) or decode_sense(pdu.sense).asc != Asc.MODE_PARAMETERS_CHANGED:  # type: ignore[attr-defined]
        return pdu
    return good(pdu) if talk.shared.get("page") == CACHING and talk.name.endswith("-c") else pdu


both("caching-change-third-unreported | SPC-4 MODE SELECT | a change of the Caching page is not reported to a third initiator", _caching_unreported, _notes_page, kind="full")  # fmt: skip


@mutant(
    "mode-change-reported-once | SPC-4 MODE SELECT | of the changes of a mode page the first one alone is reported to a nexus",
    kind="full",
)
def reported_once(talk: ProxyConnection, pdu: Pdu) -> Out:
    if not attention(pdu) or decode_sense(pdu.sense).asc != Asc.MODE_PARAMETERS_CHANGED:  # type: ignore[attr-defined]
        return pdu
    again = talk.memory.get("reported")
    talk.memory["reported"] = True
    return good(pdu) if again else pdu


def _late(talk: ProxyConnection, pdu: Pdu, event: str, name: str) -> bool:
    """Whether this is the last Data-Out of a write of a nexus, after an event."""
    return (
        event in talk.shared
        and isinstance(pdu, DataOut)
        and pdu.final
        and talk.cdb(pdu)[0] == WRITE_10
        and talk.name.endswith(name)
    )


def _ended(row: str, event: str, name: str, status: int) -> None:
    """A mutant that ends a write of the nexus ``name`` in ``status`` when its data come after an event."""

    def request(talk: ProxyConnection, pdu: Pdu) -> Out:
        if not _late(talk, pdu, event, name):
            return pdu
        last = talk.last
        assert last is not None
        used = last.stat_sn + (not isinstance(last, (ReadyToTransfer, DataIn)))  # type: ignore[attr-defined]
        talk.answer(pdu, ScsiResponse, status=status, stat_sn=used)
        return None

    def reply(talk: ProxyConnection, pdu: Pdu) -> Out:
        aborts = talk.cdb(pdu)[0] == PR_OUT and talk.cdb(pdu)[1] & 0x1F == PrOut.PREEMPT_AND_ABORT
        if isinstance(pdu, ScsiResponse) and aborts:
            talk.shared["abort"] = True
        if isinstance(pdu, TaskResponse) and talk.tasks[pdu.itt].function == TaskFunction.LOGICAL_UNIT_RESET:
            talk.shared["reset"] = True
        return pdu

    both(row, reply, request, kind="full")


_ended("reset-spares-third | RFC 7143 11.5.1 | LOGICAL UNIT RESET spares the write of a third initiator", "reset", "-b", ScsiStatus.GOOD)  # fmt: skip
_ended("preempt-aborts-third | SPC-4 PREEMPT AND ABORT | the write of a third registrant is aborted", "abort", "-c", ScsiStatus.TASK_ABORTED)  # fmt: skip
_ended("preempt-aborts-one | SPC-4 PREEMPT AND ABORT | of two nexuses with the key one has its write aborted", "abort", "-d", ScsiStatus.GOOD)  # fmt: skip


def _notes_preempt(talk: ProxyConnection, pdu: Pdu) -> Pdu:
    if isinstance(pdu, ScsiCommand) and pdu.cdb[0] == PR_OUT:
        talk.shared["preempted"] = pdu.cdb[1] & 0x1F == PrOut.PREEMPT
    return pdu


def _released(row: str, name: str) -> None:
    """A mutant that does not report a change of the type by PREEMPT to nexuses with names of that end."""

    def reply(talk: ProxyConnection, pdu: Pdu) -> Out:
        if not attention(pdu) or decode_sense(pdu.sense).asc != Asc.RESERVATIONS_RELEASED:  # type: ignore[attr-defined]
            return pdu
        return good(pdu) if talk.shared.get("preempted") and talk.name.endswith(name) else pdu

    both(row, reply, _notes_preempt, kind="full")


_released(
    "preempt-change-unreported | SPC-4 PREEMPT | a PREEMPT that changes the type is not reported to the others",
    "",
)
_released(
    "preempt-change-reported-once | SPC-4 PREEMPT | a PREEMPT that changes the type is reported to one other",
    "-d",
)

# Transfers of more than 16 MiB


@mutant("offset-three-bytes | RFC 7143 11.7.5 | a Data-In has three bytes of its buffer offset", kind="full")
def offset_three_bytes(talk: ProxyConnection, pdu: Pdu) -> Out:
    return replace(pdu, buffer_offset=pdu.buffer_offset & LOW) if isinstance(pdu, DataIn) else pdu


@mutant(
    "far-data-repeated | RFC 7143 11.7.5 | the data past 16 MiB of a read are its first ones", kind="full"
)
def far_data_repeated(talk: ProxyConnection, pdu: Pdu) -> Out:
    if not isinstance(pdu, DataIn):
        return pdu
    if not pdu.buffer_offset:
        talk.memory["first"] = pdu.data
    return replace(pdu, data=talk.memory["first"][: len(pdu.data)]) if pdu.buffer_offset >= FAR else pdu


@mutant("r2t-offset-three-bytes | RFC 7143 11.8.3 | an R2T has three bytes of its buffer offset", kind="full")
def r2t_offset_three_bytes(talk: ProxyConnection, pdu: Pdu) -> Out:
    return replace(pdu, buffer_offset=pdu.buffer_offset & LOW) if isinstance(pdu, ReadyToTransfer) else pdu


@on_request("far-data-out-dropped | SBC-3 VERIFY | data past 16 MiB are not compared", kind="full")
def far_data_out_dropped(talk: ProxyConnection, pdu: Pdu) -> Out:
    far = isinstance(pdu, DataOut) and talk.cdb(pdu)[0] == VERIFY_16 and pdu.buffer_offset >= FAR
    return replace(pdu, data=bytes(len(pdu.data))) if far else pdu


@on_request(
    "long-data-out-lost | RFC 7143 11.7 | a Data-Out of as many bytes as the target takes is stored as zeroes",
    kind="digests",
)
def long_data_out_lost(talk: ProxyConnection, pdu: Pdu) -> Out:
    long = isinstance(pdu, DataOut) and len(pdu.data) >= 65536
    return replace(pdu, data=bytes(len(pdu.data))) if long else pdu


@on_request("unmap-empty-ends | SBC-3 UNMAP | a descriptor of no blocks is the last one", kind="full")
def unmap_empty_ends(talk: ProxyConnection, pdu: Pdu) -> Out:
    if not isinstance(pdu, (ScsiCommand, DataOut)) or talk.cdb(pdu)[0] != UNMAP or len(pdu.data) < 24:
        return pdu
    parts = [pdu.data[at : at + 16] for at in range(8, len(pdu.data), 16)]
    ends = next((number for number, part in enumerate(parts) if not any(part[8:12])), len(parts))
    empty = [part if number < ends else part[:8] + bytes(8) for number, part in enumerate(parts)]
    return replace(pdu, data=pdu.data[:8] + b"".join(empty))


@mutant(
    "lba-status-later-deallocated | SBC-3 GET LBA STATUS | the descriptors after a deallocated one are deallocated",
    kind="thin",
)
def later_deallocated(talk: ProxyConnection, pdu: Pdu) -> Out:
    block = talk.cdb(pdu)
    if not isinstance(pdu, DataIn) or block[0] != SERVICE_IN or block[1] & 0x1F != GET_LBA_STATUS:
        return pdu
    parts, seen = [pdu.data[at : at + 16] for at in range(8, len(pdu.data), 16)], 0
    for number, part in enumerate(parts):
        seen |= part[12] if len(part) > 12 else 0
        parts[number] = part[:12] + bytes((seen,)) + part[13:] if len(part) > 12 else part
    return replace(pdu, data=pdu.data[:8] + b"".join(parts))


# TSIH


def _turned(isid: bytes) -> bytes:
    return isid[:-1] + bytes((isid[-1] ^ 0x40,))


def _ignores(row: str, mask: int) -> None:
    """A mutant that compares the bits of ``mask`` of a TSIH: the login is another session's, behind its back."""

    def request(talk: ProxyConnection, pdu: Pdu) -> Out:
        if not isinstance(pdu, LoginRequest) or not pdu.tsih:
            return pdu
        known = talk.shared.get("tsihs", ())
        talk.memory["taken"] = any(one != pdu.tsih and not (one ^ pdu.tsih) & mask for one in known)
        return replace(pdu, tsih=0, isid=_turned(pdu.isid)) if talk.memory["taken"] else pdu

    def reply(talk: ProxyConnection, pdu: Pdu) -> Out:
        if not isinstance(pdu, LoginResponse):
            return pdu
        if talk.memory.get("taken"):
            return replace(pdu, isid=_turned(pdu.isid))
        if pdu.tsih and pdu.nsg == Stage.FULL_FEATURE:
            talk.shared.setdefault("tsihs", set()).add(pdu.tsih)
        return pdu

    both(row, reply, request)


_ignores(
    "tsih-high-byte-ignored | RFC 7143 6.3.1 | a login names a session with the low byte of its TSIH", 0x00FF
)
_ignores(
    "tsih-low-byte-ignored | RFC 7143 6.3.1 | a login names a session with the high byte of its TSIH", 0xFF00
)


@mutant("tsih-used-again | RFC 7143 11.13.3 | the 200th session has the TSIH of the first, which is open")
def tsih_used_again(talk: ProxyConnection, pdu: Pdu) -> Out:
    if not isinstance(pdu, LoginResponse) or not pdu.tsih:
        return pdu
    found = talk.shared.setdefault("found", [])
    found.append(pdu.tsih)
    return replace(pdu, tsih=found[0]) if len(found) % 200 == 0 else pdu


# Tasks that wait for their data


@mutant(
    "reset-spares-queued | RFC 7143 11.5.1 | a write whose data were not asked for outlives LOGICAL UNIT RESET",
    kind="queued",
)
def reset_spares_queued(talk: ProxyConnection, pdu: Pdu) -> Out:
    if isinstance(pdu, ReadyToTransfer):
        talk.memory.setdefault("asked", set()).add(pdu.itt)
    if not isinstance(pdu, TaskResponse):
        return pdu
    left = [
        itt for itt, one in talk.commands.items() if one.write and itt not in talk.memory.get("asked", ())
    ]
    if not left:
        return pdu
    numbers = {"stat_sn": pdu.stat_sn + 1, "exp_cmd_sn": pdu.exp_cmd_sn, "max_cmd_sn": pdu.max_cmd_sn}
    return [pdu, ScsiResponse(itt=left[-1], **numbers)]


def _after_reset(talk: ProxyConnection, pdu: Pdu) -> Out:
    if isinstance(pdu, TaskResponse):
        talk.memory["writes"] = 0
    return pdu


def _fewer(talk: ProxyConnection, pdu: Pdu) -> Out:
    if not isinstance(pdu, ScsiCommand) or not pdu.write or "writes" not in talk.memory:
        return pdu
    talk.memory["writes"] += 1
    if talk.memory["writes"] <= 16:
        return pdu
    return replace(pdu, cdb=bytes((0xFF, *bytes(15))))  # it ends in CHECK CONDITION


both("places-lost-by-reset | RFC 7143 4.2.2.1 | after a reset of waiting writes sixteen writes are served at a time", _after_reset, _fewer, kind="queued")  # fmt: skip
