"""Identify of a discovery controller states the controller that is connected (Base 5.2.13.2.1, 3.1.3.3)."""

from __future__ import annotations

import pytest

from storagetest.wire.nvme.codes import Cns, Property
from storagetest.wire.nvme_tcp import ControllerSession

pytestmark = [
    pytest.mark.needs("nvme-tcp-wire"),
    pytest.mark.case(level="MUST", section="Base 5.2.13.2.1", builds_on=("NVF-DISCOVERY-01",)),
]


@pytest.mark.case("NVF-DISCOVERY-ID-CNTLID", kills=("discovery-id-cntlid",))
def test_cntlid_of_a_discovery_controller_is_connects(discovery: ControllerSession) -> None:
    found = discovery.controller["cntlid"]
    assert found == discovery.cntlid, (
        f"5.2.13.2.1: CNTLID of the discovery controller is {found:#x}; Connect has returned "
        f"{discovery.cntlid:#x}"
    )


@pytest.mark.case("NVF-DISCOVERY-ID-VER", kills=("discovery-id-ver",))
def test_ver_of_a_discovery_controller_is_vs(discovery: ControllerSession) -> None:
    found, wanted = discovery.controller["ver"], discovery.get_property(Property.VS)
    assert found == wanted, f"5.2.13.2.1: VER of the discovery controller is {found:#x}; VS is {wanted:#x}"


@pytest.mark.case("NVF-DISCOVERY-ID-MAXCMD", kills=("discovery-id-maxcmd",))
def test_maxcmd_of_a_discovery_controller_is_set(discovery: ControllerSession) -> None:
    assert discovery.controller["maxcmd"], "5.2.13.2.1: MAXCMD of a discovery controller is 0"


@pytest.mark.case("NVF-DISCOVERY-ID-SAME", kills=("discovery-id-changes",))
def test_each_identify_of_a_discovery_controller_is_the_same(discovery: ControllerSession) -> None:
    first = discovery.identify(Cns.CONTROLLER)
    for _ in range(3):
        found = discovery.identify(Cns.CONTROLLER)
        other = next((at for at in range(len(first)) if found[at] != first[at]), None)
        assert other is None, f"5.2.13.2.1: byte {other} of Identify Controller has changed"
