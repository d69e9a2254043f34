"""Broken rules of what a controller announces and states, and of what it shares with another one.

The rules, from the text (NVM Express Base 2.3, NVM Command Set 1.2):

- 5.2.13.2.3: NIDL is the length of the identifier, in each list of descriptors (MUST).
- 6.3: a refused Connect states the parameter that is wrong, also Host NQN and Host Identifier (MUST).
- 5.2.12: a read from LPO returns what the ANA log page has there (MUST).
- 5.2.12.1.2: an entry of the error log has the LBA that has experienced the error (MUST).
- 5.2.12.3.3, 1.4.2: TRADDR is an address of the port; ASCII strings are padded with spaces (MUST).
- 7.2: VWC states how a Flush of all namespaces ends (MUST).
- NVM 4.1.5.1: with Namespace Management there is Identify Namespace of NSID FFFFFFFFh (MUST).
- 5.2.13.2.1, NVM 4.1.5.1: NN is the subsystem's, and NSZE the namespace's, through each controller (MUST).
- 3.1.4.5: CC is of one controller (MUST).
- 5.2.1.2: what Abort states to have aborted is completed as aborted (MUST).
- 8.1.24.3: a host is a registrant on each of its controllers (MUST).
- NVM 3.3.2: a Copy of as many blocks and ranges as MSSRL, MCL and MSRC allow is done (MUST).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial

from nvme_tcp_pair_mutants import Notes, _knows_host
from nvme_tcp_proxy_connection import Item, ProxyConnection
from nvme_tcp_rules import (
    MUTANTS,
    CrossConnectionMutant,
    When,
    add,
    commands,
    drops_command,
    fabrics,
    host,
    identify,
    log,
    on_admin,
    on_io,
    patch,
    put,
    response,
    shared,
    target,
)

from storagetest.wire.nvme.codes import Admin, Cns, Fctype, Io, LogPage, Property, StatusCode
from storagetest.wire.nvme.command import Command, Cqe
from storagetest.wire.nvme_tcp.pdu import C2HData, CapsuleCmd, DecodedPdu

CONNECT = fabrics(Fctype.CONNECT)
PIECE = 1024
"""Bytes of the head of the discovery log page, and of each entry."""

target(
    "descriptor-length-of-second | Base 5.2.13.2.3 | NIDL of the first descriptor of namespace 2 is 8",
    patch(put(1, b"\x08"), when=lambda t, c: identify(Cns.DESCRIPTORS)(t, c) and c.nsid == 2),
)
target(
    "connect-ipo-of-host | Base 6.3 | a Connect that is refused for its host states SUBNQN",
    response(
        lambda t, c, cqe: (
            replace(cqe, result=256 | 1 << 16)
            if c and CONNECT(t, c) and not cqe.ok and cqe.result in (1 << 16, 512 | 1 << 16)
            else None
        )
    ),
)
target(
    "ana-part-zero | Base 5.2.12 | a part of the ANA log page from an offset on is zeroes",
    patch(lambda raw: bytes(len(raw)), when=lambda t, c: log(LogPage.ANA)(t, c) and c.cdw12 > 0),
)
target(
    "error-log-lba | Base 5.2.12.1.2 | an entry of the error log has LBA 0",
    patch(put(16, bytes(8)), when=log(LogPage.ERROR)),
)


def _entries(change: Callable[[bytes], bytes]) -> Callable[[bytes], bytes]:
    """Change each entry of the discovery log but the first."""
    return lambda raw: (
        raw[: 2 * PIECE] + b"".join(change(raw[at : at + PIECE]) for at in range(2 * PIECE, len(raw), PIECE))
    )


target(
    "discovery-address-any | Base 5.2.12.3.3 | TRADDR of later entries is 0.0.0.0",
    patch(_entries(put(512, b"0.0.0.0".ljust(256))), when=log(LogPage.DISCOVERY)),
)
target(
    "discovery-text-nul | Base 1.4.2 | TRSVCID and TRADDR of later entries are padded with NULs",
    patch(
        _entries(
            lambda entry: (
                entry[:32]
                + entry[32:64].replace(b" ", b"\0")
                + entry[64:512]
                + entry[512:].replace(b" ", b"\0")
            )
        ),
        when=log(LogPage.DISCOVERY),
    ),
)


def _states_of_flush(row: str, vwc: int, status: int) -> None:
    """A mutant whose VWC is ``vwc``, and whose Flush of all namespaces ends with ``status``."""
    name = patch(put(525, bytes([vwc])), when=identify(Cns.CONTROLLER))
    ends = drops_command(lambda t, c: on_io(Io.FLUSH)(t, c) and c.nsid == 0xFFFFFFFF, status=status)
    add(row, lambda: ProxyConnection(of_target=name, of_host=ends))


_states_of_flush(
    "flush-all-refused | Base 7.2 | VWC announces a Flush of all namespaces, which is refused",
    0b111,
    StatusCode.INVALID_NAMESPACE,
)
_states_of_flush(
    "flush-all-taken | Base 7.2 | VWC announces that a Flush of all namespaces is refused, and it succeeds",
    0b101,
    StatusCode.SUCCESS,
)
target(
    "management-without-common | NVM 4.1.5.1 | Namespace Management is announced, NSID FFFFFFFFh refused",
    patch(lambda raw: put(256, bytes([raw[256] | 8]))(raw), when=identify(Cns.CONTROLLER)),
)
target(
    "discovery-asqsz | Base 5.2.12.3.3 | ASQSZ of later entries is 16",
    patch(_entries(put(8, b"\x10\0")), when=log(LogPage.DISCOVERY)),
)
target(
    "discovery-reserved | Base 1.4.1.6 | reserved bytes of later entries of the discovery log are set",
    patch(_entries(put(100, b"\1")), when=log(LogPage.DISCOVERY)),
)

for _name, _at, _bit in (
    ("lpa-smart", 261, 0x01),
    ("lpa-telemetry", 261, 0x08),
    ("oacs-self-test", 256, 0x10),
    ("oacs-directives", 256, 0x20),
):
    target(
        f"announced-{_name} | Base 5.2.13.2.1 | Identify announces what is refused: {_name}",
        patch(
            lambda raw, at=_at, bit=_bit: put(at, bytes([raw[at] | bit]))(raw), when=identify(Cns.CONTROLLER)
        ),
    )


# What is of the subsystem, and what of one controller


def _of_second(row: str, when: When, change: Callable[[bytes], bytes]) -> None:
    """A mutant that changes returned data of each controller but the first."""

    def sharing(notes: Notes) -> ProxyConnection:
        def second(through: ProxyConnection, asked: Command) -> bool:
            notes.add(id(through)) if not notes else None
            return id(through) not in notes and when(through, asked)

        return ProxyConnection(of_target=patch(change, when=second))

    shared(row, sharing)


_of_second(
    "pair-nn | Base 5.2.13.2.1 | NN of a second controller is another",
    identify(Cns.CONTROLLER),
    put(516, struct.pack("<I", 64)),
)
_of_second(
    "pair-namespace-size | NVM 4.1.5.1 | through a second controller a namespace has half of its blocks",
    identify(Cns.NAMESPACE),
    lambda raw: struct.pack("<QQQ", *(one // 2 for one in struct.unpack_from("<QQQ", raw))) + raw[24:],
)


def _one_cc(notes: Notes) -> ProxyConnection:
    """``notes``: the value of CC that any controller has set last."""

    def of_host(through: ProxyConnection, got: DecodedPdu) -> None:
        if isinstance(got.pdu, CapsuleCmd):
            asked = Command.decode(got.pdu.sqe)
            if fabrics(Fctype.PROPERTY_SET, cdw11=Property.CC)(through, asked):
                notes.clear()
                notes.add(asked.cdw12)

    def change(through: ProxyConnection, asked: Command | None, cqe: Cqe) -> Cqe | None:
        if not asked or not notes or not fabrics(Fctype.PROPERTY_GET, cdw11=Property.CC)(through, asked):
            return None
        (value,) = notes
        assert isinstance(value, int)
        return replace(cqe, result=value)

    return ProxyConnection(of_host=of_host, of_target=response(change))


shared("pair-cc | Base 3.1.4.5 | CC is that which any controller has set last", _one_cc)


# Abort (5.2.1.2)


def _ends(queue: ProxyConnection, cid: int, status: int | None) -> bool:
    """Complete an outstanding command of a queue, if there is a status; return whether there is such one."""
    if cid not in queue.commands:
        return False
    if status is not None:
        queue.reply(Cqe(cid, status, sqhd=1))
    return True


def _aborts(row: str, status: int | None, *, fused: bool = False) -> None:
    """A mutant that states of a command of an I/O queue that it was aborted, and ends it with ``status``.

    Without a status it is not completed. ``fused``: the first half of a fused operation alone.
    """

    def sharing(notes: Notes) -> ProxyConnection:
        def of_host(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
            if not isinstance(got.pdu, CapsuleCmd):
                return None
            asked = Command.decode(got.pdu.sqe)
            if through.qid and (asked.flags & 3 == 1 if fused else asked.opcode & 3 == 1):
                notes.add((asked.cid << 16 | through.qid, partial(_ends, through, asked.cid, status)))
            if not on_admin(Admin.ABORT)(through, asked):
                return None
            ends = [one[1] for one in notes if isinstance(one, tuple) and one[0] == asked.cdw10]
            if any(end() for end in ends):
                through.reply(Cqe(asked.cid, sqhd=1))
                return []
            return None

        return ProxyConnection(of_host=of_host)

    shared(row, sharing)
    if fused:
        made = MUTANTS[row.partition(" ")[0]]
        MUTANTS[made.name] = CrossConnectionMutant(
            made.name, made.section, made.description, ProxyConnection, kind="fused", sharing=sharing
        )


_aborts(
    "abort-write-unanswered | Base 5.2.1.2 | a write that Abort states to be aborted is not completed", None
)
_aborts(
    "abort-write-success | Base 5.2.1.2 | a write that Abort states to be aborted is completed as a success",
    StatusCode.SUCCESS,
)
_aborts(
    "fused-abort-internal | Base 5.2.1.2 | an aborted half of a fused operation ends with Internal Error",
    StatusCode.INTERNAL_ERROR,
    fused=True,
)


# Registrants (8.1.24.3)


def _of_controller(notes: Notes) -> ProxyConnection:
    """``notes``: the host and the CNTLID of the first controller that has registered."""

    def of_host(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
        asked = _knows_host(through, got)
        if asked is None or not isinstance(got.pdu, CapsuleCmd):
            return None
        if CONNECT(through, asked) and "cntlid" not in through.memory:
            through.memory["cntlid"] = got.pdu.data[16:18]
        if not on_io(Io.RESERVATION_REGISTER, Io.RESERVATION_ACQUIRE)(through, asked):
            return None
        own = through.memory["host"], through.memory["cntlid"]
        known = [one for one in notes if isinstance(one, tuple) and one[0] == own[0]]
        if known and own not in known and not asked.cdw10 >> 3 & 1:
            through.reply(Cqe(asked.cid, StatusCode.RESERVATION_CONFLICT, sqhd=1))
            return []
        notes.add(own)
        return None

    return ProxyConnection(of_host=of_host)


shared(
    "registrant-of-controller | Base 8.1.24.3 | a registrant is none on another controller of its host",
    _of_controller,
)


# Limits of Copy (NVM 3.3.2); those of the controller of the tests

MSSRL, MCL, MSRC = 64, 128, 3


def _refuses_copy(row: str, when: Callable[[list[int]], bool]) -> None:
    """A mutant that refuses a Copy by the blocks of its ranges, which are in the capsule."""

    def of_host(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
        if not isinstance(got.pdu, CapsuleCmd):
            return None
        asked = Command.decode(got.pdu.sqe)
        if not on_io(Io.COPY)(through, asked):
            return None
        data = got.pdu.data
        blocks = [int.from_bytes(data[at + 16 : at + 18], "little") + 1 for at in range(0, len(data), 32)]
        if not when(blocks):
            return None
        through.reply(Cqe(asked.cid, StatusCode.COMMAND_SIZE_LIMIT_EXCEEDED, sqhd=1))
        return []

    add(row, lambda: ProxyConnection(of_host=of_host))


_refuses_copy(
    "copy-mssrl-refused | NVM 3.3.2 | a range of MSSRL blocks is over the limit",
    lambda blocks: MSSRL in blocks,
)
_refuses_copy(
    "copy-mcl-refused | NVM 3.3.2 | a Copy of MCL blocks is over the limit", lambda blocks: sum(blocks) == MCL
)
_refuses_copy(
    "copy-msrc-refused | NVM 3.3.2 | a Copy of MSRC + 1 ranges is over the limit",
    lambda blocks: len(blocks) == MSRC + 1,
)


# MDTS of the controller of the tests (5.2.13.2.1)

MOST_BLOCKS = 256


def _refuses_most(row: str, opcode: Io) -> None:
    """A mutant that refuses a command of as many blocks as MDTS allows."""
    host(
        row,
        drops_command(
            lambda t, c: on_io(opcode)(t, c) and (c.cdw12 & 0xFFFF) + 1 == MOST_BLOCKS,
            status=StatusCode.INVALID_FIELD,
        ),
    )


_refuses_most("read-mdts-refused | Base 5.2.13.2.1 | a Read of MDTS is over the limit", Io.READ)
_refuses_most("write-mdts-refused | Base 5.2.13.2.1 | a Write of MDTS is over the limit", Io.WRITE)
_refuses_most("compare-mdts-refused | Base 5.2.13.2.1 | a Compare of MDTS is over the limit", Io.COMPARE)


def _last_byte(through: ProxyConnection, got: DecodedPdu) -> list[Item] | None:
    asked = through.command_of(got)
    if not isinstance(got.pdu, C2HData) or asked is None or not on_io(Io.READ)(through, asked):
        return None
    last = (asked.cdw12 & 0xFFFF) + 1 == MOST_BLOCKS and got.pdu.last
    return [replace(got.pdu, data=got.pdu.data[:-1] + bytes([got.pdu.data[-1] ^ 1]))] if last else None


target("read-mdts-last-byte | NVM 3.3.4 | the last byte of a Read of MDTS is another", _last_byte)


def _half_copied(capsule: CapsuleCmd, _: Command) -> CapsuleCmd:
    blocks = (MSSRL // 2 - 1).to_bytes(2, "little")
    return replace(capsule, data=capsule.data[:16] + blocks + capsule.data[18:])


host("copy-mssrl-half | NVM 3.3.2 | of a range of MSSRL blocks the first half is copied",
     commands(_half_copied, when=lambda t, c: on_io(Io.COPY)(t, c) and not c.cdw12 & 0xFF))  # fmt: skip


# WZSL (NVM 4.1.5.4): it is announced, and a range of it is refused


def _short_zeroes(through: ProxyConnection, got: DecodedPdu) -> list[Item] | None:
    asked = through.command_of(got)
    if not isinstance(got.pdu, C2HData) or asked is None or not identify(Cns.CSI_CONTROLLER)(through, asked):
        return None
    return [replace(got.pdu, data=got.pdu.data[:1] + bytes([WZSL]) + got.pdu.data[2:])]


def _refuses_wzsl(through: ProxyConnection, got: DecodedPdu) -> list[Item] | None:
    if not isinstance(got.pdu, CapsuleCmd):
        return None
    asked = Command.decode(got.pdu.sqe)
    if not on_io(Io.WRITE_ZEROES)(through, asked) or (asked.cdw12 & 0xFFFF) + 1 != (8 << WZSL):
        return None
    through.reply(Cqe(asked.cid, StatusCode.INVALID_FIELD, sqhd=1))
    return []


WZSL = 3
"""2^3 pages of 4 KiB: 64 blocks of 512 bytes."""

add("wzsl-itself-refused | NVM 4.1.5.4 | Write Zeroes of as many blocks as WZSL allows is refused",
    lambda: ProxyConnection(of_host=_refuses_wzsl, of_target=_short_zeroes))  # fmt: skip
