"""Broken rules of what is kept apart, of the longest names and values, and of Data-Out without data.

The rules, from the text:

- RFC 7143 11.2.1.8: a task is identified by its session and its tag (MUST).
- RFC 7143 11.14.1: a logout ends one session (MUST).
- SAM-5 4.7: a command to a logical unit that is absent is not executed (MUST).
- RFC 7143 4.2.7.1: names have up to 223 bytes, and begin with iqn., eui. or naa. (MUST).
- RFC 7143 6.1: a key has up to 63 bytes, a value up to 255 (MUST).
- RFC 7143 11.7.7: a Data-Out may have no data (MUST).
- SPC-4 READ FULL STATUS: each descriptor has the target port and the initiator port (MUST).
- SPC-4 Device Identification: the name of a port and of a device of iSCSI is the one of the login (MUST).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from iscsi_proxy_connection import Out, ProxyConnection, mutant, on_request
from iscsi_reinstatement_mutants import both, hangs_up
from iscsi_rules import ends, text
from proxy import Hangup

from storagetest.wire.iscsi.codes import LoginStatus, TaskFunction
from storagetest.wire.iscsi.encoding import Pdu, flat_lun
from storagetest.wire.iscsi.keys import format_text, parse_text
from storagetest.wire.iscsi.pdu import (
    DataIn,
    DataOut,
    LoginRequest,
    LoginResponse,
    LogoutRequest,
    ReadyToTransfer,
    ScsiCommand,
    ScsiResponse,
    TaskRequest,
)
from storagetest.wire.scsi.codes import PrIn

SMALL, FULL = "unsolicited", "full"
"""The small target, and the unit of iscsi_full_unit.py."""
PR_IN, REQUEST_SENSE, INQUIRY = 0x5E, 0x03, 0x12

# Names and values


def refuses_login(row: str, when: Callable[[ProxyConnection], bool]) -> None:
    """A mutant that refuses a login as an initiator error."""

    @mutant(row, kind=SMALL)
    def reply(talk: ProxyConnection, pdu: Pdu) -> Out:
        if not isinstance(pdu, LoginResponse) or pdu.status or not when(talk):
            return pdu
        return replace(pdu, status=LoginStatus.INITIATOR_ERROR, transit=False, tsih=0, data=b"")


def _alias(talk: ProxyConnection) -> str:
    return dict(talk.offered).get("InitiatorAlias", "")


refuses_login(
    "name-long-refused | RFC 7143 4.2.7.1 | an initiator name of more than 127 bytes is refused",
    lambda talk: len(talk.name) > 127,
)
refuses_login(
    "name-of-iqn-alone | RFC 7143 4.2.7.1 | a name that begins with eui. or naa. is refused",
    lambda talk: not talk.name.startswith("iqn."),
)
refuses_login(
    "alias-long-refused | RFC 7143 6.1 | an alias of more than 127 bytes is refused",
    lambda talk: len(_alias(talk)) > 127,
)
refuses_login(
    "alias-ascii-alone | RFC 7143 6.1, 13.7 | an alias that is not ASCII is refused",
    lambda talk: not _alias(talk).isascii(),
)
hangs_up(
    "name-cut | RFC 7143 4.2.7.1 | the last byte of a name of 223 bytes does not count",
    lambda other, own, response: (
        other.name != own.name
        and other.name[:222] == own.name[:222]
        and other.login is not None
        and own.login is not None
        and other.login.isid == own.login.isid
    ),
    kind=SMALL,
)
text(
    "key-answer-cut | RFC 7143 6.1 | the answer to a key has 31 bytes of its name",
    lambda pairs, talk: [(name[:31], value) for name, value in pairs],
    kind=SMALL,
)
text(
    "key-value-long-dropped | RFC 7143 6.1 | a key whose value has more than 127 bytes is not answered",
    lambda pairs, talk: [one for one in pairs if len(dict(talk.offered).get(one[0], "")) <= 127],
    kind=SMALL,
)


# Data-Out without data


@on_request("empty-data-out-ends | RFC 7143 11.7.7 | a Data-Out without data ends the connection", kind=SMALL)
def empty_data_out_ends(talk: ProxyConnection, pdu: Pdu) -> Out:
    if isinstance(pdu, DataOut) and not pdu.data:
        talk.acted = True
        raise Hangup
    return pdu


@on_request("empty-data-out-dropped | RFC 7143 11.7.7 | a Data-Out without data is ignored", kind=SMALL)
def empty_data_out_dropped(talk: ProxyConnection, pdu: Pdu) -> Out:
    return None if isinstance(pdu, DataOut) and not pdu.data else pdu


# Two sessions


def _notes(talk: ProxyConnection, pdu: Pdu) -> None:
    """Note each connection, and its writes that are not at their end."""
    every = talk.shared.setdefault("talks", [])
    if talk not in every:
        every.append(talk)
    if isinstance(pdu, ScsiCommand) and pdu.write:
        talk.memory.setdefault("open", set()).add(pdu.itt)


def _forgets(talk: ProxyConnection, pdu: Pdu) -> Out:
    if ends(pdu):
        talk.memory.get("open", set()).discard(pdu.itt)
    return pdu


def _others(talk: ProxyConnection) -> list[ProxyConnection]:
    return [one for one in talk.shared.get("talks", []) if one is not talk]


def _loses_data(talk: ProxyConnection, pdu: Pdu) -> Out:
    _notes(talk, pdu)
    shared = isinstance(pdu, DataOut) and any(pdu.itt in one.memory.get("open", ()) for one in _others(talk))
    return replace(pdu, data=bytes(len(pdu.data))) if shared else pdu


both(
    "same-tag-data-lost | RFC 7143 11.2.1.8 | data of a write are lost if another session has one of its tag",
    _forgets,
    _loses_data,
    kind=SMALL,
)


def _aborts_any(talk: ProxyConnection, pdu: Pdu) -> Out:
    _notes(talk, pdu)
    if isinstance(pdu, TaskRequest) and pdu.function == TaskFunction.ABORT_TASK:
        for other in _others(talk):
            if pdu.referenced_itt in other.memory.get("open", ()):
                other.memory["aborted"] = pdu.referenced_itt
    return None if isinstance(pdu, DataOut) and talk.memory.get("aborted") == pdu.itt else pdu


both(
    "abort-of-any-session | RFC 7143 11.5.1 | ABORT TASK ends the task of that tag in another session",
    _forgets,
    _aborts_any,
    kind=SMALL,
)


def _logs_out(row: str, when: Callable[[ProxyConnection, ProxyConnection], bool]) -> None:
    """A mutant that ends the connections of others at a logout: ``when(other, own)``."""

    @on_request(row, kind=SMALL)
    def request(talk: ProxyConnection, pdu: Pdu) -> Out:
        _notes(talk, pdu)
        if isinstance(pdu, LogoutRequest):
            for other in _others(talk):
                other.memory["ends"] = other.memory.get("ends") or when(other, talk)
        if talk.memory.get("ends"):
            talk.acted = True
            raise Hangup
        return pdu


_logs_out(
    "logout-of-initiator | RFC 7143 11.14.1 | a logout ends every session of the initiator",
    lambda other, own: other.name == own.name,
)
_logs_out(
    "logout-of-every-session | RFC 7143 11.14.1 | a logout ends the sessions of other initiators",
    lambda other, own: other.name != own.name,
)


# Keys of two sessions

BURST = "MaxBurstLength"


def _burst(pdu: Any, value: str) -> Any:
    """Return a login PDU with another MaxBurstLength."""
    return replace(pdu, data=format_text((n, value if n == BURST else v) for n, v in parse_text(pdu.data)))


def _offers_first(talk: ProxyConnection, pdu: Pdu) -> Out:
    if not isinstance(pdu, LoginRequest) or BURST.encode() not in pdu.data:
        return pdu
    talk.memory["burst"] = dict(parse_text(pdu.data))[BURST]
    first = talk.shared.setdefault("burst", talk.memory["burst"])
    return _burst(pdu, first) if first != talk.memory["burst"] else pdu


def _answers_own(talk: ProxyConnection, pdu: Pdu) -> Out:
    changed = talk.memory.get("burst") != talk.shared.get("burst")
    ours = isinstance(pdu, LoginResponse) and BURST.encode() in pdu.data
    return _burst(pdu, talk.memory["burst"]) if ours and changed else pdu


both(
    "burst-of-first-session | RFC 7143 13.13 | a session has the MaxBurstLength of the first one",
    _answers_own,
    _offers_first,
    kind=SMALL,
)


# A logical unit that is absent


def _executes(row: str, when: Callable[[int], bool]) -> None:
    """A mutant by which the unit executes commands to one that is absent, by operation code."""

    @on_request(row, kind=SMALL)
    def request(talk: ProxyConnection, pdu: Pdu) -> Out:
        ours = isinstance(pdu, (ScsiCommand, DataOut)) and pdu.lun == flat_lun(0x2FF)
        return replace(pdu, lun=flat_lun(0)) if ours and when(talk.cdb(pdu)[0]) else pdu


_executes(
    "absent-unit-executes | SAM-5 4.7 | commands to a LUN that is absent are executed by LUN 0",
    lambda opcode: opcode not in (REQUEST_SENSE, INQUIRY, 0x00),
)
_executes(
    "absent-unit-no-sense | SPC-4 REQUEST SENSE | REQUEST SENSE to a LUN that is absent returns NO SENSE",
    lambda opcode: opcode == REQUEST_SENSE,
)


# Names of ports


def _descriptors(data: bytes, change: Callable[[bytes], bytes]) -> bytes:
    """Change each descriptor of READ FULL STATUS data."""
    out, rest = data[:8], data[8:]
    while len(rest) >= 24:
        size = 24 + int.from_bytes(rest[20:24], "big")
        out, rest = out + change(rest[:size]), rest[size:]
    return out + rest


def _full_status(row: str, change: Callable[[bytes], bytes]) -> None:
    @mutant(row, kind=FULL)
    def reply(talk: ProxyConnection, pdu: Pdu) -> Out:
        block: Any = talk.cdb(pdu)
        ours = isinstance(pdu, DataIn) and block[0] == PR_IN and block[1] & 0x1F == PrIn.READ_FULL_STATUS
        return replace(pdu, data=_descriptors(pdu.data, change)) if ours else pdu


_full_status(
    "full-status-port | SPC-4 READ FULL STATUS | RELATIVE TARGET PORT IDENTIFIER is 0",
    lambda one: one[:18] + b"\0\0" + one[20:],
)
_full_status(
    "full-status-isid | SPC-4 READ FULL STATUS | each TransportID has ISID 0",
    lambda one: re.sub(rb",i,0x[0-9a-f]{12}", b",i,0x000000000000", one),
)


def _names(row: str, change: Callable[[bytes], bytes]) -> None:
    """A mutant that changes page 83h."""

    @mutant(row, kind=FULL)
    def reply(talk: ProxyConnection, pdu: Pdu) -> Out:
        block = talk.cdb(pdu)
        ours = isinstance(pdu, DataIn) and block[0] == INQUIRY and block[1:3] == b"\1\x83"
        return replace(pdu, data=change(pdu.data)) if ours else pdu


_names(
    "port-name-group | SPC-4 Device Identification | the name of the port has another portal group tag",
    lambda data: re.sub(rb",t,0x[0-9a-f]{4}", b",t,0x7fff", data),
)
_names(
    "port-name-target | SPC-4 Device Identification | the name of the port is that of another target",
    lambda data: re.sub(rb".,t,0x", b"?,t,0x", data),
)
_names(
    "device-name-target | SPC-4 Device Identification | the name of the device is that of another target",
    lambda data: re.sub(rb"(?<=[^,])iqn\.(?=[!-+\--~]*\0)", b"iqn?", data),
)


# Commands that are refused


@mutant("refused-with-data | SAM-5 5.13 | a read that is refused returns data of the write before", kind=FULL)
def refused_with_data(talk: ProxyConnection, pdu: Pdu) -> Out:
    command = talk.commands.get(pdu.itt)
    if not isinstance(pdu, ScsiResponse) or not pdu.sense or command is None or not command.read:
        return pdu
    data = b"left".ljust(command.expected_length, b".")
    window = {"exp_cmd_sn": pdu.exp_cmd_sn, "max_cmd_sn": pdu.max_cmd_sn}
    return [
        DataIn(itt=pdu.itt, data=data, **window),
        replace(pdu, underflow=False, residual=0, exp_data_sn=1),
    ]


# Commands without the data that they need


def _keeps_data(talk: ProxyConnection, pdu: Pdu) -> Out:
    """Note the data of each CDB; give a command that comes without data those of the same one before."""
    kept = talk.shared.setdefault("kept", {})
    if isinstance(pdu, (ScsiCommand, DataOut)) and pdu.data:
        kept[talk.cdb(pdu)] = kept.get(talk.cdb(pdu), b"")[: getattr(pdu, "buffer_offset", 0)] + pdu.data
    elif isinstance(pdu, ScsiCommand) and not pdu.expected_length and pdu.cdb in kept:
        talk.memory["left"] = (pdu.itt, kept[pdu.cdb])
        return replace(pdu, write=True, expected_length=len(kept[pdu.cdb]))
    return pdu


def _sends_kept(talk: ProxyConnection, pdu: Pdu) -> Out:
    itt, data = talk.memory.get("left", (None, b""))
    if pdu.itt != itt:
        return pdu
    if isinstance(pdu, ReadyToTransfer):
        talk.inject_to_target(*talk.data_out(pdu, data))
        return None
    return replace(pdu, overflow=True, residual=len(data)) if isinstance(pdu, ScsiResponse) else pdu


both(
    "left-data-executed | RFC 7143 11.3.4 | a command without data has those of the same command before",
    _sends_kept,
    _keeps_data,
    kind=FULL,
)
