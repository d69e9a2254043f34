"""Broken rules that show in a sequence of I/O commands: the second of a kind, after another, of some size.

The rules, before any case (NVM Express Base 2.3; NVM Command Set 1.2):

- NVM 3.3.6, 3.3.4: each write of a block replaces its data, however often, with FUA and after a Flush, too; a
  read of any number of blocks returns them all, after a command that failed, too.
- NVM 3.3.8: Write Zeroes zeroes each block of its range, each time; a range past the end is refused whole.
- NVM 3.3.5: Verify of a range past the end is LBA Out of Range.
- NVM 3.3.3: the blocks next to each range of several are kept.
- NVM 3.3.2: Copy writes all its source ranges, one after the other.
- NVM 3.3.1: Compare fails if a byte differs, whatever the Compare before it returned.
- NVM 4.1.5.1: the size of a namespace is the same in each Identify, if nothing has changed it.
- Base 4.2.1: dword 0 is reserved for commands that return nothing in it; SQHD is that of the own queue.
- Base 5.2.12: each part of a log page, read alone, is that part.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace

from nvme_tcp_proxy_connection import Item, ProxyConnection
from nvme_tcp_rules import (
    When,
    accepts,
    add,
    commands,
    data,
    drops_command,
    host,
    identify,
    log,
    on_io,
    patch,
    put,
    response,
    target,
)

from storagetest.wire.nvme.codes import Cns, Io, StatusCode
from storagetest.wire.nvme.command import Command, Cqe
from storagetest.wire.nvme_tcp.pdu import C2HData, CapsuleCmd, CapsuleResp, DecodedPdu, H2CData


def lba_of(command: Command) -> int:
    return command.cdw10 | command.cdw11 << 32


def blocks_of(command: Command) -> int:
    return (command.cdw12 & 0xFFFF) + 1


def moved(command: Command, by: int) -> Command:
    """Return the command with a range that begins ``by`` blocks later and ends where it did."""
    lba = lba_of(command) + by
    return replace(command, cdw10=lba & 0xFFFFFFFF, cdw11=lba >> 32, cdw12=command.cdw12 - by)


def nth(number: int, when: When, key: Callable[[Command], object] = lba_of) -> When:
    """Match the command that is number ``number`` of those that ``when`` matches and that share a key."""

    def matches(through: ProxyConnection, command: Command) -> bool:
        if not when(through, command):
            return False
        counts: Counter[object] = through.memory.setdefault("counts", Counter())
        counts[key(command)] += 1
        return counts[key(command)] == number

    return matches


def one_queue(command: Command) -> object:
    return None


# Writes and reads

host(
    "third-write-lost | NVM 3.3.6 | the third write of one block to eight of the same LBA is lost",
    drops_command(nth(3, lambda t, c: on_io(Io.WRITE)(t, c) and blocks_of(c) <= 8)),
)
host(
    "fua-second-lost | NVM 3.3.6 | the second write with FUA is lost",
    drops_command(nth(2, lambda t, c: on_io(Io.WRITE)(t, c) and bool(c.cdw12 >> 30 & 1), one_queue)),
)


def after(first: When, then: When) -> When:
    """Match a command that ``then`` matches, if the one before it on the queue was matched by ``first``."""

    def matches(through: ProxyConnection, command: Command) -> bool:
        before, through.memory["before"] = through.memory.get("before", False), first(through, command)
        return bool(before) and then(through, command)

    return matches


host(
    "write-after-flush-lost | Base 7.2, NVM 3.3.6 | the write after a Flush is lost",
    drops_command(after(on_io(Io.FLUSH), on_io(Io.WRITE))),
)
host(
    "write-after-zeroes-lost | NVM 3.3.6, 3.3.8 | the write after a Write Zeroes is lost",
    drops_command(after(on_io(Io.WRITE_ZEROES), on_io(Io.WRITE))),
)


def cuts_odd(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
    """Zero the last block of a write of an odd number of blocks over 64."""
    command = through.command_of(got)
    if not isinstance(got.pdu, H2CData) or not got.pdu.last or command is None:
        return None
    if command.opcode != Io.WRITE or blocks_of(command) <= 64 or not blocks_of(command) % 2:
        return None
    return [replace(got.pdu, data=got.pdu.data[:-512] + bytes(512))]


host("write-odd-last-lost | NVM 3.3.6 | the last block of a long write of an odd number is zeroes", cuts_odd)


def read_129(through: ProxyConnection, pdu: C2HData) -> Iterable[Item]:
    command = through.commands.get(pdu.cccid)
    wrong = pdu.last and command is not None and command.opcode == Io.READ and blocks_of(command) == 129
    return [replace(pdu, data=pdu.data[:-1] + bytes([pdu.data[-1] ^ 1])) if wrong else pdu]


target("read-129-blocks-wrong | NVM 3.3.4 | the last byte of a read of 129 blocks is wrong", data(read_129))


def after_failure(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
    """The first read after a command that failed has the data of the second block in its first."""
    if isinstance(got.pdu, CapsuleResp):
        through.memory["failed"] = not Cqe.decode(got.pdu.cqe).ok
        return None
    command = through.command_of(got)
    if not isinstance(got.pdu, C2HData) or got.pdu.offset or command is None or command.opcode != Io.READ:
        return None
    if not through.memory.pop("failed", False) or len(got.pdu.data) < 1024:
        return None
    return [replace(got.pdu, data=got.pdu.data[512:1024] + got.pdu.data[512:])]


target("read-after-failure-wrong | NVM 3.3.4 | the read after a failed command returns another block",
       after_failure)  # fmt: skip

# Write Zeroes, Verify, Dataset Management, Copy, Compare

host(
    "zeroes-odd-first-kept | NVM 3.3.8 | Write Zeroes of several blocks keeps the first if its LBA is odd",
    commands(
        lambda capsule, c: replace(capsule, sqe=moved(c, 1).encode()),
        when=lambda t, c: on_io(Io.WRITE_ZEROES)(t, c) and blocks_of(c) > 1 and bool(lba_of(c) & 1),
    ),
)
host(
    "zeroes-again-ignored | NVM 3.3.8 | the second Write Zeroes of an LBA does nothing",
    drops_command(nth(2, on_io(Io.WRITE_ZEROES))),
)


def begins_zeroes(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
    """Execute the first block of a Write Zeroes that reaches past the end of 2,048 blocks, and refuse it."""
    if isinstance(got.pdu, CapsuleCmd):
        command = Command.decode(got.pdu.sqe)
        across = lba_of(command) < 2048 < lba_of(command) + blocks_of(command)
        if on_io(Io.WRITE_ZEROES)(through, command) and across:
            through.memory["across"] = command.cid
            return [replace(got.pdu, sqe=replace(command, cdw12=0).encode())]
    return None


def refuses_across(through: ProxyConnection, command: Command | None, cqe: Cqe) -> Cqe | None:
    if cqe.cid != through.memory.get("across"):
        return None
    del through.memory["across"]
    return replace(cqe, status=StatusCode.LBA_OUT_OF_RANGE)


add(
    "zeroes-across-end-begins | NVM 3.3.8 | Write Zeroes across the end is refused after its first block",
    lambda: ProxyConnection(of_host=begins_zeroes, of_target=response(refuses_across)),
)
target(
    "zeroes-past-end | NVM 3.3.8 | Write Zeroes past the end succeeds",
    accepts(StatusCode.LBA_OUT_OF_RANGE, when=on_io(Io.WRITE_ZEROES)),
)
target(
    "verify-past-end | NVM 3.3.5 | Verify past the end succeeds",
    accepts(StatusCode.LBA_OUT_OF_RANGE, when=on_io(Io.VERIFY)),
)


def second_shifted(capsule: CapsuleCmd, command: Command) -> CapsuleCmd:
    raw = bytearray(capsule.data)
    if len(raw) >= 32:
        raw[24:32] = (int.from_bytes(raw[24:32], "little") + 1).to_bytes(8, "little")
    return CapsuleCmd(capsule.sqe, bytes(raw))


host(
    "dsm-second-range-shifted | NVM 3.3.3 | the second range begins and ends one block late",
    commands(second_shifted, when=on_io(Io.DATASET_MANAGEMENT)),
)


def first_source_alone(capsule: CapsuleCmd, command: Command) -> CapsuleCmd:
    """Copy the blocks of the first range in place of those of the second, which has as many."""
    raw = capsule.data
    return CapsuleCmd(capsule.sqe, raw[:32] + raw[:32] + raw[64:])


host(
    "copy-second-range-is-first | NVM 3.3.2 | the second source range of a Copy is the first again",
    commands(first_source_alone, when=lambda t, c: on_io(Io.COPY)(t, c) and c.cdw12 & 0xFF >= 1),
)


def forgives_next(through: ProxyConnection, command: Command | None, cqe: Cqe) -> Cqe | None:
    if command is None or command.opcode != Io.COMPARE:
        return None
    failed, before = cqe.status == StatusCode.COMPARE_FAILURE, through.memory.get("failed before", False)
    through.memory["failed before"] = failed
    return replace(cqe, status=0, dnr=False) if failed and before else None


target("compare-second-failure-passes | NVM 3.3.1 | the second of two Compares that fail succeeds",
       response(forgives_next))  # fmt: skip

# Completions, Identify, log pages

target(
    "write-resp-result | Base 4.2.1 | dword 0 of a Write is its number of blocks",
    response(
        lambda t, c, cqe: (
            replace(cqe, result=blocks_of(c)) if c and on_io(Io.WRITE)(t, c) and cqe.ok else None
        )
    ),
)


def smaller(through: ProxyConnection, command: Command) -> bool:
    if not identify(Cns.NAMESPACE)(through, command):
        return False
    through.memory["asked"] = through.memory.get("asked", 0) + 1
    return bool(through.memory["asked"] % 2 == 0)


target(
    "identify-second-smaller | NVM 4.1.5.1 | each second Identify Namespace has another NUSE and NSZE",
    patch(put(0, (2000).to_bytes(8, "little") * 3), when=smaller),
)
target(
    "log-part-shifted | Base 5.2.12 | a part of a log page from an offset over 0 begins four bytes late",
    patch(lambda raw: raw[4:] + bytes(4), when=lambda t, c: log()(t, c) and c.cdw12 > 0),
)
