"""Reservation commands that are refused change nothing: each form of each command (Base 7.5 to 7.7)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from storagetest.wire.nvme import admin, io
from storagetest.wire.nvme.codes import Feature, Rtype, StatusCode, status_name
from storagetest.wire.nvme_tcp import CommandResult
from storagetest.wire.nvme_tcp.harness import refused
from storagetest.wire.nvme_tcp.reservation_harness import (
    ACQUIRE,
    CLEAR,
    HOLDING,
    PERSIST_OFF,
    PERSIST_ON,
    PREEMPT,
    PREEMPT_ABORT,
    REGISTER,
    RELEASE,
    REPLACE,
    UNREGISTER,
    ReservingHost,
    allowed,
    hold,
)

pytestmark = [
    pytest.mark.needs("nvme-tcp-wire"),
    pytest.mark.case(level="MUST", section="Base 8.1.24", builds_on=HOLDING),
]

Hosts = tuple[ReservingHost, ReservingHost]
Uses = Callable[[ReservingHost, ReservingHost], CommandResult]
"""A command of the holder, the first one, or of another registrant, the second one."""

HELD = Rtype.WRITE_EXCLUSIVE
WRONG, NEW = 0xBAD0, 0xC3
RESERVED_ACTIONS = range(3, 8)
"""Values of RREGA and RACQA that are reserved (7.5, 7.6)."""


def _acquire(action: int, rtype: int = HELD, *, key: int | None = None) -> Uses:
    return lambda first, second: second.acquire(rtype, action, key=key, victim=first.key)


def _release(action: int, rtype: int = HELD, *, key: int | None = None) -> Uses:
    return lambda first, _: first.release(rtype, action, key=key)


CONFLICTS: dict[str, Uses] = {
    "REGISTER-KEY": lambda _, second: second.register(new=NEW),
    "REPLACE-KEY": lambda _, second: second.register(REPLACE, current=WRONG, new=NEW),
    "REPLACE-HOLDER": lambda first, _: first.register(REPLACE, current=WRONG, new=NEW),
    "UNREGISTER-KEY": lambda _, second: second.register(UNREGISTER, current=WRONG),
    "UNREGISTER-HOLDER": lambda first, _: first.register(UNREGISTER, current=WRONG),
    "ACQUIRE-OTHER": _acquire(ACQUIRE),
    "ACQUIRE-KEY": _acquire(ACQUIRE, key=WRONG),
    "ACQUIRE-TYPE": lambda first, _: first.acquire(Rtype.EXCLUSIVE_ACCESS),
    "RELEASE-KEY": _release(RELEASE, key=WRONG),
    "CLEAR-KEY": _release(CLEAR, key=WRONG),
}
"""Commands that end with Reservation Conflict: with another key than the registered one, or another type."""


def _each(make: Callable[[int], Uses], values: range) -> list[Uses]:
    return [make(value) for value in values]


INVALID: dict[str, list[Uses]] = {
    "REGISTER-ACTION": _each(
        lambda action: lambda _, second: second.register(action, current=second.key, new=NEW),
        RESERVED_ACTIONS,
    ),
    "ACQUIRE-ACTION": _each(_acquire, RESERVED_ACTIONS),
    "RELEASE-ACTION": _each(_release, range(2, 8)),
    "PREEMPT-TYPE": _each(lambda rtype: _acquire(PREEMPT, rtype), range(7, 256, 31)),
    "ABORT-TYPE": _each(lambda rtype: _acquire(PREEMPT_ABORT, rtype), range(7, 256, 31)),
}
"""Commands that end with Invalid Field: each reserved value of an action, and some of a type."""


def _claim_same(hosts: Hosts, before: object, what: str) -> None:
    """Claim that the report is what it was, and that the holder has access and the other one reads alone."""
    first, second = hosts
    after = second.report()
    assert after == before, f"8.1.24: after {what}, which is refused, the report is {after}; it was {before}"
    allowed(first.write())
    allowed(second.read())
    refused(second.write(), StatusCode.RESERVATION_CONFLICT)


def _prepare(hosts: Hosts) -> object:
    """Let the first host hold, and the second one register; return the report."""
    first, second = hosts
    hold(first, HELD)
    allowed(second.register())
    return second.report()


@pytest.mark.parametrize("name", [
    pytest.param(name, marks=pytest.mark.case(f"NVR-REFUSED-{name}", kills=("refused-reserves",)))
    for name in CONFLICTS
])  # fmt: skip
def test_a_command_that_conflicts_changes_nothing(hosts: Hosts, name: str) -> None:
    before = _prepare(hosts)
    done = CONFLICTS[name](*hosts)
    assert done.status == StatusCode.RESERVATION_CONFLICT, (
        f"8.1.24: {name} ended with {status_name(done.status)}; RESERVATION_CONFLICT (0h/83h) is required"
    )
    _claim_same(hosts, before, name)


@pytest.mark.parametrize("name", [
    pytest.param(name, marks=pytest.mark.case(f"NVR-REFUSED-{name}", kills=("refused-reserves",)))
    for name in INVALID
])  # fmt: skip
@pytest.mark.case(section="Base 1.4.1.6, 7.5, 7.6, 7.7")
def test_a_reserved_value_of_a_reservation_command_changes_nothing(hosts: Hosts, name: str) -> None:
    before = _prepare(hosts)
    for number, use in enumerate(INVALID[name]):
        done = use(*hosts)
        assert done.status == StatusCode.INVALID_FIELD, (
            f"1.4.1.6: {name}, value {number + 1} of {len(INVALID[name])} that are reserved, ended with "
            f"{status_name(done.status)}; INVALID_FIELD (0h/02h) is required"
        )
        _claim_same(hosts, before, name)


@pytest.mark.case("NVR-REFUSED-FREE", section="Base 7.5", kills=("refused-reserves",))
def test_an_acquire_of_a_reserved_type_leaves_the_namespace_free(hosts: Hosts) -> None:
    """No reservation is held: none is created, and the next Acquire succeeds."""
    first, second = hosts
    allowed(first.register())
    before = first.report()
    for rtype in range(7, 256, 31):
        refused(first.acquire(rtype), StatusCode.INVALID_FIELD)
        after = first.report()
        assert after == before, (
            f"7.5: after an Acquire of type {rtype} the report is {after}; it was {before}"
        )
        allowed(second.write())
    allowed(first.acquire(HELD))
    refused(second.write(), StatusCode.RESERVATION_CONFLICT)


@pytest.mark.parametrize(("action", "name"), [
    pytest.param(REGISTER, "Register", marks=pytest.mark.case("NVR-REFUSED-PERSIST-REGISTER")),
    pytest.param(UNREGISTER, "Unregister", marks=pytest.mark.case("NVR-REFUSED-PERSIST-UNREGISTER")),
    pytest.param(REPLACE, "Replace", marks=pytest.mark.case("NVR-REFUSED-PERSIST-REPLACE")),
])  # fmt: skip
@pytest.mark.case(section="Base 7.6", kills=("refused-persists",), builds_on=(*HOLDING, "NVR-PTPL-01"))
def test_a_register_that_conflicts_does_not_change_the_persist_state(
    hosts: Hosts, action: int, name: str
) -> None:
    """CPTPL is of a command that is refused for its key: the state is what it was, off and on."""
    first, second = hosts
    if not first.session.namespace(first.nsid)["rescap"] & 1:
        pytest.skip("RESCAP bit 0: no Persist Through Power Loss")
    for host in hosts:
        allowed(host.register())
    key = first.key
    for kept, other in ((PERSIST_OFF, PERSIST_ON), (PERSIST_ON, PERSIST_OFF)):
        allowed(first.register(REPLACE, current=key, new=key, persist=kept))
        done = second.register(action, current=WRONG, new=NEW, persist=other)
        assert done.status == StatusCode.RESERVATION_CONFLICT, (
            f"8.1.24.3: {name} with another key ended with {status_name(done.status)}"
        )
        found = first.report().persistence
        assert found == kept & 1, (
            f"7.6: PTPLS was {kept & 1}; it is {found} after {name} with CPTPL {other:02b}b that ended "
            "with a Reservation Conflict"
        )


# The key 0, which some controllers refuse


@pytest.mark.parametrize("name", [
    pytest.param("REGISTER", marks=pytest.mark.case("NVR-KEY-0-REGISTER")),
    pytest.param("REPLACE", marks=pytest.mark.case("NVR-KEY-0-REPLACE")),
    pytest.param("IGNORE", marks=pytest.mark.case("NVR-KEY-0-IGNORE")),
])  # fmt: skip
@pytest.mark.case(section="Base 7.6", kills=("key-zero-unregisters",))
def test_the_key_0_is_registered_or_refused(hosts: Hosts, name: str) -> None:
    """A controller may refuse it, and nothing changes; otherwise it is a key as any other."""
    first, _ = hosts
    if name != "REGISTER":
        hold(first, HELD)
    before = first.report()
    action = REGISTER if name == "REGISTER" else REPLACE
    done = first.register(action, current=first.key, new=0, ignore=name == "IGNORE")
    after = first.report()
    found = [(one.key, one.holds) for one in after.registrants]
    if not done.ok:
        assert after == before, (
            f"7.6: NRKEY 0 ended with {status_name(done.status)}, and the report is {after}; it was {before}"
        )
        return
    first.key = 0
    assert found == [(0, name != "REGISTER")], (
        f"7.6: {name} of NRKEY 0 succeeded, and the registrants (key, holds) are {found}"
    )


# The feature of the persist state


@pytest.mark.case(
    "NVR-PTPL-FEATURE",
    section="Base 5.2.26.1.34",
    kills=("persistence-set-anyway",),
    builds_on=("NVR-REG-07", "NVR-PTPL-01"),
)
def test_the_persist_state_is_set_by_its_feature_or_kept(hosts: Hosts) -> None:
    """A Set Features that succeeds sets it; one that is refused does not."""
    first, _ = hosts
    if not first.session.namespace(first.nsid)["rescap"] & 1:
        pytest.skip("RESCAP bit 0: no Persist Through Power Loss")
    allowed(first.register(persist=PERSIST_OFF))
    admin_queue = first.session.admin
    for wanted in (1, 0, 1):
        was = first.report().persistence
        done = admin_queue.run(admin.set_features(Feature.RESERVATION_PERSISTENCE, wanted, nsid=first.nsid))
        read = admin_queue.run(admin.get_features(Feature.RESERVATION_PERSISTENCE, nsid=first.nsid))
        allowed(read)
        found = first.report().persistence, read.cqe.dw0 & 1
        required = wanted if done.ok else was
        assert found == (required, required), (
            f"5.2.26.1.34: PTPL was {was}, and Set Features of {wanted} ended with "
            f"{status_name(done.status)}; PTPLS of the report and the feature are {found}"
        )


@pytest.mark.parametrize("name", [
    pytest.param(name, marks=pytest.mark.case(f"NVR-SHORT-{name}", kills=("reservation-short",)))
    for name in ("REGISTER", "REPLACE", "UNREGISTER", "ACQUIRE", "PREEMPT", "RELEASE", "CLEAR")
])  # fmt: skip
@pytest.mark.case(section="Base 4.3.2", builds_on=(*HOLDING, "NVT-SGL-04"))
def test_a_reservation_command_with_half_of_its_data_changes_nothing(hosts: Hosts, name: str) -> None:
    """The SGL has half of the data structure of the command: Data SGL Length Invalid."""
    first, second = hosts
    hold(first, HELD)
    if name != "REGISTER":
        allowed(second.register())
    before = first.report()
    nsid, whole = second.nsid, io.keys(second.key, first.key)
    commands = {
        "REGISTER": (io.register(nsid, REGISTER), io.keys(0, second.key)),
        "REPLACE": (io.register(nsid, REPLACE), io.keys(second.key, NEW)),
        "UNREGISTER": (io.register(nsid, UNREGISTER), whole),
        "ACQUIRE": (io.acquire(nsid, ACQUIRE, HELD), whole),
        "PREEMPT": (io.acquire(nsid, PREEMPT, HELD), whole),
        "RELEASE": (io.release(nsid, RELEASE, HELD), io.keys(first.key)[:8]),
        "CLEAR": (io.release(nsid, CLEAR, HELD), whole[:8]),
    }
    command, data = commands[name]
    queue = first.queue if name == "RELEASE" else second.queue
    done = queue.run(command, data=data[: len(data) // 2])
    assert not done.ok, (
        f"4.3.2: {name} of {len(data)} bytes succeeds; its SGL has {len(data) // 2}: Data SGL Length Invalid"
    )
    after = first.report()
    assert after == before, (
        f"4.3.2: after {name} with {len(data) // 2} of {len(data)} bytes the report is {after}; it was "
        f"{before}"
    )
