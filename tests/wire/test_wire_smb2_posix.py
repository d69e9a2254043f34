"""The POSIX extensions: contexts and classes of information as bytes, and what is none."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storagetest.errors import RemoteProtocolError
from storagetest.wire.smb2 import contexts, posix

OWNER, GROUP = posix.encode_sid(21, 1000), posix.encode_sid(22)
CREATED = struct.pack("<III", 2, 0, 0o640) + OWNER + GROUP
INFO = struct.pack("<QQQQQQIQIIIII", 1, 2, 3, 4, 10, 4096, 32, 77, 5, 0, 2, 0, 0o640) + OWNER + GROUP
NAME = "a:b".encode("utf-16-le")
ENTRY = INFO + struct.pack("<I", len(NAME)) + NAME
PADDED = ENTRY + bytes(-(8 + len(ENTRY)) % 8)
LISTING = struct.pack("<II", 8 + len(PADDED), 0) + PADDED + bytes(8) + ENTRY
FS = struct.pack("<IIQQQQQQ", 65536, 4096, 100, 50, 40, 30, 20, 7)


def test_the_contexts_of_requests_are_these_bytes():
    assert posix.available() == (0x100, bytes.fromhex("93AD25509CB411E7B42383DE968BCD7C"))
    made = contexts.encode_create([posix.create(0o640)])
    assert made == struct.pack("<IHHHHI", 0, 16, 16, 0, 32, 4) + posix.GUID + b"\xa0\1\0\0"
    assert contexts.decode_create(made) == {posix.GUID: b"\xa0\1\0\0"}


def test_a_create_context_has_links_mode_and_owners():
    assert posix.decode_created(CREATED) == posix.PosixCreated(2, 0, 0o640, OWNER, GROUP)


def test_information_of_a_file():
    found = posix.decode_info(INFO)
    assert found == posix.PosixInfo(10, 4096, 32, 77, 5, 2, 0, 0o640, OWNER, GROUP)


def test_a_listing_has_the_names():
    assert [(one.name, one.inode, one.mode) for one in posix.decode_listing(LISTING)] == [
        ("a:b", 77, 0o640),
        ("a:b", 77, 0o640),
    ]


def test_information_of_a_file_system():
    assert posix.decode_fs(FS) == posix.PosixFs(65536, 4096, 100, 50, 40, 30, 20, 7)


@pytest.mark.parametrize(
    ("read", "data"),
    [
        (posix.decode_created, CREATED),
        (posix.decode_info, INFO),
        (posix.decode_listing, LISTING[len(PADDED) + 8 :]),
        (posix.decode_fs, FS),
    ],
)
def test_what_is_cut_anywhere_is_the_servers_fault(read, data):
    for length in range(1, len(data)):
        with pytest.raises(RemoteProtocolError):
            read(data[:length])


@pytest.mark.parametrize("step", [4, 12, len(LISTING) + 8])
def test_an_entry_that_leads_nowhere_is_the_servers_fault(step):
    with pytest.raises(RemoteProtocolError):
        posix.decode_listing(struct.pack("<I", step) + LISTING[4:])


@given(st.sampled_from([CREATED, INFO, LISTING, FS]), st.data())
def test_any_changed_bytes_are_read_or_the_servers_fault(data, draw):
    at = draw.draw(st.integers(0, len(data) - 1))
    raw = data[:at] + bytes([draw.draw(st.integers(0, 255))]) + data[at + 1 :]
    for read in (posix.decode_created, posix.decode_info, posix.decode_listing, posix.decode_fs):
        try:
            read(raw)
        except RemoteProtocolError:
            continue
