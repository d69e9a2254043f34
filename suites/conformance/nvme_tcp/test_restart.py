"""What outlives a restart of the controller: data, identifiers, and reservations that persist (Base 7.6).

The target's control ``restart`` is taken as a loss of power of the NVM subsystem. Each case restarts it once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from storagetest.errors import RemoteProtocolError, TargetDead
from storagetest.wire.nvme import admin, io
from storagetest.wire.nvme.codes import Feature, Rtype, StatusCode
from storagetest.wire.nvme.structures import ReservationStatus
from storagetest.wire.nvme_tcp import ControllerSession
from storagetest.wire.nvme_tcp.harness import Harness, Scratch, block_data, refused, wwids
from storagetest.wire.nvme_tcp.reservation_harness import (
    CLEAR,
    HOLDING,
    PERSIST_OFF,
    PERSIST_ON,
    PREEMPT,
    REPLACE,
    UNREGISTER,
    ReservingHost,
    allowed,
)
from storagetest.wire.nvme_tcp.session import SubsystemEndpoint
from storagetest.wire.tcp import is_connected

pytestmark = [
    pytest.mark.needs("nvme-tcp-wire", "restart"),
    pytest.mark.exclusive,
    pytest.mark.case(level="MUST", section="Base 7.6"),
]

HELD = {
    "WE": Rtype.WRITE_EXCLUSIVE,
    "EARO": Rtype.EXCLUSIVE_ACCESS_REGISTRANTS_ONLY,
    "WEAR": Rtype.WRITE_EXCLUSIVE_ALL_REGISTRANTS,
}
BLOCKS = 8

Restart = Callable[[ControllerSession], None]
Hosts = tuple[ReservingHost, ReservingHost]


@pytest.fixture
def restart(
    endpoint: SubsystemEndpoint, restart_target: Callable[[Callable[[], bool], Callable[[], bool]], None]
) -> Restart:
    """Return a function that restarts the target; it takes a session of before, which ends with it."""

    def answers() -> bool:
        try:
            ControllerSession.connect(endpoint).close()
        except (RemoteProtocolError, TargetDead):
            return False
        return True

    def run(before: ControllerSession) -> None:
        restart_target(lambda: is_connected(lambda: before.admin.run(admin.keep_alive())), answers)

    return run


def _again(bench: Harness, host: ReservingHost) -> ReservingHost:
    """Connect a host of before the restart."""
    session = bench.session(identity=host.session.identity, name="the host after the restart")
    return ReservingHost(session, session.io_queue(), host.scratch, host.key)


def _keys(status: ReservationStatus, *, holds: bool = False) -> list[int]:
    """Return the keys of the registrants, or of those that hold the reservation."""
    return sorted(one.key for one in status.registrants if one.holds or not holds)


@pytest.fixture
def persistent(hosts: Hosts, bench: Harness) -> Iterator[Hosts]:
    """Yield two hosts on a namespace whose reservations can persist; at the end they do not."""
    first, _ = hosts
    if not first.session.namespace(first.nsid)["rescap"] & 1:
        pytest.skip("RESCAP bit 0: no Persist Through Power Loss")
    yield hosts
    last = _again(bench, first)
    allowed(last.register(REPLACE, current=last.key, new=last.key, ignore=True, persist=PERSIST_OFF))


@pytest.mark.parametrize("rtype", [
    pytest.param(rtype, marks=pytest.mark.case(
        f"NVR-RESTART-{name}", kills=("persistence-lost", "persistent-key-lost")))
    for name, rtype in HELD.items()
])  # fmt: skip
@pytest.mark.case(builds_on=(*HOLDING, "NVR-PTPL-01"))
def test_reservations_persist(persistent: Hosts, bench: Harness, restart: Restart, rtype: Rtype) -> None:
    """With PTPLS 1 the registrants with their keys, the holder and the type are as before."""
    first, second = persistent
    allowed(first.register(persist=PERSIST_ON))
    allowed(second.register())
    allowed(first.acquire(rtype))
    before = first.report()
    restart(first.session)
    first, second = _again(bench, first), _again(bench, second)
    after = first.report()
    for what, found, wanted in (
        ("PTPLS", after.persistence, before.persistence),
        ("RTYPE", after.rtype, before.rtype),
        ("the keys of the registrants", _keys(after), _keys(before)),
        ("the keys of the holders", _keys(after, holds=True), _keys(before, holds=True)),
    ):
        assert found == wanted, f"7.6: PTPLS was 1, and after the restart {what}: {found}, before: {wanted}"
    allowed(first.write())
    if rtype == Rtype.WRITE_EXCLUSIVE:
        refused(second.write(), StatusCode.RESERVATION_CONFLICT)
    stranger = bench.session(name="a host that is not registered").io_queue()
    written = stranger.run(io.write(first.nsid, first.scratch.lba, 1), data=bytes(first.scratch.block_size))
    refused(written, StatusCode.RESERVATION_CONFLICT)


@pytest.mark.case("NVR-RESTART-LOST", kills=("persistence-forced",), builds_on=(*HOLDING, "NVR-PTPL-01"))
def test_reservations_that_do_not_persist_are_released(
    persistent: Hosts, bench: Harness, restart: Restart
) -> None:
    """With PTPLS 0 the reservation is released, and the registrants are removed."""
    first, second = persistent
    allowed(first.register(persist=PERSIST_ON))
    allowed(first.register(REPLACE, current=first.key, new=first.key, ignore=True, persist=PERSIST_OFF))
    allowed(second.register())
    allowed(first.acquire(Rtype.WRITE_EXCLUSIVE))
    restart(first.session)
    second = _again(bench, second)
    after = second.report()
    found = (after.rtype, [one.key for one in after.registrants])
    assert found == (0, []), (
        f"7.6: PTPLS was 0, and after the restart RTYPE and the keys of the registrants are {found}"
    )
    allowed(second.write())


@pytest.mark.case(
    "NVR-RESTART-REGISTERED", kills=("persistence-of-holders-only",), builds_on=("NVR-REG-07", "NVR-PTPL-01")
)
def test_registrations_persist_without_a_reservation(
    persistent: Hosts, bench: Harness, restart: Restart
) -> None:
    """With PTPLS 1 the registrants are as before, and may acquire the reservation with their keys."""
    first, second = persistent
    allowed(first.register(persist=PERSIST_ON))
    allowed(second.register())
    restart(first.session)
    first, second = _again(bench, first), _again(bench, second)
    after = first.report()
    found = (after.persistence, after.rtype, _keys(after), _keys(after, holds=True))
    assert found == (1, 0, sorted((first.key, second.key)), []), (
        f"7.6: PTPLS was 1, no reservation was held, and the keys were {sorted((first.key, second.key))}; "
        f"after the restart PTPLS, RTYPE, the keys of the registrants and of the holders are {found}"
    )
    allowed(second.acquire(Rtype.WRITE_EXCLUSIVE))
    refused(first.write(), StatusCode.RESERVATION_CONFLICT)


ENDED = {
    "RELEASED": ("8.1.24.6", "release-not-saved"),
    "CLEARED": ("8.1.24.8", "release-not-saved"),
    "UNREGISTERED": ("8.1.24.4", "unregister-not-saved"),
    "PREEMPTED": ("8.1.24.7", "preempt-not-saved"),
    "REPLACED": ("8.1.24.3", "replace-not-saved"),
}
"""What may happen to the holder's reservation or registration before the restart: section, mutant."""


@pytest.mark.parametrize("way", [
    pytest.param(way, marks=pytest.mark.case(
        f"NVR-RESTART-{way}", section=f"Base {section}, 7.6", kills=(mutant,)))
    for way, (section, mutant) in ENDED.items()
])  # fmt: skip
@pytest.mark.case(builds_on=(*HOLDING, "NVR-PTPL-01"))
def test_what_has_ended_does_not_come_back(
    persistent: Hosts, bench: Harness, restart: Restart, way: str
) -> None:
    """The state that persists is the last one: no earlier holder, registrant or key is there again."""
    first, second = persistent
    allowed(first.register(persist=PERSIST_ON))
    allowed(second.register())
    allowed(first.acquire(Rtype.WRITE_EXCLUSIVE))
    new = first.key ^ 0xFF00
    if way == "UNREGISTERED":
        allowed(first.register(UNREGISTER, current=first.key, new=0))
    elif way == "PREEMPTED":
        allowed(second.acquire(Rtype.WRITE_EXCLUSIVE, PREEMPT, victim=first.key))
    elif way == "REPLACED":
        allowed(first.register(REPLACE, current=first.key, new=new))
        first.key = new
    else:
        allowed(first.release(Rtype.WRITE_EXCLUSIVE, *((CLEAR,) if way == "CLEARED" else ())))
    restart(first.session)
    first, second = _again(bench, first), _again(bench, second)
    after = first.report()
    found = (after.rtype, _keys(after), _keys(after, holds=True))
    wanted = {
        "RELEASED": (0, sorted((first.key, second.key)), []),
        "CLEARED": (0, [], []),
        "UNREGISTERED": (0, [second.key], []),
        "PREEMPTED": (Rtype.WRITE_EXCLUSIVE, [second.key], [second.key]),
        "REPLACED": (Rtype.WRITE_EXCLUSIVE, sorted((first.key, second.key)), [first.key]),
    }[way]
    assert found == wanted, (
        f"7.6: PTPLS was 1, and the holder's reservation or registration was {way.lower()} before the "
        f"restart; after it RTYPE and the keys of registrants and holders are {found}; required: {wanted}"
    )


@pytest.mark.parametrize("way", [
    pytest.param(way, marks=pytest.mark.case(
        f"NVB-RESTART-{way}", section=section, kills=("restart-loses-data",)))
    for way, section in {"FLUSH": "NVM 3.3, Base 7.2", "FUA": "NVM 3.3.6"}.items()
])  # fmt: skip
@pytest.mark.case(builds_on=("NVB-RW-01",))
def test_data_in_non_volatile_storage_outlive_it(
    bench: Harness, scratch: Scratch, restart: Restart, way: str
) -> None:
    """Data that were flushed, or written with Force Unit Access."""
    session = bench.session()
    queue, data = session.io_queue(), block_data(scratch.fit(BLOCKS) * scratch.block_size, 91)
    command = io.write(scratch.nsid, scratch.lba, scratch.fit(BLOCKS), fua=way == "FUA")
    allowed(queue.run(command, data=data))
    if way == "FLUSH":
        allowed(queue.run(io.flush(scratch.nsid)))
    restart(session)
    after = bench.session(name="admin queue after the restart").io_queue()
    done = after.run(io.read(scratch.nsid, scratch.lba, scratch.fit(BLOCKS)), reads=len(data))
    allowed(done)
    assert done.data == data, f"the data of a write ({way}) before the restart are not read after it"


@pytest.mark.case("NVA-RESTART-NAMES", section="NVM 4.1.5.1, Base 5.2.13.2.1", kills=("restart-renames",))
def test_subsystem_and_namespaces_are_the_same(
    session: ControllerSession, scratch: Scratch, bench: Harness, restart: Restart
) -> None:
    """Serial number, NQN, active namespaces, and the identifiers and size of the namespace."""

    def look(one: ControllerSession) -> tuple[object, ...]:
        data, nsid = one.controller, scratch.nsid
        names = sorted(wwids(one, nsid))
        return data.text("sn"), data.text("subnqn"), one.namespaces(), names, one.namespace(nsid)["nsze"]

    before = look(session)
    restart(session)
    after = look(bench.session(name="admin queue after the restart"))
    assert after == before, f"after the restart: {after}, before: {before}"


@pytest.mark.case(
    "NVA-RESTART-FEATURES", level="SHOULD", section="Base 4.4", kills=("restart-keeps-feature",)
)
def test_a_feature_that_was_not_saved_has_its_first_value(bench: Harness, restart: Restart) -> None:
    """Set Features without Save changes the current value, which power does not outlive."""
    session = bench.session()
    found = session.admin.run(admin.get_features(Feature.TEMPERATURE_THRESHOLD))
    allowed(found)
    first = found.cqe.dw0
    other = first - 1 if first & 0xFFFF else first + 1
    if not session.admin.run(admin.set_features(Feature.TEMPERATURE_THRESHOLD, other)).ok:
        pytest.skip("the temperature threshold cannot be set")
    restart(session)
    again = bench.session(name="admin queue after the restart")
    found = again.admin.run(admin.get_features(Feature.TEMPERATURE_THRESHOLD))
    allowed(found)
    assert found.cqe.dw0 == first, (
        f"4.4: the temperature threshold is {found.cqe.dw0:#x} after the restart; it was {first:#x}, and "
        f"{other:#x} was set without Save"
    )
