"""A controller over time: before CC.EN, after a shutdown, after several resets (Base 3.1.4, 3.5 to 3.7)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from storagetest.errors import RemoteProtocolError
from storagetest.polling import wait_until
from storagetest.wire.nvme import admin, fabrics, io
from storagetest.wire.nvme.codes import Cns, Property, StatusCode, status_name
from storagetest.wire.nvme.command import Command
from storagetest.wire.nvme_tcp import CommandResult, ControllerSession, Identity, Queue
from storagetest.wire.nvme_tcp.harness import Harness, Scratch, block_data, refused
from storagetest.wire.nvme_tcp.session import (
    CC_SHUTDOWN_NORMAL,
    CSTS_FATAL,
    CSTS_READY,
    connect_queue,
)

pytestmark = [pytest.mark.needs("nvme-tcp-wire"), pytest.mark.case(level="MUST", section="Base 3.1.4.6")]

SHST = 0xC
CSTS_DEFINED = 0x7F
"""CSTS: RDY, CFS, SHST, NSSRO, PP and ST; the other bits are reserved (3.1.4.6)."""


def status(session: ControllerSession) -> int:
    """Return CSTS."""
    return session.get_property(Property.CSTS)


@pytest.mark.case("NVF-CSTS-01", kills=("csts-ready-early",))
def test_a_controller_is_not_ready_before_it_is_enabled(bench: Harness) -> None:
    session = bench.session(enable=False)
    assert not session.get_property(Property.CC) & 1, "3.1.4.5: CC.EN is 0 after Connect"
    assert not status(session) & CSTS_READY, "3.1.4.6: CSTS.RDY is 1 only after CC.EN is set"


@pytest.mark.case("NVF-CSTS-02", kills=("csts-fatal", "csts-shutdown-early", "csts-reserved"))
def test_status_before_and_after_enable(bench: Harness) -> None:
    session = bench.session(enable=False)
    for when in ("before", "after"):
        value = status(session)
        assert not value & CSTS_FATAL, f"3.1.4.6: CSTS.CFS is set {when} CC.EN, and there was no error"
        assert not value & SHST, f"3.1.4.6: CSTS.SHST is not 00b {when} CC.EN, and no shutdown was requested"
        assert not value & ~CSTS_DEFINED, f"3.1.4.6: reserved bits of CSTS are set {when} CC.EN: {value:#x}"
        session.enable()


@pytest.mark.case("NVF-SHUTDOWN-02", section="Base 3.1.4.5", kills=("cc-shutdown-lost",))
def test_cc_reads_as_written_after_a_shutdown(session: ControllerSession) -> None:
    session.shut_down()
    value = session.get_property(Property.CC)
    wanted = session.cc_enable | CC_SHUTDOWN_NORMAL
    assert value == wanted, f"3.1.4.5: CC was written with SHN 01b, but is {value:#x}"


@pytest.mark.case("NVF-SHUTDOWN-03", section="Base 3.6.2", kills=("csts-shutdown-stays",))
def test_a_controller_is_used_again_after_a_shutdown(session: ControllerSession) -> None:
    session.shut_down()
    session.disable()
    session.enable()
    assert status(session) & SHST == 0, "3.6.2: a reset after a shutdown clears CSTS.SHST"
    assert session.namespaces(), "3.6.2: and the controller executes commands"


def _carried_out(queue: Queue, command: Command, reads: int = 0) -> bool:
    """Whether a command succeeds; a controller may refuse it, end the connection, or send nothing."""
    try:
        return queue.wait(queue.submit(command, reads=reads), deadline=1.0).ok
    except RemoteProtocolError:
        return False


@pytest.mark.case("NVF-SHUTDOWN-COMMANDS", section="Base 3.6.2", kills=("shutdown-serves-all",))
def test_after_a_shutdown_only_fabrics_commands_are_processed(session: ControllerSession) -> None:
    """Until a reset: neither admin commands nor commands of an I/O queue."""
    nsid, queue = session.own_namespace(), session.io_queue()
    session.shut_down()
    assert not _carried_out(queue, io.flush(nsid)), "3.6.2: Flush is carried out after a shutdown"
    assert not _carried_out(session.admin, admin.identify(Cns.CONTROLLER), 4096), (
        "3.6.2: Identify is carried out after a shutdown"
    )


@pytest.mark.case("NVF-RESET-02", section="Base 3.7.2", kills=("reset-second-ignored",))
def test_each_reset_is_like_the_first(session: ControllerSession) -> None:
    for number in (1, 2, 3):
        session.disable()
        assert not status(session) & CSTS_READY, f"3.7.2: CSTS.RDY is 1 in reset {number}"
        session.enable()
        assert session.namespaces(), f"3.5.1: commands are executed after reset {number}"


def reset(session: ControllerSession) -> None:
    """Close the I/O queues, as a host does, and reset and enable the controller."""
    for queue in session.io_queues:
        queue.close()
    session.disable()
    session.enable()


def io_queue(session: ControllerSession) -> Queue:
    """Connect I/O queue 1; the end of an earlier one may take its time."""

    def connected() -> Queue | None:
        try:
            return session.io_queue(qid=1)
        except RemoteProtocolError:
            return None

    what = "a Connect of I/O queue 1 that is not refused (Base 3.7.2: a reset deletes the I/O queues)"
    return wait_until(connected, session.endpoint.deadline, what, interval=0.05, error=RemoteProtocolError)


@pytest.mark.case("NVF-RESET-03", section="Base 3.7.2", kills=("reset-ends-io",))
def test_io_queues_are_connected_after_a_reset(session: ControllerSession) -> None:
    nsid = session.own_namespace()
    for number in (1, 2):
        assert io_queue(session).run(io.flush(nsid)).ok, f"6.3: I/O queue 1 before reset {number}"
        reset(session)
    assert io_queue(session).run(io.flush(nsid)).ok, "3.7.2: QID 1 is free after a reset"


@pytest.mark.case("NVF-RESET-04", section="Base 3.7.2", kills=("write-lost",))
def test_data_outlive_a_reset(session: ControllerSession, scratch: Scratch) -> None:
    data, size = block_data(scratch.block_size, 1), scratch.block_size
    assert io_queue(session).run(io.write(scratch.nsid, scratch.lba, 1), data=data).ok
    reset(session)
    done = io_queue(session).run(io.read(scratch.nsid, scratch.lba, 1), reads=size)
    assert done.data == data, "3.7.2: a controller reset changes no user data"


@pytest.mark.case("NVF-PROP-09", section="Base 6.5", kills=("property-upper",))
def test_a_property_of_four_bytes_has_no_upper_dword(session: ControllerSession) -> None:
    for offset in (Property.VS, Property.CC, Property.CSTS):
        value = session.get_property(offset)
        assert value >> 32 == 0, (
            f"6.5: the upper dword of property {offset:#x} is reserved, but is {value:#x}"
        )


# Connect of an I/O queue (6.3): each field that ties it to its admin queue, alone


def io_connect(
    bench: Harness,
    session: ControllerSession,
    *,
    identity: Identity | None = None,
    subnqn: str | None = None,
    cntlid: int | None = None,
) -> CommandResult:
    """Connect an I/O queue to ``session``'s controller, with some fields changed."""
    return connect_queue(
        bench.queue(name="I/O queue"),
        subnqn=session.endpoint.subnqn if subnqn is None else subnqn,
        identity=identity or session.identity,
        qid=1,
        sqsize=min(15, session.cap.mqes),
        cntlid=session.cntlid if cntlid is None else cntlid,
    )


@pytest.mark.case("NVF-CONNECT-27", section="Base 6.3", kills=("connect-io-nqn",))
def test_an_io_queue_with_another_host_nqn_is_refused(bench: Harness, session: ControllerSession) -> None:
    other = replace(session.identity, nqn=Identity.fresh().nqn)
    done = io_connect(bench, session, identity=other)
    refused(done, StatusCode.CONNECT_INVALID_PARAMETERS, StatusCode.CONNECT_INVALID_HOST)


@pytest.mark.case("NVF-CONNECT-28", section="Base 6.3", kills=("connect-io-subnqn",))
def test_an_io_queue_of_another_subsystem_is_refused(bench: Harness, session: ControllerSession) -> None:
    done = io_connect(bench, session, subnqn="nqn.2024-01.org.example:no-such")
    refused(done, StatusCode.CONNECT_INVALID_PARAMETERS, StatusCode.CONNECT_INVALID_HOST)


@pytest.mark.case("NVF-CONNECT-29", section="Base 6.3", kills=("connect-io-any-cntlid",))
def test_an_io_queue_of_any_controller_is_refused(bench: Harness, session: ControllerSession) -> None:
    done = io_connect(bench, session, cntlid=fabrics.ANY_CONTROLLER)
    refused(done, StatusCode.CONNECT_INVALID_PARAMETERS)


@pytest.mark.case("NVF-CONNECT-30", section="Base 6.3", kills=("connect-io-result",))
def test_connect_of_an_io_queue_returns_the_controllers_id(
    bench: Harness, session: ControllerSession
) -> None:
    done = io_connect(bench, session)
    assert done.ok, f"6.3: Connect of an I/O queue is not {status_name(done.status)}"
    assert done.cqe.dw0 & 0xFFFF == session.cntlid, f"6.3: CNTLID is {session.cntlid}, not {done.cqe.dw0:#x}"
