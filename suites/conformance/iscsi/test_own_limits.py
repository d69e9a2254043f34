"""Each session has what its own login agreed on: alongside another one, or in the place of another one.

RFC 7143 6.2 (what a negotiation is in force for), 6.3.5 (session reinstatement), 13 (the keys).
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from storagetest.errors import RemoteProtocolError
from storagetest.suites.conformance.iscsi.scratch import Scratch
from storagetest.wire.iscsi.initiator import Initiator
from storagetest.wire.iscsi.pdu import ReadyToTransfer, ScsiResponse
from storagetest.wire.scsi import cdb as c
from storagetest.wire.scsi.cdb import cdb
from storagetest.wire.scsi.codes import ScsiStatus

pytestmark = [pytest.mark.needs("iscsi-wire"), pytest.mark.case(section="RFC 7143 6.2", level="MUST")]

BLOCKS = 4
"""Blocks of a transfer (chosen)."""
Claim = Callable[[Initiator, Scratch, int, str], None]


def write_of(scratch: Scratch) -> bytes:
    return cdb(c.WRITE_16, lba=scratch.lba, blocks=BLOCKS)


def keeps_segment(session: Initiator, scratch: Scratch, seed: int, where: str) -> None:
    """Data-In and ping data are no longer than the MaxRecvDataSegmentLength of this login."""
    most = session.parameters.max_recv
    writes(session, scratch, seed, where)
    done = session.command(cdb(c.READ_16, lba=scratch.lba, blocks=BLOCKS), read=BLOCKS * scratch.block_size)
    longest = max(len(pdu.data) for pdu in done.data_ins)
    assert longest <= most, (
        f"a Data-In of {longest} bytes in {where}, whose MaxRecvDataSegmentLength is {most}"
    )


def writes(session: Initiator, scratch: Scratch, seed: int, where: str) -> None:
    """A write with unsolicited data as agreed is GOOD, is read back, and R2Ts keep to MaxBurstLength."""
    data = scratch.pattern(BLOCKS, seed=seed)
    try:
        done = session.command(write_of(scratch), data=data)
        found = scratch.read_back(session, BLOCKS)
    except RemoteProtocolError as error:
        raise AssertionError(f"a write and a read in {where}: {error}") from error
    assert done.status == ScsiStatus.GOOD, f"a write in {where} ends in status {done.status:#04x}"
    asked = [(pdu.buffer_offset, pdu.desired_length) for pdu in done.r2ts]
    most = session.parameters.max_burst
    assert all(length <= most for _, length in asked), (
        f"R2Ts (offset, bytes) {asked} in {where}, whose MaxBurstLength is {most}"
    )
    assert found == data, f"other data than written are read in {where}: R2Ts (offset, bytes) {asked}"


def first_burst(session: Initiator, scratch: Scratch, seed: int, where: str) -> None:
    """R2Ts begin where the unsolicited data of this login's FirstBurstLength end."""
    if session.parameters.initial_r2t:
        pytest.skip("InitialR2T=Yes: no data are unsolicited")
    writes(session, scratch, seed, where)


def outstanding(session: Initiator, scratch: Scratch, seed: int, where: str) -> None:
    """No more R2Ts are outstanding than the MaxOutstandingR2T of this login."""
    data = scratch.pattern(BLOCKS, seed=seed)
    command = session.start(write_of(scratch), write=len(data))
    came = session.probe_alive().pdus
    asked = [pdu for pdu in came if isinstance(pdu, ReadyToTransfer)]
    most = session.parameters.max_outstanding_r2t
    assert len(asked) <= most, (
        f"{len(asked)} R2Ts are outstanding in {where}, whose MaxOutstandingR2T is {most}"
    )
    if any(isinstance(pdu, ScsiResponse) for pdu in came):
        return
    for pdu in asked:
        end = pdu.buffer_offset + pdu.desired_length
        session.send_data(command, data, start=pdu.buffer_offset, end=end, ttt=pdu.ttt)
    done = session.finish(command, data)
    assert done.status == ScsiStatus.GOOD, f"a write in {where} ends in status {done.status:#04x}"


def digests(session: Initiator, scratch: Scratch, seed: int, where: str) -> None:
    """PDUs of both directions have the digests that this login agreed on, and no others."""
    try:
        answer = session.ping(b"digests?")
    except RemoteProtocolError as error:
        raise AssertionError(f"a ping in {where}: {error}") from error
    assert answer.data == b"digests?", f"a ping in {where} is answered with {answer.data!r}"
    writes(session, scratch, seed, where)


SOLICITED = {"ImmediateData": "No", "InitialR2T": "Yes"}
SMALL = {"MaxBurstLength": "512", "FirstBurstLength": "512"}
KEYS: dict[str, tuple[Claim, str, dict[str, str], dict[str, str]]] = {
    "SEGMENT": (
        keeps_segment, "segment",
        {"MaxRecvDataSegmentLength": "4096"}, {"MaxRecvDataSegmentLength": "512"},
    ),
    "BURST": (
        writes, "burst",
        SOLICITED | {"MaxBurstLength": "2048", "FirstBurstLength": "512"}, SOLICITED | SMALL,
    ),
    "FIRST": (
        first_burst, "first-burst",
        {"ImmediateData": "No", "InitialR2T": "No", "MaxBurstLength": "2048", "FirstBurstLength": "1536"},
        {"ImmediateData": "No", "InitialR2T": "No", "MaxBurstLength": "2048", "FirstBurstLength": "512"},
    ),
    "OUTSTANDING": (
        outstanding, "outstanding",
        SOLICITED | SMALL | {"MaxOutstandingR2T": "3"}, SOLICITED | SMALL | {"MaxOutstandingR2T": "1"},
    ),
    "DIGEST": (
        digests, "digest",
        {"HeaderDigest": "CRC32C", "DataDigest": "CRC32C"}, {"HeaderDigest": "None", "DataDigest": "None"},
    ),
}  # fmt: skip
"""What is claimed of each session, the name of its mutants, and the offers of two logins."""


def has_digests(name: str, session: Initiator) -> None:
    """Skip if the first login of DIGEST has agreed on none."""
    if name == "DIGEST" and not (session.parameters.header_digest and session.parameters.data_digest):
        pytest.skip(f"the target takes no CRC32C: {session.negotiated}")


@pytest.mark.parametrize(("name", "letters"), [
    pytest.param(name, letters, marks=pytest.mark.case(
        f"ISC-OWN-{name}{more}", kills=(f"{KEYS[name][1]}-of-first-login",)))
    for name in KEYS if name != "BURST" for letters, more in (("ab", ""), ("aa", "-ISID"))
])  # fmt: skip
@pytest.mark.case(section="RFC 7143 6.2, 13", builds_on=("ISC-R2T-01",))
def test_each_of_two_sessions_has_what_its_own_login_agreed_on(connections, scratch, name, letters):
    """The sessions of two initiators, or of one, that are open together, in both orders of their logins."""
    claim, _, wide, narrow = KEYS[name]
    for number, offers in enumerate(((wide, narrow), (narrow, wide))):
        sessions = []
        for letter, offer in zip(letters, offers, strict=True):
            sessions.append(connections.login(letter, offer=offer))
            if offer is wide:
                has_digests(name, sessions[-1])
        for turn, at in enumerate((1, 0, 1)):
            where = f"session {at + 1} of two that are open, the {'second' if at else 'first'} to log in"
            claim(sessions[at], scratch, 1320 + 3 * number + turn, where)
        for session in sessions:
            session.logout()


@pytest.mark.parametrize("name", [
    pytest.param(name, marks=pytest.mark.case(f"ISC-REINST-{name}", kills=(f"{KEYS[name][1]}-of-old-login",)))
    for name in KEYS
])  # fmt: skip
@pytest.mark.case(section="RFC 7143 6.3.5, 13", builds_on=("ISC-LOGIN-25", "ISC-R2T-01"))
def test_a_session_that_is_reinstated_has_what_its_own_login_agreed_on(connections, scratch, name):
    """Each login has the name and the ISID of the one before, which is used until then, and other values."""
    claim, _, wide, narrow = KEYS[name]
    session = connections.login("a", offer=wide)
    has_digests(name, session)
    claim(session, scratch, 1330, "the first session")
    for number, offer in enumerate((narrow, wide, narrow), 1):
        old, session = session, connections.login("a", offer=offer, isid=session.isid)
        old.logged_in = False
        claim(session, scratch, 1330 + number, f"the session after {number} reinstatements")
