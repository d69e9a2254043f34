"""Values out of the range of each key (RFC 7143 13): none of them is accepted as it was offered."""

from __future__ import annotations

import pytest

from storagetest.wire.iscsi.keys import IRRELEVANT, REJECT

from .test_keys import admissible, offered

pytestmark = [pytest.mark.needs("iscsi-wire"), pytest.mark.case(level="MUST")]

VALUES = {
    "FIRST-LOW": ("FirstBurstLength", "511", "13.14"),
    "FIRST-HIGH": ("FirstBurstLength", "16777216", "13.14"),
    "SEGMENT-HIGH": ("MaxRecvDataSegmentLength", "16777216", "13.12"),
    "SEGMENT-ZERO": ("MaxRecvDataSegmentLength", "0", "13.12"),
    "RETAIN-HIGH": ("DefaultTime2Retain", "3601", "13.16"),
    "OUTSTANDING-HIGH": ("MaxOutstandingR2T", "65536", "13.17"),
    "CONNECTIONS-HIGH": ("MaxConnections", "65536", "13.2"),
    "IMMEDIATE": ("ImmediateData", "Maybe", "13.11"),
    "PDUS": ("DataPDUInOrder", "Maybe", "13.18"),
    "SEQUENCES": ("DataSequenceInOrder", "Maybe", "13.19"),
    "DIGEST": ("DataDigest", "MD5", "13.1"),
}
"""Key, value that the key does not have, and section."""


@pytest.mark.parametrize(("key", "value"), [
    pytest.param(key, value, id=form, marks=pytest.mark.case(
        f"ISC-KEY-RANGE-{form}", section=f"RFC 7143 6.2.1, 6.2.2, {section}", kills=("key-range-of-each",)))
    for form, (key, value, section) in VALUES.items()
])  # fmt: skip
def test_no_key_is_accepted_with_a_value_that_it_does_not_have(connections, portal, observe, key, value):
    """The login is refused, or the key is answered by Reject or Irrelevant, or by a value that it has."""
    answers = offered(connections, portal, key, value)
    if answers is None:
        observe(f"{key}={value}: the login is refused")
        return
    reply = answers.get(key)
    observe(f"{key}={value}: reply {reply}")
    assert reply in (REJECT, IRRELEVANT) or admissible(key, reply), (
        f"{key}={value} was accepted: reply {reply}"
    )
