"""Broken rules of nexuses without a session, of pending unit attentions, and of ranges of another command.

The rules, from the text, before any case (all MUST):

- SPC-4: the end of a session ends no registration; PREEMPT and CLEAR remove that of a nexus without a session as any
  other, its reservation is taken over, and READ FULL STATUS has it.
- SAM-5 5.14: a unit attention ends each command but INQUIRY, REPORT LUNS and REQUEST SENSE.
- SPC-4: a PERSISTENT RESERVE OUT that is refused is not counted; a holder that preempts itself gets the type it names; READ
  BUFFER, WRITE BUFFER and RECEIVE DIAGNOSTIC RESULTS of a nexus without a registration are excluded by each reservation.
- SBC-3 GET LBA STATUS: a block is mapped by each command that writes it.
- SBC-3 COMPARE AND WRITE: each of the blocks is compared; WRITE SAME: an address past the end is an error also if no
  number of blocks is given.
"""

# ruff: noqa: E501  # a mutant is a row of a table

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import replace

from iscsi_neighbour_mutants import failed, passes
from iscsi_proxy_connection import Out, ProxyConnection, mutant, on_request
from iscsi_reservation_mutants import enforces
from iscsi_rules import attention, ended_in, ends, good

from storagetest.wire.iscsi.encoding import Pdu
from storagetest.wire.iscsi.pdu import DataIn, LogoutRequest, LogoutResponse, ScsiCommand, TaskResponse
from storagetest.wire.scsi.codes import Asc, PrIn, PrOut, PrType
from storagetest.wire.scsi.reservation_harness import KEY_B

RESERVE_IN, RESERVE_OUT = 0x5E, 0x5F
STANDS_FOR = {
    PrOut.PREEMPT: PrOut.RESERVE,
    PrOut.PREEMPT_AND_ABORT: PrOut.RESERVE,
    PrOut.CLEAR: PrOut.REGISTER_AND_IGNORE_EXISTING_KEY,
}
"""What is done instead, which ends in GOOD and leaves the registrations of the others."""


def leaves(talk: ProxyConnection, pdu: Pdu) -> bool:
    """Note the logout of the second nexus of a case; return whether its session has ended."""
    if isinstance(pdu, LogoutRequest) and talk.name.endswith("-b"):
        talk.shared["gone"] = True
    return bool(talk.shared.get("gone"))


def spares(row: str) -> None:
    """A mutant that removes no registration of a nexus without a session."""

    @on_request(row, kind="full")
    def request(talk: ProxyConnection, pdu: Pdu) -> Out:
        gone = leaves(talk, pdu)
        if (
            not gone
            or not isinstance(pdu, ScsiCommand)
            or pdu.cdb[0] != RESERVE_OUT
            or talk.name[-2:] != "-a"
        ):
            return pdu
        action = STANDS_FOR.get(PrOut(pdu.cdb[1] & 0x1F))
        return pdu if action is None else replace(pdu, cdb=bytes((RESERVE_OUT, action)) + pdu.cdb[2:])


spares(
    "removal-spares-absent | SPC-4 PREEMPT, CLEAR | the registration of a nexus without a session is not removed"
)
spares("absent-holder-keeps | SPC-4 PREEMPT | the reservation of a nexus without a session is not taken over")


@mutant(
    "full-status-lacks-absent | SPC-4 READ FULL STATUS | a nexus without a session is not listed", kind="full"
)
def full_status(talk: ProxyConnection, pdu: Pdu) -> Out:
    block = talk.cdb(pdu)
    if not isinstance(pdu, DataIn) or block[0] != RESERVE_IN or block[1] & 0x1F != PrIn.READ_FULL_STATUS:
        return pdu
    if not talk.shared.get("gone"):
        talk.shared["gone"] = True  # the second look of the case follows the logout
        return pdu
    rest, kept = pdu.data[8:], b""
    while rest:
        size = 24 + int.from_bytes(rest[20:24], "big")
        kept += b"" if int.from_bytes(rest[:8], "big") == KEY_B else rest[:size]
        rest = rest[size:]
    return replace(pdu, data=pdu.data[:4] + struct.pack(">I", len(kept)) + kept)


# Unit attentions


def passed(row: str, *opcodes: int) -> None:
    """A mutant whose commands are done although a unit attention is pending."""

    @mutant(row, kind="full")
    def reply(talk: ProxyConnection, pdu: Pdu) -> Out:
        return good(pdu) if attention(pdu) and talk.cdb(pdu)[0] in opcodes else pdu


passed("attention-passed-reports | SAM-5 5.14 | commands that report about the unit report no unit attention",
       0x5E, 0xA3, 0x4D, 0x3C, 0x1C, 0x84)  # fmt: skip
passed("attention-passed-acts | SAM-5 5.14 | MODE SELECT, SEND DIAGNOSTIC, a start and PREVENT ALLOW report no unit attention",
       0x15, 0x55, 0x1D, 0x1B, 0x1E)  # fmt: skip
passed("attention-passed-places | SAM-5 5.14 | GET LBA STATUS, VERIFY(12) and PRE-FETCH report no unit attention",
       0x9E, 0xAF, 0x34, 0x90)  # fmt: skip
passed(
    "attention-passed-changes | SAM-5 5.14 | UNMAP and WRITE AND VERIFY report no unit attention",
    0x42,
    0x2E,
    0xAE,
)
passed(
    "attention-passed-register | SAM-5 5.14 | PERSISTENT RESERVE OUT reports no unit attention", RESERVE_OUT
)
passed("attention-passed-reserve6 | SAM-5 5.14 | RESERVE(6) reports no unit attention", 0x16)


def loses(row: str, when: Callable[[bytes, bool], bool]) -> None:
    """A mutant that loses the pending unit attention with a command; ``when`` is given whether its LUN is absent."""

    @mutant(row, kind="full")
    def reply(talk: ProxyConnection, pdu: Pdu) -> Out:
        if attention(pdu) and talk.memory.pop("lost", False):
            return good(pdu)
        sent = talk.commands.get(pdu.itt)
        if ends(pdu) and not attention(pdu) and sent is not None and when(sent.cdb, bool(sent.lun)):
            talk.memory["lost"] = True
        return pdu


loses("attention-lost-refused | SAM-5 5.14 | a command that is refused ends the pending unit attention",
      lambda block, _: block[0] == 0x6B or block[:3] == b"\x12\x01\xab" or (block[0] == 0xA0 and block[2] == 0x7F))  # fmt: skip
loses("attention-lost-absent | SAM-5 5.14 | a command to a LUN that is not there ends the pending unit attention",
      lambda _, absent: absent)  # fmt: skip


@mutant(
    "attention-lost-conflict | SAM-5 5.14 | a reservation conflict ends the pending unit attention",
    kind="full",
)
def lost_conflict(talk: ProxyConnection, pdu: Pdu) -> Out:
    return ended_in(pdu, 0x18) if attention(pdu) and talk.cdb(pdu)[0] == 0x8A else pdu


# Ranges


passes(
    "same-none-past-good | SBC-3 WRITE SAME | all blocks up to the end, from past the end on, are no error",
    lambda block: not any(block[7:9] if block[0] == 0x41 else block[10:14]) and block[0] in {0x41, 0x93},
    Asc.LBA_OUT_OF_RANGE, Asc.INVALID_FIELD_IN_CDB,
    kind="full",
)  # fmt: skip


@mutant("caw-compares-eight | SBC-3 COMPARE AND WRITE | no block after the eighth is compared", kind="full")
def compares_eight(talk: ProxyConnection, pdu: Pdu) -> Out:
    block = talk.cdb(pdu)
    return (
        good(pdu) if failed(pdu, Asc.MISCOMPARE_DURING_VERIFY) and block[0] == 0x89 and block[13] > 8 else pdu
    )


@mutant("caw-writes-eight | SBC-3 COMPARE AND WRITE | no block after the eighth is written", kind="full")
def writes_eight(talk: ProxyConnection, pdu: Pdu) -> Out:
    block = talk.cdb(pdu)
    if ends(pdu) and block[0] == 0x89 and block[13] > 8 and not pdu.status:  # type: ignore[attr-defined]
        talk.memory["cut"] = True
    if isinstance(pdu, DataIn) and block[0] == 0x88 and talk.memory.get("cut") and len(pdu.data) > 4096:
        return replace(pdu, data=pdu.data[:4096] + bytes(len(pdu.data) - 4096))
    return pdu


@mutant(
    "lba-status-of-write-16-alone | SBC-3 GET LBA STATUS | blocks that other commands wrote are deallocated",
    kind="full",
)
def status_of_write_16(talk: ProxyConnection, pdu: Pdu) -> Out:
    block = talk.cdb(pdu)
    if ends(pdu) and block[0] in WRITING:
        talk.memory["writer"] = block[0]
    status = block[0] == 0x9E and block[1] & 0x1F == 0x12 and talk.memory.get("writer", 0x8A) != 0x8A
    return (
        replace(pdu, data=pdu.data[:20] + b"\1" + pdu.data[21:])
        if status and isinstance(pdu, DataIn)
        else pdu
    )


WRITING = {0x0A, 0x2A, 0xAA, 0x8A, 0x8B, 0x2E, 0xAE, 0x8E, 0x41, 0x93, 0x89}
"""Operation codes of the commands that write, but UNMAP."""


# Reservations


def counts_refused(row: str, *actions: int) -> None:
    """A mutant whose PRGENERATION counts service actions that were refused."""

    @mutant(row, kind="full")
    def reply(talk: ProxyConnection, pdu: Pdu) -> Out:
        block = talk.cdb(pdu)
        if ends(pdu) and block[0] == RESERVE_OUT and pdu.status and block[1] & 0x1F in actions:  # type: ignore[attr-defined]
            talk.shared["refused"] = talk.shared.get("refused", 0) + 1
        if not isinstance(pdu, DataIn) or block[0] != RESERVE_IN or block[1] & 0x1F > PrIn.READ_RESERVATION:
            return pdu
        number = int.from_bytes(pdu.data[:4], "big") + talk.shared.get("refused", 0)
        return replace(pdu, data=number.to_bytes(4, "big") + pdu.data[4:])


counts_refused("generation-refused | SPC-4 PRGENERATION | a refused REGISTER, RESERVE, RELEASE or CLEAR is counted",
               PrOut.REGISTER, PrOut.RESERVE, PrOut.RELEASE, PrOut.CLEAR)  # fmt: skip
counts_refused(
    "generation-refused-preempt | SPC-4 PRGENERATION | a refused PREEMPT is counted", PrOut.PREEMPT
)


@on_request(
    "abort-self-type | SPC-4 PREEMPT AND ABORT | a holder that preempts and aborts itself keeps the type",
    kind="full",
)
def abort_self(talk: ProxyConnection, pdu: Pdu) -> Out:
    mine = isinstance(pdu, ScsiCommand) and pdu.cdb[:2] == bytes((RESERVE_OUT, PrOut.PREEMPT_AND_ABORT))
    if not mine:
        return pdu
    assert isinstance(pdu, ScsiCommand)
    return replace(pdu, cdb=pdu.cdb[:2] + bytes((PrType.WRITE_EXCLUSIVE,)) + pdu.cdb[3:])


enforces("reservation-buffers", "READ BUFFER, WRITE BUFFER and RECEIVE DIAGNOSTIC RESULTS pass a reservation",
         {0x3B, 0x3C, 0x1C}, conflict=False, kind="full")  # fmt: skip


@mutant("move-keeps-key | SPC-4 REGISTER AND MOVE | a nexus that is registered keeps its key", kind="full")
def move_keeps_key(talk: ProxyConnection, pdu: Pdu) -> Out:
    block = talk.cdb(pdu)
    if ends(pdu) and block[:2] == bytes((RESERVE_OUT, PrOut.REGISTER_AND_MOVE)):
        talk.shared["moved"] = True
    if not talk.shared.get("moved") or not isinstance(pdu, DataIn) or block[0] != RESERVE_IN:
        return pdu
    return replace(pdu, data=pdu.data.replace(KEY_B.to_bytes(8, "big"), (KEY_B ^ 0xFF).to_bytes(8, "big")))


# Mode pages


def current_for_default(row: str, opcodes: set[int], pages: tuple[int, ...]) -> None:
    """A mutant that returns current values where default ones were asked for."""

    @on_request(row, kind="full")
    def request(talk: ProxyConnection, pdu: Pdu) -> Out:
        asked = isinstance(pdu, ScsiCommand) and pdu.cdb[0] in opcodes and pdu.cdb[2] >> 6 == 2
        if not asked or not isinstance(pdu, ScsiCommand) or (pages and pdu.cdb[2] & 0x3F not in pages):
            return pdu
        return replace(pdu, cdb=pdu.cdb[:2] + bytes((pdu.cdb[2] & 0x3F,)) + pdu.cdb[3:])


current_for_default(
    "mode-all-current | SPC-4 MODE SENSE, PC | the default values of all pages are the current ones",
    {0x1A, 0x5A},
    (0x3F,),
)
current_for_default(
    "mode-10-current | SPC-4 MODE SENSE, PC | the default values of MODE SENSE(10) are the current ones",
    {0x5A},
    (),
)


@on_request(
    "mode-saved-current | SPC-4 MODE SENSE, saved values | MODE SENSE(10) returns current values as saved ones",
    kind="full",
)
def saved_current(talk: ProxyConnection, pdu: Pdu) -> Out:
    if not isinstance(pdu, ScsiCommand) or pdu.cdb[0] != 0x5A or pdu.cdb[2] >> 6 != 3:
        return pdu
    return replace(pdu, cdb=pdu.cdb[:2] + bytes((pdu.cdb[2] & 0x3F,)) + pdu.cdb[3:])


@mutant(
    "full-status-old-key | SPC-4 READ FULL STATUS | a nexus has the key of before its last REGISTER",
    kind="full",
)
def full_status_old_key(talk: ProxyConnection, pdu: Pdu) -> Out:
    block = talk.cdb(pdu)
    if not isinstance(pdu, DataIn) or block[0] != RESERVE_IN or block[1] & 0x1F != PrIn.READ_FULL_STATUS:
        return pdu
    return replace(pdu, data=pdu.data.replace((KEY_B ^ 0xFF).to_bytes(8, "big"), KEY_B.to_bytes(8, "big")))


# What counts


def forgets_generation(row: str, kind: type[Pdu]) -> None:
    """A mutant whose PRGENERATION is zero after a response of this kind to the second nexus of a case."""

    @mutant(row, kind="full")
    def reply(talk: ProxyConnection, pdu: Pdu) -> Out:
        if isinstance(pdu, kind) and talk.name.endswith("-b"):
            talk.shared["zero"] = True
        if not talk.shared.get("zero") or not isinstance(pdu, DataIn) or talk.cdb(pdu)[0] != RESERVE_IN:
            return pdu
        return replace(pdu, data=bytes(4) + pdu.data[4:])


forgets_generation(
    "generation-after-reset | SPC-4 PRGENERATION | a logical unit reset sets it to zero", TaskResponse
)
forgets_generation(
    "generation-after-logout | SPC-4 PRGENERATION | a logout of a registrant sets it to zero", LogoutResponse
)


@on_request(
    "verify-one-block-short | SBC-3 VERIFY | BYTCHK of 11b of VERIFY(10) and VERIFY(12) compares one block",
    kind="full",
)
def verify_one_short(talk: ProxyConnection, pdu: Pdu) -> Out:
    if not isinstance(pdu, ScsiCommand) or pdu.cdb[0] not in {0x2F, 0xAF} or pdu.cdb[1] & 6 != 6:
        return pdu
    one = (
        pdu.cdb[:7] + b"\0\1" + pdu.cdb[9:]
        if pdu.cdb[0] == 0x2F
        else pdu.cdb[:6] + b"\0\0\0\1" + pdu.cdb[10:]
    )
    return replace(pdu, cdb=one)


ALL_HOLD = {PrType.WRITE_EXCLUSIVE_ALL_REGISTRANTS, PrType.EXCLUSIVE_ACCESS_ALL_REGISTRANTS}


@on_request(
    "all-registrants-release-ignored | SPC-4 RELEASE | of all registrants the one that reserved alone releases",
    kind="full",
)
def release_ignored(talk: ProxyConnection, pdu: Pdu) -> Out:
    if not isinstance(pdu, ScsiCommand) or pdu.cdb[:2] != bytes((RESERVE_OUT, PrOut.RELEASE)):
        return pdu
    other = pdu.cdb[2] in ALL_HOLD and talk.name.endswith("-b")
    return replace(pdu, cdb=bytes((RESERVE_OUT, PrOut.RESERVE)) + pdu.cdb[2:]) if other else pdu


enforces("all-registrants-reserve-again", "RESERVE of another registrant is a conflict if all registrants hold", {RESERVE_OUT},
         conflict=True, host_suffix="-b", actions={PrOut.RESERVE}, kind="full")  # fmt: skip


# RESERVE(6)


def again(talk: ProxyConnection) -> bool:
    """Whether the connection is of another session of the initiator that has the reservation."""
    return talk.name.endswith("-a") and talk.login is not None and talk.login.isid != talk.shared.get("isid")


@mutant("reserve6-by-name | SPC-2 RESERVE(6) | another session of the initiator may write", kind="full")
def reserve6_by_name(talk: ProxyConnection, pdu: Pdu) -> Out:
    block = talk.cdb(pdu)
    if ends(pdu) and block[0] == 0x16 and talk.login is not None:
        talk.shared["isid"] = talk.login.isid
    written = ends(pdu) and block[0] == 0x8A and pdu.status == 0x18  # type: ignore[attr-defined]
    return good(pdu) if written and again(talk) else pdu


@mutant(
    "release6-by-name | SPC-2 RELEASE(6) | another session of the initiator ends the reservation", kind="full"
)
def release6_by_name(talk: ProxyConnection, pdu: Pdu) -> Out:
    block = talk.cdb(pdu)
    if ends(pdu) and block[0] == 0x16 and talk.login is not None:
        talk.shared["isid"] = talk.login.isid
    if ends(pdu) and block[0] == 0x17 and again(talk):
        talk.shared["released"] = True
    conflict = ends(pdu) and talk.shared.get("released") and pdu.status == 0x18  # type: ignore[attr-defined]
    return good(pdu) if conflict and talk.name.endswith("-b") else pdu


# DPO and FUA


@mutant("flagged-read-zero | SBC-3 READ, DPO and FUA | a READ with DPO or FUA returns zeroes", kind="full")
def flagged_read(talk: ProxyConnection, pdu: Pdu) -> Out:
    block = talk.cdb(pdu)
    flagged = isinstance(pdu, DataIn) and block[0] in {0x28, 0xA8, 0x88} and block[1] & 0x18
    return replace(pdu, data=bytes(len(pdu.data))) if flagged else pdu  # type: ignore[call-arg,attr-defined]


@on_request(
    "flagged-write-elsewhere | SBC-3 WRITE, DPO and FUA | a command with DPO or FUA writes the next block",
    kind="full",
)
def flagged_write(talk: ProxyConnection, pdu: Pdu) -> Out:
    if (
        not isinstance(pdu, ScsiCommand)
        or pdu.cdb[0] not in WRITING - {0x0A, 0x41, 0x93}
        or not pdu.cdb[1] & 0x18
    ):
        return pdu
    at = 9 if pdu.cdb[0] in {0x8A, 0x8B, 0x8E, 0x89} else 5
    return replace(pdu, cdb=pdu.cdb[:at] + bytes((pdu.cdb[at] ^ 1,)) + pdu.cdb[at + 1 :])


@on_request(
    "ndob-none-one | SBC-3 WRITE SAME(16), NDOB | without a number of blocks one block is written",
    kind="full",
)
def ndob_none(talk: ProxyConnection, pdu: Pdu) -> Out:
    if not isinstance(pdu, ScsiCommand) or pdu.cdb[0] != 0x93 or not pdu.cdb[1] & 1 or any(pdu.cdb[10:14]):
        return pdu
    return replace(pdu, cdb=pdu.cdb[:10] + b"\0\0\0\1" + pdu.cdb[14:])
