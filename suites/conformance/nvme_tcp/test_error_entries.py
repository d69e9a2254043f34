"""The order of the error log's entries, and reads of more than a log page has (Base 5.2.12)."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from storagetest.wire.nvme import admin, io
from storagetest.wire.nvme.codes import LogPage, status_name
from storagetest.wire.nvme_tcp import ControllerSession, Queue
from storagetest.wire.nvme_tcp.harness import Harness, Scratch
from storagetest.wire.nvme_tcp.session import connect_queue

from .test_resets import another_queue

pytestmark = [pytest.mark.needs("nvme-tcp-wire"), pytest.mark.case(level="MUST", section="Base 5.2.12.1.2")]

ALL_NAMESPACES = 0xFFFFFFFF
LENGTH = 512
"""Bytes of the SMART and of the Firmware Slot Information log page (5.2.12.1.3, 5.2.12.1.4)."""

FAILURES = 3
"""Reads that fail in a case (chosen)."""


@pytest.mark.parametrize("page", [
    pytest.param(page, marks=pytest.mark.case(f"NVA-LOG-LONGER-{page:02X}H", kills=("log-longer-refused",)))
    for page in (LogPage.SMART, LogPage.FIRMWARE_SLOT)
])  # fmt: skip
@pytest.mark.case(section="Base 5.2.12")
def test_a_log_page_is_returned_to_a_host_that_asks_for_more(session: ControllerSession, page: int) -> None:
    """The controller returns the complete log page; dwords beyond its end are undefined."""
    whole = session.admin.run(admin.get_log_page(page, LENGTH, nsid=ALL_NAMESPACES), reads=LENGTH)
    if not whole.ok:
        pytest.skip(f"page {page:02x}h is not returned: {status_name(whole.status)}")
    for size in (LENGTH + 4, 2 * LENGTH, 4096):
        done = session.admin.run(admin.get_log_page(page, size, nsid=ALL_NAMESPACES), reads=size)
        assert done.ok, (
            f"5.2.12: NUMD of {size} bytes ends with {status_name(done.status)}; page {page:02x}h has "
            f"{LENGTH}, which are returned all the same"
        )
        if page == LogPage.FIRMWARE_SLOT:  # counters of the other go on
            assert done.data[:64] == whole.data[:64], f"5.2.12: {size} bytes do not begin with the log page"


@dataclass(frozen=True, slots=True)
class Entries:
    """CIDs of reads that failed, the oldest first; count and CID of the log's entries, as they are there."""

    failed: list[int]
    found: list[tuple[int, int]]


def _found(session: ControllerSession, count: int) -> list[tuple[int, int]]:
    """Return the Error Count and the Command ID of ``count`` entries, as they are there."""
    raw = session.log_page(LogPage.ERROR, 64 * count, nsid=ALL_NAMESPACES)
    return [
        (int.from_bytes(raw[at : at + 8], "little"), int.from_bytes(raw[at + 10 : at + 12], "little"))
        for at in range(0, len(raw), 64)
    ]


@pytest.fixture
def entries(session: ControllerSession, queue: Queue, scratch: Scratch) -> Entries:
    """Let reads fail one after the other, and read the log; skip if it does not have them."""
    if session.controller["elpe"] + 1 < FAILURES:
        pytest.skip(f"ELPE: the log has {session.controller['elpe'] + 1} entries")
    failed = []
    for _ in range(FAILURES):
        cid = queue.submit(io.read(scratch.nsid, scratch.end, 1), reads=scratch.block_size)
        if queue.wait(cid).ok:
            pytest.skip("a read past the end succeeds (NVB-READ-AT-END)")
        failed.append(cid)
    found = _found(session, FAILURES)
    if {cid for count, cid in found if count} != set(failed):
        pytest.skip("the controller does not log each read past the end")
    return Entries(failed, found)


@pytest.mark.case("NVA-LOG-ERROR-ORDER", kills=("error-log-oldest-first",))
def test_the_newest_entry_of_the_error_log_is_the_first(entries: Entries) -> None:
    cids = [cid for _, cid in entries.found]
    assert cids == entries.failed[::-1], (
        f"5.2.12.1.2: the entries are of the commands {cids}; the most recent error is returned first, and "
        f"the commands failed in the order {entries.failed}"
    )


@pytest.mark.case("NVA-LOG-ERROR-FULL", kills=("error-log-not-turned",), builds_on=("NVA-LOG-ERROR-ORDER",))
def test_a_full_error_log_has_the_newest_entries_in_their_order(
    entries: Entries, session: ControllerSession, queue: Queue, scratch: Scratch
) -> None:
    """More reads fail than the log has entries; an entry may be lost, but the newest one is the first."""
    capacity = session.controller["elpe"] + 1
    failed = list(entries.failed)
    for _ in range(capacity + FAILURES):
        cid = queue.submit(io.read(scratch.nsid, scratch.end, 1), reads=scratch.block_size)
        assert not queue.wait(cid).ok, "NVM 3.1: a read past the end"
        failed.append(cid)
    found = _found(session, capacity)
    counts, cids = [count for count, _ in found if count], [cid for count, cid in found if count]
    if not set(cids) <= set(failed):
        pytest.skip("the log has errors of other commands, too")
    assert counts == sorted(counts, reverse=True), (
        f"5.2.12.1.2: the Error Counts of a full log are {counts}; the most recent error is returned first"
    )
    ages = [failed[::-1].index(cid) for cid in cids]
    assert ages[:1] == [0], f"5.2.12.1.2: the first entry of a full log is not the newest error: {cids}"
    assert ages == sorted(ages), (
        f"5.2.12.1.2: the entries of a full log are of the commands {cids}; the newest errors are of "
        f"{failed[::-1][:capacity]}"
    )


def _logged(session: ControllerSession) -> int:
    """Return the Number of Error Information Log Entries (5.2.12.1.3)."""
    raw = session.log_page(LogPage.SMART, LENGTH, nsid=ALL_NAMESPACES)
    return int.from_bytes(raw[176:192], "little")


@pytest.mark.usefixtures("entries")
@pytest.mark.case(
    "NVA-LOG-ERROR-COUNT-MANY",
    section="Base 5.2.12.1.3",
    kills=("error-log-smart-four",),
    builds_on=("NVA-LOG-ERROR-COUNT", "NVA-LOG-ERROR-FULL"),
)
def test_the_smart_log_counts_entries_that_are_no_longer_in_the_error_log(
    session: ControllerSession, queue: Queue, scratch: Scratch
) -> None:
    """It counts those of the life of the controller: a full log is written anew, and counted."""
    capacity, before = session.controller["elpe"] + 1, _logged(session)
    failed = []
    for _ in range(capacity + FAILURES):
        cid = queue.submit(io.read(scratch.nsid, scratch.end, 1), reads=scratch.block_size)
        assert not queue.wait(cid).ok, "NVM 3.1: a read past the end"
        failed.append(cid)
    new = sum(cid in failed for count, cid in _found(session, capacity) if count)
    risen = _logged(session) - before
    assert risen >= new, (
        f"5.2.12.1.3: of {len(failed)} reads that failed {new} are in the error log; the Number of Error "
        f"Information Log Entries was {before}, and rises by {risen}"
    )


@pytest.mark.case("NVA-LOG-ERROR-UNIQUE", kills=("error-log-count-same",))
def test_each_entry_of_the_error_log_has_a_count_of_its_own(entries: Entries) -> None:
    counts = sorted(count for count, _ in entries.found)
    assert len(set(counts)) == len(counts), (
        f"5.2.12.1.2: the Error Counts of {FAILURES} errors are {counts}; each error has its own"
    )


@pytest.mark.case(
    "NVA-LOG-ERROR-RESET", kills=("error-count-begins-again",), builds_on=("NVA-LOG-ERROR-UNIQUE",)
)
def test_the_error_count_goes_on_after_a_reset(
    entries: Entries, session: ControllerSession, scratch: Scratch
) -> None:
    """It is retained even when the power is off, so an error after a controller reset has a new count."""
    session.disable()
    session.enable()
    queue = another_queue(session)
    cid = queue.submit(io.read(scratch.nsid, scratch.end, 1), reads=scratch.block_size)
    assert not queue.wait(cid).ok, "NVM 3.1: a read past the end"
    count, logged = _found(session, 1)[0]
    if not count or logged != cid:
        pytest.skip("the newest entry of the error log is not that of a read past the end")
    last = max(count for count, _ in entries.found)
    assert count > last, (
        f"5.2.12.1.2: the newest Error Count was {last}, and that of an error after a controller reset is "
        f"{count}; the count is incremented for each error, and retained"
    )


@pytest.mark.case("NVA-LOG-ERROR-CONNECT", section="Base 6.3", kills=("connect-logged",))
def test_a_connect_that_fails_adds_no_entry(session: ControllerSession, bench: Harness) -> None:
    """Connects of I/O queues of the controller, whose SQSIZE is 0."""
    before = _found(session, 1)
    for _ in range(FAILURES):
        queue, endpoint = bench.queue(name="I/O queue"), session.endpoint
        done = connect_queue(
            queue, subnqn=endpoint.subnqn, identity=session.identity, qid=1, sqsize=0, cntlid=session.cntlid
        )
        if done.ok:
            pytest.skip("a Connect with SQSIZE 0 succeeds (NVF-CONNECT-06)")
    found = _found(session, 1)
    assert found == before, (
        f"6.3: (Error Count, Command ID) of the newest entry was {before[0]}; after {FAILURES} Connects that "
        f"failed it is {found[0]}: a Connect that fails adds no entry"
    )
