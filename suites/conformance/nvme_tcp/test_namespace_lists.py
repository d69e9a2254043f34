"""The list of active namespaces after each NSID (Base 5.2.13.2.2)."""

from __future__ import annotations

import pytest

from storagetest.wire.nvme import admin
from storagetest.wire.nvme.codes import Cns, status_name
from storagetest.wire.nvme.structures import active_namespaces
from storagetest.wire.nvme_tcp import ControllerSession

pytestmark = [pytest.mark.needs("nvme-tcp-wire"), pytest.mark.case(level="MUST", section="Base 5.2.13.2.2")]

MOST = 0xFFFFFFFD
"""The largest NSID after which there may be a list (5.2.13.2.2)."""


@pytest.mark.case("NVA-ID-LIST-AFTER", kills=("identify-list-after-inactive",), builds_on=("NVA-ID-LIST-01",))
def test_a_list_begins_after_any_nsid(session: ControllerSession) -> None:
    """The NSID may be that of an inactive namespace: before, between and behind the active ones."""
    active = session.namespaces()
    if len(active) == 1024:
        pytest.skip("the list is full, so it may be that it does not have every namespace")
    near = {nsid + more for nsid in active[:8] + active[-8:] for more in (-1, 0, 1)}
    for nsid in sorted(one for one in near | {0, session.controller["nn"], MOST} if one <= MOST):
        done = session.admin.run(admin.identify(Cns.ACTIVE_NAMESPACES, nsid=nsid), reads=4096)
        assert done.ok, f"5.2.13.2.2: the list after NSID {nsid} is {status_name(done.status)}"
        found, wanted = active_namespaces(done.data), [one for one in active if one > nsid]
        assert found == wanted, (
            f"5.2.13.2.2: the list after NSID {nsid} has {found[:8]}; active are {active[:8]}, and those "
            "whose NSIDs are greater are required"
        )
