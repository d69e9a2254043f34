"""Resize: the server enlarges and shrinks the device; no data are lost, and the client sees the new size.

NVM Command Set 4.1.5.1 (Identify Namespace, NSZE); Base 5.2.2 and 3.1.3.5 (Namespace Attribute Changed, where
bit 8 of OAES promises it); SBC-3 READ CAPACITY, and CAPACITY DATA HAS CHANGED (2Ah/09h), from memory; Linux,
ABI/testing/sysfs-class-nvme (rescan_controller) and scsi_sysfs.c (rescan).

The target's ``controls`` ``grow`` and ``shrink`` resize the device on the server. Cases of one target run one
at a time, and each of these restores the size.
"""

from __future__ import annotations

import pytest

from storagetest.agent.testlib.block_range import EDGE

pytestmark = [
    pytest.mark.needs("block", "resize"),
    pytest.mark.case(
        level="MUST",
        section="NVM Identify NSZE, SBC-3 READ CAPACITY",
        no_mutant_reason="the mutation run resizes no device",
    ),
]

NOTICES = 8
"""The bit of OAES, Optional Asynchronous Events Supported, for Namespace Attribute Notices."""


@pytest.mark.case("BLK-GROW-01")
def test_rescan_shows_the_new_size(disk):
    """After a rescan the client has the new size."""
    original = disk.size()
    disk.grow()
    disk.rescan()
    disk.wait_for_size(lambda size: size > original, f"more than the {original} bytes that it was")


@pytest.mark.case("BLK-GROW-02", section="NVM Command Set 3.3, SBC-3 4.7")
def test_growth_keeps_the_data(disk):
    """Data that were written before are read afterwards, to the last block."""
    original = disk.size()
    offsets = (EDGE, original // 2 // disk.chunk * disk.chunk, original - EDGE)
    for offset in offsets:
        disk.write(offset, 1)
    disk.grow()
    for offset in offsets:
        disk.expect(offset, 1)
    disk.rescan()
    disk.wait_for_size(lambda size: size > original, f"more than the {original} bytes that it was")
    for offset in offsets:
        disk.expect(offset, 1)


@pytest.mark.case("BLK-GROW-03")
def test_new_blocks_can_be_used_to_the_end(disk):
    """The new blocks can be written and read, including the last ones."""
    original = disk.size()
    disk.grow()
    disk.rescan()
    now = disk.wait_for_size(lambda size: size > original, f"more than the {original} bytes that it was")
    for offset in (original, (original + now) // 2 // disk.chunk * disk.chunk, now - disk.chunk):
        disk.write(offset, 2)
        disk.expect(offset, 2)
    disk.expect(original, 2)


@pytest.mark.case("BLK-GROW-04", section="NVM Command Set 3.3, SBC-3 4.7")
def test_writes_during_the_growth_succeed(disk):
    """Writes during the growth of the device all succeed."""
    original, size, count = disk.size(), 4096, 60
    fd = disk.open()
    calls = [
        call
        for turn in range(1, count + 1)
        for call in (("write_direct", fd, disk.data(EDGE, turn, size), EDGE), ("wait", 0.03))
    ]
    writes = disk.session.start(*calls, deadline=60)
    disk.grow()
    refused = [result for result in writes.results() if isinstance(result, OSError)]
    assert not refused, f"{len(refused)} of {count} writes failed: {refused[0]}"
    disk.session.close(fd)
    disk.expect(EDGE, count, size)
    disk.rescan()
    disk.wait_for_size(lambda size: size > original, f"more than the {original} bytes that it was")


@pytest.mark.case("BLK-GROW-05", section="Base 3.1.3.5, OAES; SBC-3, CAPACITY DATA HAS CHANGED")
def test_promised_size_notice_is_sent(disk, identify, observe):
    """Without a rescan the client sees the new size if the target announces notices."""
    original = disk.size()
    notices = (identify("oaes") or 0) >> NOTICES & 1
    before = disk.kernel_log()
    disk.grow()
    disk.write(EDGE, 3)  # a unit attention comes with the response of the next command
    if disk.reaches_size(lambda size: size > original):
        observe("the client has the new size by itself")
        return
    assert not notices, f"bit {NOTICES} of OAES promises a notice, and none was seen"
    logged = "Capacity data has changed" in disk.kernel_log().removeprefix(before)
    observe("the kernel logs the change, and requires a rescan" if logged else "the client is not notified")


@pytest.mark.case("BLK-GROW-06")
def test_shrunk_device_has_no_blocks_past_its_end(disk):
    """After a shrink, blocks past the end can be neither read nor written; the others are kept."""
    original = disk.size()
    disk.write(EDGE, 4)
    disk.grow()
    disk.rescan()
    disk.wait_for_size(lambda size: size > original, f"more than the {original} bytes that it was")
    disk.write(original, 5)
    disk.shrink()
    disk.rescan()
    disk.wait_for_size(lambda size: size == original, f"{original} bytes again")
    disk.expect(EDGE, 4)
    fd = disk.open()
    assert not disk.session.call("read_direct", fd, disk.chunk, original), "bytes read past the end"
    with pytest.raises(OSError, match="No space"):
        disk.session.call("write_direct", fd, bytes(disk.chunk), original)
