"""Addresses in the entries of the discovery log, and their form (Base 5.2.12.3.3, 1.4.2)."""

from __future__ import annotations

import ipaddress

import pytest

from storagetest.wire.nvme.codes import LogPage
from storagetest.wire.nvme_tcp import ControllerSession

pytestmark = [
    pytest.mark.needs("nvme-tcp-wire"),
    pytest.mark.case(level="MUST", section="Base 5.2.12.3.3", builds_on=("NVF-DISCOVERY-05",)),
]

PIECE = 1024
"""Bytes of the head of the log page, and of each entry."""

TRTYPE_TCP = 3
MOST = 64
"""Entries that a case looks at (chosen)."""

LEAST_ASQSZ = 32
"""Entries that an admin queue has at least."""

RESERVED = (slice(12, 32), slice(64, 256))
"""Bytes of an entry that are reserved."""

FIELDS = {"TRSVCID": (32, 32), "TRADDR": (512, 256)}
"""Offset and bytes of the ASCII strings of an entry."""


@pytest.fixture
def entries(discovery: ControllerSession) -> list[bytes]:
    """Return the entries of TCP; skip if there is none."""
    records = int.from_bytes(discovery.log_page(LogPage.DISCOVERY, PIECE)[8:16], "little")
    raw = discovery.log_page(LogPage.DISCOVERY, PIECE * (min(records, MOST) + 1))
    found = [raw[at : at + PIECE] for at in range(PIECE, len(raw), PIECE)]
    found = [entry for entry in found if entry[0] == TRTYPE_TCP]
    if not found:
        pytest.skip("the discovery log has no entry of TCP")
    return found


@pytest.mark.case("NVF-DISCOVERY-NUMREC", kills=("discovery-numrec-over",), builds_on=("NVF-DISCOVERY-02",))
def test_numrec_counts_the_entries(discovery: ControllerSession) -> None:
    """Each of the entries that it counts has the name and the type of a subsystem."""
    records = int.from_bytes(discovery.log_page(LogPage.DISCOVERY, PIECE)[8:16], "little")
    raw = discovery.log_page(LogPage.DISCOVERY, PIECE * (min(records, MOST) + 1))
    for number, at in enumerate(range(PIECE, len(raw), PIECE), start=1):
        entry = raw[at : at + PIECE]
        name = entry[256:512].partition(b"\0")[0]
        assert name and entry[2], (  # noqa: PT018  # of an entry that is not there, both are 0
            f"5.2.12.3.3: NUMREC is {records}; entry {number} has SUBTYPE {entry[2]} and SUBNQN {name!r}"
        )


@pytest.mark.case("NVF-DISCOVERY-ADDRESS", kills=("discovery-address-any",))
def test_each_entry_has_an_address_that_a_host_connects_to(entries: list[bytes]) -> None:
    """TRADDR is an IP address, or a name, of the port; 0.0.0.0 and :: are of no port."""
    at, size = FIELDS["TRADDR"]
    for number, entry in enumerate(entries, start=1):
        text = entry[at : at + size].partition(b"\0")[0].decode("ascii", "replace").strip()
        assert text, f"5.2.12.3.3: entry {number} of {len(entries)} has no TRADDR"
        try:
            address = ipaddress.ip_address(text.partition("%")[0])
        except ValueError:
            continue  # a name
        assert not address.is_unspecified, (
            f"5.2.12.3.3: TRADDR of entry {number} of {len(entries)} is {text}, to which no host connects"
        )


@pytest.mark.parametrize("name", [
    pytest.param(name, marks=pytest.mark.case(f"NVF-DISCOVERY-PAD-{name}", kills=("discovery-text-nul",)))
    for name in FIELDS
])  # fmt: skip
@pytest.mark.case(section="Base 1.4.2")
def test_ascii_strings_of_each_entry_are_padded_with_spaces(entries: list[bytes], name: str) -> None:
    at, size = FIELDS[name]
    for number, entry in enumerate(entries, start=1):
        raw = entry[at : at + size]
        wrong = [one for one in raw if not 0x20 <= one <= 0x7E]
        assert not wrong, (
            f"1.4.2: {name} of entry {number} of {len(entries)} has bytes {wrong[0]:#04x} after "
            f"{raw.rstrip(bytes(1))!r}; an ASCII string has bytes 20h to 7Eh, and ends with spaces"
        )


@pytest.mark.case("NVF-DISCOVERY-ASQSZ", kills=("discovery-asqsz",))
def test_each_entry_allows_an_admin_queue_of_32_entries(entries: list[bytes]) -> None:
    for number, entry in enumerate(entries, start=1):
        size = int.from_bytes(entry[8:10], "little")
        assert size >= LEAST_ASQSZ, (
            f"5.2.12.3.3: ASQSZ of entry {number} of {len(entries)} is {size}; it is {LEAST_ASQSZ} at least"
        )


@pytest.mark.case("NVF-DISCOVERY-RESERVED", section="Base 1.4.1.6", kills=("discovery-reserved",))
def test_reserved_bytes_of_each_entry_are_zero(entries: list[bytes]) -> None:
    for number, entry in enumerate(entries, start=1):
        for part in RESERVED:
            assert not any(entry[part]), (
                f"1.4.1.6: bytes {part.start} to {part.stop - 1} of entry {number} of {len(entries)} of the "
                f"discovery log are reserved, and not 0: {entry[part].hex()}"
            )
