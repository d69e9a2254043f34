"""SCSI: the codecs, and the signatures of data on a device."""

import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storagetest.errors import LocalProtocolError, RemoteProtocolError
from storagetest.wire.bitfields import bitfield, flag, get, octets, pack, put, reserved_bits, uint, unpack
from storagetest.wire.scsi import cdb as c
from storagetest.wire.scsi import data as d
from storagetest.wire.scsi import reservations as r
from storagetest.wire.scsi.codes import Asc, PrType, SenseKey
from storagetest.wire.scsi.sense import decode_sense, fixed_sense, layout_faults
from storagetest.wire.signatures import HEAD, SIGNATURES, TAIL, find_signature, signature_in

CDBS = [
    (c.TEST_UNIT_READY, {}, "000000000000"),
    (c.INQUIRY, {"evpd": 1, "page": 0x83, "allocation": 255}, "12018300ff00"),
    (c.READ_6, {"lba_high": 0x1F, "lba": 0xFFFF, "blocks": 1}, "081fffff0100"),
    (c.READ_10, {"lba": 0x01020304, "blocks": 0x0506, "fua": 1}, "28080102030400050600"),
    (c.WRITE_16, {"lba": 1, "blocks": 2, "dpo": 1, "protect": 1}, "8a300000000000000001000000020000"),
    (c.READ_CAPACITY_16, {"allocation": 32}, "9e100000000000000000000000200000"),
    (c.REPORT_LUNS, {"select": 2, "allocation": 4096}, "a00002000000000010000000"),
    (c.PERSISTENT_RESERVE_OUT, {"service_action": 4, "type": 5, "allocation": 24}, "5f040500000000001800"),
    (c.MODE_SENSE_6, {"page": 0x3F, "allocation": 255}, "1a003f00ff00"),
]


@pytest.mark.parametrize(("command", "fields", "text"), CDBS, ids=lambda one: getattr(one, "name", ""))
def test_a_cdb_is_encoded_and_described(command: c.CommandFormat, fields: dict[str, int], text: str) -> None:
    made = c.cdb(command, **fields)
    assert made.hex() == text
    assert len(made) == command.length
    assert c.describe(made).startswith(command.name)


def test_compare_and_write_counts_blocks_in_byte_13() -> None:
    assert c.cdb(c.COMPARE_AND_WRITE, lba=5, blocks=1) == bytes([0x89, *[0] * 8, 5, 0, 0, 0, 1, 0, 0])


def test_cdb_raises_for_an_unknown_field() -> None:
    with pytest.raises(LocalProtocolError, match="has no nonsense"):
        c.cdb(c.READ_10, nonsense=1)
    with pytest.raises(LocalProtocolError, match="does not fit"):
        c.cdb(c.READ_10, lba=1 << 32)


@given(st.binary(max_size=20))
def test_describe_accepts_any_bytes(data: bytes) -> None:
    assert c.describe(data)


def test_layouts_round_trip_and_return_reserved_bits() -> None:
    layout = (flag("flag", 0, 7), bitfield("low", 0, 0, 3), uint("word", 2, 2), octets("tail", 4, 2))
    packed = pack(6, layout, {"flag": True, "low": 5, "word": 0x1234, "tail": b"ab"})
    assert packed == b"\x85\x00\x12\x34ab"
    assert unpack(packed, layout) == {"flag": True, "low": 5, "word": 0x1234, "tail": b"ab"}
    assert reserved_bits(b"\xff" * 6, layout) == b"\x78\xff\0\0\0\0"
    assert get(b"\x85", layout[2]) == 0
    with pytest.raises(ValueError, match="does not fit"):
        put(packed, layout[1], 8)
    with pytest.raises(ValueError, match="is not 3 bytes"):
        put(packed, layout[3], b"abc")


def test_sense_data_in_both_formats() -> None:
    fixed = decode_sense(fixed_sense(SenseKey.MISCOMPARE, Asc.MISCOMPARE_DURING_VERIFY, information=100))
    assert (fixed.key, fixed.asc, fixed.information, fixed.descriptor) == (0xE, 0x1D00, 100, False)
    assert str(fixed) == "MISCOMPARE, MISCOMPARE_DURING_VERIFY (1dh/00h, information 0x64)"
    text = "72052100 00000014 000a8000 00000000 00000005 0206 0000 cf00 0200".replace(" ", "")
    other = decode_sense(bytes.fromhex(text))
    assert (other.key, other.asc, other.information, other.descriptor) == (5, 0x2100, 5, True)
    pointed = decode_sense(bytes.fromhex("70000500 0000000a 00000000 240000c0 0002".replace(" ", "")))
    assert (pointed.asc, pointed.field_pointer, pointed.field_in_cdb) == (0x2400, 2, True)


@settings(max_examples=300)
@given(st.binary(max_size=80))
def test_decoders_return_a_value_or_raise_remote_protocol_error(data: bytes) -> None:
    def page(read):
        return lambda raw_bytes: read(d.decode_vpd(raw_bytes))

    for read in (
        decode_sense, d.decode_inquiry, d.decode_vpd, d.decode_capacity10, d.decode_capacity16, d.decode_luns,
        d.decode_target_port_groups,
        d.decode_mode6, page(d.decode_designators), page(d.decode_block_limits), page(d.decode_provisioning),
        r.decode_keys, r.decode_reservation, r.decode_capabilities, r.decode_full_status,
    ):  # fmt: skip
        try:
            assert read(data) is not None
        except RemoteProtocolError as error:
            assert str(error)


def test_vpd_page_83_has_the_kernels_names() -> None:
    naa = bytes.fromhex("01030010") + bytes.fromhex("600140557057e5700000000000000001")
    t10 = bytes.fromhex("0201000c") + b"ACME    disk"
    port = bytes.fromhex("01130008") + bytes(8)
    uuid = bytes.fromhex("010a00121000") + bytes.fromhex("1234567890ab4cde8f01234567890abc")
    body = naa + t10 + port + uuid
    page = d.decode_vpd(bytes((0, 0x83)) + len(body).to_bytes(2, "big") + body)
    assert d.wwids(d.decode_designators(page)) == (
        "naa.600140557057e5700000000000000001",
        "t10.ACME disk",
        "uuid.12345678-90ab-4cde-8f01-234567890abc",
    )


def test_luns_and_unmap_lists() -> None:
    assert d.decode_luns(bytes.fromhex("0000001000000000") + bytes(8) + (1 << 48).to_bytes(8, "big")) == (
        0,
        1 << 48,
    )
    assert d.unmap_list((64, 8)).hex() == "0016001000000000" + "0000000000000040" + "00000008" + "00000000"


def test_target_port_groups_have_their_ports() -> None:
    one = bytes.fromhex("00010005 00000002 00000001 00000002".replace(" ", ""))
    other = bytes.fromhex("02010006 00000001 00000003".replace(" ", ""))
    data = (len(one) + len(other)).to_bytes(4, "big") + one + other
    found = d.decode_target_port_groups(data)
    assert found == (d.TargetPortGroup(0, 5, (1, 2), supported=1), d.TargetPortGroup(2, 6, (3,), supported=1))


def test_reservations_are_decoded_and_encoded() -> None:
    assert r.out_list(1, 2, aptpl=True).hex() == "000000000000000100000000000000020000000001000000"
    keys = r.decode_keys(
        bytes.fromhex("00000007 00000010".replace(" ", "")) + (5).to_bytes(8, "big") + (6).to_bytes(8, "big")
    )
    assert (keys.generation, keys.keys) == (7, (5, 6))
    held = r.decode_reservation(
        bytes.fromhex("0000000700000010") + (5).to_bytes(8, "big") + bytes(5) + b"\x03" + bytes(2)
    )
    assert (held.held, held.key, held.type) == (True, 5, PrType.EXCLUSIVE_ACCESS)
    assert not r.decode_reservation(bytes(8)).held
    assert r.decode_capabilities(bytes.fromhex("00080180ea010000")).types == {1, 3, 5, 6, 7, 8}


@pytest.mark.parametrize("kind", PrType)
def test_each_reservation_type_has_its_access_rights(kind: PrType) -> None:
    assert kind.registrants == ("REGISTRANTS" in kind.name)
    assert kind.reads_too == kind.name.startswith("EXCLUSIVE")
    assert kind.all_hold == kind.name.endswith("ALL_REGISTRANTS")


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


@pytest.mark.parametrize(("data", "fault"), [
    (fixed_sense(0, 0), ""),
    (fixed_sense(6, 0x2900)[:17], "ADDITIONAL SENSE LENGTH is 10, and 9 bytes follow it"),
    (bytes.fromhex("7000000000000000"), "8 bytes; fixed format has 18 at least"),
    (bytes.fromhex("7200000000000000"), ""),
    (bytes.fromhex("7206290080000000"), ""),  # SDAT_OVFL
    (bytes.fromhex("720629000000010000"), "reserved bytes 4 to 6 are 000001"),
    (bytes.fromhex("720500000000000a 000a8000000000000000000a".replace(" ", "")), "and 12 bytes follow it"),
    (bytes.fromhex("720500000000000c 000a800000000000000000ff".replace(" ", "")), ""),
    (bytes.fromhex("7205000000000004 00040000".replace(" ", "")), "the last descriptor ends past the data"),
    (bytes.fromhex("7205000000000006 030100030100".replace(" ", "")), "one is there twice"),
    (b"", "no sense data"),
])  # fmt: skip
def test_the_layout_of_sense_data_is_checked(data: bytes, fault: str) -> None:
    faults = "; ".join(layout_faults(data))
    assert fault in faults
    assert bool(fault) == bool(faults)
