"""Broken rules of what MODE SENSE states of mode pages by PC, and of the bit SP of MODE SELECT.

The rules, from the text (SPC-4), before any case:

- MODE SENSE, changeable values: the mask has a one bit for each parameter that MODE SELECT can change (MUST).
- MODE SENSE, saved values: if they are not implemented, the command shall end with ILLEGAL REQUEST, SAVING
  PARAMETERS NOT SUPPORTED (MUST).
- MODE SELECT, SP: if saved pages are not implemented, SP of 1 shall end with INVALID FIELD IN CDB (MUST).
- PAGE LENGTH: that of MODE SENSE is the one that MODE SELECT takes, so it is one for all values of PC (MUST).
"""

from __future__ import annotations

from dataclasses import replace

from iscsi_optional_mutants import KIND, MODE_SELECT, MODE_SENSE
from iscsi_proxy_connection import Out, ProxyConnection, mutant
from iscsi_rules import check, good

from storagetest.wire.iscsi.encoding import Pdu
from storagetest.wire.iscsi.pdu import DataIn, DataOut, ScsiCommand, ScsiResponse
from storagetest.wire.scsi.sense import decode_sense

ILLEGAL, INVALID_IN_LIST, INVALID_IN_CDB, NO_SAVING = 5, 0x2600, 0x2400, 0x3900


def _refused_by(pdu: Pdu) -> int:
    """Return the additional sense code of a response, or 0."""
    return decode_sense(pdu.sense).asc if isinstance(pdu, ScsiResponse) and pdu.sense else 0


@mutant("mode-mask-refused | SPC-4 MODE SENSE | a value that is stated as changeable is refused", kind=KIND)
def mode_mask_refused(talk: ProxyConnection, pdu: Pdu) -> Out:
    if not isinstance(pdu, ScsiResponse) or talk.cdb(pdu)[0] != MODE_SELECT or pdu.status:
        return pdu
    talk.memory["selected"] = talk.memory.get("selected", 0) + 1  # the first one is of the current values
    return check(pdu, ILLEGAL, INVALID_IN_LIST) if talk.memory["selected"] > 1 else pdu


@mutant(
    "mode-mask-shape | SPC-4 MODE SENSE | the mask of a page that is asked for alone is two bytes shorter",
    kind=KIND,
)
def mode_mask_shape(talk: ProxyConnection, pdu: Pdu) -> Out:
    block = talk.cdb(pdu)
    if not isinstance(pdu, DataIn) or block[0] != MODE_SENSE or block[2] >> 6 != 1 or block[2] & 0x3F == 0x3F:
        return pdu
    data = bytearray(pdu.data)
    data[0], data[5] = data[0] - 2, data[5] - 2
    return replace(pdu, data=bytes(data))


@mutant("mode-saved-sense | SPC-4 MODE SENSE | saved values are refused by INVALID FIELD IN CDB", kind=KIND)
def mode_saved_sense(talk: ProxyConnection, pdu: Pdu) -> Out:
    return check(pdu, ILLEGAL, INVALID_IN_CDB) if _refused_by(pdu) == NO_SAVING else pdu


@mutant("mode-sp-accepted | SPC-4 MODE SELECT | SP is accepted without saved pages", kind=KIND)
def mode_sp_accepted(talk: ProxyConnection, pdu: Pdu) -> Out:
    block = talk.cdb(pdu)
    return good(pdu) if block[0] == MODE_SELECT and block[1] & 1 and _refused_by(pdu) else pdu


def _notes_list(talk: ProxyConnection, pdu: Pdu) -> Pdu:
    """Keep the first page of a MODE SELECT(6) list of several pages."""
    if isinstance(pdu, (ScsiCommand, DataOut)) and talk.cdb(pdu)[0] == MODE_SELECT and len(pdu.data) > 6:
        page = pdu.data[4 + pdu.data[3] :]
        if len(page) > 2 + page[1]:
            talk.memory["first"] = page[: 2 + page[1]]
    return pdu


@mutant(
    "mode-select-half | SPC-4 MODE SELECT | a list whose second page is refused changes the first one",
    request=_notes_list,
    kind=KIND,
)
def mode_select_half(talk: ProxyConnection, pdu: Pdu) -> Out:
    """MODE SENSE returns the page as if it had been changed."""
    block, first = talk.cdb(pdu), talk.memory.get("first")
    if not isinstance(pdu, DataIn) or block[0] != MODE_SENSE or block[2] >> 6 or first is None:
        return pdu
    at = 4 + pdu.data[3]
    if pdu.data[at] & 0x3F != first[0]:
        return pdu
    return replace(pdu, data=pdu.data[: at + 1] + first[1:] + pdu.data[at + len(first) :])
