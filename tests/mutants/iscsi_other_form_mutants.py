"""Broken rules of one form of a command, or of a response that is seldom used.

The rules, from the text, before any case (all MUST but those of MODE SELECT and RCTD):

- SPC-4 4.2.5.6: each byte of an allocation length counts; SBC-3: each byte of a transfer length counts.
- SBC-3: a WRITE(6) of no blocks writes 256; VERIFY(16) compares as VERIFY(10) does.
- SPC-4 D_SENSE: each sense data have the format that it selects; MODE SELECT is reported to each other nexus.
- SPC-4 REPORT SUPPORTED OPERATION CODES: SUPPORT of a service action, CTDP of one command.
- SPC-4 Device Identification: designators of types 4h and 5h name a target port.
- SPC-2 RESERVE(6): commands without blocks conflict, too.
- RFC 7143 11: the codes, flags, tags and data segments of each PDU; SPC-4: the form of each sense data, and the
  length of all parameter data. Each mutant breaks it in one response that few cases look at.
"""

# ruff: noqa: E501  # a mutant is a row of a table

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from iscsi_neighbour_mutants import failed, passes
from iscsi_proxy_connection import Out, ProxyConnection, mutant, on_request
from iscsi_reservation_mutants import enforces
from iscsi_rules import attention, ends, good

from storagetest.wire.iscsi.codes import LogoutResult
from storagetest.wire.iscsi.encoding import Pdu
from storagetest.wire.iscsi.pdu import (
    DataIn,
    LoginResponse,
    LogoutRequest,
    LogoutResponse,
    NopIn,
    ReadyToTransfer,
    Reject,
    ScsiCommand,
    ScsiResponse,
)
from storagetest.wire.scsi.codes import Asc
from storagetest.wire.scsi.sense import decode_sense, fixed_sense

When = Callable[[bytes], bool]


def cdb_changed(row: str, when: When, change: Callable[[bytes], bytes], *, kind: str | None = "full") -> None:
    """A mutant that executes another CDB than the one that came."""

    @on_request(row, kind=kind)
    def request(talk: ProxyConnection, pdu: Pdu) -> Out:
        return replace(pdu, cdb=change(pdu.cdb)) if isinstance(pdu, ScsiCommand) and when(pdu.cdb) else pdu


def low_byte(first: int, last: int) -> Callable[[bytes], bytes]:
    """Return a change that clears a field from byte ``first``, except its byte ``last``."""
    return lambda block: block[:first] + bytes(last - first) + block[last:]


def low_word(first: int) -> Callable[[bytes], bytes]:
    """Return a change that clears the upper two of the four bytes from ``first``."""
    return lambda block: block[:first] + bytes(2) + block[first + 2 :]


def allocation(name: str, opcode: int, first: int, last: int, when: When = lambda _block: True) -> None:
    cdb_changed(
        f"allocation-low-{name} | SPC-4 allocation length | the low byte alone counts, of opcode {opcode:02x}h",
        lambda block: block[0] == opcode and when(block),
        low_byte(first, last),
    )


allocation("inquiry", 0x12, 3, 4, lambda block: not block[1] & 1)
allocation("vpd", 0x12, 3, 4, lambda block: bool(block[1] & 1))
allocation("mode", 0x5A, 7, 8)
allocation("log", 0x4D, 7, 8)
allocation("capacity", 0x9E, 10, 13, lambda block: block[1] & 0x1F == 0x10)
allocation("lbas", 0x9E, 10, 13, lambda block: block[1] & 0x1F == 0x12)
allocation("luns", 0xA0, 6, 9)
allocation("prin", 0x5E, 7, 8)
allocation("ops", 0xA3, 6, 9, lambda block: block[1] & 0x1F == 0x0C)
allocation("tmf", 0xA3, 6, 9, lambda block: block[1] & 0x1F == 0x0D)

for _name, _opcode in (("read-12", 0xA8), ("write-12", 0xAA), ("verify-12", 0xAF),
                       ("read-16", 0x88), ("write-16", 0x8A), ("verify-16", 0x8F)):  # fmt: skip
    cdb_changed(
        f"length-low-{_name} | SBC-3 TRANSFER LENGTH | its upper two bytes are ignored, of opcode {_opcode:02x}h",
        lambda block, code=_opcode: block[0] == code,  # type: ignore[misc]
        low_word(6 if _opcode > 0xA0 else 10),
    )


@on_request("write6-zero-blocks | SBC-3 WRITE(6) | a length of zero writes one block", kind="full")
def write6_zero(talk: ProxyConnection, pdu: Pdu) -> Out:
    zero = isinstance(pdu, ScsiCommand) and pdu.cdb[0] == 0x0A and not pdu.cdb[4]
    return replace(pdu, cdb=pdu.cdb[:4] + b"\x01" + pdu.cdb[5:]) if zero else pdu


passes("verify-16-good | SBC-3 VERIFY(16) | with BYTCHK 01b it finds no difference",
       lambda block: block[0] == 0x8F and block[1] & 6 == 2, Asc.MISCOMPARE_DURING_VERIFY, kind="full")  # fmt: skip
passes("mode-select-absent | SPC-4 MODE SELECT | a page that is not there is taken",
       lambda block: block[0] in {0x15, 0x55}, Asc.INVALID_FIELD_IN_PARAMETER_LIST, kind="full")  # fmt: skip
enforces(
    "reserve6-others", "TEST UNIT READY and MODE SELECT pass RESERVE(6)", {0x00, 0x15, 0x55}, conflict=False
)


def with_sense(pdu: ScsiResponse, sense: bytes) -> ScsiResponse:
    return replace(pdu, data=len(sense).to_bytes(2, "big") + sense)


@mutant("d-sense-range-fixed | SPC-4 D_SENSE | LBA OUT OF RANGE is always in fixed format", kind="full")
def range_fixed(talk: ProxyConnection, pdu: Pdu) -> Out:
    if not failed(pdu, Asc.LBA_OUT_OF_RANGE) or not decode_sense(pdu.sense).descriptor:  # type: ignore[attr-defined]
        return pdu
    return with_sense(pdu, fixed_sense(5, Asc.LBA_OUT_OF_RANGE))  # type: ignore[arg-type]


@mutant(
    "d-sense-information-short | SPC-4 Information descriptor | ADDITIONAL LENGTH of the descriptor is 8",
    kind="full",
)
def information_short(talk: ProxyConnection, pdu: Pdu) -> Out:
    sense = pdu.sense if isinstance(pdu, ScsiResponse) else b""
    if sense[:1] != b"\x72" or len(sense) < 20:
        return pdu
    return with_sense(pdu, sense[:9] + b"\x08" + sense[10:])  # type: ignore[arg-type]


@mutant(
    "mode-change-third-unreported | SPC-4 MODE SELECT | the change of a mode page is reported to one other nexus",
    kind="full",
)
def third_unreported(talk: ProxyConnection, pdu: Pdu) -> Out:
    if attention(pdu) and decode_sense(pdu.sense).asc == Asc.MODE_PARAMETERS_CHANGED:  # type: ignore[attr-defined]
        return good(pdu) if talk.name.endswith("-d") else pdu
    return pdu


@mutant(
    "mode-change-same-name-unreported | SPC-4 MODE SELECT | other sessions of the same initiator get no report",
    kind="full",
)
def same_name_unreported(talk: ProxyConnection, pdu: Pdu) -> Out:
    if attention(pdu) and decode_sense(pdu.sense).asc == Asc.MODE_PARAMETERS_CHANGED:  # type: ignore[attr-defined]
        return good(pdu) if talk.name.endswith("-a") else pdu
    return pdu


@mutant(
    "operations-any-action | SPC-4 REPORT SUPPORTED OPERATION CODES | any service action is supported",
    kind="full",
)
def any_action(talk: ProxyConnection, pdu: Pdu) -> Out:
    block = talk.cdb(pdu)
    if not isinstance(pdu, DataIn) or block[0] != 0xA3 or block[2] & 7 < 2 or pdu.data[1] & 7 != 1:
        return pdu
    return replace(pdu, data=pdu.data[:1] + b"\x03" + pdu.data[2:])


cdb_changed(
    "timeouts-one-missing | SPC-4 REPORT SUPPORTED OPERATION CODES, RCTD | one command has no timeouts",
    lambda block: block[0] == 0xA3 and block[1] & 0x1F == 0x0C and bool(block[2] & 7),
    lambda block: block[:2] + bytes((block[2] & 0x7F,)) + block[3:],
)


@mutant("port-of-unit | SPC-4 Device Identification | the relative target port is of the logical unit")
def port_of_unit(talk: ProxyConnection, pdu: Pdu) -> Out:
    block = talk.cdb(pdu)
    if not isinstance(pdu, DataIn) or block[0] != 0x12 or block[1:3] != b"\x01\x83":
        return pdu
    data, at = bytearray(pdu.data), 4
    while at + 4 <= len(data):
        if data[at + 1] & 0x0F == 4:
            data[at + 1] &= ~0x30
        at += 4 + data[at + 3]
    return replace(pdu, data=bytes(data))


@on_request("logout-still-served | RFC 7143 11.15 | commands are executed after the logout response")
def still_served(talk: ProxyConnection, pdu: Pdu) -> Out:
    if not isinstance(pdu, LogoutRequest):
        return pdu
    last: Any = talk.last
    talk.answer(pdu, LogoutResponse, stat_sn=(last.stat_sn + 1) % 2**32)
    return None


# Responses that few cases look at


def one(row: str, type_: type[Pdu], change: Callable[[Any], Pdu], *, when: Callable[[Any], bool] = lambda _: True,
        kind: str | None = None) -> None:  # fmt: skip
    """A mutant that changes the PDUs of a type for which ``when`` holds."""

    @mutant(row, kind=kind)
    def reply(talk: ProxyConnection, pdu: Pdu) -> Out:
        return change(pdu) if isinstance(pdu, type_) and when(pdu) else pdu


one("logout-response-code | RFC 7143 11.15.1 | a connection that is not there has response 4", LogoutResponse,
    lambda pdu: replace(pdu, response=4), when=lambda pdu: pdu.response == LogoutResult.CID_NOT_FOUND)  # fmt: skip
one("reject-reason-none | RFC 7143 11.17.1 | the reason of a Reject is 0", Reject,
    lambda pdu: replace(pdu, reason=0), kind="full")  # fmt: skip
one("login-nsg-without-t | RFC 7143 11.12.3 | NSG is set in a response without T", LoginResponse,
    lambda pdu: replace(pdu, nsg=3), when=lambda pdu: not pdu.transit and not pdu.status)  # fmt: skip
one("ping-lun | RFC 7143 11.19 | the response to a ping has a LUN, and no transfer tag", NopIn,
    lambda pdu: replace(pdu, lun=2 << 48), when=lambda pdu: pdu.ttt == 0xFFFFFFFF, kind="full")  # fmt: skip
one("r2t-other-lun | RFC 7143 11.8.5 | an R2T has another LUN than its command", ReadyToTransfer,
    lambda pdu: replace(pdu, lun=pdu.lun ^ 1 << 48))  # fmt: skip


def sense_of(row: str, code: int, change: Callable[[bytes], bytes], *, kind: str | None = None) -> None:
    """A mutant that changes the sense data with one additional sense code."""

    @mutant(row, kind=kind)
    def reply(talk: ProxyConnection, pdu: Pdu) -> Out:
        return with_sense(pdu, change(pdu.sense)) if failed(pdu, code) else pdu  # type: ignore[attr-defined,arg-type]


sense_of("sense-key-other | SPC-4 sense data | INVALID RELEASE has the sense key ABORTED COMMAND",
         Asc.INVALID_RELEASE_OF_PERSISTENT_RESERVATION, lambda sense: sense[:2] + b"\x0b" + sense[3:], kind="full")  # fmt: skip
sense_of("sense-list-short | SPC-4 sense data | the sense data of a parameter list have 14 bytes",
         Asc.INVALID_FIELD_IN_PARAMETER_LIST, lambda sense: sense[:7] + b"\x06" + sense[8:14], kind="full")  # fmt: skip
sense_of("sense-list-deferred | SPC-4 sense data | the length error of a parameter list is a deferred error",
         Asc.PARAMETER_LIST_LENGTH_ERROR, lambda sense: b"\x71" + sense[1:], kind="full")  # fmt: skip


def shorter(row: str, when: When, size: int, *, kind: str | None = None) -> None:
    """A mutant that leaves the last ``size`` bytes of a command's data out; the residual states so."""

    @mutant(row, kind=kind)
    def reply(talk: ProxyConnection, pdu: Pdu) -> Out:
        if not when(talk.cdb(pdu)):
            return pdu
        if isinstance(pdu, DataIn) and len(pdu.data) > size + 4:
            talk.memory["cut"] = pdu.itt
            return replace(pdu, data=pdu.data[:-size])
        if ends(pdu) and talk.memory.pop("cut", None) == pdu.itt:
            more = pdu.residual if pdu.underflow else -pdu.residual if pdu.overflow else 0  # type: ignore[attr-defined]
            left = more + size
            return replace(pdu, underflow=left > 0, overflow=left < 0, residual=abs(left))  # type: ignore[call-arg]
        return pdu


shorter("port-groups-short | SPC-4 REPORT TARGET PORT GROUPS | the last four bytes of the list are missing",
        lambda block: block[0] == 0xA3 and block[1] & 0x1F == 0x0A, 4, kind="thin")  # fmt: skip
shorter("full-status-short | SPC-4 READ FULL STATUS | the last four bytes of the descriptors are missing",
        lambda block: block[0] == 0x5E and block[1] & 0x1F == 3, 4, kind="full")  # fmt: skip
