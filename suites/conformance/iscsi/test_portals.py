"""Portal groups: discovery and login agree (RFC 7143 13.8, 13.9, appendix C)."""

from __future__ import annotations

import pytest

pytestmark = [pytest.mark.needs("iscsi-wire"), pytest.mark.case(level="MUST")]


@pytest.mark.case("ISC-DISC-12", section="RFC 7143 13.8, 13.9", kills=("portal-group-other",))
def test_a_login_declares_a_portal_group_that_discovery_lists(session, discovery, portal):
    declared = dict(session.replied).get("TargetPortalGroupTag")
    assert declared is not None, "13.9: the login declares no TargetPortalGroupTag"
    listed, name = set(), None
    for key, value in discovery.text(("SendTargets", portal.iqn)):
        if key == "TargetName":
            name = value
        elif name == portal.iqn:
            listed.add(int(value.rpartition(",")[2]))
    if not listed:
        pytest.skip("SendTargets lists no address, which is the one of the discovery session then")
    assert int(declared) in listed, (
        f"13.9: the login declares portal group {declared}, SendTargets lists {listed}"
    )
