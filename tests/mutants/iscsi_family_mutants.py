"""Mutants of one command of a family, of one kind of PDU with digests, and of START STOP UNIT."""

# ruff: noqa: E501  # a mutant is a row of a table

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from iscsi_proxy_connection import Out, ProxyConnection, mutant, on_request
from iscsi_rules import attention, check, ends, good, replies
from iscsi_scsi_mutants import put, scsi

from storagetest.wire.iscsi.encoding import Pdu
from storagetest.wire.iscsi.pdu import (
    DataIn,
    DataOut,
    Response,
    ScsiCommand,
    ScsiResponse,
    TaskResponse,
    TextResponse,
)

START_STOP_UNIT, INITIALIZING_COMMAND_REQUIRED = 0x1B, 0x0402
VERIFY = {0x2F: 0x2A, 0x8F: 0x8A}
"""VERIFY(10) and (16), and the WRITE of the same length."""
MODE_SELECT = (0x15, 0x55)
LARGE = 512 * 1024
"""Bytes of a transfer that two mutants break at its end."""


def _upper_lba(name: str, opcode: int) -> None:
    @on_request(
        f"upper-lba-of-{name} | SBC-3, LOGICAL BLOCK ADDRESS | the upper half of the LBA is not read ({opcode:02X}h)"
    )
    def request(talk: ProxyConnection, pdu: Pdu) -> Out:
        if not isinstance(pdu, ScsiCommand) or pdu.cdb[0] != opcode or not any(pdu.cdb[2:6]):
            return pdu
        return replace(pdu, cdb=pdu.cdb[:2] + bytes(4) + pdu.cdb[6:])


for _name, _opcode in (("verify", 0x8F), ("sync", 0x91), ("same", 0x93), ("caw", 0x89), ("wver", 0x8E)):
    _upper_lba(_name, _opcode)


@on_request("verify-writes | SBC-3 VERIFY | VERIFY with BYTCHK 01b writes its data")
def _(talk: ProxyConnection, pdu: Pdu) -> Out:
    if not isinstance(pdu, ScsiCommand) or pdu.cdb[0] not in VERIFY or pdu.cdb[1] >> 1 & 3 != 1:
        return pdu
    return replace(pdu, cdb=bytes((VERIFY[pdu.cdb[0]], 0)) + pdu.cdb[2:])


@mutant(
    "reservation-mode-select | SPC-4 allowed commands | MODE SELECT of others is done under a reservation"
)
def _(talk: ProxyConnection, pdu: Pdu) -> Out:
    conflicts = isinstance(pdu, ScsiResponse) and pdu.status == 0x18
    return good(pdu) if conflicts and talk.cdb(pdu)[0] in MODE_SELECT else pdu


# Digests


def _digest(row: str, when: Callable[[Pdu], object]) -> None:
    """A mutant that spoils the last digest of some PDUs: of the data, or of the header without data."""

    @mutant(row)
    def reply(talk: ProxyConnection, pdu: Pdu) -> Out:
        if not talk.digests[1 if pdu.data else 0] or not when(pdu):
            return pdu
        raw = bytearray(talk.wire(pdu))
        raw[-1] ^= 0xFF
        return bytes(raw)


_digest(
    "digest-of-padded-data | RFC 7143 11.2.3 | the data digest is wrong if the data are padded",
    lambda pdu: isinstance(pdu, DataIn) and len(pdu.data) % 4,
)
_digest(
    "digest-of-second-data-in | RFC 7143 11.2.3 | the data digest of the second Data-In of a command is wrong",
    lambda pdu: isinstance(pdu, DataIn) and pdu.data_sn == 1,
)
_digest(
    "digest-of-text | RFC 7143 11.2.3 | the data digest of a Text Response is wrong",
    lambda pdu: isinstance(pdu, TextResponse),
)
_digest(
    "digest-of-task-response | RFC 7143 11.2.3 | the header digest of a Task Management Response is wrong",
    lambda pdu: isinstance(pdu, TaskResponse),
)


# What follows: numbers, the next command


replies(
    "exp-cmd-sn-text | RFC 7143 4.2.2.1 | ExpCmdSN is too small by one in a Text Response",
    TextResponse,
    lambda pdu, talk: replace(pdu, exp_cmd_sn=(pdu.exp_cmd_sn - 1) % (1 << 32)),
)


@mutant("stat-sn-text | RFC 7143 4.2.2.2 | a Text Response uses no StatSN")
def _(talk: ProxyConnection, pdu: Pdu) -> Out:
    behind = talk.memory.get("behind", 0)
    if isinstance(pdu, TextResponse):
        talk.memory["behind"] = behind + 1
    return (
        replace(pdu, stat_sn=(pdu.stat_sn - behind) % (1 << 32))
        if behind and isinstance(pdu, Response)
        else pdu
    )


@mutant("read-after-failure | SBC-3 READ | the first read after CHECK CONDITION returns zeroes")
def _(talk: ProxyConnection, pdu: Pdu) -> Out:
    if isinstance(pdu, ScsiResponse) and pdu.status == 2 and not attention(pdu):
        talk.memory["failed"] = True
    elif isinstance(pdu, DataIn) and talk.cdb(pdu)[0] in (0x28, 0x88) and talk.memory.pop("failed", False):
        return replace(pdu, data=bytes(len(pdu.data)))
    return pdu


@mutant("sense-additional-length | SPC-4 sense data | ADDITIONAL SENSE LENGTH is zero")
def _(talk: ProxyConnection, pdu: Pdu) -> Out:
    if not isinstance(pdu, ScsiResponse) or len(pdu.sense) < 8:
        return pdu
    return replace(pdu, data=pdu.data[:9] + b"\0" + pdu.data[10:])


scsi(
    "request-sense-length | SPC-4 REQUEST SENSE | ADDITIONAL SENSE LENGTH is zero in REQUEST SENSE",
    0x03,
    put(7, 0),
)


def _clear_lbpu(data: bytearray, cdb: bytes) -> None:
    if len(data) > 5:
        data[5] &= 0x7F


@mutant("lbprz-other | SBC-3 READ CAPACITY(16) | LBPRZ is another one than in page B2h")
def _(talk: ProxyConnection, pdu: Pdu) -> Out:
    cdb = talk.cdb(pdu)
    if not isinstance(pdu, DataIn) or cdb[0] != 0x9E or cdb[1] & 0x1F != 0x10 or len(pdu.data) < 15:
        return pdu
    return replace(pdu, data=pdu.data[:14] + bytes((pdu.data[14] ^ 0x40,)) + pdu.data[15:])


scsi(
    "lbpu-cleared | SBC-3 Logical Block Provisioning | LBPU is 0, and UNMAP is done",
    0x12,
    _clear_lbpu,
    evpd=0xB2,
)


def _is_tail(talk: ProxyConnection, pdu: Pdu) -> bool:
    """Whether these data are the last ones of a transfer of LARGE bytes or more."""
    command = talk.commands.get(getattr(pdu, "itt", 0))
    return (
        isinstance(pdu, DataIn | DataOut)
        and command is not None
        and command.expected_length >= LARGE
        and len(pdu.data) >= 512
        and pdu.buffer_offset + len(pdu.data) == command.expected_length
    )


@mutant("tail-of-large-read | SBC-3 READ | the last 512 bytes of a read of 512 KiB or more are zeroes")
def _(talk: ProxyConnection, pdu: Pdu) -> Out:
    return replace(pdu, data=pdu.data[:-512] + bytes(512)) if _is_tail(talk, pdu) else pdu


@on_request("tail-of-large-write | SBC-3 WRITE | the last 512 bytes of a write of 512 KiB or more are zeroes")
def _(talk: ProxyConnection, pdu: Pdu) -> Out:
    return replace(pdu, data=pdu.data[:-512] + bytes(512)) if _is_tail(talk, pdu) else pdu


def _generation(row: str, counts: int, actions: tuple[int, ...]) -> None:
    """A mutant that adds the RESERVE or RELEASE commands to the generation of some service actions."""

    @mutant(row)
    def reply(talk: ProxyConnection, pdu: Pdu) -> Out:
        cdb = talk.cdb(pdu)
        if isinstance(pdu, ScsiResponse) and cdb[0] == 0x5F and cdb[1] & 0x1F == counts and not pdu.status:
            talk.memory["counted"] = talk.memory.get("counted", 0) + 1
        more = talk.memory.get("counted", 0)
        if not more or not isinstance(pdu, DataIn) or cdb[0] != 0x5E or cdb[1] & 0x1F not in actions:
            return pdu
        generation = (int.from_bytes(pdu.data[:4], "big") + more) % (1 << 32)
        return replace(pdu, data=generation.to_bytes(4, "big") + pdu.data[4:])


_generation("generation-of-reservation | SPC-4 PRGENERATION | READ RESERVATION counts RESERVE too", 1, (1,))
_generation("generation-of-release | SPC-4 PRGENERATION | RELEASE is counted", 2, (0, 1, 3))


# START STOP UNIT


def _started(row: str, change: Callable[[ProxyConnection, Pdu], Out]) -> None:
    """A mutant that changes what comes after a START STOP UNIT with IMMED."""

    @mutant(row)
    def reply(talk: ProxyConnection, pdu: Pdu) -> Out:
        cdb = talk.cdb(pdu)
        if cdb[0] == START_STOP_UNIT and cdb[1] & 1:
            talk.memory["started"] = True
        return change(talk, pdu) if "started" in talk.memory else pdu


_started(
    "start-immed-unanswered | SBC-3 START STOP UNIT | a command with IMMED has no status",
    lambda talk, pdu: None if talk.cdb(pdu)[0] == START_STOP_UNIT else pdu,
)
_started(
    "start-immed-not-ready | SBC-3 START STOP UNIT | after a start with IMMED the unit is not ready",
    lambda talk, pdu: (
        check(pdu, 2, INITIALIZING_COMMAND_REQUIRED) if not talk.cdb(pdu)[0] and ends(pdu) else pdu
    ),
)
_started(
    "start-immed-data-lost | SBC-3 START STOP UNIT | after a start with IMMED the blocks read as zeroes",
    lambda talk, pdu: (
        replace(pdu, data=bytes(len(pdu.data)))
        if isinstance(pdu, DataIn) and talk.cdb(pdu)[0] in (0x28, 0x88)
        else pdu
    ),
)
