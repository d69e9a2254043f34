"""The TSIH of a session: each of its bits counts, and many later logins do not use it again (RFC 7143)."""

from __future__ import annotations

import pytest

from storagetest.wire.iscsi.errors import LoginRefused
from storagetest.wire.tcp import PeerClosed

from .test_reinstatement import works

pytestmark = [pytest.mark.needs("iscsi-wire"), pytest.mark.case(level="MUST", section="RFC 7143 11.12.6")]

LOGINS = 264
"""Logins after each other, of one session each: more than 8 bits count (chosen)."""


@pytest.mark.case(
    "ISC-TSIH-BITS",
    section="RFC 7143 6.3.1, 11.12.6",
    kills=("tsih-high-byte-ignored", "tsih-low-byte-ignored"),
    builds_on=("ISC-LOGIN-14",),
)
def test_each_bit_of_a_tsih_counts(connections, session):
    """A login with the ISID of a session and a TSIH that differs in one bit is refused, and ends nothing."""
    for bit in range(16):
        tsih = session.tsih ^ 1 << bit
        if not tsih:
            continue  # that is a new session, which reinstates the first one
        try:
            connections.login("a", clear=False, isid=session.isid, tsih=tsih, cid=1)
        except (LoginRefused, PeerClosed):
            continue
        raise AssertionError(
            f"a login with TSIH {tsih:#06x} is accepted; that of the session is {session.tsih:#06x}"
        )
    works(session, "the session, after logins with its ISID and another TSIH")


@pytest.mark.case(
    "ISC-TSIH-LATER",
    section="RFC 7143 11.13.3, 4.4.3",
    kills=("tsih-used-again",),
    builds_on=("ISC-LOGIN-42",),
)
def test_no_later_session_has_the_tsih_of_one_that_is_open(connections, session):
    """One session stays open; others of the same initiator come and go. None has its TSIH, or 0."""
    for number in range(1, LOGINS + 1):
        later = connections.login("a", clear=False)
        assert later.tsih not in (0, session.tsih), (
            f"login {number} of {LOGINS} has TSIH {later.tsih:#06x}; an open session has {session.tsih:#06x}"
        )
        later.logout()
        later.link.close()
    works(session, f"the session that was open during {LOGINS} logins of others")
