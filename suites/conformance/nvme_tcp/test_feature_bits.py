"""Each field of a feature is kept whole: what Set Features has set, Get Features returns (Base 5.2.26)."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from storagetest.wire.nvme import admin
from storagetest.wire.nvme.codes import Feature, status_name
from storagetest.wire.nvme_tcp import ControllerSession

from .test_feature_values import need_feature

pytestmark = [pytest.mark.needs("nvme-tcp-wire"), pytest.mark.case(level="MUST", section="Base 5.2.26")]


@dataclass(frozen=True, slots=True)
class Kept:
    """A field of a feature: its mask in dword 11, and the two values that it is given.

    Together the values have each bit once as 1 and once as 0. None of them causes an event.
    """

    fid: int
    mask: int
    values: tuple[int, int]
    of_namespace: bool = False


FIELDS = {
    "WEIGHTS": Kept(Feature.ARBITRATION, 0xFFFF_FF00, (0x5AA5_9600, 0xA55A_6900)),
    "BURST": Kept(Feature.ARBITRATION, 0x7, (5, 2)),
    "TMPTH": Kept(Feature.TEMPERATURE_THRESHOLD, 0xFFFF, (0x9A65, 0x659A)),
    "TLER": Kept(Feature.ERROR_RECOVERY, 0xFFFF, (0x96A5, 0x695A), of_namespace=True),
    "WARNINGS": Kept(Feature.ASYNC_EVENT, 0x1F, (0x15, 0x0A)),
}
"""Fields by name: HPW, MPW and LPW together, the Arbitration Burst, the threshold of the composite
temperature, the Time Limited Error Recovery, and the critical warnings of SMART that version 1.0 has."""


def _get(session: ControllerSession, field: Kept, nsid: int) -> int:
    done = session.admin.run(admin.get_features(field.fid, nsid=nsid))
    assert done.ok, f"5.2.11: Get Features {field.fid:02x}h ended with {status_name(done.status)}"
    return done.cqe.dw0


@pytest.mark.parametrize("name", [
    pytest.param(name, marks=pytest.mark.case(f"NVA-FEAT-WHOLE-{name}", kills=(f"field-{name.lower()}-cut",)))
    for name in FIELDS
])  # fmt: skip
def test_each_bit_of_a_field_is_kept(session: ControllerSession, name: str) -> None:
    """A controller may refuse the values, or keep none of a field; it keeps all bits, or none."""
    field = FIELDS[name]
    nsid = session.namespaces()[0] if field.of_namespace else 0
    need_feature(session, field.fid, nsid=nsid)
    first = _get(session, field, nsid)
    found = []
    try:
        for value in field.values:
            word = first & ~field.mask | value
            if not session.admin.run(admin.set_features(field.fid, word, nsid=nsid)).ok:
                pytest.skip(f"the controller does not set feature {field.fid:02x}h to {word:#x}")
            found.append(_get(session, field, nsid) & field.mask)
    finally:
        session.admin.run(admin.set_features(field.fid, first, nsid=nsid))
    if found[0] == found[1] == first & field.mask:
        pytest.skip(f"the controller keeps no value of bits {field.mask:#x} of feature {field.fid:02x}h")
    for wanted, one in zip(field.values, found, strict=True):
        assert one == wanted, (
            f"5.2.26: bits {field.mask:#x} of feature {field.fid:02x}h are {one:#x}; Set Features has set "
            f"{wanted:#x}"
        )
