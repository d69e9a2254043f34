"""A login that is refused ends its connection, whatever the reason is (RFC 7143 11.13.5).

"If the Status Class is not 0, the initiator and target MUST close the TCP connection." A request that follows
on the connection is neither answered nor served.
"""

from __future__ import annotations

from typing import Any

import pytest

from storagetest.wire.iscsi.initiator import Initiator
from storagetest.wire.iscsi.keys import format_text
from storagetest.wire.iscsi.login import DEFAULT_OFFER
from storagetest.wire.iscsi.pdu import LoginRequest, LoginResponse

pytestmark = [pytest.mark.needs("iscsi-wire"), pytest.mark.case(section="RFC 7143 11.13.5", level="MUST")]

WAYS: dict[str, dict[str, Any]] = {
    "NAME": {"drop": ("InitiatorName",)},
    "TARGET": {"drop": ("TargetName",)},
    "ABSENT": {"pairs": {"TargetName": "iqn.2024-01.org.storagetest:there-is-no-such-target"}},
    "TYPE": {"pairs": {"SessionType": "Abnormal"}},
    "TEXT": {"text": b"no equals sign\0"},
    "VERSION": {"version_min": 0x7F, "version_max": 0x7F},
    "STAGE": {"csg": 2, "nsg": 3},
    "TSIH": {"tsih": 0xBEEF},
    "TSIH-SECURITY": {"tsih": 0xBEEF, "csg": 0, "nsg": 1, "offer": False, "pairs": {"AuthMethod": "None"}},
}
"""What is wrong with a login request, as arguments of the fixture ``send_login``."""


def closes_after(connection: Initiator, refusal: LoginResponse | None, why: str) -> None:
    """Claim that a close follows ``refusal``; skip if there was none."""
    if refusal is None:
        return  # it is closed already
    if not refusal.status:
        pytest.skip(f"{why}: not refused, which other cases are about: {refusal.summary()}")
    after = connection.receive(expected=f"a close after the status {refusal.status:04x}")
    assert after is None, f"{after.summary()}, after the status {refusal.status:04x}; {why}"


@pytest.mark.parametrize("way", [
    pytest.param(way, marks=pytest.mark.case(f"ISC-REFUSED-{way}")) for way in WAYS
])  # fmt: skip
@pytest.mark.case(kills=("login-refused-open",), builds_on=("ISC-LOGIN-39",))
def test_each_refusal_of_a_login_is_followed_by_a_close(send_login, connection, way):
    closes_after(connection, send_login(**WAYS[way]), f"a login with a wrong {way.lower()}")


def right(connection: Initiator, iqn: str) -> LoginRequest:
    """Return the request of a login that is right, without authentication."""
    names = (("InitiatorName", connection.name), ("SessionType", "Normal"), ("TargetName", iqn))
    return LoginRequest(itt=0, isid=b"\x80storg", data=format_text([*names, *DEFAULT_OFFER.items()]))


@pytest.mark.parametrize("way", [
    pytest.param(way, marks=pytest.mark.case(f"ISC-REFUSED-{way}-THEN", kills=("login-after-refusal",)))
    for way in ("TARGET", "ABSENT", "VERSION", "TSIH")
])  # fmt: skip
@pytest.mark.case(section="RFC 7143 11.13.5, 7.12", builds_on=("ISC-LOGIN-39",))
def test_no_login_is_accepted_on_a_connection_after_one_that_was_refused(
    send_login, connection, connections, portal, way
):
    """Both requests are sent before the first response is read; another connection is served as before."""
    refusal = send_login(**WAYS[way])
    if refusal is None:
        return
    if not refusal.status:
        pytest.skip(f"not refused, which other cases are about: {refusal.summary()}")
    connection.send(right(connection, portal.iqn))
    after = connection.receive(expected=f"a close after the status {refusal.status:04x}")
    accepted = isinstance(after, LoginResponse) and not after.status
    assert not accepted, f"{after.summary()}: a login on a connection whose login was refused before"
    connections.login("b").ping()
