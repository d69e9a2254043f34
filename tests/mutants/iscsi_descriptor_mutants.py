"""Broken rules of MODE SELECT with a block descriptor.

The rules, from the text (SPC-4, SBC-3): a descriptor of the current number and length of blocks changes
nothing, the pages behind it are set, and a list that ends within it has a wrong length.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from iscsi_each_form_mutants import KIND
from iscsi_proxy_connection import Out, ProxyConnection, mutant, on_request
from iscsi_rules import check, good

from storagetest.wire.iscsi.encoding import Pdu
from storagetest.wire.iscsi.pdu import DataIn, DataOut, ScsiCommand, ScsiResponse
from storagetest.wire.scsi import cdb as c
from storagetest.wire.scsi.codes import Asc, SenseKey

HEADS = {c.MODE_SELECT_6.opcode: 4, c.MODE_SELECT_10.opcode: 8}
SENSES = {c.MODE_SENSE_6.opcode: 4, c.MODE_SENSE_10.opcode: 8}
"""Lengths of the mode parameter header."""
DESCRIPTOR, WCE = 8, 0x04


def _head(talk: ProxyConnection, pdu: Pdu) -> int:
    """Return the length of the header of a list that has a block descriptor, else 0."""
    head = HEADS.get(talk.cdb(pdu)[0], 0) if isinstance(pdu, (ScsiCommand, DataOut)) else 0
    data = getattr(pdu, "data", b"")
    return head if head and len(data) >= head and data[head - 1] else 0


def _notes(talk: ProxyConnection, pdu: Pdu) -> Pdu:
    if isinstance(pdu, ScsiCommand):
        talk.memory["size"] = 0
    if head := _head(talk, pdu):
        talk.memory["size"] = len(pdu.data) - head  # type: ignore[attr-defined]
    return pdu


@mutant(
    "select-block-refused | SPC-4 MODE SELECT, block descriptors | each of them is an invalid field",
    kind=KIND, request=_notes,
)  # fmt: skip
def select_block_refused(talk: ProxyConnection, pdu: Any) -> Out:
    ours = isinstance(pdu, ScsiResponse) and talk.cdb(pdu)[0] in HEADS and talk.memory.get("size")
    return check(pdu, SenseKey.ILLEGAL_REQUEST, Asc.INVALID_FIELD_IN_PARAMETER_LIST) if ours else pdu


@mutant(
    "select-block-changes | SPC-4 MODE SELECT, block descriptors | one sets another block length",
    kind=KIND, request=_notes,
)  # fmt: skip
def select_block_changes(talk: ProxyConnection, pdu: Any) -> Out:
    block = talk.cdb(pdu)
    if isinstance(pdu, ScsiResponse) and block[0] in HEADS and talk.memory.get("size") and not pdu.status:
        talk.shared["changed"] = True
    if (
        not isinstance(pdu, DataIn)
        or block[0] not in SENSES
        or block[1] & 8
        or not talk.shared.get("changed")
    ):
        return pdu
    at = SENSES[block[0]] + DESCRIPTOR - 1
    return replace(pdu, data=pdu.data[:at] + b"\x08" + pdu.data[at + 1 :])


@on_request(
    "select-block-page-ignored | SPC-4 MODE SELECT, block descriptors | a page behind one sets nothing",
    kind=KIND,
)
def select_block_page_ignored(talk: ProxyConnection, pdu: Any) -> Out:
    head = _head(talk, pdu)
    at = head + DESCRIPTOR + 2
    if not head or len(pdu.data) <= at:
        return pdu
    return replace(pdu, data=pdu.data[:at] + bytes((pdu.data[at] | WCE,)) + pdu.data[at + 1 :])


@mutant(
    "select-block-cut-good | SPC-4 PARAMETER LIST LENGTH | a list that ends in its block descriptor is GOOD",
    kind=KIND, request=_notes,
)  # fmt: skip
def select_block_cut_good(talk: ProxyConnection, pdu: Any) -> Out:
    ours = isinstance(pdu, ScsiResponse) and talk.cdb(pdu)[0] in HEADS and pdu.status
    return good(pdu) if ours else pdu
