"""GET LBA STATUS: which part of a disk is mapped."""

import struct

import pytest

from storagetest.agent import lba_status
from storagetest.wire.scsi.data import decode_lba_status

BLOCK, BLOCKS = 512, 1000
MAPPED, DEALLOCATED, ANCHORED = 0, 1, 2


def answer(*descriptors: tuple[int, int, int]) -> bytes:
    listed = b"".join(struct.pack(">QIB3x", *one) for one in descriptors)
    return struct.pack(">I4x", 4 + len(listed)) + listed


@pytest.fixture
def disk(tmp_path, monkeypatch):
    """A file with the size of a disk, whose answers a test gives by their first block."""
    path = tmp_path / "disk"
    path.touch()
    sizes = {lba_status._BLKGETSIZE64: BLOCK * BLOCKS, lba_status._BLKSSZGET: BLOCK}

    def ioctl(descriptor: int, request: int, argument) -> int:
        argument[0] = sizes[request]
        return 0

    def use(answers: dict[int, bytes]) -> bytes:
        monkeypatch.setattr(lba_status, "_lba_status", lambda descriptor, lba: answers[lba])
        return bytes(path)

    monkeypatch.setattr(lba_status.fcntl, "ioctl", ioctl)
    return use


def test_mapped_and_anchored_blocks_count_over_all_answers(disk):
    first = answer((0, 100, MAPPED), (100, 300, DEALLOCATED))
    second = answer((400, 50, ANCHORED), (450, 5000, DEALLOCATED))  # more than the disk has
    assert lba_status.mapped_bytes(disk({0: first, 400: second})) == 150 * BLOCK
    assert decode_lba_status(first)[1][1].count == 300, "the layout is that of the suites' codec"


def test_a_descriptor_that_begins_before_the_block_counts_from_that_block(disk):
    answers = {0: answer((0, 10, MAPPED)), 10: answer((5, 15, MAPPED), (20, 980, DEALLOCATED))}
    assert lba_status.mapped_bytes(disk(answers)) == 20 * BLOCK


@pytest.mark.parametrize(
    ("answers", "message"),
    [
        ({0: answer((0, BLOCKS, MAPPED))}, "reports every block as mapped"),
        ({0: answer()}, "lists nothing from block 0 on"),
        ({0: answer((0, 10, MAPPED)), 10: answer((0, 10, MAPPED))}, "lists nothing from block 10 on"),
    ],
)
def test_answers_without_use_are_errors(disk, answers, message):
    with pytest.raises(OSError, match=message):
        lba_status.mapped_bytes(disk(answers))
