"""NLM version 4 (RFC 1813 6): locks of ranges, locks that wait, and share reservations."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Iterator

import pytest

from storagetest.errors import DeadlineExceeded
from storagetest.polling import wait_until
from storagetest.wire.nfs3.client import ok
from storagetest.wire.nfs3.harness import Nfs3Harness
from storagetest.wire.nfs3.locks import END, LockCallbacks, LockOwner
from storagetest.wire.nfs3.mount import MOUNT_V3
from storagetest.wire.nfs3.nlm import fsh4_access, fsh4_mode, nlm4_stats, nlm4_testargs
from storagetest.wire.nfs3.types import nfs_fh3
from storagetest.wire.rpc import RpcConnection, RpcError
from storagetest.wire.rpc.types import accept_stat

pytestmark = [
    pytest.mark.needs("nfs3-wire", "locks"),
    pytest.mark.case(level="MUST", section="RFC 1813 6.1.4"),
]

NULL, RANGES, PROCEDURES = "RFC 1813 6.2.1", "RFC 1813 6.3.1", "RFC 1813 6.2"
GRANTED, DENIED, BLOCKED = nlm4_stats.NLM4_GRANTED, nlm4_stats.NLM4_DENIED, nlm4_stats.NLM4_BLOCKED
PORT_WAIT = 30.0
"""Seconds to wait for port 111, which one process of the machine has at a time (chosen)."""

Owners = Callable[..., LockOwner]


@pytest.fixture
def file(here) -> nfs_fh3:
    """Return a file of 100 bytes."""
    made: nfs_fh3 = here.file(data=b"x" * 100)
    return made


@pytest.fixture
def callbacks(bench: Nfs3Harness, manager: RpcConnection) -> Iterator[LockCallbacks]:
    """Yield what receives callbacks; skip where they cannot be received."""
    address = manager.link.local_address
    mount = bench.rpc(MOUNT_V3)
    mount.call("MNT", bench.endpoint.export.encode())
    seen = {one.ml_hostname.decode(errors="replace") for one in mount.call("DUMP")}
    addresses = {host for host in seen if is_address(host)}
    if addresses and address not in addresses:
        pytest.skip(f"callbacks are sent to {', '.join(sorted(addresses))}, and this machine is {address}")
    opened: list[LockCallbacks] = []

    def listens() -> bool:
        try:
            opened.append(LockCallbacks(address))
        except PermissionError:
            pytest.skip("callbacks of locks are received on port 111, which needs root")
        except OSError:
            return False
        return True

    try:
        wait_until(listens, PORT_WAIT, f"port 111 of {address}")
    except DeadlineExceeded:
        pytest.skip(f"port 111 of {address} is in use, and callbacks of locks are received there")
    with opened[0]:
        yield opened[0]


def is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def provided(call: Callable[[], nlm4_stats]) -> nlm4_stats:
    """Return the status of a procedure that a server may lack; skip if it does."""
    try:
        return call()
    except RpcError as error:
        if error.reply.accepted == accept_stat.PROC_UNAVAIL:
            pytest.skip(f"the server lacks the procedure: {error}")
        raise


def granted(status: nlm4_stats) -> None:
    assert status == GRANTED, f"{status.name}, not NLM4_GRANTED"


def denied(status: nlm4_stats) -> None:
    assert status == DENIED, f"{status.name}, not NLM4_DENIED"


@pytest.mark.case("NLM-NULL-01", section=NULL, kills=("rpc-null-fails",))
def test_null_of_the_lock_manager_succeeds(manager: RpcConnection) -> None:
    manager.call("NULL")


@pytest.mark.case("NLM-PROC-99", section="RFC 5531 9", kills=("rpc-procedure-accepted",))
def test_an_unknown_procedure_of_the_lock_manager_is_unavailable(manager: RpcConnection) -> None:
    call = manager.encode("NULL").override("body.value.proc", 99)
    reply = manager.receive(manager.send(manager.procedure("NULL"), call))
    assert reply.accepted == accept_stat.PROC_UNAVAIL


# LOCK


@pytest.mark.case("NLM-LOCK-01", kills=("nlm-lock-denied",))
def test_a_range_that_is_free_is_locked(owners: Owners, file) -> None:
    granted(owners().lock(file, 10, 10))


@pytest.mark.case("NLM-LOCK-CONFLICT", kills=("nlm-lock-granted",))
def test_a_range_that_another_owner_has_is_denied(owners: Owners, file) -> None:
    granted(owners().lock(file, 10, 10))
    denied(owners().lock(file, 10, 10))


@pytest.mark.case("NLM-LOCK-SHARED", kills=("nlm-shared-excludes",))
def test_two_owners_have_shared_locks(owners: Owners, file) -> None:
    granted(owners().lock(file, 10, 10, exclusive=False))
    granted(owners().lock(file, 10, 10, exclusive=False))


@pytest.mark.case("NLM-LOCK-SHARED-FIRST", kills=("nlm-lock-granted", "nlm-exclusive-ignored"))
def test_an_exclusive_lock_is_denied_where_another_has_a_shared_one(owners: Owners, file) -> None:
    granted(owners().lock(file, 10, 10, exclusive=False))
    denied(owners().lock(file, 10, 10))


@pytest.mark.case("NLM-LOCK-SHARED-LAST", kills=("nlm-lock-granted",))
def test_a_shared_lock_is_denied_where_another_has_an_exclusive_one(owners: Owners, file) -> None:
    granted(owners().lock(file, 10, 10))
    denied(owners().lock(file, 10, 10, exclusive=False))


@pytest.mark.case("NLM-LOCK-AGAIN", kills=("nlm-lock-own-denied",))
def test_an_owner_locks_its_range_again(owners: Owners, file) -> None:
    owner = owners()
    granted(owner.lock(file, 10, 10))
    granted(owner.lock(file, 10, 10))
    granted(owner.unlock(file, 10, 10))
    granted(owners().lock(file, 10, 10))


@pytest.mark.case("NLM-LOCK-UPGRADE", kills=("nlm-exclusive-ignored",))
def test_a_shared_lock_becomes_exclusive(owners: Owners, file) -> None:
    owner = owners()
    granted(owner.lock(file, 10, 10, exclusive=False))
    granted(owner.lock(file, 10, 10, exclusive=True))
    denied(owners().lock(file, 10, 10, exclusive=False))


@pytest.mark.case("NLM-LOCK-DOWNGRADE", kills=("nlm-exclusive-stays",))
def test_an_exclusive_lock_becomes_shared(owners: Owners, file) -> None:
    owner, other = owners(), owners()
    granted(owner.lock(file, 10, 10, exclusive=True))
    denied(other.lock(file, 10, 10, exclusive=False))
    granted(owner.lock(file, 10, 10, exclusive=False))
    granted(other.lock(file, 10, 10, exclusive=False))


@pytest.mark.parametrize(
    "offset",
    [
        pytest.param(0, id="before", marks=pytest.mark.case("NLM-RANGE-BEFORE")),
        pytest.param(20, id="behind", marks=pytest.mark.case("NLM-RANGE-BEHIND")),
    ],
)
@pytest.mark.case(kills=("nlm-range-whole",))
def test_a_range_next_to_a_locked_one_is_free(owners: Owners, file, offset: int) -> None:
    granted(owners().lock(file, 10, 10))
    granted(owners().lock(file, offset, 10))


@pytest.mark.parametrize(
    ("offset", "length"),
    [
        pytest.param(0, 11, id="first", marks=pytest.mark.case("NLM-RANGE-FIRST")),
        pytest.param(19, 10, id="last", marks=pytest.mark.case("NLM-RANGE-LAST")),
        pytest.param(12, 1, id="inside", marks=pytest.mark.case("NLM-RANGE-INSIDE")),
        pytest.param(0, 100, id="around", marks=pytest.mark.case("NLM-RANGE-AROUND")),
    ],
)
@pytest.mark.case(kills=("nlm-lock-granted",))
def test_a_range_that_overlaps_a_locked_one_is_denied(owners: Owners, file, offset: int, length: int) -> None:
    granted(owners().lock(file, 10, 10))
    denied(owners().lock(file, offset, length))


@pytest.mark.case("NLM-RANGE-END", kills=("nlm-end-short",))
def test_length_0_is_the_rest_of_the_file_however_long(owners: Owners, file) -> None:
    granted(owners().lock(file, 50, END))
    denied(owners().lock(file, 1 << 40, 1))
    granted(owners().lock(file, 0, 50))


@pytest.mark.case("NLM-RANGE-64", section=RANGES, kills=("nlm-offset-32",))
def test_offsets_have_64_bits(owners: Owners, file) -> None:
    granted(owners().lock(file, 1 << 32, 10))
    granted(owners().lock(file, 0, 10))
    denied(owners().lock(file, 1 << 32, 10))


@pytest.mark.case("NLM-LOCK-STALE", kills=("nlm-stale-granted",))
def test_a_removed_file_is_not_locked(manager: RpcConnection, here) -> None:
    removed = here.file(b"removed")  # without data: a server may keep a file that it has opened
    ok(here.nfs.remove(here.handle, b"removed"))
    status = LockOwner(manager, b"storagetest-removed", 1).lock(removed)
    assert status == nlm4_stats.NLM4_STALE_FH, f"{status.name}, not NLM4_STALE_FH"


@pytest.mark.case("NLM-LOCK-FILES", kills=("nlm-files-shared",))
def test_locks_of_two_files_are_apart(owners: Owners, here, file) -> None:
    granted(owners().lock(file))
    granted(owners().lock(here.file(b"second")))


@pytest.mark.case("NLM-LOCK-COOKIE", section=PROCEDURES, kills=("nlm-cookie",))
def test_the_cookie_of_a_result_is_that_of_the_call(owners: Owners, file) -> None:
    granted(owners().lock(file))


@pytest.mark.parametrize(
    "length",
    [
        pytest.param(length, marks=pytest.mark.case(f"NLM-COOKIE-{length}", kills=(kill,)))
        for length, kill in (
            (1, "nlm-cookie-padded"),
            (5, "nlm-cookie-padded"),
            (9, "nlm-cookie-cut"),
            (17, "nlm-cookie-cut"),
            (32, "nlm-cookie-cut"),
        )
    ],
)
@pytest.mark.case(section=PROCEDURES)
def test_a_cookie_of_every_length_comes_back_whole(owners: Owners, file, length: int) -> None:
    """Cookies are opaque, and the client's; servers of today take up to 32 bytes."""
    owner, cookie = owners(), bytes(range(7, 7 + length))
    argument = nlm4_testargs(cookie, exclusive=True, alock=owner.region(file, 0, 10))
    found = owner.rpc.call("TEST", argument)
    assert found.cookie == cookie, f"the cookie of TEST is {found.cookie!r}, and {cookie!r} was sent"


@pytest.mark.case("NLM-NM-LOCK", section=PROCEDURES, kills=("nlm-lock-granted",))
def test_a_lock_without_monitoring_excludes_others(owners: Owners, file) -> None:
    owner = owners()
    granted(provided(lambda: owner.lock(file, procedure="NM_LOCK")))
    denied(owners().lock(file))


@pytest.mark.case("NLM-LOCK-RECLAIM", level="SHOULD", kills=("nlm-reclaim-granted",))
def test_a_lock_is_reclaimed_only_after_a_restart(owners: Owners, file, observe) -> None:
    status = owners().lock(file, reclaim=True)
    observe(status.name)
    assert status != GRANTED, "the server did not restart, and has no lock to reclaim"


# TEST


@pytest.mark.case("NLM-TEST-FREE", kills=("nlm-test-denied",))
def test_a_test_of_a_free_range_is_granted(owners: Owners, file) -> None:
    granted(owners().test(file, 10, 10).stat)


@pytest.mark.case("NLM-TEST-OWN", kills=("nlm-test-denied",))
def test_a_test_of_an_own_range_is_granted(owners: Owners, file) -> None:
    owner = owners()
    granted(owner.lock(file, 10, 10))
    granted(owner.test(file, 10, 10).stat)


@pytest.mark.case("NLM-TEST-HELD", kills=("nlm-test-granted", "nlm-holder-range"))
def test_a_test_states_the_range_of_the_lock_in_the_way(owners: Owners, file) -> None:
    granted(owners().lock(file, 10, 10))
    found = owners().test(file, 0, 100)
    denied(found.stat)
    assert found.value is not None
    assert (found.value.exclusive, found.value.l_offset, found.value.l_len) == (True, 10, 10)


@pytest.mark.case("NLM-TEST-SHARED", kills=("nlm-holder-exclusive",))
def test_a_test_states_whether_the_lock_in_the_way_is_exclusive(owners: Owners, file) -> None:
    granted(owners().lock(file, 10, 10, exclusive=False))
    found = owners().test(file, 0, 100)
    denied(found.stat)
    assert found.value is not None
    assert not found.value.exclusive


@pytest.mark.case("NLM-TEST-OWNER", kills=("nlm-holder-owner",))
def test_a_test_states_the_owner_of_the_lock_in_the_way(owners: Owners, file) -> None:
    holder = owners()
    granted(holder.lock(file, 10, 10))
    found = owners().test(file, 0, 100).value
    assert found is not None
    stated, expected = (found.svid, found.oh), (holder.svid, holder.handle)
    assert stated == expected, f"TEST states the holder {stated}, and it is {expected}"


@pytest.mark.case("NLM-TEST-NOTHING", kills=("nlm-test-locks",))
def test_a_test_locks_nothing(owners: Owners, file) -> None:
    granted(owners().test(file, 10, 10).stat)
    granted(owners().lock(file, 10, 10))


# UNLOCK


@pytest.mark.case("NLM-UNLOCK-01", kills=("nlm-unlock-nothing",))
def test_a_released_range_is_free(owners: Owners, file) -> None:
    owner = owners()
    granted(owner.lock(file, 10, 10))
    granted(owner.unlock(file, 10, 10))
    granted(owners().lock(file, 10, 10))


@pytest.mark.case("NLM-UNLOCK-PART", kills=("nlm-unlock-whole",))
def test_a_part_of_a_range_is_released(owners: Owners, file) -> None:
    owner, other = owners(), owners()
    granted(owner.lock(file, 0, 30))
    granted(owner.unlock(file, 10, 10))
    granted(other.lock(file, 10, 10))
    denied(other.lock(file, 0, 10))
    denied(other.lock(file, 20, 10))


@pytest.mark.case("NLM-UNLOCK-END", kills=("nlm-unlock-end-byte",), builds_on=("NLM-UNLOCK-PART",))
def test_the_end_of_a_range_is_released(owners: Owners, file) -> None:
    """UNLOCK with the length 0 releases all bytes to the end of the file, and none before them."""
    owner, other = owners(), owners()
    granted(owner.lock(file, 0, END))
    granted(owner.unlock(file, 100, END))
    for start, length in ((100, 1), (101, 10), (1 << 40, END)):
        granted(other.lock(file, start, length))
    denied(other.lock(file, 99, 1))


@pytest.mark.case("NLM-UNLOCK-NONE", level="SHOULD", kills=("nlm-unlock-denied",))
def test_what_is_not_locked_is_released(owners: Owners, file) -> None:
    granted(owners().unlock(file, 10, 10))


@pytest.mark.case("NLM-UNLOCK-OTHER", kills=("nlm-unlock-all",))
def test_a_lock_of_another_owner_is_not_released(owners: Owners, file) -> None:
    granted(owners().lock(file, 10, 10))
    owners().unlock(file, 10, 10)
    denied(owners().lock(file, 10, 10))


# Locks that wait


@pytest.mark.case("NLM-BLOCK-01", kills=("nlm-block-denied",))
def test_a_lock_that_may_wait_is_blocked(owners: Owners, file) -> None:
    granted(owners().lock(file, 10, 10))
    waits = owners()
    status = waits.lock(file, 10, 10, block=True)
    assert status == BLOCKED, f"{status.name}, not NLM4_BLOCKED"
    granted(waits.cancel(file, 10, 10))


@pytest.mark.case("NLM-BLOCK-FREE", kills=("nlm-lock-denied",))
def test_a_lock_that_may_wait_is_granted_at_once_if_it_can(owners: Owners, file) -> None:
    granted(owners().lock(file, 10, 10, block=True))


@pytest.mark.case("NLM-BLOCK-CANCEL", kills=("nlm-cancel-nothing",))
def test_a_cancelled_lock_is_not_taken_later(owners: Owners, file) -> None:
    holder, waits = owners(), owners()
    granted(holder.lock(file, 10, 10))
    assert waits.lock(file, 10, 10, block=True) == BLOCKED
    granted(waits.cancel(file, 10, 10))
    granted(holder.unlock(file, 10, 10))
    granted(owners().lock(file, 10, 10))


@pytest.mark.case("NLM-BLOCK-GRANTED", kills=("nlm-block-forgotten",))
def test_a_lock_that_waits_is_granted_by_a_callback(
    bench: Nfs3Harness, owners: Owners, file, callbacks: LockCallbacks
) -> None:
    holder = owners()
    waits = owners(host=holder.rpc.link.local_address.encode())  # servers resolve the name that they call
    granted(holder.lock(file, 10, 10))
    assert waits.lock(file, 10, 10, block=True) == BLOCKED
    granted(holder.unlock(file, 10, 10))
    called = callbacks.wait(waits, deadline=bench.endpoint.deadline)
    waits.confirm(called)
    region = called.argument.alock
    assert (region.fh, region.svid, region.l_offset, region.l_len) == (file.data, waits.svid, 10, 10)
    assert called.argument.exclusive
    denied(owners().lock(file, 10, 10))


@pytest.mark.case(
    "NLM-BLOCK-TWO", kills=("nlm-second-waiter-lost",), builds_on=("NLM-BLOCK-GRANTED", "NLM-UNLOCK-01")
)
def test_each_of_two_locks_that_wait_is_granted_in_its_turn(
    bench: Nfs3Harness, owners: Owners, file, callbacks: LockCallbacks
) -> None:
    """The server chooses whose turn it is."""
    holder = owners()
    host = holder.rpc.link.local_address.encode()
    waiting = [owners(host=host) for _ in range(2)]
    granted(holder.lock(file, 10, 10))
    for owner in waiting:
        assert owner.lock(file, 10, 10, block=True) == BLOCKED
    granted(holder.unlock(file, 10, 10))
    called = callbacks.wait(*waiting, deadline=bench.endpoint.deadline)
    first, second = sorted(waiting, key=lambda owner: owner.handle != called.argument.alock.oh)
    first.confirm(called)
    denied(owners().lock(file, 10, 10))
    granted(first.unlock(file, 10, 10))
    second.confirm(callbacks.wait(second, deadline=bench.endpoint.deadline))
    denied(owners().lock(file, 10, 10))


@pytest.mark.parametrize(
    ("other", "offset", "length"),
    [
        pytest.param(*each, marks=pytest.mark.case(f"NLM-CANCEL-{name}", kills=("nlm-cancel-any",)))
        for name, each in {
            "PART": (False, 10, 5),
            "BEFORE": (False, 0, 5),
            "OTHER": (True, 10, 10),
        }.items()
    ],
)
def test_a_cancel_of_another_lock_leaves_the_one_that_waits(
    bench: Nfs3Harness,
    owners: Owners,
    file,
    callbacks: LockCallbacks,
    other: bool,
    offset: int,
    length: int,
) -> None:
    """A lock that waits is named by its range and its owner; whatever CANCEL of another one returns."""
    holder = owners()
    host = holder.rpc.link.local_address.encode()
    waits, stranger = owners(host=host), owners(host=host)
    granted(holder.lock(file, 10, 10))
    assert waits.lock(file, 10, 10, block=True) == BLOCKED
    (stranger if other else waits).cancel(file, offset, length)
    granted(holder.unlock(file, 10, 10))
    waits.confirm(callbacks.wait(waits, deadline=bench.endpoint.deadline))
    denied(owners().lock(file, 10, 10))


# Shares

DENY_WRITE, DENY_NONE = fsh4_mode.fsm_DW, fsh4_mode.fsm_DN
READ, WRITE, BOTH = fsh4_access.fsa_R, fsh4_access.fsa_W, fsh4_access.fsa_RW


@pytest.mark.parametrize(
    ("deny", "access"),
    [
        pytest.param(DENY_NONE, WRITE, id="access", marks=pytest.mark.case("NLM-SHARE-ACCESS")),
        pytest.param(fsh4_mode.fsm_DR, READ, id="deny", marks=pytest.mark.case("NLM-SHARE-DENY")),
        pytest.param(fsh4_mode.fsm_DRW, BOTH, id="both", marks=pytest.mark.case("NLM-SHARE-BOTH")),
    ],
)
@pytest.mark.case(kills=("nlm-share-granted",))
def test_a_share_that_conflicts_is_denied(owners: Owners, file, deny, access) -> None:
    owner = owners()
    granted(provided(lambda: owner.share(file, DENY_WRITE, READ)))
    denied(owners().share(file, deny, access))


@pytest.mark.case("NLM-SHARE-FREE", kills=("nlm-share-denied",))
def test_shares_that_do_not_conflict_are_granted(owners: Owners, file) -> None:
    owner = owners()
    granted(provided(lambda: owner.share(file, DENY_WRITE, READ)))
    granted(owners().share(file, DENY_NONE, READ))


@pytest.mark.case(
    "NLM-UNSHARE-01", section=PROCEDURES, no_mutant_reason="the server of the mutants breaks this rule itself"
)
def test_a_share_that_is_given_back_is_in_no_way(owners: Owners, file) -> None:
    owner = owners()
    granted(provided(lambda: owner.share(file, DENY_WRITE, READ)))
    granted(owner.unshare(file, DENY_WRITE, READ))
    granted(owners().share(file, DENY_NONE, WRITE))


@pytest.mark.case("NLM-UNSHARE-OTHER", section=PROCEDURES, kills=("nlm-unshare-others",))
def test_a_share_stays_when_another_owner_gives_its_own_back(owners: Owners, file) -> None:
    first, second = owners(), owners()
    granted(provided(lambda: first.share(file, DENY_WRITE, READ)))
    granted(second.share(file, DENY_WRITE, READ))
    granted(second.unshare(file, DENY_WRITE, READ))
    denied(owners().share(file, DENY_NONE, WRITE))


@pytest.mark.exclusive  # some servers (knfsd) know a host by its address: all processes of this machine
@pytest.mark.case(
    "NLM-FREE-ALL", section=PROCEDURES, no_mutant_reason="the server of the mutants ends with this call"
)
def test_free_all_releases_the_locks_of_its_host(owners: Owners, file) -> None:
    forgetful = owners(host=b"storagetest-forgetful")
    granted(forgetful.lock(file, 0, 10))
    forgetful.free_all()
    granted(owners().lock(file, 0, 10))
