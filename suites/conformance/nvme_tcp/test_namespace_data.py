"""Reserved bits of Identify Namespace, structures of an inactive NSID, and what SMART does not count.

Reserved bits are those up to NVM Command Set 1.2; whole reserved bytes are the claim of NVA-ID-RSVD-NS.
"""

from __future__ import annotations

import pytest

from storagetest.wire.nvme import admin
from storagetest.wire.nvme.codes import Cns, Io, LogPage, status_name
from storagetest.wire.nvme_tcp import ControllerSession, Queue
from storagetest.wire.nvme_tcp.harness import Scratch, write_blocks

from .test_families import supported, uncorrectable
from .test_other_nsids import inactive_nsid

pytestmark = [pytest.mark.needs("nvme-tcp-wire"), pytest.mark.case(level="MUST", section="NVM 4.1.5.1")]

NAMESPACES = 8
"""Namespaces that are looked at (chosen)."""

RESERVED = {"FLBAS": (26, 0x80), "MC": (27, 0xFC), "DPC": (28, 0xE0), "DPS": (29, 0xF0), "DLFEAT": (33, 0xE0),
            "NSATTR": (99, 0xFE)}  # fmt: skip
"""By field: its byte of Identify Namespace, and its reserved bits."""

FORMATS, RELATIVE_PERFORMANCE = 128, 0xFC
"""Where the LBA formats begin, four bytes each, and the reserved bits of the last byte of a format."""

PROGRESS = 32
"""Format Progress Indicator: bits 6:0 are the percentage that remains."""

STRUCTURES = {"05H": (Cns.CSI_NAMESPACE, "5.2.13.2.5"), "08H": (Cns.CSI_INDEPENDENT, "5.2.13.2.8")}
"""By CNS: the structure of a namespace, and its section."""

EVERY = 0xFFFFFFFF
WRITTEN = slice(48, 64)
"""Data Units Written of the SMART log (Base 5.2.12.1.3)."""

UNIT = 512_000
"""Bytes of a Data Unit: 1,000 times 512."""

MARKED_UNITS, ATTEMPTS = 20, 3
"""Units that are marked, and attempts of the case (chosen)."""

MOST_ROUNDS = 400
"""Commands of an attempt, at most (chosen)."""


@pytest.mark.parametrize("name", [
    pytest.param(name, marks=pytest.mark.case(f"NVA-ID-NS-BITS-{name}", kills=("namespace-reserved-bits",)))
    for name in RESERVED
])  # fmt: skip
def test_reserved_bits_of_a_field_of_a_namespace_are_zero(session: ControllerSession, name: str) -> None:
    at, reserved = RESERVED[name]
    for nsid in session.namespaces()[:NAMESPACES]:
        found = session.namespace(nsid).raw[at]
        assert not found & reserved, (
            f"4.1.5.1: {name} of namespace {nsid:#x} is {found:#04x}; bits {reserved:#04x} are reserved"
        )


@pytest.mark.case("NVA-ID-NS-BITS-LBAF", kills=("format-reserved-bits",))
def test_reserved_bits_of_the_formats_are_zero(session: ControllerSession) -> None:
    for nsid in session.namespaces()[:NAMESPACES]:
        data = session.namespace(nsid)
        for number in range(data["nlbaf"] + 1):
            found = data.raw[FORMATS + 4 * number + 3]
            assert not found & RELATIVE_PERFORMANCE, (
                f"4.1.5.1: byte 3 of LBA format {number} of namespace {nsid:#x} is {found:#04x}; its bits "
                f"{RELATIVE_PERFORMANCE:#04x} are reserved"
            )


@pytest.mark.case("NVA-ID-NS-PROGRESS", kills=("format-progress-over",))
def test_the_format_progress_is_a_percentage(session: ControllerSession) -> None:
    for nsid in session.namespaces()[:NAMESPACES]:
        found = session.namespace(nsid).raw[PROGRESS] & 0x7F
        assert found <= 100, f"4.1.5.1: FPI of namespace {nsid:#x}: {found} percent remain to be formatted"


@pytest.mark.parametrize("name", [
    pytest.param(name, marks=pytest.mark.case(
        f"NVA-ID-INACTIVE-{name}", section=f"Base {section}", kills=("inactive-described",)))
    for name, (_, section) in STRUCTURES.items()
])  # fmt: skip
def test_a_structure_of_an_inactive_namespace_is_refused_or_empty(
    session: ControllerSession, name: str
) -> None:
    """An inactive namespace has no size, and is not ready: there is nothing to describe."""
    cns, section = STRUCTURES[name]
    nsid = inactive_nsid(session)
    for active in session.namespaces()[:1]:
        session.admin.run(admin.identify(cns, nsid=active), reads=4096)
    done = session.admin.run(admin.identify(cns, nsid=nsid), reads=4096)
    if done.ok:
        first = next((at for at, byte in enumerate(done.data) if byte), None)
        assert first is None, (
            f"{section}: Identify of CNS {name} of NSID {nsid:#x}, which is inactive, succeeds, and its byte "
            f"{first} is not 0"
        )


@pytest.mark.case(
    "NVA-SMART-MARKED",
    section="Base 5.2.12.1.3",
    kills=("smart-counts-marks",),
    builds_on=("NVA-LOG-SMART", "NVB-UNC-01"),
)
def test_marked_blocks_are_no_data_that_the_host_has_written(
    session: ControllerSession, queue: Queue, scratch: Scratch
) -> None:
    """Write Uncorrectable has no data: it does not change Data Units Written.

    Other hosts may write, too: in one of several attempts less than half of what was marked is counted.
    """
    if not supported(session, Io.WRITE_UNCORRECTABLE):
        pytest.skip("ONCS: WRITE_UNCORRECTABLE is not supported")

    def written() -> int:
        return int.from_bytes(session.log_page(LogPage.SMART, 512, nsid=EVERY)[WRITTEN], "little")

    blocks = min(scratch.blocks, scratch.limits.marks)
    rounds = -(-MARKED_UNITS * UNIT // (blocks * scratch.block_size))
    if rounds > MOST_ROUNDS:
        pytest.skip(f"Write Uncorrectable takes {blocks} blocks: {rounds} commands for {MARKED_UNITS} units")
    risen = []
    try:
        for _ in range(ATTEMPTS):
            before = written()
            for _ in range(rounds):
                done = queue.run(uncorrectable(scratch.nsid, scratch.lba, blocks))
                assert done.ok, f"3.3.7: Write Uncorrectable ended with {status_name(done.status)}"
            risen.append(written() - before)
            if risen[-1] < MARKED_UNITS // 2:
                break
        else:
            raise AssertionError(
                f"5.2.12.1.3: {MARKED_UNITS} Data Units were marked by Write Uncorrectable, and Data Units "
                f"Written has risen by {risen}"
            )
    finally:
        write_blocks(queue, scratch, blocks, 1870)
