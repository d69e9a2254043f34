"""Broken rules of READ BUFFER, diagnostic pages, target port groups that are set, and seldom reports.

The rules, from the text (SPC-4), before any case:

- An allocation length cuts the data, is no error, and changes no length field. A length counts what follows it.
- A reserved MODE of READ BUFFER is an invalid field. The echo buffer returns what the nexus wrote last, as long as it was.
- The list of diagnostic pages is ascending; each page has its code and its length; another page is refused.
- The extended header of REPORT TARGET PORT GROUPS has FORMAT TYPE 1, and RETURN DATA LENGTH counts all that follows it.
- SET TARGET PORT GROUPS refuses reserved states, and groups that are not there.
- INQUIRY, with EVPD, too, clears no unit attention. A start is allowed under each reservation (SBC-3).
"""

# ruff: noqa: E501  # a mutant is a row of a table

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from iscsi_proxy_connection import Out, ProxyConnection, mutant, on_request
from iscsi_reinstatement_mutants import both
from iscsi_reservation_mutants import enforces
from iscsi_rules import attention, check, ends, good
from iscsi_thin_unit import GROUP

from storagetest.wire.iscsi.encoding import Pdu
from storagetest.wire.iscsi.pdu import DataIn, DataOut, ScsiCommand
from storagetest.wire.scsi.codes import Asc, SenseKey

KIND = "full"
INQUIRY, START_STOP, DIAGNOSTIC, WRITE_BUFFER, READ_BUFFER, IN, SET = 0x12, 0x1B, 0x1C, 0x3B, 0x3C, 0xA3, 0xA4
DESCRIPTOR, ECHO, EXTENDED = 0x03, 0x0A, 0x2A
"""Of byte 1: modes of READ BUFFER, and REPORT TARGET PORT GROUPS in its extended format."""
LENGTHS = {0x05: slice(2, 4), 0x0B: slice(0, 4), 0x0E: slice(0, 4), 0x0F: slice(0, 2)}
"""Length fields by service action of MAINTENANCE IN."""
SHORT = 16
"""An allocation length that cuts (chosen)."""


def _is(talk: ProxyConnection, pdu: Pdu, opcode: int, byte: int | None = None) -> bool:
    block = talk.cdb(pdu)
    return block[0] == opcode and byte in (None, block[1])


def _data(row: str, opcode: int, byte: int | None, change: Callable[[bytes, bytes], bytes]) -> None:
    """A mutant that changes the data of a command: ``change(CDB, data)``."""

    @mutant(row, kind=KIND)
    def reply(talk: ProxyConnection, pdu: Pdu) -> Out:
        if not isinstance(pdu, DataIn) or not _is(talk, pdu, opcode, byte):
            return pdu
        return replace(pdu, data=change(talk.cdb(pdu), pdu.data))


def _takes(row: str, opcode: int, asc: int) -> None:
    """A mutant that ends a command in GOOD instead of ILLEGAL REQUEST with ``asc``."""

    @mutant(row, kind=KIND)
    def reply(talk: ProxyConnection, pdu: Any) -> Out:
        ours = ends(pdu) and _is(talk, pdu, opcode) and pdu.status == 2
        return good(pdu) if ours and pdu.sense[12:14] == asc.to_bytes(2, "big") else pdu


def _refuses(row: str, opcode: int, asc: int, *, least: int = 0) -> None:
    """A mutant that refuses a command with ``least`` bytes of parameter list, or more."""

    @mutant(row, kind=KIND)
    def reply(talk: ProxyConnection, pdu: Pdu) -> Out:
        ours = ends(pdu) and _is(talk, pdu, opcode) and int.from_bytes(talk.cdb(pdu)[6:10], "big") >= least
        return check(pdu, SenseKey.ILLEGAL_REQUEST, asc) if ours else pdu


# Buffers


@mutant(
    "buffer-descriptor-refused | SPC-4 READ BUFFER | less than four bytes of a buffer descriptor are an invalid field",
    kind=KIND,
)
def buffer_descriptor_refused(talk: ProxyConnection, pdu: Pdu) -> Out:
    if not _is(talk, pdu, READ_BUFFER, DESCRIPTOR) or int.from_bytes(talk.cdb(pdu)[6:9], "big") >= 4:
        return pdu
    return check(pdu, SenseKey.ILLEGAL_REQUEST, Asc.INVALID_FIELD_IN_CDB) if ends(pdu) else None


_takes(
    "buffer-any-mode | SPC-4 READ BUFFER, MODE | a reserved mode is GOOD",
    READ_BUFFER,
    Asc.INVALID_FIELD_IN_CDB,
)
_takes(
    "echo-long | SPC-4 WRITE BUFFER | more bytes than the echo buffer has are taken",
    WRITE_BUFFER,
    Asc.INVALID_FIELD_IN_CDB,
)


@on_request(
    "echo-first-kept | SPC-4 WRITE BUFFER | the first bytes of the echo buffer are those of the first write",
    kind=KIND,
)
def echo_first_kept(talk: ProxyConnection, pdu: Pdu) -> Out:
    if not isinstance(pdu, DataOut) or not _is(talk, pdu, WRITE_BUFFER):
        return pdu
    first = talk.memory.setdefault("first", pdu.data)[: len(pdu.data)]
    return replace(pdu, data=first + pdu.data[len(first) :])


def _allocates(row: str, change: Callable[[int], int]) -> None:
    """A mutant that reads the echo buffer with another allocation length."""

    @on_request(row, kind=KIND)
    def request(talk: ProxyConnection, pdu: Pdu) -> Out:
        if not isinstance(pdu, ScsiCommand) or pdu.cdb[:2] != bytes((READ_BUFFER, ECHO)):
            return pdu
        length = change(int.from_bytes(pdu.cdb[6:9], "big")).to_bytes(3, "big")
        return replace(pdu, cdb=pdu.cdb[:6] + length + pdu.cdb[9:])


_allocates(
    "echo-cut | SPC-4 READ BUFFER | 252 bytes of the echo buffer are returned at most",
    lambda length: min(length, 252),
)
_allocates("echo-whole | SPC-4 allocation length | the echo buffer is returned whole", lambda length: 1024)


def _shares_echo(talk: ProxyConnection, pdu: Pdu) -> Pdu:
    if isinstance(pdu, DataOut) and _is(talk, pdu, WRITE_BUFFER):
        talk.shared["echo"] = pdu.data
    return pdu


def _shared_echo(talk: ProxyConnection, pdu: Pdu) -> Out:
    echo = talk.shared.get("echo", b"")
    ours = isinstance(pdu, DataIn) and _is(talk, pdu, READ_BUFFER, ECHO)
    return replace(pdu, data=echo[: len(pdu.data)].ljust(len(pdu.data), b"\0")) if ours else pdu  # type: ignore[attr-defined,call-arg]


both(
    "echo-shared | SPC-4 WRITE BUFFER | a nexus reads what another nexus wrote to the echo buffer",
    _shared_echo,
    _shares_echo,
    kind=KIND,
)


# Diagnostic pages

_data(
    "diagnostic-list-order | SPC-4 Supported Diagnostic Pages | the list is in descending order",
    DIAGNOSTIC,
    None,
    lambda block, data: data if block[2] else data[:4] + data[:3:-1],
)
_data(
    "diagnostic-other-code | SPC-4 RECEIVE DIAGNOSTIC RESULTS | each page has the code of the list",
    DIAGNOSTIC,
    None,
    lambda block, data: b"\0" + data[1:],
)
_data(
    "diagnostic-page-length | SPC-4 RECEIVE DIAGNOSTIC RESULTS | PAGE LENGTH counts one byte more",
    DIAGNOSTIC,
    None,
    lambda block, data: data[:3] + bytes((data[3] + 1,)) + data[4:] if block[2] else data,
)
_data(
    "diagnostic-cut-length | SPC-4 allocation length | PAGE LENGTH is that of what is returned",
    DIAGNOSTIC,
    None,
    lambda block, data: data[:2] + (len(data) - 4).to_bytes(2, "big") + data[4:] if len(data) >= 4 else data,
)


@on_request(
    "diagnostic-absent | SPC-4 RECEIVE DIAGNOSTIC RESULTS | a page that is not there is an empty one",
    kind=KIND,
)
def diagnostic_absent(talk: ProxyConnection, pdu: Pdu) -> Out:
    if not isinstance(pdu, ScsiCommand) or pdu.cdb[0] != DIAGNOSTIC or not pdu.cdb[2]:
        return pdu
    return replace(pdu, cdb=pdu.cdb[:2] + b"\x3f" + pdu.cdb[3:])


# Target port groups

_data(
    "groups-extended-length | SPC-4 REPORT TARGET PORT GROUPS | RETURN DATA LENGTH of the extended header is that of the short one",
    IN,
    EXTENDED,
    lambda block, data: (int.from_bytes(data[:4], "big") - 4).to_bytes(4, "big") + data[4:],
)
_data(
    "groups-extended-format | SPC-4 REPORT TARGET PORT GROUPS | FORMAT TYPE of the extended header is 0",
    IN,
    EXTENDED,
    lambda block, data: data[:4] + b"\0" + data[5:],
)
_refuses(
    "groups-set-unsupported | SPC-4 TPGS | SET TARGET PORT GROUPS is not supported, and TPGS is 11b",
    SET,
    Asc.INVALID_COMMAND_OPERATION_CODE,
)
_refuses(
    "groups-set-refused | SPC-4 SET TARGET PORT GROUPS | the state that a group has is refused",
    SET,
    Asc.INVALID_FIELD_IN_PARAMETER_LIST,
    least=8,
)
_takes(
    "groups-set-any-state | SPC-4 SET TARGET PORT GROUPS | a reserved state is GOOD, and ignored",
    SET,
    Asc.INVALID_FIELD_IN_PARAMETER_LIST,
)


@on_request(
    "groups-set-any-group | SPC-4 SET TARGET PORT GROUPS | each group is the one that is there", kind=KIND
)
def groups_set_any_group(talk: ProxyConnection, pdu: Pdu) -> Out:
    if not isinstance(pdu, DataOut) or not _is(talk, pdu, SET) or len(pdu.data) < 8:
        return pdu
    return replace(pdu, data=pdu.data[:6] + GROUP.to_bytes(2, "big") + pdu.data[8:])


# Reports of MAINTENANCE IN


def _report(row: str, change: Callable[[bytes, int], int], *, short: bool) -> None:
    """A mutant that changes the length field of a report, whole or cut: ``change(data, field)``."""

    @mutant(row, kind=KIND)
    def reply(talk: ProxyConnection, pdu: Pdu) -> Out:
        block = talk.cdb(pdu)
        if not isinstance(pdu, DataIn) or block[0] != IN or (field := LENGTHS.get(block[1])) is None:
            return pdu
        if len(pdu.data) < field.stop or short != (int.from_bytes(block[6:10], "big") < SHORT):
            return pdu
        new = change(pdu.data, int.from_bytes(pdu.data[field], "big"))
        new_field = new.to_bytes(field.stop - field.start, "big")
        return replace(pdu, data=pdu.data[: field.start] + new_field + pdu.data[field.stop :])


_report(
    "report-length | SPC-4 MAINTENANCE IN | the length of a report counts one byte more",
    lambda data, length: length + 1,
    short=False,
)
_report(
    "report-cut-length | SPC-4 allocation length | the length of a report is that of what is returned",
    lambda data, length: 0,
    short=True,
)
_data(
    "timestamp-backwards | SPC-4 REPORT TIMESTAMP | the time runs backwards",
    IN,
    0x0F,
    lambda block, data: data[:4] + bytes(byte ^ 0xFF for byte in data[4:10]) + data[10:],
)


# Unit attentions, and a start


def _notes_page(talk: ProxyConnection, pdu: Pdu) -> Pdu:
    if isinstance(pdu, ScsiCommand):
        before = talk.memory.get("evpd", False) and pdu.cdb[0] in (0x00, INQUIRY)
        talk.memory["evpd"] = before or (pdu.cdb[0] == INQUIRY and bool(pdu.cdb[1] & 1))
    return pdu


both("evpd-clears-attention | SAM-5 5.14 | INQUIRY with EVPD clears a unit attention", lambda talk, pdu: good(pdu) if attention(pdu) and talk.memory.get("evpd") else pdu, _notes_page, kind=KIND)  # fmt: skip
enforces(
    "reservation-start",
    "a start of another nexus is a conflict",
    {START_STOP},
    conflict=True,
    host_suffix="-b",
    kind=KIND,
)
