"""Session and connection reinstatement (RFC 7143 6.3.4, 6.3.5): a login in the place of an older one."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest

from storagetest.errors import RemoteProtocolError
from storagetest.wire.iscsi.errors import LoginRefused
from storagetest.wire.iscsi.initiator import Initiator
from storagetest.wire.iscsi.pdu import ReadyToTransfer, ScsiCommand
from storagetest.wire.scsi import cdb as c
from storagetest.wire.scsi.logical_unit import LogicalUnit
from storagetest.wire.scsi.reservation_harness import RESERVING
from storagetest.wire.tcp import PeerClosed, ResponseTimeout

pytestmark = [pytest.mark.needs("iscsi-wire"), pytest.mark.case(section="RFC 7143 6.3.5", level="MUST")]

BLOCKS = 16
"""Blocks of the write that is outstanding (chosen)."""
KEY = 0x5E55
"""A reservation key (chosen)."""


def waiting_write(connections, scratch) -> tuple[Initiator, ScsiCommand, ReadyToTransfer]:
    """Return a session, a write on it that waits for its data, and the R2T. The blocks have a pattern."""
    session = connections.login("a", offer={"ImmediateData": "No", "InitialR2T": "Yes"})
    unit = LogicalUnit(session, block_size=scratch.block_size)
    answer = unit.write(scratch.lba, scratch.pattern(BLOCKS))
    assert answer.good, answer
    block = c.cdb(c.WRITE_16, lba=scratch.lba, blocks=BLOCKS)
    return session, *session.start_write(block, BLOCKS * scratch.block_size)


def send_late(session: Initiator, command: ScsiCommand, request: ReadyToTransfer, data: bytes) -> None:
    """Answer an R2T on a connection that the target has to have closed."""
    end = request.buffer_offset + request.desired_length
    with suppress(RemoteProtocolError, OSError):  # it is closed, as it has to be
        session.send_data(command, data, start=request.buffer_offset, end=end, ttt=request.ttt)


def ends(session: Initiator, why: str) -> None:
    """Claim that the target closes a connection, and answers nothing on it."""
    session.logged_in = False
    try:
        pdu = session.receive()
    except PeerClosed:
        return
    except ResponseTimeout:
        raise AssertionError(f"{why}: the old connection is open after {session.deadline:g} s") from None
    assert pdu is None, f"{why}: the old connection still answers: {pdu.summary() if pdu else ''}"


def logs_in_again(connections, isid: bytes, when: str) -> Initiator:
    """Claim that a login with an ISID that was in use before succeeds; return its session."""
    try:
        session: Initiator = connections.login("a", isid=isid)
    except (LoginRefused, PeerClosed) as error:
        raise AssertionError(f"a login with the same name and ISID {when} is refused: {error}") from error
    works(session, f"the session of a login with the same name and ISID {when}")
    return session


def works(session: Initiator, why: str) -> None:
    """Claim that a session is alive."""
    try:
        session.ping()
    except RemoteProtocolError as error:
        raise AssertionError(f"{why}: {error}") from error


@pytest.mark.case(
    "ISC-REINST-01",
    section="RFC 7143 6.3.5",
    kills=("session-not-reinstated", "login-reinstatement"),
    builds_on=("ISC-LOGIN-25",),
)
def test_the_tasks_of_a_session_that_is_reinstated_are_not_executed(connections, scratch):
    """The old session's tasks are terminated without a response: data that come for them are not written."""
    old, command, request = waiting_write(connections, scratch)
    new = connections.login("a", isid=old.isid)
    send_late(old, command, request, scratch.pattern(BLOCKS, seed=1))
    ends(old, "a login with its name and ISID succeeded")
    found = scratch.read_back(new, BLOCKS)
    assert found == scratch.pattern(BLOCKS), (
        "a write of the old session was executed after the session was reinstated"
    )


@pytest.mark.case(
    "ISC-REINST-02",
    section="RFC 7143 6.3.1, 6.3.5",
    kills=("session-not-reinstated", "session-reinstated-once"),
    builds_on=("ISC-LOGIN-25",),
)
def test_a_session_is_reinstated_each_time(connections, session):
    """Each login with the name and ISID ends the session of the one before, and only the last one works."""
    for number in range(1, 4):
        new = connections.login("a", isid=session.isid)
        ends(session, f"login {number} with its name and ISID succeeded")
        works(new, f"the session of login {number} with the same name and ISID")
        session = new


@pytest.mark.case(
    "ISC-REINST-LOGOUT",
    section="RFC 7143 6.3.1, 6.3.5, 11.12.5",
    kills=("isid-of-logout-refused",),
    builds_on=("ISC-LOGOUT-08",),
)
def test_the_isid_of_a_session_that_was_logged_out_opens_a_new_one(connections, session):
    """An initiator uses its ISIDs again (10.1.1): with TSIH 0, a login after a logout is an ordinary one."""
    for number in range(1, 4):
        session.logout()
        session = logs_in_again(connections, session.isid, f"after {number} logouts of its session")


@pytest.mark.case(
    "ISC-REINST-LOST",
    section="RFC 7143 6.3.1, 6.3.5",
    kills=("isid-of-lost-connection-refused",),
    builds_on=("ISC-LOGIN-25",),
)
def test_the_isid_of_a_session_whose_connection_was_lost_opens_a_new_one(connections, session):
    """It is a reinstatement as long as the target keeps the old session, and an ordinary login after that."""
    for number in range(1, 4):
        session.logged_in = False
        session.link.close()
        session = logs_in_again(connections, session.isid, f"after {number} connections that were lost")


@pytest.mark.case("ISC-REINST-03", section="RFC 7143 4.4.3.1, 6.3.5", kills=("isid-of-another-reinstates",))
def test_another_initiator_with_the_same_isid_reinstates_nothing(connections, session):
    """A session is identified by the initiator's name and the ISID, not by the ISID alone."""
    other = connections.login("b", isid=session.isid)
    works(session, "another initiator has logged in with the same ISID")
    works(other, "the session of the other initiator")


@pytest.mark.case(
    "ISC-REINST-ISID",
    section="RFC 7143 4.4.3.1, 11.12.5",
    kills=("isid-qualifier-ignored",),
    builds_on=("ISC-LOGIN-26",),
)
def test_an_isid_is_all_of_its_bytes(connections):
    """Sessions of one initiator whose ISIDs differ in one byte: none takes the place of another."""
    first = b"\x80\1\2\3\4\5"
    isids = [first, *(first[:at] + b"\x55" + first[at + 1 :] for at in (1, 3, 4, 5))]
    sessions = [connections.login("a", isid=isid) for isid in isids]
    for isid, session in zip(isids, sessions, strict=True):
        works(session, f"the session with ISID {isid.hex()}, alongside others of its initiator")


@pytest.mark.case("ISC-REINST-04", section="RFC 7143 6.3.5", kills=("failed-login-reinstates",))
def test_a_login_that_fails_reinstates_nothing(connections, session, portal):
    """A login to an unknown target is refused, and ends no session of another target with its ISID."""
    refusal = connections.refused("a", isid=session.isid, target=f"{portal.iqn}.absent")
    works(session, f"a login with its name and ISID was refused ({refusal})")


WRONG: dict[str, dict[str, Any]] = {
    "METHOD": {"csg": 0, "nsg": 1, "offer": False, "pairs": {"AuthMethod": "X-org.storagetest"}},
    "VERSION": {"version_min": 0x7F, "version_max": 0x7F},
    "STAGE": {"csg": 2, "nsg": 3},
    "TYPE": {"pairs": {"SessionType": "Abnormal"}},
}
"""What is wrong with a login to the target of the session, as arguments of the fixture ``send_login``."""


@pytest.mark.parametrize("way", [
    pytest.param(way, marks=pytest.mark.case(
        f"ISC-REINST-WRONG-{way}", kills=("login-reinstates-at-once", "refused-login-reinstates")))
    for way in WRONG
])  # fmt: skip
@pytest.mark.case(builds_on=("ISC-REINST-04",))
def test_a_login_that_is_refused_for_what_it_asks_reinstates_nothing(session, send_login, way):
    """It has the names and the ISID of the session, and is for its target."""
    answer = send_login(isid=session.isid, **WRONG[way])
    if answer is not None and not answer.status:
        pytest.skip(f"not refused, which other cases are about: {answer.summary()}")
    works(session, f"a login with its name and ISID and a wrong {way.lower()} was refused")


@pytest.mark.case(
    "ISC-REINST-LEFT", kills=("login-reinstates-at-once",), builds_on=("ISC-REINST-04", "ISC-LOGIN-37")
)
def test_a_login_that_is_not_ended_reinstates_nothing(session, send_login, connection):
    """Its connection is lost in the security stage: no session has taken the place of the old one."""
    answer = send_login(
        csg=0, nsg=0, transit=False, offer=False, isid=session.isid, pairs={"AuthMethod": "None"}
    )
    if answer is None or answer.status:
        pytest.skip("a login without authentication is refused, or its connection closed")
    works(session, "a login with its name and ISID is in its security stage")
    connection.link.close()
    works(session, "a login with its name and ISID was left in its security stage")


# A discovery session has no target name, and so is of no I_T nexus (4.4.3.1). No text states what it ends.
@pytest.mark.case(
    "ISC-REINST-DISCOVERY",
    section="RFC 7143 6.3.5, 4.3",
    level="SHOULD",
    kills=("discovery-reinstates",),
    builds_on=("ISC-DISC-01",),
)
def test_a_discovery_session_with_the_isid_of_a_session_does_not_end_it(connections, session):
    """A host that looks for targets keeps those that it has."""
    discovery = connections.discovery("a", isid=session.isid)
    discovery.text(("SendTargets", "All"))
    works(session, "a discovery session was opened with its name and ISID")


@pytest.mark.case(
    "ISC-REINST-05",
    section="SPC-4 persistent reservations, RFC 7143 6.3.5",
    kills=("registration-ends-with-session",),
    builds_on=(*RESERVING, "SCS-PR-22"),
)
def test_a_registration_outlives_the_reinstatement_of_its_session(unreserved, connections, facts):
    """A registration belongs to the I_T nexus: the loss of the nexus, and its return, leave it."""
    registrant, _ = unreserved
    answer = registrant.register(KEY)
    assert answer.good, answer
    new = connections.login("a", isid=registrant.runner.isid)
    registrant.runner.logged_in = False
    unit = LogicalUnit(new, block_size=facts.capacity.block_size)
    keys = unit.keys().keys
    assert KEY in keys, (
        f"READ KEYS returns {[f'{key:#x}' for key in keys]} after the reinstatement, not {KEY:#x}"
    )
    answer = unit.register(0, key=KEY)
    assert answer.good, f"{answer}: the nexus is registered with this key"


# Connection reinstatement


def reinstate(connections, old: Initiator) -> Initiator | LoginRefused | PeerClosed:
    """Log in with ISID, TSIH, CID and next CmdSN of a connection; return the connection or a refusal."""
    offer = {"ImmediateData": "No", "InitialR2T": "Yes"}
    try:
        return connections.login("a", offer=offer, clear=False, isid=old.isid, tsih=old.tsih, cid=0)
    except (LoginRefused, PeerClosed) as refusal:
        return refusal


@pytest.mark.case(
    "ISC-CONN-01",
    section="RFC 7143 6.3.4",
    level="SHOULD",
    no_mutant_reason="LIO refuses the login itself, and the small target has no connections of one session",
)
def test_a_login_with_the_cid_of_a_connection_reinstates_it(connections, session):
    """A target should support the second connection that takes the place of the first."""
    new = reinstate(connections, session)
    assert isinstance(new, Initiator), (
        f"a login with ISID, TSIH {session.tsih} and CID 0 of a connection is refused: {new}"
    )
    assert new.tsih == session.tsih, f"the connection has TSIH {new.tsih}, and its session {session.tsih}"


@pytest.mark.case("ISC-CONN-02", section="RFC 7143 6.3.4", kills=("connection-not-reinstated",))
def test_the_tasks_of_a_connection_that_is_reinstated_are_not_executed(connections, scratch, observe):
    """Accepted, the login ends the old connection and its tasks. Refused, it may end the connection, too."""
    old, command, request = waiting_write(connections, scratch)
    new = reinstate(connections, old)
    before, data = scratch.pattern(BLOCKS), scratch.pattern(BLOCKS, seed=2)
    if isinstance(new, Initiator):
        send_late(old, command, request, data)
        ends(old, "a login with its ISID, TSIH and CID succeeded")
        assert scratch.read_back(new, BLOCKS) == before, (
            "a write of the old connection was executed after the connection was reinstated"
        )
        return
    end = request.buffer_offset + request.desired_length
    try:  # the login has the function of a logout, or none
        old.send_data(command, data, start=request.buffer_offset, end=end, ttt=request.ttt)
        status = old.finish(command, data).status
    except RemoteProtocolError:
        old.logged_in = False
        observe("the login is refused, and the old connection ends")
        found = scratch.read_back(connections.login("a"), BLOCKS)
        assert found in (before, data), (
            f"the login was refused ({new}), and half of the old write is executed"
        )
        return
    observe("the login is refused, and the old connection goes on")
    assert status == 0, f"the login was refused ({new}), and the write ended in status {status:#04x}"
    assert scratch.read_back(old, BLOCKS) == data, (
        f"the login was refused ({new}), and the write on the old connection was lost"
    )
