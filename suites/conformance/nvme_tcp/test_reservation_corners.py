"""Seldom met states of reservations: none is held, a host is no registrant, others write (Base 8.1.24)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from storagetest.wire.nvme import admin, io
from storagetest.wire.nvme.codes import Cns, Feature, Rtype, StatusCode, status_name
from storagetest.wire.nvme_tcp.harness import Harness, block_data, read_blocks, refused, write_blocks
from storagetest.wire.nvme_tcp.pdu import R2T
from storagetest.wire.nvme_tcp.reservation_harness import (
    HOLDING,
    PERSIST_OFF,
    PERSIST_ON,
    PREEMPT_ABORT,
    REGISTER,
    REPLACE,
    UNREGISTER,
    ReservingHost,
    allowed,
    hold,
    read_notice,
    require_type,
)
from storagetest.wire.tcp import ResponseTimeout

from .test_pending_writes import complete, pending
from .test_preempt_pending import SETTLED

pytestmark = [
    pytest.mark.needs("nvme-tcp-wire"),
    pytest.mark.case(level="MUST", section="Base 8.1.24.7", builds_on=HOLDING),
]

Hosts = tuple[ReservingHost, ReservingHost]

RESERVED = 1
"""CPTPL 01b (Base 7.6)."""

NEW_KEY = 0xC3

ACTIONS = {"REGISTER": REGISTER, "UNREGISTER": UNREGISTER, "REPLACE": REPLACE}


@pytest.mark.parametrize("name", [
    pytest.param(name, marks=pytest.mark.case(f"NVR-CPTPL-RESERVED-{name}", kills=("cptpl-reserved-taken",)))
    for name in ACTIONS
])  # fmt: skip
@pytest.mark.case(section="Base 1.4.1.6, 7.6", builds_on=("NVR-REG-07",))
def test_the_reserved_value_of_cptpl_is_refused(hosts: Hosts, name: str) -> None:
    """Invalid Field; the registration and the persist state are as before, whichever they are."""
    first, _ = hosts
    persists = first.session.namespace(first.nsid)["rescap"] & 1
    for state in (PERSIST_ON, PERSIST_OFF) if persists else (0,):
        first.register(UNREGISTER, ignore=True)  # of an earlier turn
        if name != "REGISTER":
            allowed(first.register(persist=state))
        before = first.report()
        new = first.key if name == "REGISTER" else NEW_KEY
        done = first.register(ACTIONS[name], current=first.key, new=new, persist=RESERVED)
        refused(done, StatusCode.INVALID_FIELD)
        after = first.report()
        assert after == before, (
            f"7.6: {name} with CPTPL 01b, which is reserved, ended with {status_name(done.status)}; the "
            f"report was {before}, and is {after}"
        )


@pytest.mark.parametrize("who", [
    pytest.param("THIRD", marks=pytest.mark.case("NVR-ABORT-THIRD")),
    pytest.param("OWN", marks=pytest.mark.case("NVR-ABORT-OWN")),
])  # fmt: skip
@pytest.mark.case(
    kills=("preempt-aborts-all",), builds_on=(*HOLDING, "NVR-PREEMPT-02", "NVR-ABORT-PENDING-WERO")
)
def test_a_write_of_a_host_that_is_not_preempted_goes_on(hosts: Hosts, bench: Harness, who: str) -> None:
    """A registrant's write waits for its data while another registrant is preempted; it is done then.

    The write is of a third host, or of the host that preempts.
    """
    first, second = hosts
    rtype = Rtype.WRITE_EXCLUSIVE_REGISTRANTS_ONLY
    require_type(first.scratch, rtype)
    writer = first
    try:
        hold(first, rtype)
        allowed(second.register())
        if who == "THIRD":
            session = bench.session(name="third host's admin queue")
            writer = ReservingHost(session, session.io_queue(), first.scratch, 0xD5)
            allowed(writer.register())
        elif _grants_one(second):
            pytest.skip("the controller grants one I/O queue (Base 5.2.26.2.1)")
        else:
            writer = ReservingHost(second.session, second.session.io_queue(), second.scratch, second.key)
        write_blocks(writer.queue, writer.scratch, 1, 1860)
        new = block_data(writer.scratch.block_size, 1861)
        r2t = pending(writer.queue, writer.scratch, new)
        _preempts(second, first, rtype, writer, r2t, new)
        found = read_blocks(second.queue, second.scratch, 1)
        assert found == new, (
            "8.1.24.7: a write of a host that is still a registrant succeeded, and its block has other data"
        )
    finally:
        if who == "THIRD" and writer is not first:
            writer.register(UNREGISTER, ignore=True)


def _grants_one(host: ReservingHost) -> bool:
    """Whether the controller of ``host`` has no second I/O queue."""
    return host.session.io_queues_granted < 2


def _preempts(
    second: ReservingHost, first: ReservingHost, rtype: Rtype, writer: ReservingHost, r2t: R2T, new: bytes
) -> None:
    """Preempt the first host while a write waits; claim that the write is done once its data have come."""
    command = io.acquire(second.nsid, PREEMPT_ABORT, rtype)
    preempt = second.queue.submit(command, data=io.keys(second.key, first.key))
    try:
        allowed(second.queue.wait(preempt, deadline=SETTLED))
        waits = False
    except ResponseTimeout:  # it waits for every write of the namespace
        waits = True
    done = complete(writer.queue, r2t, new)
    assert done.ok, (
        f"8.1.24.7: a write of a host that is still a registrant ended with {status_name(done.status)}; "
        "Preempt and Abort was of the key of another host"
    )
    if waits:
        allowed(second.queue.wait(preempt))


# Without a reservation, or a registration


@pytest.mark.case("NVR-REL-NONE", section="Base 8.1.24.6", kills=("release-of-none-refused",))
def test_a_release_without_a_reservation_changes_nothing(hosts: Hosts) -> None:
    """A registrant that holds none may release it: nothing changes, and nothing conflicts.

    A controller may find that RTYPE is not the type of a reservation that is held: Invalid Field (7.7).
    """
    first, second = hosts
    allowed(first.register())
    allowed(second.register())
    rtype = first.types[0]
    for turn in range(2):
        before = first.report()
        done = first.release(rtype)
        assert done.ok or done.status == StatusCode.INVALID_FIELD, (
            f"8.1.24.6: Release by a registrant, while no reservation is held, ended with "
            f"{status_name(done.status)}"
        )
        after = first.report()
        assert after == before, f"8.1.24.6: Release {turn + 1}, while none is held: {before}, then {after}"
        allowed(first.acquire(rtype))
        allowed(first.release(rtype))


@pytest.mark.case(
    "NVR-STRANGER-IGNORE", section="Base 8.1.24.4", kills=("stranger-unregisters-unseen",), builds_on=HOLDING
)
def test_a_host_that_is_no_registrant_unregisters_nothing_whatever_its_key(hosts: Hosts) -> None:
    """IEKEY is of the key of a registrant: a host without one ends with a conflict."""
    first, second = hosts
    hold(first, first.types[0])
    before = first.report()
    for current in (0, first.key):
        done = second.register(UNREGISTER, current=current, ignore=True)
        assert done.status == StatusCode.RESERVATION_CONFLICT, (
            f"8.1.24.4: Unregister with IEKEY by a host that is no registrant ended with "
            f"{status_name(done.status)}; required: Reservation Conflict"
        )
    after = first.report()
    assert after == before, f"8.1.24.4: the report was {before}, and is {after}"


SHORT = dict(zip(Rtype, ("WE", "EA", "WERO", "EARO", "WEAR", "EAAR"), strict=True))


@pytest.mark.parametrize("rtype", [
    pytest.param(rtype, marks=pytest.mark.case(
        f"NVR-ACCESS-ADMIN-{name}", section="Base 8.1.24.1", kills=("admin-excluded",)))
    for rtype, name in SHORT.items()
])  # fmt: skip
def test_each_type_allows_any_host_to_identify_the_namespace(hosts: Hosts, rtype: Rtype) -> None:
    """Identify and Get Features neither read nor write the namespace."""
    first, second = hosts
    hold(first, rtype)
    done = second.session.admin.run(admin.identify(Cns.NAMESPACE, nsid=second.nsid), reads=4096)
    assert done.ok, (
        f"8.1.24.1: Identify Namespace by a host that is no registrant, under type {int(rtype)}, ended with "
        f"{status_name(done.status)}"
    )
    done = second.session.admin.run(admin.get_features(Feature.ERROR_RECOVERY, nsid=second.nsid))
    assert done.status != StatusCode.RESERVATION_CONFLICT, (
        f"8.1.24.1: Get Features by a host that is no registrant, under type {int(rtype)}, is a conflict"
    )


@pytest.mark.case(
    "NVR-NOTICE-OWN-SECOND",
    section="Base 8.1.24.6",
    kills=("notice-to-own-second",),
    builds_on=("NVR-NOTICE-OWN-RELEASE", "NVR-NOTICE-SECOND-CONTROLLER"),
)
def test_no_controller_of_the_host_that_releases_is_notified(hosts: Hosts, bench: Harness) -> None:
    """A host with two controllers releases through the one; the other one has no notification of it."""
    first, second = hosts
    rtype = Rtype.WRITE_EXCLUSIVE_REGISTRANTS_ONLY
    other = bench.session(identity=first.session.identity, name="the releasing host's other controller")
    hold(first, rtype)
    allowed(second.register())
    allowed(first.release(rtype))
    if not read_notice(second)[0]:
        pytest.skip("the other registrant is not notified of the release (NVR-NOTICE-*)")
    kind, nsid = read_notice(replace(first, session=other))
    assert not kind, (
        f"8.1.24.6: the host has released the reservation itself, and another controller of it has a "
        f"notification of type {kind} of NSID {nsid:#x}"
    )
