"""Commands that come while CC.EN is 0: before it was set, and in a controller reset (Base 3.3.2.3, 3.7.2)."""

from __future__ import annotations

import pytest

from storagetest.errors import RemoteProtocolError
from storagetest.wire.nvme import admin
from storagetest.wire.nvme.codes import Cns, Feature, LogPage, Property, StatusCode, status_name
from storagetest.wire.nvme.command import Command
from storagetest.wire.nvme_tcp import ControllerSession
from storagetest.wire.nvme_tcp.harness import Harness, refused
from storagetest.wire.nvme_tcp.session import connect_queue

pytestmark = [
    pytest.mark.needs("nvme-tcp-wire"),
    pytest.mark.case(level="MUST", section="Base 3.3.2.3", builds_on=("NVF-ENABLE-01",)),
]

EVERY = 0xFFFFFFFF

COMMANDS: dict[str, tuple[Command, int]] = {
    "IDENTIFY": (admin.identify(Cns.CONTROLLER), 4096),
    "GET-LOG-PAGE": (admin.get_log_page(LogPage.FIRMWARE_SLOT, 512, nsid=EVERY), 512),
    "GET-FEATURES": (admin.get_features(Feature.NUMBER_OF_QUEUES), 0),
    "SET-FEATURES": (admin.set_features(Feature.NUMBER_OF_QUEUES, 0), 0),
    "EVENT-REQUEST": (admin.async_event(), 0),
    "KEEP-ALIVE": (admin.keep_alive(), 0),
    "ABORT": (admin.abort(sqid=0, cid=0x7FFE), 0),
}
"""By name: an admin command that a ready controller processes, and the bytes that it returns."""


def _claim_refused(session: ControllerSession, name: str, when: str) -> None:
    """Claim that the command ends, and not as a success; an event request may not wait, either."""
    command, reads = COMMANDS[name]
    cid = session.admin.submit(command, reads=reads)
    for _ in range(2):  # commands that are outstanding together complete in any order
        session.get_property(Property.CSTS)
    if session.admin.status_of(cid) is None:
        assert name != "EVENT-REQUEST", f"3.3.2.3: {when}, an Asynchronous Event Request waits for an event"
    done = session.admin.wait(cid)
    assert done.status == StatusCode.COMMAND_SEQUENCE_ERROR, (
        f"3.3.2.3: {when}, {name} ends with {status_name(done.status)}: Command Sequence Error"
    )


@pytest.mark.parametrize("name", [
    pytest.param(name, marks=pytest.mark.case(f"NVF-NOT-READY-{name}", kills=("cc-en-for-identify-alone",)))
    for name in COMMANDS
    if name != "IDENTIFY"  # NVF-ENABLE-01
])  # fmt: skip
def test_no_admin_command_is_processed_before_the_controller_is_enabled(bench: Harness, name: str) -> None:
    _claim_refused(bench.session(enable=False), name, "before CC.EN is set")


@pytest.mark.parametrize("name", [
    pytest.param(name, marks=pytest.mark.case(f"NVF-IN-RESET-{name}", kills=("cc-en-once",)))
    for name in COMMANDS
])  # fmt: skip
def test_no_admin_command_is_processed_while_the_controller_is_reset(bench: Harness, name: str) -> None:
    """It was enabled before, and has served the command."""
    session = bench.session()
    session.disable()
    _claim_refused(session, name, "after CC.EN was cleared")
    session.enable()
    command, reads = COMMANDS[name]
    if name not in ("EVENT-REQUEST", "ABORT"):
        done = session.admin.run(command, reads=reads)
        assert done.ok, f"3.7.2: after the reset {name} ends with {status_name(done.status)}"


@pytest.mark.case("NVF-IN-RESET-CONNECT", kills=("reset-takes-io-queues",), builds_on=("NVF-CONNECT-11",))
def test_no_io_queue_is_connected_while_the_controller_is_reset(bench: Harness) -> None:
    """The host has had an I/O queue before the reset, which has ended."""
    session = bench.session()
    session.io_queue()
    session.disable()
    queue = bench.queue(name="I/O queue")
    done = connect_queue(
        queue,
        subnqn=session.endpoint.subnqn,
        identity=session.identity,
        qid=1,
        sqsize=min(15, session.cap.mqes),
        cntlid=session.cntlid,
    )
    refused(done, StatusCode.CONNECT_INVALID_PARAMETERS, StatusCode.COMMAND_SEQUENCE_ERROR)


@pytest.mark.case(
    "NVF-IN-RESET-DISCOVERY", kills=("discovery-cc-en-once",), builds_on=("NVF-DISCOVERY-RESET",)
)
def test_a_discovery_controller_in_a_reset_processes_no_command(discovery: ControllerSession) -> None:
    discovery.disable()
    for name in ("IDENTIFY", "KEEP-ALIVE"):
        command, reads = COMMANDS[name]
        done = discovery.admin.run(command, reads=reads)
        assert not done.ok, (
            f"3.3.2.3: {name} succeeds on a discovery controller after CC.EN was cleared: Command Sequence "
            "Error"
        )
    try:
        discovery.enable()
    except RemoteProtocolError as error:
        pytest.fail(f"3.7.2: after the reset the discovery controller is not ready: {error}")
