"""A device that its server makes larger, and small again: nothing is lost, and the client can see it.

NVM Command Set 4.1.5.1 (Identify Namespace, NSZE); Base 5.2.2 and 3.1.3.5 (Namespace Attribute Changed, where
bit 8 of OAES promises it); SBC-3 READ CAPACITY, and CAPACITY DATA HAS CHANGED (2Ah/09h), from memory; Linux,
ABI/testing/sysfs-class-nvme (rescan_controller) and scsi_sysfs.c (rescan).

The target's ``controls`` say how its server does it (``grow``, ``shrink``); cases of one target run one at a
time, and each of these puts the size back.
"""

from __future__ import annotations

import pytest

from storagetest.agent.testlib.block_range import EDGE

pytestmark = [
    pytest.mark.needs("block", "resize"),
    pytest.mark.case(
        level="MUST", section="NVM Identify NSZE, SBC-3 READ CAPACITY", no_mutant_reason="nobody resizes"
    ),
]

NOTICES = 8
"""The bit of OAES, Optional Asynchronous Events Supported, for Namespace Attribute Notices."""


@pytest.mark.case("BLK-GROW-01")
def test_a_client_that_looks_again_sees_the_new_size(disk):
    """After a rescan the client has the new size."""
    was = disk.size()
    disk.grow()
    disk.rescan()
    disk.comes_to(lambda size: size > was, f"more than the {was} bytes that it was")


@pytest.mark.case("BLK-GROW-02", section="NVM Command Set 3.3, SBC-3 4.7")
def test_nothing_that_was_there_is_lost(disk):
    """What was written before is there afterwards, to the last block."""
    was = disk.size()
    places = (EDGE, was // 2 // disk.chunk * disk.chunk, was - EDGE)
    for place in places:
        disk.write(place, 1)
    disk.grow()
    for place in places:
        disk.expect(place, 1)
    disk.rescan()
    disk.comes_to(lambda size: size > was, f"more than the {was} bytes that it was")
    for place in places:
        disk.expect(place, 1)


@pytest.mark.case("BLK-GROW-03")
def test_what_is_new_takes_data_to_its_end(disk):
    """The new blocks can be written and read, the last ones too."""
    was = disk.size()
    disk.grow()
    disk.rescan()
    now = disk.comes_to(lambda size: size > was, f"more than the {was} bytes that it was")
    for place in (was, (was + now) // 2 // disk.chunk * disk.chunk, now - disk.chunk):
        disk.write(place, 2)
        disk.expect(place, 2)
    disk.expect(was, 2)


@pytest.mark.case("BLK-GROW-04", section="NVM Command Set 3.3, SBC-3 4.7")
def test_no_write_fails_beside_it(disk):
    """Writes that are under way while the device grows are all done."""
    was, size, count = disk.size(), 4096, 60
    fd = disk.open()
    calls = [
        call
        for turn in range(1, count + 1)
        for call in (("write_direct", fd, disk.data(EDGE, turn, size), EDGE), ("wait", 0.03))
    ]
    writes = disk.hand.start(*calls, deadline=60)
    disk.grow()
    refused = [answer for answer in writes.results() if isinstance(answer, OSError)]
    assert not refused, f"{len(refused)} of {count} writes failed: {refused[0]}"
    disk.hand.close(fd)
    disk.expect(EDGE, count, size)
    disk.rescan()
    disk.comes_to(lambda size: size > was, f"more than the {was} bytes that it was")


@pytest.mark.case("BLK-GROW-05", section="Base 3.1.3.5, OAES; SBC-3, CAPACITY DATA HAS CHANGED")
def test_a_target_that_promises_to_tell_tells(disk, identify, observe):
    """Nobody looks: the client hears of it by itself where the target says that it gives notice."""
    was = disk.size()
    notices = (identify("oaes") or 0) >> NOTICES & 1
    before = disk.kernel_log()
    disk.grow()
    disk.write(EDGE, 3)  # a unit attention is told with the next command's answer
    if disk.hears(lambda size: size > was):
        observe("the client has the new size by itself")
        return
    assert not notices, f"bit {NOTICES} of OAES promises a notice, and none was seen"
    said = "Capacity data has changed" in disk.kernel_log().removeprefix(before)
    observe("the kernel hears of it, and waits to be told to look" if said else "nobody is told of it")


@pytest.mark.case("BLK-GROW-06")
def test_there_is_nothing_past_the_end_of_one_that_is_small_again(disk):
    """After it has shrunk, what lies past its end can be neither read nor written; the rest is there."""
    was = disk.size()
    disk.write(EDGE, 4)
    disk.grow()
    disk.rescan()
    disk.comes_to(lambda size: size > was, f"more than the {was} bytes that it was")
    disk.write(was, 5)
    disk.shrink()
    disk.rescan()
    disk.comes_to(lambda size: size == was, f"{was} bytes again")
    disk.expect(EDGE, 4)
    fd = disk.open()
    assert not disk.hand.call("read_direct", fd, disk.chunk, was), "bytes read past the end"
    with pytest.raises(OSError, match="No space"):
        disk.hand.call("write_direct", fd, bytes(disk.chunk), was)
