"""Lists of namespaces and of their descriptors (Base 5.2.13.2.2, 5.2.13.2.3): where they begin and end."""

from __future__ import annotations

import pytest

from storagetest.wire.nvme import admin
from storagetest.wire.nvme.codes import Cns, StatusCode, status_name
from storagetest.wire.nvme.structures import NSIDS_OF_LIST, active_namespaces
from storagetest.wire.nvme_tcp import ControllerSession
from storagetest.wire.nvme_tcp.harness import refused

pytestmark = [pytest.mark.needs("nvme-tcp-wire"), pytest.mark.case(level="MUST", section="Base 5.2.13.2.2")]

MOST = 0xFFFFFFFD
"""The largest NSID after which there may be a list (5.2.13.2.2)."""


@pytest.mark.case("NVA-ID-LIST-AFTER", kills=("identify-list-after-inactive",), builds_on=("NVA-ID-LIST-01",))
def test_a_list_begins_after_any_nsid(session: ControllerSession) -> None:
    """The NSID may be that of an inactive namespace: before, between and behind the active ones."""
    active = session.namespaces()
    near = {nsid + more for nsid in active[:8] + active[-8:] for more in (-1, 0, 1)}
    for nsid in sorted(one for one in near | {0, session.controller["nn"], MOST} if one <= MOST):
        done = session.admin.run(admin.identify(Cns.ACTIVE_NAMESPACES, nsid=nsid), reads=4096)
        assert done.ok, f"5.2.13.2.2: the list after NSID {nsid} is {status_name(done.status)}"
        found, wanted = active_namespaces(done.data), [one for one in active if one > nsid][:NSIDS_OF_LIST]
        assert found == wanted, (
            f"5.2.13.2.2: the list after NSID {nsid} has {found[:8]}; active are {active[:8]}, and those "
            "whose NSIDs are greater are required"
        )


@pytest.mark.case(
    "NVA-ID-LIST-REST", section="Base 4.6.2", kills=("namespace-list-rest",), builds_on=("NVA-ID-LIST-01",)
)
def test_unused_entries_of_a_list_are_zero(session: ControllerSession) -> None:
    """They are so after a structure of as many bytes was read, which a buffer may still have."""
    for nsid in (0, session.namespaces()[-1]):
        session.identify(Cns.CONTROLLER)
        raw = session.identify(Cns.ACTIVE_NAMESPACES, nsid=nsid)
        used = 4 * len(active_namespaces(raw))
        at = next((at for at in range(used, len(raw)) if raw[at]), None)
        assert at is None, (
            f"4.6.2: the list after NSID {nsid} has {used // 4} entries, but byte {at} is "
            f"{raw[at or 0]:02x}h; unused entries are zero"
        )


@pytest.mark.case("NVA-ID-DESC-INACTIVE", section="Base 5.2.13.2.3", kills=("descriptors-of-inactive",))
def test_descriptors_of_an_inactive_nsid_are_refused(session: ControllerSession) -> None:
    """The status is Invalid Field (3.2.1.5), or Invalid Namespace, which refuses the command as well."""
    active = session.namespaces()
    inactive = next(
        (one for one in range(1, min(session.controller["nn"], 4096) + 1) if one not in active), None
    )
    if inactive is None:
        pytest.skip("every NSID up to NN is active")
    done = session.admin.run(admin.identify(Cns.DESCRIPTORS, nsid=inactive), reads=4096)
    refused(done, StatusCode.INVALID_FIELD, StatusCode.INVALID_NAMESPACE)
