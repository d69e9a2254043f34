"""Other ways to the same file: what one client has changed is met by the other's less usual calls, too.

Sources: RFC 7530 10.3.1, 10.6, 10.7 and 10.8, nfs(5) (close-to-open; O_DIRECT disables data caching); mmap(2)
and msync(2); fallocate(2), FALLOC_FL_PUNCH_HOLE (RFC 7862 15.4, DEALLOCATE); rename(2), RENAME_NOREPLACE and
RENAME_EXCHANGE; POSIX.1-2024 open() (O_CREAT, O_EXCL, O_TRUNC), ftruncate(), rename(), unlink().
"""

from __future__ import annotations

from contextlib import suppress
from errno import EACCES, EBUSY, EEXIST, EINVAL, ENOENT, ENOSYS, EOPNOTSUPP, EPERM, ESTALE, ETXTBSY
from os import O_CREAT, O_DIRECT, O_EXCL, O_RDWR, O_TRUNC, O_WRONLY

import pytest

pytestmark = [
    pytest.mark.needs("filesystem", "shared", "two_clients"),
    pytest.mark.case(section="RFC 7530 10.3.1; nfs(5)", level="MUST"),
]

PUNCH_HOLE = 3  # FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, <linux/falloc.h>
NOREPLACE, EXCHANGE = 1, 2  # <linux/fs.h>
LACKING = {EINVAL, ENOSYS, EOPNOTSUPP, EPERM}
IN_USE = {EACCES, EBUSY, EPERM, ETXTBSY}
"""Errors by which a protocol with share modes (SMB) refuses to replace or remove an open file."""
MANY = 120
"""Files with names that begin alike: more than a small table has (chosen)."""


def _or_skip(call, *arguments, errors=LACKING) -> None:
    """Make the call; skip the case if the file system or protocol does not have it."""
    try:
        call(*arguments)
    except OSError as error:
        if error.errno not in errors:
            raise
        pytest.skip(f"this is refused here: {error}")


@pytest.mark.case("SHR-CTO-27", section="RFC 7530 10.7; msync(2)", kills=("two-msync-keeps-data",))
def test_open_reads_data_that_msync_has_written(a, b, crossed_wire):
    """msync() writes what was stored through a mapping: while it is still mapped, and each time."""
    a.write_file("f", bytes(8192))
    assert b.read_file("f") == bytes(8192)
    fd = a.open("f", O_RDWR)
    number = a.call("map", fd, 8192)
    for turn in range(3):
        with crossed_wire(a, "write"):
            a.call("poke", number, 4090, b"across %d pages" % turn)
            a.call("msync", number)
        found = b.read_file("f")
        assert found[4090:4104] == b"across %d pages" % turn, f"{found[4090:4104]!r} after msync() {turn}"
    a.call("unmap", number)


@pytest.mark.case("SHR-CTO-28", section="RFC 7530 10.3.1, 10.7; mmap(2)", kills=("two-mapped-data-old",))
def test_second_mapping_shows_current_data(a, b, crossed_wire):
    """A file that was mapped before is opened and mapped again: with the data of the other client."""
    a.write_file("f", b"first" * 4000)
    for turn in (b"first", b"other", b"third"):
        if turn != b"first":
            with crossed_wire(a, "write"):
                a.write_file("f", turn * 4000, O_CREAT)
        fd = b.open("f", O_RDWR)
        number = b.call("map", fd, 20_000)
        found = b.call("peek", number, 0, 20_000)
        b.call("unmap", number)
        b.close(fd)
        assert found == turn * 4000, f"{bytes(found[:5])!r} is mapped, after {turn!r} was written"


@pytest.mark.case("SHR-CTO-29", section="POSIX.1-2024 open(): O_TRUNC", kills=("two-known-empty-not-cut",))
def test_o_trunc_empties_a_file_that_the_client_knew_as_empty(a, b, crossed_wire):
    a.write_file("f", b"")
    assert b.stat("f").size == 0
    assert b.read_file("f") == b""
    with crossed_wire(a, "write"):
        a.write_file("f", b"written by the other", O_CREAT)
    with crossed_wire(b, "write"):
        b.write_file("f", b"short", O_TRUNC)
    assert a.read_file("f") == b"short"


@pytest.mark.slow
@pytest.mark.parametrize(
    "offset",
    [
        pytest.param(1 << 31, id="2-gib", marks=pytest.mark.case("SHR-CTO-30")),
        pytest.param((1 << 32) + 5, id="4-gib", marks=pytest.mark.case("SHR-CTO-31")),
    ],
)
@pytest.mark.case(kills=("two-old-past-2-gib",))
def test_open_revalidates_data_far_into_the_file(a, b, crossed_wire, offset):
    """Data at the offset, and before and behind it, are those of the other client's last close."""
    a.write_file("f", b"x")
    _or_skip(a.truncate, "f", offset + 20_000, errors={EINVAL, 27, 28})  # EFBIG, ENOSPC
    for turn in (b"first", b"other", b"third"):
        writer = a.open("f", O_WRONLY)
        with crossed_wire(a, "write"):
            a.pwrite(writer, turn * 1000, offset - 2500)
            a.close(writer)
        fd = b.open("f")
        found = b.pread(fd, 5000, offset - 2500)
        low = b.pread(fd, 10, 0)
        b.close(fd)
        assert found == turn * 1000, f"{found[:5]!r} and {found[-5:]!r} are read, {turn!r} was written"
        assert low == b"x" + bytes(9), "a write far into the file has changed its beginning"


@pytest.mark.case("SHR-CTO-32", section="nfs(5): O_DIRECT; open(2)", kills=("two-direct-reads-old",))
def test_direct_reads_are_of_the_data_that_the_other_client_wrote(a, b, crossed_wire):
    """A file opened with O_DIRECT is read as it is: after another open, and by the one that stayed open."""
    a.write_file("f", b"first" * 4096)
    try:
        stays = b.open("f", O_RDWR | O_DIRECT)
        assert b.call("read_direct", stays, 4096, 4096) == (b"first" * 4096)[4096:8192]
    except OSError as error:
        if error.errno not in LACKING:
            raise
        pytest.skip(f"there is no O_DIRECT here: {error}")
    for turn in (b"other", b"third"):
        with crossed_wire(a, "write"):
            a.write_file("f", turn * 4096, O_CREAT)
        again = b.open("f", O_RDWR | O_DIRECT)
        for name, fd in (("the next open", again), ("the open that stayed", stays)):
            found = b.call("read_direct", fd, 4096, 4096)
            assert found == (turn * 4096)[4096:8192], f"old data are read through {name}"
        b.close(again)


@pytest.mark.case(
    "SHR-CTO-33", section="RFC 7530 10.3.1; open(2): O_DIRECT", kills=("two-direct-write-unseen",)
)
def test_open_reads_data_that_were_written_directly(a, b, crossed_wire):
    """What was written with O_DIRECT is read by the other client, which had cached the file."""
    a.write_file("f", bytes(8192))
    try:
        fd = a.open("f", O_RDWR | O_DIRECT)
    except OSError as error:
        if error.errno not in LACKING:
            raise
        pytest.skip(f"there is no O_DIRECT here: {error}")
    for turn in range(1, 4):
        before = b.read_file("f")
        assert before[4096:] == bytes([turn - 1]) * 4096, "data are not those of the last direct write"
        with crossed_wire(a, "write"):
            a.call("write_direct", fd, bytes([turn]) * 4096, 4096)
    assert b.read_file("f") == bytes(4096) + bytes([3]) * 4096


@pytest.mark.case("SHR-CTO-34", kills=("two-closed-data-written-late",))
def test_write_without_a_read_is_not_undone(a, b, crossed_wire):
    """A client that opens for writing only, after the other's close, changes its own bytes; they stay."""
    a.write_file("f", b"." * 20)
    for turn, (session, other) in enumerate(((a, b), (b, a), (a, b))):
        for writer, data, offset in ((session, b"%d" % turn * 20, 0), (other, b"other", 5)):
            fd = writer.open("f", O_WRONLY)
            with crossed_wire(writer, "write"):
                writer.pwrite(fd, data, offset)
                writer.close(fd)
        wanted = b"%d" % turn * 5 + b"other" + b"%d" % turn * 10
        for reader in (a, b):
            found = reader.read_file("f")
            assert found == wanted, f"turn {turn}: {found!r} is read, {wanted!r} was written"


@pytest.mark.case("SHR-RANGE-05", section="fallocate(2): FALLOC_FL_PUNCH_HOLE", kills=("two-hole-unseen",))
def test_open_reads_zeroes_where_the_other_client_made_a_hole(a, b, crossed_wire):
    """A client that has cached the data reads zeroes in the hole, and what is around it."""
    a.write_file("f", b"data" * 20_000)
    assert b.read_file("f") == b"data" * 20_000
    wanted = bytearray(b"data" * 20_000)
    for offset, length in ((8192, 4096), (20_001, 5000)):
        fd = a.open("f", O_RDWR)
        _or_skip(a.call, "fallocate", fd, PUNCH_HOLE, offset, length)
        a.close(fd)
        wanted[offset : offset + length] = bytes(length)
        with crossed_wire(b, "query"):
            found = b.read_file("f")
        assert len(found) == 80_000, f"{len(found)} bytes after a hole was made in 80000"
        assert not found[offset : offset + length].strip(b"\0"), f"data are read in the hole at {offset}"
        assert found == wanted, "data around the hole are not those that were written"


@pytest.mark.case(
    "SHR-TURN-08", section="POSIX.1-2024 ftruncate(): DESCRIPTION", kills=("two-extension-restores",)
)
def test_extension_of_a_file_that_the_other_client_has_cut_reads_as_zeroes(a, b, crossed_wire):
    """What a client has read of the file before the cut is not there again when it extends the file."""
    for turn, (session, other) in enumerate(((a, b), (b, a))):
        name = f"f{turn}"
        session.write_file(name, b"old data" * 2000)
        assert other.read_file(name) == b"old data" * 2000
        with crossed_wire(session, "change"):
            session.truncate(name, 100)
        with crossed_wire(other, "change"):
            other.truncate(name, 12_000)
        for reader in (session, other):
            found = reader.read_file(name)
            assert len(found) == 12_000, f"{len(found)} bytes after truncate() to 12000"
            assert not found[100:].strip(b"\0"), "data that another client has cut off are read again"


@pytest.mark.case("SHR-ELECT-15", section="POSIX.1-2024 open(): O_EXCL", kills=("two-excl-over-symlink",))
def test_name_of_a_new_symbolic_link_is_not_created(a, b, crossed_wire):
    """O_EXCL fails with EEXIST if the other client has made a symbolic link of the absent name."""
    assert not b.exists("f")
    with crossed_wire(a, "change"):
        _or_skip(a.symlink, "elsewhere", "f")
    with pytest.raises(FileExistsError):
        b.open("f", O_CREAT | O_EXCL | O_WRONLY)
    assert a.readlink("f") == "elsewhere"
    assert not a.exists("elsewhere"), "the file was made where the symbolic link leads"


@pytest.mark.case("SHR-ELECT-16", section="rename(2): RENAME_NOREPLACE", kills=("two-noreplace-over-unseen",))
def test_name_cached_as_absent_is_not_replaced(a, b, crossed_wire):
    """RENAME_NOREPLACE fails with EEXIST, although the client has cached that the name is absent."""
    b.write_file("of-b", b"of b")
    b.write_file("try", b"of b")
    _or_skip(b.call, "rename_with", "try", "tried", NOREPLACE)
    assert not b.exists("f")
    with crossed_wire(a, "change"):
        a.write_file("f", b"mine")
    try:
        b.call("rename_with", "of-b", "f", NOREPLACE)
    except OSError as error:
        if error.errno != EEXIST:
            raise
    else:
        raise AssertionError("RENAME_NOREPLACE replaces the file that the other client has made")
    assert a.read_file("f") == b"mine"
    assert a.read_file("of-b") == b"of b"


@pytest.mark.case("SHR-KNOWN-11", section="POSIX.1-2024 open(): O_CREAT", kills=("two-creat-makes-another",))
def test_o_creat_opens_the_file_that_the_other_client_has_made(a, b, crossed_wire):
    """Without O_EXCL the client writes into the file that exists, though it knew the name as absent."""
    assert not b.exists("f")
    with crossed_wire(a, "write"):
        a.write_file("f", b"made by a")
    held = a.open("f")
    links = a.fstat(held).nlink
    fd = b.open("f", O_CREAT | O_RDWR)
    with crossed_wire(b, "write"):
        b.pwrite(fd, b"b", 8)
        b.close(fd)
    assert a.fstat(held).nlink == links, "the file that was made first is not the one of the name any more"
    assert a.read_file("f") == b"made by b"


@pytest.mark.slow
@pytest.mark.case("SHR-KNOWN-12", kills=("two-long-names-alike",))
def test_each_of_many_long_names_is_its_own_file(a, b, crossed_wire):
    """Names that differ in their last characters only lead to their own files, new ones and old ones."""
    names = ["n" * 200 + f"{number:04}" for number in range(MANY)]
    calls = [("write_file", name, b"file %s" % name[-4:].encode()) for name in names]
    with crossed_wire(a, "write"):
        assert not [one for one in a.each(calls, deadline=120) if isinstance(one, OSError)]
    for _ in range(2):
        found = b.each([("read_file", name, 1 << 16) for name in names], deadline=120)
        wrong = [n[-4:] for n, one in zip(names, found, strict=True) if one != b"file %s" % n[-4:].encode()]
        assert not wrong, f"{len(wrong)} of {MANY} names have not the data of their file, first {wrong[0]}"


@pytest.mark.case(
    "SHR-ATTR-20", section="RFC 7530 10.6; POSIX.1-2024 unlink()", kills=("two-links-only-grow",)
)
def test_removed_link_is_counted(a, b, crossed_wire, eventually):
    """The count of links that a client has seen grow is less when the other has removed one."""
    a.write_file("f", b"x")
    _or_skip(a.link, "f", "g")
    with crossed_wire(b, "query"):
        eventually(lambda: b.stat("f").nlink == 2, "the second link, which the other client made")
    with crossed_wire(a, "change"):
        a.unlink("g")
    with crossed_wire(b, "query"):
        eventually(lambda: b.stat("f").nlink == 1, "that the other client removed a link")


@pytest.mark.case("SHR-ATTR-19", section="RFC 7530 10.6; POSIX.1-2024 futimens()", kills=("two-atime-old",))
def test_new_access_time_is_seen(a, b, crossed_wire, eventually):
    """stat() returns the time of access that the other client set: each time."""
    a.write_file("f", b"x")
    b.stat("f")
    for second in (10**9, 1_200_000_000):
        with crossed_wire(a, "change"):
            a.utime("f", second * 10**9, 10**18)
        if a.stat("f").atime_ns != second * 10**9:
            pytest.skip("the time of access cannot be set here")
        with crossed_wire(b, "query"):
            eventually(lambda: b.stat("f").atime_ns == second * 10**9, "the time that was set")  # noqa: B023


@pytest.mark.case(
    "SHR-RENAME-10", section="POSIX.1-2024 ftruncate(), rename()", kills=("two-ftruncate-by-name",)
)
def test_cut_of_an_open_file_keeps_the_one_that_has_replaced_it(a, b, crossed_wire):
    """ftruncate() is of the open file. If the server knows it no more (ESTALE, ENOENT), of none."""
    a.write_file("f", b"the old one")
    a.write_file("new", b"the new one")
    fd = b.open("f", O_RDWR)
    with crossed_wire(a, "change"):
        _or_skip(a.rename, "new", "f", errors=IN_USE)
    try:
        b.ftruncate(fd, 3)
    except OSError as error:
        if error.errno not in (ENOENT, ESTALE, *IN_USE):
            raise
    with suppress(OSError):
        b.close(fd)
    assert a.read_file("f") == b"the new one", "the file that has taken the name was cut"


@pytest.mark.case("SHR-RENAME-11", section="rename(2): RENAME_EXCHANGE", kills=("two-name-of-a-living-file",))
def test_exchanged_names_are_seen(a, b, crossed_wire, eventually):
    """After RENAME_EXCHANGE by one client both names are the other file for the other client: each time."""
    a.write_file("f", b"one")
    a.write_file("g", b"two")
    wanted = [b"one", b"two"]
    assert [b.read_file("f"), b.read_file("g")] == wanted
    for turn in range(2):
        with crossed_wire(a, "change"):
            _or_skip(a.call, "rename_with", "f", "g", EXCHANGE)
        wanted.reverse()
        eventually(lambda: [b.read_file("f"), b.read_file("g")] == wanted, f"exchange {turn + 1}")


@pytest.mark.case("SHR-UNLINK-10", section="POSIX.1-2024 unlink(), close()", kills=("two-close-makes-again",))
def test_close_does_not_bring_a_removed_name_back(a, b, crossed_wire, eventually):
    """A file that was written, and then removed by the other client, has no name after the close."""
    a.write_file("f", b"the old one")
    a.write_file("stays", b"another")
    fd = b.open("f", O_RDWR)
    b.pwrite(fd, b"written", 0)
    with crossed_wire(a, "change"):
        _or_skip(a.unlink, "f", errors=IN_USE)
    with suppress(OSError):  # ESTALE: the server knows the file no more
        b.pwrite(fd, b"written again", 0)
    with suppress(OSError):
        b.close(fd)
    a.mkdir("of-a")  # the reply shows that others have changed the directory, too
    eventually(lambda: sorted(a.listdir()) == ["of-a", "stays"], "the names without the one that was removed")
