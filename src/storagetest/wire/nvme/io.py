"""The I/O commands (NVM Express Base 2.3, section 7; NVM Command Set 1.2, section 3.3).

Each function returns a command without its CID. ``blocks`` counts from one; on the wire it is zero's based.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable

from storagetest.wire.nvme.codes import Io
from storagetest.wire.nvme.command import NO_SGL, Command

FUA = 1 << 30
DEALLOCATE = 1 << 25


def _blocks(opcode: Io, nsid: int, lba: int, blocks: int, control: int = 0) -> Command:
    return Command(
        opcode,
        nsid=nsid,
        cdw10=lba & 0xFFFFFFFF,
        cdw11=lba >> 32 & 0xFFFFFFFF,
        cdw12=(blocks - 1) & 0xFFFF | control,
    )


def read(nsid: int, lba: int, blocks: int, *, fua: bool = False) -> Command:
    """Read (NVM 3.3.4)."""
    return _blocks(Io.READ, nsid, lba, blocks, FUA * fua)


def write(nsid: int, lba: int, blocks: int, *, fua: bool = False) -> Command:
    """Write (NVM 3.3.6)."""
    return _blocks(Io.WRITE, nsid, lba, blocks, FUA * fua)


def compare(nsid: int, lba: int, blocks: int) -> Command:
    """Compare (NVM 3.3.1)."""
    return _blocks(Io.COMPARE, nsid, lba, blocks)


def write_zeroes(nsid: int, lba: int, blocks: int, *, deallocate: bool = False) -> Command:
    """Write Zeroes (NVM 3.3.8)."""
    command = _blocks(Io.WRITE_ZEROES, nsid, lba, blocks, DEALLOCATE * deallocate)
    return _without_data(command)


def verify(nsid: int, lba: int, blocks: int) -> Command:
    """Verify (NVM 3.3.5)."""
    return _without_data(_blocks(Io.VERIFY, nsid, lba, blocks))


def flush(nsid: int) -> Command:
    """Flush (Base 7.2)."""
    return Command(Io.FLUSH, nsid=nsid, dptr=NO_SGL)


def _without_data(command: Command) -> Command:
    assert command.dptr == NO_SGL  # the driver fills it in for commands that carry data
    return command


def dataset_management(nsid: int, ranges: int, *, deallocate: bool = True) -> Command:
    """Dataset Management (NVM 3.3.3) of ``ranges`` ranges; its data is :func:`dsm_ranges`."""
    return Command(Io.DATASET_MANAGEMENT, nsid=nsid, cdw10=ranges - 1, cdw11=4 * deallocate)


def dsm_ranges(ranges: Iterable[tuple[int, int]]) -> bytes:
    """Return the data of Dataset Management: (first LBA, blocks) of each range."""
    return b"".join(struct.pack("<IIQ", 0, blocks, lba) for lba, blocks in ranges)


def copy(nsid: int, lba: int, ranges: int) -> Command:
    """Copy (NVM 3.3.2) ``ranges`` ranges to ``lba``; its data is :func:`copy_ranges` (format 0h)."""
    return Command(Io.COPY, nsid=nsid, cdw10=lba & 0xFFFFFFFF, cdw11=lba >> 32, cdw12=(ranges - 1) & 0xFF)


def copy_ranges(ranges: Iterable[tuple[int, int]]) -> bytes:
    """Return source range entries of format 0h: (first LBA, blocks) of each."""
    return b"".join(struct.pack("<8xQH14x", lba, blocks - 1) for lba, blocks in ranges)


def keys(current: int, new: int = 0) -> bytes:
    """Return the data of Reservation Register (CRKEY, NRKEY) and Acquire (CRKEY, PRKEY)."""
    return struct.pack("<QQ", current, new)


def register(nsid: int, action: int, *, ignore: bool = False, persist: int = 0) -> Command:
    """Reservation Register (Base 7.6): action 0 registers, 1 unregisters, 2 replaces. Data: :func:`keys`."""
    return Command(Io.RESERVATION_REGISTER, nsid=nsid, cdw10=action | ignore << 3 | persist << 30)


def acquire(nsid: int, action: int, rtype: int, *, ignore: bool = False) -> Command:
    """Reservation Acquire (Base 7.5): action 0 acquires, 1 preempts, 2 preempts and aborts."""
    return Command(Io.RESERVATION_ACQUIRE, nsid=nsid, cdw10=action | ignore << 3 | rtype << 8)


def release(nsid: int, action: int, rtype: int, *, ignore: bool = False) -> Command:
    """Reservation Release (Base 7.7): action 0 releases, 1 clears. Data: the key, 8 bytes."""
    return Command(Io.RESERVATION_RELEASE, nsid=nsid, cdw10=action | ignore << 3 | rtype << 8)


def report(nsid: int, length: int, *, extended: bool = True) -> Command:
    """Reservation Report (Base 7.8) of ``length`` bytes; over fabrics the extended structure."""
    return Command(Io.RESERVATION_REPORT, nsid=nsid, cdw10=length // 4 - 1, cdw11=int(extended))
