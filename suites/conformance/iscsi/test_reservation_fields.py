"""SCOPE and TYPE of a persistent reservation: in each full status descriptor, and of a RELEASE (SPC-4)."""

from __future__ import annotations

import pytest

from storagetest.wire.scsi.codes import PrIn, PrOut, PrType, SenseKey
from storagetest.wire.scsi.reservation_harness import KEY_A, KEY_B, RESERVING, reserved

pytestmark = [
    pytest.mark.needs("iscsi-wire"),
    pytest.mark.case(section="SPC-4 READ FULL STATUS", level="MUST", builds_on=RESERVING),
]

HEADER, DESCRIPTOR = 8, 24
"""Bytes of the parameter data before the descriptors, and of a descriptor before its TransportID."""
R_HOLDER = 0x01
OTHER_SCOPES = (1, 2, 15)
"""Of SCOPE: 0 is the logical unit, 2 was an element, the others are reserved."""


def descriptors(data: bytes) -> list[bytes]:
    """Return the full status descriptors without their TransportIDs."""
    rest, found = data[HEADER:], []
    while len(rest) >= DESCRIPTOR:
        found.append(rest[:DESCRIPTOR])
        rest = rest[DESCRIPTOR + int.from_bytes(rest[20:24], "big") :]
    return found


@pytest.mark.parametrize("kind", [
    pytest.param(
        kind, marks=pytest.mark.case(f"SCS-PR-FULL-TYPE-{kind:d}", kills=("full-status-no-type",))
    )
    for kind in PrType
])  # fmt: skip
def test_the_descriptor_of_each_holder_has_scope_and_type_of_the_reservation(unreserved, kind):
    """Where all registrants hold it, each has them; of the others the fields are not defined."""
    a, b = unreserved
    reserved(a, kind)
    assert b.register(KEY_B).good
    answer = a.reserve_in(PrIn.READ_FULL_STATUS)
    if answer.check(SenseKey.ILLEGAL_REQUEST):
        pytest.skip(f"READ FULL STATUS is not supported: {answer}")
    found = [one for one in descriptors(answer.good_data()) if one[12] & R_HOLDER]
    assert found, f"{answer}: no descriptor has R_HOLDER: {answer.data.hex(' ')}"
    for one in found:
        assert one[13] == kind, (
            f"{answer}: SCOPE and TYPE of the holder with the key {one[:8].hex()} are {one[13]:02x}h; the "
            f"reservation has SCOPE 0 and TYPE {kind:X}h"
        )


@pytest.mark.case("SCS-PR-RELEASE-SCOPE", section="SPC-4 RELEASE", kills=("release-any-scope",))
def test_a_release_with_another_scope_is_refused(unreserved):
    """The reservation stays."""
    a, b = unreserved
    reserved(a, PrType.WRITE_EXCLUSIVE)
    for scope in OTHER_SCOPES:
        answer = a.reserve_out(PrOut.RELEASE, key=KEY_A, type=PrType.WRITE_EXCLUSIVE, scope=scope)
        assert answer.check(SenseKey.ILLEGAL_REQUEST), f"{answer}: the SCOPE of the reservation is 0"
        held = b.reservation()
        assert (held.held, held.type) == (True, PrType.WRITE_EXCLUSIVE), f"{answer}, and then {held}"
