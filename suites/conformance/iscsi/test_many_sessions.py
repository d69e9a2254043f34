"""Many sessions at a time, ISIDs of each type, and a target transfer tag that was not given in discovery.

Each session has its own numbers, its own data and its own tasks, however many there are (RFC 7143 4.4.3).
"""

from __future__ import annotations

import pytest

from storagetest.wire.iscsi.errors import LoginRefused
from storagetest.wire.iscsi.keys import parse_text
from storagetest.wire.iscsi.pdu import TextRequest, TextResponse
from storagetest.wire.scsi import cdb as c
from storagetest.wire.scsi.codes import ScsiStatus, SenseKey
from storagetest.wire.scsi.logical_unit import LogicalUnit
from storagetest.wire.tcp import PeerClosed, ResponseTimeout

from .optional_commands import offered
from .test_reinstatement import works
from .test_reservation_losses import answered
from .test_task import send_asked

pytestmark = [pytest.mark.needs("iscsi-wire"), pytest.mark.case(section="RFC 7143 4.4.3", level="MUST")]

MANY = 40
"""Sessions at a time (chosen: over 16 and 32)."""
NAMES = "abcdefgh"
"""Initiators, each of which has MANY / 8 sessions."""
TYPES = {name: bytes((t << 6, 0x23, 0x31, 1, 2, 3)) for t, name in enumerate(("OUI", "EN", "RANDOM"))}
"""An ISID of each format (11.12.5); they differ in the two bits of T alone."""


@pytest.mark.case(
    "ISC-MANY-SESSIONS",
    section="RFC 7143 4.4.3, 11.12.6",
    kills=("seventeenth-session-deaf", "later-session-reads-other"),
    builds_on=("ISC-LOGIN-26", "SCS-RW-01"),
)
def test_each_of_many_sessions_has_its_own_data_and_responses(connections, scratch, observe):
    """Each writes a block of its own, reads it when all have written, and pings. A target may take fewer."""
    scratch.require(1)
    sessions = []
    for number in range(MANY):
        try:
            sessions.append(connections.login(NAMES[number % len(NAMES)]))
        except (LoginRefused, PeerClosed) as refusal:
            observe(f"login {number + 1} of {MANY}: {refusal}")
            break
    observe(f"{len(sessions)} sessions")
    units = [LogicalUnit(session, block_size=scratch.block_size) for session in sessions]
    for number, unit in enumerate(units):
        answer = unit.write(scratch.lba + number, scratch.pattern(1, seed=1000 + number))
        assert answer.good, f"session {number + 1} of {len(units)}: {answer}"
    for number, unit in enumerate(units):
        found = unit.read(scratch.lba + number)
        assert found.good, f"session {number + 1} of {len(units)}: {found}"
        assert found.data == scratch.pattern(1, seed=1000 + number), (
            f"session {number + 1} of {len(units)} reads other data than it wrote"
        )
    for number, session in enumerate(sessions):
        echo = session.ping(b"%04d" % number).data
        assert echo == b"%04d" % number, (
            f"session {number + 1} of {len(units)}: {echo!r} is the ping of another"
        )


@pytest.mark.case(
    "ISC-ISID-TYPES",
    section="RFC 7143 11.12.5",
    kills=("isid-type-ignored",),
    builds_on=("ISC-LOGIN-26",),
)
def test_isids_of_each_type_are_those_of_different_sessions(connections):
    """An OUI, an enterprise number and a random number with the same other bits: T is part of the ISID."""
    sessions = {name: connections.login("a", isid=isid) for name, isid in TYPES.items()}
    for name, session in sessions.items():
        assert session.isid == TYPES[name], (
            f"ISID {session.isid.hex()} in the response to {TYPES[name].hex()}"
        )
        works(session, f"the session with an ISID of type {name}, alongside those of the other types")


@pytest.mark.case(
    "ISC-DISC-TAG",
    section="RFC 7143 11.10.4, 11.11.4",
    level="SHOULD",
    kills=("discovery-tag-ignored",),
    builds_on=("ISC-DISC-01",),
)
def test_text_with_a_tag_that_was_not_given_is_refused_in_discovery(discovery, observe):
    """A target transfer tag continues a text: none is open, before the list of targets and after it."""
    for ttt in (0x1234, 0, 1):
        discovery.send(TextRequest(ttt=ttt, data=b"SendTargets=All\0"))
        after = discovery.probe_alive()
        observe(str(after))
        for pdu in after.pdus:
            if isinstance(pdu, TextResponse):
                assert not pdu.data, (
                    f"{parse_text(pdu.data)[:2]} for a tag of {ttt:#x}, which the target has not given"
                )
        if after.closed:
            return
        discovery.text(("SendTargets", "All"))


@pytest.mark.case(
    "SCS-CAW-RACE",
    section="SBC-3 COMPARE AND WRITE",
    kills=("caw-lost-update",),
    builds_on=("SCS-CAW-01", "SCS-CAW-02"),
)
def test_one_of_two_compare_and_writes_of_the_same_data_succeeds(two, facts, scratch):
    """Two nexuses send it at the same time; 40 times. The other one is a miscompare, and writes nothing."""
    if not facts.limits or not facts.limits.max_compare_and_write:
        pytest.skip("COMPARE AND WRITE is not announced (page B0h)")
    held = scratch.pattern(1, seed=1100)
    assert two[0].write(scratch.lba, held).good
    block = c.cdb(c.COMPARE_AND_WRITE, lba=scratch.lba, blocks=1)
    for turn in range(40):
        news = [scratch.pattern(1, seed=1101 + 2 * turn + at) for at in range(2)]
        runs = []
        for unit, new in zip(two, news, strict=True):
            session = unit.runner
            data = held + new
            parameters = session.parameters
            size = min(len(data), parameters.first_burst, parameters.max_send) * parameters.immediate_data
            runs.append((session, session.start(block, write=len(data), data=data[:size]), data))
        answers = [
            LogicalUnit.result(session.finish(command, data), f"COMPARE AND WRITE {turn + 1}")
            for session, command, data in runs
        ]
        good = [at for at, answer in enumerate(answers) if answer.good]
        refused = [answer for answer in answers if answer.check(SenseKey.MISCOMPARE)]
        if len(good) + len(refused) < 2:
            pytest.skip(f"not executed: {answers}")
        assert len(good) == 1, f"{len(good)} of two COMPARE AND WRITE of the same data are GOOD: {answers}"
        found = two[0].read(scratch.lba)
        assert found.data == news[good[0]], f"{answers}: the block has other data than the one that was GOOD"
        held = found.data


def overtaken(connections, scratch, command, first, second):
    """Send a command of two nexuses: the data of the first come when the second has ended, which is GOOD.

    Return the result of the first. A target may serve them one after the other; then nothing is judged.
    """
    block = c.cdb(command, lba=scratch.lba, blocks=1)
    waiting, other = (
        LogicalUnit(connections.login(letter, offer={"ImmediateData": "No", "InitialR2T": "Yes"}))
        for letter in "cd"
    )
    early, r2t = waiting.runner.start_write(block, len(first))
    try:
        late, asked = other.runner.start_write(block, len(second))
    except ResponseTimeout:
        waiting.runner.validator.forget(early.itt)
        pytest.skip("no data of the second command are asked for while the first waits for its own")
    send_asked(other.runner, late, second, asked)
    ended = answered(other, late)
    if ended is None:
        waiting.runner.validator.forget(early.itt)
        pytest.skip("the second command waits for the data of the first")
    assert ended.status == ScsiStatus.GOOD, f"{c.describe(block)} of the second nexus: {ended.summary()}"
    send_asked(waiting.runner, early, first, r2t)
    return LogicalUnit.result(waiting.runner.finish(early, first), f"{c.describe(block)}, of the first nexus")


@pytest.mark.case(
    "SCS-CAW-OVERTAKEN",
    section="SBC-3 COMPARE AND WRITE",
    kills=("caw-lost-update",),
    builds_on=("SCS-CAW-01", "SCS-CAW-02"),
)
def test_compare_and_write_compares_with_what_is_there_when_its_data_come(unit, connections, facts, scratch):
    """Comparison and write are one action: another nexus has written in between, so it is a miscompare."""
    if not facts.limits or not facts.limits.max_compare_and_write:
        pytest.skip("COMPARE AND WRITE is not announced (page B0h)")
    old, one, two = (scratch.pattern(1, seed=1300 + seed) for seed in range(3))
    assert unit.write(scratch.lba, old).good
    assert offered(unit.compare_and_write(scratch.lba, old, old)).good
    answer = overtaken(connections, scratch, c.COMPARE_AND_WRITE, old + one, old + two)
    held = unit.read(scratch.lba).good_data()
    assert answer.check(SenseKey.MISCOMPARE), f"{answer}; the block was another one when its data came"
    assert held == two, f"{answer}: the block has other data than the one that was GOOD"


@pytest.mark.case(
    "SCS-ORWRITE-OVERTAKEN",
    section="SBC-3 ORWRITE",
    kills=("orwrite-lost-update",),
    builds_on=("SCS-ORWRITE-01",),
)
def test_orwrites_of_two_nexuses_set_the_bits_of_both(unit, connections, scratch):
    """Read, OR and write are one action: what another nexus has set in between stays set."""
    old = bytes(scratch.block_size)
    one, two = (bytes((mask,)) * scratch.block_size for mask in (0x0F, 0x90))
    assert unit.write(scratch.lba, old).good
    offered(unit.write(scratch.lba, old, command=c.ORWRITE_16))
    answer = overtaken(connections, scratch, c.ORWRITE_16, one, two)
    held = unit.read(scratch.lba).good_data()
    assert answer.good, answer
    assert held == b"\x9f" * scratch.block_size, (
        f"{answer}: of the bits 0Fh and 90h that two nexuses have set the block has {held[0]:02X}h"
    )
