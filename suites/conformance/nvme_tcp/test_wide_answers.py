"""Long log pages, and what is announced of commands and command sets (Base 5.2.12, 5.2.13)."""

from __future__ import annotations

import struct
from dataclasses import replace

import pytest

from storagetest.errors import RemoteProtocolError
from storagetest.wire.nvme import admin
from storagetest.wire.nvme.codes import Cns, Feature, Io, LogPage, StatusCode, status_name
from storagetest.wire.nvme.command import Command
from storagetest.wire.nvme.structures import active_namespaces, descriptors
from storagetest.wire.nvme_tcp import ControllerSession

from .test_feature_values import SAVE_AND_SELECT

pytestmark = [pytest.mark.needs("nvme-tcp-wire"), pytest.mark.case(level="MUST", section="Base 5.2.12")]

EVERY = 0xFFFFFFFF
EXTENDED = 1 << 2
"""LPA: NUMDU and the offset of Get Log Page are supported (5.2.13.2.1)."""

PAGE = 512
"""Bytes of the Firmware Slot Information log page (5.2.12.1.4)."""

WIDE = (1 << 18) + 4
"""Bytes of a Get Log Page whose NUMDU is 1, and NUMDL 0."""

CSUPP, LBCC = 1 << 0, 1 << 1
"""Command Supported, and Logical Block Content Change, of an entry of the effects log page (5.2.12.1.6)."""

CHANGING = (Io.WRITE, Io.WRITE_ZEROES, Io.COPY)
"""Commands that change the content of logical blocks (NVM 3.3)."""

NOT_OVER_FABRICS = {
    0x00: "Delete I/O Submission Queue",
    0x01: "Create I/O Submission Queue",
    0x04: "Delete I/O Completion Queue",
    0x05: "Create I/O Completion Queue",
    0x7C: "Doorbell Buffer Config",
}
"""Admin commands of the memory-based transport alone (5.1)."""

OPTIONAL = {
    0x80: (1, "Format NVM"),
    0x81: (0, "Security Send"),
    0x82: (0, "Security Receive"),
    0x10: (2, "Firmware Commit"),
    0x11: (2, "Firmware Image Download"),
    0x0D: (3, "Namespace Management"),
    0x15: (3, "Namespace Attachment"),
    0x14: (4, "Device Self-test"),
    0x19: (5, "Directive Send"),
    0x1A: (5, "Directive Receive"),
    0x1C: (7, "Virtualization Management"),
    0x86: (9, "Get LBA Status"),
    0x24: (10, "Lockdown"),
}
"""Optional admin commands, each with its bit of OACS (5.2.13.2.1)."""

RESERVED_SET = 0x1F
"""A Command Set Identifier that is reserved (5.2.13)."""

CSI = 4
"""Namespace Identifier Type of the Command Set Identifier (5.2.13.2.3)."""


@pytest.mark.case("NVA-LOG-NUMDU", kills=("log-numdu-ignored",), builds_on=("NVA-LOG-03H",))
def test_the_upper_half_of_numd_counts(session: ControllerSession) -> None:
    """Its lower half is that of one dword. The command is refused, or returns the whole log page."""
    if not session.controller["lpa"] & EXTENDED:
        pytest.skip("LPA bit 2: NUMDU is not supported")
    try:
        done = session.admin.run(admin.get_log_page(LogPage.FIRMWARE_SLOT, WIDE, nsid=EVERY), reads=WIDE)
    except RemoteProtocolError:
        return  # too large for the controller: which error is right is NVB-MDTS's
    if done.ok:
        assert len(done.data) >= PAGE, (
            f"5.2.12: {WIDE} bytes of a log page of {PAGE} bytes are asked for (NUMDU 1, NUMDL 0), and "
            f"{len(done.data)} returned"
        )


def _effects(session: ControllerSession) -> bytes:
    done = session.admin.run(admin.get_log_page(LogPage.EFFECTS, 4096), reads=4096)
    if not done.ok:
        pytest.skip(f"no Commands Supported and Effects log page: {status_name(done.status)}")
    return done.data


def _entry(raw: bytes, opcode: int, *, io: bool) -> int:
    return int(struct.unpack_from("<I", raw, 1024 * io + 4 * opcode)[0])


@pytest.mark.case("NVA-LOG-EFFECTS-CHANGES", section="Base 5.2.12.1.6", kills=("log-effects-no-change",))
def test_the_effects_log_states_what_changes_blocks(session: ControllerSession) -> None:
    """LBCC cleared to 0 states that the command does not modify the content of a logical block."""
    raw = _effects(session)
    for opcode in CHANGING:
        entry = _entry(raw, opcode, io=True)
        assert entry & LBCC or not entry & CSUPP, (
            f"5.2.12.1.6: LBCC of {opcode.name} is 0 (its entry is {entry:#010x}): it would change no block"
        )


@pytest.mark.case("NVA-LOG-EFFECTS-QUEUES", section="Base 5.2.12.1.6", kills=("log-effects-queues",))
def test_the_effects_log_lists_no_command_that_fabrics_have_not(session: ControllerSession) -> None:
    raw = _effects(session)
    listed = [name for opcode, name in NOT_OVER_FABRICS.items() if _entry(raw, opcode, io=False) & CSUPP]
    assert not listed, f"5.2.12.1.6: CSUPP is 1 of {', '.join(listed)}, which no controller over fabrics has"


@pytest.mark.case("NVA-LOG-EFFECTS-OACS", section="Base 5.2.12.1.6", kills=("log-effects-oacs",))
def test_the_effects_log_lists_no_admin_command_that_oacs_does_not_announce(
    session: ControllerSession,
) -> None:
    raw, oacs = _effects(session), session.controller["oacs"]
    listed = [
        f"{name} (bit {bit})"
        for opcode, (bit, name) in OPTIONAL.items()
        if _entry(raw, opcode, io=False) & CSUPP and not oacs >> bit & 1
    ]
    assert not listed, f"5.2.12.1.6: CSUPP is 1 of {', '.join(listed)}; OACS is {oacs:#06x}"


@pytest.mark.parametrize(("opcode", "bit", "name"), [
    pytest.param(0x82, 0, "Security Receive", marks=pytest.mark.case("NVA-OACS-SECURITY")),
    pytest.param(0x1E, 6, "NVMe-MI Receive", marks=pytest.mark.case("NVA-OACS-MI")),
    pytest.param(0x86, 9, "Get LBA Status", marks=pytest.mark.case("NVA-OACS-LBA-STATUS")),
])  # fmt: skip
@pytest.mark.case(
    section="Base 5.2.13.2.1", kills=("oacs-reads-ignored",), builds_on=("NVA-OACS-DIRECTIVES",)
)
def test_a_command_that_returns_data_is_refused_if_oacs_does_not_announce_it(
    session: ControllerSession, opcode: int, bit: int, name: str
) -> None:
    if session.controller["oacs"] >> bit & 1:
        pytest.skip(f"OACS bit {bit}: {name} is supported")
    done = session.admin.run(Command(opcode), reads=4096)
    assert done.status == StatusCode.INVALID_OPCODE, (
        f"5.2.13.2.1: OACS bit {bit} is 0, but {name} ended with {status_name(done.status)}"
    )


@pytest.mark.case("NVA-ID-FR", section="Base 1.4.2", kills=("identify-fr-nul",))
def test_the_firmware_revision_is_ascii(session: ControllerSession) -> None:
    raw = session.controller.raw[64:72]
    wrong = [byte for byte in raw if not 0x20 <= byte <= 0x7E]
    assert not wrong, f"1.4.2: FR is {raw!r}: an ASCII string has bytes 20h to 7Eh, and ends with spaces"


@pytest.mark.case("NVA-ID-DESC-CSI", section="Base 5.2.13.2.3", kills=("descriptor-csi-other",))
def test_the_command_set_of_a_namespace_is_the_one_that_lists_it(session: ControllerSession) -> None:
    """CNS 07h with CSI 0h lists the namespaces of the NVM Command Set."""
    done = session.admin.run(admin.identify(Cns.CSI_ACTIVE_NAMESPACES), reads=4096)
    if not done.ok:
        pytest.skip(f"Identify CNS 07h ends with {status_name(done.status)}")
    for nsid in active_namespaces(done.data)[:16]:
        found = dict(descriptors(session.identify(Cns.DESCRIPTORS, nsid=nsid))).get(CSI)
        assert found is None or not any(found), (
            f"5.2.13.2.3: namespace {nsid} is of the NVM Command Set; its descriptor has CSI {found.hex()}h"
        )


@pytest.mark.case(
    "NVA-ID-SET-LIST-OTHER",
    section="Base 5.2.13.2.7",
    kills=("set-list-of-any",),
    builds_on=("NVA-ID-LIST-01",),
)
def test_no_namespace_is_listed_of_a_command_set_that_does_not_exist(session: ControllerSession) -> None:
    """The command is refused, or the list is empty."""
    done = session.admin.run(admin.identify(Cns.CSI_ACTIVE_NAMESPACES, csi=RESERVED_SET), reads=4096)
    found = active_namespaces(done.data) if done.ok else []
    assert not found, (
        f"5.2.13.2.7: CSI {RESERVED_SET:02x}h is reserved, and Identify CNS 07h lists namespaces {found[:4]}"
    )


# What the lists of log pages and features state (5.2.12.1.1, 5.2.12.1.18), and the capabilities (5.2.11)

IOS, OFFSET_TYPE = 1 << 1, 1 << 23
"""Index Offset Supported of a log page, and Offset Type of Get Log Page: an index."""

NAMESPACE_SCOPE, CONTROLLER_SCOPE = 1 << 20, 1 << 21
"""Bits of the scope of a feature."""

OF_CONTROLLER = (Feature.NUMBER_OF_QUEUES, Feature.ASYNC_EVENT, Feature.KATO)
"""Features whose scope is the controller (5.2.26)."""

OF_NAMESPACE = (
    Feature.RESERVATION_NOTIFICATION_MASK,
    Feature.RESERVATION_PERSISTENCE,
    Feature.WRITE_PROTECT,
)
"""Features whose scope is a namespace (5.2.26)."""

SPECIFIC = 1 << 1
"""Capabilities: the feature is specific to a namespace (5.2.11)."""


@pytest.mark.case(
    "NVA-LOG-INDEX-STATED",
    section="Base 5.2.12.1.1",
    kills=("log-index-announced",),
    builds_on=("NVA-LOG-SUPPORTED",),
)
def test_an_index_offset_that_is_stated_is_taken(session: ControllerSession) -> None:
    """OT is set for each log page whose IOS is 1, with an index of 0."""
    done = session.admin.run(admin.get_log_page(LogPage.SUPPORTED, 1024), reads=1024)
    if not done.ok or not session.controller["lpa"] & EXTENDED:
        pytest.skip("no Supported Log Pages log page, or no offset of Get Log Page")
    for page in (LogPage.ERROR, LogPage.SMART, LogPage.FIRMWARE_SLOT, LogPage.ANA):
        if int.from_bytes(done.data[4 * page : 4 * page + 4], "little") & (CSUPP | IOS) != CSUPP | IOS:
            continue
        command = replace(admin.get_log_page(page, 64, nsid=EVERY, rae=1), cdw14=OFFSET_TYPE)
        found = session.admin.run(command, reads=64)
        assert found.ok, (
            f"5.2.12.1.1: IOS of page {page:02x}h is 1, but Get Log Page with index 0 ends with "
            f"{status_name(found.status)}"
        )


@pytest.mark.case(
    "NVA-LOG-FEATURES-SCOPE",
    section="Base 5.2.12.1.18",
    kills=("log-features-scope",),
    builds_on=("NVA-LOG-FEATURES",),
)
def test_the_list_of_features_states_their_scope(session: ControllerSession) -> None:
    done = session.admin.run(admin.get_log_page(LogPage.FEATURES, 1024), reads=1024)
    if not done.ok:
        pytest.skip(f"no list of features: {status_name(done.status)}")
    for fids, wrong, scope in (
        (OF_CONTROLLER, NAMESPACE_SCOPE, "the controller"),
        (OF_NAMESPACE, CONTROLLER_SCOPE, "a namespace"),
    ):
        for fid in fids:
            entry = int.from_bytes(done.data[4 * fid : 4 * fid + 4], "little")
            assert not entry & CSUPP or not entry & wrong, (
                f"5.2.12.1.18: the scope of {fid.name} is {scope}; its entry is {entry:#010x}"
            )


@pytest.mark.case(
    "NVA-FEAT-CAPABLE-NAMESPACE",
    section="Base 5.2.11",
    kills=("capability-of-controller",),
    builds_on=("NVA-FEAT-CAPABILITIES",),
)
def test_the_capabilities_state_that_a_feature_is_of_a_namespace(session: ControllerSession) -> None:
    if not session.controller["oncs"] & SAVE_AND_SELECT:
        pytest.skip("ONCS bit 4: the Select field is not supported")
    nsid = session.own_namespace()
    for fid in OF_NAMESPACE:
        done = session.admin.run(admin.get_features(fid, select=3, nsid=nsid))
        assert not done.ok or done.cqe.dw0 & SPECIFIC, (
            f"5.2.11: {fid.name} is specific to a namespace; its capabilities are {done.cqe.dw0:#x}"
        )
