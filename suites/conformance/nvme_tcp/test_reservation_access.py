"""Commands other than Read and Write under each type of reservation, and many notifications (Base 8.1.24)."""

from __future__ import annotations

import pytest

from storagetest.wire.nvme import admin, io
from storagetest.wire.nvme.codes import ONCS_BITS, Io, LogPage, Rtype, StatusCode, status_name
from storagetest.wire.nvme.command import Command
from storagetest.wire.nvme_tcp.harness import block_data, refused, write_blocks
from storagetest.wire.nvme_tcp.reservation_harness import (
    HOLDING,
    PREEMPT,
    REPLACE,
    UNREGISTER,
    ReservingHost,
    allowed,
    hold,
)

pytestmark = [
    pytest.mark.needs("nvme-tcp-wire"),
    pytest.mark.case(level="MUST", section="Base 8.1.24.1", builds_on=HOLDING),
]

Hosts = tuple[ReservingHost, ReservingHost]

SHORT = dict(zip(Rtype, ("WE", "EA", "WERO", "EARO", "WEAR", "EAAR"), strict=True))

Groups = tuple[tuple[Io, ...], tuple[Io, ...]]
GROUPS: dict[str, Groups] = {
    "ACCESS": ((Io.COMPARE, Io.VERIFY), (Io.FLUSH, Io.WRITE_ZEROES, Io.DATASET_MANAGEMENT)),
    "ACCESS-COPY": ((), (Io.COPY,)),
}
"""Commands that are excluded as Read is, and as Write is (8.1.24.1)."""


def _command(host: ReservingHost, opcode: Io, data: bytes) -> tuple[Command, bytes]:
    nsid, lba = host.nsid, host.scratch.lba
    commands = {
        Io.COMPARE: (io.compare(nsid, lba, 1), data),
        Io.VERIFY: (io.verify(nsid, lba, 1), b""),
        Io.FLUSH: (io.flush(nsid), b""),
        Io.WRITE_ZEROES: (io.write_zeroes(nsid, lba + 1, 1), b""),
        Io.DATASET_MANAGEMENT: (io.dataset_management(nsid, 1), io.dsm_ranges([(lba + 1, 1)])),
        Io.COPY: (io.copy(nsid, lba + 1, 1), io.copy_ranges([(lba, 1)])),
    }
    return commands[opcode]


def _has(host: ReservingHost, opcode: Io) -> bool:
    if opcode == Io.COPY and not host.scratch.limits.copied([(host.scratch.lba, 1)]):
        return False
    return opcode not in ONCS_BITS or bool(host.session.controller["oncs"] >> ONCS_BITS[opcode] & 1)


def _claim_access(
    group: Groups, host: ReservingHost, who: str, rtype: Rtype, data: bytes, may: tuple[bool, bool]
) -> None:
    """Claim of each command that the host may run it, if it may read, or write."""
    for opcodes, access in zip(group, may, strict=True):
        for opcode in opcodes:
            if not _has(host, opcode):
                continue
            command, sent = _command(host, opcode, data)
            done = host.queue.run(command, data=sent)
            wanted = StatusCode.SUCCESS if access else StatusCode.RESERVATION_CONFLICT
            assert done.status == wanted, (
                f"8.1.24.1: {opcode.name} by {who} under type {int(rtype)} ended with "
                f"{status_name(done.status)}; required: {status_name(wanted)}"
            )


@pytest.mark.parametrize(("rtype", "group"), [
    pytest.param(rtype, group, marks=pytest.mark.case(
        f"NVR-{group}-{name}", kills=("access-too-strict", "access-unchecked")))
    for rtype, name in SHORT.items() for group in GROUPS
])  # fmt: skip
def test_each_type_excludes_further_commands_as_read_and_write(
    hosts: Hosts, rtype: Rtype, group: str
) -> None:
    """Compare and Verify as Read, the others as Write: of the holder, of a registrant, of another host."""
    holder, other = hosts
    commands = GROUPS[group]
    if not any(_has(holder, opcode) for opcodes in commands for opcode in opcodes):
        pytest.skip("ONCS: none of these commands is supported")
    data = write_blocks(holder.queue, holder.scratch, 1, 1501)
    hold(holder, rtype)
    _claim_access(commands, other, "a host that is no registrant", rtype, data, (not rtype.reads_too, False))
    allowed(other.register())
    registrant = (rtype.registrants or not rtype.reads_too, rtype.registrants)
    _claim_access(commands, other, "a registrant", rtype, data, registrant)
    _claim_access(commands, holder, "the holder", rtype, data, (True, True))


@pytest.mark.parametrize("rtype", [
    pytest.param(rtype, marks=pytest.mark.case(f"NVR-ACCESS-OWN-{name}", kills=("access-own-refused",)))
    for rtype, name in SHORT.items()
])  # fmt: skip
def test_each_type_allows_any_host_to_register_and_to_report(hosts: Hosts, rtype: Rtype) -> None:
    """Acquire and Release by a host that is no registrant end with a conflict."""
    holder, other = hosts
    hold(holder, rtype)
    done = other.queue.run(io.report(other.nsid, 1024), reads=1024)
    assert done.ok, f"8.1.24.1: Report under type {int(rtype)} ended with {status_name(done.status)}"
    refused(other.acquire(rtype), StatusCode.RESERVATION_CONFLICT)
    refused(other.release(rtype), StatusCode.RESERVATION_CONFLICT)
    for what, done in (
        ("Register", other.register()),
        ("Unregister", other.register(UNREGISTER, current=other.key)),
    ):
        assert done.ok, f"8.1.24.1: {what} under type {int(rtype)} ended with {status_name(done.status)}"
    assert holder.report().rtype == rtype, f"8.1.24.1: the reservation of type {int(rtype)} has ended"


# Many notifications (5.2.12.1.35)

MANY = 270
"""Notifications that are not read: more than the 255 that a log page can state (chosen)."""

RELEASED = 2
"""Type of the log page (5.2.12.1.35)."""


@pytest.mark.case(
    "NVR-NOTICE-MANY",
    section="Base 5.2.12.1.35",
    kills=("notice-count-byte",),
    builds_on=(*HOLDING, "NVR-NOTICE-RISES"),
)
def test_many_notifications_that_are_not_read_are_kept_or_counted(hosts: Hosts) -> None:
    """A controller may lose some; the Log Page Count goes on, and the next one is notified, too."""
    first, second = hosts
    rtype = Rtype.WRITE_EXCLUSIVE_REGISTRANTS_ONLY

    def release(times: int) -> None:
        for _ in range(times):
            allowed(first.acquire(rtype))
            allowed(first.release(rtype))

    for host in hosts:
        allowed(host.register())
    release(MANY)
    read = _notices(second, MANY + 1)
    release(1)
    last = _notices(second, 2)
    assert 0 < len(read) <= MANY, f"8.1.24.6: {MANY} releases, and {len(read)} notifications were read"
    assert len(last) == 1, f"8.1.24.6: one release after {MANY}, and {len(last)} notifications were read"
    counts = [*read, *last]
    assert counts == sorted(set(counts)), (
        f"5.2.12.1.35: the Log Page Counts of {len(counts)} notifications do not rise: {counts[:3]} … "
        f"{counts[-3:]}"
    )


def _notices(host: ReservingHost, most: int) -> list[int]:
    """Read notifications until the log page is empty; return their counts."""
    counts = []
    for _ in range(most):
        page = host.session.admin.run(admin.get_log_page(LogPage.RESERVATION_NOTIFICATION, 64), reads=64)
        allowed(page)
        if not page.data[8]:
            break
        found = page.data[8], int.from_bytes(page.data[12:16], "little")
        assert found == (RELEASED, host.nsid), (
            f"5.2.12.1.35: notification {len(counts) + 1} has type {found[0]} of namespace {found[1]}; "
            f"{RELEASED}, Reservation Released, of {host.nsid} is required"
        )
        counts.append(int.from_bytes(page.data[:8], "little"))
    return counts


# Key and type of a reservation whose holder has replaced its key


@pytest.mark.parametrize("rtype", [
    pytest.param(rtype, marks=pytest.mark.case(f"NVR-REKEYED-{name}", kills=("rekeyed-stays",)))
    for rtype, name in SHORT.items() if not rtype.all_hold
])  # fmt: skip
@pytest.mark.case(section="Base 8.1.24.3, 8.1.24.7")
def test_a_holder_is_preempted_by_its_new_key_alone(hosts: Hosts, rtype: Rtype) -> None:
    """It has replaced its key while it holds: a Preempt of the old one takes nothing."""
    first, second = hosts
    old, new = first.key, 0xC3
    hold(first, rtype)
    allowed(second.register())
    allowed(first.register(REPLACE, current=old, new=new))
    first.key = new
    second.acquire(Rtype.EXCLUSIVE_ACCESS, PREEMPT, victim=old)
    kept = second.report()
    found = kept.rtype, [one.key for one in kept.registrants if one.holds]
    assert found == (rtype, [new]), (
        f"8.1.24.7: key {old:#x} is no key any more; after a Preempt of it the type is {found[0]}, and the "
        f"holders' keys are {found[1]}; required are {int(rtype)} and {[new]}"
    )
    block = block_data(first.scratch.block_size, 1502)
    allowed(first.queue.run(io.write(first.nsid, first.scratch.lba, 1), data=block))
    allowed(second.acquire(Rtype.EXCLUSIVE_ACCESS, PREEMPT, victim=new))
    taken = second.report()
    found = taken.rtype, [one.key for one in taken.registrants if one.holds]
    assert found == (Rtype.EXCLUSIVE_ACCESS, [second.key]), (
        f"8.1.24.7: after a Preempt of the holder's new key the type is {found[0]}, and the holders' keys "
        f"are {found[1]}; required are 2 and {[second.key]}"
    )
