"""Dwords 0 and 1 of completions that have no result: of Property Set, of Disconnect, and of what is refused.

A dword that a command does not use is reserved (Base 4.2.1), and a reserved field is 0 (1.4.1.6). Each case
first runs a command that has a result, which a controller may keep for the next completion.
"""

from __future__ import annotations

import pytest

from storagetest.wire.nvme import admin, fabrics, io
from storagetest.wire.nvme.codes import FABRICS, Feature, Property, status_name
from storagetest.wire.nvme.command import Command
from storagetest.wire.nvme_tcp import CommandResult, ControllerSession, Queue
from storagetest.wire.nvme_tcp.harness import Scratch

from .test_fabrics import needs_disconnect

pytestmark = [pytest.mark.needs("nvme-tcp-wire"), pytest.mark.case(level="MUST", section="Base 4.2.1")]

INVALID_NSID = 0xFFFFFFFE
RESERVED_CNS = 0x0F
RESERVED_LOG = 0x6F
UNKNOWN_OPCODE = 0x7C

TURNS = 4
"""Times that a command is sent, so that each place of a small queue has held a result before (chosen)."""

PLACES = 300
"""Commands of a case of a large queue: an admin queue has rarely more than 128 entries (chosen)."""


def _no_result(done: CommandResult, what: str, section: str) -> None:
    """Claim that bytes 0 to 7 of the completion are 0."""
    assert done.cqe.result == 0, (
        f"{section}: bytes 07:00 of the completion of {what} are reserved, but {done.cqe.result:#x} "
        f"({status_name(done.status)})"
    )


@pytest.mark.case("NVF-PROP-SET-RESULT", section="Base 6.6", kills=("property-set-result",))
def test_property_set_has_no_result(session: ControllerSession) -> None:
    """CC is set to the value that it has, each time after CAP was read."""
    value = session.get_property(Property.CC)
    for _ in range(TURNS):
        assert session.get_property(Property.CAP), "3.1.4.1: CAP is not 0"
        done = session.admin.run(fabrics.property_set(Property.CC, value))
        assert done.ok, f"6.6: CC is set to its value: not {status_name(done.status)}"
        _no_result(done, "Property Set", "6.6")


@pytest.mark.case("NVF-PROP-SET-REFUSED-RESULT", section="Base 6.6", kills=("property-set-refused-result",))
def test_a_property_set_that_is_refused_has_no_result(session: ControllerSession) -> None:
    """Its offset is no property's."""
    for _ in range(TURNS):
        assert session.get_property(Property.CAP), "3.1.4.1: CAP is not 0"
        _no_result(session.admin.run(fabrics.property_set(0x18, 1)), "Property Set", "6.6")


@pytest.mark.case("NVF-DISCONNECT-RESULT", section="Base 6.4", kills=("disconnect-result",))
def test_disconnect_has_no_result(session: ControllerSession, queue: Queue) -> None:
    """The completion before it on this queue is that of Connect, whose result is CNTLID."""
    needs_disconnect(session)
    done = queue.run(fabrics.disconnect())
    assert done.ok, f"6.4: Disconnect of an I/O queue is not {status_name(done.status)}"
    _no_result(done, "Disconnect", "6.4")


@pytest.mark.case("NVF-DISCONNECT-REFUSED-RESULT", section="Base 6.4", kills=("disconnect-refused-result",))
def test_a_disconnect_that_is_refused_has_no_result(session: ControllerSession) -> None:
    """It is sent on the admin queue."""
    for _ in range(TURNS):
        assert session.get_property(Property.CAP), "3.1.4.1: CAP is not 0"
        _no_result(session.admin.run(fabrics.disconnect()), "Disconnect", "6.4")


@pytest.mark.case("NVB-REFUSED-RESULT", kills=("refused-io-result",))
def test_an_io_command_that_is_refused_has_no_result(queue: Queue, scratch: Scratch) -> None:
    size = scratch.block_size
    for what, done in (
        ("a read past the end", queue.run(io.read(scratch.nsid, scratch.end, 1), reads=size)),
        ("a write past the end", queue.run(io.write(scratch.nsid, scratch.end, 1), data=bytes(size))),
        ("a read of an invalid NSID", queue.run(io.read(INVALID_NSID, 0, 1), reads=size)),
        ("a Flush of NSID 0", queue.run(io.flush(0))),
        ("an unknown opcode", queue.run(Command(UNKNOWN_OPCODE, nsid=scratch.nsid))),
    ):
        if not done.ok:
            _no_result(done, what, "4.2.1")


@pytest.mark.case("NVA-REFUSED-RESULT", kills=("refused-admin-result",))
def test_an_admin_command_that_is_refused_has_no_result(session: ControllerSession) -> None:
    """Each comes after Get Features (Number of Queues), whose result is not 0 with two queues or more."""
    for what, command, reads in (
        ("Identify of a reserved CNS", admin.identify(RESERVED_CNS), 4096),
        ("Get Log Page of a reserved page", admin.get_log_page(RESERVED_LOG, 64), 64),
        ("an unknown opcode", Command(UNKNOWN_OPCODE), 0),
        ("a fabrics command of a reserved type", Command(FABRICS, nsid=0x44), 0),
    ):
        session.admin.run(admin.get_features(Feature.NUMBER_OF_QUEUES))
        done = session.admin.run(command, reads=reads)
        if not done.ok:
            _no_result(done, what, "4.2.1")


@pytest.mark.case(
    "NVT-CQE-RESULT-LATE",
    section="Base 5.2.14",
    kills=("keep-alive-result-late",),
    builds_on=("NVF-PROP-01",),
)
def test_no_result_of_an_earlier_command_is_returned(session: ControllerSession) -> None:
    """As many commands with a result, and then without one, as use each place of a large queue twice."""
    for _ in range(PLACES):
        assert session.get_property(Property.CAP), "3.1.4.1: CAP is not 0"
    for number in range(1, PLACES + 1):
        done = session.admin.run(admin.keep_alive())
        assert done.ok, f"5.2.14: Keep Alive is not {status_name(done.status)}"
        _no_result(done, f"Keep Alive {number} of {PLACES}", "5.2.14")
