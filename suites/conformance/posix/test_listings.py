"""Directories read in small parts, and names and extended attributes that differ little: each is kept."""

from __future__ import annotations

import ctypes
import errno
import os
import random
import struct
import time
from collections import Counter
from contextlib import suppress

import pytest

from storagetest.agent.testlib import assert_errno, skip
from storagetest.agent.testlib.many_entries import make_many
from storagetest.agent.testlib.tmpfiles import NO_VALUE_SPACE, hard_link, longest_name, make_file, open_fd

pytestmark = [
    pytest.mark.needs("filesystem"),
    pytest.mark.case(level="MUST", builds_on=("PSX-DATA-NEW-FILE",)),
]

_C = ctypes.CDLL(None, use_errno=True)
_DIRENT = struct.Struct("<QqHB")
"""struct linux_dirent64 before the name (getdents(2))."""


def read_part(descriptor, size):
    """Return (name, position after it) of the entries of one getdents64(2) with a buffer of ``size``."""
    if not hasattr(_C, "getdents64"):
        skip("the client's C library has no getdents64()")
    buffer = ctypes.create_string_buffer(size)
    length = _C.getdents64(descriptor, buffer, ctypes.c_size_t(size))
    if length < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    found, at = [], 0
    while at < length:
        _, position, step, _ = _DIRENT.unpack_from(buffer.raw, at)
        name = buffer.raw[at + _DIRENT.size : at + step]
        found.append((os.fsdecode(name[: name.index(b"\0")]), position))
        at += step
    return found


def read_rest(descriptor, size):
    """Return the names from the present position to the end, dot and dot-dot left out."""
    names = []
    while part := read_part(descriptor, size):
        names += [name for name, _ in part if name not in (".", "..")]
    return names


def fill(directory, count=60):
    """Make entries whose names are short and long, up to {NAME_MAX}; return the names."""
    longest = min(255, longest_name(directory.parent))
    directory.mkdir()
    lengths = (3, 20, min(100, longest), longest - 1, longest)
    names = [f"{number:03}".ljust(lengths[number % 5], "x") for number in range(count)]
    with open_fd(directory, os.O_RDONLY) as descriptor:
        for name in names:
            os.mknod(name, dir_fd=descriptor)
    return names


@pytest.mark.case(
    "PSX-DIR-PARTS",
    builds_on=("PSX-DATA-NEW-FILE", "PSX-NAME-LONGEST"),
    section="POSIX.1-2024 readdir(), posix_getdents(): DESCRIPTION",
    kills=("readdir-resumed-loses",),
)
def test_directory_read_in_parts_is_listed_whole(client_dir):
    """Each entry is returned once, with buffers for one entry and for many: from whichever entry on."""
    names = fill(client_dir / "d")
    for size in (280, 304, 500, 1024, 4096, 30_000):
        with open_fd(client_dir / "d", os.O_RDONLY) as descriptor:
            found = read_rest(descriptor, size)
            assert sorted(found) == names, f"read with a buffer of {size} bytes"
            assert read_part(descriptor, size) == [], f"read at the end with a buffer of {size} bytes"
            os.lseek(descriptor, 0, os.SEEK_SET)
            assert sorted(read_rest(descriptor, size)) == names, f"read again with {size} bytes"


@pytest.mark.case(
    "PSX-DIR-PARTS-CHANGED",
    builds_on=("PSX-DATA-NEW-FILE", "PSX-NAME-LONGEST"),
    section="POSIX.1-2024 readdir(), seekdir(): DESCRIPTION",
    kills=("readdir-cookie-is-index", "readdir-insertion-repeats"),
)
def test_directory_that_changes_between_parts(client_dir):
    """What is neither added nor removed is returned once, on the way and from each earlier position."""
    names = fill(client_dir / "d", 80)
    chosen = random.Random(8)  # noqa: S311  # a sequence, no secret
    gone, marks, seen = set(), [], []
    with (
        open_fd(client_dir / "d", os.O_RDONLY) as descriptor,
        open_fd(client_dir / "d", os.O_RDONLY) as place,
    ):
        while part := read_part(descriptor, 600):
            seen += [name for name, _ in part]
            marks.append((part[-1][1], list(seen)))
            for name in chosen.sample([name for name in seen if name in names], 1):
                if name not in gone and len(gone) < 25:
                    os.unlink(name, dir_fd=place)
                    gone.add(name)
                    os.mknod(f"{len(gone) * 37 % 80:03}-new", dir_fd=place)  # in order before and after it
        kept = [name for name in names if name not in gone]
        wrong = [name for name in kept if seen.count(name) != 1]
        assert not wrong, f"{len(wrong)} entries that stay are not returned once while others change"
        for position, before in chosen.sample(marks[:-1], min(6, len(marks) - 1)):
            os.lseek(descriptor, position, os.SEEK_SET)
            again = read_rest(descriptor, 900)
            after = [name for name in kept if name not in before]
            missing = [name for name in after if again.count(name) != 1]
            assert not missing, f"{len(missing)} entries are not returned once from an earlier position on"
            double = [name for name in again if name in before and name in kept]
            assert not double, f"{len(double)} entries before a position are returned after it"


class Stream:
    """A descriptor of a directory: the names that were read, and those that have to be read once.

    ``marks``: positions since the last rewind, each with the names that are before it.
    """

    def __init__(self, directory, names):
        self.descriptor = os.open(directory, os.O_RDONLY)
        self.rewind(names)

    def rewind(self, names):
        """Go to the start: changes until now have to be seen, later ones may be."""
        os.lseek(self.descriptor, 0, os.SEEK_SET)
        self.seen, self.marks, self.changed = [], [], set()
        self.names = set(names)

    def read(self, size, history):
        """Read one part; at the end, compare what was read from the start on."""
        part = read_part(self.descriptor, size)
        if part:
            self.seen += [name for name, _ in part if name not in (".", "..")]
            self.marks.append((part[-1][1], list(self.seen)))
            return
        found = set(self.seen)
        lost = self.names - self.changed - found
        assert not lost, f"{len(lost)} names are not returned, {sorted(lost)[:3]}: {history}"
        times = Counter(self.seen)
        double = [name for name in found - self.changed if times[name] > 1]
        assert not double, f"{len(double)} names are returned twice, {sorted(double)[:3]}: {history}"
        extra = found - self.names - self.changed
        assert not extra, f"{sorted(extra)[:3]} do not exist, or no more at the rewind: {history}"

    def finish(self):
        """Read up to the end, and close."""
        before = -1
        while before < len(self.seen) < 2000:
            before = len(self.seen)
            self.read(9000, "at the end")
        os.close(self.descriptor)

    def back(self, mark):
        """Go to an earlier position: what follows is what followed it before."""
        position, self.seen = mark[0], list(mark[1])
        os.lseek(self.descriptor, position, os.SEEK_SET)


def change(place, names, new, chosen):
    """Make, remove or rename an entry, and change ``names``; return the names that are concerned."""
    old, before = chosen.choice(sorted(names)), set(names)
    what = chosen.choice(("made", "removed", "renamed"))
    if what == "made":
        os.mknod(new, dir_fd=place)
    elif what == "removed":
        os.unlink(old, dir_fd=place)
    else:
        os.rename(old, new, src_dir_fd=place, dst_dir_fd=place)
    if what != "made":
        names.remove(old)
    if what != "removed":
        names.add(new)
    return names ^ before


STREAMED, STREAM_SECONDS = 520, 6
"""Entries of the large directory, and seconds after which no further step is begun (chosen)."""


@pytest.mark.case(
    "PSX-DIR-STREAMS",
    section="POSIX.1-2024 readdir(), rewinddir(), seekdir(): DESCRIPTION",
    builds_on=("PSX-DATA-NEW-FILE", "PSX-DIR-PARTS"),
    kills=("seekdir-in-large-directory-late",),
)
def test_streams_of_a_large_directory_keep_their_places(client_dir):
    """Of three streams in one directory, each returns what stays once, from any position it had before.

    In a seeded order they are read in parts of each size, set back and rewound, and names are made, removed
    and renamed: a stream returns those once that exist since its start.
    """
    directory, chosen = client_dir / "d", random.Random(21)  # noqa: S311  # a sequence, no secret
    directory.mkdir()
    names = set(make_many(directory, [f"{number:03}" + "x" * (number % 7 * 9) for number in range(STREAMED)]))
    if len(names) < STREAMED:  # the directory is full, and names are made below
        for name in sorted(names)[::10]:
            os.unlink(directory / name)
            names.remove(name)
    with open_fd(directory, os.O_RDONLY) as place:
        streams = [Stream(directory, names) for _ in range(3)]

        until = time.monotonic() + STREAM_SECONDS
        for number in range(80):
            if time.monotonic() > until:
                break  # a client whose directories take long
            one = chosen.choice(streams)
            what = chosen.choice(("read", "read", "read", "read", "back", "rewind", "change"))
            history = f"step {number}, stream {streams.index(one)} of 3"
            if what == "change":
                changed = change(place, names, f"{number * 37 % STREAMED:03}-new", chosen)
                for each in streams:
                    each.changed |= changed
            elif what == "rewind" and number % 3 == 0:
                one.rewind(names)
            elif what == "back" and one.marks:
                one.back(chosen.choice(one.marks))
            else:
                one.read(chosen.choice((2000, 9000, 40_000)), history)
        for one in streams:
            one.finish()


PAIRS = [
    ("É", "é"), ("Ж", "ж"), ("ß", "ss"), ("ß", "\u1e9e"), ("I", "\u0131"), ("K", "\u212a"), ("\ufb01", "fi"),
    ("e\u0301", "é"), ("\uac00", "\u1100\u1161"), ("A", "\uff21"), ("a", "a "), ("a", "a."), ("a", "a\u200b"),
    ("a:b", "a"), ("a\\b", "a_b"), ("n" * 100 + "1", "n" * 100 + "2"), ("a%20b", "a b"), ("a+b", "a b"),
    ("a&amp;b", "a&b"), ("a=3Db", "a=b"),
]  # fmt: skip
"""Two names that a file system could take for one: by case, form, width, encoding, characters it drops."""


@pytest.mark.case(
    "PSX-NAME-PAIRS",
    section="POSIX.1-2024 XBD 3 Filename; XBD 4.16 Pathname Resolution",
    builds_on=("PSX-DATA-NEW-FILE", "PSX-NAME-CASE", "PSX-NAME-NORMALIZATION", "PSX-NAME-TRAILING-DOT",
               "PSX-NAME-TRAILING-SPACE", "PSX-NAME-COLON", "PSX-NAME-BACKSLASH"),
    kills=("name-case-folded-beyond-ascii", "percent-names-decoded"),
)  # fmt: skip
def test_names_that_differ_are_two_files(client_dir):
    """Names are compared byte by byte: each of two similar names has its own file, and one is no other."""
    longest = longest_name(client_dir)
    for number, (one, other) in enumerate(PAIRS):
        if max(len(os.fsencode(name)) for name in (one, other)) > longest:
            continue
        place = client_dir / str(number)
        place.mkdir()
        make_file(place / one, b"one")
        assert_errno(errno.ENOENT, os.lstat, place / other)
        make_file(place / other, b"other")
        assert sorted(os.listdir(place)) == sorted([one, other]), f"{one!r} and {other!r}"
        assert (place / one).read_bytes() == b"one", f"{one!r} and {other!r}"
        os.unlink(place / one)
        assert os.listdir(place) == [other], f"{one!r} and {other!r}"
        os.rename(place / other, place / one)
        assert os.listdir(place) == [one], f"{other!r} renamed to {one!r}"


NAMES = ("user.a", "user.ab", "user.abc", "user.b", "user.a.b", "user." + "n" * 200, "user.é", "user.e\u0301")
SIZES = (0, 1, 50, 120, 255, 256, 400)


class AttributeSequence:
    """Attributes of one file, set and removed in a seeded order by each way to it, as in a model."""

    def __init__(self, root):
        self.random = random.Random(9)  # noqa: S311  # a sequence, no secret
        self.root, self.path = root, make_file(root / "f", b"data")
        self.model = {}
        hard_link(self.path, root / "second")
        self.descriptor = os.open(self.path, os.O_RDWR)
        self.log = []

    def target(self):
        """Return a way to the file: a name, the other name, or a descriptor."""
        return self.random.choice((self.path, self.root / "second", self.descriptor))

    def set(self):
        """Set an attribute, with each flag."""
        name = self.random.choice(NAMES)
        flags = self.random.choice((0, 0, 0, os.XATTR_CREATE, os.XATTR_REPLACE))
        value = self.random.getrandbits(8 * 400).to_bytes(400, "little")[: self.random.choice(SIZES)]
        self.log.append(f"setxattr() of {name[:12]}, {len(value)} bytes, flags {flags}")
        expected = (
            errno.EEXIST
            if flags == os.XATTR_CREATE and name in self.model
            else errno.ENODATA
            if flags == os.XATTR_REPLACE and name not in self.model
            else 0
        )
        try:
            os.setxattr(self.target(), name, value, flags)
        except OSError as error:
            if error.errno in NO_VALUE_SPACE and not expected:
                return
            assert error.errno == expected, f"{error}: {self.log[-5:]}"
        else:
            assert not expected, f"it succeeds, and has to be refused: {self.log[-5:]}"
            self.model[name] = value

    def remove(self):
        """Remove an attribute."""
        name = self.random.choice(NAMES)
        self.log.append(f"removexattr() of {name[:12]}")
        if name in self.model:
            os.removexattr(self.target(), name)
            del self.model[name]
        else:
            assert_errno(errno.ENODATA, os.removexattr, self.target(), name)

    def move(self):
        """Rename, write, truncate and change the mode: attributes stay."""
        self.log.append("rename(), write(), ftruncate(), chmod() and chown()")
        new = self.root / f"f{len(self.log)}"
        os.rename(self.path, new)
        self.path = new
        os.pwrite(self.descriptor, b"more", 0)
        os.ftruncate(self.descriptor, 2)
        os.fchmod(self.descriptor, self.random.choice((0o600, 0o644)))
        if os.geteuid() == 0:
            with suppress(OSError):  # PSX-CHOWN-* test whether that is legal
                os.fchown(self.descriptor, 1001, len(self.log))

    def replace(self):
        """Remove both names, and make another file of them: it has no attributes."""
        self.log.append("unlink() and another file of the name")
        os.close(self.descriptor)
        os.unlink(self.root / "second")
        os.unlink(self.path)
        make_file(self.path, b"data")
        hard_link(self.path, self.root / "second")
        self.descriptor = os.open(self.path, os.O_RDWR)
        self.model = {}

    def compare(self):
        """Compare the list and each value."""
        listed = sorted(name for name in os.listxattr(self.target()) if name.startswith("user."))
        assert listed == sorted(self.model), f"listed are {listed}, after {self.log[-5:]}"
        for name, value in self.model.items():
            found = os.getxattr(self.target(), name)
            assert found == value, (
                f"{name[:12]} has {len(found)} bytes, {found[:8]!r}, and not {len(value)}, {value[:8]!r}, "
                f"after {self.log[-5:]}"
            )


@pytest.mark.case(
    "PSX-XATTR-SEQUENCE",
    section="setxattr(2), getxattr(2), listxattr(2), removexattr(2): DESCRIPTION",
    builds_on=("PSX-DATA-NEW-FILE", "PSX-XATTR-1", "PSX-XATTR-0", "PSX-XATTR-NAMES"),
    kills=("xattr-removed-with-prefix", "xattr-of-removed-file", "chown-removes-xattr"),
)
def test_attributes_are_those_that_the_calls_left(client_dir):
    """After each call list and values are those of the model, whichever name or descriptor it was made by."""
    try:
        os.setxattr(make_file(client_dir / "probe"), "user.probe", b"v")
    except OSError as error:
        skip(f"the file system has no user.* attributes: {error.strerror}")
    sequence = AttributeSequence(client_dir)
    steps = [*[sequence.set] * 8, *[sequence.remove] * 4, sequence.move, sequence.replace]
    for number in range(70):
        if number % len(steps) == 0:
            sequence.random.shuffle(steps)
        steps[number % len(steps)]()
        sequence.compare()
    os.close(sequence.descriptor)


@pytest.mark.case(
    "PSX-DIR-RENAMED-OPEN",
    section="POSIX.1-2024 opendir(), rename(): DESCRIPTION",
    kills=("renamed-open-directory-empty",),
)
def test_open_directory_is_listed_after_it_was_renamed(client_dir):
    """The descriptor is of the directory, whatever it is called: twice renamed, it has its entries."""
    (client_dir / "d").mkdir()
    for name in ("one", "two"):
        make_file(client_dir / "d" / name)
    descriptor = os.open(client_dir / "d", os.O_RDONLY | os.O_DIRECTORY)
    try:
        for old, new in (("d", "e"), ("e", "d")):
            try:
                os.rename(client_dir / old, client_dir / new)
            except OSError as error:
                skip(f"an open directory cannot be renamed here: {error}")
            make_file(client_dir / new / f"in-{new}")
            wanted = sorted(os.listdir(client_dir / new))
            assert f"in-{new}" in wanted
            os.lseek(descriptor, 0, os.SEEK_SET)  # rewinddir(): without it a new entry need not be returned
            assert sorted(os.listdir(descriptor)) == wanted, (
                f"the open directory, renamed from {old} to {new}"
            )
    finally:
        os.close(descriptor)
