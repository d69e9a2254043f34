"""Log pages by parts, entries of the error log, and the counts of reservation notifications (Base 5.2.12)."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import pytest

from storagetest.wire.nvme import admin, io
from storagetest.wire.nvme.codes import LogPage, Rtype, status_name
from storagetest.wire.nvme_tcp import ControllerSession, Queue
from storagetest.wire.nvme_tcp.harness import Harness, Scratch, request_event
from storagetest.wire.nvme_tcp.reservation_harness import HOLDING, ReservingHost, allowed

pytestmark = [pytest.mark.needs("nvme-tcp-wire"), pytest.mark.case(level="MUST", section="Base 5.2.12")]

ALL_NAMESPACES = 0xFFFFFFFF
OFFSETS_SUPPORTED = 4
"""LPA: the log page offset is supported (5.2.13.2.1)."""

UNKNOWN_LOG = 0x6F
"""A log page that is reserved (5.2.12)."""

ENTRIES = 2
"""Entries of the error log of which parts are read (chosen)."""

LENGTHS = {
    LogPage.SUPPORTED: 1024,
    LogPage.ERROR: 64 * ENTRIES,
    LogPage.SMART: 512,
    LogPage.EFFECTS: 4096,
}
"""Bytes of log pages of one length, and of the first entries of the error log."""


ANA_HEAD, ANA_GROUP = 16, 32
"""Bytes of the ANA log page before its groups, and of a group before its NSIDs (5.2.12.1.13)."""


# Parts


def _ana_length(first: bytes | None) -> int:
    """Return the bytes of the ANA log page up to the end of its first group."""
    return ANA_HEAD + ANA_GROUP + 4 * (int.from_bytes(first[20:24], "little") if first else 0)


READS = 4
"""Reads of a part that differs from the whole: a measured value may be another for a moment (chosen)."""


def _other_dword(before: bytes, found: bytes, after: bytes) -> int | None:
    """Return the offset of the first dword that is another than the one before and after it, which are alike.

    A dword that has changed in the whole may have had any value in between.
    """
    for at in range(0, len(after), 4):
        place = slice(at, at + 4)
        if before[place] == after[place] != found[place]:
            return at
    return None if len(found) == len(after) else len(found)


@pytest.mark.parametrize("page", [
    pytest.param(page, marks=pytest.mark.case(f"NVA-LOG-PARTS-{page:02X}H", kills=("log-offset-one-page",)))
    for page in LENGTHS
] + [
    pytest.param(LogPage.ANA, marks=pytest.mark.case("NVA-LOG-PARTS-0CH", kills=("ana-part-zero",))),
])  # fmt: skip
@pytest.mark.case(builds_on=("NVA-LOG-OFFSET",))
def test_each_log_page_is_read_from_any_offset(session: ControllerSession, page: int) -> None:
    """Each part is what the whole log page has there; what other hosts or a sensor change is left out."""
    if not session.controller["lpa"] & OFFSETS_SUPPORTED:
        pytest.skip("LPA bit 2: the log page offset is not supported")
    for _ in range(ENTRIES):  # so that the error log has entries
        session.admin.run(admin.get_log_page(UNKNOWN_LOG, 64), reads=64)

    def read(at: int, size: int) -> bytes | None:
        command = admin.get_log_page(page, size, nsid=ALL_NAMESPACES, offset=at)
        done = session.admin.run(command, reads=size)
        return done.data if done.ok else None

    length = LENGTHS.get(LogPage(page)) or _ana_length(read(0, ANA_HEAD + ANA_GROUP))
    if page == LogPage.ERROR:
        length = min(length, 64 * (session.controller["elpe"] + 1))
    before = read(0, length)
    if before is None:
        pytest.skip(f"log page {page:02x}h is not supported")
    for at in (4, 8, length // 8 * 4 + 4, length - 4):
        for size in sorted({4, length - at}):
            what = f"{size} bytes from LPO {at} of page {page:02x}h"
            for _ in range(READS):
                found, after = read(at, size), read(0, length)
                assert found is not None, f"5.2.12: {what} are refused"
                assert after is not None, f"5.2.12: page {page:02x}h is refused after it was read"
                other = _other_dword(before[at : at + size], found, after[at : at + size])
                before = after
                if other is None:
                    break
            else:
                assert other is not None
                dword, whole = found[other : other + 4].hex(), after[at + other : at + other + 4].hex()
                pytest.fail(f"5.2.12: {what}: dword {other // 4} is {dword}; the whole has {whole} there")


# Error Information (5.2.12.1.2)


NO_COMMAND = 0xFFFF
"""SQID and CID of an entry that is of no command (5.2.12.1.2)."""


@dataclass(frozen=True, slots=True)
class ErrorEntry:
    """An entry of the Error Information log page."""

    count: int
    sqid: int
    cid: int
    status: int
    lba: int
    nsid: int


def newest(session: ControllerSession) -> ErrorEntry:
    """Return the entry of a command with the highest Error Count; a count of 0 is no entry.

    An error that is of no command has an entry with SQID and CID FFFFh (5.2.12.1.2).
    """
    entries = session.controller["elpe"] + 1
    raw = session.log_page(LogPage.ERROR, 64 * min(entries, 16), nsid=ALL_NAMESPACES)
    found = [
        ErrorEntry(
            int.from_bytes(one[:8], "little"),
            int.from_bytes(one[8:10], "little"),
            int.from_bytes(one[10:12], "little"),
            int.from_bytes(one[12:14], "little") >> 1 & 0x7FF,
            int.from_bytes(one[16:24], "little"),
            int.from_bytes(one[24:28], "little"),
        )
        for one in (raw[at : at + 64] for at in range(0, len(raw), 64))
    ]
    none = ErrorEntry(0, 0, 0, 0, 0, 0)
    return max(
        [one for one in found if (one.sqid, one.cid) != (NO_COMMAND, NO_COMMAND)],
        key=lambda one: one.count,
        default=none,
    )


@dataclass(frozen=True, slots=True)
class Logged:
    """A read that failed, its entry in the error log, and SMART's number of entries before and after."""

    queue: Queue
    cid: int
    status: int
    nsid: int
    entry: ErrorEntry
    counts: tuple[int, int]


def _logged_so_far(session: ControllerSession) -> int:
    return int.from_bytes(session.log_page(LogPage.SMART, 512, nsid=ALL_NAMESPACES)[176:192], "little")


@pytest.fixture
def logged(session: ControllerSession, queue: Queue, scratch: Scratch) -> Logged:
    """Let a read fail, and return what is logged of it; skip if nothing is."""
    before, count = newest(session), _logged_so_far(session)
    cid = queue.submit(io.read(scratch.nsid, scratch.end, 1), reads=scratch.block_size)
    done = queue.wait(cid)
    if done.ok:
        pytest.skip("a read past the end succeeds (NVB-READ-AT-END)")
    entry = newest(session)
    if entry.count <= before.count:
        pytest.skip("the controller logs no error for a read past the end")
    return Logged(queue, cid, int(done.status), scratch.nsid, entry, (count, _logged_so_far(session)))


@pytest.mark.case(
    "NVA-LOG-ERROR-COMMAND",
    section="Base 5.2.12.1.2",
    kills=("error-log-sqid", "error-log-cid", "error-log-status"),
)
def test_an_entry_of_the_error_log_names_the_command_that_failed(logged: Logged) -> None:
    found = (logged.entry.sqid, logged.entry.cid, logged.entry.status)
    wanted = (logged.queue.qid, logged.cid, logged.status)
    assert found == wanted, (
        f"5.2.12.1.2: SQID, CID and status of the entry are {found}; those of the command were {wanted}"
    )


@pytest.mark.case("NVA-LOG-ERROR-NSID", section="Base 5.2.12.1.2", kills=("error-log-nsid",))
def test_an_entry_of_the_error_log_names_the_namespace(logged: Logged) -> None:
    assert logged.entry.nsid == logged.nsid, (
        f"5.2.12.1.2: the entry has namespace {logged.entry.nsid:#x}; the read was of {logged.nsid:#x}"
    )


@pytest.mark.case(
    "NVA-LOG-ERROR-LBA",
    section="Base 5.2.12.1.2",
    kills=("error-log-lba",),
    builds_on=("NVA-LOG-ERROR-COMMAND",),
)
def test_an_entry_of_the_error_log_has_the_block(logged: Logged, scratch: Scratch) -> None:
    """The first LBA that has experienced the error: the read was of one block."""
    assert logged.entry.lba == scratch.end, (
        f"5.2.12.1.2: the entry of a read of block {scratch.end} has LBA {logged.entry.lba}"
    )


@pytest.mark.case("NVA-LOG-ERROR-COUNT", section="Base 5.2.12.1.3", kills=("error-log-smart-count",))
def test_the_smart_log_counts_the_entries_of_the_error_log(logged: Logged) -> None:
    before, after = logged.counts
    assert after > before, (
        f"5.2.12.1.3: an entry was logged, and the Number of Error Information Log Entries is {after}; "
        f"it was {before}"
    )


# Reservation Notification (5.2.12.1.35)

SHARED = Rtype.WRITE_EXCLUSIVE_REGISTRANTS_ONLY
"""A release of this type notifies the other registrants (8.1.24.6)."""


def _notice(host: ReservingHost) -> tuple[int, int, int]:
    """Read a notification: its Log Page Count, its type, and the number of those that are left."""
    command = admin.get_log_page(LogPage.RESERVATION_NOTIFICATION, 64)
    done = host.session.admin.run(command, reads=64)
    allowed(done)
    return int.from_bytes(done.data[:8], "little"), done.data[8], done.data[9]


def _release(host: ReservingHost, times: int) -> None:
    for _ in range(times):
        allowed(host.acquire(SHARED))
        allowed(host.release(SHARED))


@pytest.mark.case(
    "NVR-NOTICE-RISES", section="Base 5.2.12.1.35", kills=("notice-count-stays",), builds_on=HOLDING
)
def test_each_notification_has_a_count_of_its_own(hosts: tuple[ReservingHost, ReservingHost]) -> None:
    """The count "is incremented each time" a notification is logged, and 0 is an empty log page."""
    first, second = hosts
    for host in hosts:
        allowed(host.register())
    counts = []
    for _ in range(3):
        _release(first, 1)
        counts.append(_notice(second)[0])
    steps = [after - before for before, after in itertools.pairwise(counts)]
    assert all(counts), f"5.2.12.1.35: the Log Page Counts of three notifications are {counts}"
    assert all(step > 0 for step in steps), (
        f"5.2.12.1.35: the Log Page Counts of three notifications are {counts}: each is more than the last"
    )


@pytest.mark.case(
    "NVR-NOTICE-LEFT", section="Base 5.2.12.1.35", kills=("notice-left-none",), builds_on=HOLDING
)
def test_a_notification_states_how_many_are_left(hosts: tuple[ReservingHost, ReservingHost]) -> None:
    first, second = hosts
    for host in hosts:
        allowed(host.register())
    _release(first, 3)
    found = [_notice(second)[1:] for _ in range(4)]
    kinds, left = [kind for kind, _ in found], [more for _, more in found]
    there = next((at for at, kind in enumerate(kinds) if not kind), len(kinds))
    assert there, "8.1.24.6: three releases have left no notification"
    assert left[:there] == list(range(there - 1, -1, -1)), (
        f"5.2.12.1.35: {there} notifications were read, which state that {left[:there]} more are available"
    )


@pytest.mark.parametrize("which", [
    pytest.param(0, marks=pytest.mark.case(
        "NVR-NOTICE-FIRST-CONTROLLER", kills=("notice-last-controller",))),
    pytest.param(1, marks=pytest.mark.case(
        "NVR-NOTICE-SECOND-CONTROLLER", kills=("notice-first-controller",))),
])  # fmt: skip
@pytest.mark.case(section="Base 5.2.12.1.35", builds_on=HOLDING)
def test_each_controller_of_a_host_is_notified(
    hosts: tuple[ReservingHost, ReservingHost], bench: Harness, which: int
) -> None:
    """A log page is created for a notification on any namespace that the controller may access."""
    first, second = hosts
    other = bench.session(identity=second.session.identity, name="the notified host's other controller")
    sessions = (second.session, other)
    for host in hosts:
        allowed(host.register())
    waiting = [request_event(session) for session in sessions]
    _release(first, 1)
    session = sessions[which]
    event = session.admin.wait(waiting[which]).cqe.dw0
    assert event >> 16 & 0xFF == LogPage.RESERVATION_NOTIFICATION, (
        f"5.2.2: the event of controller {session.cntlid:#x} after a release is {event:#x}"
    )
    done = session.admin.run(admin.get_log_page(LogPage.RESERVATION_NOTIFICATION, 64), reads=64)
    assert done.ok, f"5.2.12: not {status_name(done.status)}"
    assert done.data[8] == 2, (
        f"5.2.12.1.35: the log page of controller {session.cntlid:#x} has type {done.data[8]}; "
        "its host is a registrant of a reservation that was released (2)"
    )
