"""Limits that a controller and a namespace announce, and transfers planned within them.

A command over such a limit is refused, and rightly so. Cases that test something else therefore ask a
:class:`Limits` how large a transfer may be; only the cases of the limits themselves go beyond.

- MDTS, VSL, WZSL and WUSL are powers of two in units of CAP.MPSMIN; 0h: no limit (Base 5.2.13.2.1,
  NVM 4.1.5.4).
- DMRL and DMRSL limit Dataset Management; 0h: no limit is reported (NVM 4.1.5.4).
- MSSRL, MCL and MSRC limit Copy; MSRC is zero's based (NVM 4.1.5.1).
- CAP.MQES, zero's based, limits a queue, of which one entry stays empty (Base 3.1.4.1, 3.3.1); MAXCMD limits
  the commands outstanding on it; 0h: not reported (Base 5.2.13.2.1).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from storagetest.wire.nvme.structures import Cap, ControllerData, NamespaceData, NvmCommandLimits

UNLIMITED = 1 << 16
"""Blocks of one command, if no lower limit is announced: the most that NLB can name (NVM 3.3.4)."""

MEM = 1 << 16
"""CTRATT: MDTS and the size limits exclude the metadata of an extended LBA (Base 5.2.13.2.1)."""


@dataclass(frozen=True, slots=True)
class Limits:
    """The most that one command may ask for; in blocks, unless the name states otherwise."""

    block_size: int
    transfer: int = UNLIMITED  # Read, Write and Compare: MDTS
    verify: int = UNLIMITED  # VSL
    zeroes: int = UNLIMITED  # WZSL
    marks: int = UNLIMITED  # of Write Uncorrectable: WUSL
    discard: int = UNLIMITED  # of one range: DMRSL
    discard_ranges: int = 256  # DMRL; NR of the command names 256 at most (NVM 3.3.3)
    copy_ranges: int = 1  # MSRC
    copy_range: int = 0  # MSSRL
    copy_total: int = 0  # MCL
    outstanding: int = 1  # commands on one I/O queue: MQES and MAXCMD

    @classmethod
    def of(
        cls, cap: Cap, controller: ControllerData, namespace: NamespaceData, commands: NvmCommandLimits
    ) -> Limits:
        """Read the limits from what the controller reports."""
        size = namespace.block_data_size if controller["ctratt"] & MEM else namespace.block_size

        def blocks(exponent: int) -> int:
            """Return the blocks in 2^``exponent`` pages of the least size; at least one."""
            return min(max(cap.page_size << exponent, size) // size, UNLIMITED) if exponent else UNLIMITED

        return cls(
            block_size=namespace.block_size,
            transfer=blocks(controller["mdts"]),
            verify=blocks(commands.vsl),
            zeroes=blocks(commands.wzsl),
            marks=blocks(commands.wusl),
            discard=min(commands.dmrsl or UNLIMITED, UNLIMITED),
            discard_ranges=commands.dmrl or 256,
            copy_ranges=namespace["msrc"] + 1,
            copy_range=namespace["mssrl"],
            copy_total=namespace["mcl"],
            outstanding=min(cap.mqes, controller["maxcmd"] or cap.mqes),
        )

    def blocks_of(self, size: int, *, most: int = UNLIMITED) -> int:
        """Return the blocks of one transfer of ``size`` bytes, rounded up, or as many as are allowed."""
        return max(min(-(-size // self.block_size), self.transfer, most), 1)

    def pieces(self, lba: int, blocks: int, *, most: int | None = None) -> Iterator[tuple[int, int]]:
        """Split ``blocks`` from ``lba`` into (LBA, blocks) of one command each, ``most`` blocks or fewer.

        By default ``most`` is the limit of a transfer.
        """
        step = self.transfer if most is None else most
        for at in range(0, blocks, step):
            yield lba + at, min(step, blocks - at)

    def copied(self, ranges: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
        """Return the (LBA, blocks) of ``ranges`` that one Copy may carry, cut to the limits of Copy."""
        left, allowed = self.copy_total, []
        for lba, blocks in list(ranges)[: self.copy_ranges]:
            count = min(blocks, self.copy_range, left)
            left -= count
            if count:
                allowed.append((lba, count))
        return allowed
