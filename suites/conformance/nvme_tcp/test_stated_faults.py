"""What a refusal states: the parameter of a Connect, an Abort that found nothing; and what is not refused."""

from __future__ import annotations

from typing import Any

import pytest

from storagetest.wire.nvme import admin
from storagetest.wire.nvme.codes import Cns, StatusCode, status_name
from storagetest.wire.nvme.fabrics import ANY_CONTROLLER
from storagetest.wire.nvme_tcp import CommandResult, ControllerSession, Identity
from storagetest.wire.nvme_tcp.harness import Harness, refused, request_event
from storagetest.wire.nvme_tcp.session import connect_queue

from .test_feature_values import DEFAULT, FEATURES, SAVE_AND_SELECT, SAVED, set_feature

pytestmark = [pytest.mark.needs("nvme-tcp-wire"), pytest.mark.case(level="MUST", section="Base 6.3")]

IN_DATA = 1 << 16
"""IATTR: the offset in the result of a refused Connect counts from the start of its data."""

UNKNOWN_CONTROLLER = 0x7FF0
LAST_QID = 0xFFFF
"""A Queue Identifier that no controller grants: Number of Queues is FFFEh at most (5.2.26.2.1)."""

CNTLID, SUBNQN, SQSIZE, QID = 16 | IN_DATA, 256 | IN_DATA, 44, 42
"""Offsets of the parameters, with IATTR (6.3)."""
OVER_MQES = -1
"""Stands for one more than CAP.MQES, which a case reads first."""

OTHER = "nqn.2024-01.org.example:no-such"


def _connect(bench: Harness, session: ControllerSession | None, **more: Any) -> CommandResult:
    """Connect an admin queue, or an I/O queue of ``session``, with some parameters replaced."""
    endpoint = bench.endpoint
    given: dict[str, Any] = {
        "subnqn": endpoint.subnqn,
        "identity": bench.any_host(),
        "cntlid": endpoint.any_controller,
    }
    if session is not None:
        given |= {"identity": session.identity, "qid": 1, "sqsize": 1, "cntlid": session.cntlid}
    return connect_queue(bench.queue(), **given | more)


@pytest.mark.parametrize(("io_queue", "wrong", "offset"), [
    pytest.param(False, {"cntlid": UNKNOWN_CONTROLLER}, CNTLID, marks=pytest.mark.case(
        "NVF-IPO-ADMIN-CNTLID", kills=("connect-ipo", "connect-ipo-of-cntlid"))),
    pytest.param(False, {"subnqn": OTHER}, SUBNQN, marks=pytest.mark.case(
        "NVF-IPO-ADMIN-SUBNQN", kills=("connect-ipo",))),
    pytest.param(True, {"cntlid": UNKNOWN_CONTROLLER}, CNTLID, marks=pytest.mark.case(
        "NVF-IPO-IO-CNTLID", kills=("connect-ipo-of-cntlid", "connect-ipo-of-io"))),
    pytest.param(True, {"subnqn": OTHER}, SUBNQN, marks=pytest.mark.case(
        "NVF-IPO-IO-SUBNQN", kills=("connect-ipo-of-io",))),
    pytest.param(True, {"sqsize": 0}, SQSIZE, marks=pytest.mark.case(
        "NVF-IPO-IO-SQSIZE", kills=("connect-ipo-of-io",))),
    pytest.param(True, {"sqsize": OVER_MQES}, SQSIZE, marks=pytest.mark.case(
        "NVF-IPO-IO-MQES", kills=("connect-ipo-of-io",))),
    pytest.param(True, {"qid": LAST_QID}, QID, marks=pytest.mark.case(
        "NVF-IPO-IO-QID", kills=("connect-ipo-of-io",))),
])  # fmt: skip
@pytest.mark.case(builds_on=("NVF-CONNECT-04",))
def test_a_refused_connect_states_which_parameter_is_wrong(
    session: ControllerSession, bench: Harness, io_queue: bool, wrong: dict[str, Any], offset: int
) -> None:
    """IPO is the offset of the parameter, and IATTR whether it is in the data; one alone is wrong here."""
    if not io_queue and "cntlid" in wrong and bench.endpoint.any_controller != ANY_CONTROLLER:
        pytest.skip("CNTLID FFFFh is refused: the controller model is the static one")
    if wrong.get("sqsize") == OVER_MQES:
        if session.cap.mqes == 0xFFFF:
            pytest.skip("CAP.MQES is as large as SQSIZE can be")
        wrong = {"sqsize": session.cap.mqes + 1}
    done = _connect(bench, session if io_queue else None, **wrong)
    if done.status != StatusCode.CONNECT_INVALID_PARAMETERS:
        pytest.skip(f"a Connect with {wrong} ends with {status_name(done.status)} (NVF-CONNECT-*)")
    assert done.cqe.dw0 & 0x1FFFF == offset, (
        f"6.3: IATTR and IPO are {done.cqe.dw0 >> 16 & 1} and {done.cqe.dw0 & 0xFFFF}, for a Connect with "
        f"{wrong}; {offset >> 16} and {offset & 0xFFFF} are required"
    )


HOSTID, HOSTNQN = 0 | IN_DATA, 512 | IN_DATA

HOSTS: dict[str, tuple[bool, tuple[int, ...]]] = {
    "ADMIN-HOSTNQN": (False, (HOSTNQN,)),
    "IO-HOSTNQN": (True, (HOSTNQN, CNTLID)),
    "IO-HOSTID": (True, (HOSTID, HOSTNQN, CNTLID)),
}
"""By name: whether the Connect is of an I/O queue, and what its refusal may state."""


@pytest.mark.parametrize("name", [
    pytest.param(name, marks=pytest.mark.case(f"NVF-IPO-{name}", kills=("connect-ipo-of-host",)))
    for name in HOSTS
])  # fmt: skip
@pytest.mark.case(builds_on=("NVF-CONNECT-04",))
def test_a_connect_that_is_refused_for_its_host_states_that(
    session: ControllerSession, bench: Harness, name: str
) -> None:
    """An empty Host NQN, or another host's: such a host does not go with CNTLID, which may be stated too."""
    io_queue, stated = HOSTS[name]
    own, other = session.identity, Identity.fresh()
    wrong = {
        "ADMIN-HOSTNQN": Identity("", other.hostid),
        "IO-HOSTNQN": Identity(other.nqn, own.hostid),
        "IO-HOSTID": Identity(own.nqn, other.hostid),
    }[name]
    done = _connect(bench, session if io_queue else None, identity=wrong)
    if done.status != StatusCode.CONNECT_INVALID_PARAMETERS:
        pytest.skip(f"a Connect of this host ends with {status_name(done.status)} (NVF-CONNECT-*)")
    assert done.cqe.dw0 & 0x1FFFF in stated, (
        f"6.3: IATTR and IPO are {done.cqe.dw0 >> 16 & 1} and {done.cqe.dw0 & 0xFFFF}, for a Connect whose "
        f"host is wrong ({name}); required is one of {[(one >> 16, one & 0xFFFF) for one in stated]}"
    )


@pytest.mark.parametrize("sqid", [
    pytest.param(2, marks=pytest.mark.case("NVA-ABORT-QUEUE-NEXT")),
    pytest.param(0x7FFF, marks=pytest.mark.case("NVA-ABORT-QUEUE-7FFF")),
    pytest.param(0xFFFF, marks=pytest.mark.case("NVA-ABORT-QUEUE-FFFF")),
])  # fmt: skip
@pytest.mark.case(section="Base 5.2.1.2", kills=("abort-of-no-queue",), builds_on=("NVA-ABORT-01",))
def test_nothing_is_aborted_in_a_queue_that_does_not_exist(session: ControllerSession, sqid: int) -> None:
    """An error status, or bit 0 of the result. The CID is that of an outstanding event request."""
    session.io_queue(qid=1)
    cid = request_event(session)
    done = session.admin.run(admin.abort(sqid=sqid, cid=cid))
    if done.ok:
        assert done.cqe.dw0 & 1, (
            f"5.2.1.2: an Abort in queue {sqid}, which does not exist, states that the command was aborted"
        )
    assert session.admin.status_of(cid) is None, f"5.2.1: an Abort in queue {sqid} aborted an admin command"


@pytest.mark.case(
    "NVA-ABORT-TWICE", section="Base 5.2.1.2", kills=("abort-of-aborted",), builds_on=("NVA-ABORT-01",)
)
def test_a_command_is_aborted_once(session: ControllerSession) -> None:
    """The first Abort may abort an event request; the second one finds no such command."""
    cid = request_event(session)
    first = session.admin.run(admin.abort(sqid=0, cid=cid))
    if not first.ok or first.cqe.dw0 & 1:
        pytest.skip("Abort does not abort an event request (NVA-ABORT-02)")
    refused(session.admin.wait(cid), StatusCode.ABORTED_BY_REQUEST)
    for turn in (2, 3):
        done = session.admin.run(admin.abort(sqid=0, cid=cid))
        assert done.ok, f"5.2.1: Abort itself succeeds, not {status_name(done.status)}"
        assert done.cqe.dw0 & 1, f"5.2.1.2: Abort {turn} states that it aborted a command that had ended"


@pytest.mark.case(
    "NVA-ID-LIST-FFFFFFFE", section="Base 5.2.13.2.2", level="SHOULD", kills=("namespace-list-any",)
)
def test_no_list_of_namespaces_begins_after_fffffffeh(session: ControllerSession) -> None:
    """FFFFFFFFh is NVA-ID-LIST-03."""
    done = session.admin.run(admin.identify(Cns.ACTIVE_NAMESPACES, nsid=0xFFFFFFFE), reads=4096)
    refused(done, StatusCode.INVALID_NAMESPACE)


@pytest.mark.parametrize("fid", [
    pytest.param(fid, marks=pytest.mark.case(f"NVA-FEAT-STAYS-{fid:02X}H")) for fid in FEATURES
])  # fmt: skip
@pytest.mark.case(section="Base 5.2.11", kills=("default-follows-current", "saved-follows-current"))
def test_default_and_saved_value_stay_when_the_current_one_is_set(
    session: ControllerSession, fid: int
) -> None:
    """Set Features without Save sets the current value alone."""
    if not session.controller["oncs"] & SAVE_AND_SELECT:
        pytest.skip("ONCS bit 4: Select of Get Features is not supported")
    feature = set_feature(session, fid)
    try:
        for name, select in (("default", DEFAULT), ("saved", SAVED)):
            found = feature.read(select)
            assert feature.set(feature.first), f"5.2.26: feature {fid:02x}h is not set back"
            before = feature.read(select)
            assert feature.set(feature.value), f"5.2.26: {feature.value:#x} is not set again"
            assert found == before == feature.read(select), (
                f"5.2.11: the {name} value of feature {fid:02x}h is {found:#x} while the current one is "
                f"{feature.value:#x}, and {before:#x} while that is {feature.first:#x}"
            )
    finally:
        feature.set(feature.first)


@pytest.mark.case("NVF-CONNECT-RESULT-FRESH", kills=("connect-ipo-kept",), builds_on=("NVF-CONNECT-04",))
def test_each_refused_connect_states_its_own_parameter(bench: Harness) -> None:
    """Several in turn, on connections of their own: the offset of one is not that of the next."""
    for wrong, offset in (
        ({"subnqn": OTHER}, SUBNQN),
        ({"sqsize": 0}, SQSIZE),
        ({"cntlid": UNKNOWN_CONTROLLER}, CNTLID),
        ({"subnqn": OTHER}, SUBNQN),
    ):
        done = _connect(bench, None, **wrong)
        if done.status != StatusCode.CONNECT_INVALID_PARAMETERS:
            pytest.skip(f"a Connect with {wrong} ends with {status_name(done.status)} (NVF-CONNECT-*)")
        assert done.cqe.dw0 & 0x1FFFF == offset, (
            f"6.3: IATTR and IPO of a Connect with {wrong} are {done.cqe.dw0:#x}; {offset:#x} is required"
        )
    assert _connect(bench, None).ok, "6.3: a Connect after refused ones"
