"""A file with much of everything: names, attributes, pieces of data; a directory with attributes and entries.

A file system has a place of limited size for what it keeps of a file. What does not fit is moved elsewhere
when more is added, whatever that is, and back when there is less. Each case compares all of the file after
each step, when other files have been used, so that a server with a small cache reads the file again.
"""

from __future__ import annotations

import errno
import os
import random

import pytest

from storagetest.agent.testlib import skip
from storagetest.agent.testlib.tmpfiles import NO_VALUE_SPACE, hard_link, make_file, open_fd

pytestmark = [
    pytest.mark.needs("filesystem"),
    pytest.mark.exclusive,
    pytest.mark.case(
        level="MUST",
        section="POSIX.1-2024 link(), unlink(), write(): DESCRIPTION; setxattr(2), removexattr(2)",
    ),
]

NAMES, ATTRIBUTES, PIECES = 32, 20, 24
"""Names, attributes and pieces of data of the file (chosen)."""
BATCH = 8
"""How many of them one step adds or removes."""
NAME = "name-of-the-file-that-has-many-of-them-and-each-is-long"
PIECE = 4096
"""Bytes of a piece; as many that were never written follow it."""
LENGTHS = (3, 40, 180, 400)
"""Bytes of the values."""
OTHERS = 100
"""Files that are used before each comparison (chosen)."""
ENTRIES = 160
"""Entries of the directory (chosen)."""


class Others:
    """Files that are used in between."""

    def __init__(self, root):
        self.paths = [root / f"other-{number}" for number in range(OTHERS)]
        for path in self.paths:
            make_file(path, path.name.encode())

    def use(self):
        """Read each of them, and its attributes."""
        for path in self.paths:
            found = path.read_bytes()
            assert found == path.name.encode(), f"{path.name} has {found!r}"
            os.stat(path)


class Attributes:
    """Attributes of one object, and those that it has to have."""

    def __init__(self, path):
        self.path, self.wanted, self.count = path, {}, 0
        self.random = random.Random(20)  # noqa: S311  # values, no secret

    def add(self):
        """Set another attribute if there is space for it, and change the lengths of some."""
        self.count += 1
        for name in (f"user.attribute-{self.count}", *list(self.wanted)[:: self.count]):
            value = self.random.randbytes(LENGTHS[(self.count + len(name)) % len(LENGTHS)])
            try:
                os.setxattr(self.path, name, value)
            except OSError as error:
                if error.errno == errno.EOPNOTSUPP and not self.wanted:
                    skip("this file system has no user.* attributes (setxattr(2): ENOTSUP)")
                if error.errno in NO_VALUE_SPACE:
                    return
                raise
            self.wanted[name] = value

    def remove(self):
        """Remove the attribute in the middle."""
        if self.wanted:
            name = sorted(self.wanted)[len(self.wanted) // 2]
            os.removexattr(self.path, name)
            del self.wanted[name]

    def compare(self, when):
        """Compare the list and each value."""
        listed = sorted(name for name in os.listxattr(self.path) if name.startswith("user."))
        lost, more = set(self.wanted).difference(listed), set(listed).difference(self.wanted)
        assert not lost, f"{len(lost)} of {len(self.wanted)} attributes are lost {when}, as {min(lost)}"
        assert not more, f"{len(more)} attributes are listed that it does not have {when}, as {min(more)}"
        for name, value in self.wanted.items():
            found = os.getxattr(self.path, name)
            assert found == value, f"{name} has {len(found)} bytes {when}, {found[:8]!r}, not {value[:8]!r}"


class Crowded:
    """The file, and what it has to have."""

    def __init__(self, root):
        self.root, self.path = root, make_file(root / "f", b"")
        self.places = [root / "one", root / "two"]
        for place in self.places:
            place.mkdir()
        os.chmod(self.path, 0o640)
        found = os.stat(self.path)
        self.stays = found.st_ino, found.st_mode
        self.attributes, self.others = Attributes(self.path), Others(root)
        self.names, self.data, self.pieces = [], bytearray(), 0

    def link(self):
        """Add a name."""
        path = self.places[len(self.names) % 2] / f"{NAME}-{len(self.names)}"
        hard_link(self.path, path)
        self.names.append(path)

    def unlink(self):
        """Remove the oldest name but the first."""
        os.unlink(self.names.pop(0))

    def write(self):
        """Write a piece behind a gap, each other one below the last."""
        at = 2 * PIECE * (self.pieces ^ 1)
        self.pieces += 1
        data = b"%-4096d" % self.pieces
        self.data += bytes(max(0, at + PIECE - len(self.data)))
        self.data[at : at + PIECE] = data
        with open_fd(self.path) as descriptor:
            assert os.pwrite(descriptor, data, at) == PIECE
            os.fsync(descriptor)

    def cut(self):
        """Cut off the last piece."""
        size = max(0, len(self.data) - 2 * PIECE)
        os.truncate(self.path, size)
        del self.data[size:]

    def compare(self, when):
        """Compare all of the file with what it has to have."""
        self.others.use()
        found = os.stat(self.path)
        assert (found.st_ino, found.st_mode) == self.stays, (
            f"number and mode are {found.st_ino} and {found.st_mode:o} {when}"
        )
        links = len(self.names) + 1
        assert found.st_nlink == links, f"{found.st_nlink} links {when}, and not {links}"
        for number, place in enumerate(self.places):
            wanted = sorted(path.name for path in self.names if path.parent == place)
            listed = sorted(os.listdir(place))
            assert listed == wanted, f"{len(listed)} names of {len(wanted)} in directory {number} {when}"
        for path in self.names:
            assert os.stat(path).st_ino == self.stays[0], f"the name {path.name} is another file {when}"
        self.attributes.compare(when)
        data = (self.names[-1] if self.names else self.path).read_bytes()
        assert len(data) == len(self.data), f"{len(data)} bytes of data {when}, and not {len(self.data)}"
        for at in range(0, len(data), PIECE):
            piece = data[at : at + PIECE]
            assert piece == self.data[at : at + PIECE], f"the data at {at} are {piece[:16]!r} {when}"


ORDERS = {
    "NAMES-FIRST": ("names", "attributes", "data"),
    "ATTRIBUTES-FIRST": ("attributes", "data", "names"),
    "DATA-FIRST": ("data", "names", "attributes"),
    "ALL-TOGETHER": ("all",),
}


@pytest.mark.server_inodes
@pytest.mark.parametrize(
    "order",
    [
        pytest.param(
            order,
            id=order.lower(),
            marks=pytest.mark.case(f"PSX-CROWDED-{order}", kills=("crowded-file-loses-attribute",)),
        )
        for order in ORDERS
    ],
)
@pytest.mark.case(builds_on=("PSX-DATA-NEW-FILE", "PSX-LINK-NLINK", "PSX-XATTR-1"))
def test_file_with_much_of_everything_keeps_all(client_dir, order):
    """Names, attributes and data of one file are added and removed in any order: it has all others then."""
    file = Crowded(client_dir)
    kinds = {
        "names": (NAMES, (file.link,), (file.unlink,)),
        "attributes": (ATTRIBUTES, (file.attributes.add,), (file.attributes.remove,)),
        "data": (PIECES, (file.write,), (file.cut,)),
        "all": (
            min(NAMES, ATTRIBUTES, PIECES),
            (file.link, file.attributes.add, file.write),
            (file.attributes.remove, file.unlink, file.cut),
        ),
    }
    for turn, what in ((1, "added"), (2, "removed")):
        for kind in ORDERS[order]:
            count, *calls = kinds[kind]
            for number in range(count):
                for call in calls[turn - 1]:
                    call()
                if number % BATCH == BATCH - 1 or number == count - 1:
                    file.compare(f"after {number + 1} of {count} ({kind}) were {what}")


@pytest.mark.case(
    "PSX-CROWDED-DIRECTORY",
    section="POSIX.1-2024 readdir(): DESCRIPTION; setxattr(2): DESCRIPTION",
    builds_on=("PSX-DATA-NEW-FILE", "PSX-XATTR-DIRECTORY"),
    kills=("crowded-directory-loses-attribute",),
)
def test_directory_with_many_attributes_and_entries_keeps_all(client_dir):
    """Attributes of a directory stay when it gets and loses entries, and entries when it gets attributes."""
    others = Others(client_dir)
    place = client_dir / "d"
    place.mkdir()
    attributes, names = Attributes(place), []

    def compare(when):
        others.use()
        attributes.compare(when)
        found = sorted(os.listdir(place))
        assert found == sorted(names), f"{len(found)} of {len(names)} entries are listed {when}"
        for name in names[::7]:
            os.stat(place / name)

    for number in range(ENTRIES):
        if number % (ENTRIES // ATTRIBUTES) == 0:
            attributes.add()
        names.append(f"{NAME}-{number}")
        make_file(place / names[-1])
        if number % (ENTRIES // 8) == 0:
            compare(f"with {number + 1} entries")
    compare("with all entries")
    for number in range(ENTRIES):
        if number % (ENTRIES // ATTRIBUTES) == 0:
            attributes.remove()
        os.unlink(place / names.pop(len(names) * 2 // 3))
        if number % (ENTRIES // 8) == 0:
            compare(f"after {number + 1} entries were removed")
    compare("after all entries were removed")
