"""Reservations between two hosts (Base 7.5 to 7.8, 8.1.24)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from storagetest.wire.nvme import admin, io
from storagetest.wire.nvme.codes import ONCS_BITS, Io, LogPage, Rtype, StatusCode, status_name
from storagetest.wire.nvme_tcp import CommandResult
from storagetest.wire.nvme_tcp.harness import Harness, refused, request_event
from storagetest.wire.nvme_tcp.reservation_harness import (
    CLEAR,
    HOLDING,
    PREEMPT,
    PREEMPT_ABORT,
    REPLACE,
    UNREGISTER,
    ReservingHost,
    allowed,
    hold,
)

pytestmark = [
    pytest.mark.needs("nvme-tcp-wire"),
    pytest.mark.case(level="MUST", section="Base 8.1.24.1", builds_on=("NVR-REG-07",)),
]

# The premises of the other cases


@pytest.mark.case("NVR-REG-07", section="Base 7.6", kills=("register-refused",))
def test_a_host_may_register(hosts: tuple[ReservingHost, ReservingHost]) -> None:
    first, _ = hosts
    allowed(first.register())


@pytest.mark.case("NVR-ACQ-07", section="Base 7.5", kills=("acquire-refused",))
def test_a_registrant_may_acquire(hosts: tuple[ReservingHost, ReservingHost]) -> None:
    first, _ = hosts
    hold(first, WE)


# Commands allowed to each host: the tables of 8.1.24.1

WE, EA, WR, ER, WA, EALL = Rtype
TABLE = {
    # type: (registrant reads, registrant writes, other reads, other writes)
    WE: (True, False, True, False),
    EA: (False, False, False, False),
    WR: (True, True, True, False),
    ER: (True, True, False, False),
    WA: (True, True, True, False),
    EALL: (True, True, False, False),
}
SHORT = {WE: "WE", EA: "EA", WR: "WERO", ER: "EARO", WA: "WEAR", EALL: "EAAR"}


def access(command: str, column: int, *, registrant: bool) -> pytest.MarkDecorator:
    """One case for each type, in one column of the table."""
    host = "REG" if registrant else "OTHER"
    return pytest.mark.parametrize(
        ("rtype", "may"),
        [
            pytest.param(
                rtype,
                row[column],
                id=SHORT[rtype],
                marks=pytest.mark.case(
                    f"NVR-{SHORT[rtype]}-{host}-{command}",
                    kills=("reservation-too-strict",) if row[column] else ("reservation-not-enforced",),
                    builds_on=HOLDING,
                ),
            )
            for rtype, row in TABLE.items()
        ],
    )


def check(done: CommandResult, may: bool) -> None:
    if may:
        allowed(done)
    else:
        refused(done, StatusCode.RESERVATION_CONFLICT)


@access("READ", 0, registrant=True)
def test_a_registrant_reads_as_the_type_allows(
    hosts: tuple[ReservingHost, ReservingHost], rtype: int, may: bool
) -> None:
    holder, registrant = hosts
    hold(holder, rtype)
    allowed(registrant.register())
    check(registrant.read(), may)


@access("WRITE", 1, registrant=True)
def test_a_registrant_writes_as_the_type_allows(
    hosts: tuple[ReservingHost, ReservingHost], rtype: int, may: bool
) -> None:
    holder, registrant = hosts
    hold(holder, rtype)
    allowed(registrant.register())
    check(registrant.write(), may)


@access("READ", 2, registrant=False)
def test_another_host_reads_as_the_type_allows(
    hosts: tuple[ReservingHost, ReservingHost], rtype: int, may: bool
) -> None:
    holder, other = hosts
    hold(holder, rtype)
    check(other.read(), may)


@access("WRITE", 3, registrant=False)
def test_another_host_does_not_write(
    hosts: tuple[ReservingHost, ReservingHost], rtype: int, may: bool
) -> None:
    holder, other = hosts
    hold(holder, rtype)
    check(other.write(), may)


@pytest.mark.parametrize("rtype", [
    pytest.param(
        one,
        id=SHORT[one],
        marks=pytest.mark.case(
            f"NVR-{SHORT[one]}-HOLDER", kills=("reservation-too-strict",), builds_on=HOLDING
        ),
    )
    for one in Rtype
])  # fmt: skip
def test_the_holder_reads_and_writes(hosts: tuple[ReservingHost, ReservingHost], rtype: int) -> None:
    holder, _ = hosts
    hold(holder, rtype)
    allowed(holder.read())
    allowed(holder.write())


# Register (7.6, 8.1.24.3, 8.1.24.4)


@pytest.mark.case("NVR-REG-01", section="Base 7.6", kills=("report-empty",))
def test_a_registration_is_reported(hosts: tuple[ReservingHost, ReservingHost]) -> None:
    first, _ = hosts
    allowed(first.register())
    seen = [(one.key, one.hostid, one.holds) for one in first.report().registrants]
    assert seen == [(first.key, first.session.identity.hostid, False)]


@pytest.mark.case("NVR-REG-02", section="Base 8.1.24.3", kills=("reservation-key-unchecked",))
def test_a_second_key_needs_replace(hosts: tuple[ReservingHost, ReservingHost]) -> None:
    first, _ = hosts
    allowed(first.register())
    refused(first.register(new=0xC3), StatusCode.RESERVATION_CONFLICT)
    allowed(first.register(REPLACE, current=first.key, new=0xC3))
    assert [one.key for one in first.report().registrants] == [0xC3]


@pytest.mark.case("NVR-REG-AGAIN", section="Base 8.1.24.3", kills=("register-again-refused",))
def test_a_registrant_registers_its_key_again(hosts: tuple[ReservingHost, ReservingHost]) -> None:
    first, second = hosts
    for _ in range(3):
        allowed(first.register())
    allowed(second.register())
    allowed(first.register())
    assert sorted(one.key for one in first.report().registrants) == sorted((first.key, second.key))


@pytest.mark.case("NVR-REG-03", section="Base 8.1.24.3", kills=("reservation-key-unchecked",))
def test_replace_wants_the_current_key(hosts: tuple[ReservingHost, ReservingHost]) -> None:
    first, _ = hosts
    allowed(first.register())
    refused(first.register(REPLACE, current=0xDEAD, new=0xC3), StatusCode.RESERVATION_CONFLICT)


@pytest.mark.case("NVR-REG-04", section="Base 7.6", kills=("iekey-ignored",))
def test_ignore_existing_key_replaces_unseen(hosts: tuple[ReservingHost, ReservingHost]) -> None:
    first, _ = hosts
    allowed(first.register())
    allowed(first.register(REPLACE, current=0xDEAD, new=0xC3, ignore=True))
    first.key = 0xC3
    assert [one.key for one in first.report().registrants] == [0xC3]


@pytest.mark.case(
    "NVR-REG-09",
    section="Base 8.1.24.3",
    kills=("replaced-key-still-acquires",),
    builds_on=("NVR-REG-02",),
)
def test_a_key_that_was_replaced_is_no_key(hosts: tuple[ReservingHost, ReservingHost]) -> None:
    """After Replace only the new key is the host's: the old one ends every command in a conflict."""
    first, _ = hosts
    old, new = first.key, 0xC3
    allowed(first.register())
    allowed(first.register(REPLACE, current=old, new=new))

    def conflicts(name: str, done: CommandResult) -> None:
        assert done.status == StatusCode.RESERVATION_CONFLICT, (
            f"8.1.24.3: {name} with key {old:#x}, which was replaced by {new:#x}, ended with "
            f"{status_name(done.status)}"
        )

    conflicts("Acquire", first.acquire(WE, key=old))
    allowed(first.acquire(WE, key=new))
    conflicts("Release", first.release(WE, key=old))
    conflicts("Replace", first.register(REPLACE, current=old, new=0xD4))
    conflicts("Unregister", first.register(UNREGISTER, current=old))
    allowed(first.release(WE, key=new))


@pytest.mark.case("NVR-REG-05", section="Base 8.1.24.4", kills=("reservation-key-unchecked",))
def test_unregister_wants_the_current_key(hosts: tuple[ReservingHost, ReservingHost]) -> None:
    first, _ = hosts
    allowed(first.register())
    refused(first.register(UNREGISTER, current=0xDEAD), StatusCode.RESERVATION_CONFLICT)
    allowed(first.register(UNREGISTER, current=first.key))
    assert first.report().registrants == ()


@pytest.mark.case("NVR-REG-06", section="Base 8.1.24.4", kills=("reservation-outlives",), builds_on=HOLDING)
def test_a_reservation_goes_with_its_holders_registration(hosts: tuple[ReservingHost, ReservingHost]) -> None:
    first, second = hosts
    hold(first, WE)
    allowed(first.register(UNREGISTER, current=first.key))
    assert second.report().rtype == 0, "8.1.24.4: unregistering the holder releases the reservation"
    allowed(second.write())


@pytest.mark.case("NVR-GEN-01", section="Base 7.8", kills=("generation-stuck",))
def test_the_generation_counts_registrations(hosts: tuple[ReservingHost, ReservingHost]) -> None:
    first, second = hosts
    before = first.report().generation
    allowed(first.register())
    allowed(second.register())
    assert first.report().generation == (before + 2) % 2**32, "7.8: GEN counts Register commands"


@pytest.mark.case("NVR-GEN-02", section="Base 7.8", kills=("generation-runs",), builds_on=HOLDING)
def test_the_generation_does_not_count_acquire_and_release(
    hosts: tuple[ReservingHost, ReservingHost],
) -> None:
    first, _ = hosts
    allowed(first.register())
    before = first.report().generation
    allowed(first.acquire(WE))
    allowed(first.release(WE))
    assert first.report().generation == before, "7.8: GEN does not count Acquire (0h) and Release (0h)"


# Acquire (7.5, 8.1.24.5)


@pytest.mark.case("NVR-ACQ-01", section="Base 8.1.24.5", kills=("reservation-not-enforced",), builds_on=())
def test_only_a_registrant_acquires(hosts: tuple[ReservingHost, ReservingHost]) -> None:
    first, _ = hosts
    refused(first.acquire(WE), StatusCode.RESERVATION_CONFLICT)


@pytest.mark.case("NVR-ACQ-02", section="Base 8.1.24.5", kills=("reservation-key-unchecked",))
def test_acquire_wants_the_key(hosts: tuple[ReservingHost, ReservingHost]) -> None:
    first, _ = hosts
    allowed(first.register())
    refused(first.acquire(WE, key=0xDEAD), StatusCode.RESERVATION_CONFLICT)


@pytest.mark.case("NVR-ACQ-03", section="Base 8.1.24.5", kills=("reservation-stolen",), builds_on=HOLDING)
def test_a_held_reservation_is_not_acquired_by_another(hosts: tuple[ReservingHost, ReservingHost]) -> None:
    first, second = hosts
    hold(first, WE)
    allowed(second.register())
    refused(second.acquire(WE), StatusCode.RESERVATION_CONFLICT)


@pytest.mark.case("NVR-ACQ-04", section="Base 8.1.24.5", kills=("acquire-again-refused",), builds_on=HOLDING)
def test_the_holder_may_acquire_again(hosts: tuple[ReservingHost, ReservingHost]) -> None:
    first, _ = hosts
    hold(first, WE)
    allowed(first.acquire(WE))


@pytest.mark.case("NVR-ACQ-05", section="Base 8.1.24.5", kills=("reservation-stolen",), builds_on=HOLDING)
def test_the_holder_does_not_change_the_type(hosts: tuple[ReservingHost, ReservingHost]) -> None:
    first, _ = hosts
    hold(first, WE)
    refused(first.acquire(EA), StatusCode.RESERVATION_CONFLICT)


@pytest.mark.case("NVR-ACQ-06", section="Base 7.5", kills=("rtype-unchecked",))
def test_a_type_that_does_not_exist_is_refused(hosts: tuple[ReservingHost, ReservingHost]) -> None:
    first, _ = hosts
    allowed(first.register())
    refused(first.acquire(7), StatusCode.INVALID_FIELD)


@pytest.mark.case("NVR-REPORT-01", section="Base 7.8", kills=("report-holder-lost",), builds_on=HOLDING)
def test_the_holder_is_reported(hosts: tuple[ReservingHost, ReservingHost]) -> None:
    first, second = hosts
    hold(first, ER)
    allowed(second.register())
    status = second.report()
    assert status.rtype == ER, "7.8: RTYPE"
    assert {one.key: one.holds for one in status.registrants} == {first.key: True, second.key: False}


@pytest.mark.case("NVR-REPORT-02", section="Base 7.8", kills=("report-holder-lost",), builds_on=HOLDING)
def test_all_registrants_hold_if_the_type_requires_it(hosts: tuple[ReservingHost, ReservingHost]) -> None:
    first, second = hosts
    hold(first, EALL)
    allowed(second.register())
    assert all(one.holds for one in second.report().registrants), "8.1.24.1: every registrant is a holder"


# Release and Clear (7.7, 8.1.24.6, 8.1.24.8)


@pytest.mark.case("NVR-REL-01", section="Base 8.1.24.6", kills=("release-ignored",), builds_on=HOLDING)
def test_a_released_reservation_binds_no_host(hosts: tuple[ReservingHost, ReservingHost]) -> None:
    first, second = hosts
    hold(first, EA)
    allowed(first.release(EA))
    assert first.report().rtype == 0
    allowed(second.write())


@pytest.mark.case(
    "NVR-REL-02", section="Base 7.7", level="SHOULD", kills=("release-type",), builds_on=HOLDING
)
def test_release_wants_the_right_type(hosts: tuple[ReservingHost, ReservingHost]) -> None:
    first, _ = hosts
    hold(first, WE)
    refused(first.release(EA), StatusCode.INVALID_FIELD)
    assert first.report().rtype == WE


@pytest.mark.case("NVR-REL-03", section="Base 8.1.24.6", kills=("release-by-any-host",), builds_on=HOLDING)
def test_another_registrants_release_changes_nothing(hosts: tuple[ReservingHost, ReservingHost]) -> None:
    first, second = hosts
    hold(first, WE)
    allowed(second.register())
    allowed(second.release(WE))
    assert first.report().rtype == WE, "8.1.24.6: only a holder's release releases"


@pytest.mark.case(
    "NVR-REL-04", section="Base 8.1.24.6", kills=("reservation-key-unchecked",), builds_on=HOLDING
)
def test_release_wants_the_key(hosts: tuple[ReservingHost, ReservingHost]) -> None:
    first, _ = hosts
    hold(first, WE)
    refused(first.release(WE, key=0xDEAD), StatusCode.RESERVATION_CONFLICT)


@pytest.mark.case("NVR-CLEAR-01", section="Base 8.1.24.8", kills=("clear-ignored",), builds_on=HOLDING)
def test_clear_removes_everything(hosts: tuple[ReservingHost, ReservingHost]) -> None:
    first, second = hosts
    hold(first, WE)
    allowed(second.register())
    allowed(second.release(WE, CLEAR))
    status = first.report()
    assert (status.rtype, status.registrants) == (0, ()), (
        "8.1.24.8: Clear frees the reservation and every registration"
    )


# Preempt (7.5, 8.1.24.7)


@pytest.mark.case(section="Base 8.1.24.7", builds_on=HOLDING)
@pytest.mark.parametrize("action", [
    pytest.param(
        PREEMPT,
        marks=pytest.mark.case("NVR-PREEMPT-01", kills=("preempt-ignored", "preempt-keeps-type")),
    ),
    pytest.param(PREEMPT_ABORT, marks=pytest.mark.case("NVR-PREEMPT-02", kills=("preempt-ignored",))),
])  # fmt: skip
def test_preempt_takes_the_reservation_and_unregisters_holder(
    hosts: tuple[ReservingHost, ReservingHost], action: int
) -> None:
    first, second = hosts
    hold(first, WE)
    allowed(second.register())
    allowed(second.acquire(EA, action, victim=first.key))
    status = second.report()
    assert status.rtype == EA
    assert [(one.key, one.holds) for one in status.registrants] == [(second.key, True)]
    refused(first.write(), StatusCode.RESERVATION_CONFLICT)


@pytest.mark.case("NVR-PREEMPT-03", section="Base 8.1.24.7", kills=("preempt-unknown",), builds_on=HOLDING)
def test_preempt_of_an_unknown_key_is_a_conflict_where_all_registrantshold(
    hosts: tuple[ReservingHost, ReservingHost],
) -> None:
    first, second = hosts
    hold(first, WA)
    allowed(second.register())
    refused(second.acquire(WA, PREEMPT, victim=0xDEAD), StatusCode.RESERVATION_CONFLICT)


@pytest.mark.case("NVR-PREEMPT-04", section="Base 8.1.24.7", kills=("preempt-takes",), builds_on=HOLDING)
def test_preempt_of_a_mere_registrant_leaves_the_reservation(
    hosts: tuple[ReservingHost, ReservingHost],
) -> None:
    first, second = hosts
    hold(first, WE)
    allowed(second.register())
    allowed(first.acquire(WE, PREEMPT, victim=second.key))
    status = first.report()
    assert [(one.key, one.holds) for one in status.registrants] == [(first.key, True)]


@pytest.mark.case(
    "NVR-NOTICE-01", section="Base 8.1.24.7", kills=("notice-lost", "aer-reserved-bit"), builds_on=HOLDING
)
def test_a_preempted_host_gets_a_notification(hosts: tuple[ReservingHost, ReservingHost]) -> None:
    first, second = hosts
    waiting = request_event(first.session)
    hold(first, WE)
    allowed(second.register())
    allowed(second.acquire(EA, PREEMPT, victim=first.key))
    event = first.session.admin.wait(waiting).cqe.dw0
    assert event & 7 == 6, "5.2.2: I/O command specific status"
    assert event >> 16 & 0xFF == LogPage.RESERVATION_NOTIFICATION, "5.2.2: the log page to read"
    page = first.session.admin.run(admin.get_log_page(LogPage.RESERVATION_NOTIFICATION, 64), reads=64).data
    assert page[8] == 1, "5.2.12.1.35: Registration Preempted"


@pytest.mark.case(
    "NVR-PERSIST-01",
    section="Base 8.1.24.1",
    kills=("registration-lost", "registration-lost-on-reconnect"),
    builds_on=HOLDING,
)
def test_a_registration_outlives_the_association(
    hosts: tuple[ReservingHost, ReservingHost], bench: Harness
) -> None:
    """Registration and reservation are the host's: without an association, and with its next ones."""
    first, second = hosts
    hold(first, EA)
    wanted = [(first.key, first.session.identity.hostid, True)]
    for number in range(1, 3):
        first.session.close()
        refused(second.read(), StatusCode.RESERVATION_CONFLICT)
        session = bench.session(identity=first.session.identity)
        first.session, first.queue = session, session.io_queue()
        allowed(first.read())
        seen = [(one.key, one.hostid, one.holds) for one in first.report().registrants]
        assert seen == wanted, (
            f"8.1.24.1: (key, host, holds) of the registrants are {seen} when the host has connected again "
            f"({number}); they were {wanted}"
        )
        refused(second.read(), StatusCode.RESERVATION_CONFLICT)
    allowed(first.release(EA))
    allowed(second.read())


# Further commands (8.1.24.1): what writes is excluded as Write is, what reads as Read is

FURTHER = {
    Io.WRITE_ZEROES: (WE, "zeroes"),
    Io.DATASET_MANAGEMENT: (WE, "dsm"),
    Io.COPY: (WE, "copy"),
    Io.FLUSH: (WE, "flush"),
    Io.WRITE_UNCORRECTABLE: (WE, "uncorrectable"),
    Io.COMPARE: (EA, "compare"),
    Io.VERIFY: (EA, "verify"),
}
"""Commands, the type of reservation that excludes them for other hosts, and the name of their mutant."""


@pytest.mark.parametrize(
    "opcode",
    [
        pytest.param(
            opcode,
            marks=pytest.mark.case(
                f"NVR-{SHORT[kind]}-{opcode.name}", kills=(f"reservation-{name}",), builds_on=HOLDING
            ),
        )
        for opcode, (kind, name) in FURTHER.items()
    ],
)
def test_another_host_is_excluded_from_further_commands(
    hosts: tuple[ReservingHost, ReservingHost], opcode: Io
) -> None:
    first, second = hosts
    if opcode in ONCS_BITS and not second.session.controller["oncs"] >> ONCS_BITS[opcode] & 1:
        pytest.skip(f"ONCS: {opcode.name} is not supported")
    nsid, lba = second.nsid, second.scratch.lba
    commands = {
        Io.WRITE_ZEROES: (io.write_zeroes(nsid, lba, 1), b""),
        Io.DATASET_MANAGEMENT: (io.dataset_management(nsid, 1), io.dsm_ranges([(lba, 1)])),
        Io.COPY: (io.copy(nsid, lba + 1, 1), io.copy_ranges([(lba, 1)])),
        Io.FLUSH: (io.flush(nsid), b""),
        Io.WRITE_UNCORRECTABLE: (replace(io.verify(nsid, lba, 1), opcode=Io.WRITE_UNCORRECTABLE), b""),
        Io.COMPARE: (io.compare(nsid, lba, 1), bytes(second.scratch.block_size)),
        Io.VERIFY: (io.verify(nsid, lba, 1), b""),
    }
    hold(first, FURTHER[opcode][0])
    command, data = commands[opcode]
    refused(second.queue.run(command, data=data), StatusCode.RESERVATION_CONFLICT)


# Fields of the commands that have reserved values (7.5 to 7.8)

RESERVED_ACTION = 7


@pytest.mark.case("NVR-REG-08", section="Base 7.6", kills=("register-any-action",), builds_on=())
def test_a_reserved_register_action_is_refused(hosts: tuple[ReservingHost, ReservingHost]) -> None:
    first, _ = hosts
    refused(first.register(RESERVED_ACTION), StatusCode.INVALID_FIELD)


@pytest.mark.case("NVR-ACQ-08", section="Base 7.5", kills=("acquire-any-action",))
def test_a_reserved_acquire_action_is_refused(hosts: tuple[ReservingHost, ReservingHost]) -> None:
    first, _ = hosts
    allowed(first.register())
    refused(first.acquire(WE, RESERVED_ACTION), StatusCode.INVALID_FIELD)


@pytest.mark.case("NVR-REL-05", section="Base 7.7", kills=("release-any-action",), builds_on=HOLDING)
def test_a_reserved_release_action_is_refused(hosts: tuple[ReservingHost, ReservingHost]) -> None:
    first, _ = hosts
    hold(first, WE)
    refused(first.release(WE, RESERVED_ACTION), StatusCode.INVALID_FIELD)


@pytest.mark.case("NVR-REPORT-03", section="Base 7.8", kills=("report-one",))
def test_all_registrants_are_reported(hosts: tuple[ReservingHost, ReservingHost]) -> None:
    for host in hosts:
        allowed(host.register())
    seen = {(one.hostid, one.key) for one in hosts[0].report().registrants}
    wanted = {(host.session.identity.hostid, host.key) for host in hosts}
    assert seen == wanted, f"7.8: two hosts are registered, but {len(seen)} are reported with their keys"


@pytest.mark.case("NVR-REPORT-04", section="Base 7.8", kills=("report-not-extended",), builds_on=())
def test_a_report_without_the_extended_structure_is_refused(
    hosts: tuple[ReservingHost, ReservingHost],
) -> None:
    """Over fabrics the Host Identifier has 128 bits, which the other structure cannot hold."""
    first, _ = hosts
    done = first.queue.run(io.report(first.nsid, 64, extended=False), reads=64)
    refused(done, StatusCode.HOST_IDENTIFIER_INCONSISTENT)


@pytest.mark.case("NVR-REPORT-05", section="Base 7.8", kills=("report-short",))
def test_a_part_of_the_report_is_its_beginning(hosts: tuple[ReservingHost, ReservingHost]) -> None:
    for host in hosts:
        allowed(host.register())
    first = hosts[0]
    whole = first.queue.run(io.report(first.nsid, 1024), reads=1024).data
    for size in (8, 24, 64, 100):
        done = first.queue.run(io.report(first.nsid, size), reads=size)
        assert done.ok, f"7.8: NUMD of {size} bytes is not {status_name(done.status)}"
        assert done.data == whole[:size], f"7.8: {size} bytes are not the beginning of the report"


@pytest.mark.case("NVR-AGAIN-01", section="Base 8.1.24.6", kills=("reserve-once",), builds_on=HOLDING)
def test_a_namespace_is_reserved_by_one_host_after_the_other(
    hosts: tuple[ReservingHost, ReservingHost],
) -> None:
    first, second = hosts
    for host in hosts:
        allowed(host.register())
    for _ in range(2):
        for holder, other in ((first, second), (second, first)):
            allowed(holder.acquire(EA))
            refused(other.read(), StatusCode.RESERVATION_CONFLICT)
            allowed(holder.release(EA))
            allowed(other.read())


@pytest.mark.case(
    "NVR-GEN-03", section="Base 7.8", kills=("generation-of-clear",), builds_on=(*HOLDING, "NVR-CLEAR-01")
)
def test_the_generation_counts_preempt_and_clear(hosts: tuple[ReservingHost, ReservingHost]) -> None:
    first, second = hosts
    hold(first, WE)
    allowed(second.register())
    before = second.report().generation
    allowed(second.acquire(WE, PREEMPT, victim=first.key))
    preempted = second.report().generation
    assert preempted == before + 1, f"7.8: GEN was {before}, and is {preempted} after Preempt"
    allowed(second.release(WE, CLEAR))
    cleared = second.report().generation
    assert cleared == preempted + 1, f"7.8: GEN was {preempted}, and is {cleared} after Clear"
