"""Leases: what is granted, breaks by a second client, acknowledgements (MS-SMB2 3.3.5.9.8, .11, 3.3.4.7)."""

from __future__ import annotations

import os
import struct

import pytest

from storagetest.suites.conformance.smb2.support import READ, WRITE, case
from storagetest.wire.smb2 import contexts as c
from storagetest.wire.smb2.caching import granted, has_break, is_held, next_break, open_leased, send_create
from storagetest.wire.smb2.client import acknowledge_lease
from storagetest.wire.smb2.codes import (
    BREAK_ACK_REQUIRED,
    LEASE_BREAK_IN_PROGRESS,
    LEASE_PARENT_KEY_SET,
    Capability,
    Dialect,
    Disposition,
    FileInfo,
    Lease,
    Oplock,
    Options,
    SmbShare,
    SmbStatus,
)
from storagetest.wire.smb2.harness import expect, make_directory

pytestmark = [pytest.mark.needs("smb-wire"), pytest.mark.case(section="MS-SMB2 3.3.5.9.11", level="MUST")]

R, RH, RW, RWH = 1, 3, 5, 7
V1, V2 = "MS-SMB2 3.3.5.9.8", "MS-SMB2 3.3.5.9.11"
BOTH = [(Dialect.SMB_2_1, 1), (Dialect.SMB_3_1_1, 2)]
"""A dialect for each form of the lease context."""


@pytest.fixture
def key():
    return os.urandom(16)


@pytest.fixture
def leasing(bench):
    """Return a function that returns a tree of a dialect; the case is skipped if the server has no leases."""

    def connect(dialect=Dialect.SMB_3_1_1, **more):
        tree = bench.tree([dialect], **more)
        if not tree.session.connection.settled.capabilities & Capability.LEASING:
            pytest.skip("the server has no leases in this dialect")
        return tree

    return connect


def leased(tree, path, key, state, **more):
    """Open a file with a lease of exactly ``state``; skip if the server grants another."""
    file = open_leased(tree, path, key, state, **more)
    grant = granted(file)
    if grant is None or grant.state != state:
        pytest.skip(f"the server does not grant {Lease(state)!r} but {grant and grant.state!r}")
    return file


def each_form(name, *kills, **more):
    """A case of each form of the context, V1 and V2."""
    return pytest.mark.parametrize(
        ("dialect", "version"),
        [
            case(f"SMB-LEASE-V{version}-{name}", dialect, version, kills=kills, section=section, **more)
            for (dialect, version), section in zip(BOTH, (V1, V2), strict=True)
        ],
    )


@pytest.mark.parametrize(
    ("dialect", "version", "state"),
    [
        case(f"SMB-LEASE-V{version}-GRANT-{state}", dialect, version, state, section=section, kills=kills)
        for (dialect, version), section in zip(BOTH, (V1, V2), strict=True)
        for state, kills in (
            (R, ("lease-state-more",)),
            (RH, ("lease-state-more",)),
            (RW, ("lease-state-more",)),
        )
    ],
)  # fmt: skip
def test_no_more_than_the_requested_state_is_granted(leasing, path, key, dialect, version, state):
    grant = granted(open_leased(leasing(dialect), path, key, state, version=version))
    assert grant is None or not grant.state & ~state


@each_form("ALL", "lease-read-only", "lease-context-lost", level="SHOULD")
def test_the_only_open_of_a_file_gets_every_kind_of_caching(leasing, path, key, dialect, version):
    grant = granted(open_leased(leasing(dialect), path, key, RWH, version=version))
    assert grant is not None, "the server has leases, and its response has none"
    assert grant.state == RWH


@each_form("KEY", "lease-key-other")
def test_the_response_has_the_key_of_the_request(leasing, path, key, dialect, version):
    assert granted(leased(leasing(dialect), path, key, RWH, version=version)).key == key


@each_form("LEVEL", "lease-level-other")
def test_the_oplock_level_of_a_lease_is_lease(leasing, path, key, dialect, version):
    message = leased(leasing(dialect), path, key, RWH, version=version).message
    assert message["oplock"] == Oplock.LEASE


@pytest.mark.case("SMB-LEASE-V2-FORM", section="MS-SMB2 2.2.14.2.11", kills=("lease-short",))
def test_a_request_of_the_second_form_gets_a_response_of_it(leasing, path, key):
    assert granted(leased(leasing(), path, key, RWH)).epoch is not None


@pytest.mark.case("SMB-LEASE-V2-PARENT", level="MAY")
def test_the_parents_key_is_returned(leasing, path, key):
    grant = granted(leased(leasing(), path, key, RWH, parent=b"\x31" * 16))
    assert grant.flags & LEASE_PARENT_KEY_SET


@each_form("SAME", "lease-break-own", "lease-again-none")
def test_opens_with_one_key_share_the_lease(leasing, path, key, dialect, version):
    tree = leasing(dialect)
    leased(tree, path, key, RWH, version=version)
    second = granted(open_leased(tree, path, key, RWH, version=version))
    assert second is not None
    assert second.state == RWH
    assert not has_break(tree), "an open with the lease's own key broke it"


@each_form("UPGRADE", "lease-read-only", level="SHOULD")
def test_a_lease_is_upgraded_by_an_open_with_its_key(leasing, path, key, dialect, version):
    tree = leasing(dialect)
    leased(tree, path, key, R, version=version)
    assert granted(open_leased(tree, path, key, RWH, version=version)).state == RWH


@each_form("SMALLER", "lease-state-reduced")
def test_a_smaller_request_does_not_reduce_the_lease(leasing, path, key, dialect, version):
    tree = leasing(dialect)
    leased(tree, path, key, RWH, version=version)
    assert granted(open_leased(tree, path, key, R, version=version)).state == RWH


@each_form("FILE", "accepts-create", "status-create")
def test_a_key_is_that_of_one_file(leasing, path, key, dialect, version):
    tree = leasing(dialect)
    leased(tree, path, key, RWH, version=version)
    context = c.lease_v1(key, RWH) if version == 1 else c.lease_v2(key, RWH)
    message = tree.create(f"{path}-2", oplock=Oplock.LEASE, contexts=[context])
    expect(message, SmbStatus.INVALID_PARAMETER)


@each_form("CLIENT", "status-success-lost")
def test_a_key_is_that_of_one_client(leasing, path, key, dialect, version):
    leased(leasing(dialect), path, key, RWH, version=version)
    open_leased(leasing(dialect), f"{path}-2", key, RWH, version=version)


@pytest.mark.case(
    "SMB-LEASE-V2-EPOCH-SAME",
    section="MS-SMB2 3.3.1.4",
    kills=(
        "lease-again-epoch-zero",
        "lease-epoch-counts",
    ),
    level="SHOULD",
)
def test_an_open_that_changes_no_state_keeps_the_epoch(leasing, path, key):
    tree = leasing()
    first = granted(leased(tree, path, key, RWH))
    assert granted(open_leased(tree, path, key, RWH)).epoch == first.epoch


@pytest.mark.case("SMB-LEASE-V2-EPOCH-NEXT", section="MS-SMB2 2.2.14.2.11", kills=("lease-epoch-stuck",))
def test_a_change_of_state_increments_the_epoch(leasing, path, key):
    tree = leasing()
    first = granted(leased(tree, path, key, R))
    second = granted(leased(tree, path, key, RWH))
    assert second.epoch == (first.epoch + 1) & 0xFFFF


@pytest.mark.parametrize(
    "version",
    [
        case("SMB-LEASE-V1-UNASKED", 1, kills=("lease-without-level",), section=V1),
        case("SMB-LEASE-V2-UNASKED", 2, kills=("lease-without-level",)),
    ],
)
@pytest.mark.case(level="SHOULD")
def test_a_lease_context_without_the_level_is_ignored(leasing, path, key, version):
    context = c.lease_v1(key, RWH) if version == 1 else c.lease_v2(key, RWH)
    file = leasing().open(path, oplock=Oplock.NONE, contexts=[context])
    assert granted(file) is None
    assert file.message["oplock"] != Oplock.LEASE


@pytest.mark.case("SMB-LEASE-LEVEL-ALONE", kills=("oplock-level-other",))
def test_the_level_of_a_lease_without_its_context_is_none(leasing, path):
    assert leasing().open(path, oplock=Oplock.LEASE).message["oplock"] == Oplock.NONE


@pytest.mark.case(
    "SMB-LEASE-DIR", no_mutant_reason="smbd 4.17 has no leases of directories: it is skipped there"
)
def test_a_lease_of_a_directory_has_no_write_caching(leasing, path, key):
    tree = leasing()
    if not tree.session.connection.settled.capabilities & Capability.DIRECTORY_LEASING:
        pytest.skip("the server has no leases of directories")
    make_directory(tree, path)
    file = open_leased(
        tree, path, key, RWH, access=READ, disposition=Disposition.OPEN, options=Options.DIRECTORY_FILE
    )
    grant = granted(file)
    assert grant is None or not grant.state & Lease.WRITE


# Breaks

BREAK = pytest.mark.case(section="MS-SMB2 3.3.4.7")


@pytest.fixture
def broken(leasing, path, key):
    """Break RWH by a second client's open for reading; return trees, the open's id and the notification."""

    def start(dialect=Dialect.SMB_3_1_1, version=2):
        first, second = leasing(dialect), leasing(dialect)
        leased(first, path, key, RWH, version=version)
        mid = send_create(second, path, access=READ, disposition=Disposition.OPEN)
        return first, second, mid, next_break(first)

    return start


def each_break(name, *kills, **more):
    section = more.pop("section", "MS-SMB2 3.3.4.7")
    return pytest.mark.parametrize(
        ("dialect", "version"),
        [
            case(f"SMB-BREAK-V{version}-{name}", dialect, version, kills=kills, section=section, **more)
            for dialect, version in BOTH
        ],
    )


@each_break("READ", "lease-break-lost", "lease-break-key-other")
def test_the_notification_has_the_key_of_the_lease(broken, key, dialect, version):
    assert broken(dialect, version)[3]["lease_key"] == key


@each_break("ONE-CLOSED", "lease-ends-with-one")
def test_a_lease_stays_when_one_of_its_opens_is_closed(leasing, path, key, dialect, version):
    """A lease is that of all opens with its key; the last one that is closed ends it."""
    first, second = leasing(dialect), leasing(dialect)
    leased(first, path, key, RWH, version=version)
    expect(open_leased(first, path, key, RWH, version=version).close())
    send_create(second, path, access=READ, disposition=Disposition.OPEN)
    assert next_break(first)["lease_key"] == key


@each_break("STATES", "lease-break-current-other", "lease-break-new-other", "lease-break-same-state")
def test_the_notification_has_the_states_before_and_after(broken, dialect, version):
    message = broken(dialect, version)[3]
    assert message["current_state"] == RWH
    assert not message["new_state"] & Lease.WRITE
    assert message["new_state"] & Lease.READ


@each_break("FLAG", "lease-break-flag-other")
def test_a_break_of_write_caching_asks_for_an_acknowledgement(broken, dialect, version):
    assert broken(dialect, version)[3]["flags"] & BREAK_ACK_REQUIRED


@pytest.mark.case("SMB-BREAK-V2-EPOCH", section="MS-SMB2 2.2.23.2", kills=("lease-break-epoch-other",))
def test_a_break_increments_the_epoch(leasing, path, key):
    first, second = leasing(), leasing()
    epoch = granted(leased(first, path, key, RWH)).epoch
    send_create(second, path, access=READ, disposition=Disposition.OPEN)
    assert next_break(first)["new_epoch"] == epoch + 1


@pytest.mark.case(
    "SMB-BREAK-V1-EPOCH", section="MS-SMB2 2.2.23.2", level="SHOULD", kills=("lease-break-epoch-other",)
)
def test_the_epoch_of_a_lease_of_the_first_form_is_zero(broken):
    assert broken(Dialect.SMB_2_1, 1)[3]["new_epoch"] == 0


@each_break("HELD", "open-not-held")
def test_the_second_open_waits_for_the_acknowledgement(broken, key, dialect, version):
    first, second, mid, message = broken(dialect, version)
    assert is_held(second, mid), "the open ended before the acknowledgement"
    expect(acknowledge_lease(first, key, message["new_state"]))
    expect(second.receive(mid))


@each_break("ACK", "lease-ack-state-other", "lease-ack-flags", section="MS-SMB2 2.2.25.2")
def test_an_acknowledgement_is_answered_with_its_state(broken, key, dialect, version):
    first, _, _, notified = broken(dialect, version)
    message = expect(acknowledge_lease(first, key, notified["new_state"]))
    assert (message["lease_key"], message["lease_state"]) == (key, notified["new_state"])


@each_break("ACK-NONE", "lease-ack-state-other", "status-success-lost", section="MS-SMB2 3.3.5.22.2")
def test_an_acknowledgement_may_give_up_more(broken, key, dialect, version):
    first, second, mid, _ = broken(dialect, version)
    assert expect(acknowledge_lease(first, key, Lease.NONE))["lease_state"] == Lease.NONE
    expect(second.receive(mid))


@each_break("ACK-MORE", "accepts-oplock-break", "status-oplock-break", section="MS-SMB2 3.3.5.22.2")
def test_an_acknowledgement_of_more_than_the_new_state_is_not_accepted(broken, key, dialect, version):
    expect(acknowledge_lease(broken(dialect, version)[0], key, RWH), SmbStatus.REQUEST_NOT_ACCEPTED)


@each_break("ACK-KEY", "accepts-oplock-break", "status-oplock-break", section="MS-SMB2 3.3.5.22.2")
def test_an_acknowledgement_of_an_unknown_key_is_not_found(broken, key, dialect, version):
    unknown = bytes(one ^ 0xFF for one in key)
    expect(acknowledge_lease(broken(dialect, version)[0], unknown, R), SmbStatus.OBJECT_NAME_NOT_FOUND)


@each_break("ACK-NO-BREAK", "accepts-oplock-break", section="MS-SMB2 3.3.5.22.2")
def test_an_acknowledgement_without_a_break_is_unsuccessful(leasing, path, key, dialect, version):
    tree = leasing(dialect)
    leased(tree, path, key, RWH, version=version)
    expect(acknowledge_lease(tree, key, R), SmbStatus.UNSUCCESSFUL)


@each_break("CLOSE", "status-success-lost")
def test_a_close_ends_the_break(leasing, path, key, dialect, version):
    first, second = leasing(dialect), leasing(dialect)
    file = leased(first, path, key, RWH, version=version)
    mid = send_create(second, path, access=READ, disposition=Disposition.OPEN)
    next_break(first)
    expect(file.close())
    expect(second.receive(mid))


@each_break("OVERWRITE", "lease-break-new-other", section="MS-FSA 2.1.4.12")
def test_an_overwrite_breaks_to_none(leasing, path, key, dialect, version):
    first, second = leasing(dialect), leasing(dialect)
    leased(first, path, key, RWH, version=version)
    mid = send_create(second, path, disposition=Disposition.OVERWRITE)
    message = next_break(first)
    assert not message["new_state"] & Lease.WRITE
    while message["flags"] & BREAK_ACK_REQUIRED:
        expect(acknowledge_lease(first, key, message["new_state"]))
        if message["new_state"] == Lease.NONE:
            break
        message = next_break(first)
    assert message["new_state"] == Lease.NONE
    expect(second.receive(mid))


@each_break("WRITE", "lease-break-lost", "lease-break-flag-other", section="MS-FSA 2.1.5.4")
def test_a_write_of_another_client_breaks_read_caching_without_an_acknowledgement(
    leasing, path, key, dialect, version
):
    first, second = leasing(dialect), leasing(dialect)
    leased(first, path, key, R, version=version)
    expect(second.open(path).write(b"changed"))
    message = next_break(first)
    assert (message["current_state"], message["new_state"], message["flags"]) == (R, Lease.NONE, 0)


@each_break("RESIZE", "lease-break-resize-lost", section="MS-FSA 2.1.5.15.4")
def test_a_change_of_size_by_another_client_breaks_read_caching(leasing, path, key, dialect, version):
    """Setting FileEndOfFileInformation checks for a break as a write does."""
    first, second = leasing(dialect), leasing(dialect)
    leased(first, path, key, R, version=version)
    expect(second.open(path).set(FileInfo.END_OF_FILE, struct.pack("<Q", 100)))
    message = next_break(first)
    assert (message["lease_key"], message["current_state"], message["new_state"]) == (key, R, Lease.NONE)


@each_break("HANDLE", "lease-break-lost", "accepts-create", section="MS-FSA 2.1.5.1.2.2")
def test_a_sharing_violation_breaks_handle_caching_first(leasing, path, key, dialect, version):
    first, second = leasing(dialect), leasing(dialect)
    leased(first, path, key, RH, version=version, access=READ, share=SmbShare.READ)
    mid = send_create(second, path, access=WRITE, disposition=Disposition.OPEN)
    message = next_break(first)
    assert not message["new_state"] & Lease.HANDLE
    expect(acknowledge_lease(first, key, message["new_state"]))
    expect(second.receive(mid), SmbStatus.SHARING_VIOLATION)


@each_break("HANDLE-CLOSE", "lease-break-lost", section="MS-FSA 2.1.5.1.2.2")
def test_a_close_upon_a_break_of_handle_caching_lets_the_open_pass(leasing, path, key, dialect, version):
    first, second = leasing(dialect), leasing(dialect)
    file = leased(first, path, key, RH, version=version, access=READ, share=SmbShare.READ)
    mid = send_create(second, path, access=WRITE, disposition=Disposition.OPEN)
    next_break(first)
    expect(file.close())
    expect(second.receive(mid))


@each_break("STAT", "stat-open-reads", section="MS-FSA 2.1.5.1.2")
def test_an_open_for_attributes_breaks_nothing(leasing, path, key, dialect, version):
    first, second = leasing(dialect), leasing(dialect)
    leased(first, path, key, RWH, version=version)
    second.open(path, access=0x80 | 0x100000, disposition=Disposition.OPEN)  # READ_ATTRIBUTES, SYNCHRONIZE
    assert not has_break(first)


@each_form("RENAME-OWN", "lease-broken-by-own-rename")
def test_a_rename_by_the_open_of_a_lease_does_not_break_it(leasing, path, key, dialect, version):
    """An operation of an open with the lease's key breaks nothing: caching goes on under the new name."""
    tree = leasing(dialect)
    file = leased(tree, path, key, RWH, version=version)
    expect(file.rename(f"{path}-renamed"))
    broken = has_break(tree)
    expect(file.set(FileInfo.DISPOSITION, b"\1"))
    assert not broken, "a rename by the lease's own open broke it"


@each_form("FLAGS", "lease-break-flag-always")
def test_a_lease_that_is_not_broken_has_no_flag_of_a_break(leasing, path, key, dialect, version):
    """SMB2_LEASE_FLAG_BREAK_IN_PROGRESS: a break is in progress, and not so of the first and second open."""
    tree = leasing(dialect)
    first = granted(leased(tree, path, key, RWH, version=version))
    again = granted(open_leased(tree, path, key, RWH, version=version))
    assert again is not None
    for grant in (first, again):
        assert not grant.flags & LEASE_BREAK_IN_PROGRESS, "BREAK_IN_PROGRESS of a lease that is not broken"


@each_break("FLAGS-BROKEN", "lease-break-flag-never", section="MS-SMB2 2.2.14.2.10, 2.2.14.2.11")
def test_an_open_with_the_key_of_a_lease_in_a_break_states_it(broken, path, key, dialect, version):
    first, second, mid, message = broken(dialect, version)
    grant = granted(open_leased(first, path, key, R, version=version))
    expect(acknowledge_lease(first, key, message["new_state"]))
    expect(second.receive(mid))
    assert grant is not None, "no lease for an open with its key"
    assert grant.flags & LEASE_BREAK_IN_PROGRESS, "a break is in progress, and the flags do not state it"
