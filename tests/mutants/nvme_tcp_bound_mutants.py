"""Broken rules of the last blocks of a namespace, of SGLs without length, and of deallocated blocks.

The rules, from the text (NVM Express Base 2.3, NVM Command Set 1.2), before any case:

- 4.3.2: a command that has data, and an SGL without length, is aborted (MUST).
- NVM 3.1: each block up to NSZE is within the range of each command (MUST).
- NVM 3.3.3.2.1: a deallocated block has the values that Read returns, to each command (MUST).
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import replace

from nvme_tcp_proxy_connection import Item, ProxyConnection
from nvme_tcp_rules import accepts, commands, host, on_io, refuses, target

from storagetest.wire.nvme.codes import Io, StatusCode
from storagetest.wire.nvme.command import Command, Cqe, in_capsule
from storagetest.wire.nvme_tcp.pdu import CapsuleCmd, DecodedPdu

OFFSET = 0x01
"""The SGL of data in the capsule (Base 4.3.2)."""

END = 2048
"""Blocks of a namespace of the controller of these runs."""

NAMED = on_io(Io.COMPARE, Io.VERIFY, Io.WRITE_ZEROES, Io.WRITE_UNCORRECTABLE)
"""Commands whose dwords name their blocks."""


def _at_end(through: ProxyConnection, command: Command) -> bool:
    if on_io(Io.COPY)(through, command):
        return command.cdw10 in (END - 1, END - 2)
    return NAMED(through, command) and command.cdw10 + (command.cdw12 & 0xFFFF) + 1 == END


target(
    "last-block-of-others-refused | NVM 3.1 | the last block is out of range, but to Read and Write",
    refuses(StatusCode.LBA_OUT_OF_RANGE, when=_at_end),
)


def _refuses_range(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
    """Refuse ranges up to the end."""
    if not isinstance(got.pdu, CapsuleCmd):
        return None
    command, data, last = Command.decode(got.pdu.sqe), got.pdu.data, 0
    if on_io(Io.COPY)(through, command) and len(data) == 32:
        lba, blocks = struct.unpack_from("<8xQH", data)
        last = lba + blocks + 1
    elif on_io(Io.DATASET_MANAGEMENT)(through, command) and len(data) == 16:
        blocks, lba = struct.unpack_from("<4xIQ", data)
        last = lba + blocks
    if last != END:
        return None
    through.reply(Cqe(command.cid, StatusCode.LBA_OUT_OF_RANGE, sqhd=1))
    return []


host(
    "last-range-refused | NVM 3.1 | a range of Copy or Dataset Management up to the end is out of range",
    _refuses_range,
)
target(
    "sgl-empty-taken | Base 4.3.2 | a command whose SGL has no length succeeds",
    accepts(
        StatusCode.DATA_SGL_LENGTH_INVALID,
        StatusCode.INVALID_FIELD,
        when=lambda t, c: bool(t.qid) and c.dptr[:12] == bytes(12) and c.dptr[15] == 0x5A,
    ),
)


def _lost(through: ProxyConnection, command: Command) -> bool:
    """Whether a command is of the block that the last Dataset Management has deallocated."""
    if on_io(Io.DATASET_MANAGEMENT)(through, command):
        through.memory["deallocated"] = command.cid
    elif on_io(Io.WRITE)(through, command):
        through.memory.pop("deallocated", None)
    return "deallocated" in through.memory and on_io(Io.COMPARE, Io.COPY, Io.VERIFY)(through, command)


target(
    "deallocated-is-lost | NVM 3.3.3.2.1 | Compare, Copy and Verify of a deallocated block fail",
    refuses(StatusCode.UNRECOVERED_READ_ERROR, when=_lost),
)
host(
    "far-of-others-taken | NVM 3.1 | the upper dword of SLBA of Compare, Verify and Write Zeroes is ignored",
    commands(
        lambda capsule, c: replace(capsule, sqe=replace(c, cdw11=0).encode()),
        when=lambda t, c: bool(c.cdw11) and on_io(Io.COMPARE, Io.VERIFY, Io.WRITE_ZEROES)(t, c),
    ),
)


def _from_start(capsule: CapsuleCmd, command: Command) -> CapsuleCmd:
    """Take as many bytes as the SGL has from the start of the capsule's data."""
    length = int.from_bytes(command.dptr[8:12], "little")
    return CapsuleCmd(replace(command, dptr=in_capsule(length)).encode(), capsule.data[:length])


host(
    "sgl-offset-of-others-ignored | Base 3.3.2.1.3 | the offset in a capsule is obeyed by Write alone",
    commands(
        _from_start,
        when=lambda t, c: (
            on_io(Io.COMPARE, Io.COPY, Io.RESERVATION_REGISTER)(t, c)
            and c.dptr[15] == OFFSET
            and any(c.dptr[:8])
        ),
    ),
)
