"""Directory streams: complete listings, also during changes, and stable positions."""

from __future__ import annotations

import ctypes
import errno
import os
import stat

import pytest

from storagetest.agent.testlib import CannotRun, assert_errno, record_observation, skip
from storagetest.agent.testlib.libc import RENAME_EXCHANGE, renameat2
from storagetest.agent.testlib.many_entries import is_full
from storagetest.agent.testlib.tmpfiles import (
    fifo,
    longest_name,
    make_file,
    open_fd,
    rmdir_open_directory,
    symbolic_link,
)

pytestmark = [
    pytest.mark.needs("filesystem"),
    pytest.mark.case(
        level="MUST", builds_on=("PSX-DATA-NEW-FILE",), section="POSIX.1-2024 readdir(): DESCRIPTION"
    ),
]
seek = "POSIX.1-2024 seekdir(): DESCRIPTION"

MANY = 160
"""Entries of a directory that takes several READDIRs, and more than one QUERY_DIRECTORY of 16 KiB."""


class Entry(ctypes.Structure):
    """struct dirent of 64-bit Linux."""

    _fields_ = [
        ("ino", ctypes.c_uint64),
        ("offset", ctypes.c_int64),
        ("length", ctypes.c_ushort),
        ("kind", ctypes.c_ubyte),
        ("name", ctypes.c_char * 256),
    ]


class Stream:
    """A directory stream of the C library: readdir(), telldir(), seekdir(), rewinddir()."""

    def __init__(self, path) -> None:
        self._c = ctypes.CDLL(None, use_errno=True)
        self._c.opendir.restype = ctypes.c_void_p
        self._c.readdir.restype = ctypes.POINTER(Entry)
        self._c.telldir.restype = ctypes.c_long
        self._stream = ctypes.c_void_p(self._c.opendir(os.fsencode(path)))
        assert self._stream.value, os.strerror(ctypes.get_errno())

    def read(self):
        """Return the next name, or None at the end."""
        ctypes.set_errno(0)
        entry = self._c.readdir(self._stream)
        if not entry:
            assert ctypes.get_errno() == 0, os.strerror(ctypes.get_errno())
            return None
        return os.fsdecode(entry.contents.name)

    def read_types(self) -> dict:
        """Return name and d_type of the entries from the current position to the end."""
        found = {}
        while entry := self._c.readdir(self._stream):
            found[os.fsdecode(entry.contents.name)] = entry.contents.kind
        return found

    def read_inodes(self) -> dict:
        """Return name and d_ino of the entries from the current position to the end."""
        found = {}
        while entry := self._c.readdir(self._stream):
            found[os.fsdecode(entry.contents.name)] = entry.contents.ino
        return found

    def read_all(self) -> list:
        """Return the names from the current position to the end."""
        return list(iter(self.read, None))

    def telldir(self) -> int:
        """Return the position of the next entry."""
        return self._c.telldir(self._stream)

    def seekdir(self, position: int) -> None:
        """Set the position to ``position``."""
        self._c.seekdir(self._stream, ctypes.c_long(position))

    def rewinddir(self) -> None:
        """Go to the beginning and read the directory again."""
        self._c.rewinddir(self._stream)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._c.closedir(self._stream)


def make_entries(path, count: int = MANY) -> list:
    """Make a directory of ``count`` entries (directories for up to 20), and return their names."""
    path.mkdir()
    names = [f"entry-{number:05}" for number in range(count)]
    for name in names:
        os.mkdir(path / name) if count <= 20 else os.mknod(path / name)
    return names


@pytest.mark.case("PSX-DIR-DOTS")
def test_dot_and_dot_dot_are_listed_at_most_once(client_dir):
    """If entries for dot or dot-dot exist, one entry shall be returned for each."""
    (client_dir / "d").mkdir()
    with Stream(client_dir / "d") as stream:
        names = stream.read_all()
    assert sorted(names) in ([".", ".."], [])
    record_observation("dot and dot-dot are " + ("listed" if names else "not listed"))


@pytest.mark.exclusive
@pytest.mark.case("PSX-DIR-ALL", kills=("readdir-doubles", "readdir-ends-early", "readdir-loses"))
def test_every_entry_is_listed_once(client_dir):
    """readdir() returns each entry of the directory once, however many there are."""
    names = make_entries(client_dir / "d")
    assert sorted(os.listdir(client_dir / "d")) == names


@pytest.mark.case("PSX-DIR-TYPES", section="readdir(3): d_type", kills=("readdir-type-wrong",))
def test_d_type_is_the_files_type(client_dir):
    """d_type is the file's type, or DT_UNKNOWN."""
    make_file(client_dir / "file")
    (client_dir / "directory").mkdir()
    fifo(client_dir / "fifo")
    with os.scandir(client_dir) as entries:
        seen = {entry.name: (entry.is_file(), entry.is_dir()) for entry in entries}
    assert seen == {"file": (True, False), "directory": (False, True), "fifo": (False, False)}


@pytest.mark.case("PSX-DIR-TYPES-ALL", section="readdir(3): d_type", kills=("readdir-type-link-is-file",))
def test_d_type_of_every_kind_of_file(client_dir):
    """d_type is DT_REG, DT_DIR, DT_LNK, DT_FIFO, DT_SOCK, DT_CHR or DT_BLK, as st_mode is, or DT_UNKNOWN."""
    make_file(client_dir / "file")
    (client_dir / "directory").mkdir()
    symbolic_link("file", client_dir / "link-to-file")
    symbolic_link("directory", client_dir / "link-to-directory")
    symbolic_link("absent", client_dir / "dangling")
    makers = (
        ("fifo", stat.S_IFIFO),
        ("socket", stat.S_IFSOCK),
        ("character", stat.S_IFCHR),
        ("block", stat.S_IFBLK),
    )
    for name, kind in makers:
        try:
            os.mknod(client_dir / name, kind | 0o600, os.makedev(1, 3))
        except OSError as error:
            if error.errno not in (errno.EPERM, errno.EINVAL, errno.EOPNOTSUPP):
                raise
            record_observation(f"no {name} can be made: {errno.errorcode[error.errno]}")
    with Stream(client_dir) as stream:
        found = stream.read_types()
    wanted = {name: stat.S_IFMT(os.lstat(client_dir / name).st_mode) >> 12 for name in os.listdir(client_dir)}
    unknown = 0
    wrong = {name: found[name] for name in wanted if found[name] not in (wanted[name], unknown)}
    assert wrong == {}, f"d_type differs from st_mode: {wrong}"


@pytest.mark.case(
    "PSX-DIR-TYPES-MANY",
    section="readdir(3): d_type",
    kills=("readdir-later-types-file", "readdir-later-types-shifted"),
)
def test_d_type_of_each_of_many_entries(client_dir):
    """d_type is the file's type, or DT_UNKNOWN, also of entries that the first reply has no space for."""
    makers = [
        make_file,
        os.mkdir,
        lambda path: symbolic_link("absent", path),
        lambda path: os.mknod(path, stat.S_IFSOCK | 0o600),
        fifo,
    ]
    wanted = {}
    for number in range(420):
        path = client_dir / f"{number:03}-{'long' * 12}"
        while makers:
            make = makers[number % len(makers)]
            try:
                make(path)
            except (OSError, CannotRun) as error:
                if isinstance(error, OSError) and is_full(error, len(wanted)):
                    break
                assert make not in (make_file, os.mkdir), error
                makers.remove(make)  # the file system has none of this kind, as PSX-DIR-TYPES-ALL records
                continue
            break
        if not os.path.lexists(path):
            break
        wanted[path.name] = stat.S_IFMT(os.lstat(path).st_mode) >> 12
    with Stream(client_dir) as stream:
        for turn in ("first", "second"):
            found = stream.read_types()
            wrong = {
                name[:3]: (found.get(name), kind)
                for name, kind in wanted.items()
                if found.get(name) not in (kind, 0)
            }
            assert not wrong, (
                f"d_type of {len(wrong)} of {len(wanted)} entries is another than st_mode has, when they are "
                f"read for the {turn} time: {dict(list(wrong.items())[:5])}"
            )
            stream.rewinddir()


@pytest.mark.server_inodes
@pytest.mark.case(
    "PSX-DIR-INODES",
    section="POSIX.1-2024 <dirent.h>",
    level="SHOULD",
    kills=("inode-not-stable", "readdir-ino-wrong", "directory-dirent-number"),
)
def test_d_ino_is_the_files_serial_number(client_dir):
    """d_ino is the file serial number that stat() returns."""
    for number in range(10):
        make_file(client_dir / str(number))
        (client_dir / f"d{number}").mkdir()
    with os.scandir(client_dir) as entries:
        found = {entry.name: entry.inode() for entry in entries}
    assert found == {name: os.stat(client_dir / name).st_ino for name in found}
    assert len(found) == 20


def dot_dot(path):
    """Return d_ino of dot-dot."""
    with Stream(path) as stream:
        return stream.read_inodes().get("..")


@pytest.mark.server_inodes
@pytest.mark.case(
    "PSX-DIR-DOTDOT", section="POSIX.1-2024 <dirent.h>", level="SHOULD", kills=("dot-dot-is-the-root",)
)
def test_dot_dot_is_listed_with_the_number_of_the_parent(client_dir):
    """d_ino of dot-dot is the parent directory's file serial number, at each of several levels."""
    path = client_dir
    found, parents = [], []
    for name in ("one", "two", "three"):
        parents.append(os.stat(path).st_ino)
        path /= name
        path.mkdir()
        found.append(dot_dot(path))
    if set(found) == {None}:
        skip("dot-dot is not listed")
    assert found == parents, f"d_ino of dot-dot at three levels is {found}; the parents are {parents}"


@pytest.mark.server_inodes
@pytest.mark.case(
    "PSX-DIR-DOTDOT-MOVED",
    section="POSIX.1-2024 <dirent.h>, rename()",
    kills=("moved-directory-old-parent",),
)
def test_dot_dot_of_a_moved_directory_is_its_new_parent(client_dir):
    """d_ino of dot-dot is the parent directory's file serial number, also after the directory has moved."""
    for name in ("one", "two", "one/moved"):
        (client_dir / name).mkdir()

    if dot_dot(client_dir / "one/moved") != os.stat(client_dir / "one").st_ino:
        skip("dot-dot is not listed with the parent's serial number, also without a move: PSX-DIR-DOTDOT")
    for old, new in (("one", "two"), ("two", "one")):
        os.rename(client_dir / old / "moved", client_dir / new / "moved")
        found, parent = dot_dot(client_dir / new / "moved"), os.stat(client_dir / new).st_ino
        assert found == parent, (
            f"d_ino of dot-dot is {found} after a move from {old} to {new}; {new} is {parent}, "
            f"{old} is {os.stat(client_dir / old).st_ino}"
        )


@pytest.mark.server_inodes
@pytest.mark.case(
    "PSX-DIR-DOTDOT-EXCHANGED",
    section="POSIX.1-2024 readdir(): d_ino; rename(2): RENAME_EXCHANGE",
    kills=("exchanged-directory-old-parent",),
)
def test_dot_dot_of_exchanged_directories_is_their_new_parent(client_dir):
    """d_ino of dot-dot is the new parent's file serial number, for both of two directories."""
    for name in ("one", "two", "one/first", "two/second"):
        (client_dir / name).mkdir()
    for name in ("one/first", "two/second"):
        if dot_dot(client_dir / name) != os.stat((client_dir / name).parent).st_ino:
            skip("dot-dot is not listed with the parent's serial number, also without a move: PSX-DIR-DOTDOT")
    for time in (1, 2):
        renameat2(client_dir / "one/first", client_dir / "two/second", RENAME_EXCHANGE)
        for name in ("one/first", "two/second"):
            found, parent = dot_dot(client_dir / name), os.stat((client_dir / name).parent).st_ino
            assert found == parent, (
                f"d_ino of dot-dot in {name} is {found} after exchange {time}; its parent is {parent}"
            )


@pytest.mark.case("PSX-DIR-REMOVED", kills=("readdir-stale",))
def test_removed_entry_is_not_listed(client_dir):
    """A directory that is opened after an entry was removed does not return it."""
    names = make_entries(client_dir / "d", 20)
    for name in names[::2]:
        os.rmdir(client_dir / "d" / name)
        assert name not in os.listdir(client_dir / "d")
    assert sorted(os.listdir(client_dir / "d")) == names[1::2]


@pytest.mark.case("PSX-DIR-ADDED", kills=("readdir-stale",))
def test_new_entry_is_listed_immediately(client_dir):
    """A directory that is opened after an entry was added returns it."""
    for number in range(10):
        os.listdir(client_dir)
        make_file(client_dir / str(number))
        assert str(number) in os.listdir(client_dir)


@pytest.mark.case(
    "PSX-DIR-REWIND", section="POSIX.1-2024 rewinddir(): DESCRIPTION", kills=("readdir-stale", "rewind-stale")
)
def test_rewinddir_reads_the_current_state(client_dir):
    """The stream shall refer to the current state of the directory, as opendir() would have it."""
    make_entries(client_dir / "d", 20)
    with Stream(client_dir / "d") as stream:
        first = stream.read_all()
        (client_dir / "d" / "late").mkdir()
        os.rmdir(client_dir / "d" / "entry-00000")
        stream.rewinddir()
        again = stream.read_all()
    assert set(again) == set(first) - {"entry-00000"} | {"late"}
    assert len(again) == len(set(again))


@pytest.mark.exclusive
@pytest.mark.case("PSX-DIR-CHURN-KEPT", kills=("readdir-ends-early",))
def test_unchanged_entries_are_listed_once_during_changes(client_dir):
    """Entries that are added or removed during the listing may be returned or not; all others once each."""
    names = make_entries(client_dir / "d")
    gone = set()
    with Stream(client_dir / "d") as stream:
        seen = []
        for number, name in enumerate(iter(stream.read, None)):
            seen.append(name)
            if number % 25 == 0 and number // 25 < len(names) // 30:
                victim = names[number // 25 * 30 + 7]
                os.unlink(client_dir / "d" / victim)
                gone.add(victim)
                os.mknod(client_dir / "d" / f"late-{number:05}")
    kept = [name for name in names if name not in gone]
    counted = {name: seen.count(name) for name in kept}
    assert {name: count for name, count in counted.items() if count != 1} == {}
    assert gone, "nothing was removed while the directory was read"


@pytest.mark.exclusive
@pytest.mark.case("PSX-DIR-REMOVE-WHILE-READING", kills=("readdir-doubles",))
def test_removal_of_each_entry_during_the_listing_empties_the_directory(client_dir):
    """As rm -r does: each entry is removed when it is returned, and none is missed."""
    make_entries(client_dir / "d")
    with Stream(client_dir / "d") as stream:
        for name in iter(stream.read, None):
            if name not in (".", ".."):
                os.unlink(client_dir / "d" / name)
    assert os.listdir(client_dir / "d") == []


@pytest.mark.exclusive
@pytest.mark.case("PSX-DIR-COOKIES", section=seek)
def test_seekdir_returns_to_the_position_of_telldir(client_dir):
    """seekdir() sets the position that telldir() returned: the same entries follow."""
    make_entries(client_dir / "d")
    with Stream(client_dir / "d") as stream:
        positions = []
        while True:
            position = stream.telldir()
            name = stream.read()
            if name is None:
                break
            positions.append((position, name))
        wrong = []
        for position, name in positions[::17][::-1]:
            stream.seekdir(position)
            following = stream.read()
            if following != name:
                wrong.append((name, following))
    assert wrong == []


@pytest.mark.exclusive
@pytest.mark.case("PSX-DIR-COOKIES-UNIQUE", section=seek, kills=("readdir-doubles",))
def test_positions_are_unique(client_dir):
    """Each position identifies one entry of the directory."""
    make_entries(client_dir / "d")
    with Stream(client_dir / "d") as stream:
        positions = [stream.telldir() for _ in iter(stream.read, None)]
    assert len(set(positions)) == len(positions)


@pytest.mark.exclusive
@pytest.mark.case(
    "PSX-DIR-COOKIES-CHURN", section=seek, kills=("readdir-cookie-is-index", "readdir-ends-early")
)
def test_position_stays_valid_during_changes(client_dir):
    """After a seek, entries that still exist follow as before, despite changes before the position."""
    names = make_entries(client_dir / "d")
    with Stream(client_dir / "d") as stream:
        before = [stream.read() for _ in range(MANY // 2)]
        position = stream.telldir()
        after = stream.read_all()
        for name in [name for name in before if name not in (".", "..")][::3]:
            os.unlink(client_dir / "d" / name)
        for number in range(10):
            os.mknod(client_dir / "d" / f"new-{number}")
        stream.seekdir(position)
        again = stream.read_all()
    missing = [name for name in after if name in names and name not in again]
    assert missing == []
    assert [name for name in again if name in before] == []


@pytest.mark.case("PSX-DIR-TWO-STREAMS", section="POSIX.1-2024 opendir(): DESCRIPTION")
def test_streams_have_separate_positions(client_dir):
    """Each opendir() returns a stream with its own position."""
    names = make_entries(client_dir / "d", 20)
    with Stream(client_dir / "d") as one, Stream(client_dir / "d") as two:
        first = [one.read() for _ in range(8)]
        assert two.read_all() == first + one.read_all()
    assert len(names) == 20


@pytest.mark.case("PSX-DIR-REMOVED-OPEN", section="POSIX.1-2024 readdir(): DESCRIPTION")
def test_removed_open_directory_is_empty(client_dir):
    """A stream of a removed directory returns no entry, and no error but ENOENT or ESTALE."""
    (client_dir / "d").mkdir()
    with open_fd(client_dir / "d", os.O_RDONLY | os.O_DIRECTORY) as descriptor:
        rmdir_open_directory(client_dir / "d")
        try:
            assert os.listdir(descriptor) == []
        except OSError as error:
            assert error.errno in (errno.ENOENT, errno.ESTALE)
            record_observation(f"a removed directory is read by {errno.errorcode[error.errno]}")


@pytest.mark.case("PSX-DIR-ENOTDIR", section="POSIX.1-2024 opendir(): ERRORS")
def test_opendir_of_a_file_is_refused(client_dir):
    """[ENOTDIR] A component of dirname names a file that is not a directory."""
    make_file(client_dir / "f")
    assert_errno(errno.ENOTDIR, os.listdir, client_dir / "f")


@pytest.mark.exclusive
@pytest.mark.case(
    "PSX-DIR-LONG-NAMES", builds_on=("PSX-DATA-NEW-FILE", "PSX-NAME-LONGEST"), kills=("readdir-name-cut",)
)
def test_long_names_are_all_listed(client_dir):
    """Entries with long names, of which few fit into a reply, are all listed."""
    filling = "x" * (min(243, longest_name(client_dir)) - 3)
    names = sorted(f"{number:03}{filling}" for number in range(60))
    for name in names:
        os.mknod(client_dir / name)
    assert sorted(os.listdir(client_dir)) == names


@pytest.mark.case(
    "PSX-DIR-NLINK-SUB",
    section="POSIX.1-2024 <sys/stat.h>",
    level="MAY",
    kills=("directory-links-not-counted",),
)
def test_link_count_of_a_directory_counts_subdirectories_or_is_one(client_dir):
    """The link count of a directory is 2 and one for each sub-directory, or always 1."""
    for number in range(5):
        (client_dir / str(number)).mkdir()
        make_file(client_dir / f"f{number}")
    count = os.stat(client_dir).st_nlink
    record_observation(f"a directory of 5 directories has a link count of {count}")
    assert count in (7, 1, 2)
