"""Persistent reservations of two kernels: who may read and write, who may take over, and when it is over.

linux/pr.h; SPC-4 5.13 (persistent reservations); NVM Base 8.1.24. The six kinds are the same in both.
"""

import pytest

from storagetest.agent.testlib.pr_ioctl import clear, preempt, register, release, reserve

pytestmark = [
    pytest.mark.needs("block", "shared", "two_clients"),
    pytest.mark.case(
        level="MUST", section="SPC-4 5.13, NVM Base 8.1.24", no_mutant_reason="a loop device has none"
    ),
]

WE, EA = "write exclusive", "exclusive access"
WE_RO, EA_RO = "write exclusive, registrants only", "exclusive access, registrants only"
WE_AR, EA_AR = "write exclusive, all registrants", "exclusive access, all registrants"
WRONG = 0xBAD


@pytest.mark.parametrize(("kind", "reads"), [
    pytest.param(WE, True, marks=pytest.mark.case("BLK-RES-01")),
    pytest.param(EA, False, marks=pytest.mark.case("BLK-RES-02")),
    pytest.param(WE_RO, True, marks=pytest.mark.case("BLK-RES-03")),
    pytest.param(EA_RO, False, marks=pytest.mark.case("BLK-RES-04")),
    pytest.param(WE_AR, True, marks=pytest.mark.case("BLK-RES-05")),
    pytest.param(EA_AR, False, marks=pytest.mark.case("BLK-RES-06")),
])  # fmt: skip
def test_a_client_that_is_not_registered_is_kept_out(both, kind, reads):
    """Who is not registered cannot write, and under exclusive access cannot read; what is there stays."""
    a, b = both
    a.write(1)
    a.join()
    a.done(reserve(a.key, kind))
    assert not b.may_write(2), f"a write was taken under {kind}"
    assert b.may_read() is reads, f"reading under {kind}"
    assert a.generation() == 1, "a write that was refused was done"
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
def test_a_client_that_is_registered_writes_where_registrants_may(both, kind, writes):
    """A registrant writes under the kinds that say registrants, and under no other."""
    a, b = both
    a.write(1)
    a.join()
    b.join()
    a.done(reserve(a.key, kind))
    assert b.may_write(2) is writes, f"a registrant's write under {kind}"
    assert a.generation() == (2 if writes else 1)


@pytest.mark.case("BLK-RES-13")
def test_a_release_lets_the_other_write(both):
    """When the reservation is released others may write again."""
    a, b = both
    a.join()
    a.done(reserve(a.key, WE))
    assert not b.may_write(1)
    a.done(release(a.key, WE))
    assert b.may_write(2)
    assert a.generation() == 2


@pytest.mark.case("BLK-RES-14")
def test_who_is_not_registered_cannot_reserve(both):
    """A reservation takes a registration."""
    a, b = both
    a.join()
    b.refused(reserve(b.key, WE))
    assert b.may_write(1), "there is a reservation all the same"


@pytest.mark.case("BLK-RES-15")
def test_a_second_reservation_is_refused(both):
    """Where one holds a reservation another registrant cannot make one."""
    a, b = both
    a.join()
    b.join()
    a.done(reserve(a.key, WE))
    b.refused(reserve(b.key, WE))
    b.refused(reserve(b.key, EA))


@pytest.mark.case("BLK-RES-16")
def test_a_wrong_key_reserves_nothing(both):
    """A key that is not the registered one is refused."""
    a, b = both
    a.join()
    a.refused(reserve(WRONG, WE))
    a.refused(register(0x1234, old=WRONG))
    assert b.may_write(1), "there is a reservation all the same"


@pytest.mark.case("BLK-RES-17")
def test_the_holder_may_reserve_again(both):
    """The same reservation by its holder is no conflict."""
    a, _ = both
    a.join()
    a.done(reserve(a.key, EA))
    a.done(reserve(a.key, EA))


@pytest.mark.parametrize("abort", [
    pytest.param(False, marks=pytest.mark.case("BLK-RES-18")),
    pytest.param(True, marks=pytest.mark.case("BLK-RES-19")),
])  # fmt: skip
def test_who_preempts_takes_the_reservation(both, abort):
    """After a preemption the one holds it, and the other is not even registered."""
    a, b = both
    a.write(1)
    a.join()
    b.join()
    a.done(reserve(a.key, WE))
    b.done(preempt(b.key, a.key, WE, abort=abort))
    assert b.may_write(2)
    assert not a.may_write(3), "who was preempted still writes"
    a.refused(reserve(a.key, WE))
    assert b.generation() == 2


@pytest.mark.case("BLK-RES-20")
def test_a_clear_leaves_nothing(both):
    """After a clear nobody holds and nobody is registered."""
    a, b = both
    a.join()
    b.join()
    a.done(reserve(a.key, EA))
    b.done(clear(b.key))
    assert b.may_write(1)
    assert a.generation() == 1
    a.refused(reserve(a.key, WE))
    b.refused(reserve(b.key, WE))


@pytest.mark.case("BLK-RES-21")
def test_who_unregisters_lets_go_of_the_reservation(both):
    """The holder's registration takes the reservation with it."""
    a, b = both
    a.join()
    a.done(reserve(a.key, WE))
    assert not b.may_write(1)
    a.done(register(0, old=a.key))
    assert b.may_write(2)


@pytest.mark.case("BLK-RES-22")
def test_a_reservation_outlives_the_process_that_made_it(both):
    """It is the client's, not the process's: one that is killed takes nothing with it."""
    a, b = both
    a.write(1)
    a.join()
    a.done(reserve(a.key, WE))
    a.hand.kill_worker()
    assert not b.may_write(2)
    assert b.generation() == 1


@pytest.mark.case(
    "BLK-RES-23", section="NVM 3.3.6, SBC-3 WRITE", no_mutant_reason="a loop device has one initiator"
)
def test_what_one_initiator_wrote_the_other_reads(both):
    """Two initiators see the same blocks, each the other's writes."""
    a, b = both
    for generation in range(1, 9):
        (a if generation % 2 else b).write(generation)
        assert (b if generation % 2 else a).generation() == generation
