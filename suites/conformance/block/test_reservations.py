"""Persistent reservations of two clients: access, preemption, release and clear.

linux/pr.h; SPC-4 5.13 (persistent reservations); NVM Base 8.1.24. The six kinds are the same in both.
"""

import pytest

from storagetest.agent.testlib.pr_ioctl import clear, preempt, register, release, reserve

pytestmark = [
    pytest.mark.needs("block", "shared", "two_clients"),
    pytest.mark.case(
        level="MUST",
        section="SPC-4 5.13, NVM Base 8.1.24",
        no_mutant_reason="a loop device has none",
        builds_on=("BLK-RES-24",),
    ),
]

WE, EA = "write exclusive", "exclusive access"
WE_RO, EA_RO = "write exclusive, registrants only", "exclusive access, registrants only"
WE_AR, EA_AR = "write exclusive, all registrants", "exclusive access, all registrants"
WRONG = 0xBAD


@pytest.mark.case("BLK-RES-24")
def test_client_registers_and_reserves(both):
    """A client registers a key and makes a reservation."""
    a, _ = both
    a.register_key()
    a.assert_succeeds(reserve(a.key, WE))


@pytest.mark.parametrize(("kind", "reads"), [
    pytest.param(WE, True, marks=pytest.mark.case("BLK-RES-01")),
    pytest.param(EA, False, marks=pytest.mark.case("BLK-RES-02")),
    pytest.param(WE_RO, True, marks=pytest.mark.case("BLK-RES-03")),
    pytest.param(EA_RO, False, marks=pytest.mark.case("BLK-RES-04")),
    pytest.param(WE_AR, True, marks=pytest.mark.case("BLK-RES-05")),
    pytest.param(EA_AR, False, marks=pytest.mark.case("BLK-RES-06")),
])  # fmt: skip
def test_unregistered_client_is_excluded(both, kind, reads):
    """Without a registration a client cannot write and, under exclusive access, cannot read."""
    a, b = both
    a.write(1)
    a.register_key()
    a.assert_succeeds(reserve(a.key, kind))
    assert not b.may_write(2), f"a write succeeded under {kind}"
    assert b.may_read() is reads, f"reading under {kind}"
    assert a.generation() == 1, "a refused write was executed"
    a.write(3)
    assert a.generation() == 3


@pytest.mark.parametrize(("kind", "writes"), [
    pytest.param(WE, False, marks=pytest.mark.case("BLK-RES-07")),
    pytest.param(EA, False, marks=pytest.mark.case("BLK-RES-08")),
    pytest.param(WE_RO, True, marks=pytest.mark.case("BLK-RES-09")),
    pytest.param(EA_RO, True, marks=pytest.mark.case("BLK-RES-10")),
    pytest.param(WE_AR, True, marks=pytest.mark.case("BLK-RES-11")),
    pytest.param(EA_AR, True, marks=pytest.mark.case("BLK-RES-12")),
])  # fmt: skip
def test_registered_client_writes_under_registrants_kinds(both, kind, writes):
    """A registrant writes under the kinds for registrants only, and under no other."""
    a, b = both
    a.write(1)
    a.register_key()
    b.register_key()
    a.assert_succeeds(reserve(a.key, kind))
    assert b.may_write(2) is writes, f"a registrant's write under {kind}"
    assert a.generation() == (2 if writes else 1)


@pytest.mark.case("BLK-RES-13")
def test_release_ends_the_reservation(both):
    """After the release of the reservation other clients can write."""
    a, b = both
    a.register_key()
    a.assert_succeeds(reserve(a.key, WE))
    assert not b.may_write(1)
    a.assert_succeeds(release(a.key, WE))
    assert b.may_write(2)
    assert a.generation() == 2


@pytest.mark.case("BLK-RES-14")
def test_reserve_requires_a_registration(both):
    """A reservation requires a registration."""
    a, b = both
    a.register_key()
    b.assert_conflict(reserve(b.key, WE))
    assert b.may_write(1), "a refused reservation is in effect"


@pytest.mark.case("BLK-RES-15")
def test_second_reservation_is_refused(both):
    """While one client holds a reservation, another registrant cannot make one."""
    a, b = both
    a.register_key()
    b.register_key()
    a.assert_succeeds(reserve(a.key, WE))
    b.assert_conflict(reserve(b.key, WE))
    b.assert_conflict(reserve(b.key, EA))


@pytest.mark.case("BLK-RES-16")
def test_wrong_key_is_refused(both):
    """A key that is not the registered one is refused."""
    a, b = both
    a.register_key()
    a.assert_conflict(reserve(WRONG, WE))
    a.assert_conflict(register(0x1234, old=WRONG))
    assert b.may_write(1), "a refused reservation is in effect"


@pytest.mark.case("BLK-RES-17")
def test_holder_may_repeat_its_reservation(both):
    """The holder may make the same reservation again."""
    a, _ = both
    a.register_key()
    a.assert_succeeds(reserve(a.key, EA))
    a.assert_succeeds(reserve(a.key, EA))


@pytest.mark.parametrize("abort", [
    pytest.param(False, marks=pytest.mark.case("BLK-RES-18")),
    pytest.param(True, marks=pytest.mark.case("BLK-RES-19")),
])  # fmt: skip
def test_preempt_transfers_the_reservation(both, abort):
    """After a preemption the preempting client holds the reservation, and the other is not registered."""
    a, b = both
    a.write(1)
    a.register_key()
    b.register_key()
    a.assert_succeeds(reserve(a.key, WE))
    b.assert_succeeds(preempt(b.key, a.key, WE, abort=abort))
    assert b.may_write(2)
    assert not a.may_write(3), "the preempted client still writes"
    a.assert_conflict(reserve(a.key, WE))
    assert b.generation() == 2


@pytest.mark.case("BLK-RES-20")
def test_clear_removes_reservation_and_registrations(both):
    """After a clear there are no reservation and no registration."""
    a, b = both
    a.register_key()
    b.register_key()
    a.assert_succeeds(reserve(a.key, EA))
    b.assert_succeeds(clear(b.key))
    assert b.may_write(1)
    assert a.generation() == 1
    a.assert_conflict(reserve(a.key, WE))
    b.assert_conflict(reserve(b.key, WE))


@pytest.mark.case("BLK-RES-21")
def test_unregistration_of_the_holder_releases_its_reservation(both):
    """If the holder unregisters, its reservation ends."""
    a, b = both
    a.register_key()
    a.assert_succeeds(reserve(a.key, WE))
    assert not b.may_write(1)
    a.assert_succeeds(register(0, old=a.key))
    assert b.may_write(2)


@pytest.mark.case("BLK-RES-22")
def test_reservation_survives_its_process(both):
    """A reservation belongs to the client: it persists after the process that made it is killed."""
    a, b = both
    a.write(1)
    a.register_key()
    a.assert_succeeds(reserve(a.key, WE))
    a.session.kill_worker()
    assert not b.may_write(2)
    assert b.generation() == 1


@pytest.mark.case(
    "BLK-RES-23",
    section="NVM 3.3.6, SBC-3 WRITE",
    no_mutant_reason="a loop device has one initiator",
    builds_on=(),
)
def test_initiators_read_each_others_writes(both):
    """Each of two initiators reads the blocks that the other wrote."""
    a, b = both
    for generation in range(1, 9):
        (a if generation % 2 else b).write(generation)
        assert (b if generation % 2 else a).generation() == generation
