"""Mutants of what the small thin-provisioned target has: D_SENSE, and GET LBA STATUS."""

from __future__ import annotations

# ruff: noqa: E501  # a mutant is a row of a table
import struct
from collections.abc import Callable
from dataclasses import replace

from iscsi_proxy_connection import Out, ProxyConnection, mutant, on_request
from iscsi_rules import attention, check, good, sense_data

from storagetest.wire.iscsi.encoding import Pdu
from storagetest.wire.iscsi.pdu import DataIn, ScsiCommand, ScsiResponse
from storagetest.wire.scsi.sense import decode_sense

KIND = "thin"
"""The kind of target: the small one, thin provisioned."""
MODE_SELECT, MODE_SENSE, SERVICE_IN, LBA_STATUS = 0x15, 0x1A, 0x9E, 0x12
D_SENSE = 0x04


@mutant("d-sense-ignored | SPC-4 D_SENSE | sense data are in fixed format, whatever D_SENSE is", kind=KIND)
def d_sense_ignored(talk: ProxyConnection, pdu: Pdu) -> Out:
    if isinstance(pdu, ScsiResponse) and pdu.sense[:1] == b"\x72":
        sense = decode_sense(pdu.sense)
        return replace(pdu, data=sense_data(sense.key, sense.asc))
    return pdu


@mutant("d-sense-not-kept | SPC-4 MODE SELECT | MODE SENSE returns the default of D_SENSE", kind=KIND)
def d_sense_not_kept(talk: ProxyConnection, pdu: Pdu) -> Out:
    if isinstance(pdu, DataIn) and talk.cdb(pdu)[0] == MODE_SENSE and not talk.cdb(pdu)[2] >> 6:
        return replace(pdu, data=pdu.data[:6] + bytes((pdu.data[6] & ~D_SENSE,)) + pdu.data[7:])
    return pdu


@mutant(
    "d-sense-length | SPC-4 sense data | ADDITIONAL SENSE LENGTH in descriptor format is that of fixed format",
    kind=KIND,
)
def d_sense_length(talk: ProxyConnection, pdu: Pdu) -> Out:
    if isinstance(pdu, ScsiResponse) and pdu.sense[:1] == b"\x72":
        return replace(pdu, data=pdu.data[:9] + b"\x0a" + pdu.data[10:])
    return pdu


@mutant(
    "mode-change-unreported | SPC-4 MODE SELECT | a mode page that changed is not reported to the other nexuses",
    kind=KIND,
)
def mode_change_unreported(talk: ProxyConnection, pdu: Pdu) -> Out:
    reported = attention(pdu) and isinstance(pdu, ScsiResponse) and decode_sense(pdu.sense).asc == 0x2A01
    return good(pdu) if reported else pdu


@mutant(
    "d-sense-one-nexus | SPC-4 D_SENSE | one nexus gets the sense data of the format before the change",
    kind=KIND,
)
def d_sense_one_nexus(talk: ProxyConnection, pdu: Pdu) -> Out:
    if isinstance(pdu, ScsiResponse) and pdu.sense[:1] == b"\x72" and talk.name.endswith("-b"):
        sense = decode_sense(pdu.sense)
        return replace(pdu, data=sense_data(sense.key, sense.asc))
    return pdu


@mutant("mode-default-changed | SPC-4 MODE SENSE | MODE SELECT changes the default values, too", kind=KIND)
def mode_default_changed(talk: ProxyConnection, pdu: Pdu) -> Out:
    block = talk.cdb(pdu)
    if isinstance(pdu, ScsiResponse) and block[0] == MODE_SELECT and not pdu.status:
        talk.memory["selected"] = True
    if (
        isinstance(pdu, DataIn)
        and block[0] == MODE_SENSE
        and block[2] >> 6 == 2
        and talk.memory.get("selected")
    ):
        return replace(pdu, data=pdu.data[:6] + bytes((pdu.data[6] ^ D_SENSE,)) + pdu.data[7:])
    return pdu


def lba_status(row: str, change: Callable[[bytes], bytes]) -> None:
    """A mutant that changes the data of GET LBA STATUS."""

    @mutant(row, kind=KIND)
    def reply(talk: ProxyConnection, pdu: Pdu) -> Out:
        asked = talk.cdb(pdu)
        ours = isinstance(pdu, DataIn) and asked[0] == SERVICE_IN and asked[1] & 0x1F == LBA_STATUS
        return replace(pdu, data=change(pdu.data)) if ours and len(pdu.data) >= 24 else pdu


def _shift_later(data: bytes) -> bytes:
    parts = [data[8 + 16 * at : 24 + 16 * at] for at in range((len(data) - 8) // 16)]
    moved = [struct.pack(">Q", int.from_bytes(one[:8], "big") + 1) + one[8:] for one in parts[1:]]
    return data[:8] + b"".join([parts[0], *moved])


def _with_status(data: bytes, status: int) -> bytes:
    return data[:20] + bytes((status,)) + data[21:]


def _one_early(data: bytes) -> bytes:
    """Report the last block of the first descriptor as one of the next one."""
    (count,) = struct.unpack_from(">I", data, 16)
    status = data[20]
    return data if status or count != 1 else _with_status(data, 1)


lba_status("lba-status-start | SBC-3 GET LBA STATUS | the first descriptor begins at LBA 0",
           lambda data: data[:8] + bytes(8) + data[16:])  # fmt: skip
lba_status(
    "lba-status-gap | SBC-3 GET LBA STATUS | each later descriptor begins one block late", _shift_later
)
lba_status("lba-status-length | SBC-3 GET LBA STATUS | PARAMETER DATA LENGTH is that of the descriptors alone",
           lambda data: struct.pack(">I", len(data) - 8) + data[4:])  # fmt: skip
lba_status("lba-status-reserved | SBC-3 GET LBA STATUS | the provisioning status is a reserved one",
           lambda data: _with_status(data, 0x0F))  # fmt: skip
lba_status("lba-status-written | SBC-3 GET LBA STATUS | mapped blocks are reported as deallocated",
           lambda data: _with_status(data, data[20] ^ 1))  # fmt: skip
lba_status(
    "lba-status-one-early | SBC-3 GET LBA STATUS | one mapped block alone is reported as deallocated",
    _one_early,
)
lba_status("lba-status-all-deallocated | SBC-3 GET LBA STATUS | every block is reported as deallocated",
           lambda data: _with_status(data, 1))  # fmt: skip


@mutant("lba-status-past-end | SBC-3 GET LBA STATUS | past the end it is GOOD", kind=KIND)
def lba_status_past_end(talk: ProxyConnection, pdu: Pdu) -> Out:
    asked = talk.cdb(pdu)
    if (
        isinstance(pdu, ScsiResponse)
        and asked[0] == SERVICE_IN
        and asked[1] & 0x1F == LBA_STATUS
        and pdu.status
    ):
        return good(pdu)
    return pdu


@on_request(
    "lba-status-not-cut | SPC-4 allocation length | GET LBA STATUS returns a descriptor at least", kind=KIND
)
def lba_status_not_cut(talk: ProxyConnection, pdu: Pdu) -> Out:
    ours = isinstance(pdu, ScsiCommand) and pdu.cdb[0] == SERVICE_IN and pdu.cdb[1] & 0x1F == LBA_STATUS
    if ours and int.from_bytes(pdu.cdb[10:14], "big") < 24:
        return replace(pdu, cdb=pdu.cdb[:10] + struct.pack(">I", 24) + pdu.cdb[14:])
    return pdu


# REQUEST SENSE, whose DESC selects the format

REQUEST_SENSE = 0x03


def _sense_data(row: str, desc: int, change: Callable[[bytes], bytes]) -> None:
    """A mutant that changes the data of REQUEST SENSE with this DESC bit."""

    @mutant(row, kind=KIND)
    def reply(talk: ProxyConnection, pdu: Pdu) -> Out:
        cdb = talk.cdb(pdu)
        if not isinstance(pdu, DataIn) or cdb[0] != REQUEST_SENSE or cdb[1] & 1 != desc or len(pdu.data) < 8:
            return pdu
        return replace(pdu, data=change(pdu.data))


def _converted(data: bytes) -> bytes:
    """Return the sense data in the other format."""
    sense = decode_sense(data)
    if sense.descriptor:
        return sense_data(sense.key, sense.asc)[2:]
    return bytes((0x72, sense.key)) + sense.asc.to_bytes(2, "big") + bytes(4)


_ROW = "SPC-4 REQUEST SENSE"
_sense_data(f"request-sense-other-format | {_ROW} | DESC 0 returns descriptor format", 0, _converted)
_sense_data(f"request-sense-long | {_ROW} | ADDITIONAL SENSE LENGTH counts all bytes", 0,
            lambda data: data[:7] + bytes((len(data),)) + data[8:])  # fmt: skip
_sense_data(f"request-sense-attention-lost | {_ROW} | a pending unit attention is not returned", 0,
            lambda data: sense_data(0, 0)[2:])  # fmt: skip
_sense_data(f"request-sense-desc-ignored | {_ROW} | DESC 1 returns fixed format", 1, _converted)
_sense_data(f"request-sense-desc-layout | {_ROW} | DESC 1 returns fixed format under response code 72h", 1,
            lambda data: data[:1] + _converted(data)[1:])  # fmt: skip
_sense_data(f"request-sense-desc-key | {_ROW} | descriptor format has NO SENSE, whatever is pending", 1,
            lambda data: data[:1] + bytes(3) + data[4:])  # fmt: skip


@mutant(f"request-sense-desc-refused | {_ROW} | DESC 1 is an invalid field", kind=KIND)
def request_sense_desc_refused(talk: ProxyConnection, pdu: Pdu) -> Out:
    cdb = talk.cdb(pdu)
    if cdb[0] != REQUEST_SENSE or not cdb[1] & 1:
        return pdu
    return check(pdu, 5, 0x2400) if isinstance(pdu, ScsiResponse) else None


def _not_cut(row: str, desc: int) -> None:
    """A mutant that ends REQUEST SENSE with a short allocation length in an error."""

    @mutant(row, kind=KIND)
    def reply(talk: ProxyConnection, pdu: Pdu) -> Out:
        cdb = talk.cdb(pdu)
        if cdb[0] != REQUEST_SENSE or cdb[1] & 1 != desc or cdb[4] >= 18 - 10 * desc:
            return pdu
        return check(pdu, 5, 0x2400) if isinstance(pdu, ScsiResponse) else None


_not_cut(f"request-sense-not-cut | {_ROW} | fewer than 18 bytes are refused", 0)
_not_cut(f"request-sense-desc-not-cut | {_ROW} | fewer than 8 bytes of descriptor format are refused", 1)
