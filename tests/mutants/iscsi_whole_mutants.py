"""Broken rules of commands that move all that was expected, of lists that are cut, and of a closed window.

The rules, from the text:

- RFC 7143 11.4.5: a residual is of bytes that were not transferred (MUST).
- SPC-4 4.3.5.6: a transfer ends at the allocation length, wherever in the list that is (MUST).
- RFC 7143 4.2.2.1: an immediate request has the next CmdSN, and does not need a place in the window (MUST).
"""

from __future__ import annotations

from dataclasses import replace

from iscsi_proxy_connection import Out, ProxyConnection, mutant, on_request

from storagetest.wire.iscsi.encoding import Pdu
from storagetest.wire.iscsi.pdu import DataIn, NopOut, ScsiResponse
from storagetest.wire.scsi.codes import PrIn

PR_IN = 0x5E
HEADER, KEY = 8, 8
"""Bytes of the header of READ KEYS, and of a key."""
LARGE = 2048
"""Bytes of a write over which it states a residual."""


@mutant(
    "residual-of-large-writes | RFC 7143 11.4.5 | a write of more than 2 KiB states a residual of a block"
)
def residual_of_large_writes(talk: ProxyConnection, pdu: Pdu) -> Out:
    command = talk.commands.get(pdu.itt)
    if not isinstance(pdu, ScsiResponse) or command is None or not command.write or pdu.status:
        return pdu
    return replace(pdu, underflow=True, residual=512) if command.expected_length > LARGE else pdu


@mutant(
    "keys-last-cut | SPC-4 PERSISTENT RESERVE IN | the last key that an allocation length holds is zero",
    kind="full",
)
def keys_last_cut(talk: ProxyConnection, pdu: Pdu) -> Out:
    block = talk.cdb(pdu)
    if not isinstance(pdu, DataIn) or block[0] != PR_IN or block[1] & 0x1F != PrIn.READ_KEYS:
        return pdu
    allocation, ends = int.from_bytes(block[7:9], "big"), len(pdu.data)
    if allocation != ends or ends == HEADER or ends % KEY:
        return pdu
    return replace(pdu, data=pdu.data[:-KEY] + bytes(KEY))


@on_request(
    "immediate-needs-window | RFC 7143 4.2.2.1 | a ping is not answered while the command window is closed"
)
def immediate_needs_window(talk: ProxyConnection, pdu: Pdu) -> Out:
    last = talk.last
    closed = last is not None and isinstance(pdu, NopOut) and pdu.cmd_sn == (last.max_cmd_sn + 1) % 2**32  # type: ignore[attr-defined]
    return None if closed else pdu
