"""Identify and log pages agree: with each other, with other controllers, and from one read to the next."""

from __future__ import annotations

import struct

import pytest

from storagetest.wire.nvme import admin, io
from storagetest.wire.nvme.codes import ONCS_BITS, Admin, Cns, Feature, Io, LogPage, StatusCode, status_name
from storagetest.wire.nvme.command import Command
from storagetest.wire.nvme.structures import descriptors
from storagetest.wire.nvme_tcp import ControllerSession, Queue
from storagetest.wire.nvme_tcp.harness import Harness, Scratch

pytestmark = [pytest.mark.needs("nvme-tcp-wire"), pytest.mark.case(level="MUST", section="Base 5.2.13.2.1")]

ALL_NAMESPACES = 0xFFFFFFFF
UNKNOWN_LOG = 0x6F
"""A log page that is reserved (5.2.12)."""

SMART_COUNTERS = {
    32: "Data Units Read",
    48: "Data Units Written",
    64: "Host Read Commands",
    80: "Host Write Commands",
    112: "Power Cycles",
    128: "Power On Hours",
    160: "Media and Data Integrity Errors",
    176: "Number of Error Information Log Entries",
}
"""Offsets of the counters of 16 bytes (5.2.12.1.3)."""

EUI64, NGUID = 1, 2
"""Namespace Identifier Types (5.2.13.2.3)."""


@pytest.mark.case("NVA-ID-SUBSYSTEM", kills=("identify-serial-differs", "identify-cntlid-first"))
def test_controllers_of_a_subsystem_have_its_names(bench: Harness) -> None:
    first, second = bench.session(), bench.session()
    assert first.cntlid != second.cntlid, "3.1.2: two controllers have the same CNTLID"
    for one in (first, second):
        found = one.controller["cntlid"]
        assert found == one.cntlid, f"5.2.13.2.1: CNTLID is {one.cntlid} in Connect and {found} in Identify"
    for name in ("sn", "mn", "subnqn"):
        names = [one.controller.text(name) for one in (first, second)]
        assert names[0] == names[1], f"5.2.13.2.1: {name.upper()} is the subsystem's, but is {names}"


@pytest.mark.case("NVA-ID-DESC-SAME", section="Base 5.2.13.2.3", kills=("descriptor-nguid-other",))
def test_the_descriptors_are_those_of_identify_namespace(session: ControllerSession) -> None:
    for nsid in session.namespaces():
        listed = dict(descriptors(session.identify(Cns.DESCRIPTORS, nsid=nsid)))
        data = session.namespace(nsid)
        for kind, name, raw in ((EUI64, "EUI64", data.eui64), (NGUID, "NGUID", data.nguid)):
            if any(raw) and kind in listed:
                assert listed[kind] == raw, (
                    f"5.2.13.2.3: {name} of namespace {nsid} is {raw.hex()}, "
                    f"and {listed[kind].hex()} in its descriptors"
                )


@pytest.mark.parametrize(("opcode", "bit"), [
    pytest.param(0x14, 4, marks=pytest.mark.case("NVA-OACS-SELF-TEST", kills=("oacs-ignored",))),
    pytest.param(0x1A, 5, marks=pytest.mark.case("NVA-OACS-DIRECTIVES", kills=("oacs-ignored",))),
])  # fmt: skip
def test_a_command_that_oacs_does_not_announce_is_an_invalid_opcode(
    session: ControllerSession, opcode: int, bit: int
) -> None:
    """A self-test and Directive Receive change no data, even if a controller carries them out."""
    if session.controller["oacs"] >> bit & 1:
        pytest.skip(f"OACS bit {bit}: opcode {opcode:02x}h is supported")
    done = session.admin.run(Command(opcode, nsid=ALL_NAMESPACES))
    assert done.status == StatusCode.INVALID_OPCODE, (
        f"5.2.13.2.1: OACS bit {bit} is 0, but opcode {opcode:02x}h ended with {status_name(done.status)}"
    )


NAMESPACE_MANAGEMENT = 1 << 3
"""OACS: Namespace Management and Namespace Attachment are supported (5.2.13.2.1)."""


@pytest.mark.case("NVA-OACS-NAMESPACES", section="NVM 4.1.5.1", kills=("management-without-common",))
def test_namespace_management_has_the_capabilities_common_to_all(session: ControllerSession) -> None:
    """Identify Namespace of NSID FFFFFFFFh, if OACS announces Namespace Management."""
    if not session.controller["oacs"] & NAMESPACE_MANAGEMENT:
        pytest.skip("OACS bit 3: no Namespace Management")
    done = session.admin.run(admin.identify(Cns.NAMESPACE, nsid=ALL_NAMESPACES), reads=4096)
    assert done.ok, (
        "4.1.5.1: OACS announces Namespace Management, but Identify Namespace of NSID FFFFFFFFh ends with "
        f"{status_name(done.status)}"
    )


FLUSH_ALL = {2: StatusCode.INVALID_NAMESPACE, 3: StatusCode.SUCCESS}
"""What VWC bits 2:1 state of a Flush whose NSID is FFFFFFFFh (5.2.13.2.1, 7.2); 0 states nothing."""


@pytest.mark.case("NVB-FLUSH-ALL", section="Base 7.2", kills=("flush-all-refused", "flush-all-taken"))
def test_a_flush_of_all_namespaces_ends_as_vwc_states(session: ControllerSession, queue: Queue) -> None:
    stated = FLUSH_ALL.get(session.controller["vwc"] >> 1 & 3)
    if stated is None:
        pytest.skip("VWC states nothing about NSID FFFFFFFFh")
    done = queue.run(io.flush(ALL_NAMESPACES))
    assert done.status == stated, (
        f"7.2: VWC is {session.controller['vwc']:#x}, so a Flush of NSID FFFFFFFFh ends with "
        f"{status_name(stated)}, not {status_name(done.status)}"
    )


@pytest.mark.case("NVA-FEAT-VWC", kills=("write-cache-refused", "write-cache-unannounced"))
def test_the_feature_of_the_write_cache_is_there_if_vwc_announces_one(session: ControllerSession) -> None:
    """Without a volatile write cache, Get Features and Set Features of it end with Invalid Field."""
    if session.controller["vwc"] & 1:
        done = session.admin.run(admin.get_features(Feature.VOLATILE_WRITE_CACHE))
        assert done.ok, (
            f"5.2.26.1.4: VWC announces a write cache, but Get Features is {status_name(done.status)}"
        )
        return
    fid = Feature.VOLATILE_WRITE_CACHE
    for name, command in (("Get", admin.get_features(fid)), ("Set", admin.set_features(fid, 0))):
        done = session.admin.run(command)
        assert done.status == StatusCode.INVALID_FIELD, (
            f"5.2.13.2.1: VWC is 0, but {name} Features of it ended with {status_name(done.status)}"
        )


@pytest.mark.case("NVA-ID-DSM-LIMITS", section="NVM 3.3.3.1", kills=("dsm-limits-one",))
def test_all_limits_of_dataset_management_are_zero_or_none(session: ControllerSession) -> None:
    done = session.admin.run(admin.identify(Cns.CSI_CONTROLLER), reads=4096)
    if not done.ok:
        pytest.skip(f"Identify CNS 06h ends with {status_name(done.status)}")
    dmrl, dmrsl, dmsl = struct.unpack_from("<3xBIQ", done.data)
    assert len({bool(dmrl), bool(dmrsl), bool(dmsl)}) == 1, (
        f"3.3.3.1: DMRL is {dmrl}, DMRSL {dmrsl}, DMSL {dmsl}; all are 0, or none is"
    )


# Log pages (5.2.12)


@pytest.mark.case("NVA-LOG-EFFECTS-MANDATORY", section="Base 5.2.12.1.6", kills=("log-effects-write",))
def test_the_effects_log_lists_every_mandatory_command(session: ControllerSession) -> None:
    done = session.admin.run(admin.get_log_page(LogPage.EFFECTS, 4096), reads=4096)
    if not done.ok and not session.controller["lpa"] & 2:
        pytest.skip("LPA bit 1: no Commands Supported and Effects log page")
    assert done.ok, f"5.2.12.1.6: LPA bit 1 is set, but {status_name(done.status)}"
    mandatory = (Admin.GET_LOG_PAGE, Admin.IDENTIFY, Admin.ABORT, Admin.SET_FEATURES, Admin.GET_FEATURES)
    for at, opcodes in ((0, mandatory), (1024, (Io.FLUSH, Io.WRITE, Io.READ))):
        missing = [opcode.name for opcode in opcodes if not done.data[at + 4 * opcode] & 1]
        assert not missing, f"5.2.12.1.6: CSUPP is 0 of {', '.join(missing)}, which every controller supports"


@pytest.mark.case("NVA-LOG-EFFECTS-OPTIONAL", section="Base 5.2.12.1.6", kills=("log-effects-optional",))
def test_the_effects_log_lists_every_optional_command_of_oncs(session: ControllerSession) -> None:
    """CSUPP is 1 of a command that is supported, and ONCS has a bit for each optional one."""
    done = session.admin.run(admin.get_log_page(LogPage.EFFECTS, 4096), reads=4096)
    if not done.ok:
        pytest.skip(f"no Commands Supported and Effects log page: {status_name(done.status)}")
    oncs = session.controller["oncs"]
    missing = [
        opcode.name
        for opcode, bit in ONCS_BITS.items()
        if oncs >> bit & 1 and not done.data[1024 + 4 * opcode] & 1
    ]
    assert not missing, f"5.2.12.1.6: CSUPP is 0 of {', '.join(missing)}, which ONCS {oncs:#x} announces"


RESERVATIONS = 1 << 5
"""ONCS: the four reservation commands (5.2.13.2.1)."""


@pytest.mark.case(
    "NVA-LOG-EFFECTS-RESERVATIONS", section="Base 5.2.12.1.6", kills=("log-effects-reservations",)
)
def test_the_effects_log_lists_the_commands_of_reservations(session: ControllerSession) -> None:
    """ONCS has one bit for all of them."""
    done = session.admin.run(admin.get_log_page(LogPage.EFFECTS, 4096), reads=4096)
    if not done.ok:
        pytest.skip(f"no Commands Supported and Effects log page: {status_name(done.status)}")
    if not session.controller["oncs"] & RESERVATIONS:
        pytest.skip("ONCS bit 5: reservations are not supported")
    commands = (
        Io.RESERVATION_REGISTER,
        Io.RESERVATION_REPORT,
        Io.RESERVATION_ACQUIRE,
        Io.RESERVATION_RELEASE,
    )
    missing = [opcode.name for opcode in commands if not done.data[1024 + 4 * opcode] & 1]
    assert not missing, f"5.2.12.1.6: CSUPP is 0 of {', '.join(missing)}, which ONCS announces"


EFFECTS_RESERVED = 0x3FE0
"""Bits 13:5 of an entry of the Commands Supported and Effects log page (5.2.12.1.6)."""


@pytest.mark.case("NVA-LOG-EFFECTS-FIELDS", section="Base 5.2.12.1.6", kills=("log-effects-fields",))
def test_entries_of_the_effects_log_have_no_reserved_bits(session: ControllerSession) -> None:
    done = session.admin.run(admin.get_log_page(LogPage.EFFECTS, 4096), reads=4096)
    if not done.ok:
        pytest.skip(f"no Commands Supported and Effects log page: {status_name(done.status)}")
    for name, start in (("admin", 0), ("I/O", 1024)):
        for opcode, (entry,) in enumerate(struct.iter_unpack("<I", done.data[start : start + 1024])):
            assert not entry & EFFECTS_RESERVED, (
                f"5.2.12.1.6: the entry {entry:#010x} of {name} opcode {opcode:02x}h has reserved bits set"
            )
            assert entry & 1 or not entry, (
                f"5.2.12.1.6: CSUPP of {name} opcode {opcode:02x}h is 0, but its entry is {entry:#010x}"
            )


MANDATORY_LOGS = (LogPage.SUPPORTED, LogPage.ERROR, LogPage.SMART, LogPage.FIRMWARE_SLOT)
"""Log pages of every I/O controller that has the list of them (3.1.3.5)."""

VENDOR_LOGS = 0xC0
"""The first log page that is vendor specific (5.2.12)."""


@pytest.mark.case(
    "NVA-LOG-SUPPORTED", section="Base 5.2.12.1.1", kills=("log-list-lacks-smart", "log-list-all")
)
def test_the_list_of_log_pages_agrees_with_what_is_read(session: ControllerSession) -> None:
    done = session.admin.run(admin.get_log_page(LogPage.SUPPORTED, 1024), reads=1024)
    if not done.ok:
        pytest.skip(f"no Supported Log Pages log page: {status_name(done.status)}")
    entries = [entry for (entry,) in struct.iter_unpack("<I", done.data)]
    for page, entry in enumerate(entries):
        assert not entry & 0xFFFC, (
            f"5.2.12.1.1: the entry {entry:#010x} of page {page:02x}h has reserved bits set"
        )
    missing = [page.name for page in MANDATORY_LOGS if not entries[page] & 1]
    assert not missing, f"5.2.12.1.1: LSUPP is 0 of {', '.join(missing)}, which every I/O controller supports"
    for page in (LogPage.EFFECTS, UNKNOWN_LOG):
        read = session.admin.run(admin.get_log_page(page, 512), reads=512)
        assert read.ok == bool(entries[page] & 1), (
            f"5.2.12.1.1: LSUPP of page {page:02x}h is {entries[page] & 1}, "
            f"but reading it ended with {status_name(read.status)}"
        )


@pytest.mark.case("NVA-LOG-UNLISTED", section="Base 5.2.12.1.1", kills=("log-list-lacks-changed",))
def test_no_log_page_is_read_that_is_not_listed(session: ControllerSession) -> None:
    """Pages of this standard and of command sets, up to BFh: those whose LSUPP is 0."""
    done = session.admin.run(admin.get_log_page(LogPage.SUPPORTED, 1024), reads=1024)
    if not done.ok:
        pytest.skip(f"no Supported Log Pages log page: {status_name(done.status)}")
    pages = range(VENDOR_LOGS)
    unlisted = [
        page for page in pages if not int.from_bytes(done.data[4 * page : 4 * page + 4], "little") & 1
    ]
    read = [
        f"{page:02x}h"
        for page in unlisted
        if session.admin.run(admin.get_log_page(page, 512, rae=1), reads=512).ok
    ]
    assert not read, (
        f"5.2.12.1.1: the log pages {', '.join(read)} are read, and LSUPP states that they are not supported"
    )


@pytest.mark.case("NVA-LOG-FIRMWARE", section="Base 5.2.12.1.4", kills=("log-firmware-other",))
def test_the_active_firmware_slot_has_the_active_revision(session: ControllerSession) -> None:
    log = session.log_page(LogPage.FIRMWARE_SLOT, 512, nsid=ALL_NAMESPACES)
    slot = log[0] & 7
    if not slot:
        pytest.skip("AFI names no active slot")
    revision = log[8 * slot : 8 * slot + 8].decode("ascii", "replace").strip(" \0")
    assert revision == session.controller.text("fr"), (
        f"5.2.12.1.4: slot {slot} is active with {revision!r}; FR is {session.controller.text('fr')!r}"
    )


@pytest.mark.case("NVA-LOG-SMART-COUNTERS", section="Base 5.2.12.1.3", kills=("log-smart-falls",))
def test_counters_of_the_smart_log_do_not_fall(
    session: ControllerSession, queue: Queue, scratch: Scratch
) -> None:
    def counters() -> dict[str, int]:
        log = session.log_page(LogPage.SMART, 512, nsid=ALL_NAMESPACES)
        return {name: int.from_bytes(log[at : at + 16], "little") for at, name in SMART_COUNTERS.items()}

    before = counters()
    for at in range(4):
        assert queue.run(io.read(scratch.nsid, scratch.lba + at, 1), reads=scratch.block_size).ok
    after = counters()
    fallen = [f"{name} from {before[name]} to {after[name]}" for name in before if after[name] < before[name]]
    assert not fallen, f"5.2.12.1.3: counters fell: {', '.join(fallen)}"
