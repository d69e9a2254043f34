"""What stays as it is: of a reset, of a refused Connect and of a Replace (Base 3.3.2.3, 5.2.2, 8.1.24)."""

from __future__ import annotations

import pytest

from storagetest.errors import RemoteProtocolError
from storagetest.wire.nvme import io
from storagetest.wire.nvme.codes import Property, Rtype, StatusCode, status_name
from storagetest.wire.nvme_tcp import ControllerSession
from storagetest.wire.nvme_tcp.harness import Harness, refused, request_event
from storagetest.wire.nvme_tcp.reservation_harness import HOLDING, REPLACE, ReservingHost, allowed, hold
from storagetest.wire.nvme_tcp.session import connect_queue

pytestmark = [pytest.mark.needs("nvme-tcp-wire"), pytest.mark.case(level="MUST", section="Base 8.1.24")]

OTHER_KEY = 0xD4


@pytest.mark.case(
    "NVA-AER-RESET", section="Base 5.2.2", kills=("reset-completes-requests",), builds_on=("NVA-AER-01",)
)
def test_a_reset_completes_no_event_request(session: ControllerSession) -> None:
    """Outstanding requests are aborted, "and shall not return a CQE"; Property Get comes behind them."""
    cid = request_event(session)
    session.disable()
    for _ in range(2):
        session.get_property(Property.CSTS)
    status = session.admin.status_of(cid)
    if status == StatusCode.SUCCESS:
        pytest.skip("an event was reported before the reset")
    assert status is None, (
        f"5.2.2: a request that was outstanding at a controller reset ended with {status_name(status or 0)}"
    )


@pytest.mark.case(
    "NVF-CONNECT-LIVES", section="Base 3.3.2.3", kills=("connect-again-ends",), builds_on=("NVF-CONNECT-15",)
)
def test_a_connect_of_a_queue_that_exists_does_not_end_it(session: ControllerSession, bench: Harness) -> None:
    """Each Connect is refused, on a connection of its own, and the I/O queue goes on."""
    nsid, queue = session.own_namespace(), session.io_queue(qid=1)
    for number in range(1, 3):
        done = connect_queue(
            bench.queue(name="the same I/O queue"),
            subnqn=session.endpoint.subnqn,
            identity=session.identity,
            qid=1,
            sqsize=1,
            cntlid=session.cntlid,
        )
        if done.ok:
            pytest.skip("a Connect of a queue that exists succeeds (NVF-CONNECT-15)")
        try:
            status = queue.run(io.flush(nsid)).status
        except RemoteProtocolError as error:
            pytest.fail(f"3.3.2.3: I/O queue 1 has ended with the refusal of Connect {number} of it: {error}")
        assert status == StatusCode.SUCCESS, (
            f"3.3.2.3: after the refusal of Connect {number} of I/O queue 1 a Flush on that queue ends with "
            f"{status_name(status)}"
        )


def _held(host: ReservingHost, holder: ReservingHost, rtype: Rtype, why: str) -> None:
    """Claim that ``holder`` holds the reservation, and that ``host`` may not write."""
    status = host.report()
    held = [one.key for one in status.registrants if one.holds]
    assert (status.rtype, held) == (rtype, [holder.key]), (
        f"8.1.24: the reservation has type {status.rtype} and holders {held}, by key, {why}; it was of type "
        f"{int(rtype)}, of {holder.key:#x}"
    )
    refused(host.write(), StatusCode.RESERVATION_CONFLICT)


@pytest.mark.case(
    "NVR-PERSIST-RESET", section="Base 8.1.24.1", kills=("reset-releases-reservation",), builds_on=HOLDING
)
def test_a_reservation_outlives_a_reset_of_its_holder(hosts: tuple[ReservingHost, ReservingHost]) -> None:
    first, second = hosts
    hold(first, Rtype.WRITE_EXCLUSIVE)
    first.queue.close()
    for number in range(1, 3):
        first.session.disable()
        _held(second, first, Rtype.WRITE_EXCLUSIVE, f"in reset {number} of the holder's controller")
        first.session.enable()
        _held(second, first, Rtype.WRITE_EXCLUSIVE, f"after reset {number} of the holder's controller")


@pytest.mark.parametrize("rtype", [
    pytest.param(rtype, marks=pytest.mark.case(f"NVR-REPLACE-{rtype:d}", kills=("replace-releases",)))
    for rtype in (Rtype.WRITE_EXCLUSIVE, Rtype.EXCLUSIVE_ACCESS_ALL_REGISTRANTS)
])  # fmt: skip
@pytest.mark.case(section="Base 8.1.24.3", builds_on=HOLDING)
def test_a_new_key_of_the_holder_changes_no_reservation(
    hosts: tuple[ReservingHost, ReservingHost], rtype: Rtype
) -> None:
    """The holder replaces its key, with the current one, and then without (IEKEY)."""
    first, second = hosts
    hold(first, rtype)
    for new, ignore in ((OTHER_KEY, False), (first.key, True)):
        allowed(first.register(REPLACE, current=0 if ignore else first.key, new=new, ignore=ignore))
        first.key = new
        status = first.report()
        held = [one.key for one in status.registrants if one.holds]
        assert (status.rtype, held) == (rtype, [new]), (
            f"8.1.24.3: after a Replace by the holder the reservation has type {status.rtype} and holders "
            f"{held}, by key; it was of type {int(rtype)}, and the new key is {new:#x}"
        )
        refused(second.write(), StatusCode.RESERVATION_CONFLICT)
        allowed(first.write())
