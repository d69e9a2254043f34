"""What stays after an association, and what each of many ranges and registrants has (Base 3.7.2, 7.8)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from storagetest.errors import DeadlineExceeded
from storagetest.polling import wait_until
from storagetest.wire.nvme import io
from storagetest.wire.nvme.codes import status_name
from storagetest.wire.nvme_tcp import ControllerSession
from storagetest.wire.nvme_tcp.harness import Harness, Scratch, read_blocks, write_blocks
from storagetest.wire.nvme_tcp.reservation_harness import ReservingHost, allowed

pytestmark = [pytest.mark.needs("nvme-tcp-wire"), pytest.mark.case(level="MUST", section="Base 3.7.2")]


def _drop(session: ControllerSession) -> None:
    """Close the connection of the admin queue, without a shutdown."""
    session.admin.close()


ENDS: dict[str, Callable[[ControllerSession], None]] = {
    "SHUTDOWN": ControllerSession.close,
    "RESET": ControllerSession.disable,
    "DROPPED": _drop,
}


@pytest.mark.parametrize("end", [
    pytest.param(name, marks=pytest.mark.case(f"NVB-KEPT-{name}", kills=("write-ends-with-association",)))
    if name == "SHUTDOWN" else
    pytest.param(name, marks=pytest.mark.case(f"NVB-KEPT-{name}", no_mutant_reason="as NVB-KEPT-SHUTDOWN"))
    for name in ENDS
])  # fmt: skip
@pytest.mark.case(section="Base 3.7.2", level="MUST", builds_on=("NVB-RW-01",))
def test_the_last_write_of_an_association_outlives_it(bench: Harness, scratch: Scratch, end: str) -> None:
    """Each of three associations writes over the blocks of the one before it, and ends."""
    blocks = scratch.fit(16)
    for turn in range(3):
        session = bench.session(name=f"admin queue {turn + 1}")
        data = write_blocks(session.io_queue(), scratch, blocks, 70 + turn)
        ENDS[end](session)
        reader = bench.session(name=f"admin queue of the reader {turn + 1}")
        found = read_blocks(reader.io_queue(), scratch, blocks)
        assert found == data, f"3.7.2: write {turn + 1} is lost with its association, which ended ({end})"
        reader.close()


@pytest.mark.case("NVB-COPY-RANGES", section="NVM 3.3.2", kills=("copy-third-range",))
def test_each_of_many_ranges_is_copied(session: ControllerSession, scratch: Scratch) -> None:
    """Ranges of one to three blocks, apart from each other, in descending order."""
    if not session.controller["oncs"] >> 8 & 1:
        pytest.skip("ONCS bit 8: Copy is not supported")
    queue, size = session.io_queue(), scratch.block_size
    data = write_blocks(queue, scratch, 64, 81)
    wanted = [(scratch.lba + 56 - 8 * number, 1 + number % 3) for number in range(8)]
    ranges = scratch.limits.copied(wanted)
    if len(ranges) < 3:
        pytest.skip(f"MSRC, MCL: {len(ranges)} ranges in one Copy")
    target = Scratch(scratch.nsid, scratch.lba + 64, 64, scratch.end, scratch.limits)
    total = sum(blocks for _, blocks in ranges)
    write_blocks(queue, target, total + 1, 82)
    after = read_blocks(queue, target, total + 1)[-size:]
    done = queue.run(io.copy(scratch.nsid, target.lba, len(ranges)), data=io.copy_ranges(ranges))
    assert done.ok, f"3.3.2: {len(ranges)} ranges are not {status_name(done.status)}"
    pieces = [
        data[(lba - scratch.lba) * size : (lba - scratch.lba + blocks) * size] for lba, blocks in ranges
    ]
    found = read_blocks(queue, target, total + 1)
    at = 0
    for number, piece in enumerate(pieces):
        assert found[at : at + len(piece)] == piece, f"3.3.2: range {number + 1} of {len(ranges)} differs"
        at += len(piece)
    assert found[at:] == after, "3.3.2: the block behind the copied ones has changed"


@pytest.mark.case(
    "NVR-REPORT-CNTLID", section="Base 7.8", kills=("report-cntlid-of-first",), builds_on=("NVR-REG-07",)
)
def test_the_report_has_the_controller_of_each_registrant(hosts: tuple[ReservingHost, ReservingHost]) -> None:
    for host in hosts:
        allowed(host.register())
    found = {one.key: one.cntlid for one in hosts[0].report().registrants}
    wanted = {host.key: host.session.cntlid for host in hosts}
    assert found == wanted, f"7.8: the registered controllers are {found}, by key; they have to be {wanted}"


NO_CONTROLLER = 0xFFFF
"""CNTLID of a registrant that has no controller (7.8)."""
REPORTED_SINCE = 0x00020100
"""Controllers of earlier versions may leave such a registrant out of the report (7.8)."""


@pytest.mark.case(
    "NVR-REPORT-GONE",
    section="Base 7.8",
    kills=("report-of-connected", "report-cntlid-of-gone"),
    builds_on=("NVR-REPORT-CNTLID",),
)
def test_the_report_has_a_registrant_without_a_controller(
    bench: Harness, hosts: tuple[ReservingHost, ReservingHost]
) -> None:
    """It is there while its host has no association, and its CNTLID is FFFFh."""
    here, gone = hosts
    if here.session.controller["ver"] < REPORTED_SINCE:
        pytest.skip("VER is under 2.1: a registrant without a controller need not be reported")
    for host in hosts:
        allowed(host.register())
    gone.session.close()

    def cntlid() -> int:
        found = {one.hostid: one.cntlid for one in here.report().registrants}
        assert gone.session.identity.hostid in found, (
            "7.8: the report does not have a registrant whose host has no association"
        )
        return found[gone.session.identity.hostid]

    seconds = bench.endpoint.deadline
    try:
        wait_until(lambda: cntlid() == NO_CONTROLLER, seconds, "the end of the controller")
    except DeadlineExceeded:
        pytest.fail(f"7.8: {seconds:g} s after the association's end its registrant has CNTLID {cntlid():#x}")
    gone.session = bench.session(identity=gone.session.identity)
    gone.queue = gone.session.io_queue()
    assert cntlid() == gone.session.cntlid, "7.8: the registrant's CNTLID once its host is connected again"
