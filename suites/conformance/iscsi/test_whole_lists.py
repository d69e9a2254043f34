"""Lists are whole: a page that is there is listed, and text in several PDUs has each answer once.

The list of pages is what an initiator goes by: Linux reads no VPD page that page 00h lacks. RFC 7143 lets the
target cut a text anywhere (6.2), so that what its PDUs have together is judged.
"""

from __future__ import annotations

from collections import Counter

import pytest

from storagetest.suites.conformance.iscsi.optional_commands import offered
from storagetest.wire.iscsi.initiator import Initiator
from storagetest.wire.iscsi.keys import NOT_UNDERSTOOD, REJECT, format_text, parse_text
from storagetest.wire.iscsi.look import vpd_page
from storagetest.wire.iscsi.pdu import TextRequest, TextResponse
from storagetest.wire.scsi import cdb as c

from .test_text import PRIVATE, keeps_to_segment

pytestmark = [pytest.mark.needs("iscsi-wire"), pytest.mark.case(level="MUST")]

SEGMENT = 512
"""Our MaxRecvDataSegmentLength, the least that is legal (RFC 7143 13.12)."""
KEYS = [f"X-org.storagetest.whole-{number:02}" for number in range(30)]
PIECES = 256
"""PDUs of one text response that a case takes."""
VENDOR_VPD_PAGES = 0xC0
"""The first VPD page code that is the vendor's (SPC-4 VPD parameters)."""
VENDOR_LOG_PAGES = 0x30
"""The first log page code that is the vendor's (SPC-4 log parameters)."""


# Pages


@pytest.mark.case(
    "SCS-VPD-UNLISTED",
    section="SPC-4 Supported VPD Pages",
    kills=("vpd-page-unlisted",),
    builds_on=("SCS-VPD-01", "SCS-INQ-06"),
)
def test_a_vpd_page_that_is_not_listed_is_not_there(unit):
    """Of each page code of the standards: page 00h lists all VPD pages that the device server implements."""
    listed = vpd_page(unit, 0x00).body
    found = bytes(
        page for page in range(1, VENDOR_VPD_PAGES) if page not in listed and unit.inquiry(page).good
    )
    assert not found, f"VPD pages {found.hex(' ')} are returned, and page 00h lists only {listed.hex(' ')}"


@pytest.mark.case(
    "SCS-LOG-UNLISTED",
    section="SPC-4 LOG SENSE",
    kills=("log-page-unlisted",),
    builds_on=("SCS-LOG-LIST", "SCS-LOG-ABSENT"),
)
def test_a_log_page_that_is_not_listed_is_not_there(unit):
    """Of each page code of the standards: page 00h lists all log pages that the device server implements."""
    fields = {"read": 512, "page_control": 1, "allocation": 512}
    listed = offered(unit.run(c.LOG_SENSE, **fields)).good_data()[4:]
    others = (page for page in range(1, VENDOR_LOG_PAGES) if page not in listed)
    found = bytes(page for page in others if unit.run(c.LOG_SENSE, page=page, **fields).good)
    assert not found, f"log pages {found.hex(' ')} are returned, and page 00h lists only {listed.hex(' ')}"


# Text in several PDUs


def asked(session: Initiator, *pairs: tuple[str, str]) -> list[tuple[str, str]]:
    """Return the keys of the whole response to a text; skip if the target refuses the text."""
    sent = session.send(TextRequest(data=format_text(pairs)))
    data = b""
    for number, pdu in enumerate(session.responses("the end of a text response"), 1):
        if not isinstance(pdu, TextResponse):
            pytest.skip(f"a text is refused: {pdu.summary() if pdu else 'a close'}")
        data += pdu.data
        if pdu.final:
            break
        assert number < PIECES, f"no end of a text response in {PIECES} PDUs, of {len(data)} bytes"
        session.ask_for_more(sent.itt, pdu.ttt)
    return list(parse_text(data))


@pytest.mark.case(
    "ISC-TEXT-WHOLE",
    section="RFC 7143 6.2, 11.11",
    kills=("text-piece-lost", "text-piece-again"),
    builds_on=("ISC-DISC-01", "ISC-TEXT-SEGMENT"),
)
def test_text_in_several_pdus_has_the_answer_to_each_key_once(connections, observe):
    """Many private keys, each of which is answered, in a session that takes 512 bytes in one PDU."""
    session = connections.discovery(offer={"MaxRecvDataSegmentLength": str(SEGMENT)})
    found = asked(session, *((key, "1") for key in KEYS))
    size = len(format_text(found))
    observe(f"{len(found)} answers, {size} bytes")
    if size <= SEGMENT:
        pytest.skip(f"the answer has {size} bytes, which one PDU holds")
    counts = Counter(found)
    for key in KEYS:
        times = counts.pop((key, NOT_UNDERSTOOD), 0)
        assert times == 1, f"{key} is answered {times} times; a text has the answer to each key once (6.2)"
    assert not counts, f"{list(counts)[:3]} answer no key that was sent"


@pytest.mark.case(
    "ISC-DISC-WHOLE",
    section="RFC 7143 C, 6.2",
    kills=("text-piece-lost", "text-piece-again"),
    builds_on=("ISC-DISC-AGAIN",),
)
def test_the_list_of_targets_in_several_pdus_is_that_of_one(connections, observe):
    """The list of a session that takes 512 bytes in one PDU is that of a session that takes 65536."""
    whole = asked(
        connections.discovery("d", offer={"MaxRecvDataSegmentLength": "65536"}), ("SendTargets", "All")
    )
    size = len(format_text(whole))
    observe(f"{len(whole)} keys, {size} bytes")
    if size <= SEGMENT:
        pytest.skip(f"the list has {size} bytes, which one PDU holds")
    small = connections.discovery("e", offer={"MaxRecvDataSegmentLength": str(SEGMENT)})
    found = asked(small, ("SendTargets", "All"))
    missing, more = Counter(whole) - Counter(found), Counter(found) - Counter(whole)
    assert not missing, f"in PDUs of {SEGMENT} bytes the list lacks {list(missing)[:3]}"
    assert not more, f"in PDUs of {SEGMENT} bytes the list has {list(more)[:3]}, which it has not in one PDU"


@pytest.mark.case(
    "ISC-TEXT-SEGMENT-NORMAL", section="RFC 7143 13.12, 6.2", kills=("text-over-segment-normal",)
)
def test_a_long_text_response_of_a_normal_session_keeps_to_our_segment_length(connections, observe):
    session = connections.login(offer={"MaxRecvDataSegmentLength": str(SEGMENT)})
    keeps_to_segment(session, PRIVATE, observe)


@pytest.mark.case(
    "ISC-TEXT-SEGMENT-LATER",
    section="RFC 7143 13.12, 6.2",
    kills=("text-over-segment-later",),
    builds_on=("ISC-TEXT-SEGMENT",),
)
def test_a_long_text_response_keeps_to_a_segment_length_that_was_declared_later(connections, observe):
    """The login declared more than the whole answer."""
    session = connections.discovery(offer={"MaxRecvDataSegmentLength": "65536"})
    session.send(TextRequest(data=f"MaxRecvDataSegmentLength={SEGMENT}\0".encode()))
    after = session.probe_alive(reject_decides=True)
    replies = [parse_text(pdu.data) for pdu in after.pdus if isinstance(pdu, TextResponse)]
    refusals = (REJECT, NOT_UNDERSTOOD, "Irrelevant")
    if not replies or after.closed or dict(replies[0]).get("MaxRecvDataSegmentLength") in refusals:
        pytest.skip(f"the target takes no declaration after the login: {after}")
    keeps_to_segment(session, (("SendTargets", "All"), *PRIVATE), observe)
