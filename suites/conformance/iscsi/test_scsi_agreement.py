"""What a unit states in two places agrees, and no code that it states is a reserved one (SPC-4, SBC-3)."""

from __future__ import annotations

import pytest

from storagetest.wire.iscsi.keys import short_binary
from storagetest.wire.iscsi.look import good_data, vpd_page
from storagetest.wire.scsi import cdb as c
from storagetest.wire.scsi.codes import SenseKey
from storagetest.wire.scsi.data import (
    VpdPage,
    decode_block_limits,
    decode_capacity16,
    decode_designators,
    decode_luns,
    decode_provisioning,
)
from storagetest.wire.scsi.logical_unit import LogicalUnit

pytestmark = [pytest.mark.needs("iscsi-wire"), pytest.mark.case(section="SPC-4 INQUIRY", level="MUST")]

BLOCK_LIMITS, CHARACTERISTICS, PROVISIONING = 0xB0, 0xB1, 0xB2
"""VPD pages (SBC-3)."""
TARGET_PORT, TARGET_DEVICE, NAME_STRING = 1, 2, 8
"""Two values of ASSOCIATION, and a designator type (SPC-4, Device Identification VPD page)."""


def listed(unit: LogicalUnit, code: int) -> VpdPage:
    """Return a VPD page; skip if page 00h has none."""
    if code not in vpd_page(unit, 0x00).body:
        pytest.skip(f"page 00h has no page {code:02X}h")
    return vpd_page(unit, code)


@pytest.mark.case(
    "SCS-AGREE-PROTECT", section="SBC-3 READ CAPACITY(16), PROT_EN", kills=("capacity-prot-en",)
)
def test_protection_is_enabled_only_if_it_is_supported(unit):
    """PROT_EN of 1 is a format with protection information, which PROTECT of 0 excludes."""
    standard = good_data(unit.inquiry())
    supported = len(standard) > 5 and bool(standard[5] & 1)
    enabled = decode_capacity16(good_data(unit.capacity16())).protection
    assert supported or not enabled, "PROT_EN of READ CAPACITY(16) is 1, and PROTECT of INQUIRY is 0"


@pytest.mark.case("SCS-AGREE-WP", section="SBC-3 mode parameters, WP", kills=("mode-write-protected",))
def test_wp_states_whether_the_unit_can_be_written(unit, erasable):
    """A write is done if WP is 0, and ends in DATA PROTECT if it is 1."""
    header = unit.run(c.MODE_SENSE_6, read=255, page=0x3F, dbd=1, allocation=255)
    if header.check(SenseKey.ILLEGAL_REQUEST):
        pytest.skip(f"{header}")
    protected = bool(good_data(header)[2] & 0x80)
    answer = unit.write(erasable.lba, erasable.pattern(1, seed=160))
    assert answer.check(SenseKey.DATA_PROTECT) if protected else answer.good, (
        f"{answer}, and WP of MODE SENSE(6) is {protected:d}"
    )


@pytest.mark.case(
    "SCS-AGREE-UNMAP", section="SBC-3 Block Limits, MAXIMUM UNMAP LBA COUNT", kills=("unmap-count-zero",)
)
def test_a_unit_with_unmap_states_how_much_one_command_unmaps(unit):
    """Both maxima are 1 at least if UNMAP is supported; a page of SBC-2 is too short to have them."""
    if not decode_provisioning(listed(unit, PROVISIONING)).unmap:
        pytest.skip("LBPU is 0")
    page = listed(unit, BLOCK_LIMITS)
    if len(page.body) < 24:
        pytest.skip(f"page B0h has {len(page.body)} bytes: that of SBC-2")
    limits = decode_block_limits(page)
    counts = limits.max_unmap_blocks, limits.max_unmap_descriptors
    assert all(counts), (
        f"LBPU is 1, and the maxima of UNMAP (blocks, descriptors) are {counts}; 0 is: no UNMAP"
    )


@pytest.mark.case("SCS-LUN-TWICE", section="SPC-4 REPORT LUNS", kills=("lun-twice",))
def test_no_logical_unit_is_listed_twice(unit):
    luns = decode_luns(good_data(unit.luns()))
    twice = sorted({f"{lun:016x}" for lun in luns if luns.count(lun) > 1})
    assert not twice, f"REPORT LUNS lists LUN {', '.join(twice)} twice"


# Names


def name_strings(unit: LogicalUnit, association: int) -> list[str]:
    """Return the SCSI name strings of page 83h that name ``association``, in small letters."""
    found = decode_designators(vpd_page(unit, 0x83))
    names = [one for one in found if one.kind == NAME_STRING and one.association == association]
    return [one.data.rstrip(b"\0").decode("utf-8", "replace").lower() for one in names]


@pytest.mark.case(
    "SCS-AGREE-PORT-NAME",
    section="SPC-4 Device Identification, SCSI name string",
    kills=("port-name-group", "port-name-target"),
)
def test_the_name_of_the_port_is_that_of_the_login(session, unit, portal):
    """The name of the target and the portal group tag of the session."""
    names = [name for name in name_strings(unit, TARGET_PORT) if ",t,0x" in name]
    tag = short_binary(dict(session.replied).get("TargetPortalGroupTag", ""))
    if not names or tag is None:
        pytest.skip("page 83h has no name of the port, or the login no portal group tag")
    wanted = f"{portal.iqn.lower()},t,0x{tag:04x}"
    assert wanted in names, f"page 83h names the port {', '.join(names)}; the login was to {wanted}"


@pytest.mark.case(
    "SCS-AGREE-DEVICE-NAME",
    section="SPC-4 Device Identification, SCSI name string",
    level="SHOULD",
    kills=("device-name-target",),
)
def test_the_name_of_the_device_is_that_of_the_target(unit, portal):
    names = [name for name in name_strings(unit, TARGET_DEVICE) if name.startswith("iqn")]
    if not names:
        pytest.skip("page 83h has no name of the target device")
    assert portal.iqn.lower() in names, f"page 83h names the device {', '.join(names)}, not {portal.iqn}"


# Reserved codes. SPC: they are "set aside for future standardization", and a later standard may define them.


@pytest.mark.case(
    "SCS-CODE-DESIGNATOR",
    section="SPC-4 Device Identification, ASSOCIATION",
    level="SHOULD",
    kills=("designator-association",),
)
def test_no_designator_has_a_reserved_association(unit):
    found = [one.association for one in decode_designators(vpd_page(unit, 0x83))]
    assert 3 not in found, f"page 83h: the ASSOCIATION fields are {found}, and 11b is reserved"


@pytest.mark.case(
    "SCS-CODE-ROTATION",
    section="SBC-3 Block Device Characteristics, MEDIUM ROTATION RATE",
    level="SHOULD",
    kills=("rotation-rate-reserved",),
)
def test_the_rotation_rate_is_no_reserved_one(unit):
    """0 is not reported, 1 a medium that does not rotate, 0401h and more a number per minute."""
    rate = int.from_bytes(listed(unit, CHARACTERISTICS).body[:2], "big")
    assert rate in {0, 1} or 0x401 <= rate < 0xFFFF, f"MEDIUM ROTATION RATE is the reserved {rate:04x}h"


@pytest.mark.case(
    "SCS-CODE-PROVISIONING",
    section="SBC-3 Logical Block Provisioning, PROVISIONING TYPE",
    level="SHOULD",
    kills=("provisioning-type-reserved",),
)
def test_the_provisioning_type_is_no_reserved_one(unit):
    """0 is not reported, 1 resource provisioned, 2 thin provisioned."""
    kind = listed(unit, PROVISIONING).body[2] & 0x07
    assert kind <= 2, f"PROVISIONING TYPE is the reserved {kind:03b}b"
