"""The same rule on the other side: of an I/O queue, the admin queue, the next error, a later part."""

from __future__ import annotations

import time

import pytest

from storagetest.errors import RemoteProtocolError
from storagetest.wire.nvme import admin, fabrics, io
from storagetest.wire.nvme.codes import Cns, Feature, LogPage, Property, StatusCode, status_name
from storagetest.wire.nvme_tcp import ControllerSession, Queue
from storagetest.wire.nvme_tcp.harness import Harness, Scratch, refused
from storagetest.wire.nvme_tcp.session import CSTS_READY, connect_queue

from .test_feature_selectors import UNDER
from .test_keep_alive_timer import LONG, TBKAS, timeout_in_use
from .test_log_pages import NO_COMMAND

pytestmark = [pytest.mark.needs("nvme-tcp-wire"), pytest.mark.case(level="MUST", section="Base 6.3")]

DISCONNECT = 1
"""OFCS bit 0: Disconnect is supported (Base 5.2.13.2.1)."""

PIECE = 1024
"""Bytes of a part of the discovery log: of its header, and of each entry (Base 5.2.12.3.3)."""

MOST_PIECES = 64
"""Parts of the discovery log that a case reads (chosen)."""

NO_FLOW_CONTROL = 1 << 2
"""CATTR of Connect: the host asks for SQ flow control to be disabled (6.3)."""


@pytest.mark.case("NVF-CONNECT-IO-SIZE-0", kills=("connect-io-size-0",), builds_on=("NVF-CONNECT-06",))
def test_sqsize_0_of_an_io_queue_is_refused(session: ControllerSession, bench: Harness) -> None:
    done = connect_queue(
        bench.queue(name="I/O queue"),
        subnqn=session.endpoint.subnqn,
        identity=session.identity,
        qid=1,
        sqsize=0,
        cntlid=session.cntlid,
    )
    refused(done, StatusCode.CONNECT_INVALID_PARAMETERS)


@pytest.mark.parametrize("recfmt", [
    pytest.param(1, marks=pytest.mark.case("NVF-DISCONNECT-FORMAT-1")),
    pytest.param(0xFFFF, marks=pytest.mark.case("NVF-DISCONNECT-FORMAT-FFFF")),
])  # fmt: skip
@pytest.mark.case(section="Base 6.4", kills=("disconnect-any-format",), builds_on=("NVF-DISCONNECT-01",))
def test_a_disconnect_of_another_format_is_refused(
    session: ControllerSession, queue: Queue, scratch: Scratch, recfmt: int
) -> None:
    """The queue goes on."""
    if not session.controller["ofcs"] & DISCONNECT:
        pytest.skip("OFCS: Disconnect is not supported")
    refused(queue.run(fabrics.disconnect(recfmt=recfmt)), StatusCode.CONNECT_INCOMPATIBLE_FORMAT)
    done = queue.run(io.flush(scratch.nsid))
    assert done.ok, f"6.4: after a Disconnect that was refused a Flush ends with {status_name(done.status)}"


@pytest.mark.case(
    "NVF-DISCOVERY-PARTS",
    section="Base 5.2.12.3.3",
    kills=("discovery-late-part",),
    builds_on=("NVF-DISCOVERY-04",),
)
def test_each_entry_of_the_discovery_log_is_read_alone(discovery: ControllerSession) -> None:
    if not discovery.controller["lpa"] & 4:
        pytest.skip("LPA bit 2: the log page offset is not supported")
    records = int.from_bytes(discovery.log_page(LogPage.DISCOVERY, PIECE)[8:16], "little")
    whole = discovery.log_page(LogPage.DISCOVERY, PIECE * (min(records, MOST_PIECES) + 1))
    for offset in range(0, len(whole), PIECE):
        command = admin.get_log_page(LogPage.DISCOVERY, PIECE, offset=offset)
        done = discovery.admin.run(command, reads=PIECE)
        assert done.ok, f"5.2.12: the log from LPO {offset} is {status_name(done.status)}"
        assert done.data == whole[offset : offset + PIECE], (
            f"5.2.12: {PIECE} bytes from LPO {offset} are not those of the whole log of {records} entries"
        )


# Errors of several commands (5.2.12.1.2)


@pytest.mark.case(
    "NVA-LOG-ERROR-EACH",
    section="Base 5.2.12.1.2",
    kills=("error-log-cid-of-other",),
    builds_on=("NVA-LOG-ERROR-COMMAND",),
)
def test_each_new_entry_is_of_a_command_that_failed(
    session: ControllerSession, queue: Queue, scratch: Scratch
) -> None:
    """Reads past the end and unknown log pages, by turns. Which of them are logged is not stated."""

    def entries() -> dict[int, tuple[int, int, int]]:
        raw = session.log_page(LogPage.ERROR, 64 * min(session.controller["elpe"] + 1, 16), nsid=0xFFFFFFFF)
        found = {}
        for at in range(0, len(raw), 64):
            fields = (int.from_bytes(raw[at + one : at + one + 2], "little") for one in (8, 10, 12))
            sqid, cid, status = fields
            found[int.from_bytes(raw[at : at + 8], "little")] = sqid, cid, status >> 1 & 0x7FF
        return found

    before = entries()
    failed = set()
    for number in range(4):
        if number % 2:
            cid, line = session.admin.submit(admin.get_log_page(0xBF, 64), reads=64), session.admin
        else:
            read = io.read(scratch.nsid, scratch.end, 1)
            cid, line = queue.submit(read, reads=scratch.block_size), queue
        done = line.wait(cid)
        if not done.ok:
            failed.add((line.qid, cid, done.status))
    new = {count: entry for count, entry in entries().items() if count and count not in before}
    new = {count: entry for count, entry in new.items() if entry[:2] != (NO_COMMAND, NO_COMMAND)}
    if not new:
        pytest.skip("the error log has no entry of them")
    for count, entry in new.items():
        assert entry in failed, (
            f"5.2.12.1.2: the entry with Error Count {count} has SQID, CID and status {entry}; the commands "
            f"that failed are {sorted(failed)}"
        )


# The timer (3.9)


@pytest.mark.slow
@pytest.mark.case(
    "NVA-KA-TRAFFIC-IO",
    section="Base 3.9.4.1",
    kills=("io-traffic-not-counted",),
    builds_on=("NVA-KA-TRAFFIC",),
)
def test_io_commands_keep_an_association_alive(bench: Harness) -> None:
    """The controller announces traffic based Keep Alive (TBKAS); the admin queue is silent."""
    kato = timeout_in_use(bench, LONG)
    session = bench.session(kato=kato)
    if not session.controller["ctratt"] & TBKAS:
        pytest.skip("CTRATT: no traffic based Keep Alive")
    nsid, queue = session.own_namespace(), session.io_queue()
    began = time.monotonic()
    try:
        while time.monotonic() < began + 2.5 * kato / 1000:
            time.sleep(kato / 4000)
            queue.run(io.flush(nsid))
        session.admin.run(admin.get_features(Feature.NUMBER_OF_QUEUES))
    except RemoteProtocolError as error:
        pytest.fail(
            f"3.9.4.1: the association has ended {time.monotonic() - began:.1f} s after its start, with an "
            f"I/O command every {kato / 4:g} ms; its Keep Alive Timeout is {kato} ms: {error}"
        )


@pytest.mark.case("NVA-FEAT-KATO-ROUND", section="Base 3.9.1", kills=("kato-rounded-down",))
def test_a_timeout_between_two_units_is_rounded_up(bench: Harness) -> None:
    """By Connect, and by Set Features: the timeout in use is never shorter than that which was asked for."""
    unit = bench.session(name="a look").controller["kas"] * 100
    if not unit:
        pytest.skip("KAS: no Keep Alive (NVA-ID-* claim it)")
    asked = unit * -(-60_000 // unit) + 1
    session = bench.session(kato=asked)

    def claim_long_enough(how: str, asked: int) -> None:
        done = session.admin.run(admin.get_features(Feature.KATO))
        assert done.ok, f"5.2.26.1.8: KATO is not {status_name(done.status)}"
        assert done.cqe.dw0 >= asked, (
            f"3.9.1: {how} asks for {asked} ms, and KAS is {unit} ms; the timeout in use is {done.cqe.dw0} ms"
        )

    claim_long_enough("Connect", asked)
    done = session.admin.run(admin.set_features(Feature.KATO, asked + unit))
    assert done.ok, f"5.2.26.1.8: {asked + unit} ms is not set: {status_name(done.status)}"
    claim_long_enough("Set Features", asked + unit)


# A value of its own (5.2.26.1.3), and responses without flow control


@pytest.mark.case("NVA-FEAT-RESET-UNDER", section="Base 4.4", level="SHOULD", kills=("reset-keeps-under",))
def test_the_under_temperature_threshold_ends_with_a_reset(session: ControllerSession) -> None:
    """It was set without Save."""

    def read() -> int:
        done = session.admin.run(admin.get_features(Feature.TEMPERATURE_THRESHOLD, cdw11=UNDER))
        if not done.ok:
            pytest.skip(f"Get Features (under temperature threshold) ends with {status_name(done.status)}")
        return done.cqe.dw0 & 0xFFFF

    first = read()
    done = session.admin.run(admin.set_features(Feature.TEMPERATURE_THRESHOLD, UNDER | first ^ 1))
    if not done.ok or read() == first:
        pytest.skip(f"the under temperature threshold is not set: {status_name(done.status)}")
    try:
        session.disable()
        session.enable()
        found = read()
        assert found == first, (
            f"4.4: the under temperature threshold is {found} K after a reset; it was set to {first ^ 1} K "
            f"without Save, and before that it was {first} K"
        )
    finally:
        session.admin.run(admin.set_features(Feature.TEMPERATURE_THRESHOLD, UNDER | first))


@pytest.mark.case(
    "NVT-C2H-ADMIN",
    section="NVMe/TCP 3.3.2.1",
    kills=("c2h-success-and-response-admin",),
    builds_on=("NVT-C2H-05",),
)
def test_no_response_follows_success_on_the_admin_queue(bench: Harness) -> None:
    """SQ flow control of the admin queue is disabled if the controller agrees."""
    endpoint, queue, identity = bench.endpoint, bench.queue(name="admin queue"), bench.any_host()
    done = connect_queue(
        queue,
        subnqn=endpoint.subnqn,
        identity=identity,
        cntlid=endpoint.any_controller,
        cattr=NO_FLOW_CONTROL,
    )
    if not done.ok:
        pytest.skip(f"a Connect that disables flow control ends with {status_name(done.status)}")
    session = ControllerSession(endpoint, identity, queue, done.cqe.dw0 & 0xFFFF)
    session.set_property(Property.CC, session.cc_enable)
    session.wait_status(CSTS_READY, within=max(session.cap.timeout, 1.0), expected="CSTS.RDY")
    for command, size in (
        (admin.identify(Cns.CONTROLLER), 4096),
        (admin.get_log_page(LogPage.FIRMWARE_SLOT, 512), 512),
        (admin.identify(Cns.ACTIVE_NAMESPACES), 4096),
    ):
        done = queue.run(command, reads=size)
        assert done.ok, f"3.3.2.1: a command that returns data ends with {status_name(done.status)}"
    done = queue.run(admin.keep_alive())
    assert done.ok, f"5.2.14: Keep Alive ends with {status_name(done.status)}"
