"""QUERY_INFO and SET_INFO: lengths, short buffers, values, access (MS-SMB2 3.3.5.20, 3.3.5.21)."""

from __future__ import annotations

import struct

import pytest

from storagetest.errors import RemoteProtocolError
from storagetest.polling import wait_until
from storagetest.suites.conformance.smb2.support import READ, case
from storagetest.wire.smb2.codes import (
    Access,
    Dialect,
    Disposition,
    FileInfo,
    FsInfo,
    InfoType,
    Options,
    SmbAttribute,
    SmbStatus,
)
from storagetest.wire.smb2.harness import expect
from storagetest.wire.smb2.information import FIXED_SIZES, FS_SIZES

pytestmark = [pytest.mark.needs("smb-wire"), pytest.mark.case(section="MS-SMB2 3.3.5.20.1", level="MUST")]

REFUSED = ("accepts-query-info", "status-query-info")
NOT_SET = ("accepts-set-info", "status-set-info")


def named(number):
    return number.name.replace("_", "-")


@pytest.mark.parametrize(
    ("info_class", "size"),
    [
        case(f"SMB-INFO-SIZE-{named(one)}", one, size, kills=("info-short",))
        for one, size in FIXED_SIZES.items()
    ],
)
@pytest.mark.case(section="MS-FSCC 2.4")
def test_a_file_class_of_fixed_size_has_that_size(tree, path, info_class, size):
    assert len(expect(tree.open(path).query(info_class)).buffer) == size


@pytest.mark.parametrize(
    ("info_class", "size"),
    [
        case(f"SMB-INFO-SHORT-{named(one)}", one, size, kills=("length-ignored", *REFUSED))
        for one, size in FIXED_SIZES.items()
    ],
)
def test_a_buffer_shorter_than_a_file_class_is_a_length_mismatch(tree, path, info_class, size):
    message = tree.open(path).query(info_class, length=size - 1)
    expect(message, SmbStatus.INFO_LENGTH_MISMATCH)


FS = pytest.mark.case(section="MS-SMB2 3.3.5.20.2")


@FS
@pytest.mark.parametrize(
    ("info_class", "size"),
    [
        case(
            f"SMB-FS-SIZE-{named(one)}",
            one,
            size,
            kills=("info-short", "device-type-zero") if one == FsInfo.DEVICE else ("info-short",),
        )
        for one, size in FS_SIZES.items()
    ],
)
def test_a_file_system_class_of_fixed_size_has_that_size(tree, path, info_class, size):
    message = expect(tree.open(path).query(info_class, kind=InfoType.FILESYSTEM))
    assert len(message.buffer) == size


@FS
@pytest.mark.parametrize(
    ("info_class", "size"),
    [
        case(f"SMB-FS-SHORT-{named(one)}", one, size, kills=("length-ignored", *REFUSED))
        for one, size in {**FS_SIZES, FsInfo.VOLUME: 18, FsInfo.ATTRIBUTE: 12}.items()
    ],
)
def test_a_buffer_shorter_than_the_fixed_part_is_a_length_mismatch(tree, path, info_class, size):
    message = tree.open(path).query(info_class, kind=InfoType.FILESYSTEM, length=size - 1)
    expect(message, SmbStatus.INFO_LENGTH_MISMATCH)


@FS
@pytest.mark.parametrize(
    ("info_class", "size"),
    [
        case(
            "SMB-FS-PART-VOLUME",
            FsInfo.VOLUME,
            24,
            kills=("length-ignored", "info-overflow-hidden", "volume-label-short"),
        ),
        case("SMB-FS-PART-ATTRIBUTE", FsInfo.ATTRIBUTE, 16, kills=("length-ignored", "info-overflow-hidden")),
    ],
)
def test_the_variable_part_of_a_file_system_class_is_cut(tree, path, info_class, size):
    file = tree.open(path)
    whole = expect(file.query(info_class, kind=InfoType.FILESYSTEM)).buffer
    if len(whole) <= size:
        pytest.skip("the class has no variable part here")
    message = file.query(info_class, kind=InfoType.FILESYSTEM, length=size)
    expect(message, SmbStatus.BUFFER_OVERFLOW)
    assert len(message.buffer) <= size


@pytest.mark.case("SMB-FS-PART-LENGTH", section="MS-FSA 2.1.5.13.5", kills=("file-system-name-length-cut",))
def test_a_name_that_is_cut_has_its_whole_length(tree, path):
    """FileSystemNameLength is that of the name of the file system, of which as much as fits is copied."""
    file = tree.open(path)
    whole = expect(file.query(FsInfo.ATTRIBUTE, kind=InfoType.FILESYSTEM)).buffer
    if len(whole) <= 16:
        pytest.skip("the name of the file system has two characters or less")
    message = expect(
        file.query(FsInfo.ATTRIBUTE, kind=InfoType.FILESYSTEM, length=16), SmbStatus.BUFFER_OVERFLOW
    )
    assert message.buffer[8:12] == whole[8:12], "FileSystemNameLength is not that of the whole name"
    assert message.buffer[12:] == whole[12 : len(message.buffer)]


@pytest.mark.parametrize(
    ("info_class", "size"),
    [case("SMB-INFO-PART-ALL", FileInfo.ALL, 104, kills=("length-ignored", "info-overflow-hidden"))],
)
def test_the_variable_part_of_a_file_class_is_cut(tree, path, info_class, size):
    message = tree.open(path).query(info_class, length=size)
    expect(message, SmbStatus.BUFFER_OVERFLOW)
    assert len(message.buffer) <= size


# Values


@pytest.fixture
def file(tree, path):
    """Return a file of 10 bytes that is open for everything the account may do."""
    opened = tree.open(path)
    expect(opened.write(b"0123456789"))
    return opened


def info(opened, info_class, layout, **more):
    """Return the fields at the start of a class."""
    return struct.unpack_from("<" + layout, expect(opened.query(info_class, **more)).buffer)


@pytest.mark.case("SMB-INFO-STANDARD", section="MS-FSCC 2.4.45", kills=("info-value-other",))
def test_the_standard_information_is_that_of_the_file(file):
    allocated, size, links, pending, directory = info(file, FileInfo.STANDARD, "QQIBB")
    assert (size, links, pending, directory) == (10, 1, 0, 0)
    assert not allocated or allocated >= size


@pytest.mark.case(
    "SMB-INFO-PENDING",
    section="MS-FSCC 2.4.45",
    kills=(
        "delete-pending-never",
        "disposition-ignored",
    ),
)
def test_a_file_to_be_deleted_is_pending(file):
    expect(file.delete_on_close())
    assert info(file, FileInfo.STANDARD, "QQIB")[3] == 1


@pytest.mark.case("SMB-INFO-DIRECTORY", section="MS-FSCC 2.4.45", kills=("info-value-other",))
def test_a_directory_is_one(tree, directory):
    opened = tree.open(directory, access=READ, options=Options.DIRECTORY_FILE)
    assert info(opened, FileInfo.STANDARD, "QQIBB")[4] == 1


@pytest.mark.case("SMB-INFO-INTERNAL", section="MS-FSCC 2.4.26", kills=("info-value-other",))
def test_the_file_number_is_the_same_in_every_open(tree, file):
    assert info(tree.open(file.name), FileInfo.INTERNAL, "Q") == info(file, FileInfo.INTERNAL, "Q")


@pytest.mark.case("SMB-INFO-NETWORK-OPEN", section="MS-FSCC 2.4.33", kills=("info-value-other",))
def test_the_network_open_information_is_that_of_create(tree, written):
    opened = tree.open(written(), access=READ, disposition=Disposition.OPEN)
    names = ("creation_time", "last_write_time", "change_time", "end_of_file", "attributes")
    created, _, changed, altered, _, size, attributes = info(opened, FileInfo.NETWORK_OPEN, "QQQQQQI")
    assert (created, changed, altered, size, attributes) == tuple(opened.message[name] for name in names)


@pytest.mark.case("SMB-INFO-BASIC", section="MS-FSCC 2.4.7", kills=("info-value-other",))
def test_the_basic_information_is_that_of_create(tree, written):
    opened = tree.open(written(), access=READ, disposition=Disposition.OPEN)
    created, _, changed, _, attributes = info(opened, FileInfo.BASIC, "QQQQI")
    wanted = tuple(opened.message[name] for name in ("creation_time", "last_write_time", "attributes"))
    assert (created, changed, attributes) == wanted


@pytest.mark.case("SMB-INFO-ACCESS", section="MS-FSCC 2.4.1", kills=("info-value-other", "access-more"))
def test_the_access_information_is_the_granted_access(tree, written):
    opened = tree.open(written(), access=Access.READ_DATA | Access.READ_ATTRIBUTES)
    (access,) = info(opened, FileInfo.ACCESS, "I")
    assert access & Access.READ_DATA
    assert not access & (Access.WRITE_DATA | Access.DELETE | Access.WRITE_DAC)


@pytest.mark.case("SMB-INFO-POSITION", level="SHOULD", kills=("info-value-other",))
def test_the_position_is_zero(file):
    assert info(file, FileInfo.POSITION, "Q") == (0,)


@pytest.mark.case("SMB-INFO-ALL", section="MS-FSCC 2.4.2", kills=("info-value-other",))
def test_all_information_is_that_of_its_parts(file):
    whole = expect(file.query(FileInfo.ALL)).buffer
    standard = expect(file.query(FileInfo.STANDARD)).buffer
    assert whole[40:62] == standard[:22]
    assert whole[:8] == expect(file.query(FileInfo.BASIC)).buffer[:8]
    assert whole[64:72] == expect(file.query(FileInfo.INTERNAL)).buffer


@pytest.mark.case("SMB-INFO-ALL-LENGTH", section="MS-FSCC 2.4.2", kills=("all-information-too-long",))
def test_all_information_ends_with_its_name(file):
    """Nothing follows FileName, the last field, but what aligns the structure."""
    whole = expect(file.query(FileInfo.ALL)).buffer
    end = 100 + struct.unpack_from("<I", whole, 96)[0]
    assert end <= len(whole) < end + 8, f"FileAllInformation has {len(whole)} bytes, its name ends at {end}"


@pytest.mark.case("SMB-INFO-TAG", section="MS-FSCC 2.4.6", kills=("info-value-other",))
def test_the_attribute_tag_has_the_attributes(file):
    attributes, tag = info(file, FileInfo.ATTRIBUTE_TAG, "II")
    assert (attributes, tag) == (info(file, FileInfo.BASIC, "QQQQI")[4], 0)


@pytest.mark.case("SMB-FS-ATTRIBUTE", section="MS-FSCC 2.5.1", kills=("info-short",))
def test_the_name_of_the_file_system_is_whole(file):
    data = expect(file.query(FsInfo.ATTRIBUTE, kind=InfoType.FILESYSTEM)).buffer
    _, longest, length = struct.unpack_from("<III", data)
    assert len(data) == 12 + length
    assert longest >= 12  # a name of the form 8.3


@pytest.mark.case(
    "SMB-FS-SIZES", section="MS-FSCC 2.5.4, 2.5.8", kills=("info-value-other", "volume-available-more")
)
def test_both_classes_of_sizes_have_one_total(file):
    kind = InfoType.FILESYSTEM
    total, _, sectors, size = info(file, FsInfo.SIZE, "QQII", kind=kind)
    full, _, _, full_sectors, full_size = info(file, FsInfo.FULL_SIZE, "QQQII", kind=kind)
    assert total * sectors * size == full * full_sectors * full_size
    assert size in (512, 1024, 2048, 4096)


@pytest.mark.parametrize(
    "dialect",
    [
        case("SMB-INFO-NORMALIZED-202", Dialect.SMB_2_0_2, kills=REFUSED),
        case("SMB-INFO-NORMALIZED-21", Dialect.SMB_2_1, kills=REFUSED),
        case("SMB-INFO-NORMALIZED-302", Dialect.SMB_3_0_2, kills=REFUSED),
    ],
)
def test_the_normalized_name_is_of_dialect_3_1_1(bench, path, dialect):
    expect(bench.tree([dialect]).open(path).query(FileInfo.NORMALIZED_NAME), SmbStatus.NOT_SUPPORTED)


@pytest.mark.parametrize(
    ("kind", "info_class"),
    [
        case("SMB-INFO-UNKNOWN-FILE", InfoType.FILE, 200, kills=REFUSED),
        case("SMB-INFO-UNKNOWN-FS", InfoType.FILESYSTEM, 200, kills=REFUSED, section="MS-SMB2 3.3.5.20.2"),
    ],
)
@pytest.mark.case(level="SHOULD")
def test_a_class_that_is_not_defined_is_an_invalid_class(file, kind, info_class):
    expect(file.query(info_class, kind=kind), SmbStatus.INVALID_INFO_CLASS)


OTHER_USE = (SmbStatus.INVALID_INFO_CLASS, SmbStatus.INVALID_PARAMETER, SmbStatus.NOT_SUPPORTED)
"""What a class is refused with that is not for this use, or that a file system does not have at all."""


@pytest.mark.parametrize(
    "info_class",
    [
        *(
            case(f"SMB-INFO-SET-ONLY-{named(one)}", one, kills=REFUSED)
            for one in (FileInfo.RENAME, FileInfo.LINK, FileInfo.VALID_DATA_LENGTH)
        ),
        *(
            case(f"SMB-INFO-SET-ONLY-{named(one)}", one, no_mutant_reason="smbd breaks this rule itself")
            for one in (FileInfo.DISPOSITION, FileInfo.ALLOCATION, FileInfo.END_OF_FILE)
        ),
    ],
)
@pytest.mark.case(section="MS-FSCC 2.4")
def test_a_class_that_is_set_alone_is_not_queried(file, info_class):
    """The server refuses a query of a class whose only use is to be set."""
    expect(file.query(info_class), *OTHER_USE)


@pytest.mark.parametrize(
    "info_class",
    [
        case(f"SMB-INFO-DENIED-{named(one)}", one, kills=("accepts-query-info",))
        for one in (FileInfo.BASIC, FileInfo.ALL, FileInfo.NETWORK_OPEN, FileInfo.ATTRIBUTE_TAG)
    ],
)
def test_attributes_are_not_queried_without_the_access(tree, written, info_class):
    opened = tree.open(written(), access=Access.WRITE_DATA, disposition=Disposition.OPEN)
    if info(opened, FileInfo.ACCESS, "I")[0] & Access.READ_ATTRIBUTES:
        pytest.skip("the server grants READ_ATTRIBUTES with every access")
    expect(opened.query(info_class), SmbStatus.ACCESS_DENIED)


# SET_INFO

SETS = pytest.mark.case(section="MS-SMB2 3.3.5.21.1, MS-FSA 2.1.5.15")


@SETS
@pytest.mark.parametrize(
    ("info_class", "size"),
    [
        case(f"SMB-SET-SHORT-{named(one)}", one, size, kills=NOT_SET)
        for one, size in {
            FileInfo.END_OF_FILE: 7,
            FileInfo.ALLOCATION: 7,
            FileInfo.POSITION: 7,
            FileInfo.MODE: 3,
            FileInfo.RENAME: 8,
        }.items()
    ],
)
def test_data_shorter_than_the_class_are_refused(file, info_class, size):
    expect(file.set(info_class, bytes(size)), SmbStatus.INFO_LENGTH_MISMATCH, SmbStatus.INVALID_PARAMETER)


@SETS
@pytest.mark.case("SMB-SET-SHORT-BASIC", no_mutant_reason="smbd breaks this rule itself")
def test_short_basic_information_is_refused(file):
    message = file.set(FileInfo.BASIC, bytes(39))
    expect(message, SmbStatus.INFO_LENGTH_MISMATCH, SmbStatus.INVALID_PARAMETER)


@SETS
@pytest.mark.parametrize(
    ("info_class", "data"),
    [
        case(
            f"SMB-SET-DENIED-{named(one)}", one, data, kills=("accepts-set-info", "access-more")
        )
        for one, data in (
            (FileInfo.END_OF_FILE, bytes(8)),
            (FileInfo.ALLOCATION, bytes(8)),
            (FileInfo.BASIC, bytes(32) + b"\x80" + bytes(7)),
            (FileInfo.DISPOSITION, b"\1"),
        )
    ],
)  # fmt: skip
def test_information_is_not_set_without_the_access(tree, written, info_class, data):
    opened = tree.open(written(), access=READ, disposition=Disposition.OPEN)
    expect(opened.set(info_class, data), SmbStatus.ACCESS_DENIED)


@SETS
@pytest.mark.case("SMB-SET-DENIED-RENAME", kills=("accepts-set-info", "access-more"))
def test_a_file_is_not_renamed_without_the_access(tree, written):
    name = written()
    opened = tree.open(name, access=READ, disposition=Disposition.OPEN)
    expect(opened.rename(f"{name}-new"), SmbStatus.ACCESS_DENIED)


@SETS
@pytest.mark.parametrize(
    "size",
    [case("SMB-SET-EOF-0", 0, kills=("size-not-set",)), case("SMB-SET-EOF-5", 5, kills=("size-not-set",))],
)
def test_a_file_is_cut(file, size):
    expect(file.set_size(size))
    assert info(file, FileInfo.STANDARD, "QQ")[1] == size
    if size:
        assert expect(file.read(100)).buffer == b"0123456789"[:size]


@SETS
@pytest.mark.case("SMB-SET-EOF-GROW", kills=("size-not-set",))
def test_a_file_grows_by_zeros(file):
    expect(file.set_size(20))
    assert expect(file.read(100)).buffer == b"0123456789" + bytes(10)


@SETS
@pytest.mark.case("SMB-SET-EOF-NEGATIVE", kills=NOT_SET)
def test_a_negative_size_is_an_invalid_parameter(file):
    expect(file.set_size(1 << 63), SmbStatus.INVALID_PARAMETER)


@SETS
@pytest.mark.parametrize(
    "attribute",
    [
        case("SMB-SET-HIDDEN", SmbAttribute.HIDDEN, kills=("attributes-not-set",)),
        case("SMB-SET-READONLY", SmbAttribute.READONLY, kills=("attributes-not-set",)),
        case("SMB-SET-SYSTEM", SmbAttribute.SYSTEM, kills=("attributes-not-set",)),
        case("SMB-SET-ARCHIVE", SmbAttribute.ARCHIVE | SmbAttribute.HIDDEN, kills=("attributes-not-set",)),
    ],
)
@pytest.mark.case(level="SHOULD")
def test_attributes_are_set(file, attribute):
    expect(file.set(FileInfo.BASIC, bytes(32) + struct.pack("<II", attribute, 0)))
    found = info(file, FileInfo.BASIC, "QQQQI")[4]
    expect(file.set(FileInfo.BASIC, bytes(32) + struct.pack("<II", SmbAttribute.NORMAL, 0)))
    assert found & attribute == attribute


@SETS
@pytest.mark.parametrize(
    "position",
    [
        case(
            "SMB-SET-CREATED",
            0,
            kills=(
                "zero-time-is-set",
                "attributes-not-set",
            ),
        ),
        case("SMB-SET-WRITTEN", 2, kills=("attributes-not-set",)),
    ],
)
def test_a_time_is_set_and_zero_leaves_the_others(tree, path, position):
    file = tree.open(path)
    before = info(file, FileInfo.BASIC, "QQQQ")
    times = [0, 0, 0, 0]
    times[position] = 0x01D00000_00000000  # a time in 2014, of whole seconds of 100 ns units
    times[position] -= times[position] % 10_000_000
    expect(file.set(FileInfo.BASIC, struct.pack("<QQQQII", *times, 0, 0)))
    after = info(file, FileInfo.BASIC, "QQQQ")
    assert after[position] == times[position]
    assert after[2 - position] == before[2 - position]


TIMES = {"CREATION": 0, "WRITE": 2}
"""Positions in FileBasicInformation of the times that a SET_INFO does not change by itself."""
OLD_TIME = 0x01D0_0000_0000_0000 - 0x01D0_0000_0000_0000 % 10_000_000
"""A time in 2014, of whole seconds of 100 ns units (chosen)."""


def basic(position: int, value: int) -> bytes:
    """Return FileBasicInformation in which one time is ``value`` and all else is left as it is."""
    times = [0, 0, 0, 0]
    times[position] = value
    return struct.pack("<4qII", *times, 0, 0)


@SETS
@pytest.mark.parametrize(
    ("position", "value"),
    [
        case(f"SMB-SET-TIME-{name}{value}", position, value, kills=("special-times-stored",))
        for name, position in TIMES.items()
        for value in (-1, -2)
    ],
)
@pytest.mark.case(section="MS-FSCC 2.4.7")
def test_a_special_time_is_not_stored(file, position, value):
    """-1 and -2 are about later operations: they are no times, and change none."""
    expect(file.set(FileInfo.BASIC, basic(position, OLD_TIME)))
    expect(file.set(FileInfo.BASIC, basic(position, value)))
    assert info(file, FileInfo.BASIC, "QQQ")[position] == OLD_TIME


@SETS
@pytest.mark.parametrize(
    "position",
    [case(f"SMB-SET-TIME-{name}-3", position) for name, position in TIMES.items()],
)
@pytest.mark.case(section="MS-FSA 2.1.5.15.2", no_mutant_reason="smbd breaks this rule itself")
def test_a_time_below_the_special_ones_is_an_invalid_parameter(file, position):
    expect(file.set(FileInfo.BASIC, basic(position, -3)), SmbStatus.INVALID_PARAMETER)


@SETS
@pytest.mark.case(
    "SMB-SET-TIME-STAYS", section="MS-FSCC 2.4.7", no_mutant_reason="smbd breaks this rule itself"
)
def test_a_write_does_not_change_a_time_that_is_to_stay(tree, written):
    """After a LastWriteTime of -1 the server changes it in no later operation on the same open."""
    name = written()
    first = tree.open(name)
    expect(first.set(FileInfo.BASIC, basic(2, OLD_TIME)))
    expect(first.close())
    file = tree.open(name)
    expect(file.set(FileInfo.BASIC, basic(2, -1)))
    expect(file.write(b"written"))
    expect(file.flush())
    assert info(file, FileInfo.BASIC, "QQQ")[2] == OLD_TIME


@SETS
@pytest.mark.case("SMB-SET-TIME-GOES-ON", section="MS-FSCC 2.4.7", kills=("time-minus-two-ignored",))
def test_a_write_changes_a_time_that_is_to_change_again(tree, path):
    """-2 ends what -1 began: a later write on the same open changes LastWriteTime."""
    file = tree.open(path)
    expect(file.set(FileInfo.BASIC, basic(2, -1)))
    expect(file.set(FileInfo.BASIC, basic(2, -2)))
    before = info(file, FileInfo.BASIC, "QQQ")[2]

    def is_changed():
        expect(file.write(b"written"))
        expect(file.flush())
        return info(file, FileInfo.BASIC, "QQQ")[2] > before

    deadline = tree.session.connection.deadline
    wait_until(is_changed, deadline, "a later LastWriteTime after -2", error=RemoteProtocolError)


@SETS
@pytest.mark.case("SMB-SET-DIRECTORY", no_mutant_reason="smbd breaks this rule itself")
def test_a_file_does_not_become_a_directory(file):
    data = bytes(32) + struct.pack("<II", SmbAttribute.DIRECTORY, 0)
    expect(file.set(FileInfo.BASIC, data), SmbStatus.INVALID_PARAMETER)


@SETS
@pytest.mark.case("SMB-SET-UNKNOWN", kills=("accepts-set-info", "status-set-info"), level="SHOULD")
def test_a_class_that_is_not_defined_is_not_set(file):
    expect(file.set(200, bytes(8)), SmbStatus.INVALID_INFO_CLASS, SmbStatus.NOT_SUPPORTED)


@pytest.mark.parametrize(
    ("info_class", "size"),
    [
        case(f"SMB-SET-QUERY-ONLY-{named(one)}", one, size, kills=NOT_SET)
        for one, size in {
            FileInfo.STANDARD: 24,
            FileInfo.INTERNAL: 8,
            FileInfo.EA: 4,
            FileInfo.ACCESS: 4,
            FileInfo.ALIGNMENT: 4,
            FileInfo.ALL: 104,
            FileInfo.STREAM: 24,
            FileInfo.COMPRESSION: 16,
            FileInfo.NETWORK_OPEN: 56,
            FileInfo.ATTRIBUTE_TAG: 8,
        }.items()
    ],
)
@pytest.mark.case(section="MS-FSCC 2.4")
def test_a_class_that_is_queried_alone_is_not_set(file, info_class, size):
    """The server refuses to set a class whose only use is to be queried, and the file remains."""
    before = expect(file.query(FileInfo.STANDARD)).buffer
    expect(file.set(info_class, bytes(size)), *OTHER_USE)
    assert expect(file.query(FileInfo.STANDARD)).buffer == before
