"""Keep Alive Timeouts of a fraction of a second: what takes seconds with longer ones (Base 3.9.5).

A controller whose least timeout is longer is skipped; the cases of ``test_keep_alive_timer`` wait for that.
"""

from __future__ import annotations

import pytest

from storagetest.errors import RemoteProtocolError
from storagetest.wire.nvme import admin, io
from storagetest.wire.nvme.codes import Feature, Property, status_name
from storagetest.wire.nvme_tcp import ControllerSession
from storagetest.wire.nvme_tcp.session import CSTS_FATAL

pytestmark = [
    pytest.mark.needs("nvme-tcp-wire"),
    pytest.mark.case(level="MUST", section="Base 3.9.5", builds_on=("NVA-FEAT-KATO-01",)),
]

ASKED = 100
"""Keep Alive Timeout in ms that the host asks for (chosen: the least unit of KAS)."""

MOST = 500
"""Keep Alive Timeout in ms over which these cases do not wait (chosen)."""

GRACE = 3.0
"""Seconds over twice the timeout and the cleanup until a host has to be given up (chosen)."""


def _set_short(session: ControllerSession) -> int | None:
    """Set a short timeout; return it, or None if the host is given up before it has read it.

    The host is silent from then on. The case is skipped if the timeout in use is a long one.
    """
    done = session.admin.run(admin.set_features(Feature.KATO, ASKED))
    if not done.ok:
        pytest.skip(f"a Keep Alive Timeout of {ASKED} ms is {status_name(done.status)}")
    try:
        found = session.admin.run(admin.get_features(Feature.KATO)).cqe.dw0
    except RemoteProtocolError:
        return None
    if not ASKED <= found <= MOST:
        pytest.skip(f"a Keep Alive Timeout of {ASKED} ms is set to {found} ms: other cases wait for that")
    return found


def _claim_given_up(session: ControllerSession, what: str) -> None:
    """Be silent; claim that the association ends."""
    cleanup = session.controller["cqt"] / 1000
    kato = _set_short(session)
    if kato is None:
        return
    ending = session.admin.wait_for_close(deadline=2 * kato / 1000 + cleanup + GRACE)
    fatal = not ending.ended and bool(session.get_property(Property.CSTS) & CSTS_FATAL)
    assert ending.ended or fatal, (
        f"3.9.5: a Keep Alive Timeout of {kato} ms ends the association; {what} goes on: {ending}"
    )


@pytest.mark.case("NVA-KA-SHORT", kills=("short-timer-never",))
def test_a_host_that_falls_silent_for_a_moment_is_given_up(session: ControllerSession) -> None:
    _claim_given_up(session, "the controller")


@pytest.mark.case("NVA-KA-SHORT-RESET", kills=("timer-gone-by-reset",), builds_on=("NVA-KA-SHORT",))
def test_the_timer_runs_after_a_reset_as_before(session: ControllerSession) -> None:
    for _ in range(2):
        session.disable()
        session.enable()
    _claim_given_up(session, "the controller, which was reset,")


@pytest.mark.case("NVA-KA-SHORT-DISCOVERY", kills=("discovery-timer-never",), builds_on=("NVA-KA-SHORT",))
def test_a_silent_host_of_a_discovery_controller_is_given_up(discovery: ControllerSession) -> None:
    """Its Connect has a timeout, and the controller has taken it."""
    _claim_given_up(discovery, "the discovery controller")


@pytest.mark.case("NVA-KA-SHORT-IO", kills=("timeout-leaves-io-queue",), builds_on=("NVA-KA-SHORT",))
def test_an_io_queue_ends_with_a_host_that_is_given_up(session: ControllerSession) -> None:
    """The host falls silent on all queues; afterwards the I/O queue carries out no command."""
    nsid, queue = session.own_namespace(), session.io_queue()
    _claim_given_up(session, "the controller")
    if queue.wait_for_close(deadline=1.0).ended:
        return
    try:
        done = queue.run(io.flush(nsid))
    except RemoteProtocolError:  # no response: the queue is not in use any more
        return
    assert not done.ok, "3.9.5: the association has ended, but its I/O queue carries out a Flush"
