"""Broken rules of logical block provisioning: what READ CAPACITY(16) and page B2h state of it.

The rules, from the text (SBC-3), before any case:

- LBPU and LBPWS are of a unit that manages the provisioning of its blocks: LBPME is 1 (MUST).
- 4.7: a unit with LBPME has page B2h, and at least one command that unmaps blocks (SHOULD here: the page is
  younger than LBPME).
- UNMAP: if ANC_SUP is 0 and ANCHOR is 1, the command shall end with INVALID FIELD IN CDB (MUST).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from iscsi_optional_mutants import KIND, SERVICE_IN
from iscsi_proxy_connection import Out, ProxyConnection, mutant
from iscsi_rules import good

from storagetest.wire.iscsi.encoding import Pdu
from storagetest.wire.iscsi.pdu import DataIn, ScsiResponse

INQUIRY, UNMAP, READ_CAPACITY = 0x12, 0x42, 0x10
LBPME = 0x80
"""Of byte 14 of READ CAPACITY(16)."""


def _of_capacity(block: bytes) -> bool:
    return block[0] == SERVICE_IN and block[1] & 0x1F == READ_CAPACITY


def _of_page(code: int) -> Callable[[bytes], bool]:
    return lambda block: block[0] == INQUIRY and bool(block[1] & 1) and block[2] == code


def _clears(row: str, of: Callable[[bytes], bool], at: int, mask: int) -> None:
    """A mutant that clears bits of a byte of data."""

    @mutant(row, kind=KIND)
    def reply(talk: ProxyConnection, pdu: Pdu) -> Out:
        if not isinstance(pdu, DataIn) or not of(talk.cdb(pdu)) or len(pdu.data) <= at:
            return pdu
        return replace(pdu, data=pdu.data[:at] + bytes((pdu.data[at] & ~mask,)) + pdu.data[at + 1 :])


_clears("lbpme-clear | SBC-3 LBPME | UNMAP is supported, and LBPME is 0", _of_capacity, 14, LBPME)
_clears("lbp-no-method | SBC-3 LBPME | page B2h has no command that unmaps blocks", _of_page(0xB2), 5, 0xE0)


@mutant("lbp-page-missing | SBC-3 LBPME | page 00h lacks page B2h", kind=KIND)
def lbp_page_missing(talk: ProxyConnection, pdu: Pdu) -> Out:
    if not isinstance(pdu, DataIn) or not _of_page(0)(talk.cdb(pdu)) or len(pdu.data) < 4:
        return pdu
    codes = bytes(code for code in pdu.data[4:] if code != 0xB2)
    return replace(
        pdu, data=pdu.data[:2] + len(codes).to_bytes(2, "big") + codes.ljust(len(pdu.data) - 4, b"\0")
    )


@mutant("unmap-anchor-accepted | SBC-3 UNMAP | ANCHOR is accepted without ANC_SUP", kind=KIND)
def unmap_anchor_accepted(talk: ProxyConnection, pdu: Pdu) -> Out:
    block = talk.cdb(pdu)
    anchors = isinstance(pdu, ScsiResponse) and pdu.status and block[0] == UNMAP and block[1] & 1
    return good(pdu) if anchors else pdu
