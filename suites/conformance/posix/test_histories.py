"""Names and files with a history: what was there before leaves nothing to what is there now.

An implementation that keeps what it knows of a file by its path has to forget it when the path leads to
another file, by whatever call; one that keeps it by length and time has to notice a change that leaves both.
"""

from __future__ import annotations

import errno
import itertools
import os
import random
import stat
import time
from contextlib import suppress

import pytest

from storagetest.agent.testlib import CannotRun, assert_errno, skip
from storagetest.agent.testlib.libc import RENAME_EXCHANGE, RENAME_NOREPLACE, renameat2
from storagetest.agent.testlib.mappings import map_file
from storagetest.agent.testlib.tmpfiles import (
    hard_link,
    make_file,
    open_fd,
    read_at,
    rename_onto_open_directory,
    rmdir_open_directory,
    wait_clock_tick,
)

pytestmark = [
    pytest.mark.needs("filesystem"),
    pytest.mark.case(level="MUST", builds_on=("PSX-DATA-NEW-FILE",)),
]

FIRST, SECOND = b"the first file of the name", b"the second one"
SECONDS = 5.0
"""Seconds for the calls of one case; chosen: a target with coarse time stamps does not get through all."""


# Ways in which the name ``f`` of a directory leads to a second file.


def _made_again(path):
    os.unlink(path)
    make_file(path, SECOND)


def _renamed(path):
    os.rename(path, path.with_name("away"))
    make_file(path, SECOND)


def _replaced(path):
    os.rename(make_file(path.with_name("new"), SECOND), path)


def _removed_then_renamed(path):
    os.unlink(path)
    os.rename(make_file(path.with_name("new"), SECOND), path)


def _removed_then_linked(path):
    os.unlink(path)
    hard_link(make_file(path.with_name("new"), SECOND), path)


def _exchanged(path):
    renameat2(path, make_file(path.with_name("new"), SECOND), RENAME_EXCHANGE)


def _directory_again(path):
    os.rename(path.parent, path.parent.with_name(f"was-{path.parent.name}"))
    path.parent.mkdir()
    make_file(path, SECOND)


WAYS = {
    "MADE": _made_again,
    "RENAMED": _renamed,
    "REPLACED": _replaced,
    "MOVED-IN": _removed_then_renamed,
    "LINKED": _removed_then_linked,
    "EXCHANGED": _exchanged,
    "DIRECTORY": _directory_again,
}
WAY_KILLS = {
    "MADE": ("former-name-takes-chmod",),
    "RENAMED": ("former-name-takes-chmod",),
    "REPLACED": ("replaced-open-reads-new",),
    "MOVED-IN": ("removed-open-reads-successor",),
    "LINKED": ("unlinked-chmod-stale",),
    "EXCHANGED": ("exchange-moves-open-files",),
    "DIRECTORY": ("renamed-directory-files-stale",),
}


def look(one):
    """Return what a file has, by its path or a descriptor."""
    found = os.stat(one)
    data = os.pread(one, 1000, 0) if isinstance(one, int) else read_at(one, 1000)
    attribute = None
    with suppress(OSError):
        attribute = os.getxattr(one, "user.history")
    return {
        "the data": data,
        "st_size": found.st_size,
        "the mode": stat.S_IMODE(found.st_mode),
        "mtime": found.st_mtime_ns,
        "the attribute": attribute,
    }


def write_at(one, data, offset):
    """Write by a path or a descriptor."""
    if isinstance(one, int):
        os.pwrite(one, data, offset)
        return
    with open_fd(one) as descriptor:
        os.pwrite(descriptor, data, offset)


def changes(number):
    """Return calls on a file, what each changes, and to what; other values for each ``number``.

    The times are of even seconds, as those of the coarsest file systems.
    """
    mode, when, value = 0o600 + number, (1_000_000_000 + 2 * number) * 10**9, b"%d" % number
    return (
        ("a write", "the data", lambda one: write_at(one, value * 3, 4), None),
        ("a truncation", "st_size", lambda one: os.truncate(one, 12 - number), 12 - number),
        ("chmod()", "the mode", lambda one: os.chmod(one, mode), mode),
        ("setxattr()", "the attribute", lambda one: os.setxattr(one, "user.history", value), value),
        ("utimensat()", "mtime", lambda one: os.utime(one, ns=(when, when)), when),
    )


def assert_apart(first, second, after):
    """Change each of two files, by path or descriptor, and assert that the other one stays as it is."""
    with_attributes = True
    try:
        os.setxattr(second, "user.history", b"x")
    except OSError:
        with_attributes = False
    turns = ((first, second, "the first file"), (second, first, "the second file"))
    for number, (changed, other, which) in enumerate(turns):
        for call, field, change, value in changes(number):
            if field == "the attribute" and not with_attributes:
                continue
            before, bystander = look(changed), look(other)
            change(changed)
            found = look(changed)
            wanted = value
            if field == "the data":
                data = before["the data"]
                wanted = data[:4] + b"%d" % number * 3 + data[7:]
            assert found[field] == wanted, (
                f"{call} on {which} of a name, {after}: {field} is {found[field]!r}, not {wanted!r}"
            )
            now = look(other)
            touched = [name for name in now if now[name] != bystander[name]]
            assert not touched, (
                f"{call} on {which} of a name, {after}, changes {' and '.join(touched)} of the other one"
            )


@pytest.mark.parametrize(
    "how",
    [
        pytest.param(
            how,
            id=how.lower(),
            marks=pytest.mark.case(f"PSX-HISTORY-{how}", kills=WAY_KILLS[how]),
        )
        for how in WAYS
    ],
)
@pytest.mark.case(section="POSIX.1-2024 unlink(), rename(), link(), write(), fchmod(): DESCRIPTION")
def test_first_and_second_file_of_a_name_are_two_files(client_dir, how):
    """A descriptor and a second name are of the first file, the name is of the second: for each call."""
    at = client_dir / "open"
    at.mkdir()
    with open_fd(make_file(at / "f", FIRST), os.O_RDWR) as descriptor:
        assert os.pread(descriptor, 4, 0) == FIRST[:4]
        WAYS[how](at / "f")
        found = os.pread(descriptor, 100, 0), (at / "f").read_bytes()
        assert found == (FIRST, SECOND), f"the open file and the name have {found}"
        assert_apart(descriptor, at / "f", "which is open")
    at = client_dir / "linked"
    at.mkdir()
    hard_link(make_file(at / "f", FIRST), client_dir / "kept")
    assert look(at / "f") == look(client_dir / "kept")
    WAYS[how](at / "f")
    found = (client_dir / "kept").read_bytes(), (at / "f").read_bytes()
    assert found == (FIRST, SECOND), f"the second name of the first file and the name have {found}"
    assert_apart(client_dir / "kept", at / "f", "which has a second name")


@pytest.mark.case(
    "PSX-HISTORY-SETTER",
    section="POSIX.1-2024 link(), unlink(), rename(): DESCRIPTION",
    builds_on=("PSX-DATA-NEW-FILE", "PSX-LINK-SAME-FILE"),
    kills=("attribute-goes-with-name",),
)
def test_what_was_set_by_a_name_stays_when_the_name_is_another_file_s(client_dir):
    """Data, mode, times and attributes are of the file: not of the name or descriptor that was used."""
    until = time.monotonic() + SECONDS
    for setter in ("the name", "the other name", "a descriptor"):
        for way, lead in WAYS.items():
            if time.monotonic() > until:
                return
            at = client_dir / f"{way} {setter}"
            at.mkdir()
            path, kept = make_file(at / "f", FIRST), at / "kept"
            if way == "DIRECTORY":
                kept = client_dir / f"kept {setter}"
            hard_link(path, kept)
            by = kept if "other" in setter else path
            with open_fd(by, os.O_RDWR) as descriptor:
                for call, _, change, _ in changes(0):
                    try:
                        change(descriptor if "descriptor" in setter else by)
                    except OSError as error:
                        if call != "setxattr()" or error.errno != errno.EOPNOTSUPP:
                            raise
            before = look(kept)
            try:
                lead(path)
            except CannotRun:
                continue
            after = look(kept)
            lost = [name for name in before if after[name] != before[name]]
            assert not lost, (
                f"{lost[0]} of a file, set by {setter}, is {after[lost[0]]!r} and was {before[lost[0]]!r}: "
                f"its name is another file's now ({way.lower()})"
            )


class Chain:
    """Calls that make, remove and change one name, again and again, with a check after each."""

    def __init__(self, directory):
        self.name, self.linked = directory / "f", make_file(directory / "linked", b"linked")
        self.spare, self.log, self.number = directory / "spare", [], 0
        self.makers = {"open()": self._create}
        others = (
            ("RENAME_NOREPLACE", self._move_in_new),
            ("rename()", self._move_in),
            ("mkdir()", os.mkdir),
            ("link()", self._link),
            ("symlink()", self._point),
        )
        for call, make in others:
            try:
                make(directory / "probe")
            except (CannotRun, OSError):
                # The file system has none of these: PSX-LINK-*, PSX-SYMLINK-* and PSX-RENAME-* test that.
                with suppress(OSError):
                    os.unlink(self.spare)
                continue
            (os.rmdir if call == "mkdir()" else os.unlink)(directory / "probe")
            self.makers[call] = make

    def _create(self, path):
        make_file(path, b"%d" % self.number)

    def _move_in(self, path):
        os.rename(make_file(self.spare, b"%d" % self.number), path)

    def _move_in_new(self, path):
        renameat2(make_file(self.spare, b"%d" % self.number), path, RENAME_NOREPLACE)

    def _link(self, path):
        os.link(self.linked, path)

    def _point(self, path):
        os.symlink(str(self.number), path)

    def make(self, call, *, over=False):
        """Make the name, or another one that then replaces it."""
        self.number += 1
        other = self.name.with_name("other")
        text = f"{call} and a rename() to the name" if over else call
        try:
            self.makers[call](other if over else self.name)
            if over:
                os.rename(other, self.name)
        except OSError as error:
            raise AssertionError(f"{text} fails: {error.strerror}, after {self.history()}") from None
        self.log.append(text)
        self.check(call)

    def remove(self, how):
        """Remove the name, or rename it and remove it then."""
        path = self.name
        try:
            if how == "rename()":
                path = self.name.with_name("away")
                os.rename(self.name, path)
            (os.rmdir if stat.S_ISDIR(os.lstat(path).st_mode) else os.unlink)(path)
        except OSError as error:
            raise AssertionError(
                f"removal by {how} fails: {error.strerror}, after {self.history()}"
            ) from None
        self.log.append(f"removal by {how}")
        assert not os.path.lexists(self.name), f"the name is still there after {self.history()}"
        self.check(None)

    def check(self, call):
        """Assert what the name is, and how many links the other file has."""
        found = wanted = b""
        if call == "mkdir()":
            found, wanted = os.listdir(self.name), []
        elif call == "symlink()":
            found, wanted = os.readlink(self.name), str(self.number)
        elif call is not None:
            found = self.name.read_bytes()
            wanted = b"linked" if call == "link()" else b"%d" % self.number
        assert found == wanted, f"the name has {found!r} instead of {wanted!r} after {self.history()}"
        links = os.stat(self.linked).st_nlink
        assert links == 1 + (call == "link()"), f"a linked file has {links} links after {self.history()}"

    def history(self):
        """Return the last calls."""
        return ", ".join(self.log[-5:])


@pytest.mark.case(
    "PSX-HISTORY-NAME",
    section="POSIX.1-2024 open(), link(), symlink(), mkdir(), rename(), unlink(): DESCRIPTION",
    builds_on=("PSX-DATA-NEW-FILE", "PSX-RENAME-REPLACE"),
    kills=("link-made-again-not-replaced", "noreplace-of-removed-name-refused"),
)
def test_name_is_what_the_last_call_made_of_it(client_dir):
    """Of one name: it is made, removed, made again, replaced and removed, by each combination of calls."""
    chain = Chain(client_dir)
    until = time.monotonic() + SECONDS
    removals = ("unlink()", "rename()")
    for first, gone, second, end in itertools.product(chain.makers, removals, chain.makers, removals):
        if time.monotonic() > until:
            return
        chain.make(first)
        chain.remove(gone)
        chain.make(second)
        for third in chain.makers:  # open() comes first: no link replaces another one of the same file
            if (third == "mkdir()") == (second == "mkdir()"):
                chain.make(third, over=True)
        chain.remove(end)


@pytest.mark.case(
    "PSX-HISTORY-TREE",
    section="POSIX.1-2024 rename(), mkdir(): DESCRIPTION; XBD 4.16 Pathname Resolution",
    builds_on=("PSX-DATA-NEW-FILE", "PSX-RENAME-DIRECTORY-TREE"),
    kills=("directory-made-again-has-old-files",),
)
def test_directory_of_a_former_name_has_no_former_files(client_dir):
    """A directory that gets the name of one that was renamed is empty, whatever was found by these paths."""
    at, was = client_dir / "d", client_dir / "was"
    (at / "sub").mkdir(parents=True)
    for name in ("f", "sub/g"):
        make_file(at / name, name.encode())
    for turn in range(3):
        for name in ("f", "sub/g"):
            assert (at / name).read_bytes() == name.encode()
        os.rename(at, was)
        at.mkdir()
        assert os.listdir(at) == [], f"a new directory has entries, turn {turn}"
        for name in ("f", "sub", "sub/g"):
            for call in (os.stat, os.unlink, os.listdir, open_and_close):
                assert_errno(errno.ENOENT, call, at / name)
        make_file(at / "f", b"new")
        found = (at / "f").read_bytes(), (was / "f").read_bytes()
        assert found == (b"new", b"f"), (
            "a file of the new directory, and the one of its name in the renamed one"
        )
        os.unlink(at / "f")
        os.rename(was, at)


def open_and_close(path):
    """Open for reading and writing."""
    os.close(os.open(path, os.O_RDWR))


class Ground:
    """A file that calls are made on, and names for others."""

    def __init__(self, directory):
        self.path, self.directory = make_file(directory / "f", b"0123456789" * 50), directory
        self.number = 0

    def name(self):
        """Return a new name."""
        self.number += 1
        return self.directory / f"n{self.number}"


# Each prepares a call on the file, and returns it.


def writes(ground):
    return lambda: write_at(ground.path, b"written", 7)


def cuts(ground):
    size = max(10, os.stat(ground.path).st_size - 50)
    write_at(ground.path, b"x", size)
    return lambda: os.truncate(ground.path, size)


def grows(ground):
    size = os.stat(ground.path).st_size + 60
    return lambda: os.truncate(ground.path, size)


def changes_mode(ground):
    mode = stat.S_IMODE(os.stat(ground.path).st_mode) ^ 0o044
    return lambda: os.chmod(ground.path, mode)


def changes_group(ground):
    group = os.stat(ground.path).st_gid + 1
    return lambda: os.chown(ground.path, -1, group)


def sets_times(ground):
    ground.number += 1
    when = (1_000_000_000 + ground.number) * 10**9
    return lambda: os.utime(ground.path, ns=(when, when))


def links(ground):
    name = ground.name()
    return lambda: os.link(ground.path, name)


def unlinks(ground):
    name = ground.name()
    os.link(ground.path, name)
    return lambda: os.unlink(name)


def replaces(ground):
    name, other = ground.name(), make_file(ground.name())
    os.link(ground.path, name)
    return lambda: os.rename(other, name)


DATA_CALLS = {"write()": writes, "truncate() to less": cuts, "truncate() to more": grows}
CALLS = {
    "chmod()": changes_mode,
    "chown()": changes_group,
    "utimensat()": sets_times,
    "link()": links,
    "unlink() of one of two names": unlinks,
    "rename() over one of two names": replaces,
    **DATA_CALLS,
}


@pytest.mark.parametrize(
    "state",
    [
        pytest.param(
            "open",
            id="open",
            marks=pytest.mark.case("PSX-HISTORY-MARKS-OPEN", kills=("truncate-while-open-leaves-times",)),
        ),
        pytest.param(
            "closed",
            id="closed",
            marks=pytest.mark.case(
                "PSX-HISTORY-MARKS", kills=("link-after-utimens-leaves-ctime", "times-set-twice-stay")
            ),
        ),
    ],
)
@pytest.mark.case(
    section="POSIX.1-2024 XBD 4.12 File Times Update",
    builds_on=("PSX-DATA-NEW-FILE", "PSX-LINK-NLINK", "PSX-CHMOD-CTIME"),
)
def test_second_of_two_calls_marks_its_times(client_dir, state):
    """Each call marks ctime, and mtime with the data, after each other call; also of a file that is open."""
    ground = Ground(client_dir)
    hard_link(ground.path, client_dir / "probe")
    pairs = list(itertools.product(CALLS, repeat=2))
    random.Random(3).shuffle(pairs)  # noqa: S311  # an order, no secret
    until = time.monotonic() + SECONDS
    held = [os.open(ground.path, os.O_RDWR), os.open(ground.path, os.O_RDONLY)] if state == "open" else []
    try:
        for first, second in pairs:
            CALLS[first](ground)()
            call = CALLS[second](ground)
            tick = wait_clock_tick(client_dir)
            call()
            for one in (*held, ground.path):
                found = os.stat(one)
                assert found.st_ctime_ns > tick, f"{second} after {first}: ctime is not marked"
                if second in DATA_CALLS:
                    assert found.st_mtime_ns > tick, f"{second} after {first}: mtime is not marked"
            if time.monotonic() > until:
                return
    finally:
        for one in held:
            os.close(one)


def _overwritten(path, data):
    write_at(path, data, 0)


def _emptied(path, data):
    with open_fd(path, os.O_WRONLY | os.O_TRUNC) as descriptor:
        os.write(descriptor, data)


def _stored(path, data):
    with open_fd(path) as descriptor, map_file(descriptor, len(data)) as mapped:
        mapped[:] = data
        mapped.flush()


def _exchanged_for(path, data):
    os.rename(make_file(path.with_name("new"), data), path)


@pytest.mark.case(
    "PSX-HISTORY-SAME-STAMP",
    section="POSIX.1-2024 read(), write(): DESCRIPTION",
    kills=("same-length-and-time-stale",),
)
def test_data_are_read_although_length_and_mtime_are_as_before(client_dir):
    """A read returns the data written, also if mtime was set back: by a new open and by one from before."""
    number = 0
    for size, change in itertools.product(
        (100, 5000, 70_000), (_overwritten, _emptied, _stored, _exchanged_for)
    ):
        path = make_file(client_dir / f"{size}{change.__name__}", bytes(size))
        one = os.stat(path)
        for _ in range(2):
            assert len(path.read_bytes()) == size
            number += 1
            data = b"%04d" % number * (size // 4)
            with open_fd(path, os.O_RDONLY) as descriptor:
                change(path, data)
                os.utime(path, ns=(one.st_atime_ns, one.st_mtime_ns))
                assert path.read_bytes() == data, (
                    f"{size} bytes, {change.__name__.strip('_')}, size and mtime as before: old data are read"
                )
                if change is not _exchanged_for:
                    assert os.pread(descriptor, size, 0) == data, (
                        "old data are read by a descriptor from before"
                    )


@pytest.mark.case(
    "PSX-HISTORY-REMOVED-DIRECTORY",
    section="POSIX.1-2024 rmdir(), rename(): DESCRIPTION; <sys/stat.h>: st_nlink",
    level="SHOULD",
    kills=("replaced-directory-keeps-nlink",),
)
def test_open_directory_without_a_name_has_no_links(client_dir):
    """The link of a directory that is removed, or replaced by another one, is gone while it is open."""
    for how in ("removed", "replaced"):
        path = client_dir / how
        path.mkdir()
        with open_fd(path, os.O_RDONLY) as directory:
            assert os.fstat(directory).st_nlink > 0
            if how == "removed":
                rmdir_open_directory(path)
            else:
                (client_dir / "new").mkdir()
                rename_onto_open_directory(client_dir / "new", path)
            try:
                found = os.fstat(directory).st_nlink
            except OSError as error:
                if error.errno != errno.ESTALE:
                    raise
                skip("the server keeps no open directories without a name (RFC 1813 2.6 NFS3ERR_STALE)")
            assert found == 0, f"{found} links of an open directory that was {how}"
