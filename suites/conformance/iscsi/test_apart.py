"""What is kept apart: tasks of one tag in two sessions, the sessions of an initiator, units that are absent.

A task is identified by its session and its tag (RFC 7143 11.2.1.8): two sessions may use one tag at a time.
"""

from __future__ import annotations

import pytest

from storagetest.wire.iscsi.codes import TaskFunction, TaskResult
from storagetest.wire.iscsi.initiator import Initiator
from storagetest.wire.iscsi.pdu import ReadyToTransfer, ScsiCommand
from storagetest.wire.scsi import cdb as c
from storagetest.wire.scsi.cdb import cdb
from storagetest.wire.scsi.codes import Asc, ScsiStatus, SenseKey
from storagetest.wire.scsi.logical_unit import LogicalUnit
from storagetest.wire.scsi.sense import decode_sense
from storagetest.wire.tcp import ResponseTimeout

from .absent_unit import absent_lun

pytestmark = [
    pytest.mark.needs("iscsi-wire"),
    pytest.mark.case(section="RFC 7143 11.2.1.8", level="MUST"),
]

TAG = 0x0A0B0C0D
"""A task tag that no request has otherwise (chosen)."""
BLOCKS = 4
"""Blocks of a write (chosen)."""
"""The number of a logical unit that no target is taken to have (chosen, as in test_pdu.py)."""
OFFER = {"ImmediateData": "No", "InitialR2T": "Yes"}

Waiting = tuple[Initiator, ScsiCommand, ReadyToTransfer]


def waiting_write(session: Initiator, lba: int, length: int) -> Waiting:
    """Start a write with the tag TAG; return it with its R2T. Skip if no R2T for all of it comes."""
    command = session.start(cdb(c.WRITE_16, lba=lba, blocks=BLOCKS), write=length, itt=TAG)
    try:
        asked = session.receive()
    except ResponseTimeout:
        pytest.skip("the target asks for the data of one write at a time")
    if not isinstance(asked, ReadyToTransfer) or asked.desired_length != length:
        pytest.skip(f"no R2T for the {length} bytes of a write: {asked.summary() if asked else 'a close'}")
    return session, command, asked


def finish(write: Waiting, data: bytes) -> None:
    """Send the data of a write, and claim that it is GOOD."""
    session, command, asked = write
    session.send_data(command, data, start=0, end=len(data), ttt=asked.ttt)
    done = session.finish(command, data)
    assert done.status == ScsiStatus.GOOD, f"status {done.status:#04x}, of a write within the unit"


# One tag in two sessions


@pytest.mark.parametrize("letters", [
    pytest.param("ab", marks=pytest.mark.case("ISC-APART-WRITES")),
    pytest.param("aa", marks=pytest.mark.case("ISC-APART-WRITES-ISID")),
])  # fmt: skip
@pytest.mark.case(kills=("same-tag-data-lost",), builds_on=("ISC-R2T-01",))
def test_writes_of_one_tag_in_two_sessions_each_get_their_own_data(connections, scratch, letters):
    """The sessions of two initiators, or of one; the data of the later write come first."""
    sessions = [connections.login(letter, offer=OFFER) for letter in letters]
    data = scratch.pattern(2 * BLOCKS, seed=961)
    size = len(data) // 2
    parts = [data[:size], data[size:]]
    writes = [
        waiting_write(session, scratch.lba + number * BLOCKS, size) for number, session in enumerate(sessions)
    ]
    for write, part in reversed(list(zip(writes, parts, strict=True))):
        finish(write, part)
    found = scratch.read_back(connections.login("z"), 2 * BLOCKS)
    assert found[:size] == parts[0], (
        "the first of two writes with one tag, each in its session, has other data"
    )
    assert found[size:] == parts[1], (
        "the second of two writes with one tag, each in its session, has other data"
    )


@pytest.mark.parametrize("letters", [
    pytest.param("ab", marks=pytest.mark.case("ISC-APART-ABORT")),
    pytest.param("aa", marks=pytest.mark.case("ISC-APART-ABORT-ISID")),
])  # fmt: skip
@pytest.mark.case(
    section="RFC 7143 11.5.1, 11.2.1.8", kills=("abort-of-any-session",), builds_on=("ISC-R2T-01",)
)
def test_abort_task_ends_no_task_of_another_session(connections, scratch, letters):
    """The session that sends it has no task of the tag that it names."""
    first, second = (connections.login(letter, offer=OFFER) for letter in letters)
    data = scratch.pattern(BLOCKS, seed=962)
    write = waiting_write(first, scratch.lba, len(data))
    try:
        answer = second.task(TaskFunction.ABORT_TASK, referenced_itt=TAG, ref_cmd_sn=write[1].cmd_sn)
    except ResponseTimeout:
        pytest.skip("the target serves one session at a time")
    session, command, asked = write
    session.send_data(command, data, start=0, end=len(data), ttt=asked.ttt)
    try:
        done = session.finish(command, data)
    except ResponseTimeout:
        raise AssertionError(
            f"a write has no response after ABORT TASK of its tag in another session, which ended in "
            f"{TaskResult(answer.response).name}"
        ) from None
    assert done.status == ScsiStatus.GOOD, f"status {done.status:#04x} of a write that was not aborted"
    assert scratch.read_back(session, BLOCKS) == data, "the write is GOOD, and other data are read"


@pytest.mark.parametrize("letter", [
    pytest.param("a", marks=pytest.mark.case("ISC-APART-LOGOUT-ISID", kills=("logout-of-initiator",))),
    pytest.param("b", marks=pytest.mark.case("ISC-APART-LOGOUT", kills=("logout-of-every-session",))),
])  # fmt: skip
@pytest.mark.case(section="RFC 7143 11.14.1", builds_on=("ISC-LOGOUT-01", "ISC-R2T-01"))
def test_a_logout_ends_its_own_session_alone(connections, scratch, letter):
    """A write of another session of the initiator, or of another one, waits for its data meanwhile."""
    first, second = connections.login(offer=OFFER), connections.login(letter, offer=OFFER)
    data = scratch.pattern(BLOCKS, seed=963)
    write = waiting_write(first, scratch.lba, len(data))
    second.logout()
    finish(write, data)
    assert scratch.read_back(first, BLOCKS) == data, "the write is GOOD, and other data are read"


# Keys of two sessions


@pytest.mark.parametrize("letters", [
    pytest.param("ab", marks=pytest.mark.case("ISC-APART-BURST")),
    pytest.param("aa", marks=pytest.mark.case("ISC-APART-BURST-ISID")),
])  # fmt: skip
@pytest.mark.case(section="RFC 7143 13.13", kills=("burst-of-first-session",), builds_on=("ISC-R2T-01",))
def test_each_of_two_sessions_has_its_own_burst_length(connections, scratch, letters):
    """MaxBurstLength of one is a quarter of that of the other; each writes after the other's login."""
    size = BLOCKS * scratch.block_size
    for most in ((size, size // 4), (size // 4, size)):
        sessions = [
            connections.login(letter, offer=OFFER | {"MaxBurstLength": str(burst), "FirstBurstLength": "512"})
            for letter, burst in zip(letters, most, strict=True)
        ]
        for number, session in enumerate(sessions):
            data, limit = scratch.pattern(BLOCKS, seed=965 + number), session.parameters.max_burst
            done = session.command(cdb(c.WRITE_16, lba=scratch.lba, blocks=BLOCKS), data=data)
            assert done.status == ScsiStatus.GOOD, f"status {done.status:#04x}, of a write within the unit"
            asked = [pdu.desired_length for pdu in done.r2ts]
            assert max(asked, default=0) <= limit, (
                f"R2Ts for {asked} bytes in a session with MaxBurstLength={limit}; another one has "
                f"{sessions[1 - number].parameters.max_burst}"
            )
            assert scratch.read_back(session, BLOCKS) == data, "what was written is not read back"
        for session in sessions:
            session.logout()


# A logical unit that is absent


@pytest.mark.parametrize("name", [
    pytest.param(name, marks=pytest.mark.case(f"ISC-ABSENT-{name}", kills=("absent-unit-executes",)))
    for name in ("READ-10", "READ-16", "WRITE-10", "WRITE-16", "CAPACITY", "MODE", "SYNC")
])  # fmt: skip
@pytest.mark.case(section="SAM-5 4.7", builds_on=("ISC-PDU-21",))
def test_no_command_to_an_absent_logical_unit_is_executed(connections, scratch, name):
    """It ends in LOGICAL UNIT NOT SUPPORTED, returns no data, and writes none."""
    session = connections.prepared(scratch, 1)
    lba, size = scratch.lba, scratch.block_size
    block, read, data = {
        "READ-10": (cdb(c.READ_10, lba=lba, blocks=1), size, b""),
        "READ-16": (cdb(c.READ_16, lba=lba, blocks=1), size, b""),
        "WRITE-10": (cdb(c.WRITE_10, lba=lba, blocks=1), 0, scratch.pattern(1, seed=964)),
        "WRITE-16": (cdb(c.WRITE_16, lba=lba, blocks=1), 0, scratch.pattern(1, seed=964)),
        "CAPACITY": (cdb(c.READ_CAPACITY_16, allocation=32), 32, b""),
        "MODE": (cdb(c.MODE_SENSE_6, page=0x3F, allocation=255), 255, b""),
        "SYNC": (cdb(c.SYNCHRONIZE_CACHE_10, lba=lba, blocks=1), 0, b""),
    }[name]
    lun = absent_lun(session, harmless=not data)
    done = session.command(block, read=read, data=data, lun=lun)
    answer = LogicalUnit.result(done, f"{c.describe(block)}, to LUN {lun:016x}")
    assert answer.check(SenseKey.ILLEGAL_REQUEST, Asc.LOGICAL_UNIT_NOT_SUPPORTED), answer
    assert answer.data == b"", f"{answer}, with {len(answer.data)} bytes"
    assert scratch.read_back(session, 1) == scratch.pattern(1), (
        f"{answer}, and LUN {session.lun:#x} has changed"
    )


@pytest.mark.case("ISC-ABSENT-SENSE", section="SPC-4 REQUEST SENSE", kills=("absent-unit-no-sense",))
def test_request_sense_of_an_absent_logical_unit_states_that_it_is_absent(session):
    """Its data state it; a target that ends the command in CHECK CONDITION states it there."""
    block = cdb(c.REQUEST_SENSE, allocation=252)
    lun = absent_lun(session)
    done = session.command(block, read=252, lun=lun)
    answer = LogicalUnit.result(done, f"REQUEST SENSE, to LUN {lun:016x}")
    assert answer.sense or answer.data, f"{answer}, without data"
    sense = answer.sense or decode_sense(answer.data)
    assert (sense.key, sense.asc) == (SenseKey.ILLEGAL_REQUEST, Asc.LOGICAL_UNIT_NOT_SUPPORTED), (
        f"{answer}: {sense}; the logical unit is not there"
    )
