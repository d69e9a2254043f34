"""Locks are of the file: names that come and go release none; a close by any name does, of its process."""

from __future__ import annotations

import errno
import fcntl
import itertools
import os
import struct
import threading
from contextlib import suppress
from pathlib import Path

import pytest

from storagetest.agent.testlib import SubprocessCall, call_in_subprocess, skip
from storagetest.agent.testlib.libc import RENAME_EXCHANGE, renameat2
from storagetest.agent.testlib.outcomes import CannotRun, name_of
from storagetest.agent.testlib.tmpfiles import hard_link, make_file, open_fd

pytestmark = [
    pytest.mark.needs("filesystem", "locks"),
    pytest.mark.case(level="MUST", builds_on=("PSX-DATA-NEW-FILE", "PSX-LOCK-WRITE-WRITE")),
]

F_OFD_SETLK = 37
"""<linux/fcntl.h>"""
_FLOCK = struct.Struct("hhqqi4x")
"""struct flock of 64-bit Linux: l_type, l_whence, l_start, l_len, l_pid (fcntl(2))."""


def lock(descriptor: int, kind: str) -> None:
    """Lock the whole file for writing; EAGAIN or EACCES if another has a lock."""
    if kind == "flock":
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return
    request = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
    fcntl.fcntl(descriptor, F_OFD_SETLK if kind == "ofd" else fcntl.F_SETLK, request)


def is_locked(descriptor: int, kind: str) -> bool:
    """Whether another process is refused this lock, through another open file description."""

    def attempt() -> bool:
        try:
            lock(descriptor, kind)
        except OSError as error:
            assert error.errno in (errno.EAGAIN, errno.EACCES), error
            return True
        return False

    return call_in_subprocess(attempt)


def is_locked_at(path, kind: str) -> bool:
    """Whether another process is refused this lock of a file that is opened for it."""
    with open_fd(path) as descriptor:
        return is_locked(descriptor, kind)


def each_kind(name: str, section: str, **kills: tuple[str, ...]):
    """Run a case for locks of fcntl(), of open file descriptions, and of flock()."""
    sections = {"record": "POSIX.1-2024 fcntl(): F_SETLK", "ofd": "fcntl(2): OFD locks", "flock": "flock(2)"}
    return pytest.mark.parametrize("kind", [
        pytest.param(kind, id=kind, marks=pytest.mark.case(
            f"PSX-LOCK-{name}-{kind.upper()}", section=f"{source}; {section}", kills=kills.get(kind, ())
        ))
        for kind, source in sections.items()
    ])  # fmt: skip


@each_kind(
    "RENAMED",
    "POSIX.1-2024 rename(): DESCRIPTION",
    record=("rename-loses-locks",),
    ofd=("rename-loses-locks",),
    flock=("rename-loses-locks",),
)
def test_lock_stays_when_the_file_is_renamed(client_dir, kind):
    """The file is renamed, moved to another directory, and over another file."""
    (client_dir / "d").mkdir()
    with open_fd(make_file(client_dir / "f", bytes(10))) as holder, open_fd(client_dir / "f") as other:
        lock(holder, kind)
        assert is_locked(other, kind)
        make_file(client_dir / "d" / "over")
        for old, new in (("f", "g"), ("g", "d/g"), ("d/g", "d/over")):
            os.rename(client_dir / old, client_dir / new)
            assert is_locked(other, kind), f"rename() of {old} to {new} releases the lock"


@each_kind(
    "LINKED",
    "POSIX.1-2024 link(), unlink(): DESCRIPTION",
    record=("unlink-loses-locks",),
    ofd=("unlink-loses-locks",),
    flock=("unlink-loses-locks",),
)
def test_lock_stays_when_names_are_made_and_removed(client_dir, kind):
    """The file gets a second name, and loses the first, which another file then has."""
    with open_fd(make_file(client_dir / "f", bytes(10))) as holder, open_fd(client_dir / "f") as other:
        lock(holder, kind)
        hard_link(client_dir / "f", client_dir / "g")
        assert is_locked(other, kind), "link() releases the lock"
        os.unlink(client_dir / "f")
        assert is_locked(other, kind), "unlink() of one of two names releases the lock"
        make_file(client_dir / "f", bytes(10))
        with open_fd(client_dir / "f") as namesake:
            assert not is_locked(namesake, kind), "the lock is one of the name, and not of the file"
            assert is_locked(other, kind), "a new file of the name releases the lock"


@each_kind(
    "MOVED",
    "POSIX.1-2024 rename(): DESCRIPTION; rename(2): RENAME_EXCHANGE",
    record=("lock-lost-at-directory-rename", "lock-exchanged-by-name"),
    ofd=("lock-lost-at-directory-rename", "lock-exchanged-by-name"),
    flock=("lock-lost-at-directory-rename", "lock-exchanged-by-name"),
)
def test_lock_stays_when_its_directory_is_renamed_or_its_name_exchanged(client_dir, kind):
    """A lock is of the file: no change of names above it or with another file moves or releases it."""
    (client_dir / "d").mkdir()
    for name in ("f", "g"):
        make_file(client_dir / "d" / name, bytes(10))
    with open_fd(client_dir / "d" / "f") as holder, open_fd(client_dir / "d" / "f") as other:
        with open_fd(client_dir / "d" / "g") as neighbour:
            lock(holder, kind)
            with suppress(CannotRun):
                renameat2(client_dir / "d" / "f", client_dir / "d" / "g", RENAME_EXCHANGE)
            assert is_locked(other, kind), "RENAME_EXCHANGE releases the lock"
            assert not is_locked(neighbour, kind), "the lock is one of the name, and not of the file"
        try:
            os.rename(client_dir / "d", client_dir / "e")
        except OSError as error:
            skip(f"a directory with open files cannot be renamed here: {error}")
        assert is_locked(other, kind), "rename() of the directory releases the lock"


@pytest.mark.case(
    "PSX-LOCK-CHILD-CLOSE",
    section="POSIX.1-2024 fcntl(), fork(): DESCRIPTION",
    kills=("child-close-unlocks",),
)
def test_close_by_a_child_releases_no_lock_of_its_parent(client_dir):
    """A close removes the locks that the closing process has: a child has none of its parent's."""
    with open_fd(make_file(client_dir / "f", bytes(10))) as holder, open_fd(client_dir / "f") as other:
        lock(holder, "record")

        def close_all() -> None:
            for descriptor in (holder, other, os.open(client_dir / "f", os.O_RDWR)):
                os.close(descriptor)

        call_in_subprocess(close_all)
        assert is_locked(other, "record"), "close() by a child process releases the lock"


@pytest.mark.case(
    "PSX-LOCK-CLOSE-LINK",
    section="POSIX.1-2024 fcntl(): DESCRIPTION",
    builds_on=("PSX-DATA-NEW-FILE", "PSX-LOCK-CLOSE"),
    kills=("lock-kept-over-close-of-link",),
)
def test_close_of_another_name_releases_the_locks(client_dir):
    """The locks are of the file: a close of a descriptor that was opened by its other name removes them."""
    path, link = make_file(client_dir / "f", bytes(10)), client_dir / "link"
    hard_link(path, link)
    for first, second in ((path, link), (link, path)):
        with open_fd(first) as descriptor:
            lock(descriptor, "record")
            assert is_locked(descriptor, "record")
            os.close(os.open(second, os.O_RDONLY))
            assert not is_locked(descriptor, "record"), f"{second.name} was closed, {first.name} is open"


@pytest.mark.case(
    "PSX-LOCK-CLOSE-OTHER",
    section="POSIX.1-2024 close(), fcntl(): DESCRIPTION",
    builds_on=("PSX-DATA-NEW-FILE", "PSX-LOCK-CLOSE"),
    kills=("close-unlocks-other-file",),
)
def test_close_and_unlock_of_one_file_keep_the_locks_of_another(client_dir):
    """A close removes the locks of the process on that file, and F_UNLCK those of its file."""
    paths = [make_file(client_dir / name, bytes(10)) for name in "abc"]
    with open_fd(paths[0]) as kept:
        lock(kept, "record")
        with open_fd(paths[1]) as closed:
            lock(closed, "record")
        assert not is_locked_at(paths[1], "record"), "the file was closed"
        assert is_locked(kept, "record"), "another file of the process was closed"
        with open_fd(paths[2]) as freed:
            lock(freed, "record")
            fcntl.fcntl(freed, fcntl.F_SETLK, _FLOCK.pack(fcntl.F_UNLCK, os.SEEK_SET, 0, 0, 0))
            assert not is_locked(freed, "record"), "the file was unlocked"
            assert is_locked(kept, "record"), "another file of the process was unlocked"
            os.unlink(paths[2])
        assert is_locked(kept, "record"), "another file of the process was removed"


def flock_is_emulated(path) -> bool:
    """Whether flock() is a lock of fcntl() on this mount, as on NFS and SMB (flock(2), NOTES)."""
    device = os.stat(path).st_dev
    number = f"{os.major(device)}:{os.minor(device)}"
    for line in Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="replace").splitlines():
        fields, _, rest = line.partition(" - ")
        if fields.split()[2] == number:
            return rest.startswith(("nfs", "cifs", "smb"))
    return False


@pytest.mark.case(
    "PSX-FLOCK-RECORD",
    section="flock(2): NOTES",
    level="SHOULD",
    builds_on=("PSX-DATA-NEW-FILE", "PSX-FLOCK-EX-EX"),
    kills=("flock-meets-record-locks",),
)
def test_locks_of_flock_and_of_fcntl_do_not_interact(client_dir):
    """There is no interaction between the types of lock placed by flock(2) and fcntl(2), in either order."""
    if flock_is_emulated(client_dir):
        skip("flock() is emulated by fcntl() locks on this mount (flock(2), NOTES)")
    path = make_file(client_dir / "f", bytes(10))
    sorts = {
        "flock()": lambda file: fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB),
        "fcntl()": lambda file: fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB),
    }
    for held, asked in (("flock()", "fcntl()"), ("fcntl()", "flock()")):
        with open_fd(path) as descriptor:
            sorts[held](descriptor)

            def attempt(asked=asked):
                with open_fd(path) as mine:
                    try:
                        sorts[asked](mine)
                    except OSError as error:
                        return error.strerror
                return ""

            refused = call_in_subprocess(attempt)
            assert not refused, (
                f"a lock of {asked} is refused while another process holds one of {held}: {refused}"
            )
            assert is_locked_at(path, "flock" if held == "flock()" else "record"), f"{asked} releases {held}"


SORTS = ("record", "ofd", "flock")


def request(descriptor: int, sort: str, kind: int, *, waits: bool = False) -> None:
    """Take or release a lock of the whole file: ``kind`` is F_RDLCK, F_WRLCK or F_UNLCK."""
    if sort == "flock":
        operation = {fcntl.F_RDLCK: fcntl.LOCK_SH, fcntl.F_WRLCK: fcntl.LOCK_EX, fcntl.F_UNLCK: fcntl.LOCK_UN}
        fcntl.flock(descriptor, operation[kind] | (0 if waits else fcntl.LOCK_NB))
        return
    command = F_OFD_SETLK if sort == "ofd" else fcntl.F_SETLK
    fcntl.fcntl(descriptor, command + waits, _FLOCK.pack(kind, os.SEEK_SET, 0, 0, 0))


SORT_KILLS = {
    ("record", "ofd"): ("record-unlock-frees-ofd",),
    ("ofd", "record"): ("ofd-unlock-frees-record",),
    ("flock", "record"): ("flock-unlock-frees-fcntl",),
    ("flock", "ofd"): ("flock-unlock-frees-fcntl",),
    ("record", "flock"): ("unlock-frees-flock",),
    ("ofd", "flock"): ("unlock-frees-flock",),
}


@pytest.mark.parametrize(
    ("released", "kept"),
    [
        pytest.param(
            released,
            kept,
            id=f"{released}-{kept}",
            marks=pytest.mark.case(
                f"PSX-LOCK-SORTS-{released.upper()}-{kept.upper()}",
                level="SHOULD" if "flock" in (released, kept) else "MUST",
                kills=SORT_KILLS[released, kept],
            ),
        )
        for released, kept in itertools.permutations(SORTS, 2)
    ],
)
@pytest.mark.case(section="fcntl(2): Open file description locks; flock(2): NOTES")
def test_release_of_one_sort_of_lock_keeps_the_other(client_dir, released, kept):
    """A process that holds shared locks of two sorts and releases one of them keeps the other."""
    if "flock" in (released, kept) and flock_is_emulated(client_dir):
        skip("flock() is emulated by fcntl() locks on this mount (flock(2), NOTES)")
    path = make_file(client_dir / "f", bytes(10))
    with open_fd(path) as one, open_fd(path) as two:
        for turn in (1, 2):
            request(one, released, fcntl.F_RDLCK)
            request(two, kept, fcntl.F_RDLCK)
            request(one, released, fcntl.F_UNLCK)
            assert is_locked_at(path, kept), f"the release of {released} releases {kept}, time {turn}"
            request(two, kept, fcntl.F_UNLCK)
            assert not is_locked_at(path, kept), f"{kept} is locked after its release, time {turn}"


@pytest.mark.parametrize(
    ("held", "waiting"),
    [
        pytest.param(
            held,
            waiting,
            id=f"{held}-{waiting}",
            marks=pytest.mark.case(
                f"PSX-LOCK-SORTS-WAIT-{waiting.upper()}",
                kills=("unlock-wakes-own-sort",),
            ),
        )
        for held, waiting in (("record", "ofd"), ("ofd", "record"))
    ],
)
@pytest.mark.case(section="fcntl(2): Open file description locks, F_OFD_SETLKW")
def test_waiting_lock_is_granted_when_one_of_the_other_sort_is_released(client_dir, held, waiting):
    """A request that waits for a conflicting lock gets its own when that one is released, of either sort."""
    path = make_file(client_dir / "f", bytes(10))

    def wait() -> str:
        with open_fd(path) as mine:
            request(mine, waiting, fcntl.F_WRLCK, waits=True)
        return "granted"

    with open_fd(path) as descriptor:
        for _ in range(2):
            request(descriptor, held, fcntl.F_WRLCK)
            other = SubprocessCall(wait, [])
            command = (F_OFD_SETLK if waiting == "ofd" else fcntl.F_SETLK) + 1
            assert other.is_blocked(command, client_dir), f"the request does not wait: {other.result()}"
            assert not other.ended(within=0.3)
            request(descriptor, held, fcntl.F_UNLCK)
            assert other.result(within=12) == "granted"


@pytest.mark.case(
    "PSX-LOCK-OFD-WAITS-OWN",
    section="fcntl(2): Open file description locks, F_OFD_SETLKW",
    builds_on=("PSX-DATA-NEW-FILE", "PSX-LOCK-OFD"),
    kills=("ofd-wait-for-own-process-deadlocks",),
)
def test_wait_for_another_description_of_the_same_process_is_no_deadlock(client_dir):
    """Locks of open file descriptions that one process has conflict; a wait for one is no deadlock."""
    path = make_file(client_dir / "f", bytes(10))
    with open_fd(path) as first, open_fd(path) as second:
        request(first, "ofd", fcntl.F_WRLCK)
        ended = []

        def wait() -> None:
            try:
                request(second, "ofd", fcntl.F_WRLCK, waits=True)
            except OSError as error:
                ended.append(name_of(error.errno or 0))
            else:
                ended.append("granted")

        thread = threading.Thread(target=wait, daemon=True)
        thread.start()
        thread.join(0.5)
        assert not ended, f"F_OFD_SETLKW has to wait for the other description's lock; it ended: {ended[0]}"
        request(first, "ofd", fcntl.F_UNLCK)
        thread.join(12)
        assert ended == ["granted"], f"after the release of the other description's lock: {ended}"


@each_kind(
    "NO-NAME",
    "POSIX.1-2024 unlink(), rename(): DESCRIPTION",
    record=("lock-of-removed-file-refused",),
    ofd=("lock-of-removed-file-refused",),
    flock=("lock-of-removed-file-refused",),
)
def test_open_file_without_a_name_is_locked(client_dir, kind):
    """A lock is of the file: one that was removed or replaced while it is open is locked and unlocked."""
    for how in ("removed", "replaced"):
        path = make_file(client_dir / how)
        with open_fd(path) as descriptor, open_fd(path) as other:
            if how == "removed":
                os.unlink(path)
            else:
                os.rename(make_file(client_dir / "new"), path)
            for turn in range(2):
                lock(descriptor, kind)
                assert is_locked(other, kind), f"the lock of a file that was {how} is not there, turn {turn}"
                unlock(descriptor, kind)
                assert not is_locked(other, kind), f"the lock of a file that was {how} stays, turn {turn}"
                unlock(other, kind)  # is_locked() has made it


def unlock(descriptor: int, kind: str) -> None:
    """Unlock the whole file."""
    if kind == "flock":
        fcntl.flock(descriptor, fcntl.LOCK_UN)
        return
    request = _FLOCK.pack(fcntl.F_UNLCK, os.SEEK_SET, 0, 0, 0)
    fcntl.fcntl(descriptor, F_OFD_SETLK if kind == "ofd" else fcntl.F_SETLK, request)
