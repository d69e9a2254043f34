"""MDTS limits each command that transfers data: log pages and Reservation Report, too (Base 5.2.13.2.1)."""

from __future__ import annotations

import pytest

from storagetest.errors import RemoteProtocolError
from storagetest.wire.nvme import admin, io
from storagetest.wire.nvme.codes import LogPage
from storagetest.wire.nvme.command import Command
from storagetest.wire.nvme_tcp import ControllerSession, Queue
from storagetest.wire.nvme_tcp.reservation_harness import ReservingHost

pytestmark = [
    pytest.mark.needs("nvme-tcp-wire"),
    pytest.mark.case(level="MUST", section="Base 5.2.13.2.1", builds_on=("NVB-MDTS",)),
]

EVERY = 0xFFFFFFFF
LARGEST = 1 << 22
"""Bytes of MDTS from which on the cases ask for nothing (chosen)."""


def _more(session: ControllerSession) -> int:
    """Return one dword more than MDTS allows; skip if it sets no limit that a case reaches."""
    mdts = session.controller["mdts"]
    if not mdts or session.cap.page_size << mdts > LARGEST:
        pytest.skip(f"MDTS is {mdts}: no limit, or a large one")
    return (session.cap.page_size << mdts) + 4


def _succeeds(queue: Queue, command: Command, size: int) -> bool:
    """Whether the command is done. It may also end the connection: which status is right is NVB-MDTS's."""
    try:
        return queue.run(command, reads=size).ok
    except RemoteProtocolError:
        return False


@pytest.mark.case("NVA-MDTS-LOG", kills=("mdts-of-logs-ignored",))
def test_a_log_page_over_mdts_is_refused(session: ControllerSession) -> None:
    """The Error Information log page: its length does not matter, because NUMD is that of the transfer."""
    size = _more(session)
    if not session.controller["lpa"] & 4 and size > 1 << 18:
        pytest.skip("LPA bit 2: NUMDU is not supported")
    done = _succeeds(session.admin, admin.get_log_page(LogPage.ERROR, size, nsid=EVERY), size)
    assert not done, f"5.2.13.2.1: Get Log Page of {size} bytes succeeds; MDTS allows {size - 4}"


@pytest.mark.case("NVR-MDTS-REPORT", kills=("mdts-of-reports-ignored",))
def test_a_report_over_mdts_is_refused(hosts: tuple[ReservingHost, ReservingHost]) -> None:
    first, _ = hosts
    size = _more(first.session)
    done = _succeeds(first.queue, io.report(first.nsid, size), size)
    assert not done, f"5.2.13.2.1: Reservation Report of {size} bytes succeeds; MDTS allows {size - 4}"
