"""Portal groups: discovery and login agree (RFC 7143 13.8, 13.9, appendix C)."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator

import pytest

from storagetest.wire.iscsi.keys import short_binary

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
    assert short_binary(declared) in listed, (
        f"13.9: the login declares portal group {declared}, SendTargets lists {listed}"
    )


def without_use(address: str) -> Iterator[str]:
    """Yield why no initiator can connect to a TargetAddress, ``domainname[:port],tag`` (13.8)."""
    portal = address.rpartition(",")[0]
    host, _, port = portal.rpartition(":") if not portal.endswith("]") and ":" in portal else (portal, "", "")
    if port and not (port.isdecimal() and 0 < int(port) < 2**16):
        yield f"{port!r} is no TCP port"
    if not host or not host.isascii() or set(host) & set(" /@,\t"):
        yield f"{host!r} is no name or address"
    elif host.startswith("[") != (":" in host) or host.startswith("[") != host.endswith("]"):
        yield f"{host} is an IPv6 address without its brackets, or brackets without one"
    elif host.startswith("[") or host.replace(".", "").isdecimal():
        try:
            known = ipaddress.ip_address(host.strip("[]"))
        except ValueError:
            yield f"{host} is no address"
        else:
            if known.is_unspecified or known.is_multicast:
                yield f"{host} is no address of a portal"


@pytest.mark.case(
    "ISC-DISC-ADDRESS",
    section="RFC 7143 13.8, C",
    kills=("address-any", "address-without-brackets", "address-port-zero"),
    builds_on=("ISC-DISC-01", "ISC-DISC-02"),
)
def test_each_address_is_one_that_an_initiator_can_connect_to(discovery, observe):
    """A name, or an IPv4 address, or an IPv6 address in brackets; and a TCP port."""
    listed = [value for name, value in discovery.text(("SendTargets", "All")) if name == "TargetAddress"]
    observe(", ".join(listed) or "no address")
    wrong = [f"{address}: {why}" for address in listed for why in without_use(address)]
    assert not wrong, f"SendTargets lists {len(listed)} addresses, and of them {wrong[0]}"
