"""Broken rules that show in the later step of an exchange, past a count of 256, or at the end of the window.

The rules, from the text, before any case:

- RFC 7143 6.2: what an earlier request of a login agreed on is in force, however many requests follow (MUST).
- RFC 7143 6.2, 11.12.2, 11.10.2: text that C continues is one text, cut at any byte (MUST).
- RFC 7143 11.11.1: F of a Text Response to a request without F is a protocol error (MUST).
- RFC 7143 11.7.5, 11.8.2: DataSN and R2TSN count every PDU of a command; both have 32 bits (MUST).
- RFC 7143 11.3.4: an initiator may send only immediate data, of any length; R2Ts ask for the rest (MUST).
- RFC 7143 4.2.2.1: MaxCmdSN is the last CmdSN of the window, which is accepted (MUST).
"""

# ruff: noqa: E501  # a mutant is a row of a table

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import replace

from iscsi_proxy_connection import Out, ProxyConnection, mutant, on_request
from iscsi_rules import ended_in, ends, sense_data

from storagetest.wire.iscsi.codes import NO_TAG, Stage, TaskFunction
from storagetest.wire.iscsi.encoding import Pdu
from storagetest.wire.iscsi.keys import REJECT, format_text, outcome, parse_text
from storagetest.wire.iscsi.pdu import (
    DataIn,
    LoginRequest,
    LoginResponse,
    NopOut,
    ReadyToTransfer,
    ScsiCommand,
    ScsiResponse,
    TaskRequest,
    TextRequest,
    TextResponse,
)
from storagetest.wire.scsi.codes import Asc, ScsiStatus, SenseKey
from storagetest.wire.scsi.sense import decode_sense

REPORT_LUNS, READ_16 = 0xA0, 0x88
SMALL = "unsolicited"
"""The small target of tests/controllers: LIO takes no unsolicited data, and no text that continues."""


# Logins


def _keeps_burst(talk: ProxyConnection, pdu: Pdu) -> Pdu:
    """Drop MaxBurstLength from a request that does not end the login."""
    if not isinstance(pdu, LoginRequest) or pdu.transit or pdu.continues:
        return pdu
    pairs = parse_text(pdu.data)
    talk.memory["burst"] = [pair for pair in pairs if pair[0] == "MaxBurstLength"]
    return replace(pdu, data=format_text(pair for pair in pairs if pair[0] != "MaxBurstLength"))


@mutant(
    "login-step-forgotten | RFC 7143 6.2 | MaxBurstLength of an earlier request of the login is not in force",
    request=_keeps_burst,
    kind=SMALL,
)
def login_step_forgotten(talk: ProxyConnection, pdu: Pdu) -> Out:
    if not isinstance(pdu, LoginResponse) or not talk.memory.get("burst"):
        return pdu
    return replace(pdu, data=pdu.data + format_text(talk.memory.pop("burst")))


@on_request(
    "login-cut-dropped | RFC 7143 6.2 | whole keys before the cut of a text that continues are dropped",
    kind=SMALL,
)
def login_cut_dropped(talk: ProxyConnection, pdu: Pdu) -> Pdu:
    if not isinstance(pdu, LoginRequest) or not pdu.continues or pdu.csg != Stage.OPERATIONAL:
        return pdu
    *whole, rest = pdu.data.split(b"\0")
    kept = [pair for pair in whole if b"Length" not in pair]
    return replace(pdu, data=b"\0".join((*kept, rest)))


def _notes_cut(talk: ProxyConnection, pdu: Pdu) -> Pdu:
    if isinstance(pdu, TextRequest) and pdu.continues:
        talk.memory["cut"] = pdu.itt
    return pdu


@mutant(
    "text-cut-final | RFC 7143 11.11.1 | the response to a text that continues has F",
    request=_notes_cut,
    kind=SMALL,
)
def text_cut_final(talk: ProxyConnection, pdu: Pdu) -> Out:
    if not isinstance(pdu, TextResponse) or talk.memory.pop("cut", None) != pdu.itt:
        return pdu
    return replace(pdu, final=True, ttt=NO_TAG)


@mutant("text-open-final | RFC 7143 11.11.1 | the response to each Text Request has F", kind=SMALL)
def text_open_final(talk: ProxyConnection, pdu: Pdu) -> Out:
    return replace(pdu, final=True, ttt=NO_TAG) if isinstance(pdu, TextResponse) and not pdu.final else pdu


# Counts


@mutant("r2t-sn-byte | RFC 7143 11.8.2 | R2TSN has one byte", kind=SMALL)
def r2t_sn_byte(talk: ProxyConnection, pdu: Pdu) -> Out:
    if not isinstance(pdu, ReadyToTransfer) or pdu.r2t_sn < 0x100:
        return pdu
    return replace(pdu, r2t_sn=pdu.r2t_sn & 0xFF)


@mutant("data-sn-byte | RFC 7143 11.7.5 | DataSN of Data-In has one byte", kind=SMALL)
def data_sn_byte(talk: ProxyConnection, pdu: Pdu) -> Out:
    if not isinstance(pdu, DataIn) or pdu.data_sn < 0x100:
        return pdu
    return replace(pdu, data_sn=pdu.data_sn & 0xFF)


# The first burst


@mutant("r2t-after-first-burst | RFC 7143 11.8.4 | the first R2T asks from FirstBurstLength on", kind=SMALL)
def r2t_after_first_burst(talk: ProxyConnection, pdu: Pdu) -> Out:
    if not isinstance(pdu, ReadyToTransfer) or pdu.r2t_sn or not talk.commands[pdu.itt].data:
        return pdu
    burst = int(outcome(talk.offered, talk.replied)["FirstBurstLength"])
    left = talk.commands[pdu.itt].expected_length - burst
    if left <= 0:
        return pdu
    return replace(pdu, buffer_offset=burst, desired_length=min(pdu.desired_length, left))


# The window


def _ends_window(talk: ProxyConnection, pdu: Pdu) -> Pdu | None:
    """Drop the command whose CmdSN was MaxCmdSN in the last response before a run of commands."""
    if not isinstance(pdu, ScsiCommand) or pdu.immediate:
        return pdu
    if not talk.memory.setdefault("outstanding", set()):
        talk.memory["end"] = talk.memory.get("max")
    talk.memory["outstanding"].add(pdu.itt)
    return None if pdu.cmd_sn == talk.memory["end"] else pdu


@mutant(
    "window-end-ignored | RFC 7143 4.2.2.1 | the command whose CmdSN is MaxCmdSN is ignored",
    request=_ends_window,
    kind=SMALL,
)
def window_end_ignored(talk: ProxyConnection, pdu: Pdu) -> Out:
    if not isinstance(pdu, LoginResponse):
        talk.memory["max"] = getattr(pdu, "max_cmd_sn", None)
    if ends(pdu):
        talk.memory.get("outstanding", set()).discard(pdu.itt)
    return pdu


# Tags, and what follows an error


def _loses(talk: ProxyConnection, pdu: ScsiCommand) -> NopOut:
    """Return what a target executes that loses a command: its CmdSN is used, and no response comes."""
    return NopOut(immediate=False, itt=NO_TAG, cmd_sn=pdu.cmd_sn, exp_stat_sn=pdu.exp_stat_sn)


@on_request(
    "tag-of-aborted-kept | RFC 7143 11.2.1.8 | a command with the tag of an aborted task is lost", kind=SMALL
)
def tag_of_aborted_kept(talk: ProxyConnection, pdu: Pdu) -> Pdu:
    aborted = talk.memory.setdefault("aborted", set())
    if isinstance(pdu, TaskRequest) and pdu.function == TaskFunction.ABORT_TASK:
        aborted.add(pdu.referenced_itt)
    elif isinstance(pdu, ScsiCommand) and pdu.itt in aborted:
        return _loses(talk, pdu)
    return pdu


def _loses_next(talk: ProxyConnection, pdu: Pdu) -> Pdu:
    if not isinstance(pdu, ScsiCommand):
        return pdu
    if talk.memory.pop("failed", False) and not pdu.immediate:
        return _loses(talk, pdu)
    if not pdu.final:
        talk.memory.setdefault("unsolicited", set()).add(pdu.itt)
    return pdu


@mutant(
    "lost-after-unsolicited | RFC 7143 4.2.5.2 | the command after a failed one with unsolicited data is lost",
    request=_loses_next,
    kind=SMALL,
)
def lost_after_unsolicited(talk: ProxyConnection, pdu: Pdu) -> Out:
    if isinstance(pdu, ScsiResponse) and pdu.status and pdu.itt in talk.memory.get("unsolicited", ()):
        talk.memory["failed"] = True
    return pdu


# Keys, units, sense data


@mutant("hexadecimal-capital | RFC 7143 6.1 | a number in capital hexadecimal digits is rejected", kind=SMALL)
def hexadecimal_capital(talk: ProxyConnection, pdu: Pdu) -> Out:
    capital = {name for name, value in talk.offered if value[:2] in {"0x", "0X"} and value != value.lower()}
    if not isinstance(pdu, LoginResponse) or not capital:
        return pdu
    pairs = [(name, REJECT if name in capital else value) for name, value in parse_text(pdu.data)]
    return replace(pdu, data=format_text(pairs))


@mutant("luns-of-one | SPC-4 REPORT LUNS | the list has only the logical unit that was asked")
def luns_of_one(talk: ProxyConnection, pdu: Pdu) -> Out:
    if not isinstance(pdu, DataIn) or pdu.buffer_offset or talk.cdb(pdu)[0] != REPORT_LUNS:
        return pdu
    lun = talk.commands[pdu.itt].lun
    return replace(pdu, data=struct.pack(">IIQ", 8, 0, lun).ljust(len(pdu.data), b"\0")) if lun else pdu


def _informs(row: str, value: Callable[[int], int | None]) -> None:
    """A mutant that sets INFORMATION of a read past the end; ``value`` returns it for the LBA, or None."""

    @mutant(row)
    def change(talk: ProxyConnection, pdu: Pdu) -> Out:
        block = talk.cdb(pdu)
        if not isinstance(pdu, ScsiResponse) or not pdu.sense or block[0] != READ_16:
            return pdu
        information = value(int.from_bytes(block[2:10], "big"))
        if decode_sense(pdu.sense).asc != Asc.LBA_OUT_OF_RANGE or information is None:
            return pdu
        sense = sense_data(SenseKey.ILLEGAL_REQUEST, Asc.LBA_OUT_OF_RANGE, information=information)
        return ended_in(pdu, ScsiStatus.CHECK_CONDITION, sense)


_informs(
    "information-of-32-bits | SPC-4 sense data | VALID is 1, and INFORMATION an LBA without its high half",
    lambda lba: lba & 0xFFFFFFFF if lba >> 32 else None,
)
_informs("information-zero | SBC-3 error reporting | VALID is 1, and INFORMATION is LBA 0", lambda lba: 0)
