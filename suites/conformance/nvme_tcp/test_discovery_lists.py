"""What a discovery controller supports, by its own lists, and extended entries of its log (Base 3.1.3.3)."""

from __future__ import annotations

import struct

import pytest

from storagetest.wire.nvme import admin
from storagetest.wire.nvme.codes import Feature, LogPage, StatusCode, status_name
from storagetest.wire.nvme_tcp import ControllerSession
from storagetest.wire.nvme_tcp.harness import refused

from .test_supported_lists import FEATURES_LENGTH, FSUPP, NEEDS_FIELDS, RESERVED

pytestmark = [pytest.mark.needs("nvme-tcp-wire"), pytest.mark.case(level="MUST", section="Base 3.1.3.3")]

LIST_LENGTH = 1024
"""Bytes of the Supported Log Pages log page: an entry of 4 for each of 256 log pages (5.2.12.1.1)."""

LSUPP = 1
"""The bit of an entry: the log page is supported (5.2.12.1.1)."""

EXTENDED = 1
"""EXTDLPE, a bit of the Log Specific Parameter; EXTDLPES, the one of LIDSP that announces it; and EXTEND, the
bit of DLPF: the log has extended entries (5.2.12.3.3)."""

HEAD, ENTRY, LEAST = 1024, 1024, 1032
"""Bytes of the head, of an entry, and of an extended one at least: TEL and NUMEXAT follow (5.2.12.3.3)."""

MOST = 64
"""Entries that a case reads (chosen)."""

DATA = {Feature.HOST_BEHAVIOR: 512, Feature.HOST_IDENTIFIER: 16}
"""Bytes of the data of features."""

PROBED = (
    Feature.ARBITRATION,
    Feature.POWER_MANAGEMENT,
    Feature.ERROR_RECOVERY,
    Feature.VOLATILE_WRITE_CACHE,
    Feature.NUMBER_OF_QUEUES,
    Feature.WRITE_ATOMICITY,
    Feature.ASYNC_EVENT,
    Feature.KATO,
    Feature.HOST_BEHAVIOR,
    Feature.RESERVATION_NOTIFICATION_MASK,
    0x60,
    0x00,
)
"""Features that a case reads, and two that are reserved."""


def _page(session: ControllerSession, page: int, length: int) -> bytes:
    """Return a log page; skip if the discovery controller does not have it, as it may not."""
    done = session.admin.run(admin.get_log_page(page, length, rae=1), reads=length)
    if not done.ok:
        pytest.skip(f"log page {page:02x}h of the discovery controller ends with {status_name(done.status)}")
    assert len(done.data) == length, f"5.2.12: {len(done.data)} bytes of {length} are returned"
    return done.data


def _listed(session: ControllerSession) -> list[int]:
    """Return the entries of the list of log pages."""
    return [entry for (entry,) in struct.iter_unpack("<I", _page(session, LogPage.SUPPORTED, LIST_LENGTH))]


# Log pages (5.2.12.1.1)


@pytest.mark.case("NVF-DISCOVERY-LISTED", section="Base 5.2.12.1.1", kills=("discovery-list-of-io",))
def test_each_log_page_that_a_discovery_controller_lists_is_read(discovery: ControllerSession) -> None:
    """The discovery log is one of them, and the list itself."""
    entries = _listed(discovery)
    for own in (LogPage.SUPPORTED, LogPage.DISCOVERY):
        assert entries[own] & LSUPP, (
            f"5.2.12.1.1: log page {own:02x}h of the discovery controller is read; its entry in the list "
            f"is {entries[own]:#010x}: LSUPP is 1"
        )
    for page, entry in enumerate(entries[:0xC0]):
        if not entry & LSUPP or page in NEEDS_FIELDS:
            continue
        done = discovery.admin.run(admin.get_log_page(page, 64, rae=1), reads=64)
        assert done.status not in (StatusCode.INVALID_LOG_PAGE, StatusCode.INVALID_OPCODE), (
            f"5.2.12.1.1: LSUPP of log page {page:02x}h is 1 in the list of the discovery controller, and "
            f"reading it ends with {status_name(done.status)}"
        )


@pytest.mark.case("NVF-DISCOVERY-UNLISTED", section="Base 5.2.12.1.1", kills=("discovery-list-lacks-one",))
def test_a_log_page_that_a_discovery_controller_does_not_list_is_not_read(
    discovery: ControllerSession,
) -> None:
    entries = _listed(discovery)
    for page, entry in enumerate(entries[:0x80]):
        if entry & LSUPP or page in NEEDS_FIELDS:
            continue
        done = discovery.admin.run(admin.get_log_page(page, 64, rae=1), reads=64)
        assert not done.ok, (
            f"5.2.12.1.1: log page {page:02x}h of the discovery controller is read; its entry in the list is "
            f"{entry:#010x}: LSUPP is 0"
        )


@pytest.mark.parametrize(("page", "length"), [
    pytest.param(LogPage.SUPPORTED, LIST_LENGTH, marks=pytest.mark.case("NVF-DISCOVERY-PARTS-00H")),
    pytest.param(LogPage.FEATURES, FEATURES_LENGTH, marks=pytest.mark.case("NVF-DISCOVERY-PARTS-12H")),
])  # fmt: skip
@pytest.mark.case(
    section="Base 5.2.12",
    kills=("discovery-list-part", "log-offset-unchecked"),
    builds_on=("NVF-DISCOVERY-04",),
)
def test_the_lists_of_a_discovery_controller_are_read_in_parts(
    discovery: ControllerSession, page: int, length: int
) -> None:
    """An offset behind the end is refused."""
    whole = _page(discovery, page, length)
    for at, size in ((4, 4), (8, 512), (440, 16), (516, 508), (length - 4, 4)):
        done = discovery.admin.run(admin.get_log_page(page, size, offset=at, rae=1), reads=size)
        what = f"{size} bytes from LPO {at} of page {page:02x}h of the discovery controller"
        assert done.ok, f"5.2.12: {what} end with {status_name(done.status)}"
        assert done.data == whole[at : at + size], f"5.2.12: {what} are not those of the whole page"
    for past in (4, 4096):
        command = admin.get_log_page(page, 4, offset=length + past, rae=1)
        refused(discovery.admin.run(command, reads=4), StatusCode.INVALID_FIELD)


# Features (5.2.12.1.18)


@pytest.mark.case("NVF-DISCOVERY-FEATURES", section="Base 5.2.12.1.18", kills=("discovery-features-of-io",))
def test_the_list_of_features_of_a_discovery_controller_agrees_with_what_is_read(
    discovery: ControllerSession,
) -> None:
    """FSUPP is 1 of each feature that Get Features returns, and of no other."""
    raw = _page(discovery, LogPage.FEATURES, FEATURES_LENGTH)
    entries = [entry for (entry,) in struct.iter_unpack("<I", raw)]
    for fid in PROBED:
        reads = DATA.get(Feature(fid), 0) if fid in DATA else 0
        done = discovery.admin.run(admin.get_features(fid), reads=reads)
        assert done.ok == bool(entries[fid] & FSUPP), (
            f"5.2.12.1.18: FSUPP of feature {fid:02x}h is {entries[fid] & FSUPP} in the list of the "
            f"discovery controller, and Get Features ends with {status_name(done.status)}"
        )


@pytest.mark.case("NVF-DISCOVERY-FEATURES-SET", section="Base 5.2.26", kills=("discovery-feature-forgotten",))
def test_a_feature_that_a_discovery_controller_does_not_list_is_not_set(
    discovery: ControllerSession,
) -> None:
    raw = _page(discovery, LogPage.FEATURES, FEATURES_LENGTH)
    entries = [entry for (entry,) in struct.iter_unpack("<I", raw)]
    for fid in (fid for fid in PROBED if fid != Feature.HOST_BEHAVIOR and not entries[fid] & FSUPP):
        done = discovery.admin.run(admin.set_features(fid, 0))
        assert not done.ok, (
            f"5.2.26: FSUPP of feature {fid:02x}h is 0 in the list of the discovery controller, and Set "
            "Features of it succeeds"
        )


@pytest.mark.case(
    "NVF-DISCOVERY-FEATURES-FIELDS", section="Base 5.2.12.1.18", kills=("feature-list-reserved",)
)
def test_entries_of_the_list_of_features_of_a_discovery_controller(discovery: ControllerSession) -> None:
    """They have no reserved bits, and are 0 of features that are not supported."""
    raw = _page(discovery, LogPage.FEATURES, FEATURES_LENGTH)
    for fid, (entry,) in enumerate(struct.iter_unpack("<I", raw)):
        assert not entry & RESERVED, (
            f"1.4.1.6: the entry {entry:#010x} of feature {fid:02x}h has reserved bits set"
        )
        assert entry & FSUPP or not entry, (
            f"5.2.12.1.18: FSUPP of feature {fid:02x}h is 0, but its entry is {entry:#010x}"
        )


# Extended entries of the discovery log (5.2.12.3.3)


def _log(session: ControllerSession, length: int, *, lsp: int = 0, offset: int = 0) -> bytes:
    mdts, data = session.controller["mdts"], b""
    step = session.cap.page_size << mdts if mdts else length
    for at in range(offset, offset + length, step):
        size = min(step, offset + length - at)
        command = admin.get_log_page(LogPage.DISCOVERY, size, lsp=lsp, offset=at, rae=1)
        done = session.admin.run(command, reads=size)
        assert done.ok, (
            f"5.2.12.3.3: {size} bytes from LPO {at} of the discovery log with LSP {lsp:#x} end with "
            f"{status_name(done.status)}"
        )
        data += done.data
    return data


def _plain(session: ControllerSession) -> tuple[bytes, list[bytes]]:
    """Return the head and the entries of the log without extended entries; skip if it is long."""
    head = _log(session, HEAD)
    records = int.from_bytes(head[8:16], "little")
    if records > MOST:
        pytest.skip(f"NUMREC is {records}: more than a case reads")
    raw = _log(session, HEAD + ENTRY * records)
    return raw[:HEAD], [raw[at : at + ENTRY] for at in range(HEAD, len(raw), ENTRY)]


def _extended(session: ControllerSession) -> tuple[bytes, list[bytes]]:
    """Return the head and the extended entries; skip if they are not announced."""
    if not _listed(session)[LogPage.DISCOVERY] >> 16 & EXTENDED:
        pytest.skip("EXTDLPES is 0: no extended entries of the discovery log")
    head = _log(session, HEAD, lsp=EXTENDED)
    assert head[18] & EXTENDED, (
        f"5.2.12.3.3: EXTDLPE and EXTDLPES are 1; DLPF of the log is {head[18]:#04x}: EXTEND is 1"
    )
    records, (total,) = int.from_bytes(head[8:16], "little"), struct.unpack_from("<I", head, 20)
    if records > MOST:
        pytest.skip(f"NUMREC is {records}: more than a case reads")
    assert total >= HEAD + LEAST * records, (
        f"5.2.12.3.3: TDLPL is {total}, and NUMREC {records}: each extended entry has {LEAST} bytes at least"
    )
    raw, entries, at = _log(session, total, lsp=EXTENDED), [], HEAD
    for number in range(records):
        assert at + LEAST <= total, f"5.2.12.3.3: extended entry {number} begins at {at} of {total} bytes"
        (length,) = struct.unpack_from("<I", raw, at + ENTRY)
        assert LEAST <= length <= total - at, (
            f"5.2.12.3.3: TEL of extended entry {number}, at {at} of {total} bytes, is {length}"
        )
        entries.append(raw[at : at + length])
        at += length
    assert at == total, f"5.2.12.3.3: {records} extended entries end at {at}; TDLPL is {total}"
    return head, entries


@pytest.mark.case(
    "NVF-DISCOVERY-EXTENDED", section="Base 5.2.12.3.3", kills=("discovery-tel", "discovery-extended-lost")
)
def test_extended_entries_of_the_discovery_log_are_those_of_the_plain_one(
    discovery: ControllerSession,
) -> None:
    """Each is the plain entry, its length and its attributes, which are within it."""
    before, plain = _plain(discovery)
    head, extended = _extended(discovery)
    if _plain(discovery)[0][:8] != before[:8]:
        pytest.skip("the discovery log changes")
    found, wanted = sorted(entry[:ENTRY] for entry in extended), sorted(plain)
    assert found == wanted, (
        f"5.2.12.3.3: {len(found)} extended entries of the discovery log are not the {len(wanted)} entries "
        f"of the log without EXTDLPE; NUMREC is {int.from_bytes(head[8:16], 'little')}"
    )
    for number, entry in enumerate(extended):
        (attributes,), at = struct.unpack_from("<H", entry, ENTRY + 4), LEAST
        for _ in range(attributes):
            assert at + 4 <= len(entry), (
                f"5.2.12.3.3: NUMEXAT of extended entry {number} is {attributes}, which do not fit into "
                f"{len(entry)} bytes"
            )
            (length,) = struct.unpack_from("<H", entry, at + 2)
            at += 4 + length
        assert at <= len(entry), f"5.2.12.3.3: the attributes of extended entry {number} end behind it"


@pytest.mark.case(
    "NVF-DISCOVERY-EXTENDED-PART",
    section="Base 5.2.12.3.3",
    kills=("discovery-extended-part",),
    builds_on=("NVF-DISCOVERY-EXTENDED",),
)
def test_extended_entries_of_the_discovery_log_are_read_in_parts(discovery: ControllerSession) -> None:
    head, entries = _extended(discovery)
    whole = head + b"".join(entries)
    places = (0, HEAD - 4, HEAD, HEAD + ENTRY - 4, HEAD + ENTRY, HEAD + LEAST, len(whole) - 8)
    for at in (at for at in places if at <= len(whole) - 8):
        part = _log(discovery, 8, lsp=EXTENDED, offset=at)
        if _log(discovery, 8, lsp=EXTENDED) != whole[:8]:
            pytest.skip("the discovery log changes")
        assert part == whole[at : at + 8], (
            f"5.2.12: 8 bytes from LPO {at} of the discovery log with EXTDLPE are {part.hex()}; the whole "
            f"log has {whole[at : at + 8].hex()} there"
        )


@pytest.mark.case(
    "NVF-DISCOVERY-PLAIN",
    section="Base 5.2.12.3.3",
    kills=("discovery-extended-stays",),
    builds_on=("NVF-DISCOVERY-05",),
)
def test_the_discovery_log_has_no_extended_entries_unless_asked_for(discovery: ControllerSession) -> None:
    """Nor behind a request for extended ones."""
    before, entries = _plain(discovery)
    assert not before[18] & EXTENDED, (
        f"5.2.12.3.3: EXTDLPE is 0; DLPF of the log is {before[18]:#04x}: EXTEND is 0"
    )
    discovery.admin.run(admin.get_log_page(LogPage.DISCOVERY, HEAD, lsp=EXTENDED, rae=1), reads=HEAD)
    head, again = _plain(discovery)
    if head[:8] != before[:8]:
        pytest.skip("the discovery log changes")
    assert (head, again) == (before, entries), (
        f"5.2.12.3.3: the discovery log without EXTDLPE is another one behind a request with it: DLPF was "
        f"{before[18]:#04x}, and is {head[18]:#04x}"
    )
