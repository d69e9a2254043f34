"""The guard of the wire cases' writes fails closed: no proof that a device is empty, no write."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from storagetest.errors import RemoteProtocolError
from storagetest.wire.signatures import HEAD, SIGNATURES, TAIL, find_signature, signature_in

BLOCK = 512
BLOCKS = 8192
Fault = Callable[[bytes], bytes]


class Device:
    """Blocks in memory. ``fault`` changes the data of the read number ``at``."""

    def __init__(self, block_size: int = BLOCK, blocks: int = BLOCKS) -> None:
        self.block_size, self.blocks = block_size, blocks
        self.data = bytearray(block_size * blocks)
        self.reads: list[tuple[int, int]] = []
        self.at, self.fault = -1, bytes

    def read(self, lba: int, blocks: int) -> bytes:
        assert 0 <= lba < lba + blocks <= self.blocks, "outside the device"
        self.reads.append((lba, blocks))
        data = bytes(self.data[lba * self.block_size : (lba + blocks) * self.block_size])
        return self.fault(data) if len(self.reads) - 1 == self.at else data

    def find(self, **more: Any) -> str | None:
        self.reads.clear()
        return find_signature(self.read, block_size=self.block_size, blocks=self.blocks, **more)


def refuse(_: bytes) -> bytes:
    raise RemoteProtocolError("refused")


def garble(data: bytes) -> bytes:
    at = random.Random(len(data)).randrange(len(data))
    return data[:at] + bytes([data[at] ^ 0x5A]) + data[at + 1 :]


FAULTS: dict[str, Fault] = {
    "refused": refuse,
    "empty": lambda _: b"",
    "one block short": lambda data: data[:-BLOCK],
    "one byte short": lambda data: data[:-1],
    "one byte long": lambda data: data + b"\0",
    "garbled": garble,
}


def all_reads(device: Device) -> Iterator[int]:
    device.at = -1
    device.find()
    return iter(range(len(device.reads)))


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
def test_a_bad_read_is_never_a_proof_whichever_it_is(fault: Fault) -> None:
    device = Device()
    assert device.find() is None
    for at in all_reads(device):
        device.at, device.fault = at, fault
        with pytest.raises(RemoteProtocolError):
            device.find()


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
def test_a_bad_read_never_hides_a_signature(fault: Fault) -> None:
    device = Device()
    device.data[0x438:0x43A] = b"\x53\xef"
    for at in all_reads(device):
        device.at, device.fault = at, fault
        with pytest.raises(RemoteProtocolError):
            device.find()


@pytest.mark.parametrize(("offset", "magic", "name"), SIGNATURES)
@pytest.mark.parametrize("block_size", [512, 4096])
def test_each_signature_at_the_start_is_found(block_size: int, offset: int, magic: bytes, name: str) -> None:
    device = Device(block_size)
    device.data[offset : offset + len(magic)] = magic
    assert device.find() == name


@pytest.mark.parametrize("block_size", [512, 4096])
@pytest.mark.parametrize("before_end", [0x10000, 0x20000, 0x2000, 0x3000])
def test_a_raid_signature_at_the_end_is_found(block_size: int, before_end: int) -> None:
    device = Device(block_size)
    device.data[-before_end : 4 - before_end] = b"\xfc\x4e\x2b\xa9"
    assert device.find() == "a member of a RAID array"


def test_the_backup_partition_table_and_a_pool_are_found() -> None:
    device = Device(4096)
    device.data[-4096:-4088] = b"EFI PART"
    assert device.find() == "a GUID partition table"
    assert signature_in(bytes(0x4020) + b"pool_guid") == "a ZFS pool"
    assert signature_in(bytes(HEAD), bytes(TAIL)) is None


@pytest.mark.parametrize("largest", [512, 4096, 65536, 1 << 30])
def test_no_read_exceeds_the_limit_of_the_target(largest: int) -> None:
    device = Device()
    assert device.find(largest=largest) is None
    assert max(blocks for _, blocks in device.reads) * BLOCK <= largest
    assert min(lba for lba, _ in device.reads) == 0
    assert max(lba + blocks for lba, blocks in device.reads) == BLOCKS


@pytest.mark.parametrize("blocks", [1, 7, 130])
def test_a_small_device_is_read_completely(blocks: int) -> None:
    device = Device(blocks=blocks)
    assert device.find() is None
    assert {lba for first, count in device.reads for lba in range(first, first + count)} == set(range(blocks))


@pytest.mark.parametrize(("block_size", "blocks"), [(0, 8), (100, 8), (512, 0)])
def test_a_size_that_cannot_be_is_no_proof(block_size: int, blocks: int) -> None:
    with pytest.raises(RemoteProtocolError, match="the device reports"):
        find_signature(lambda _lba, _blocks: b"", block_size=block_size, blocks=blocks)
