"""Broken rules of blocks of one value, and of a range that has one block that cannot be read.

The rules, from the text, before any case:

- NVM 3.3.6, 3.3.4: Write stores the data of its blocks, and Read returns them, whatever they are.
- NVM 3.3.7: a marked block is not read, so no command that reads its range succeeds.
- Base 5.2.26.1.3: the under temperature threshold is a value of its own.
- NVM 3.3.1: Compare compares the data of each block, and ends with Compare Failure if they differ.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from nvme_tcp_proxy_connection import Item, ProxyConnection
from nvme_tcp_rules import accepts, add, feature, host, on_io, results, target

from storagetest.wire.nvme.codes import Admin, Io, StatusCode
from storagetest.wire.nvme.command import Command
from storagetest.wire.nvme_tcp.pdu import C2HData, CapsuleCmd, DecodedPdu

BLOCK = 512


def _replaced(data: bytes, old: int, new: bytes) -> bytes:
    """Return the data with each block of bytes ``old`` replaced."""
    blocks = (bytes(data[at : at + BLOCK]) for at in range(0, len(data), BLOCK))
    return b"".join(new if block == bytes((old,)) * BLOCK else block for block in blocks)


def _ones_are_zero(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
    command = through.command_of(got)
    if not isinstance(got.pdu, C2HData) or command is None or not on_io(Io.READ)(through, command):
        return None
    if got.pdu.offset % BLOCK:
        return None
    return [replace(got.pdu, data=_replaced(got.pdu.data, 0xFF, bytes(BLOCK)))]


target("read-ff-zero | NVM 3.3.4 | a block of FFh bytes is read as one of zeroes", _ones_are_zero)


def _zeroes_are_others(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
    if not isinstance(got.pdu, CapsuleCmd) or not on_io(Io.WRITE)(through, Command.decode(got.pdu.sqe)):
        return None
    return [replace(got.pdu, data=_replaced(got.pdu.data, 0x00, b"\xee" * BLOCK))]


host(
    "write-zero-kept | NVM 3.3.6 | a block of zeroes is written as something else",
    _zeroes_are_others,
)


def _of_zeroes(through: ProxyConnection, command: Command) -> bool:
    return on_io(Io.COMPARE)(through, command) and bool(through.memory.get("zeroes"))


def _notes_zeroes(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
    if isinstance(got.pdu, CapsuleCmd) and on_io(Io.COMPARE)(through, Command.decode(got.pdu.sqe)):
        through.memory["zeroes"] = not any(got.pdu.data[1:])
    return None


def _equal(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
    return accepts(StatusCode.COMPARE_FAILURE, when=_of_zeroes)(through, got)


add(
    "compare-zero-equal | NVM 3.3.1 | Compare of a block of zeroes with another succeeds",
    lambda: ProxyConnection(of_host=_notes_zeroes, of_target=_equal),
)


# A range of several blocks, of which one cannot be read


for _opcode, _name in ((Io.READ, "Read"), (Io.VERIFY, "Verify"), (Io.COMPARE, "Compare"), (Io.COPY, "Copy")):
    target(
        f"marked-among-{_name.lower()} | NVM 3.3.7 | {_name} of several blocks, one of them marked, succeeds",
        accepts(
            StatusCode.UNRECOVERED_READ_ERROR,
            when=lambda t, c, opcode=_opcode: (
                on_io(opcode)(t, c) and (opcode == Io.COPY or bool(c.cdw12 & 0xFFFF))
            ),
        ),
    )


# Temperature Threshold


target(
    "threshold-under-constant | Base 5.2.26.1.3 | the under temperature threshold is a constant",
    results(
        lambda t, c, r: 0x111,
        when=lambda t, c: feature(Admin.GET_FEATURES, 0x04)(t, c) and bool(c.cdw11 >> 20 & 3),
    ),
)
