"""Mutants of rare flags, of large transfers, of the second time and of the third registrant."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from iscsi_proxy_connection import Out, ProxyConnection, mutant, on_request
from iscsi_rules import ends, replies
from iscsi_scsi_mutants import scsi

from storagetest.wire.iscsi.encoding import Pdu
from storagetest.wire.iscsi.pdu import (
    DataIn,
    LoginResponse,
    ReadyToTransfer,
    ScsiCommand,
)

TRANSFERS = (0x28, 0x2A, 0x88, 0x8A)
PR_IN, PR_OUT, UNMAP = 0x5E, 0x5F, 0x42


def cdbs(row: str, change: Callable[[bytes], bytes | None]) -> None:
    """A mutant that executes another CDB; None keeps it."""

    @on_request(row)
    def request(talk: ProxyConnection, pdu: Pdu) -> Out:
        new = change(pdu.cdb) if isinstance(pdu, ScsiCommand) else None
        return pdu if new is None else replace(pdu, cdb=new)


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


# Reservations


def _third_key(data: bytearray, cdb: bytes) -> None:
    if cdb[1] & 0x1F == 0 and len(data) >= 32:
        data[24:32] = bytes(8)


scsi("third-key-lost | SPC-4 READ KEYS | the third key is returned as zero", PR_IN, _third_key)


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


@mutant("one-tsih | RFC 7143 11.13.3 | all sessions get the TSIH of the first")
def one_tsih(talk: ProxyConnection, pdu: Pdu) -> Out:
    if isinstance(pdu, LoginResponse) and pdu.tsih:
        return replace(pdu, tsih=talk.shared.setdefault("tsih", pdu.tsih))
    return pdu


# Fields of a page


def _alignment(data: bytearray, cdb: bytes) -> None:
    if cdb[1] & 0x1F == 0x10 and len(data) >= 16:
        data[14] |= 0x3F


scsi(
    "capacity-alignment | SBC-3 READ CAPACITY(16) | the lowest aligned block is far behind the first one",
    0x9E,
    _alignment,
)
