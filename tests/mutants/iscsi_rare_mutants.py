"""Mutants of rare flags, of large transfers, of the second time and of the third registrant."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from iscsi_proxy_connection import Out, ProxyConnection, mutant, on_request
from iscsi_rules import check, ends, replies
from iscsi_scsi_mutants import scsi

from storagetest.wire.iscsi.codes import TaskFunction
from storagetest.wire.iscsi.encoding import Pdu
from storagetest.wire.iscsi.pdu import (
    DataIn,
    DataOut,
    LoginResponse,
    ReadyToTransfer,
    Reject,
    ScsiCommand,
    ScsiResponse,
    TaskRequest,
    TextRequest,
    TextResponse,
)

TRANSFERS = (0x28, 0x2A, 0x88, 0x8A)
PR_IN, PR_OUT, UNMAP = 0x5E, 0x5F, 0x42


def cdbs(row: str, change: Callable[[bytes], bytes | None]) -> None:
    """A mutant that executes another CDB; None keeps it."""

    @on_request(row)
    def request(talk: ProxyConnection, pdu: Pdu) -> Out:
        new = change(pdu.cdb) if isinstance(pdu, ScsiCommand) else None
        return pdu if new is None else replace(pdu, cdb=new)


def refuses(row: str, when: Callable[[bytes], bool]) -> None:
    """A mutant that answers INVALID FIELD IN CDB where a command was GOOD."""

    @mutant(row)
    def reply(talk: ProxyConnection, pdu: Any) -> Pdu:
        mine = ends(pdu) and when(talk.cdb(pdu))
        return check(pdu, 5, 0x2400) if mine and not pdu.status else pdu  # type: ignore[no-any-return]


# Rare fields of a CDB


cdbs(
    "read-10-zero-is-256 | SBC-3 READ(10) | a TRANSFER LENGTH of zero reads 256 blocks",
    lambda cdb: cdb[:7] + b"\1\0" + cdb[9:] if cdb[0] == 0x28 and cdb[7:9] == b"\0\0" else None,
)
cdbs(
    "read-6-zero-is-none | SBC-3 READ(6) | a TRANSFER LENGTH of zero reads no block",
    lambda cdb: (
        b"\x28\0\0" + bytes([cdb[1] & 0x1F]) + cdb[2:4] + bytes(10) if cdb[0] == 8 and not cdb[4] else None
    ),
)
refuses(
    "dpo-refused | SBC-3 READ, WRITE | DPO is refused",
    lambda cdb: cdb[0] in TRANSFERS and bool(cdb[1] & 0x10),
)
refuses(
    "fua-refused | SBC-3 READ, WRITE | FUA is refused",
    lambda cdb: cdb[0] in TRANSFERS and bool(cdb[1] & 0x08),
)
cdbs(
    "protect-ignored | SBC-3 READ, WRITE | RDPROTECT and WRPROTECT are not looked at",
    lambda cdb: cdb[:1] + bytes([cdb[1] & 0x1F]) + cdb[2:] if cdb[0] in TRANSFERS and cdb[1] >> 5 else None,
)
refuses(
    "sync-immediate-refused | SBC-3 SYNCHRONIZE CACHE | IMMED is refused",
    lambda cdb: cdb[0] in (0x35, 0x91) and bool(cdb[1] & 2),
)
cdbs(
    "page-code-without-evpd | SPC-4 INQUIRY | a page code without EVPD is not looked at",
    lambda cdb: cdb[:2] + b"\0" + cdb[3:] if cdb[0] == 0x12 and not cdb[1] & 1 else None,
)
cdbs(
    "changeable-is-current | SPC-4 MODE SENSE | PC 01b returns the current values",
    lambda cdb: (
        cdb[:2] + bytes([cdb[2] & 0x3F]) + cdb[3:] if cdb[0] in (0x1A, 0x5A) and cdb[2] >> 6 == 1 else None
    ),
)
refuses(
    "all-subpages-refused | SPC-4 MODE SENSE | page 3Fh with subpage FFh is refused",
    lambda cdb: cdb[0] in (0x1A, 0x5A) and cdb[2] & 0x3F == 0x3F and cdb[3] == 0xFF,
)
cdbs(
    "sense-always-fixed | SPC-4 REQUEST SENSE | DESC is not looked at",
    lambda cdb: cdb[:1] + b"\0" + cdb[2:] if cdb[0] == 3 and cdb[1] & 1 else None,
)


@mutant("ordered-refused | SAM-5 8.6 | a command with the ORDERED attribute is refused")
def ordered_refused(talk: ProxyConnection, pdu: Any) -> Out:
    command = talk.commands.get(pdu.itt) if ends(pdu) else None
    return check(pdu, 5, 0x2400) if command is not None and command.attribute == 2 and not pdu.status else pdu


@on_request("unmap-first-range | SBC-3 UNMAP | UNMAP unmaps its first range only")
def unmap_first(talk: ProxyConnection, pdu: Pdu) -> Out:
    if isinstance(pdu, (ScsiCommand, DataOut)) and talk.cdb(pdu)[0] == UNMAP and len(pdu.data) > 24:
        return replace(pdu, data=pdu.data[:2] + b"\0\x10" + pdu.data[4:])
    return pdu


# Reservations


def _third_key(data: bytearray, cdb: bytes) -> None:
    if cdb[1] & 0x1F == 0 and len(data) >= 32:
        data[24:32] = bytes(8)


scsi("third-key-lost | SPC-4 READ KEYS | the third key is returned as zero", PR_IN, _third_key)


def _holders(data: bytearray, cdb: bytes) -> None:
    at = 8
    while cdb[1] & 0x1F == 3 and at + 24 <= len(data):
        data[at + 12] |= 1
        at += 24 + int.from_bytes(data[at + 20 : at + 24], "big")


scsi("all-are-holders | SPC-4 READ FULL STATUS | R_HOLDER is set for every registrant", PR_IN, _holders)
cdbs(
    "existing-key-checked | SPC-4 REGISTER AND IGNORE EXISTING KEY | the existing key is compared",
    lambda cdb: cdb[:1] + b"\0" + cdb[2:] if cdb[0] == PR_OUT and cdb[1] & 0x1F == 6 else None,
)


# Large transfers


replies(
    "data-in-offset-16-bits | RFC 7143 11.7.4 | the Buffer Offset of Data-In has 16 bits",
    DataIn,
    lambda pdu, talk: replace(pdu, buffer_offset=pdu.buffer_offset & 0xFFFF),
)
replies(
    "r2t-offset-16-bits | RFC 7143 11.8.4 | the Buffer Offset of R2T has 16 bits",
    ReadyToTransfer,
    lambda pdu, talk: replace(pdu, buffer_offset=pdu.buffer_offset & 0xFFFF),
)


# The second time


@mutant("second-residual-zero | RFC 7143 11.4.5 | the second residual of a session is 0")
def second_residual(talk: ProxyConnection, pdu: Any) -> Out:
    if not ends(pdu) or not pdu.residual:
        return pdu
    talk.memory["residuals"] = talk.memory.get("residuals", 0) + 1
    return pdu if talk.memory["residuals"] == 1 else replace(pdu, residual=0)


@mutant("second-text-rejected | RFC 7143 7.2.2 | the second Text Request of a connection is rejected")
def second_text(talk: ProxyConnection, pdu: Any) -> Out:
    if not isinstance(pdu, TextResponse):
        return pdu
    talk.memory["texts"] = talk.memory.get("texts", 0) + 1
    if talk.memory["texts"] == 1:
        return pdu
    header = TextRequest(itt=pdu.itt, final=True).parts().wire()[:48]
    return Reject(
        reason=4, data=header, stat_sn=pdu.stat_sn, exp_cmd_sn=pdu.exp_cmd_sn, max_cmd_sn=pdu.max_cmd_sn
    )


@on_request("abort-set-of-all | RFC 7143 11.5.1 | ABORT TASK SET aborts the tasks of every initiator")
def abort_set_of_all(talk: ProxyConnection, pdu: Pdu) -> Out:
    if isinstance(pdu, TaskRequest) and pdu.function == TaskFunction.ABORT_TASK_SET:
        return replace(pdu, function=TaskFunction.CLEAR_TASK_SET)
    return pdu


@mutant("one-tsih | RFC 7143 11.13.3 | all sessions get the TSIH of the first")
def one_tsih(talk: ProxyConnection, pdu: Pdu) -> Out:
    if isinstance(pdu, LoginResponse) and pdu.tsih:
        return replace(pdu, tsih=talk.shared.setdefault("tsih", pdu.tsih))
    return pdu


@mutant("exp-data-sn-zero | RFC 7143 11.4.8 | ExpDataSN is 0")
def exp_data_sn_zero(talk: ProxyConnection, pdu: Pdu) -> Out:
    return replace(pdu, exp_data_sn=0) if isinstance(pdu, ScsiResponse) and pdu.exp_data_sn else pdu
