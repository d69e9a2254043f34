"""Admin commands (Base 5.2): Identify, Get Log Page, Features, Asynchronous Events, Abort, Keep Alive."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

import pytest

from storagetest.errors import RemoteProtocolError
from storagetest.wire.nvme import admin, io
from storagetest.wire.nvme.codes import Cns, Feature, LogPage, Property, StatusCode, status_name
from storagetest.wire.nvme.command import Command
from storagetest.wire.nvme.structures import NSIDS_OF_LIST, active_namespaces, ana_groups, descriptors
from storagetest.wire.nvme_tcp import ControllerSession
from storagetest.wire.nvme_tcp.harness import Harness, refused, request_event
from storagetest.wire.nvme_tcp.session import CSTS_FATAL

from .test_keep_alive_timer import timeout_in_use
from .test_namespaces import need_invalid

pytestmark = [pytest.mark.needs("nvme-tcp-wire"), pytest.mark.case(level="MUST", section="Base 5.2.13")]

Observe = Callable[[str], None]
ALL_NAMESPACES = 0xFFFFFFFF


# Identify (5.2.13)


@pytest.mark.case("NVA-ID-CTRL-01", section="Base 5.2.13.1", kills=("identify-short",))
def test_identify_returns_4096_bytes(session: ControllerSession) -> None:
    assert len(session.identify(Cns.CONTROLLER)) == 4096


@pytest.mark.case("NVA-ID-CTRL-02", section="Base 5.2.13.2.1", kills=("identify-sizes",))
def test_entry_sizes_allow_64_and_16_bytes(session: ControllerSession) -> None:
    data = session.controller
    assert data["sqes"] & 0xF <= 6 <= data["sqes"] >> 4, f"SQES {data['sqes']:#x}: 64 bytes are required"
    assert data["cqes"] & 0xF <= 4 <= data["cqes"] >> 4, f"CQES {data['cqes']:#x}: 16 bytes are required"


@pytest.mark.case("NVA-ID-CTRL-03", section="Base 5.2.13.2.1", kills=("identify-ioccsz",))
def test_capsule_sizes_hold_a_queue_entry(session: ControllerSession) -> None:
    data = session.controller
    assert data["ioccsz"] >= 4, "5.2.13.2.1: IOCCSZ is at least 4h (64 bytes)"
    assert data["iorcsz"] >= 1, "5.2.13.2.1: IORCSZ is at least 1h (16 bytes)"


@pytest.mark.case("NVA-ID-CTRL-04", section="Base 3.3.2.1.3", kills=("identify-sgls",))
def test_sgls_are_supported(session: ControllerSession) -> None:
    assert session.controller["sgls"] & 3 in (1, 2), "3.3.2.1.3: SGLs shall be supported within a capsule"


@pytest.mark.case("NVA-ID-CTRL-05", section="NVMe/TCP 3.3.1", kills=("identify-icdoff",))
def test_icdoff_is_zero(session: ControllerSession) -> None:
    assert session.controller["icdoff"] == 0, "3.3.1: ICDOFF shall be cleared to 0"


@pytest.mark.case("NVA-ID-CTRL-06", section="NVMe/TCP 3.4", kills=("identify-kas",))
def test_keep_alive_is_supported(session: ControllerSession) -> None:
    assert session.controller["kas"] > 0, "3.4: this transport requires Keep Alive"


@pytest.mark.case("NVA-ID-CTRL-07", section="Base 5.2.13.2.1", kills=("identify-subnqn",))
def test_subnqn_is_the_one_connected_to(session: ControllerSession) -> None:
    assert session.controller.text("subnqn") == session.endpoint.subnqn


@pytest.mark.case("NVA-ID-CTRL-08", section="Base 1.4.2", kills=("identify-ascii",))
def test_serial_and_model_are_ascii(session: ControllerSession) -> None:
    raw = session.controller.raw[4:72]
    assert all(0x20 <= byte <= 0x7E for byte in raw), (
        f"1.4.2: ASCII strings are of 20h to 7Eh, padded with spaces: {raw!r}"
    )


@pytest.mark.case("NVA-ID-CTRL-09", section="Base 5.2.13.2.1", kills=("identify-maxcmd",))
def test_maxcmd_is_set(session: ControllerSession) -> None:
    assert session.controller["maxcmd"] >= 1, "5.2.13.2.1: MAXCMD is mandatory over fabrics"


@pytest.mark.case("NVA-ID-CTRL-10", section="Base 5.2.13.2.1", level="MAY")
def test_two_looks_may_differ(session: ControllerSession, observe: Observe) -> None:
    same = session.identify(Cns.CONTROLLER) == session.identify(Cns.CONTROLLER)
    observe("two looks are equal" if same else "two looks differ")


IDENTITY = {
    "vid": (0, 2),
    "ssvid": (2, 2),
    "sn": (4, 20),
    "mn": (24, 40),
    "cntlid": (78, 2),
    "subnqn": (768, 256),
}
"""Fields of Identify Controller that identify (Base 5.2.13.2.1): offset and size."""


@pytest.mark.case("NVA-ID-SAME", section="Base 5.2.13.2.1", kills=("serial-changes",))
def test_what_identifies_a_controller_does_not_change(session: ControllerSession, bench: Harness) -> None:
    """Each Identify of an association returns the same; a new association only another CNTLID."""
    looks = [session.identify(Cns.CONTROLLER) for _ in range(3)]
    other = bench.session()
    looks += [other.identify(Cns.CONTROLLER), session.identify(Cns.CONTROLLER)]
    for name, (at, size) in IDENTITY.items():
        found = [look[at : at + size] for look in looks]
        same = found[:3] + found[4:] if name == "cntlid" else found
        assert len(set(same)) == 1, f"{name.upper()} of five Identify: {found}"


@pytest.mark.case("NVA-ID-LIST-01", section="Base 5.2.13.2.2", kills=("identify-list-order",))
def test_the_active_list_is_in_order(session: ControllerSession) -> None:
    found = session.namespaces()
    assert found, "the target has a namespace"
    assert found == sorted(set(found)), f"5.2.13.2.2: in increasing order, each once: {found}"


@pytest.mark.case("NVA-ID-LIST-02", section="Base 5.2.13.2.2", kills=("identify-list-from",))
def test_the_active_list_begins_after_nsid(session: ControllerSession) -> None:
    first, *others = session.namespaces()
    rest = active_namespaces(session.identify(Cns.ACTIVE_NAMESPACES, nsid=first))
    assert rest == others[:NSIDS_OF_LIST]


@pytest.mark.case("NVA-ID-LIST-03", section="Base 5.2.13.2.2", kills=("nsid-not-checked",))
def test_the_active_list_from_ffffffff_is_refused(session: ControllerSession) -> None:
    done = session.admin.run(admin.identify(Cns.ACTIVE_NAMESPACES, nsid=0xFFFFFFFF), reads=4096)
    refused(done, StatusCode.INVALID_NAMESPACE)


@pytest.mark.case("NVA-ID-NS-01", section="NVM 4.1.5.1", kills=("identify-ns-sizes",))
def test_the_sizes_of_a_namespace_agree(session: ControllerSession) -> None:
    data = session.namespace(session.namespaces()[0])
    assert data["nsze"] >= data["ncap"] >= data["nuse"], "4.1.5.1: NSZE >= NCAP >= NUSE"
    assert data["nsze"] > 0, "4.1.5.1: an active namespace has blocks"


@pytest.mark.case("NVA-ID-NS-02", section="NVM 4.1.5.1", kills=("identify-flbas",))
def test_the_format_in_use_is_one_of_those_listed(session: ControllerSession) -> None:
    data = session.namespace(session.namespaces()[0])
    assert data["flbas"] & 0xF <= data["nlbaf"], "4.1.5.1: FLBAS names a format of the list"
    assert data.block_data_size >= 512, "4.1.5.1: LBADS is at least 9"


@pytest.mark.case("NVA-ID-NS-03", section="NVM 4.1.5.1", kills=("identify-inactive",))
def test_an_inactive_namespace_is_all_zero(session: ControllerSession) -> None:
    nn, active = session.controller["nn"], session.namespaces()
    inactive = next((one for one in range(1, min(nn, 4096) + 1) if one not in active), None)
    if inactive is None:
        pytest.skip("every NSID up to NN is active")
    assert session.namespace(inactive).raw == bytes(4096), "4.1.5.1: an inactive NSID gives zeroes"


@pytest.mark.case(section="Base 3.2.1.5")
@pytest.mark.parametrize("nsid", [
    pytest.param(0, marks=pytest.mark.case("NVA-ID-NSID-0", kills=("nsid-not-checked",))),
    pytest.param(0xFFFFFFFE, marks=pytest.mark.case("NVA-ID-NSID-FFFFFFFE", kills=("nsid-not-checked",))),
])  # fmt: skip
def test_an_invalid_nsid_is_refused(session: ControllerSession, nsid: int) -> None:
    need_invalid(session, nsid)
    done = session.admin.run(admin.identify(Cns.NAMESPACE, nsid=nsid), reads=4096)
    refused(done, StatusCode.INVALID_NAMESPACE)


@pytest.mark.case(
    "NVA-ID-DESC-01",
    section="Base 5.2.13.2.3",
    kills=("identify-descriptors", "descriptor-length-of-second"),
)
def test_a_namespace_has_an_identifier(session: ControllerSession) -> None:
    """Each of the first four has one, and each descriptor has the length of its type."""
    lengths = {1: 8, 2: 16, 3: 16, 4: 1}
    for nsid in session.namespaces()[:4]:
        found = descriptors(session.identify(Cns.DESCRIPTORS, nsid=nsid))
        assert any(kind in (1, 2, 3) for kind, _ in found), (
            f"5.2.13.2.3: NSID {nsid} has neither EUI64, NGUID nor UUID"
        )
        for kind, raw in found:
            assert len(raw) == lengths.get(kind, len(raw)), (
                f"5.2.13.2.3: NIDL of NIDT {kind} of NSID {nsid} is {len(raw)}; {lengths[kind]} is required"
            )


@pytest.mark.case("NVA-ID-DESC-02", section="Base 4.7.1.4", kills=("identify-same",))
def test_identifiers_of_namespaces_differ(session: ControllerSession) -> None:
    active = session.namespaces()
    if len(active) < 2:
        pytest.skip("the subsystem has one namespace")
    seen = [
        {(kind, raw) for kind, raw in descriptors(session.identify(Cns.DESCRIPTORS, nsid=one)) if kind != 4}
        for one in active[:4]
    ]
    for at, one in enumerate(seen):
        assert not any(one & other for other in seen[:at]), "4.7.1.4, 5.2.13.2.3: each is globally unique"


@pytest.mark.case(section="Base 5.2.13.1")
@pytest.mark.parametrize("cns", [
    pytest.param(0x0F, marks=pytest.mark.case("NVA-ID-CNS-0FH", kills=("cns-accepted",))),
    pytest.param(0x0B, marks=pytest.mark.case("NVA-ID-CNS-0BH", kills=("cns-accepted",))),
    pytest.param(0x7F, marks=pytest.mark.case("NVA-ID-CNS-7FH", kills=("cns-accepted", "cns-high-accepted"))),
])  # fmt: skip
def test_a_reserved_cns_is_refused(session: ControllerSession, cns: int) -> None:
    done = session.admin.run(admin.identify(cns), reads=4096)
    refused(done, StatusCode.INVALID_FIELD)


# Get Log Page (5.2.12)

LOG_LENGTHS = {LogPage.ERROR: 64, LogPage.SMART: 512, LogPage.FIRMWARE_SLOT: 512}


@pytest.mark.case(section="Base 3.1.3.5")
@pytest.mark.parametrize(
    ("page", "length"),
    [
        pytest.param(page, length, marks=pytest.mark.case(f"NVA-LOG-{page:02X}H", kills=("log-page-lost",)))
        for page, length in LOG_LENGTHS.items()
    ],
)
def test_a_mandatory_log_page_is_there(session: ControllerSession, page: int, length: int) -> None:
    done = session.admin.run(admin.get_log_page(page, length, nsid=ALL_NAMESPACES), reads=length)
    assert done.ok, f"3.1.3.5: mandatory for an I/O controller, not {status_name(done.status)}"
    assert len(done.data) == length


@pytest.mark.case("NVA-LOG-PART", section="Base 5.2.12", kills=("log-length",))
def test_a_part_of_a_log_page_is_its_beginning(session: ControllerSession) -> None:
    page = LogPage.FIRMWARE_SLOT
    whole = session.admin.run(admin.get_log_page(page, 512, nsid=ALL_NAMESPACES), reads=512).data
    part = session.admin.run(admin.get_log_page(page, 16, nsid=ALL_NAMESPACES), reads=16).data
    assert part == whole[:16], "5.2.12: NUMD dwords from the start"


@pytest.mark.case("NVA-LOG-OFFSET", section="Base 5.2.12", kills=("log-offset", "log-part-shifted"))
def test_a_log_page_is_read_from_an_offset(session: ControllerSession) -> None:
    if not session.controller["lpa"] & 4:
        pytest.skip("LPA bit 2: the log page offset is not supported")
    page = LogPage.FIRMWARE_SLOT
    whole = session.admin.run(admin.get_log_page(page, 512, nsid=ALL_NAMESPACES), reads=512).data
    part = session.admin.run(admin.get_log_page(page, 16, nsid=ALL_NAMESPACES, offset=8), reads=16)
    assert part.ok, f"5.2.12: LPA bit 2 is set, so offsets are supported, but {status_name(part.status)}"
    assert part.data == whole[8:24], "5.2.12: from LPO on"


@pytest.mark.case("NVA-LOG-BEYOND", section="Base 5.2.12", kills=("log-offset-unchecked",))
def test_an_offset_beyond_a_log_page_is_refused(session: ControllerSession) -> None:
    if not session.controller["lpa"] & 4:
        pytest.skip("LPA bit 2: the log page offset is not supported")
    command = admin.get_log_page(LogPage.FIRMWARE_SLOT, 16, nsid=ALL_NAMESPACES, offset=1 << 32)
    refused(session.admin.run(command, reads=16), StatusCode.INVALID_FIELD)


@pytest.mark.case("NVA-LOG-UNKNOWN", section="Base 5.2.12", kills=("log-page-accepted",))
def test_an_unknown_log_page_is_refused(session: ControllerSession) -> None:
    done = session.admin.run(admin.get_log_page(0x6F, 512), reads=512)  # 26h to 6Fh are reserved
    refused(done, StatusCode.INVALID_LOG_PAGE)


@pytest.mark.case("NVA-LOG-CHANGED", section="Base 5.2.12.1.5", level="SHOULD", kills=("log-page-lost",))
def test_the_changed_namespace_list_is_empty_at_first(session: ControllerSession) -> None:
    if not session.controller["oaes"] & 0x100:
        pytest.skip("OAES bit 8: namespace attribute notices are not supported")
    done = session.admin.run(admin.get_log_page(LogPage.CHANGED_NAMESPACES, 4096), reads=4096)
    assert done.ok, f"5.2.12.1.5: not {status_name(done.status)}"
    assert active_namespaces(done.data) == [], "5.2.12.1.5: no namespace has changed since Connect"


@pytest.mark.case("NVA-LOG-EFFECTS", section="Base 5.2.12.1.6", kills=("log-effects",))
def test_the_effects_log_lists_identify_and_read(session: ControllerSession) -> None:
    done = session.admin.run(admin.get_log_page(LogPage.EFFECTS, 4096), reads=4096)
    if not done.ok and not session.controller["lpa"] & 2:
        pytest.skip("LPA bit 1: no Commands Supported and Effects log page")
    assert done.ok
    assert done.data[4 * 0x06] & 1, "5.2.12.1.6: CSUPP of Identify"
    assert done.data[1024 + 4 * 0x02] & 1, "5.2.12.1.6: CSUPP of Read"


@pytest.mark.case("NVA-LOG-ANA", section="Base 5.2.12.1.13", kills=("ana-lost",))
def test_every_namespace_is_in_one_ana_group(session: ControllerSession) -> None:
    if not session.controller["cmic"] & 8:
        pytest.skip("CMIC bit 3: no asymmetric namespace access reporting")
    every = session.namespaces()
    length = 16 + session.controller["nanagrpid"] * 32 + 4 * max(len(every), NSIDS_OF_LIST)
    _, groups = ana_groups(session.log_page(LogPage.ANA, length))
    listed = sorted(nsid for group in groups for nsid in group.namespaces)
    assert listed == every, "8.1.1.2: each attached namespace is in exactly one group"


# Features (5.2.11, 5.2.26)

RESERVED_FEATURE = 0x60  # 26h to 77h


@pytest.mark.case("NVA-FEAT-QUEUES-01", section="Base 5.2.26.2.1", kills=("queues-granted",))
def test_queues_are_granted(session: ControllerSession) -> None:
    done = session.admin.run(admin.set_features(Feature.NUMBER_OF_QUEUES, 0x00000000))
    assert done.ok
    got = session.admin.run(admin.get_features(Feature.NUMBER_OF_QUEUES)).cqe.dw0
    assert got == done.cqe.dw0, "5.2.26.2.1: Get Features returns what Set Features granted"


@pytest.mark.case("NVA-FEAT-QUEUES-02", section="Base 5.2.26.2.1", level="SHOULD", kills=("queues-ffff",))
def test_65536_queues_are_refused(session: ControllerSession) -> None:
    refused(
        session.admin.run(admin.set_features(Feature.NUMBER_OF_QUEUES, 0xFFFFFFFF)), StatusCode.INVALID_FIELD
    )


@pytest.mark.case("NVA-FEAT-QUEUES-03", section="Base 5.2.26.2.1", kills=("queues-set-again",))
def test_queues_are_not_granted_again(session: ControllerSession) -> None:
    """Number of Queues is set before I/O queues are created; afterwards it is a Command Sequence Error."""
    session.io_queue()
    granted = session.admin.run(admin.get_features(Feature.NUMBER_OF_QUEUES)).cqe.dw0
    refused(
        session.admin.run(admin.set_features(Feature.NUMBER_OF_QUEUES, 0)), StatusCode.COMMAND_SEQUENCE_ERROR
    )
    again = session.admin.run(admin.get_features(Feature.NUMBER_OF_QUEUES)).cqe.dw0
    assert again == granted, f"5.2.26.2.1: {granted:#x} was granted, and then {again:#x}"


@pytest.mark.case("NVA-FEAT-AEN-01", section="Base 5.2.26.1.5", kills=("feature-forgotten",))
def test_the_async_event_configuration_is_kept(session: ControllerSession) -> None:
    wanted = session.controller["oaes"] & 0x100
    assert session.admin.run(admin.set_features(Feature.ASYNC_EVENT, wanted)).ok
    assert session.admin.run(admin.get_features(Feature.ASYNC_EVENT)).cqe.dw0 == wanted


@pytest.mark.case("NVA-FEAT-KATO-01", section="Base 5.2.26.1.8", kills=("feature-forgotten",))
def test_the_keep_alive_timeout_is_kept(bench: Harness) -> None:
    session = bench.session(kato=30000)
    unit = max(session.controller["kas"] * 100, 1)

    def rounded(kato: int) -> int:
        return -(-kato // unit) * unit

    got = session.admin.run(admin.get_features(Feature.KATO)).cqe.dw0
    assert got == rounded(30000), "6.3: KATO of Connect, rounded up to KAS"
    assert session.admin.run(admin.set_features(Feature.KATO, 60000)).ok
    assert session.admin.run(admin.get_features(Feature.KATO)).cqe.dw0 == rounded(60000)


@pytest.mark.case("NVA-FEAT-KATO-02", section="Base 3.9.1", kills=("kato-zero-taken",))
def test_the_keep_alive_timer_is_not_disabled(session: ControllerSession) -> None:
    before = session.admin.run(admin.get_features(Feature.KATO)).cqe.dw0
    refused(session.admin.run(admin.set_features(Feature.KATO, 0)), StatusCode.KEEP_ALIVE_INVALID)
    assert session.admin.run(admin.get_features(Feature.KATO)).cqe.dw0 == before, "3.9.1: it is not changed"


@pytest.mark.case("NVA-FEAT-UNKNOWN", section="Base 4.2.3.1", kills=("feature-accepted",))
def test_a_reserved_feature_is_refused(session: ControllerSession) -> None:
    refused(session.admin.run(admin.get_features(RESERVED_FEATURE)), StatusCode.INVALID_FIELD)


@pytest.mark.case("NVA-FEAT-UNKNOWN-SET", section="Base 4.2.3.1", kills=("feature-accepted",))
def test_a_reserved_feature_is_not_set(session: ControllerSession) -> None:
    refused(session.admin.run(admin.set_features(RESERVED_FEATURE, 1)), StatusCode.INVALID_FIELD)


@pytest.mark.case("NVA-FEAT-HOSTID-01", section="Base 5.2.26.1.32", kills=("hostid-wrong",))
def test_the_host_identifier_is_connects(session: ControllerSession) -> None:
    done = session.admin.run(admin.get_features(Feature.HOST_IDENTIFIER, cdw11=1), reads=16)
    assert done.ok, f"5.2.26.1.32: not {status_name(done.status)}"
    assert done.data == session.identity.hostid, "6.3: HOSTID of Connect"


@pytest.mark.case("NVA-FEAT-HOSTID-02", section="Base 5.2.26.1.32", kills=("hostid-short",))
def test_a_64_bit_host_identifier_is_refused(session: ControllerSession) -> None:
    done = session.admin.run(admin.get_features(Feature.HOST_IDENTIFIER, cdw11=0), reads=16)
    refused(done, StatusCode.INVALID_FIELD)


@pytest.mark.case("NVA-FEAT-HOSTID-03", section="Base 5.2.26.1.32", kills=("hostid-set",))
def test_the_host_identifier_is_not_set(session: ControllerSession) -> None:
    done = session.admin.run(
        replace(admin.set_features(Feature.HOST_IDENTIFIER, 1), dptr=bytes(16)), data=bytes(16), inside=True
    )
    refused(done, StatusCode.COMMAND_SEQUENCE_ERROR)


# Opcodes


@pytest.mark.case(section="Base 3.1.3.4")
@pytest.mark.parametrize("opcode", [
    pytest.param(code, marks=pytest.mark.case(f"NVA-OPCODE-{code:02X}H", kills=("opcode-accepted",)))
    for code in (0x00, 0x01, 0x04, 0x05, 0x3C, 0x50)
])  # fmt: skip
def test_an_admin_opcode_that_fabrics_have_not_is_refused(session: ControllerSession, opcode: int) -> None:
    done = session.admin.run(Command(opcode))
    refused(done, StatusCode.INVALID_OPCODE)


# Asynchronous Event Request (5.2.2)


@pytest.mark.case("NVA-AER-01", section="Base 5.2.2", kills=("aer-at-once",))
def test_an_event_request_waits(session: ControllerSession) -> None:
    request_event(session)
    with pytest.raises(RemoteProtocolError, match="neither responded nor closed"):
        session.admin.receive(deadline=0.1)
    assert session.get_property(Property.CSTS), "5.2.2: and other commands go on meanwhile"


@pytest.mark.case("NVA-AER-02", section="Base 5.2.2.1", kills=("aer-limit",))
def test_one_event_request_too_many_is_refused(session: ControllerSession) -> None:
    limit = session.controller["aerl"] + 1
    request_event(session)
    for _ in range(limit - 1):
        session.admin.submit(admin.async_event())
    done = session.admin.run(admin.async_event())
    refused(done, StatusCode.AER_LIMIT_EXCEEDED)


# Abort (5.2.1)


@pytest.mark.case("NVA-ABORT-01", section="Base 5.2.1.2", kills=("abort-unknown", "abort-reserved-bit"))
def test_a_command_that_is_not_there_is_not_aborted(session: ControllerSession) -> None:
    done = session.admin.run(admin.abort(sqid=0, cid=0x7777))
    assert done.ok, f"5.2.1: Abort itself succeeds, not {status_name(done.status)}"
    assert done.cqe.dw0 & 1, "5.2.1.2: bit 0 is set if nothing was aborted"


@pytest.mark.case("NVA-ABORT-02", section="Base 5.2.1.2", kills=("abort-silent", "abort-denied"))
def test_abort_of_an_event_request_reports_its_result(session: ControllerSession, observe: Observe) -> None:
    cid = request_event(session)
    done = session.admin.run(admin.abort(sqid=0, cid=cid))
    assert done.ok
    if done.cqe.dw0 & 1:
        observe("not aborted, and reported as such")
        assert session.admin.run(admin.get_features(Feature.NUMBER_OF_QUEUES)).ok
        assert session.admin.status_of(cid) is None, "5.2.1.2: bit 0 is set, but the request was aborted"
        return
    observe("aborted")
    refused(session.admin.wait(cid), StatusCode.ABORTED_BY_REQUEST)


@pytest.mark.case("NVA-ABORT-03", section="Base 5.2.1.2", kills=("abort-unknown",))
def test_a_completed_io_command_is_not_aborted(session: ControllerSession) -> None:
    queue = session.io_queue(qid=1)
    cid = queue.submit(io.flush(session.own_namespace()))
    assert queue.wait(cid).ok
    done = session.admin.run(admin.abort(sqid=1, cid=cid))
    assert done.ok, f"5.2.1: Abort itself succeeds, not {status_name(done.status)}"
    assert done.cqe.dw0 & 1, "5.2.1.2: bit 0 is set if nothing was aborted"


# Keep Alive (5.2.14, 3.9)


@pytest.mark.case("NVA-KA-01", section="Base 5.2.14", kills=("keep-alive-refused",))
def test_keep_alive_is_answered(bench: Harness) -> None:
    session = bench.session(kato=30000)
    assert session.admin.run(admin.keep_alive()).ok


@pytest.mark.slow
@pytest.mark.case("NVA-KA-02", section="Base 3.9.5", kills=("keep-alive-never",))
def test_a_host_that_falls_silent_is_given_up(bench: Harness, observe: Observe) -> None:
    kato, cleanup = timeout_in_use(bench, 1000), bench.session().controller["cqt"] / 1000
    session = bench.session(kato=kato)
    queue = session.admin
    began = time.monotonic()
    ending = queue.wait_for_close(deadline=2 * kato / 1000 + cleanup + 3)  # 3.9.4.1: up to 2 * KATT
    observe(f"KATO {kato} ms: {ending} after {time.monotonic() - began:.1f} s")
    fatal = False
    if not ending.ended:
        fatal = bool(session.get_property(Property.CSTS) & CSTS_FATAL)
    assert ending.ended or fatal, "3.9.5: a Keep Alive Timeout ends the association"


@pytest.mark.slow
@pytest.mark.case("NVA-KA-03", section="Base 3.9.3.1", kills=("keep-alive-deaf",))
def test_a_host_that_keeps_alive_is_not_given_up(bench: Harness) -> None:
    kato = timeout_in_use(bench, 1000)
    session = bench.session(kato=kato)
    until = time.monotonic() + 2.5 * kato / 1000
    while time.monotonic() < until:
        with pytest.raises(RemoteProtocolError, match="neither responded nor closed"):
            session.admin.receive(deadline=kato / 4000)
        assert session.admin.run(admin.keep_alive()).ok, "3.9.3.1: Keep Alive starts the timer again"
