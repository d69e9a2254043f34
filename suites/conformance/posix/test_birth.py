"""Time of birth: set when a file is created, and never again (inode(7), statx(2))."""

from __future__ import annotations

import errno
import os

import pytest

from storagetest.agent.testlib import record_observation, skip
from storagetest.agent.testlib.libc import RENAME_EXCHANGE, STATX_BASIC_STATS, renameat2, statx
from storagetest.agent.testlib.mappings import map_file
from storagetest.agent.testlib.outcomes import CannotRun
from storagetest.agent.testlib.tmpfiles import (
    fifo,
    make_file,
    open_fd,
    symbolic_link,
    wait_clock_tick,
)

pytestmark = [
    pytest.mark.needs("filesystem"),
    pytest.mark.case(level="MUST", builds_on=("PSX-DATA-NEW-FILE",), section="inode(7): Birth time"),
]

KEPT = "it is set on file creation and not changed subsequently"


def birth(path):
    """Return the time of birth in ns; skip the case if the file system or the protocol has none."""
    found = statx(path).birth
    if found is None:
        skip("the file system returns no time of birth (STATX_BTIME is not in stx_mask, statx(2))")
    return found


def born(path, before, what):
    """Assert that the time of birth is as ``before``."""
    found = birth(path)
    assert found == before, (
        f"{what} changes the time of birth by {(found - before) / 1e9:g} s; required: {KEPT} (inode(7))"
    )


def writes(path):
    with open_fd(path) as descriptor:
        os.pwrite(descriptor, b"w" * 5000, 100)


def appends(path):
    with open_fd(path, os.O_WRONLY | os.O_APPEND) as descriptor:
        os.write(descriptor, b"appended")
        os.fsync(descriptor)


def stores(path):
    with open_fd(path) as descriptor, map_file(descriptor, 4096) as mapped:
        mapped[:6] = b"stored"
        mapped.flush()


def cuts(path):
    os.truncate(path, 10)


def grows(path):
    os.truncate(path, 10_000)


def cuts_open(path):
    with open_fd(path) as descriptor:
        os.ftruncate(descriptor, 3000)


def empties(path):
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600))


def reads(path):
    path.read_bytes()


def changes_mode(path):
    try:
        os.chmod(path, 0o604)
        os.chown(path, -1, 7)
    except OSError as error:
        record_observation(f"the file system stores no owners or modes: {error.strerror}")


def sets_attribute(path):
    try:
        os.setxattr(path, "user.birth", b"value")
        os.removexattr(path, "user.birth")
    except OSError as error:
        record_observation(f"the file system has no user.* attributes: {error.strerror}")


def links(path):
    try:
        os.link(path, path.with_name("second"))
    except OSError as error:
        record_observation(f"the file system has no hard links: {error.strerror}")
        return
    assert birth(path.with_name("second")) == birth(path), "two names of a file have two times of birth"
    os.unlink(path.with_name("second"))


CALLS = {
    "write()": writes, "write() with O_APPEND": appends, "a store through a mapping": stores,
    "truncate() to a smaller size": cuts, "truncate() to a larger size": grows, "ftruncate()": cuts_open,
    "open() with O_TRUNC": empties, "write() after O_TRUNC": writes, "read()": reads,
    "chmod() and chown()": changes_mode, "setxattr()": sets_attribute, "link()": links,
}  # fmt: skip


@pytest.mark.case(
    "PSX-BIRTH-CALLS", kills=("birth-moved-by-write", "birth-moved-by-truncation", "birth-is-ctime")
)
def test_no_call_on_a_file_changes_its_time_of_birth(client_dir):
    """The time of birth is set on file creation and not changed subsequently: by no call on the file."""
    path = make_file(client_dir / "f", b"0123456789" * 500)
    before = birth(path)
    with open_fd(path, os.O_RDONLY) as descriptor:
        for name, call in CALLS.items():
            wait_clock_tick(client_dir)
            call(path)
            born(path, before, name)
            born(descriptor, before, f"{name}, by a descriptor that was open: it")


@pytest.mark.case("PSX-BIRTH-TIMES", level="SHOULD", kills=("birth-follows-earlier-times",))
def test_utimensat_does_not_change_the_time_of_birth(client_dir):
    """utimensat() sets the access and the modification time, to the past and the future; not that of birth.

    SHOULD: a server without a place for the time of birth derives it from the others.
    """
    path = make_file(client_dir / "f", b"data")
    before = birth(path)
    for when in (1_000_000_000, 2_000_000_000, 1_200_000_000):
        os.utime(path, (when, when))
        born(path, before, f"utimensat() to {when} s")
        writes(path)
        born(path, before, f"write() after utimensat() to {when} s")


@pytest.mark.case("PSX-BIRTH-MOVED", kills=("birth-moved-by-rename", "birth-of-name"))
def test_time_of_birth_goes_with_the_file(client_dir):
    """A file keeps its time of birth under each name; a file that it replaces takes its own along."""
    for name in ("a", "b"):
        (client_dir / name).mkdir()
    path = make_file(client_dir / "a" / "x", b"data")
    before = birth(path)
    (client_dir / "a" / "d").mkdir()
    directory = birth(client_dir / "a" / "d")
    wait_clock_tick(client_dir)
    make_file(client_dir / "b" / "other", b"other")
    make_file(client_dir / "a" / "exchanged")
    for new, what in (
        ("a/y", "rename() within a directory"),
        ("b/x", "rename() to another directory"),
        ("b/other", "rename() over a file"),
        ("a/x", "rename() back"),
    ):
        wait_clock_tick(client_dir)
        os.rename(path, client_dir / new)
        path = client_dir / new
        born(path, before, what)
    os.rename(client_dir / "a" / "d", client_dir / "b" / "d")
    make_file(client_dir / "b" / "d" / "entry")
    born(client_dir / "b" / "d", directory, "rename() of a directory, and a new entry of it,")
    other = birth(client_dir / "a" / "exchanged")
    try:
        renameat2(path, client_dir / "a" / "exchanged", RENAME_EXCHANGE)
    except CannotRun as error:
        record_observation(str(error))
        return
    born(client_dir / "a" / "exchanged", before, "RENAME_EXCHANGE")
    born(path, other, "RENAME_EXCHANGE")


def make_fifo(path):
    """Make a FIFO. CannotRun if the file system has none: also by EINVAL, as FAT refuses it."""
    try:
        fifo(path)
    except OSError as error:
        if error.errno == errno.EINVAL:
            raise CannotRun("the file system has no FIFOs") from None
        raise


MAKERS = {
    "open()": make_file, "mkdir()": os.mkdir, "mkfifo()": make_fifo,
    "symlink()": lambda path: symbolic_link("target", path),
}  # fmt: skip


@pytest.mark.case("PSX-BIRTH-NEW", kills=("birth-of-name", "birth-of-parent", "birth-only-of-files"))
def test_new_file_is_born_when_it_is_created(client_dir):
    """Each new file of each kind is born between those made before and after it, also by a used name."""
    birth(make_file(client_dir / "probe"))
    lacking = set()
    for turn in ("the first", "the second", "the third"):
        for call, maker in MAKERS.items():
            path = client_dir / "x"
            earlier = os.stat(make_file(client_dir / "before")).st_ctime_ns
            wait_clock_tick(client_dir)
            try:
                maker(path)
            except CannotRun:
                lacking.add(call)
                os.unlink(client_dir / "before")
                continue
            wait_clock_tick(client_dir)
            later = os.stat(make_file(client_dir / "after")).st_ctime_ns
            found = birth(path)
            assert earlier <= found <= later, (
                f"{turn} file of a name, made by {call}, is born {(found - earlier) / 1e9:g} s after a file "
                f"that was made before it and {(later - found) / 1e9:g} s before one that was made after "
                "it; required: the time of birth is set on file creation (inode(7))"
            )
            (os.rmdir if call == "mkdir()" else os.unlink)(path)
            for name in ("before", "after"):
                os.unlink(client_dir / name)
    for call in sorted(lacking):
        record_observation(f"the file system has no {call}")


FIELDS = (
    "st_mode", "st_nlink", "st_uid", "st_gid", "st_ino", "st_size", "st_mtime_ns", "st_ctime_ns",
)  # fmt: skip


@pytest.mark.case(
    "PSX-STATX-FIELDS",
    section="statx(2): DESCRIPTION",
    kills=("statx-size-of-first-look", "statx-mtime-seconds"),
)
def test_statx_returns_what_stat_returns(client_dir):
    """Each field that is in stx_mask is that of stat(2), before and after each change of the file."""
    path = make_file(client_dir / "f", b"data")
    (client_dir / "d").mkdir()
    paths = [path, client_dir / "d"]
    for name, maker in (("p", make_fifo), ("l", lambda one: symbolic_link("target", one))):
        try:
            maker(client_dir / name)
        except CannotRun as error:
            record_observation(str(error))
        else:
            paths.append(client_dir / name)
    states = {
        "new": lambda: None, "written": lambda: writes(path), "cut": lambda: cuts(path),
        "grown": lambda: grows(path),
        "of another mode": lambda: changes_mode(path), "appended to": lambda: appends(path),
        "with an entry": lambda: make_file(client_dir / "d" / "entry"), "emptied": lambda: empties(path),
    }  # fmt: skip
    for state, change in states.items():
        change()
        for one in paths:
            found, wanted = statx(one), os.lstat(one)
            assert found.mask & STATX_BASIC_STATS, "statx() returns none of STATX_BASIC_STATS"
            for field in FIELDS:
                assert found.fields[field] == getattr(wanted, field), (
                    f"{one.name}, {state}: {field} of statx() is {found.fields[field]} and of stat() "
                    f"{getattr(wanted, field)}; required: both are of the file (statx(2))"
                )
