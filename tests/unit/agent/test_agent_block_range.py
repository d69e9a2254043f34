"""Self-describing blocks on generated data, and a range of a real loop device."""

import errno
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from loop_devices import loop_device, make_image, needs_loop_devices

from storagetest.agent.testlib import CannotRun, block_patterns, block_range, concurrent
from storagetest.agent.testlib.background_writers import WriterStats, with_background_writers
from storagetest.agent.testlib.block_patterns import make_block, make_blocks
from storagetest.agent.testlib.block_range import EDGE, RANGE, BlockRange, disk_of, range_count
from storagetest.agent.testlib.fixtures import block_range as block_range_fixture
from storagetest.agent.testlib.multipath import device_paths, wait_until

SIZE = 512
EXPECTED = make_block(40, 3, 9, SIZE)


def changed(at: int, value: bytes) -> bytes:
    return EXPECTED[:at] + value + EXPECTED[at + len(value) :]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (EXPECTED, ""),
        (bytes(SIZE), "zeroes instead of generation 3"),
        (make_block(40, 2, 9, SIZE), "generation 2 instead of 3: a lost write, or a stale read"),
        (make_block(40, 4, 9, SIZE), "generation 4, which is newer than 3"),
        (make_block(41, 3, 9, SIZE), "data of block 41 (generation 3): misplaced"),
        (make_block(40, 3, 8, SIZE), "data of another case or run (block 40, generation 3)"),
        (changed(300, bytes([EXPECTED[300] ^ 0x11])), "2 bits of generation 3 are flipped, from byte 300"),
        (EXPECTED[:256] + make_block(40, 1, 9, SIZE)[256:], "torn: generations 3 and 1"),
        (EXPECTED[:256] + bytes(256), "torn: generations 3 and 0 in one block, which meet at byte 256"),
        (b"\xff" * SIZE, "unknown data, from byte 0: ffff"),
        (changed(100, bytes(range(64))), "damaged from byte 100: wrong CRC"),
    ],
)
def test_describe_mismatch_names_the_error(data: bytes, message: str) -> None:
    description = block_patterns.describe_mismatch(data, 40, 3, 9)
    assert description == message or (message and description.startswith(message))


@given(st.integers(0, SIZE - 1), st.integers(1, 255))
def test_a_change_of_any_byte_is_detected(at: int, difference: int) -> None:
    assert block_patterns.describe_mismatch(changed(at, bytes([EXPECTED[at] ^ difference])), 40, 3, 9)
    header = block_patterns.parse(changed(at, bytes([EXPECTED[at] ^ difference])))
    assert header is None or not header.whole


def test_describe_mismatches_lists_the_first_wrong_blocks() -> None:
    data = make_blocks(0, 4, 1, 9, SIZE) + bytes(6 * SIZE)
    description = block_patterns.describe_mismatches(data, 0, 1, 9, SIZE)
    assert description.startswith("block 4: zeroes instead of generation 1; block 5: ")
    assert description.endswith("and 2 more of 10")
    assert block_patterns.describe_mismatches(make_blocks(7, 3, 2, 9, SIZE), 7, 2, 9, SIZE) == ""


def test_run_threads_raises_a_threads_error_and_sets_over() -> None:
    over = threading.Event()

    def work(index: int) -> None:
        if index == 1:
            raise AssertionError("one")
        assert over.wait(30)

    with pytest.raises(AssertionError, match="one"):
        concurrent.run_threads(work, 3, over=over)


class FakeRange:
    """A range that records the generation of each block, and loses writes while ``lose`` is set."""

    def __init__(self) -> None:
        self.generations: dict[int, int] = {}
        self.lose = False

    def write(self, first: int, count: int, generation: int) -> None:
        if not self.lose:
            self.generations.update(dict.fromkeys(range(first, first + count), generation))

    def assert_generation(self, first: int, count: int, generation: int) -> None:
        generations = [self.generations.get(number, 0) for number in range(first, first + count)]
        assert generations == [generation] * count, f"blocks from {first}"


def test_writer_stats_expect_the_last_write_of_every_slot() -> None:
    load = WriterStats(FakeRange(), writers=2, slots=3, width=2)  # type: ignore[arg-type]
    for writer in (0, 0, 0, 0, 0, 1):
        load.write(writer)
    load.assert_written()
    assert load.completed == [5, 1]
    assert load.blocks.generations == {0: 2, 1: 2, 2: 2, 3: 2, 4: 1, 5: 1, 6: 1, 7: 1}  # type: ignore[attr-defined]


def test_a_background_write_that_is_lost_is_detected() -> None:
    blocks: Any = FakeRange()
    with_background_writers(blocks, lambda: None, writers=2, slots=2).assert_written()
    load = with_background_writers(blocks, lambda: setattr(blocks, "lose", True), writers=2, slots=2)
    with pytest.raises(AssertionError, match="blocks from"):
        load.assert_written()


def test_range_count_excludes_the_edges() -> None:
    assert range_count(64 << 20) == 62
    assert range_count(2 * EDGE + RANGE) == 1
    assert range_count(2 * EDGE) == range_count(0) == 0


def test_wait_until_has_a_timeout() -> None:
    assert wait_until(5, lambda: True, "never") < 5
    with pytest.raises(AssertionError, match=r"not within 0.01 s: it is there"):
        wait_until(0.01, lambda: False, "it is there")


@pytest.mark.parametrize(
    ("name", "disk"), [("nvme0c1n1", "nvme0n1"), ("nvme2n3", "nvme2n3"), ("hwmon0", "hwmon0")]
)
def test_disk_of_a_hidden_path_is_its_disk(name: str, disk: str) -> None:
    assert disk_of(name) == disk


@pytest.fixture
def device(tmp_path: Path) -> Iterator[str]:
    with loop_device(make_image(tmp_path / "disk.img", 8 << 20)) as name:
        yield name


@needs_loop_devices
def test_a_range_is_written_read_and_checked(device: str) -> None:
    with BlockRange(device, EDGE, RANGE, seed=5) as blocks:
        assert (blocks.count, blocks.size) == (RANGE // blocks.logical, 8 << 20)
        blocks.write(3, 4)
        blocks.assert_generation(3, 4)
        with pytest.raises(AssertionError, match="zeroes instead of generation 1"):
            blocks.assert_generation(2, 2)
        with pytest.raises(AssertionError, match="generation 1 instead of 2"):
            blocks.assert_generation(3, 1, generation=2)
        assert blocks.assert_any_generation(2, 2, (0, 1)) == [0, 1]
        with pytest.raises(AssertionError, match="generation 1 instead of 2"):
            blocks.assert_any_generation(3, 1, (0, 2))
        blocks.zero_out(4, 1)
        blocks.fallocate(block_range.FALLOC_FL_PUNCH_HOLE, 5, 1)
        blocks.assert_zeroes(4, 2)
        with pytest.raises(AssertionError, match=f"generation 1 of block {EDGE // blocks.logical + 3}"):
            blocks.assert_zeroes(3, 2)
        stamp = blocks.header(3)
        assert (stamp.number, stamp.seed, stamp.whole) == (EDGE // blocks.logical + 3, 5, True)
        assert not blocks.cut_power()
        blocks.flush()
        assert blocks.statistics()["write_ios"] > 0
        with pytest.raises(CannotRun, match="no path to loop"):
            device_paths(blocks)


@needs_loop_devices
def test_nothing_outside_the_range_can_be_written(device: str) -> None:
    with BlockRange(device, EDGE, RANGE) as blocks:
        for first, count in ((-1, 1), (blocks.count, 1), (blocks.count - 1, 2), (0, 0)):
            with pytest.raises(ValueError, match="of a range of"):
                blocks.write(first, count)
        for start, length in ((-512, 512), (RANGE, 512), (0, RANGE + 512)):
            with pytest.raises(ValueError, match="of a range of"):
                blocks.range_ioctl(block_range.BLKDISCARD, start, length)
        with pytest.raises(ValueError, match="more than the device's edge"):
            blocks.last(EDGE // blocks.logical + 1)
        with pytest.raises(OSError, match=os.strerror(errno.EINVAL)):
            blocks.range_ioctl(block_range.BLKDISCARD, 1, blocks.logical)
    for offset, length in ((1, 512), (0, 0), (8 << 20, 512)):
        with pytest.raises(ValueError, match="are not whole blocks of"):
            BlockRange(device, offset, length)


@needs_loop_devices
def test_each_index_has_its_own_range_and_seed(device: str) -> None:
    ranges = []
    for index in range(7):
        with block_range_fixture.fixture(device, {"index": index}) as blocks:
            ranges.append((blocks.offset, blocks.seed))
    offsets = [offset for offset, _ in ranges]
    assert offsets == [EDGE + index % 6 * RANGE for index in range(7)]
    assert len({seed for _, seed in ranges}) == 7
