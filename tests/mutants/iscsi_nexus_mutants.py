"""Broken rules that show when several I_T nexuses use the same blocks.

The rules (SAM-5, SBC-3): the blocks of a logical unit are the same for each nexus; a write that ended in GOOD
is read through each of them, and the data of one command are not those of another, at once or one after the
other.
"""

# ruff: noqa: E501  # a mutant is a row of a table

from dataclasses import replace

from iscsi_block_mutants import blocks_of
from iscsi_proxy_connection import MUTANTS, ProxyConnection, mutant, on_request
from iscsi_rules import ends
from iscsi_sequence_mutants import loses

from storagetest.wire.iscsi.encoding import Pdu
from storagetest.wire.iscsi.pdu import DataIn, DataOut, ScsiCommand

_READS, _WRITES = {0x28, 0xA8, 0x88}, {0x2A, 0xAA, 0x8A}


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


def third_writer(talk: ProxyConnection, pdu: ScsiCommand) -> bool:
    if pdu.cdb[0] not in _WRITES:
        return False
    writers = talk.shared.setdefault("writers", {}).setdefault(blocks_of(pdu.cdb)[0], set())
    third = len(writers - {talk.name}) >= 2
    writers.add(talk.name)
    return third


loses(
    "third-nexus-write-lost | SBC-3 WRITE | the write of a nexus is lost if two others wrote to the same LBA before",
    third_writer,
)


@on_request(
    "nexus-data-mixed | SBC-3 WRITE | data that come while the write of another nexus waits for its data are stored in reverse order"
)
def mixed(talk: ProxyConnection, pdu: Pdu) -> Pdu:
    waiting = talk.shared.setdefault("waiting", set())
    if isinstance(pdu, ScsiCommand) and pdu.cdb[0] in _WRITES and len(pdu.data) < pdu.expected_length:
        waiting.add((talk.name, pdu.itt))
    if not isinstance(pdu, DataOut) or all(name == talk.name for name, _ in waiting):
        return pdu
    return replace(pdu, data=pdu.data[::-1])


def _ended(talk: ProxyConnection, pdu: Pdu) -> Pdu:
    if ends(pdu):
        talk.shared.setdefault("waiting", set()).discard((talk.name, pdu.itt))
    return pdu


MUTANTS["nexus-data-mixed"].reply = _ended
