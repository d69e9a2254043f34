"""Property Get and Property Set by other sizes and offsets than those of properties (Base 3.1.4, 6.5)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from storagetest.wire.nvme import fabrics
from storagetest.wire.nvme.codes import Property, status_name
from storagetest.wire.nvme_tcp import ControllerSession

pytestmark = [pytest.mark.needs("nvme-tcp-wire"), pytest.mark.case(level="MUST", section="Base 6.5")]

Observe = Callable[[str], None]

DWORD = 0xFFFF_FFFF

RESERVED_SIZES = range(2, 8)
"""Values of the size of a property that are reserved (6.5): 000b is four bytes, 001b eight."""

RESERVED_OFFSETS = {0x0C: 4, 0x10: 4, 0x18: 4, 0x28: 8, 0x30: 8}
"""Offsets that are reserved over fabrics, and sizes: INTMS, INTMC, none, ASQ, ACQ (3.1.4)."""


@pytest.mark.case("NVF-PROP-SIZE-GET", section="Base 1.4.1.6, 6.5", kills=("property-size-reserved",))
def test_a_property_is_not_read_by_a_reserved_size(session: ControllerSession, observe: Observe) -> None:
    for size in RESERVED_SIZES:
        done = session.admin.run(replace(fabrics.property_get(Property.VS), cdw10=size))
        observe(f"size {size:03b}b: {status_name(done.status)}")
        assert not done.ok, f"1.4.1.6: size {size:03b}b of Property Get is reserved, and ends with a success"


@pytest.mark.case("NVF-PROP-SIZE-SET", section="Base 1.4.1.6, 6.6", kills=("property-size-reserved",))
def test_a_property_is_not_set_by_a_reserved_size(session: ControllerSession, observe: Observe) -> None:
    """CC is set to the value that it has."""
    value = session.get_property(Property.CC)
    for size in RESERVED_SIZES:
        done = session.admin.run(replace(fabrics.property_set(Property.CC, value), cdw10=size))
        observe(f"size {size:03b}b: {status_name(done.status)}")
        assert not done.ok, f"1.4.1.6: size {size:03b}b of Property Set is reserved, and ends with a success"


@pytest.mark.case("NVF-PROP-HALVES", level="SHOULD", kills=("property-half-other",))
def test_the_halves_of_cap_are_those_of_the_whole(session: ControllerSession, observe: Observe) -> None:
    """A controller may refuse to return half of a property; what it returns is of the property."""
    whole = session.get_property(Property.CAP)
    for offset, half in ((0, whole & DWORD), (4, whole >> 32)):
        done = session.admin.run(fabrics.property_get(offset, size=4))
        observe(f"4 bytes from {offset:#x}: {status_name(done.status)}")
        assert not done.ok or done.cqe.result == half, (
            f"6.5: CAP is {whole:#018x}; its 4 bytes from {offset:#x} are read as {done.cqe.result:#x}"
        )


@pytest.mark.parametrize("offset", [
    pytest.param(offset, marks=pytest.mark.case(
        f"NVF-PROP-WIDE-{offset.name}", kills=("property-wide-other",)))
    for offset in (Property.VS, Property.CC, Property.CSTS)
])  # fmt: skip
@pytest.mark.case(level="SHOULD")
def test_eight_bytes_of_a_property_of_four_begin_with_it(session: ControllerSession, offset: int) -> None:
    """A controller may refuse to return more than the property; what it returns begins with it."""
    value = session.get_property(offset)
    done = session.admin.run(fabrics.property_get(offset, size=8))
    assert not done.ok or done.cqe.result & DWORD == value, (
        f"6.5: property {offset:#x} is {value:#x}; 8 bytes from there are read as {done.cqe.result:#x}"
    )


@pytest.mark.parametrize(("offset", "size"), [
    pytest.param(offset, size, marks=pytest.mark.case(
        f"NVF-PROP-RESERVED-{offset:02X}H", kills=("property-unknown",)))
    for offset, size in RESERVED_OFFSETS.items()
])  # fmt: skip
@pytest.mark.case(section="Base 3.1.4")
def test_each_property_that_fabrics_reserve_is_refused_or_0(
    session: ControllerSession, offset: int, size: int
) -> None:
    done = session.admin.run(fabrics.property_get(offset, size=size))
    assert not done.ok or done.cqe.result == 0, (
        f"3.1.4: property {offset:#x} is reserved over fabrics, and is read as {done.cqe.result:#x}"
    )
