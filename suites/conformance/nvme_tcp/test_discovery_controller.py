"""A discovery controller is a controller: its properties, queue entries, PDUs and digests (Base 3.1.3.3)."""

from __future__ import annotations

import pytest

from storagetest.errors import RemoteProtocolError
from storagetest.wire.nvme import admin, fabrics
from storagetest.wire.nvme.codes import Cns, LogPage, Property, StatusCode, status_name
from storagetest.wire.nvme.command import Command
from storagetest.wire.nvme.fabrics import ANY_CONTROLLER, DISCOVERY_NQN
from storagetest.wire.nvme_tcp import ControllerSession, Queue
from storagetest.wire.nvme_tcp.harness import Harness
from storagetest.wire.nvme_tcp.pdu import C2HData, ICReq
from storagetest.wire.nvme_tcp.session import CSTS_READY, CSTS_SHUTDOWN_DONE, connect_queue

from .test_digests import needs_digests

pytestmark = [
    pytest.mark.needs("nvme-tcp-wire"),
    pytest.mark.case(level="MUST", section="Base 3.1.3.3", builds_on=("NVF-DISCOVERY-02",)),
]

ENTRY_SIZES = 0xFF << 16
"""IOSQES and IOCQES of CC (3.1.4.5)."""
HEAD = 1024
"""Bytes of the head of the discovery log page (5.2.12.3.3)."""


def _log(session: ControllerSession, length: int = HEAD) -> bytes:
    done = session.admin.run(admin.get_log_page(LogPage.DISCOVERY, length), reads=length)
    assert done.ok, f"5.2.12.3.3: the discovery log page is not {status_name(done.status)}"
    assert len(done.data) == length, f"5.2.12: {len(done.data)} bytes of {length} are returned"
    return done.data


def _service(bench: Harness, *, enable: bool = True, icreq: ICReq | None = None) -> ControllerSession:
    """Return a session with the discovery controller; skip if the Connect is refused, as it may be."""
    try:
        return bench.session(subnqn=DISCOVERY_NQN, enable=enable, icreq=icreq, name="discovery")
    except RemoteProtocolError as error:
        if "refused" not in str(error):
            raise
        pytest.skip(f"no discovery service at this port: {error}")


@pytest.mark.case("NVF-DISCOVERY-DISABLED", section="Base 3.3.2.3", kills=("discovery-en-ignored",))
def test_admin_commands_of_a_discovery_controller_wait_until_it_is_enabled(bench: Harness) -> None:
    session = _service(bench, enable=False)
    for name, command, reads in (
        ("Identify", admin.identify(Cns.CONTROLLER), 4096),
        ("Get Log Page", admin.get_log_page(LogPage.DISCOVERY, HEAD), HEAD),
    ):
        done = session.admin.run(command, reads=reads)
        assert not done.ok, (
            f"3.3.2.3: {name} of a discovery controller succeeds before CC.EN is set: Command Sequence Error"
        )
    session.enable()
    _log(session)


@pytest.mark.case("NVF-DISCOVERY-NO-SIZES", section="Base 3.1.4.5", kills=("discovery-wants-sizes",))
def test_a_discovery_controller_is_enabled_without_sizes_of_io_queue_entries(bench: Harness) -> None:
    """IOSQES and IOCQES are of I/O queues; a controller that supports none has 0h there."""
    session = _service(bench, enable=False)
    for turn in (1, 2):
        session.set_property(Property.CC, session.cc_enable & ~ENTRY_SIZES)
        try:
            session.wait_status(CSTS_READY, within=max(session.cap.timeout, 1.0), expected="CSTS.RDY")
        except RemoteProtocolError as error:
            raise AssertionError(
                f"3.1.4.5: enabled {turn} times with IOSQES and IOCQES 0h, not ready: {error}"
            ) from error
        _log(session)
        session.disable()


@pytest.mark.case("NVF-DISCOVERY-RESET", section="Base 3.7.2", kills=("discovery-reset-ignored",))
def test_a_discovery_controller_is_reset_and_used_again(bench: Harness) -> None:
    session = _service(bench)
    before = _log(session)
    for turn in range(2):
        session.disable()
        assert not session.get_property(Property.CSTS) & CSTS_READY
        done = session.admin.run(admin.get_log_page(LogPage.DISCOVERY, HEAD), reads=HEAD)
        assert not done.ok, f"3.3.2.3: the discovery log is read in reset {turn + 1}, before CC.EN is set"
        session.enable()
        assert _log(session)[8:16] == before[8:16], f"5.2.12.3.3: NUMREC after reset {turn + 1}"


@pytest.mark.case("NVF-DISCOVERY-SHUTDOWN", section="Base 3.6.2", kills=("discovery-shutdown-hangs",))
def test_a_shutdown_of_a_discovery_controller_completes(bench: Harness) -> None:
    """A reset and CC.EN make it ready again."""
    session = _service(bench)
    try:
        session.shut_down()
    except RemoteProtocolError as error:
        raise AssertionError(
            f"3.6.2: a shutdown of a discovery controller does not complete: {error}"
        ) from error
    session.disable()
    session.enable()
    csts = session.get_property(Property.CSTS)
    assert not csts & CSTS_SHUTDOWN_DONE, f"3.6.2: CSTS is {csts:#x} after the reset: SHST is 00b"
    _log(session)


@pytest.mark.case("NVF-DISCOVERY-SQHD", section="Base 4.2.1", kills=("discovery-sqhd-stuck",))
def test_sqhd_of_a_discovery_controller_wraps(bench: Harness) -> None:
    session = _service(bench)
    size = (session.admin.sqsize or 1) + 1
    heads = []
    for number in range(size + 3):
        if number % 2:
            done = session.admin.run(admin.get_log_page(LogPage.DISCOVERY, HEAD), reads=HEAD)
        else:
            done = session.admin.run(fabrics.property_get(Property.CSTS))
        assert done.ok, f"4.2.1: command {number + 1} is not {status_name(done.status)}"
        heads.append(done.cqe.sqhd)
    wanted = [(heads[0] + number) % size for number in range(len(heads))]
    assert heads == wanted, f"4.2.1: SQHD of a queue of {size} entries: {heads}; required: {wanted}"


@pytest.mark.case("NVF-DISCOVERY-OPCODE", section="Base 4.2.3.1", kills=("discovery-opcode-taken",))
def test_a_discovery_controller_refuses_commands_that_it_has_not(bench: Harness) -> None:
    """Reserved opcodes and CNS values, and commands of queues that no controller over fabrics has."""
    session = _service(bench)
    commands = {
        "opcode 3Ch": Command(0x3C),
        "Create I/O Submission Queue": Command(0x01, cdw10=1 | 1 << 16, cdw11=1),
        "opcode 50h": Command(0x50),
        "Identify of CNS F0h": admin.identify(0xF0),
        "a Disconnect of the admin queue": fabrics.disconnect(),
    }
    for name, command in commands.items():
        done = session.admin.run(command, reads=4096 if "Identify" in name else 0)
        assert not done.ok, f"4.2.3.1: {name} succeeds on a discovery controller"
    _log(session)


@pytest.mark.case("NVF-DISCOVERY-AGAIN", section="Base 3.3.2.3", kills=("discovery-connect-again",))
def test_a_second_connect_to_a_discovery_controller_is_refused(bench: Harness) -> None:
    """It comes on the queue that is connected, which goes on."""
    session = _service(bench)
    done = connect_queue(
        session.admin, subnqn=DISCOVERY_NQN, identity=session.identity, cntlid=ANY_CONTROLLER
    )
    assert not done.ok, "3.3.2.3: a second Connect on a queue succeeds: Command Sequence Error"
    _log(session)


@pytest.mark.case("NVF-DISCOVERY-TWO", section="Base 6.3", kills=("discovery-one-id",))
def test_two_discovery_controllers_have_ids_of_their_own(bench: Harness) -> None:
    """A host has one while another one reads the log, and after that one has left."""
    first, second = _service(bench), _service(bench)
    assert first.cntlid != second.cntlid, f"6.3: both discovery controllers have CNTLID {first.cntlid:#x}"
    for session in (first, second):
        found = session.controller["cntlid"]
        assert found == session.cntlid, f"5.2.13.2.1: CNTLID is {found:#x}; Connect: {session.cntlid:#x}"
    before = _log(second)
    first.close()
    assert _log(second) == before, "5.2.12.3.3: the log after another host has left"


@pytest.mark.parametrize(("header", "data"), [
    pytest.param(True, False, marks=pytest.mark.case("NVF-DISCOVERY-DIGEST-H")),
    pytest.param(False, True, marks=pytest.mark.case("NVF-DISCOVERY-DIGEST-D")),
    pytest.param(True, True, marks=pytest.mark.case("NVF-DISCOVERY-DIGEST-HD")),
])  # fmt: skip
@pytest.mark.case(section="NVMe/TCP 3.3.1.1", kills=("discovery-digest-lost",))
def test_the_discovery_log_comes_with_the_digests_that_were_negotiated(
    bench: Harness, header: bool, data: bool
) -> None:
    session = _service(bench, icreq=ICReq(header_digest=header, data_digest=data))
    needs_digests(session.admin)
    done = session.admin.run(admin.get_log_page(LogPage.DISCOVERY, HEAD), reads=HEAD)
    assert done.ok, f"5.2.12.3.3: the discovery log page is not {status_name(done.status)}"
    for received in done.pdus:
        assert received.header_digest_ok is (True if header else None), (
            f"3.3.1.1: HDGST of {type(received.pdu).__name__} of the discovery log page"
        )
        if isinstance(received.pdu, C2HData):
            assert received.data_digest_ok is (True if data else None), "3.3.1.1: DDGST of the log page"


@pytest.mark.case("NVF-DISCOVERY-EVENTS", section="Base 5.2.2", kills=("discovery-event-at-once",))
def test_an_event_request_of_a_discovery_controller_waits_or_is_refused(bench: Harness) -> None:
    """A discovery controller need not have events. If it takes the request, other commands go on."""
    session = _service(bench)
    queue: Queue = session.admin
    _log(session)
    asked = queue.submit(admin.async_event())
    _log(session)
    status = queue.status_of(asked)
    if status not in (None, StatusCode.SUCCESS):
        pytest.skip(f"the discovery controller takes no event requests: {status_name(status)}")
    if status is None:
        return
    kind = queue.wait(asked).cqe.dw0
    page = kind >> 16 & 0xFF
    assert page, f"5.2.2: an event request is completed by {kind:#010x}, which names no log page"
