"""Broken rules that show when several I_T nexuses use the same blocks.

The rules (SAM-5, SBC-3): the blocks of a logical unit are the same for each nexus; a write that ended in GOOD
is read through each of them.
"""

# ruff: noqa: E501  # a mutant is a row of a table

from dataclasses import replace

from iscsi_block_mutants import blocks_of
from iscsi_proxy_connection import MUTANTS, ProxyConnection, mutant

from storagetest.wire.iscsi.encoding import Pdu
from storagetest.wire.iscsi.pdu import DataIn, ScsiCommand

_READS = {0x28, 0xA8, 0x88}


@mutant(
    "nexus-reads-cached | SBC-3 READ | a nexus that reads a range again gets what it read before, although another has written it"
)
def cached(talk: ProxyConnection, pdu: Pdu) -> Pdu:
    block = talk.cdb(pdu)
    if not isinstance(pdu, DataIn) or block[0] not in _READS:
        return pdu
    cache = talk.memory.setdefault("cache", {})
    return replace(
        pdu, data=cache.setdefault((*blocks_of(block), pdu.buffer_offset, len(pdu.data)), pdu.data)
    )


def _forgets(talk: ProxyConnection, pdu: Pdu) -> Pdu:
    if isinstance(pdu, ScsiCommand) and pdu.cdb[0] not in _READS:
        talk.memory.pop("cache", None)
    return pdu


MUTANTS["nexus-reads-cached"].request = _forgets
