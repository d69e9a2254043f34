"""The blocks that the cases overwrite, and the data that they write there."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import pytest

from storagetest.wire.iscsi.initiator import Initiator
from storagetest.wire.iscsi.outcomes import CommandNotOffered
from storagetest.wire.scsi.logical_unit import LogicalUnit


@dataclass(frozen=True, slots=True)
class Scratch:
    """Blocks that a case may overwrite: ``count`` from ``lba``. One command transfers ``most`` at most."""

    lba: int
    count: int
    block_size: int
    most: int

    def require(self, blocks: int) -> None:
        """Skip if one command transfers fewer blocks."""
        if blocks > self.most:
            pytest.skip(f"a command transfers {self.most} blocks at most; the case needs {blocks}")

    def pattern(self, blocks: int = 1, *, seed: int = 0) -> bytes:
        """Return data of one command, which differ in every block and for every seed; see :meth:`require`."""
        self.require(blocks)
        out = b""
        for block in range(blocks):
            word = hashlib.sha256(f"{seed}/{block}".encode()).digest()
            out += (word * -(-self.block_size // len(word)))[: self.block_size]  # 520 bytes are legal, too
        return out

    def read_back(self, session: Initiator, blocks: int) -> bytes:
        """Return the data of the first blocks, read through ``session``."""
        answer = LogicalUnit(session, block_size=self.block_size).read(self.lba, blocks)
        assert answer.good, answer
        return answer.data


def fail_if_offered(session: Initiator, refused: CommandNotOffered) -> None:
    """Fail if ``session`` executes the write, with the data of its length, that was refused as unknown.

    A unit has a command, or does not have it: SPC-4, REPORT SUPPORTED OPERATION CODES.
    """
    command = refused.command
    again = session.command(command.cdb, data=bytes(command.expected_length))
    if not again.status:
        pytest.fail(f"{refused}; the same command, sent again in another session, is executed")
