"""Fabrics commands: Connect (Base 6.3), Property Get and Set (6.5, 6.6), Disconnect (6.4), their order."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from storagetest.errors import RemoteProtocolError
from storagetest.wire.nvme import admin, fabrics, io
from storagetest.wire.nvme.codes import Cns, Fctype, Property, StatusCode, status_name
from storagetest.wire.nvme.fabrics import DISCOVERY_NQN, ConnectData
from storagetest.wire.nvme.structures import Cap, discovery_entries
from storagetest.wire.nvme_tcp import CommandResult, ControllerSession, Identity, Queue
from storagetest.wire.nvme_tcp.harness import Harness, refused
from storagetest.wire.nvme_tcp.session import CSTS_READY, CSTS_SHUTDOWN_DONE, KATO, connect_queue

pytestmark = [pytest.mark.needs("nvme-tcp-wire"), pytest.mark.case(level="MUST", section="Base 6.3")]

Observe = Callable[[str], None]

IN_DATA = 1 << 16
"""IATTR: the offset in the result of a refused Connect counts from the start of its data."""


AUTHREQ = 0b110
"""Bits of AUTHREQ in the result of Connect: authentication is required (1), with a secure channel (2)."""

TRTYPE_TCP = 3
"""Transport Type of TCP in the Discovery log page (Base 5.2.12.3.3)."""

HOSTID_0_SINCE = 0x00020100
"""The first version (VER) whose text has a Host Identifier of 0h for I/O queues (6.3)."""

QUEUE_EXISTS = (
    StatusCode.COMMAND_SEQUENCE_ERROR,
    StatusCode.INVALID_QUEUE_IDENTIFIER,
    StatusCode.CONNECT_INVALID_PARAMETERS,
)
"""How a Connect for a queue that exists ends: the first by 3.3.2.3, any of the three by 6.3 (QID)."""

# Connect


@pytest.mark.case("NVF-CONNECT-01", kills=("connect-cntlid",))
def test_connect_returns_the_controllers_id(session: ControllerSession) -> None:
    assert session.cntlid == session.controller["cntlid"], "6.3: CNTLID of Connect and of Identify"
    assert session.cntlid < 0xFFF0, "6.3: FFF0h to FFFFh are not allocated"


@pytest.mark.case("NVF-CONNECT-02", kills=("connect-cntlid-shared",))
def test_two_hosts_get_two_controllers(bench: Harness) -> None:
    first, second = bench.session(), bench.session()
    assert first.cntlid != second.cntlid, "6.3: no controller is allocated that is associated with a host"


@pytest.mark.parametrize("qid", [
    pytest.param(0, marks=pytest.mark.case("NVF-AUTHREQ-ADMIN")),
    pytest.param(1, marks=pytest.mark.case("NVF-AUTHREQ-IO")),
])  # fmt: skip
@pytest.mark.case(kills=("authentication-only-asked", "authreq-reserved"))
def test_connect_asks_for_authentication_only_if_it_is_required(bench: Harness, qid: int) -> None:
    """A queue whose Connect asks for authentication carries out no other command before it."""
    session = bench.session(enable=bool(qid))
    queue, cntlid = (bench.queue(), session.cntlid) if qid else (bench.queue(), bench.endpoint.any_controller)
    done = connect_queue(
        queue, subnqn=bench.endpoint.subnqn, identity=session.identity, qid=qid, sqsize=1, cntlid=cntlid
    )
    assert done.ok, f"6.3: Connect ended with {status_name(done.status)}"
    required = done.cqe.dw0 >> 16
    assert not required & ~AUTHREQ, f"6.3: AUTHREQ is {required:#x}, and has reserved bits set"
    first = io.flush(session.own_namespace()) if qid else fabrics.property_get(Property.VS)
    answer = queue.run(first)
    if required:
        refused(answer, StatusCode.AUTHENTICATION_REQUIRED)
    else:
        assert answer.ok, f"6.3: AUTHREQ is 0, but the next command ended with {status_name(answer.status)}"


def _admin_connect(bench: Harness, **more: Any) -> CommandResult:
    """Connect an admin queue to any controller, as a new host, with some parameters replaced."""
    endpoint = bench.endpoint
    given = {
        "subnqn": endpoint.subnqn,
        "identity": bench.any_host(),
        "cntlid": endpoint.any_controller,
    }
    return connect_queue(bench.queue(), **given | more)


@pytest.mark.case("NVF-CONNECT-03", kills=("connect-wrong-status",))
def test_an_unknown_subsystem_is_refused(bench: Harness) -> None:
    done = _admin_connect(bench, subnqn="nqn.2024-01.org.example:no-such")
    refused(done, StatusCode.CONNECT_INVALID_PARAMETERS)


@pytest.mark.case("NVF-CONNECT-04", kills=("connect-ipo",))
def test_a_refused_connect_reports_that_subnqn_is_wrong(bench: Harness) -> None:
    done = _admin_connect(bench, subnqn="nqn.2024-01.org.example:no-such")
    assert done.cqe.dw0 == 256 | IN_DATA, f"6.3: IATTR 1 and IPO 256 (SUBNQN), not {done.cqe.dw0:#x}"


@pytest.mark.case("NVF-CONNECT-05", kills=("connect-wrong-status",))
def test_a_cntlid_is_refused_in_the_dynamic_model(bench: Harness, observe: Observe) -> None:
    if bench.endpoint.any_controller != fabrics.ANY_CONTROLLER:
        pytest.skip("CNTLID FFFFh is refused: the controller model is the static one")
    done = _admin_connect(bench, cntlid=0x7FF0)
    observe(status_name(done.status))
    refused(done, StatusCode.CONNECT_INVALID_PARAMETERS)


@pytest.mark.case("NVF-CONNECT-06", kills=("connect-wrong-status",))
def test_sqsize_0_is_refused(bench: Harness) -> None:
    done = _admin_connect(bench, sqsize=0)
    refused(done, StatusCode.CONNECT_INVALID_PARAMETERS)


@pytest.mark.case("NVF-CONNECT-07", kills=("connect-ipo",))
def test_a_refused_connect_reports_that_sqsize_is_wrong(bench: Harness) -> None:
    done = _admin_connect(bench, sqsize=0)
    assert done.cqe.dw0 == 44, f"6.3: IATTR 0 and IPO 44 (SQSIZE), not {done.cqe.dw0:#x}"


@pytest.mark.case("NVF-CONNECT-08", kills=("connect-wrong-status",))
def test_an_io_queue_over_mqes_is_refused(session: ControllerSession, bench: Harness) -> None:
    mqes = session.cap.mqes
    if mqes == 0xFFFF:
        pytest.skip("CAP.MQES is as large as SQSIZE can be")
    refused(_io_connect(bench, session, sqsize=mqes + 1), StatusCode.CONNECT_INVALID_PARAMETERS)


@pytest.mark.case("NVF-CONNECT-09", kills=("connect-wrong-status",))
def test_an_unknown_record_format_is_refused(bench: Harness) -> None:
    done = _admin_connect(bench, recfmt=7)
    refused(done, StatusCode.CONNECT_INCOMPATIBLE_FORMAT)


@pytest.mark.case("NVF-CONNECT-10", section="Base 3.3.2.3", kills=("connect-sequence",))
def test_a_second_connect_on_a_queue_is_a_sequence_error(session: ControllerSession) -> None:
    again = connect_queue(session.admin, subnqn=session.endpoint.subnqn, identity=session.identity)
    refused(again, *QUEUE_EXISTS)


@pytest.mark.case("NVF-CONNECT-11", kills=("connect-wrong-status",))
def test_an_io_queue_of_a_disabled_controller_is_refused(bench: Harness) -> None:
    session = bench.session(enable=False)
    refused(_io_connect(bench, session), StatusCode.CONNECT_INVALID_PARAMETERS)


@pytest.mark.case("NVF-CONNECT-12", kills=("connect-wrong-status",))
def test_an_io_queue_of_no_controller_is_refused(bench: Harness) -> None:
    done = connect_queue(
        bench.queue(), subnqn=bench.endpoint.subnqn, identity=bench.any_host(), qid=1, cntlid=0x7FF0
    )
    refused(done, StatusCode.CONNECT_INVALID_PARAMETERS)


@pytest.mark.case("NVF-CONNECT-13", kills=("connect-wrong-status",))
def test_io_queue_of_another_hosts_controller_is_refused(session: ControllerSession, bench: Harness) -> None:
    done = _io_connect(bench, session, identity=Identity.fresh())
    refused(done, StatusCode.CONNECT_INVALID_PARAMETERS, StatusCode.CONNECT_INVALID_HOST)


@pytest.mark.case("NVF-CONNECT-14", kills=("connect-wrong-status",))
def test_io_queue_with_another_host_identifier_is_refused(session: ControllerSession, bench: Harness) -> None:
    other = replace(session.identity, hostid=Identity.fresh().hostid)
    refused(_io_connect(bench, session, identity=other), StatusCode.CONNECT_INVALID_PARAMETERS)


@pytest.mark.case("NVF-CONNECT-HOSTID-0", kills=("host-identifier-required",))
def test_the_host_identifier_of_an_io_queue_may_be_0(session: ControllerSession, bench: Harness) -> None:
    """A Host Identifier of 0h is ignored in the Connect of an I/O queue: it is its admin queue's."""
    if session.controller["ver"] < HOSTID_0_SINCE:
        pytest.skip("VER: a Host Identifier of 0h is not defined before 2.1")
    done = _io_connect(bench, session, identity=replace(session.identity, hostid=bytes(16)))
    assert done.ok, (
        f"6.3: Connect of an I/O queue with Host Identifier 0h ends with {status_name(done.status)}"
    )


@pytest.mark.case("NVF-CONNECT-15", section="Base 3.3.2.3", kills=("connect-sequence",))
def test_a_queue_that_is_connected_already_is_refused(session: ControllerSession, bench: Harness) -> None:
    session.io_queue(qid=1)
    refused(_io_connect(bench, session, qid=1), *QUEUE_EXISTS)


@pytest.mark.case("NVF-CONNECT-16", section="Base 5.2.26.2.1", level="MAY")
def test_a_queue_beyond_those_granted(session: ControllerSession, bench: Harness, observe: Observe) -> None:
    observe(f"QID FFFEh: {status_name(_io_connect(bench, session, qid=0xFFFE).status)}")


@pytest.mark.parametrize(
    "bad",
    [
        pytest.param(
            {"sqsize": 0}, marks=pytest.mark.case("NVF-CONNECT-17", kills=("connect-refused-keeps-qid",))
        ),
        pytest.param(
            {"identity": Identity.fresh()},
            marks=pytest.mark.case("NVF-CONNECT-26", kills=("connect-refused-keeps-qid",)),
        ),
    ],
    ids=["sqsize-0", "another-host"],
)
@pytest.mark.case(section="Base 6.3", level="MUST")
def test_a_queue_is_still_free_after_a_refused_connect(
    session: ControllerSession, bench: Harness, bad: dict[str, Any]
) -> None:
    done = _io_connect(bench, session, qid=1, **bad)
    if done.ok:
        pytest.skip(f"a Connect with {next(iter(bad))} was not refused (NVF-CONNECT-06, NVF-CONNECT-13)")
    assert _works(session, session.io_queue(qid=1)), "6.3: a refused Connect leaves nothing"


@pytest.mark.case("NVF-CONNECT-18", section="Base 4.7", kills=("connect-wrong-status",))
def test_a_subsystem_nqn_without_its_end_is_refused(bench: Harness) -> None:
    done = _admin_connect(bench, subnqn=b"n" * 256)
    refused(done, StatusCode.CONNECT_INVALID_PARAMETERS)


@pytest.mark.case("NVF-CONNECT-19", section="Base 4.7", kills=("connect-wrong-status",))
def test_an_empty_host_nqn_is_refused(bench: Harness) -> None:
    identity = Identity("", Identity.fresh().hostid)
    done = _admin_connect(bench, identity=identity)
    refused(done, StatusCode.CONNECT_INVALID_PARAMETERS, StatusCode.CONNECT_INVALID_HOST)


@pytest.mark.case("NVF-CONNECT-20", section="Base 4.3.2", kills=("sgl-length-ignored-connect",))
def test_connect_data_that_is_too_short_is_refused(bench: Harness) -> None:
    queue = bench.queue()
    endpoint = bench.endpoint
    data = ConnectData(bytes(16), endpoint.any_controller, endpoint.subnqn, bench.any_host().nqn)
    done = queue.run(fabrics.connect(qid=0, sqsize=31), data=data.encode()[:512], inside=True)
    refused(done, StatusCode.DATA_SGL_LENGTH_INVALID)


@pytest.mark.case("NVF-CONNECT-21", level="MAY")
def test_sq_flow_control_may_be_disabled(session: ControllerSession, observe: Observe) -> None:
    queue = session.io_queue(cattr=0x04)
    observe("SQ flow control stays on" if queue.sq_flow_control else "SQ flow control goes off (SQHD FFFFh)")


@pytest.mark.case("NVF-CONNECT-22", section="Base 3.3.3.1", kills=("connect-two-refused",))
def test_an_io_queue_of_two_entries_works(session: ControllerSession) -> None:
    queue = session.io_queue(sqsize=1)
    for _ in range(5):
        assert _works(session, queue), "3.3.3.1: the minimum size is two slots"


@pytest.mark.case("NVF-CONNECT-23", kills=("host-only-once",))
def test_the_same_host_may_connect_again(bench: Harness) -> None:
    identity = bench.any_host()
    bench.session(identity=identity).close()
    assert bench.session(identity=identity).namespaces(), "6.3: the first association does not interfere"


@pytest.mark.case("NVF-CONNECT-25", kills=("connect-sqhd-unasked",))
def test_sq_flow_control_is_not_disabled_unasked(bench: Harness) -> None:
    done = _admin_connect(bench)
    assert done.ok, f"a Connect is not {status_name(done.status)}"
    assert done.cqe.sqhd != 0xFFFF, "6.3: SQHD is FFFFh only where DISSQFC was set"


@pytest.mark.case(section="Base 4.1.2", kills=("psdt-zero-refused",))
@pytest.mark.parametrize("psdt", [
    pytest.param(0x00, marks=pytest.mark.case("NVF-PSDT-CONNECT-00B")),
    pytest.param(0x80, marks=pytest.mark.case("NVF-PSDT-CONNECT-10B")),
])  # fmt: skip
def test_a_connect_by_either_psdt_of_fabrics_commands_succeeds(bench: Harness, psdt: int) -> None:
    queue, name = bench.queue(), bench.any_host()
    endpoint = bench.endpoint
    raw = ConnectData(name.hostid, endpoint.any_controller, endpoint.subnqn, name.nqn).encode()
    done = queue.run(replace(fabrics.connect(qid=0, sqsize=31, kato=KATO), flags=psdt), data=raw, inside=True)
    assert done.ok, f"4.1.2: PSDT of a fabrics command is 00b or 10b, not {status_name(done.status)}"


@pytest.mark.case("NVF-PSDT-PROPERTY-GET", section="Base 6.5", kills=("psdt-zero-refused",))
def test_a_property_get_whose_byte_1_is_0_succeeds(session: ControllerSession) -> None:
    done = session.admin.run(replace(fabrics.property_get(Property.VS), flags=0))
    assert done.ok, f"6.5: byte 01 is cleared to 0h, not {status_name(done.status)}"


@pytest.mark.case("NVF-CONNECT-24", section="Base 3.3.2.2", kills=("connect-first",))
@pytest.mark.parametrize(
    "early",
    [
        pytest.param(command, id=name, marks=pytest.mark.case(f"NVF-EARLY-{name}", kills=("connect-first",)))
        for name, command in (
            ("PROPERTY-GET", fabrics.property_get(Property.CAP)),
            ("IDENTIFY", admin.identify(Cns.CONTROLLER)),
            ("KEEP-ALIVE", admin.keep_alive()),
            ("DISCONNECT", fabrics.disconnect()),
        )
    ],
)
def test_nothing_goes_before_connect(bench: Harness, early: object, observe: Observe) -> None:
    queue = bench.queue()
    queue.submit(early)  # type: ignore[arg-type]
    done = _next_status(queue)
    assert done != StatusCode.SUCCESS, (
        "3.3.2.2: Connect creates the queue, so nothing is carried out before it"
    )
    if done is not None:
        observe(f"refused by {status_name(done)}")
        return
    ending = queue.wait_for_close()
    observe(f"{ending}")
    assert ending.ended, "3.3.2.2: a command before Connect is refused, or ends the connection"


@pytest.mark.case("NVF-ENABLE-01", section="Base 3.3.2.3", kills=("cc-en-ignored",))
def test_admin_commands_wait_until_the_controller_is_enabled(bench: Harness) -> None:
    session = bench.session(enable=False)
    done = session.admin.run(admin.identify(Cns.CONTROLLER), reads=4096)
    refused(done, StatusCode.COMMAND_SEQUENCE_ERROR)


# Properties (6.5, 6.6, 3.1.4)


@pytest.mark.case("NVF-PROP-01", section="Base 3.1.4.1", kills=("cap-cqr",))
def test_cap_has_the_values_that_fabrics_require(session: ControllerSession) -> None:
    value = session.get_property(Property.CAP)
    assert value >> 16 & 1, "3.1.4.1: CQR is 1: queues are contiguous"
    assert Cap(value).css & 1 or Cap(value).css & 0x40, "3.1.4.1: some I/O command set is supported"
    assert Cap(value).mqes >= 1, "3.1.4.1: MQES is at least 1h"


@pytest.mark.case("NVF-PROP-02", section="Base 3.1.4.2", kills=("vs-zero",))
def test_vs_is_a_version_of_the_standard(session: ControllerSession) -> None:
    value = session.get_property(Property.VS)
    assert value >> 16 in (1, 2), f"3.1.4.2: major version of VS {value:#x}"
    assert value == session.controller["ver"], "5.2.13.2.1: VER of Identify is the value of VS"


@pytest.mark.case("NVF-PROP-03", section="Base 3.1.4.5", kills=("cc-forgotten",))
def test_cc_reads_as_it_was_written(session: ControllerSession) -> None:
    assert session.get_property(Property.CC) == session.cc_enable


@pytest.mark.case("NVF-PROP-04", section="Base 3.1.4.6", kills=("csts-stuck",))
def test_ready_follows_enable(session: ControllerSession) -> None:
    assert session.get_property(Property.CSTS) & CSTS_READY
    session.disable()
    assert not session.get_property(Property.CSTS) & CSTS_READY, "3.1.4.6: RDY goes with CC.EN"
    session.enable()
    assert session.get_property(Property.CSTS) & CSTS_READY


@pytest.mark.case(section="Base 3.1.4", level="MAY")
@pytest.mark.parametrize(
    ("offset", "size"),
    [
        pytest.param(where, size, marks=pytest.mark.case(f"NVF-PROP-{where.name}-{size}"))
        for where, size in ((Property.CAP, 4), (Property.CSTS, 8), (Property.VS, 8))
    ],
)
def test_a_property_read_by_the_wrong_size(
    session: ControllerSession, offset: int, size: int, observe: Observe
) -> None:
    done = session.admin.run(fabrics.property_get(offset, size=size))
    observe(f"{size} bytes of property {offset:#x}: {status_name(done.status)}")


@pytest.mark.case("NVF-PROP-06", section="Base 3.1.4", kills=("property-unknown",))
def test_a_property_that_fabrics_reserve_is_refused(session: ControllerSession, observe: Observe) -> None:
    done = session.admin.run(fabrics.property_get(0x24))  # AQA is reserved over fabrics (3.1.4)
    observe(status_name(done.status))
    assert not done.ok or done.cqe.result == 0, "6.5: it is refused, or 3.1.4: it reads as 0h"


@pytest.mark.case(section="Base 3.1.4")
@pytest.mark.parametrize("offset", [
    pytest.param(Property.CAP, marks=pytest.mark.case("NVF-PROP-SET-CAP", kills=("property-read-only",))),
    pytest.param(Property.VS, marks=pytest.mark.case("NVF-PROP-SET-VS", kills=("property-read-only",))),
    pytest.param(Property.CSTS, marks=pytest.mark.case("NVF-PROP-SET-CSTS", kills=("property-read-only",))),
])  # fmt: skip
def test_a_read_only_property_is_not_set(session: ControllerSession, offset: int, observe: Observe) -> None:
    before = session.get_property(offset)
    observe(f"Property Set: {status_name(session.admin.run(fabrics.property_set(offset, 0)).status)}")
    assert session.get_property(offset) == before, "3.1.4: a read-only property keeps its value"


@pytest.mark.case("NVF-PROP-08", section="Base 6", kills=("property-on-io",))
def test_properties_belong_to_the_admin_queue(queue: Queue, observe: Observe) -> None:
    done = queue.run(fabrics.property_get(Property.CSTS))
    observe(status_name(done.status))
    assert not done.ok, "6: an I/O queue does not support Property Get"


@pytest.mark.case("NVF-SHUTDOWN-01", section="Base 3.6.2", kills=("csts-stuck",))
def test_a_shutdown_completes(session: ControllerSession) -> None:
    session.shut_down()
    assert session.get_property(Property.CSTS) & 0xC == CSTS_SHUTDOWN_DONE, "3.1.4.6: SHST is 10b"


@pytest.mark.case("NVF-RESET-01", section="Base 3.7.2", kills=("reset-ignored",))
def test_a_reset_ends_the_io_queues(session: ControllerSession) -> None:
    queue, nsid = session.io_queue(), session.own_namespace()
    session.disable()
    try:
        alive = queue.wait(queue.submit(io.flush(nsid)), deadline=1.0).ok
    except RemoteProtocolError:
        alive = False
    assert not alive, "3.7.2: a reset deletes the I/O queues"


# Disconnect (6.4) and what goes wrong with fabrics commands


@pytest.mark.case("NVF-DISCONNECT-01", section="Base 6.4", kills=("disconnect-refused",))
def test_disconnect_of_io_queue_succeeds(session: ControllerSession, queue: Queue, observe: Observe) -> None:
    needs_disconnect(session)
    done = queue.run(fabrics.disconnect())
    assert done.ok, f"6.4: Disconnect of an I/O queue is not {status_name(done.status)}"
    ending = queue.wait_for_close(deadline=0.5)  # 3.3.2.4: the connection may be deleted, or kept
    observe(f"after Disconnect: {ending}")
    assert not ending.before, f"6.4: the response to Disconnect is the last entry of its queue: {ending}"


@pytest.mark.case("NVF-DISCONNECT-02", section="Base 6.4", kills=("disconnect-admin",))
def test_the_admin_queue_is_not_disconnected(session: ControllerSession) -> None:
    done = session.admin.run(fabrics.disconnect())
    unsupported = (
        () if session.controller["ofcs"] & 1 else (StatusCode.INVALID_OPCODE, StatusCode.INVALID_FIELD)
    )
    refused(done, StatusCode.DISCONNECT_INVALID_QUEUE_TYPE, *unsupported)


@pytest.mark.case("NVF-DISCONNECT-03", section="Base 6.4", kills=("disconnect-ignored",))
def test_a_disconnected_queue_may_be_connected_again(session: ControllerSession) -> None:
    needs_disconnect(session)
    queue = session.io_queue(qid=1)
    assert queue.run(fabrics.disconnect()).ok
    queue.wait_for_close()
    assert _works(session, session.io_queue(qid=1)), "6.4: the QID is free again"


@pytest.mark.case("NVF-DISCONNECT-04", section="Base 6.4", kills=("disconnect-ignored",))
def test_no_command_is_carried_out_after_disconnect(session: ControllerSession, queue: Queue) -> None:
    needs_disconnect(session)
    assert queue.run(fabrics.disconnect()).ok
    try:
        alive = queue.run(io.flush(session.own_namespace())).ok
    except RemoteProtocolError:
        alive = False
    assert not alive, "6.4: a queue that was disconnected carried out a command"


# Linux and SPDK agree on Invalid Command Opcode, but Base 4.1.2 leaves no choice for a reserved FCTYPE: it
# "shall be aborted with a status code of Invalid Field in Command". Both are known deviations.
@pytest.mark.case(section="Base 4.1.2")
@pytest.mark.parametrize("fctype", [
    pytest.param(0x02, marks=pytest.mark.case("NVF-FCTYPE-02H", kills=("fctype-accepted",))),
    pytest.param(0x3C, marks=pytest.mark.case("NVF-FCTYPE-3CH", kills=("fctype-accepted",))),
    pytest.param(0x7C, marks=pytest.mark.case("NVF-FCTYPE-7CH", kills=("fctype-accepted",))),
])  # fmt: skip
def test_a_reserved_fabrics_command_is_refused(session: ControllerSession, fctype: int) -> None:
    refused(session.admin.run(replace(fabrics.property_get(0), nsid=fctype)), StatusCode.INVALID_FIELD)


@pytest.mark.case("NVF-AUTH-01", section="Base 6.1", level="MAY")
def test_authentication_where_none_is_required(session: ControllerSession, observe: Observe) -> None:
    done = session.admin.run(fabrics.authentication(Fctype.AUTHENTICATION_RECEIVE, length=512), reads=512)
    observe(f"Authentication Receive: {status_name(done.status)}")


# Discovery (3.1.3.3, 5.2.12.3.3)


@pytest.mark.case("NVF-DISCOVERY-01", section="Base 3.1.3.3", kills=("discovery-type",))
def test_the_discovery_subsystem_identifies_itself(discovery: ControllerSession) -> None:
    data = discovery.controller
    if data["ver"] >= 0x00010400:
        assert data["cntrltype"] == 2, "5.2.13.2.1: CNTRLTYPE of a discovery controller is 2h"
    assert data.text("subnqn").startswith("nqn."), "3.1.3.3: SUBNQN is the well-known NQN, or a unique one"


@pytest.mark.case("NVF-DISCOVERY-02", section="Base 5.2.12.3.3", kills=("discovery-empty",))
def test_the_discovery_log_names_the_subsystem(bench: Harness, discovery: ControllerSession) -> None:
    _, count, _ = discovery_entries(discovery.log_page(0x70, 1024))
    length = 1024 * (count + 1)
    _, _, entries = discovery_entries(discovery.log_page(0x70, length))
    assert len(entries) == count, "5.2.12.3.3: NUMREC counts the entries"
    named = [one for one in entries if one.subnqn == bench.endpoint.subnqn]
    assert named, "5.2.12.3.3: the log names every subsystem that this host may use"
    assert {one.trtype for one in named} >= {3}, "5.2.12.3.3: and its TCP transport"


@pytest.mark.case("NVF-DISCOVERY-03", section="Base 3.1.3.3", kills=("discovery-io",))
def test_the_discovery_subsystem_has_no_io_queues(bench: Harness, discovery: ControllerSession) -> None:
    done = connect_queue(
        bench.queue(name="I/O queue"),
        subnqn=DISCOVERY_NQN,
        identity=discovery.identity,
        qid=1,
        cntlid=discovery.cntlid,
    )
    assert not done.ok, "3.1.3.3: a discovery controller supports no I/O queues"


@pytest.mark.case("NVF-DISCOVERY-04", section="Base 5.2.12.3.3", kills=("log-offset-other",))
def test_the_discovery_log_is_read_in_parts(discovery: ControllerSession) -> None:
    if not discovery.controller["lpa"] & 4:
        pytest.skip("LPA bit 2: the log page offset is not supported")
    whole = discovery.log_page(0x70, 2048)
    for offset, size in ((1024, 1024), (1024, 256), (1280, 512), (8, 16)):
        done = discovery.admin.run(admin.get_log_page(0x70, size, offset=offset), reads=size)
        assert done.ok, f"5.2.12: {size} bytes from LPO {offset} is not {status_name(done.status)}"
        assert done.data == whole[offset : offset + size], (
            f"5.2.12: {size} bytes from LPO {offset} are others"
        )


@pytest.mark.case("NVF-DISCOVERY-05", section="Base 5.2.12.3.3", kills=("discovery-entry",))
def test_the_entries_of_the_discovery_log_are_well_formed(discovery: ControllerSession) -> None:
    _, count, _ = discovery_entries(discovery.log_page(0x70, 1024))
    _, _, entries = discovery_entries(discovery.log_page(0x70, 1024 * (count + 1)))
    named = {DISCOVERY_NQN, discovery.controller.text("subnqn")}  # it may have an NQN of its own (3.1.3.3)
    for entry in (one for one in entries if one.trtype == TRTYPE_TCP):
        kind = "a discovery subsystem" if entry.subnqn in named else "an NVM subsystem"
        legal = (1, 3) if entry.subnqn in named else (1, 2)
        assert entry.subtype in legal, f"5.2.12.3.3: SUBTYPE of {kind} is {entry.subtype}: {entry.subnqn}"
        assert entry.adrfam in (1, 2), f"5.2.12.3.3: ADRFAM of TCP is IPv4 or IPv6, not {entry.adrfam}"
        assert entry.trsvcid.isdecimal(), f"5.2.12.3.3: TRSVCID of TCP is a port, not {entry.trsvcid!r}"


# Losing a connection (3.3.2.4)


@pytest.mark.case("NVF-LOSS-01", section="Base 3.3.2.4", level="SHOULD", kills=("half-close-ignored",))
def test_an_association_ends_with_its_admin_queue(session: ControllerSession) -> None:
    queue = session.io_queue()
    session.admin.link.close()
    ending = queue.wait_for_close(deadline=2.0)
    assert ending.ended, f"3.3.2.4: the association ends with its admin queue's connection; but: {ending}"


@pytest.mark.case("NVF-LOSS-02", section="Base 3.3.2.4", kills=("loss-takes-all",))
def test_another_host_does_not_notice(session: ControllerSession, bench: Harness) -> None:
    other = bench.session()
    other.io_queue().submit(io.flush(other.own_namespace()))
    other.admin.close()
    assert _works(session, session.io_queue()), "3.3.2.4: a lost connection ends its own association"


def _io_connect(
    bench: Harness,
    session: ControllerSession,
    *,
    qid: int = 1,
    sqsize: int | None = None,
    identity: Identity | None = None,
) -> CommandResult:
    """Connect an I/O queue to ``session``'s controller, by default as its own host and within CAP.MQES."""
    return connect_queue(
        bench.queue(name="I/O queue"),
        subnqn=session.endpoint.subnqn,
        identity=identity or session.identity,
        qid=qid,
        sqsize=min(15, session.cap.mqes) if sqsize is None else sqsize,
        cntlid=session.cntlid,
    )


def _works(session: ControllerSession, queue: Queue) -> bool:
    """Whether commands are carried out on ``queue``."""
    return queue.run(io.flush(session.own_namespace())).ok


def needs_disconnect(session: ControllerSession) -> None:
    if not session.controller["ofcs"] & 1:
        pytest.skip("OFCS: Disconnect is not supported")


def _next_status(queue: Queue) -> int | None:
    """Return the status of the next response, or None if the connection goes first."""
    try:
        return queue.wait(1).status
    except RemoteProtocolError:
        return None
