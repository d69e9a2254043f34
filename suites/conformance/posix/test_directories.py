"""Directories: listed once and whole, also while they change; positions that stay."""

from __future__ import annotations

import ctypes
import errno
import os

import pytest

from storagetest.agent.testlib import assert_errno, record_observation
from storagetest.agent.testlib.tmpfiles import make_file, open_fd

pytestmark = [
    pytest.mark.needs("filesystem"),
    pytest.mark.case(level="MUST", section="POSIX.1-2024 readdir(): DESCRIPTION"),
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

    def rest(self) -> list:
        """Return all names from here on."""
        return list(iter(self.read, None))

    def tell(self) -> int:
        """Return the position of what is read next."""
        return self._c.telldir(self._stream)

    def seek(self, position: int) -> None:
        """Go to a position."""
        self._c.seekdir(self._stream, ctypes.c_long(position))

    def rewind(self) -> None:
        """Go to the beginning, and look anew."""
        self._c.rewinddir(self._stream)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._c.closedir(self._stream)


def filled(path, count: int = MANY) -> list:
    """Make a directory of so many entries (directories where they are few), and return their names."""
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
        names = stream.rest()
    assert sorted(names) in ([".", ".."], [])
    record_observation("dot and dot-dot are " + ("listed" if names else "not listed"))


@pytest.mark.exclusive
@pytest.mark.case("PSX-DIR-ALL", kills=("readdir-doubles", "readdir-ends-early", "readdir-loses"))
def test_every_entry_is_listed_once(client_dir):
    """readdir() returns each entry of the directory once, however many there are."""
    names = filled(client_dir / "d")
    assert sorted(os.listdir(client_dir / "d")) == names


@pytest.mark.case("PSX-DIR-TYPES", section="readdir(3): d_type", kills=("readdir-type-wrong",))
def test_the_types_that_are_listed_are_those_of_the_files(client_dir):
    """d_type indicates the file type, or says that it is unknown."""
    make_file(client_dir / "file")
    (client_dir / "directory").mkdir()
    os.mkfifo(client_dir / "fifo")
    with os.scandir(client_dir) as entries:
        seen = {entry.name: (entry.is_file(), entry.is_dir()) for entry in entries}
    assert seen == {"file": (True, False), "directory": (False, True), "fifo": (False, False)}


@pytest.mark.case(
    "PSX-DIR-INODES",
    section="POSIX.1-2024 <dirent.h>",
    level="SHOULD",
    kills=("inode-not-stable", "readdir-ino-wrong"),
)
def test_the_serial_numbers_that_are_listed_are_those_of_the_files(client_dir):
    """d_ino is the file serial number that stat() returns."""
    for number in range(10):
        make_file(client_dir / str(number))
    with os.scandir(client_dir) as entries:
        assert {entry.name: entry.inode() for entry in entries} == {
            str(number): os.stat(client_dir / str(number)).st_ino for number in range(10)
        }


@pytest.mark.case("PSX-DIR-REMOVED", kills=("readdir-stale",))
def test_what_was_removed_is_not_listed_any_more(client_dir):
    """A directory that is opened after an entry was removed does not return it."""
    names = filled(client_dir / "d", 20)
    for name in names[::2]:
        os.rmdir(client_dir / "d" / name)
        assert name not in os.listdir(client_dir / "d")
    assert sorted(os.listdir(client_dir / "d")) == names[1::2]


@pytest.mark.case("PSX-DIR-ADDED", kills=("readdir-stale",))
def test_what_was_added_is_listed_at_once(client_dir):
    """A directory that is opened after an entry was added returns it."""
    for number in range(10):
        os.listdir(client_dir)
        make_file(client_dir / str(number))
        assert str(number) in os.listdir(client_dir)


@pytest.mark.case(
    "PSX-DIR-REWIND", section="POSIX.1-2024 rewinddir(): DESCRIPTION", kills=("readdir-stale", "rewind-stale")
)
def test_rewinddir_begins_anew_and_sees_the_present_state(client_dir):
    """The stream shall refer to the current state of the directory, as opendir() would have it."""
    filled(client_dir / "d", 20)
    with Stream(client_dir / "d") as stream:
        first = stream.rest()
        (client_dir / "d" / "late").mkdir()
        os.rmdir(client_dir / "d" / "entry-00000")
        stream.rewind()
        again = stream.rest()
    assert set(again) == set(first) - {"entry-00000"} | {"late"}
    assert len(again) == len(set(again))


@pytest.mark.exclusive
@pytest.mark.case("PSX-DIR-CHURN-KEPT", kills=("readdir-ends-early",))
def test_entries_that_stay_are_listed_once_while_others_come_and_go(client_dir):
    """What is added or removed meanwhile may be returned or not; the others are, once each."""
    names = filled(client_dir / "d")
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
def test_a_directory_is_emptied_while_it_is_read(client_dir):
    """What rm -r does: each entry is removed as it is returned, and none is missed."""
    filled(client_dir / "d")
    with Stream(client_dir / "d") as stream:
        for name in iter(stream.read, None):
            if name not in (".", ".."):
                os.unlink(client_dir / "d" / name)
    assert os.listdir(client_dir / "d") == []


@pytest.mark.exclusive
@pytest.mark.case("PSX-DIR-COOKIES", section=seek)
def test_a_position_leads_back_to_where_it_was_taken(client_dir):
    """seekdir() sets the position to that which telldir() returned: the same entries follow."""
    filled(client_dir / "d")
    with Stream(client_dir / "d") as stream:
        places = []
        while True:
            place = stream.tell()
            name = stream.read()
            if name is None:
                break
            places.append((place, name))
        wrong = []
        for place, name in places[::17][::-1]:
            stream.seek(place)
            found = stream.read()
            if found != name:
                wrong.append((name, found))
    assert wrong == []


@pytest.mark.exclusive
@pytest.mark.case("PSX-DIR-COOKIES-UNIQUE", section=seek, kills=("readdir-doubles",))
def test_no_two_entries_have_one_position(client_dir):
    """A position stands for one place in the directory."""
    filled(client_dir / "d")
    with Stream(client_dir / "d") as stream:
        places = [stream.tell() for _ in iter(stream.read, None)]
    assert len(set(places)) == len(places)


@pytest.mark.exclusive
@pytest.mark.case(
    "PSX-DIR-COOKIES-CHURN", section=seek, kills=("readdir-cookie-is-index", "readdir-ends-early")
)
def test_a_position_stays_good_while_other_entries_come_and_go(client_dir):
    """From a position on, entries that stayed are returned as before, whatever came or went before it."""
    names = filled(client_dir / "d")
    with Stream(client_dir / "d") as stream:
        before = [stream.read() for _ in range(MANY // 2)]
        place = stream.tell()
        after = stream.rest()
        for name in [name for name in before if name not in (".", "..")][::3]:
            os.unlink(client_dir / "d" / name)
        for number in range(10):
            os.mknod(client_dir / "d" / f"new-{number}")
        stream.seek(place)
        again = stream.rest()
    missing = [name for name in after if name in names and name not in again]
    assert missing == []
    assert [name for name in again if name in before] == []


@pytest.mark.case("PSX-DIR-TWO-STREAMS", section="POSIX.1-2024 opendir(): DESCRIPTION")
def test_two_streams_have_a_position_each(client_dir):
    """Each opendir() gives a stream of its own."""
    names = filled(client_dir / "d", 20)
    with Stream(client_dir / "d") as one, Stream(client_dir / "d") as two:
        first = [one.read() for _ in range(8)]
        assert two.rest() == first + one.rest()
    assert len(names) == 20


@pytest.mark.case("PSX-DIR-REMOVED-OPEN", section="POSIX.1-2024 readdir(): DESCRIPTION")
def test_a_directory_removed_while_open_is_empty(client_dir):
    """A stream of a directory that is gone returns no entry of its, and no error but ENOENT or ESTALE."""
    (client_dir / "d").mkdir()
    with open_fd(client_dir / "d", os.O_RDONLY | os.O_DIRECTORY) as descriptor:
        os.rmdir(client_dir / "d")
        try:
            assert os.listdir(descriptor) == []
        except OSError as error:
            assert error.errno in (errno.ENOENT, errno.ESTALE)
            record_observation(f"a removed directory is read by {errno.errorcode[error.errno]}")


@pytest.mark.case("PSX-DIR-ENOTDIR", section="POSIX.1-2024 opendir(): ERRORS")
def test_a_file_is_not_read_as_a_directory(client_dir):
    """[ENOTDIR] A component of dirname names a file that is not a directory."""
    make_file(client_dir / "f")
    assert_errno(errno.ENOTDIR, os.listdir, client_dir / "f")


@pytest.mark.exclusive
@pytest.mark.case("PSX-DIR-LONG-NAMES", kills=("readdir-name-cut",))
def test_a_directory_of_long_names(client_dir):
    """Entries of the greatest length, of which few fit a reply, are all listed."""
    names = sorted(f"{number:03}" + "x" * 240 for number in range(60))
    for name in names:
        os.mknod(client_dir / name)
    assert sorted(os.listdir(client_dir)) == names


@pytest.mark.case(
    "PSX-DIR-NLINK-SUB",
    section="POSIX.1-2024 <sys/stat.h>",
    level="MAY",
    kills=("directory-links-not-counted",),
)
def test_sub_directories_are_counted_or_not_at_all(client_dir):
    """The link count of a directory is 2 and one for each sub-directory, or always 1."""
    for number in range(5):
        (client_dir / str(number)).mkdir()
        make_file(client_dir / f"f{number}")
    count = os.stat(client_dir).st_nlink
    record_observation(f"a directory of 5 directories has a link count of {count}")
    assert count in (7, 1, 2)
