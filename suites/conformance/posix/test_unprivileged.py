"""What a user without privilege does: the calls that the other modules make as root have the same effects.

POSIX gives privileges to some calls only. A user who owns a directory makes, writes, lists, renames and
removes files in it as root does, and their attributes are those that he sets.
"""

from __future__ import annotations

import os

import pytest

from storagetest.agent.testlib import run_as_user
from storagetest.agent.testlib.byte_model import first_difference
from storagetest.agent.testlib.file_sequence import FileSequence
from storagetest.agent.testlib.many_entries import make_many
from storagetest.agent.testlib.name_sequence import NameSequence
from storagetest.agent.testlib.tmpfiles import (
    longest_name,
    make_file,
    open_fd,
    symbolic_link,
    wait_clock_tick,
)
from storagetest.agent.testlib.tree_sequence import run_tree

pytestmark = [
    pytest.mark.needs("filesystem"),
    pytest.mark.server_inodes("*serial number*"),
    pytest.mark.case(level="MUST", builds_on=("PSX-DATA-NEW-FILE",)),
]

USER = 1001
SECONDS = 1.0
"""Seconds of one sequence (chosen); it has LEAST operations at least, on a slow target, too."""
LEAST = 150
ENTRIES = 400
"""Entries of a directory, more than one request lists (chosen)."""
MIB = 1 << 20


def place_of_user(client_dir):
    """Make a directory in which the user may make names; return the path of one that he makes."""
    open_to_all = client_dir / "all"
    open_to_all.mkdir()
    os.chmod(open_to_all, 0o777)
    return open_to_all / "own"


@pytest.mark.case(
    "PSX-SEQUENCE-DATA-USER",
    section="POSIX.1-2024 write(), ftruncate(), read(): DESCRIPTION",
    kills=("user-data-of-odd-page-lost", "user-punch-ignored"),
)
def test_file_of_a_user_has_the_data_that_the_operations_left(client_dir):
    """After each write, cut, append, hole, copy and mapping, size and data are those of the model."""
    own = place_of_user(client_dir)
    with run_as_user(USER, USER):
        own.mkdir(0o755)
        with FileSequence(own, 5) as sequence:
            sequence.run(SECONDS, LEAST)


@pytest.mark.case(
    "PSX-SEQUENCE-NAMES-USER",
    section="POSIX.1-2024 rename(), link(), unlink(), mkdir(), symlink(): DESCRIPTION",
    builds_on=("PSX-DATA-NEW-FILE", "PSX-KEPT-RENAME-INODE", "PSX-LINK-SAME-FILE", "PSX-LINK-NLINK"),
    kills=("user-moves-by-copy", "user-long-symlink-cut"),
)
def test_names_are_those_that_the_operations_of_a_user_left(client_dir):
    """After each call, listings, kinds, link counts, contents and attributes are those of the model."""
    own = place_of_user(client_dir)
    with run_as_user(USER, USER):
        own.mkdir(0o755)
        sequence = NameSequence(own, 5)
        try:
            sequence.run(SECONDS, LEAST)
        finally:
            sequence.close()


@pytest.mark.case(
    "PSX-SEQUENCE-TREE-USER",
    section="POSIX.1-2024 XBD 4.12 File Times Update; DESCRIPTION of each call",
    builds_on=(
        "PSX-DATA-NEW-FILE",
        "PSX-CHMOD-CTIME",
        "PSX-RENAME-REPLACE",
        "PSX-KEPT-RENAME-INODE",
        "PSX-LINK-SAME-FILE",
        "PSX-LINK-NLINK",
        "PSX-UTIMENS-OMIT-ATIME",
        "PSX-UTIMENS-OMIT-MTIME",
    ),
    kills=("user-moves-by-copy",),
)
def test_calls_of_a_user_on_files_in_each_state_leave_what_the_model_has(client_dir):
    """Names, attributes, data and time stamps of a user's files are those of the model after each call."""
    own = place_of_user(client_dir)
    with run_as_user(USER, USER):
        own.mkdir(0o755)
        run_tree(own, 5)


@pytest.mark.parametrize(
    "whose",
    [
        pytest.param(whose, marks=pytest.mark.case(f"PSX-USER-LISTING-{whose.upper()}"))
        for whose in ("own", "others")
    ],
)
@pytest.mark.case(
    section="POSIX.1-2024 readdir(): DESCRIPTION",
    builds_on=("PSX-DATA-NEW-FILE", "PSX-DIR-ALL"),
    kills=("user-listing-lacks-entry",),
)
def test_user_lists_every_entry_of_a_directory(client_dir, whose):
    """readdir() returns each entry once: of a user's own directory, and of one that he may only read."""
    longest = min(longest_name(client_dir), 200)
    names = [f"e{number:03}{'x' * (number % (longest - 3))}" for number in range(ENTRIES)]
    own = place_of_user(client_dir)
    if whose == "others":
        own.mkdir(0o755)
        names = make_many(own, names)
    with run_as_user(USER, USER):
        if whose == "own":
            own.mkdir(0o755)
            names = make_many(own, names)
        found = os.listdir(own)
    lost, more = sorted(set(names) - set(found)), sorted(set(found) - set(names))
    assert len(found) == len(set(found)), "a user's listing has names twice"
    assert not lost, f"a user's listing lacks {len(lost)} of {len(names)} names, {lost[0]} first"
    assert not more, f"a user's listing has {more[0]}, which does not exist"


@pytest.mark.parametrize(
    "length",
    [
        pytest.param(length, marks=pytest.mark.case(f"PSX-USER-WRITE-{length}"))
        for length in (4097, 65_537, MIB + 1, 3 * MIB + 1)
    ],
)
@pytest.mark.case(section="POSIX.1-2024 write(), read(): DESCRIPTION", kills=("user-long-write-cut",))
def test_data_that_a_user_wrote_are_read_by_all(client_dir, length):
    """read() returns what write() has stored: of a user's file to himself and to others, of theirs to him."""
    own = place_of_user(client_dir)
    mine, theirs = (
        bytes(index % 251 for index in range(length)),
        bytes(index % 241 for index in range(length)),
    )
    make_file(client_dir / "theirs", theirs)
    with run_as_user(USER, USER):
        own.mkdir(0o755)
        written = make_file(own / "mine", mine)
        same(written, mine, "a user's own file to him")
        same(client_dir / "theirs", theirs, "a file of another to a user")
    same(written, mine, "a user's file to another")
    with run_as_user(USER, USER), open_fd(written, os.O_RDWR) as descriptor:
        os.pwrite(descriptor, theirs, 0)
        os.ftruncate(descriptor, length - 1)
    same(written, theirs[:-1], "a user's file that he wrote again and cut")


def same(path, wanted, what):
    """Fail if a file has other data."""
    with open_fd(path, os.O_RDONLY) as descriptor:
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        found = b""
        while part := os.pread(descriptor, len(wanted) + 1, len(found)):
            found += part
    wrong = first_difference(found, wanted)
    assert not wrong, f"read() of {what} returns {wrong}"


@pytest.mark.case(
    "PSX-USER-SYMLINK",
    section="POSIX.1-2024 symlink(), readlink(): DESCRIPTION",
    kills=("user-long-symlink-cut",),
)
def test_link_of_a_user_has_its_contents(client_dir):
    """readlink() returns the contents that symlink() was given, of each length, to the user and to others."""
    own = place_of_user(client_dir)
    name = "n" * min(longest_name(client_dir), 200)
    texts = ["x", "a/b/", "y" * 59, "y" * 60, "y" * 61, name, f"{name[:150]}/{name[:100]}"]
    with run_as_user(USER, USER):
        own.mkdir(0o755)
        for number, text in enumerate(texts):
            symbolic_link(text, own / f"l{number}")
        mine = [os.readlink(own / f"l{number}") for number in range(len(texts))]
        mine_sizes = [os.lstat(own / f"l{number}").st_size for number in range(len(texts))]
    for number, text in enumerate(texts):
        other = os.readlink(own / f"l{number}")
        for found, whom in ((mine[number], "him"), (other, "another")):
            assert found == text, (
                f"readlink() of a user's link returns {len(found)} of {len(text)} bytes to {whom}"
            )
        assert mine_sizes[number] == len(text), f"st_size of a user's link of {len(text)} bytes"


@pytest.mark.case(
    "PSX-USER-TIMES",
    section="POSIX.1-2024 utimensat(): DESCRIPTION",
    builds_on=("PSX-DATA-NEW-FILE", "PSX-UTIMENS-SETS"),
    kills=("user-times-whole-seconds",),
)
def test_times_that_the_owner_sets_are_as_exact_as_those_that_root_sets(client_dir):
    """The times are set to the greatest value that the file system supports: for each owner."""
    own = place_of_user(client_dir)
    given = 1_234_567_890_123_456_789, 987_654_321_987_654_321
    make_file(client_dir / "f")
    os.utime(client_dir / "f", ns=given)
    wanted = os.stat(client_dir / "f")
    with run_as_user(USER, USER):
        own.mkdir(0o755)
        make_file(own / "f")
        os.utime(own / "f", ns=given)
        found = os.stat(own / "f")
    for name in ("st_atime_ns", "st_mtime_ns"):
        assert getattr(found, name) == getattr(wanted, name), f"{name} that a user sets, and that root sets"


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.case(f"PSX-USER-STAMPS-{name.upper()}", kills=kills))
        for name, kills in (
            ("chmod", ("user-chmod-leaves-ctime",)),
            ("utimes", ("user-times-leave-ctime",)),
            ("truncate", ("user-cut-leaves-mtime",)),
            ("write", ("user-write-leaves-mtime",)),
        )
    ],
)
@pytest.mark.case(section="POSIX.1-2024 XBD 4.12 File Times Update")
def test_call_of_a_user_marks_the_times(client_dir, name):
    """A change of the data marks mtime and ctime, one of the status ctime: by each user."""
    own = place_of_user(client_dir)
    with run_as_user(USER, USER):
        own.mkdir(0o755)
        path = make_file(own / "f", b"data")
        before = os.stat(path)
        wait_clock_tick(own, after=max(before.st_mtime_ns, before.st_ctime_ns))
        CALLS[name](path)
        after = os.stat(path)
    assert after.st_ctime_ns > before.st_ctime_ns, f"{name} by a user does not mark ctime"
    if name in ("truncate", "write"):
        assert after.st_mtime_ns > before.st_mtime_ns, f"{name} by a user does not mark mtime"


def write_more(path):
    """Write into a file and close it."""
    with open_fd(path, os.O_WRONLY) as descriptor:
        os.write(descriptor, b"more")


CALLS = {
    "chmod": lambda path: os.chmod(path, 0o640),
    "utimes": lambda path: os.utime(path, ns=(10**18, 10**18)),
    "truncate": lambda path: os.truncate(path, 2),
    "write": write_more,
}


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param(kind, marks=pytest.mark.case(f"PSX-USER-STATVFS-{kind.upper()}"))
        for kind in ("file", "directory")
    ],
)
@pytest.mark.case(section="POSIX.1-2024 statvfs(): DESCRIPTION", kills=("user-statvfs-needs-permission",))
def test_statvfs_needs_no_permission_of_the_file(client_dir, kind):
    """Read, write or execute permission of the named file is not required, nor to stat() it."""
    path = client_dir / "f"
    make_file(path) if kind == "file" else path.mkdir()
    os.chmod(path, 0)
    with run_as_user(USER, USER):
        for call in (os.stat, os.statvfs):
            try:
                call(path)
            except OSError as error:
                what = f"{call.__name__}() of a {kind} without permissions by another user"
                raise AssertionError(f"{what}: {error.strerror}") from None
