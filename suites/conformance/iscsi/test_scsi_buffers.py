"""READ BUFFER, and the echo buffer of WRITE BUFFER (SPC-4).

No other mode of WRITE BUFFER is ever sent: some of them replace a device's microcode.
"""

from __future__ import annotations

import pytest

from storagetest.suites.conformance.iscsi.optional_commands import offered
from storagetest.wire.scsi.codes import Asc, SenseKey
from storagetest.wire.scsi.logical_unit import LogicalUnit, ScsiResult
from storagetest.wire.scsi.seldom_cdb import READ_BUFFER, WRITE_BUFFER

pytestmark = [
    pytest.mark.needs("iscsi-wire"),
    pytest.mark.case(section="SPC-4 READ BUFFER", level="MUST"),
]

DESCRIPTOR, ECHO, ECHO_DESCRIPTOR = 0x03, 0x0A, 0x0B
"""Values of MODE."""
RESERVED_MODES = (0x08, 0x10, 0x1F)
"""Of READ BUFFER."""
LARGEST = 0x1FFF
"""Of the capacity of an echo buffer: it has 13 bits."""
ALLOCATION = 64


def read_buffer(unit: LogicalUnit, mode: int, allocation: int = ALLOCATION, **fields: int) -> ScsiResult:
    """Send READ BUFFER; skip if the unit does not have it, or not with this mode."""
    read = max(allocation, ALLOCATION)  # more than that would be taken
    answer = offered(unit.run(READ_BUFFER, read=read, mode=mode, allocation=allocation, **fields))
    if answer.check(SenseKey.ILLEGAL_REQUEST, Asc.INVALID_FIELD_IN_CDB):
        pytest.skip(f"not supported: {answer}")
    return answer


def echo_capacity(unit: LogicalUnit) -> int:
    """Return the bytes of the echo buffer; skip if there is none."""
    answer = read_buffer(unit, ECHO_DESCRIPTOR)
    assert answer.good, answer
    assert len(answer.data) == 4, f"{answer}: an echo buffer descriptor of {len(answer.data)} bytes"
    size = int.from_bytes(answer.data[2:], "big") & LARGEST
    if not size:
        pytest.skip("the echo buffer has no bytes")
    return size


def pattern(length: int, seed: int) -> bytes:
    """Return bytes that are others for each seed."""
    return bytes((at * 7 + (at >> 8) * 13 + seed) & 0xFF for at in range(length))


def write_echo(unit: LogicalUnit, data: bytes) -> ScsiResult:
    """Write to the echo buffer."""
    return offered(unit.run(WRITE_BUFFER, data=data, mode=ECHO, allocation=len(data)))


@pytest.mark.case("SCS-BUFFER-DESCRIPTOR", kills=("buffer-descriptor-refused",))
def test_a_buffer_descriptor_has_four_bytes_and_is_cut_to_the_allocation_length(unit):
    whole = read_buffer(unit, DESCRIPTOR)
    assert whole.good, whole
    assert len(whole.data) == 4, f"{whole}: a buffer descriptor of {len(whole.data)} bytes"
    for allocation in (0, 1, 3, 4):
        answer = unit.run(READ_BUFFER, read=ALLOCATION, mode=DESCRIPTOR, allocation=allocation)
        assert answer.good, f"{answer}; an allocation length of {allocation} is no error"
        assert answer.data == whole.data[:allocation], f"{answer}: {answer.data.hex()}, of {whole.data.hex()}"


@pytest.mark.case("SCS-BUFFER-MODE", section="SPC-4 READ BUFFER, MODE", kills=("buffer-any-mode",))
def test_a_reserved_mode_is_refused(unit):
    for mode in RESERVED_MODES:
        answer = offered(unit.run(READ_BUFFER, read=4, mode=mode, allocation=4))
        assert answer.check(SenseKey.ILLEGAL_REQUEST), f"{answer}: the mode {mode:02X}h is reserved"


@pytest.mark.case(
    "SCS-BUFFER-ECHO", section="SPC-4 READ BUFFER, echo buffer", kills=("echo-first-kept", "echo-cut")
)
def test_the_echo_buffer_returns_what_was_written_last(unit):
    """Of lengths that are multiples of four, longer and shorter: as many bytes as the last write had."""
    size = echo_capacity(unit)
    for seed, length in enumerate([*sorted({4, 252, 256, size}), 16]):
        if length > size:
            continue
        data = pattern(length, seed)
        written = write_echo(unit, data)
        assert written.good, f"{written}: {length} bytes; the echo buffer has {size}"
        read = read_buffer(unit, ECHO, size)
        assert read.good, f"{read}, after a write of {length} bytes by this nexus"
        assert read.data == data, (
            f"{read}: {len(read.data)} bytes, {read.data[:32].hex()}...; {length} bytes were written, "
            f"{data[:32].hex()}..."
        )


@pytest.mark.case(
    "SCS-BUFFER-ECHO-CUT", section="SPC-4 allocation length", kills=("echo-whole",),
    builds_on=("SCS-BUFFER-ECHO",),
)  # fmt: skip
def test_the_echo_buffer_is_cut_to_the_allocation_length(unit):
    size = min(echo_capacity(unit), 64)
    data = pattern(size, 9)
    assert write_echo(unit, data).good
    for allocation in sorted({0, 1, size - 1, size}):
        read = read_buffer(unit, ECHO, allocation)
        assert read.good, read
        assert read.data == data[:allocation], f"{read}: {read.data.hex()}, of {data.hex()}"


@pytest.mark.case(
    "SCS-BUFFER-ECHO-OTHER", section="SPC-4 WRITE BUFFER, echo buffer", kills=("echo-shared",),
    builds_on=("SCS-BUFFER-ECHO",),
)  # fmt: skip
def test_what_another_nexus_wrote_is_not_returned_as_one_s_own(two):
    """Either the buffer is its own, or the read reports that the echo buffer was overwritten."""
    own, other = two
    size = min(echo_capacity(own), 64)
    data = pattern(size, 21)
    assert write_echo(own, data).good
    written = write_echo(other, pattern(size, 22))
    if not written.good:
        pytest.skip(f"the echo buffer is in use: {written}")
    read = read_buffer(own, ECHO, size)
    if read.good:
        assert read.data == data, (
            f"{read}: {read.data.hex()}; this nexus has written {data.hex()}, and another nexus wrote later"
        )


@pytest.mark.case(
    "SCS-BUFFER-ECHO-LONG", section="SPC-4 WRITE BUFFER, echo buffer", kills=("echo-long",)
)  # fmt: skip
def test_more_bytes_than_the_echo_buffer_has_are_refused(unit):
    size = echo_capacity(unit)
    answer = write_echo(unit, pattern(size + 4, 30))
    assert answer.check(SenseKey.ILLEGAL_REQUEST), f"{answer}: {size + 4} bytes; the echo buffer has {size}"
