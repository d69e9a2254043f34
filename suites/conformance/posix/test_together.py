"""Two operations on one file, each of which works alone."""

from __future__ import annotations

import errno
import mmap
import os

import pytest

from storagetest.agent.testlib import assert_errno, run_as_user, skip
from storagetest.agent.testlib.libc import FALLOC_KEEP_SIZE, FALLOC_PUNCH_HOLE, fallocate
from storagetest.agent.testlib.mappings import map_file
from storagetest.agent.testlib.tmpfiles import hard_link, make_file, open_fd, pattern_bytes, symbolic_link

pytestmark = [
    pytest.mark.needs("filesystem"),
    pytest.mark.case(level="MUST", builds_on=("PSX-DATA-NEW-FILE",)),
]
unlink = "POSIX.1-2024 unlink(): DESCRIPTION"
rename = "POSIX.1-2024 rename(): DESCRIPTION"
write = "POSIX.1-2024 write(): DESCRIPTION"

USER = 54321


@pytest.mark.case(
    "PSX-TOGETHER-TRUNCATE-APPEND", section="POSIX.1-2024 open(): O_APPEND", kills=("append-after-truncate",)
)
def test_append_after_a_truncation_is_at_the_new_end(client_dir):
    """The file offset shall be set to the end of the file prior to each write: also to a new, smaller one."""
    make_file(client_dir / "f", b"0123456789" * 1000)
    with open_fd(client_dir / "f", os.O_WRONLY | os.O_APPEND) as appender, open_fd(client_dir / "f") as other:
        for size, part in ((5000, b"first"), (4096, b"second"), (20, b"third")):
            os.ftruncate(other, size)
            assert os.write(appender, part) == len(part)
            expected = (b"0123456789" * 500)[:size] + part
            assert (client_dir / "f").read_bytes() == expected, f"appended after ftruncate() to {size}"


@pytest.mark.case(
    "PSX-TOGETHER-WRITER-RESIZES",
    section="POSIX.1-2024 ftruncate(): DESCRIPTION; open(): O_APPEND, O_SYNC",
    kills=("ftruncate-of-append-refused", "ftruncate-of-sync-ignored"),
)
def test_each_descriptor_that_is_open_for_writing_sets_the_size(client_dir):
    """ftruncate() needs a descriptor that is open for writing, with whatever other flags."""
    others = {
        "no other flag": 0, "O_APPEND": os.O_APPEND, "O_SYNC": os.O_SYNC, "O_DSYNC": os.O_DSYNC,
        "O_NONBLOCK": os.O_NONBLOCK, "O_NOFOLLOW": os.O_NOFOLLOW,
        "O_APPEND and O_SYNC": os.O_APPEND | os.O_SYNC,
    }  # fmt: skip
    for access, name in ((os.O_WRONLY, "O_WRONLY"), (os.O_RDWR, "O_RDWR")):
        for text, flags in others.items():
            path = make_file(client_dir / "f", b"0123456789" * 1000)
            with open_fd(path, access | flags) as descriptor:
                for size in (5003, 9000, 9000, 0, 17):
                    try:
                        os.ftruncate(descriptor, size)
                    except OSError as error:
                        raise AssertionError(
                            f"ftruncate() of a descriptor with {name} and {text}: {error.strerror}; "
                            "required: it is open for writing"
                        ) from None
                    found = os.stat(path).st_size
                    assert found == size, f"ftruncate() to {size}, {name} and {text}, leaves {found} bytes"
                os.write(descriptor, b"end")
            wanted = bytes(17) + b"end" if flags & os.O_APPEND else b"end" + bytes(14)
            assert path.read_bytes() == wanted, f"data after ftruncate() with {name} and {text}"
            os.unlink(path)


@pytest.mark.case(
    "PSX-TOGETHER-UNLINKED",
    section=unlink,
    kills=("unlinked-file-not-resized", "unlinked-chmod-stale"),
)
def test_removed_open_file_is_written_and_resized(client_dir):
    """The contents of a removed open file stay, and can be written, extended and truncated."""
    with open_fd(make_file(client_dir / "f", b"before")) as descriptor:
        os.unlink(client_dir / "f")
        os.pwrite(descriptor, b"after", 10_000)
        os.ftruncate(descriptor, 10_003)
        assert os.fstat(descriptor).st_size == 10_003
        os.fsync(descriptor)
        assert os.pread(descriptor, 20_000, 0) == b"before" + bytes(9_994) + b"aft"
        os.ftruncate(descriptor, 3)
        assert os.pread(descriptor, 20_000, 0) == b"bef"
        os.fchmod(descriptor, 0o640)
        os.utime(descriptor, (1_000_000_000, 1_000_000_000))
        found = os.fstat(descriptor)
        assert (found.st_mode & 0o777, found.st_mtime) == (0o640, 1_000_000_000)


@pytest.mark.case("PSX-TOGETHER-LINK-UNLINK-WRITE", section=unlink, kills=("write-after-other-name-removed",))
def test_file_is_written_after_one_of_its_names_was_removed(client_dir):
    """A file with another link is written as before, by its descriptor and by that name."""
    with open_fd(make_file(client_dir / "a", b"first...")) as descriptor:
        hard_link(client_dir / "a", client_dir / "b")
        os.unlink(client_dir / "a")
        os.pwrite(descriptor, b"second", 0)
        assert (client_dir / "b").read_bytes() == b"second.."
    with open_fd(client_dir / "b", os.O_WRONLY | os.O_APPEND) as descriptor:
        os.write(descriptor, b"third")
    assert (client_dir / "b").read_bytes() == b"second..third"


@pytest.mark.case("PSX-TOGETHER-REPLACED-WRITE", section=rename, kills=("write-after-replaced-lost",))
def test_replaced_open_file_and_its_successor_are_two_files(client_dir):
    """Data written to a replaced open file do not go to the file that has its name now, nor the other way."""
    make_file(client_dir / "old", b"successor")
    with open_fd(make_file(client_dir / "new", b"replaced")) as descriptor:
        os.rename(client_dir / "old", client_dir / "new")
        os.pwrite(descriptor, b"R", 0)
        assert (client_dir / "new").read_bytes() == b"successor"
        with open_fd(client_dir / "new") as other:
            os.pwrite(other, b"S", 0)
        assert os.pread(descriptor, 20, 0) == b"Replaced"
        assert (client_dir / "new").read_bytes() == b"Successor"


@pytest.mark.case("PSX-TOGETHER-RENAME-OVER-LINK", section=rename, kills=("rename-follows-link",))
def test_rename_over_a_symbolic_link_replaces_the_link(client_dir):
    """If new names a symbolic link, the link itself is replaced, and the file that it names is kept."""
    make_file(client_dir / "f", b"kept")
    symbolic_link("f", client_dir / "link")
    make_file(client_dir / "old", b"moved")
    os.rename(client_dir / "old", client_dir / "link")
    assert sorted(os.listdir(client_dir)) == ["f", "link"]
    assert (client_dir / "f").read_bytes() == b"kept"
    assert not os.path.islink(client_dir / "link")
    assert (client_dir / "link").read_bytes() == b"moved"


@pytest.mark.server_inodes("st_ino*")
@pytest.mark.case(
    "PSX-TOGETHER-RENAME-KEEPS", section=rename, kills=("rename-replaced-mode", "rename-loses-attributes")
)
def test_file_that_replaces_another_keeps_its_attributes(client_dir):
    """rename() changes the name: mode, owner, times and extended attributes are those of the renamed file."""
    make_file(client_dir / "new", b"replaced", 0o600)
    make_file(client_dir / "old", b"the file", 0o751)
    os.chown(client_dir / "old", 1001, 1002)
    os.utime(client_dir / "old", (1_000_000_000, 1_100_000_000))
    attributes = True
    try:
        os.setxattr(client_dir / "old", "user.x", b"kept")
    except OSError as error:
        if error.errno != errno.EOPNOTSUPP:
            raise
        attributes = False
    before = os.stat(client_dir / "old")
    os.rename(client_dir / "old", client_dir / "new")
    after = os.stat(client_dir / "new")
    for name in ("st_ino", "st_mode", "st_uid", "st_gid", "st_size", "st_nlink", "st_mtime_ns"):
        assert getattr(after, name) == getattr(before, name), name
    if attributes:
        assert os.listxattr(client_dir / "new").count("user.x") == 1
        assert os.getxattr(client_dir / "new", "user.x") == b"kept"


@pytest.mark.case("PSX-TOGETHER-WRITE-RENAME", section=rename, kills=("rename-copies",))
def test_open_file_is_written_between_renames(client_dir):
    """A descriptor refers to the file, whatever its name is."""
    with open_fd(make_file(client_dir / "a", b".......")) as descriptor:
        for number, (old, new) in enumerate((("a", "b"), ("b", "c"), ("c", "a"))):
            os.rename(client_dir / old, client_dir / new)
            os.pwrite(descriptor, b"%d" % number, number)
            os.ftruncate(descriptor, 7 - number)
            assert (client_dir / new).read_bytes() == b"012"[: number + 1] + b"." * (6 - 2 * number)
            assert not os.path.lexists(client_dir / old)


@pytest.mark.case("PSX-TOGETHER-RENAME-DIRECTORY", section=rename, kills=("renamed-directory-refuses",))
def test_open_directory_is_used_after_its_rename(client_dir):
    """Descriptors of a renamed directory and of files in it refer to them still."""
    (client_dir / "a").mkdir()
    directory = os.open(client_dir / "a", os.O_RDONLY | os.O_DIRECTORY)
    with open_fd(make_file(client_dir / "a" / "f", b"one")) as descriptor:
        os.rename(client_dir / "a", client_dir / "b")
        os.pwrite(descriptor, b"two", 0)
        made = os.open("g", os.O_CREAT | os.O_WRONLY, 0o644, dir_fd=directory)
        os.write(made, b"new")
        os.close(made)
    os.close(directory)
    assert sorted(os.listdir(client_dir / "b")) == ["f", "g"]
    assert (client_dir / "b" / "f").read_bytes() == b"two"
    assert (client_dir / "b" / "g").read_bytes() == b"new"


@pytest.mark.case(
    "PSX-TOGETHER-COPY-SELF",
    section="copy_file_range(2): DESCRIPTION",
    kills=("copy-within-file-ignored",),
)
def test_range_is_copied_within_a_file(client_dir):
    """Both descriptors may be of one file; [EINVAL] if the ranges overlap."""
    if not hasattr(os, "copy_file_range"):
        skip("the client's Python has no copy_file_range()")
    data = pattern_bytes(20_000)
    with open_fd(make_file(client_dir / "f", data)) as one, open_fd(client_dir / "f") as two:
        done = 0
        while done < 6000:
            step = os.copy_file_range(one, two, 6000 - done, 100 + done, 12_000 + done)
            assert step > 0
            done += step
        assert_errno(errno.EINVAL, os.copy_file_range, one, two, 6000, 100, 200)
    assert (client_dir / "f").read_bytes() == data[:12_000] + data[100:6100] + data[18_000:]


@pytest.mark.case("PSX-TOGETHER-ZEROES", section=write, kills=("zeroes-not-written",))
def test_zeroes_overwrite_data(client_dir):
    """Bytes of value 0 are data as any others: a part of a block, whole blocks, and the whole file."""
    data = bytearray(b"\xff" * 70_000)
    with open_fd(make_file(client_dir / "f", bytes(data))) as descriptor:
        for offset, size in ((5, 1), (4096, 4096), (10_001, 30_000), (0, 70_000)):
            assert os.pwrite(descriptor, bytes(size), offset) == size
            data[offset : offset + size] = bytes(size)
            assert (client_dir / "f").read_bytes() == bytes(data), f"{size} zeroes at {offset}"


@pytest.mark.case("PSX-TOGETHER-SMALL-WRITE", section=write, kills=("write-below-end-cuts",))
def test_small_write_into_a_large_file_keeps_the_rest(client_dir):
    """A write changes its bytes, and neither the others nor the size."""
    data = bytearray(pattern_bytes(2 << 20))
    with open_fd(make_file(client_dir / "f", bytes(data))) as descriptor:
        for offset in (0, 65_535, 1 << 20, (2 << 20) - 3):
            os.pwrite(descriptor, b"abc", offset)
            data[offset : offset + 3] = b"abc"
    assert (client_dir / "f").read_bytes() == bytes(data)


@pytest.mark.case(
    "PSX-TOGETHER-READ-ONLY", section=unlink, kills=("unlink-needs-write-bit", "rename-needs-write-bit")
)
def test_read_only_files_are_replaced_and_removed(client_dir):
    """Only the directory's permission is required: the file's own bits do not matter."""
    client_dir.chmod(0o777)
    with run_as_user(USER, USER):
        for mode in (0o444, 0o000):
            make_file(client_dir / "old", b"moved", mode)
            make_file(client_dir / "new", b"replaced", mode)
            os.rename(client_dir / "old", client_dir / "new")
            assert os.stat(client_dir / "new").st_size == 5
            try:
                os.unlink(client_dir / "new")
            except PermissionError:
                os.chmod(client_dir / "new", 0o600)  # so that the case's directory can be removed
                raise
    assert os.listdir(client_dir) == []


@pytest.mark.case(
    "PSX-TOGETHER-CHMOD-WRITE",
    section="POSIX.1-2024 chmod(): DESCRIPTION",
    level="SHOULD",
    kills=("write-after-chmod-refused",),
)
def test_open_file_is_written_after_its_write_permission_is_gone(client_dir):
    """chmod() does not affect descriptors (implementation-defined); an open for writing is refused then."""
    client_dir.chmod(0o777)
    with run_as_user(USER, USER):
        with open_fd(make_file(client_dir / "f", b"12345", 0o600)) as descriptor:
            os.chmod(client_dir / "f", 0o400)
            assert os.pwrite(descriptor, b"written after", 0) == 13
            os.ftruncate(descriptor, 7)
            os.fsync(descriptor)
            assert_errno(errno.EACCES, os.open, client_dir / "f", os.O_WRONLY)
            assert_errno(errno.EACCES, os.truncate, client_dir / "f", 0)
        assert (client_dir / "f").read_bytes() == b"written"
        os.chmod(client_dir / "f", 0o600)
        with open_fd(client_dir / "f") as descriptor:
            os.pwrite(descriptor, b"again..", 0)
        assert (client_dir / "f").read_bytes() == b"again.."


@pytest.mark.case(
    "PSX-TOGETHER-MMAP-PWRITE", section="POSIX.1-2024 msync(): DESCRIPTION", kills=("mapped-write-lost",)
)
def test_mapped_and_written_bytes_of_one_page_are_all_kept(client_dir):
    """Changes through a mapping and by pwrite() to neighbouring bytes are all in the file after msync()."""
    page = mmap.PAGESIZE
    expected = bytearray(2 * page)
    with (
        open_fd(make_file(client_dir / "f", bytes(2 * page))) as descriptor,
        map_file(descriptor, 2 * page) as mapped,
    ):
        for number in range(16):
            start = number * 500
            data = bytes([65 + number]) * 500
            expected[start : start + 500] = data
            if number % 2:
                mapped[start : start + 500] = data
            else:
                os.pwrite(descriptor, data, start)
        mapped.flush()
        assert (client_dir / "f").read_bytes() == bytes(expected)


@pytest.mark.case(
    "PSX-TOGETHER-PUNCH-WRITE", section="fallocate(2): FALLOC_FL_PUNCH_HOLE", kills=("write-in-hole-lost",)
)
def test_punched_hole_is_written_and_punched_again(client_dir):
    """A hole reads as zeroes until it is written again, and then as the new data: each time."""
    data = bytearray(pattern_bytes(64 << 10))
    with open_fd(make_file(client_dir / "f", bytes(data))) as descriptor:
        for turn in range(2):
            fallocate(descriptor, FALLOC_PUNCH_HOLE | FALLOC_KEEP_SIZE, 8192, 16_384)
            data[8192 : 8192 + 16_384] = bytes(16_384)
            assert (client_dir / "f").read_bytes() == bytes(data), f"hole {turn + 1}"
            os.pwrite(descriptor, b"again" * 1000, 10_000)
            data[10_000:15_000] = b"again" * 1000
            assert (client_dir / "f").read_bytes() == bytes(data), f"write {turn + 1}"


def run(program) -> int:
    """Execute a program and return its exit status; raise the OSError of exec()."""
    if os.statvfs(program).f_flag & os.ST_NOEXEC:
        skip("no program can be executed here: the mount has the option noexec")
    _, status = os.waitpid(os.posix_spawn(program, [str(program)], {"PATH": "/usr/bin:/bin"}), 0)
    return os.waitstatus_to_exitcode(status)


@pytest.mark.case("PSX-EXEC", section="POSIX.1-2024 exec: DESCRIPTION", kills=("execute-refused",))
def test_program_is_executed(client_dir):
    """A file with execute permission is executed, by any user whom its mode permits."""
    make_file(client_dir / "program", b"#!/bin/sh\nexit 7\n", 0o755)
    assert run(client_dir / "program") == 7
    with run_as_user(USER, USER):
        assert run(client_dir / "program") == 7


@pytest.mark.case(
    "PSX-EXEC-REWRITTEN", section="POSIX.1-2024 exec: DESCRIPTION", kills=("program-after-rewrite-stale",)
)
def test_rewritten_program_is_executed_as_it_is_now(client_dir):
    """The process image is made from the file's present contents, after a write and after a rename."""
    program = make_file(client_dir / "program", b"#!/bin/true\n", 0o755)
    assert run(program) == 0
    for name, status in (("false", 1), ("true", 0)):
        with open_fd(program, os.O_WRONLY | os.O_TRUNC) as descriptor:
            os.write(descriptor, f"#!/bin/{name}\n".encode())
        assert run(program) == status, f"written again as {name}"
    make_file(client_dir / "next", b"#!/bin/false\n", 0o755)
    os.rename(client_dir / "next", program)
    assert run(program) == 1, "replaced by rename()"


@pytest.mark.case(
    "PSX-EXEC-EACCES", section="POSIX.1-2024 exec: ERRORS", kills=("execute-without-permission",)
)
def test_program_without_execute_permission_is_refused(client_dir):
    """[EACCES] The process has no execute permission for the file, or no class has it, even for root."""
    program = make_file(client_dir / "program", b"#!/bin/sh\nexit 7\n", 0o750)
    with run_as_user(USER, USER):
        assert_errno(errno.EACCES, run, program)
    program.chmod(0o644)
    assert_errno(errno.EACCES, run, program)
