"""What a call leaves as it is, and what still holds after it: of the same file, and of its neighbours."""

from __future__ import annotations

import errno
import os
import stat

import pytest

from storagetest.agent.testlib import assert_errno, record_observation, skip
from storagetest.agent.testlib.many_entries import make_many
from storagetest.agent.testlib.mappings import map_file
from storagetest.agent.testlib.tmpfiles import (
    hard_link,
    make_file,
    open_fd,
    pattern_bytes,
    read_at,
    rmdir_open_directory,
    wait_clock_tick,
)

pytestmark = [
    pytest.mark.needs("filesystem"),
    pytest.mark.case(level="MUST", builds_on=("PSX-DATA-NEW-FILE",)),
]
open_section = "POSIX.1-2024 open(): DESCRIPTION"
rename = "POSIX.1-2024 rename(): DESCRIPTION"
readdir = "POSIX.1-2024 readdir(): DESCRIPTION"

MAKING = 8.0
"""Seconds in which the entries of the large directory are made; chosen: a case may take 20 s in all."""


@pytest.mark.server_inodes("st_ino after *")
@pytest.mark.case("PSX-KEPT-OPEN-CREAT", section=open_section, kills=("open-creat-sets-mode",))
def test_open_of_an_existing_file_ignores_its_mode_argument(client_dir):
    """O_CREAT has no effect if the file exists, with O_TRUNC, too: its mode and owner stay."""
    make_file(client_dir / "f", b"content", 0o640)
    os.chown(client_dir / "f", 1001, 1002)
    before = os.stat(client_dir / "f")
    for flags, content in ((0, b"content"), (os.O_TRUNC, b"")):
        for mode in (0o666, 0o400, 0o777):
            os.close(os.open(client_dir / "f", os.O_WRONLY | os.O_CREAT | flags, mode))
            after = os.stat(client_dir / "f")
            for name in ("st_mode", "st_uid", "st_gid", "st_ino", "st_nlink"):
                assert getattr(after, name) == getattr(before, name), f"{name} after a mode of {mode:o}"
        assert (client_dir / "f").read_bytes() == content


@pytest.mark.case("PSX-KEPT-OPEN-TIMES", section=open_section, kills=("open-marks-times",))
def test_open_and_close_without_data_mark_no_times(client_dir):
    """open() without O_CREAT and O_TRUNC, and close(), mark neither mtime nor ctime."""
    make_file(client_dir / "f", b"content")
    before = os.stat(client_dir / "f")
    wait_clock_tick(client_dir)
    for flags in (os.O_RDONLY, os.O_WRONLY, os.O_RDWR, os.O_WRONLY | os.O_APPEND):
        os.close(os.open(client_dir / "f", flags))
        after = os.stat(client_dir / "f")
        assert after.st_mtime_ns == before.st_mtime_ns, f"mtime after open() with flags {flags:#o}"
        assert after.st_ctime_ns == before.st_ctime_ns, f"ctime after open() with flags {flags:#o}"


@pytest.mark.case(
    "PSX-KEPT-OPEN-TRUNC-OPEN", section="POSIX.1-2024 open(): O_TRUNC", kills=("truncates-only-if-not-open",)
)
def test_o_trunc_truncates_a_file_that_is_open(client_dir):
    """O_TRUNC truncates a file that is open elsewhere, too: those descriptors read end-of-file."""
    for name, flags in (("read", os.O_RDONLY), ("written", os.O_RDWR)):
        make_file(client_dir / name, b"content" * 1000)
        with open_fd(client_dir / name, flags) as other:
            assert os.pread(other, 7, 0) == b"content"
            os.close(os.open(client_dir / name, os.O_WRONLY | os.O_TRUNC))
            assert os.stat(client_dir / name).st_size == os.fstat(other).st_size == 0
            assert os.pread(other, 7, 0) == b""
        assert (client_dir / name).read_bytes() == b""


@pytest.mark.case("PSX-KEPT-CREAT-EXECUTE", section=open_section, kills=("create-without-execute",))
def test_execute_bits_of_a_new_file_are_kept(client_dir):
    """The permission bits of a new file are those of the mode argument without the mask's: execute, too."""
    os.umask(0o022)
    for mode in (0o100, 0o711, 0o755, 0o777):
        os.close(os.open(client_dir / f"{mode:o}", os.O_CREAT | os.O_WRONLY, mode))
        assert stat.S_IMODE(os.stat(client_dir / f"{mode:o}").st_mode) == mode & ~0o022


@pytest.mark.case("PSX-KEPT-EXCL-RENAMED", section=open_section, kills=("exclusive-once-renamed",))
def test_exclusive_create_of_a_name_that_another_call_made(client_dir):
    """[EEXIST] O_CREAT and O_EXCL are set and the file exists: by whatever call it got the name."""
    make_file(client_dir / "first", b"kept")
    os.rename(client_dir / "first", client_dir / "f")
    hard_link(client_dir / "f", client_dir / "link")
    for name in ("f", "link"):
        assert_errno(errno.EEXIST, os.open, client_dir / name, os.O_CREAT | os.O_EXCL | os.O_WRONLY)
        assert (client_dir / name).read_bytes() == b"kept"


@pytest.mark.case(
    "PSX-KEPT-REMOVED-AGAIN", section="POSIX.1-2024 unlink(): ERRORS", kills=("removed-again-succeeds",)
)
def test_removed_name_cannot_be_removed_or_renamed_again(client_dir):
    """[ENOENT] The name does not exist: after unlink() of it, and after a rename() away from it."""
    for turn in range(2):
        make_file(client_dir / "f")
        os.unlink(client_dir / "f")
        assert_errno(errno.ENOENT, os.unlink, client_dir / "f")
        make_file(client_dir / "f")
        os.rename(client_dir / "f", client_dir / f"g{turn}")
        assert_errno(errno.ENOENT, os.rename, client_dir / "f", client_dir / "h")
        assert_errno(errno.ENOENT, os.unlink, client_dir / "f")
    assert sorted(os.listdir(client_dir)) == ["g0", "g1"]


@pytest.mark.case(
    "PSX-KEPT-LINKS-DATA", section="POSIX.1-2024 unlink(): DESCRIPTION", kills=("third-link-frees-data",)
)
def test_data_stay_until_the_last_link_is_removed(client_dir):
    """unlink() decrements the link count; the contents are removed with the last link, not before."""
    data = pattern_bytes(10_000)
    make_file(client_dir / "0", data)
    for number in range(1, 6):
        hard_link(client_dir / "0", client_dir / str(number))
    for number in range(5):
        os.unlink(client_dir / str(number))
        assert (client_dir / "5").read_bytes() == data, f"after {number + 1} of 6 links were removed"


@pytest.mark.server_inodes
@pytest.mark.case(
    "PSX-KEPT-RENAME-INODE",
    builds_on=("PSX-DATA-NEW-FILE", "PSX-RENAME-FILE", "PSX-RENAME-DIRECTORY"),
    section=rename,
    kills=("rename-gives-inode",),
)
def test_file_keeps_its_serial_number_in_another_directory(client_dir):
    """A renamed file is the same file: st_dev and st_ino stay, there and back."""
    for name in ("a", "b"):
        (client_dir / name).mkdir()
    for make in (make_file, os.mkdir):
        make(client_dir / "a" / "f")
        before = os.stat(client_dir / "a" / "f")
        for old, new in (("a/f", "b/g"), ("b/g", "f"), ("f", f"a/{make.__name__}")):
            os.rename(client_dir / old, client_dir / new)
            assert os.path.samestat(os.stat(client_dir / new), before), f"renamed from {old} to {new}"


@pytest.mark.case("PSX-KEPT-RENAME-TIMES", section=rename, kills=("rename-here-leaves-times",))
def test_rename_within_a_directory_updates_its_times(client_dir):
    """Mtime and ctime of the parent directory are marked, if both names are in one directory, too."""
    (client_dir / "d").mkdir()
    make_file(client_dir / "d" / "a")
    for old, new in (("a", "b"), ("b", "c")):
        before = os.stat(client_dir / "d")
        wait_clock_tick(client_dir)
        os.rename(client_dir / "d" / old, client_dir / "d" / new)
        after = os.stat(client_dir / "d")
        assert after.st_mtime_ns > before.st_mtime_ns
        assert after.st_ctime_ns > before.st_ctime_ns


@pytest.mark.case("PSX-KEPT-RENAME-BELOW", section=rename, kills=("renamed-directory-files-stale",))
def test_files_below_a_renamed_directory_stay_open(client_dir):
    """Descriptors of files below a renamed directory are read, written, and refer to the same files."""
    (client_dir / "a" / "b").mkdir(parents=True)
    make_file(client_dir / "a" / "f", b"near")
    make_file(client_dir / "a" / "b" / "f", b"far")
    with open_fd(client_dir / "a" / "f") as near, open_fd(client_dir / "a" / "b" / "f") as far:
        os.rename(client_dir / "a", client_dir / "c")
        assert (os.pread(near, 9, 0), os.pread(far, 9, 0)) == (b"near", b"far")
        for descriptor, path in ((near, "c/f"), (far, "c/b/f")):
            os.pwrite(descriptor, b"NEW", 0)
            os.fsync(descriptor)
            assert os.path.samestat(os.fstat(descriptor), os.stat(client_dir / path))
            assert (client_dir / path).read_bytes()[:3] == b"NEW"


@pytest.mark.case(
    "PSX-KEPT-DIRECTORY-NLINK",
    section="POSIX.1-2024 <sys/stat.h>: st_nlink",
    level="SHOULD",
    kills=("rename-leaves-parent-nlink", "rmdir-leaves-parent-nlink", "move-keeps-nlink"),
)
def test_link_counts_of_parents_follow_their_directories(client_dir):
    """If mkdir() raises the parent's link count, rename() and rmdir() of the directory lower it again."""
    for name in ("a", "b"):
        (client_dir / name).mkdir()
    empty = os.stat(client_dir / "a").st_nlink
    (client_dir / "a" / "d").mkdir()
    if os.stat(client_dir / "a").st_nlink == empty:
        record_observation(f"a directory has {empty} link(s), whatever is in it")
        added = 0
    else:
        added = 1

    def counts():
        return tuple(os.stat(client_dir / name).st_nlink - empty for name in ("a", "b"))

    assert counts() == (added, 0)
    os.rename(client_dir / "a" / "d", client_dir / "b" / "d")
    assert counts() == (0, added), "after rename() to another parent"
    (client_dir / "a" / "e").mkdir()
    os.rmdir(client_dir / "b" / "d")
    assert counts() == (added, 0), "after rmdir()"
    os.rmdir(client_dir / "a" / "e")
    assert counts() == (0, 0), "after rmdir() of each"


@pytest.mark.case(
    "PSX-KEPT-XATTR",
    section="xattr(7): DESCRIPTION",
    kills=("rename-away-loses-xattr", "truncation-loses-xattr"),
)
def test_attributes_stay_whatever_is_done_to_the_file(client_dir):
    """Extended attributes are of the file: no call on its names, data, mode or times removes them."""
    (client_dir / "d").mkdir()
    make_file(client_dir / "f", b"content" * 1000)
    try:
        os.setxattr(client_dir / "f", "user.x", b"kept")
    except OSError as error:
        if error.errno != errno.EOPNOTSUPP:
            raise
        skip("the file system has no user attributes")

    def rename_away():
        os.rename(client_dir / "f", client_dir / "d" / "g")
        os.rename(client_dir / "d" / "g", client_dir / "f")

    def rename_over():
        make_file(client_dir / "other")
        os.rename(client_dir / "f", client_dir / "other")
        os.rename(client_dir / "other", client_dir / "f")

    steps = {
        "write()": lambda: (client_dir / "f").open("r+b").close(),
        "truncate()": lambda: os.truncate(client_dir / "f", 10),
        "chmod()": lambda: os.chmod(client_dir / "f", 0o600),
        "utimensat()": lambda: os.utime(client_dir / "f", (1, 1)),
        "rename() to another directory and back": rename_away,
        "rename() over a file": rename_over,
        "O_TRUNC": lambda: (client_dir / "f").write_bytes(b"new"),
    }
    for name, step in steps.items():
        step()
        assert "user.x" in os.listxattr(client_dir / "f"), f"lost by {name}"
        assert os.getxattr(client_dir / "f", "user.x") == b"kept", f"changed by {name}"


@pytest.mark.case(
    "PSX-KEPT-FTRUNCATE-TIMES",
    section="POSIX.1-2024 ftruncate(): DESCRIPTION",
    kills=("truncate-same-size-leaves-times",),
)
def test_ftruncate_to_the_present_size_marks_the_times(client_dir):
    """Upon successful completion ftruncate() marks mtime and ctime; the size need not change."""
    with open_fd(make_file(client_dir / "f", b"content")) as descriptor:
        before = os.fstat(descriptor)
        wait_clock_tick(client_dir)
        os.ftruncate(descriptor, 7)
        after = os.fstat(descriptor)
    assert after.st_mtime_ns > before.st_mtime_ns
    assert after.st_ctime_ns > before.st_ctime_ns
    assert (client_dir / "f").read_bytes() == b"content"


@pytest.mark.case(
    "PSX-KEPT-MANY-WRITES",
    section="POSIX.1-2024 write(): DESCRIPTION",
    kills=("each-200th-write-lost", "write-256-lost"),
)
def test_each_of_a_thousand_writes_is_stored(client_dir):
    """Each write() of one descriptor is stored, at its offset, however many there are."""
    data = pattern_bytes(64 * 1000)
    with open_fd(make_file(client_dir / "f")) as descriptor:
        for start in range(0, len(data), 64):
            assert os.write(descriptor, data[start : start + 64]) == 64
            if start % 6400 == 0:
                os.fsync(descriptor)
    found = (client_dir / "f").read_bytes()
    assert len(found) == len(data)
    assert [at for at in range(0, len(data), 64) if found[at : at + 64] != data[at : at + 64]] == []


@pytest.mark.case(
    "PSX-KEPT-MMAP-LAST", section="POSIX.1-2024 mmap(): DESCRIPTION", kills=("mapped-tail-lost",)
)
def test_last_bytes_of_a_file_are_written_through_a_mapping(client_dir):
    """With MAP_SHARED, write references change the file up to its last byte, in a partial page, too."""
    for size in (1, 4095, 4097, 10_000):
        path = make_file(client_dir / str(size), bytes(size))
        with open_fd(path) as descriptor, map_file(descriptor, size) as mapped:
            mapped[size - 1] = 0x41
            mapped.flush()
        assert os.stat(path).st_size == size
        assert read_at(path, 10, size - 1) == b"A", f"the last of {size} bytes"


@pytest.mark.case(
    "PSX-KEPT-COPY-GAP", section="copy_file_range(2): DESCRIPTION", kills=("copied-range-without-gap",)
)
def test_range_is_copied_past_the_end_of_the_target(client_dir):
    """Data are copied to the given offset; the gap before it reads as zeroes."""
    if not hasattr(os, "copy_file_range"):
        skip("the client's Python has no copy_file_range()")
    data = pattern_bytes(9000)
    with (
        open_fd(make_file(client_dir / "a", data)) as source,
        open_fd(make_file(client_dir / "b", b"head")) as target,
    ):
        done = 0
        while done < 5000:
            step = os.copy_file_range(source, target, 5000 - done, 1000 + done, 70_000 + done)
            assert step > 0
            done += step
    assert (client_dir / "b").read_bytes() == b"head" + bytes(70_000 - 4) + data[1000:6000]


@pytest.mark.exclusive
@pytest.mark.case(
    "PSX-KEPT-DIRECTORY-1100",
    section=readdir,
    kills=(
        "entry-1000-twice",
        "entry-after-1024-lost",
        "unlinked-listed-in-large",
        "readdir-removed-skips",
        "renamed-directory-keeps-1000",
        "listing-again-ends-at-1000",
    ),
)
def test_directory_of_1100_entries(client_dir):
    """Each entry is returned once, after a rename and removals, too: in a directory larger than a reply.

    Through one descriptor the directory is listed again as it is then (rewinddir()).
    Entries that are removed after they were read take no other entry from the listing.
    """
    names = [f"e{number:04}" for number in range(1100)]
    (client_dir / "d").mkdir()
    names = make_many(client_dir / "d", names, MAKING)
    assert sorted(os.listdir(client_dir / "d")) == names
    os.rename(client_dir / "d", client_dir / "renamed")
    os.rename(client_dir / "renamed", client_dir / "d")
    assert sorted(os.listdir(client_dir / "d")) == names, "after a rename of the directory, and back"
    for place in (len(names) // 2, 0, -1):
        name = names.pop(place)
        os.unlink(client_dir / "d" / name)
        assert sorted(os.listdir(client_dir / "d")) == names, f"after unlink() of {name}"
    with open_fd(client_dir / "d", os.O_RDONLY) as directory:
        for turn in (1, 2, 3):
            found = sorted(os.listdir(directory))  # ends with rewinddir()
            assert len(found) == len(names), f"listing {turn} through one descriptor has {len(found)} names"
            assert found == names, f"listing {turn} through one descriptor"
            os.unlink(names.pop(len(names) * 7 // 11), dir_fd=directory)
    with os.scandir(client_dir / "d") as entries, open_fd(client_dir / "d", os.O_RDONLY) as directory:
        for entry in entries:
            os.unlink(entry.name, dir_fd=directory)
    left = os.listdir(client_dir / "d")
    assert left == [], f"{len(left)} entries are not read in a listing that removes each: {sorted(left)[:5]}"


SERVERS_NAMES = (
    ".snapshot",
    "~snapshot",
    ".zfs",
    ".snap",
    "._f",
    ".nfs0001",
    ".Trash",
    ".recycle",
    ".DS_Store",
)
"""Names that file servers use for themselves."""


@pytest.mark.case("PSX-KEPT-NAMES-HIDDEN", section=readdir, kills=("names-of-servers-hidden",))
def test_names_that_servers_use_are_listed_if_they_can_be_made(client_dir):
    """The entry of an existing file is returned. Servers may reserve names, and refuse them."""
    made = []
    for name in SERVERS_NAMES:
        try:
            make_file(client_dir / name, b"x")
        except OSError as error:
            record_observation(f"the name {name} is reserved: {os.strerror(error.errno or 0)}")
        else:
            made.append(name)
    assert sorted(os.listdir(client_dir)) == sorted(made)
    for name in made:
        assert (client_dir / name).read_bytes() == b"x"
        os.unlink(client_dir / name)
    assert os.listdir(client_dir) == []


@pytest.mark.case(
    "PSX-KEPT-REMOVED-DIRECTORY",
    section="POSIX.1-2024 rmdir(): DESCRIPTION",
    no_mutant_reason="the client's kernel refuses it by itself: the file system is not asked",
)
def test_nothing_is_made_in_a_removed_directory(client_dir):
    """No new entries may be created in a directory after its removal."""
    (client_dir / "d").mkdir()
    make_file(client_dir / "f")
    directory = os.open(client_dir / "d", os.O_RDONLY | os.O_DIRECTORY)
    try:
        rmdir_open_directory(client_dir / "d")
        gone = (errno.ENOENT, errno.ESTALE)  # RFC 1813 2.6 NFS3ERR_STALE: a server may have forgotten it
        assert_errno(gone, os.open, "f", os.O_CREAT | os.O_WRONLY, dir_fd=directory)
        assert_errno(gone, os.mkdir, "e", dir_fd=directory)
        assert_errno(gone, os.symlink, "target", "link", dir_fd=directory)
        assert_errno(gone, os.rename, client_dir / "f", "f", dst_dir_fd=directory)
    finally:
        os.close(directory)
    assert os.listdir(client_dir) == ["f"]
