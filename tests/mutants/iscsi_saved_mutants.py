"""Broken rules of saved mode pages, and of QERR: what a CHECK CONDITION does to other commands.

The rules, from the text (SPC-4 MODE SELECT, MODE SENSE, Control mode page), before any case:

- SP saves the pages of the list, and without it none is saved. PC 11b returns the saved values, PC 10b the default.
- A page that can be saved has PS. After a logical unit reset the current values are the saved ones.
- QERR of 00b: no other command ends. Of 01b all commands of the task set are aborted, of 11b those of the nexus.
"""

# ruff: noqa: E501  # a mutant is a row of a table

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from iscsi_proxy_connection import Out, ProxyConnection, mutant, on_request
from iscsi_reinstatement_mutants import both
from iscsi_rules import ends, good

from storagetest.wire.iscsi.codes import TaskFunction, TaskResult
from storagetest.wire.iscsi.encoding import Pdu
from storagetest.wire.iscsi.pdu import (
    DataIn,
    DataOut,
    ScsiCommand,
    ScsiResponse,
    TaskRequest,
    TaskResponse,
)
from storagetest.wire.scsi import cdb as c

FULL, RARE = "full", "rare"
SELECTS = {c.MODE_SELECT_6.opcode: 4, c.MODE_SELECT_10.opcode: 8}
SENSES = {c.MODE_SENSE_6.opcode: 4, c.MODE_SENSE_10.opcode: 8}
"""Operation codes, and bytes of their headers."""
SP, PS, QERR, AT = 0x01, 0x80, 0x06, 7
"""Bits; ``AT`` is the byte of QERR in a list of MODE SELECT(6) that has the Control mode page alone."""
CONTROL, WRITE = 0x0A, c.WRITE_10.opcode


def _cdb(
    row: str, opcodes: Any, change: Callable[[ProxyConnection, bytearray], None], kind: str = RARE
) -> None:
    """A mutant that changes the CDB of some commands before the target sees it."""

    @on_request(row, kind=kind)
    def request(talk: ProxyConnection, pdu: Pdu) -> Out:
        if not isinstance(pdu, ScsiCommand) or pdu.cdb[0] not in opcodes:
            return pdu
        block = bytearray(pdu.cdb)
        change(talk, block)
        return replace(pdu, cdb=bytes(block)) if block != pdu.cdb else pdu


def _with_sp(value: int) -> Callable[[ProxyConnection, bytearray], None]:
    def change(_: ProxyConnection, block: bytearray) -> None:
        block[1] = block[1] & ~SP | value

    return change


def _pc(asked: int, served: int, name: str = "") -> Callable[[ProxyConnection, bytearray], None]:
    def change(talk: ProxyConnection, block: bytearray) -> None:
        if block[2] >> 6 == asked and talk.name.endswith(name):
            block[2] = block[2] & 0x3F | served << 6

    return change


for _form, _opcode in (("6", c.MODE_SELECT_6.opcode), ("10", c.MODE_SELECT_10.opcode)):
    _cdb(f"saved-by-none-{_form} | SPC-4 MODE SELECT({_form}), SP | SP is ignored, and nothing is saved",
         (_opcode,), _with_sp(0))  # fmt: skip
_cdb("saved-by-each | SPC-4 MODE SELECT, SP | each MODE SELECT saves its pages", SELECTS, _with_sp(SP))
_cdb("saved-is-current | SPC-4 MODE SENSE, PC | saved values are the current ones", SENSES, _pc(3, 0))
_cdb("default-is-saved | SPC-4 MODE SENSE, PC | default values are the saved ones", SENSES, _pc(2, 3))
_cdb("saved-of-nexus | SPC-4 MODE SENSE, saved values | one nexus reads the default values as the saved ones",
     SENSES, _pc(3, 2, "-b"))  # fmt: skip


@mutant("saved-cut | SPC-4 MODE SELECT, SP | a list that ends within its page is GOOD with SP", kind=RARE)
def saved_cut(talk: ProxyConnection, pdu: Any) -> Out:
    block = talk.cdb(pdu)
    return good(pdu) if ends(pdu) and block[0] in SELECTS and block[1] & SP and pdu.status else pdu


def _no_reset(talk: ProxyConnection, pdu: Pdu) -> Pdu:
    if not isinstance(pdu, TaskRequest) or pdu.function != TaskFunction.LOGICAL_UNIT_RESET:
        return pdu
    return replace(pdu, function=TaskFunction.ABORT_TASK)


def _done(talk: ProxyConnection, pdu: Pdu) -> Pdu:
    return replace(pdu, response=TaskResult.COMPLETE) if isinstance(pdu, TaskResponse) else pdu


both("saved-not-restored | SPC-4 MODE SENSE | a logical unit reset leaves the current values",
     _done, _no_reset, kind=RARE)  # fmt: skip


def _with_ps(row: str, change: Callable[[int], int], kind: str) -> None:
    """A mutant of byte 0 of each mode page."""

    @mutant(row, kind=kind)
    def reply(talk: ProxyConnection, pdu: Pdu) -> Out:
        header = SENSES.get(talk.cdb(pdu)[0])
        if header is None or not isinstance(pdu, DataIn) or len(pdu.data) < header:
            return pdu
        data = bytearray(pdu.data)
        at = header + (data[3] if header == 4 else int.from_bytes(data[6:8], "big"))
        while at + 1 < len(data):
            data[at] = change(data[at])
            at += 2 + data[at + 1]
        return replace(pdu, data=bytes(data))


_with_ps(
    "ps-unsaved | SPC-4 mode page format, PS | PS is 1, and no page has saved values",
    lambda one: one | PS,
    FULL,
)
_with_ps(
    "ps-missing | SPC-4 mode page format, PS | PS of a page that is saved is 0", lambda one: one & ~PS, RARE
)


# QERR


def _aborts(row: str, *, every: bool) -> None:
    """A mutant that drops the data of writes that waited when another command ended in CHECK CONDITION."""

    def errors(talk: ProxyConnection) -> dict[str, Any]:
        return talk.shared if every else talk.memory

    def request(talk: ProxyConnection, pdu: Pdu) -> Out:
        seen = errors(talk).get("errors", 0)
        if isinstance(pdu, ScsiCommand) and pdu.cdb[0] == WRITE:
            talk.memory[f"begun {pdu.itt}"] = seen
        dropped = isinstance(pdu, DataOut) and talk.memory.get(f"begun {pdu.itt}", seen) < seen
        return None if dropped else pdu

    def reply(talk: ProxyConnection, pdu: Pdu) -> Out:
        if isinstance(pdu, ScsiResponse) and pdu.status == 2:
            errors(talk)["errors"] = errors(talk).get("errors", 0) + 1
        return pdu

    both(row, reply, request, kind=FULL)


_aborts(
    "error-aborts-own | SPC-4 QERR | with 00b a CHECK CONDITION ends the writes of its nexus", every=False
)
_aborts(
    "error-aborts-all | SPC-4 QERR | with 00b a CHECK CONDITION ends the writes of each nexus", every=True
)


def _qerr(row: str, served: dict[int, int]) -> None:
    """A mutant that reports the QERR that was selected, and acts as for another one."""

    def request(talk: ProxyConnection, pdu: Any) -> Out:
        ours = isinstance(pdu, (DataOut, ScsiCommand)) and talk.cdb(pdu)[0] == c.MODE_SELECT_6.opcode
        if not ours or len(pdu.data) <= AT or pdu.data[4] & 0x3F != CONTROL:
            return pdu
        talk.shared["qerr"] = asked = pdu.data[AT] & QERR
        new = pdu.data[AT] & ~QERR | served.get(asked, asked)
        return replace(pdu, data=pdu.data[:AT] + bytes((new,)) + pdu.data[AT + 1 :])

    def reply(talk: ProxyConnection, pdu: Pdu) -> Out:
        block = talk.cdb(pdu)
        current = block[0] == c.MODE_SENSE_6.opcode and block[2] == CONTROL and block[1] & 8
        if not current or not isinstance(pdu, DataIn) or "qerr" not in talk.shared or len(pdu.data) <= AT:
            return pdu
        new = pdu.data[AT] & ~QERR | talk.shared["qerr"]
        return replace(pdu, data=pdu.data[:AT] + bytes((new,)) + pdu.data[AT + 1 :])

    both(row, reply, request, kind=RARE)


_ALL, _OWN = 0x02, 0x06
_qerr("qerr-ignored | SPC-4 Control mode page, QERR | 01b and 11b abort nothing", {_ALL: 0, _OWN: 0})
_qerr(
    "qerr-all-is-own | SPC-4 Control mode page, QERR | 01b spares the writes of other nexuses", {_ALL: _OWN}
)
_qerr(
    "qerr-own-is-all | SPC-4 Control mode page, QERR | 11b aborts the writes of other nexuses", {_OWN: _ALL}
)
