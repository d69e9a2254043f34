"""Several processes that make calls on the same files at the same time: each call has its whole effect.

The processes begin together, and each makes the same calls on names or bytes of its own. What is there in the
end does not depend on their order.
"""

from __future__ import annotations

import errno
import fcntl
import os
import time

import pytest

from storagetest.agent.testlib import SubprocessCall, skip
from storagetest.agent.testlib.byte_model import first_difference
from storagetest.agent.testlib.libc import RENAME_NOREPLACE, renameat2
from storagetest.agent.testlib.tmpfiles import fifo, hard_link, make_file, open_fd, symbolic_link

pytestmark = [
    pytest.mark.needs("filesystem"),
    pytest.mark.server_inodes("*serial number*"),
    pytest.mark.case(level="MUST", builds_on=("PSX-DATA-NEW-FILE",)),
]

PROCESSES = 4
"""Processes of a case (chosen): more than the two of a pair."""
ROUNDS = 15
"""Calls of each process (chosen)."""
FEW = 8
"""Rounds of several calls (chosen)."""
AHEAD = 0.2
"""Seconds after which all processes begin (chosen): they are made in less."""
LONGEST = 24.0
"""Seconds that the processes may take in all (chosen): a case has 30 s."""


def together(work, *arguments):
    """Call ``work(number, *arguments)`` in PROCESSES processes that begin together; return the results."""
    start = time.monotonic() + AHEAD

    def begin(number):
        time.sleep(max(0.0, start - time.monotonic()))
        return work(number, *arguments)

    calls = [SubprocessCall(begin, (number,)) for number in range(PROCESSES)]
    until = start + LONGEST
    return [one.result(within=max(0.1, until - time.monotonic())) for one in calls]


# Data


@pytest.mark.case(
    "PSX-PROCESSES-APPEND",
    section="POSIX.1-2024 write(): DESCRIPTION, O_APPEND",
    builds_on=("PSX-DATA-NEW-FILE", "PSX-OPEN-APPEND-TWO"),
    kills=("append-at-end-of-own-process",),
)
def test_appends_of_several_processes_are_all_kept(client_dir):
    """No change of the file comes between that of the offset and the write: no record is lost."""
    path = make_file(client_dir / "log")

    def append(number):
        with open_fd(path, os.O_WRONLY | os.O_APPEND) as descriptor:
            for turn in range(ROUNDS):
                record = f"{number}:{turn}:".ljust(50 + 37 * (turn % 5), ".") + "\n"
                assert os.write(descriptor, record.encode()) == len(record), "a short write"

    together(append)
    found = [line.split(b":")[:2] for line in path.read_bytes().splitlines()]
    for number in range(PROCESSES):
        own = [int(turn) for who, turn in (one for one in found if len(one) == 2) if who == b"%d" % number]
        assert own == list(range(ROUNDS)), (
            f"of {ROUNDS} records of one process the file has {own}, in this order"
        )
    wanted = PROCESSES * ROUNDS
    assert len(found) == wanted, f"the file has {len(found)} lines of {wanted} records"


@pytest.mark.parametrize(
    "length",
    [
        pytest.param(
            length, marks=pytest.mark.case(f"PSX-PROCESSES-WRITE-{length}", kills=("page-of-own-process",))
        )
        for length in (100, 1000, 4096, 10_000)
    ],
)
@pytest.mark.case(section="POSIX.1-2024 write(): DESCRIPTION")
def test_neighbours_that_several_processes_write_are_all_kept(client_dir, length):
    """A write changes its own bytes only, while others write the bytes before and behind them."""
    path = make_file(client_dir / "f", bytes(length * PROCESSES * ROUNDS))

    def write(number):
        with open_fd(path, os.O_RDWR) as descriptor:
            for turn in range(ROUNDS):
                place = (turn * PROCESSES + number) * length
                assert os.pwrite(descriptor, bytes([number + 1]) * length, place) == length, "a short write"

    together(write)
    wanted = b"".join(bytes([number + 1]) * length for number in range(PROCESSES)) * ROUNDS
    wrong = first_difference(path.read_bytes(), wanted)
    assert not wrong, f"what {PROCESSES} processes wrote by turns, {length} bytes each, has {wrong}"


@pytest.mark.case(
    "PSX-PROCESSES-FILES",
    section="POSIX.1-2024 write(), read(): DESCRIPTION",
    kills=("data-of-other-process",),
)
def test_files_that_several_processes_write_have_their_own_data(client_dir):
    """Each process writes, cuts and reads a file of its own, at the same offsets as the others theirs."""

    def write(number):
        path, wanted = client_dir / f"f{number}", b""
        with open_fd(path, os.O_CREAT | os.O_RDWR) as descriptor:
            for turn in range(ROUNDS):
                part = bytes([16 * number + turn % 16]) * 3001
                os.pwrite(descriptor, part, 3001 * turn)
                wanted += part
        for size in (len(wanted), len(wanted) - 5000, 4097):
            os.truncate(path, size)
            wrong = first_difference(path.read_bytes(), wanted[:size])
            assert not wrong, f"a file that one process writes and cuts to {size} bytes has {wrong}"

    together(write)


@pytest.mark.case(
    "PSX-PROCESSES-READ", section="POSIX.1-2024 read(): DESCRIPTION", kills=("read-of-other-process",)
)
def test_several_processes_read_their_parts_of_a_file(client_dir):
    """pread() returns the bytes at its offset, whatever others read by the same descriptor."""
    length = 5000
    data = b"".join(turn.to_bytes(4, "big") * (length // 4) for turn in range(PROCESSES * ROUNDS))
    path = make_file(client_dir / "f", data)
    with open_fd(path, os.O_RDONLY) as descriptor:
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)

        def read(number):
            for turn in range(ROUNDS):
                place = (turn * PROCESSES + number) * length
                wrong = first_difference(os.pread(descriptor, length, place), data[place : place + length])
                assert not wrong, f"a read of {length} bytes at {place} returns {wrong}"

        together(read)


# Names


def create(path):
    """Make a file that is not there."""
    os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644))


def source_of(path):
    """Return the name of the file of which ``path`` becomes another name."""
    return path.with_name(f"source-{path.name}")


MAKERS = {
    "open": create,
    "mkdir": os.mkdir,
    "link": lambda path: hard_link(source_of(path), path),
    "symlink": lambda path: symbolic_link("x", path),
    "mkfifo": fifo,
}


def winners(work, paths, refused):
    """Call ``work(number, path)`` for each path in all processes; return who succeeds at each path."""

    def attempt(number):
        done = []
        for path in paths:
            try:
                work(number, path)
            except OSError as error:
                assert error.errno == refused, f"{os.strerror(error.errno or 0)}, not {os.strerror(refused)}"
                done.append(False)
            else:
                done.append(True)
        return done

    results = together(attempt)
    return [[number for number in range(PROCESSES) if results[number][at]] for at in range(len(paths))]


@pytest.mark.parametrize(
    "call",
    [
        pytest.param(call, marks=pytest.mark.case(f"PSX-PROCESSES-MAKE-{call.upper()}", kills=kills))
        for call, kills in (
            ("open", ("open-excl-for-two",)),
            ("mkdir", ("mkdir-for-two",)),
            ("link", ("link-for-two",)),
            ("symlink", ("symlink-for-two",)),
            ("mkfifo", ("mkfifo-for-two",)),
        )
    ],
)
@pytest.mark.case(section="POSIX.1-2024 open(), mkdir(), link(), symlink(), mkfifo(): EEXIST")
def test_one_of_several_processes_makes_a_name(client_dir, call):
    """The check for the name and the creation are one step: one process succeeds, the others have EEXIST."""
    paths = [client_dir / f"n{turn}" for turn in range(ROUNDS)]
    for path in (client_dir / "probe", *paths):
        make_file(source_of(path))
    MAKERS[call](client_dir / "probe")
    made = winners(lambda _, path: MAKERS[call](path), paths, errno.EEXIST)
    for turn, who in enumerate(made):
        assert len(who) == 1, f"{call}: {len(who)} of {PROCESSES} processes make name {turn}"
        links = os.stat(source_of(paths[turn])).st_nlink
        assert call != "link" or links == 2, f"a file with 2 names has {links} links"


REMOVERS = {
    "unlink": (create, lambda _, path: os.unlink(path)),
    "rmdir": (os.mkdir, lambda _, path: os.rmdir(path)),
    "rename": (create, lambda number, path: os.rename(path, path.parent / f"{path.name}-{number}")),
}


@pytest.mark.parametrize(
    "call",
    [
        pytest.param(call, marks=pytest.mark.case(f"PSX-PROCESSES-REMOVE-{call.upper()}", kills=kills))
        for call, kills in (
            ("unlink", ("unlink-for-two",)),
            ("rmdir", ("rmdir-for-two",)),
            ("rename", ("rename-for-two",)),
        )
    ],
)
@pytest.mark.case(section="POSIX.1-2024 unlink(), rmdir(), rename(): ENOENT")
def test_one_of_several_processes_removes_a_name(client_dir, call):
    """A name is removed once: one process succeeds, the others have ENOENT."""
    make, remove = REMOVERS[call]
    paths = [client_dir / f"n{turn}" for turn in range(ROUNDS)]
    for path in paths:
        make(path)
    done = winners(remove, paths, errno.ENOENT)
    for turn, who in enumerate(done):
        assert len(who) == 1, f"{call}: {len(who)} of {PROCESSES} processes remove name {turn}"
    wanted = sorted(f"n{turn}-{who[0]}" for turn, who in enumerate(done)) if call == "rename" else []
    assert sorted(os.listdir(client_dir)) == wanted, "the names in the end"


@pytest.mark.case(
    "PSX-PROCESSES-NOREPLACE",
    section="rename(2): RENAME_NOREPLACE",
    builds_on=("PSX-DATA-NEW-FILE", "PSX-RENAME-NOREPLACE"),
    kills=("noreplace-for-two",),
)
def test_one_of_several_processes_renames_to_a_name(client_dir):
    """RENAME_NOREPLACE fails with EEXIST if the name exists: one process succeeds, no file is replaced."""
    for number in range(PROCESSES):
        for turn in range(FEW):
            make_file(client_dir / f"n{turn}-{number}", b"%d" % number)
    try:
        renameat2(client_dir / "n0-0", client_dir / "probe", RENAME_NOREPLACE)
        os.rename(client_dir / "probe", client_dir / "n0-0")
    except OSError as error:
        skip(f"there is no RENAME_NOREPLACE here: {error.strerror}")
    paths = [client_dir / f"n{turn}" for turn in range(FEW)]

    def move(number, path):
        renameat2(path.parent / f"{path.name}-{number}", path, RENAME_NOREPLACE)

    for path, who in zip(paths, winners(move, paths, errno.EEXIST), strict=True):
        assert len(who) == 1, f"{len(who)} of {PROCESSES} processes rename a file of theirs to {path.name}"
        assert path.read_bytes() == b"%d" % who[0], "the file is not that of the process that renamed it"
    assert len(os.listdir(client_dir)) == PROCESSES * FEW, "files were lost"


@pytest.mark.parametrize(
    "where",
    [
        pytest.param(where, marks=pytest.mark.case(f"PSX-PROCESSES-NAMES-{where.upper()}"))
        for where in ("together", "apart")
    ],
)
@pytest.mark.case(
    section="POSIX.1-2024 open(), unlink(), readdir(): DESCRIPTION", kills=("entry-of-other-lost",)
)
def test_names_that_several_processes_make_are_all_listed(client_dir, where):
    """Each process makes files, removes and renames some: the rest is listed, with data and numbers."""
    for number in range(PROCESSES):
        (client_dir / f"d{number}").mkdir()

    def place_of(number):
        return client_dir / ("d0" if where == "together" else f"d{number}")

    def make(number):
        for turn in range(FEW):
            path = place_of(number) / f"f{number}-{turn}"
            make_file(path, b"%d-%d" % (number, turn))
            if turn % 3 == 1:
                os.unlink(path)
            elif turn % 3 == 2:
                os.rename(path, path.with_name(f"r{number}-{turn}"))

    together(make)
    numbers: dict[int, str] = {}
    for number in range(PROCESSES):
        left = [turn for turn in range(FEW) if turn % 3 != 1]
        wanted = {f"{'r' if turn % 3 else 'f'}{number}-{turn}": b"%d-%d" % (number, turn) for turn in left}
        listed = [name for name in os.listdir(place_of(number)) if name[1:].startswith(f"{number}-")]
        assert sorted(listed) == sorted(wanted), f"the names of process {number}"
        for name, data in wanted.items():
            assert (place_of(number) / name).read_bytes() == data, f"the data of {name}"
            other = numbers.setdefault(os.stat(place_of(number) / name).st_ino, name)
            assert other == name, f"{other} and {name} have the same serial number"


# Attributes


@pytest.mark.case(
    "PSX-PROCESSES-LINKS",
    section="POSIX.1-2024 link(), unlink(): DESCRIPTION",
    builds_on=("PSX-DATA-NEW-FILE", "PSX-LINK-NLINK"),
    kills=("links-of-two-counted-once",),
)
def test_links_that_several_processes_make_are_all_counted(client_dir):
    """link() increments the link count by one, and unlink() decrements it, whatever others link."""
    path = make_file(client_dir / "f", b"data")
    hard_link(path, client_dir / "probe")
    for number in range(PROCESSES):
        (client_dir / f"d{number}").mkdir()

    def link(number):
        for turn in range(ROUNDS):
            try:
                os.link(path, client_dir / f"d{number}" / f"l{turn}")
            except OSError as error:
                if error.errno == errno.EMLINK:
                    skip("a file cannot have as many links here: PSX-LINK-MAX tests how many")
                raise
            if turn % 2:
                os.unlink(client_dir / f"d{number}" / f"l{turn}")

    together(link)
    wanted = 2 + PROCESSES * len(range(0, ROUNDS, 2))
    found = os.stat(path).st_nlink
    assert found == wanted, f"a file with {wanted} names has {found} links, after several processes linked it"


@pytest.mark.case(
    "PSX-PROCESSES-XATTR",
    section="setxattr(2), removexattr(2): DESCRIPTION",
    builds_on=("PSX-DATA-NEW-FILE", "PSX-XATTR-LIST"),
    kills=("attribute-of-other-lost",),
)
def test_attributes_that_several_processes_set_are_all_kept(client_dir):
    """Each process sets an attribute of its own of the same file: all have their last values."""
    path = make_file(client_dir / "f", b"data")
    try:
        os.setxattr(path, "user.probe", b"x")
    except OSError as error:
        if error.errno in (errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL):
            skip(f"the file system has no user attributes: {error.strerror}")
        raise

    def change(number):
        for turn in range(ROUNDS):
            os.setxattr(path, f"user.{number}", b"%d" % turn)
            os.setxattr(path, f"user.{number}-again", b"%d" % turn)
            try:
                os.removexattr(path, f"user.{number}-again")
            except OSError as error:
                raise AssertionError(f"removexattr() of what was set: {error.strerror}") from None

    together(change)
    wanted = {f"user.{number}": b"%d" % (ROUNDS - 1) for number in range(PROCESSES)} | {"user.probe": b"x"}
    found = {name: os.getxattr(path, name) for name in os.listxattr(path) if name.startswith("user.")}
    assert found == wanted, "the attributes of a file of which several processes have set theirs"


# Locks


def with_record(descriptor, kind):
    """Set or release a lock of the process."""
    fcntl.lockf(descriptor, kind)


@pytest.mark.needs("locks")
@pytest.mark.parametrize(
    "lock",
    [
        pytest.param(lock, marks=pytest.mark.case(f"PSX-PROCESSES-COUNTER-{lock.upper()}", kills=kills))
        for lock, kills in (("record", ("record-lock-of-two",)), ("flock", ("flock-of-two",)))
    ],
)
@pytest.mark.case(section="POSIX.1-2024 fcntl(): F_SETLKW; flock(2): DESCRIPTION")
def test_counter_under_a_lock_loses_no_increment(client_dir, lock):
    """One process at a time has an exclusive lock: each of several reads a number and writes the next one."""
    path = make_file(client_dir / "f", b"0")
    take = with_record if lock == "record" else fcntl.flock

    def count(_):
        with open_fd(path, os.O_RDWR) as descriptor:
            for _turn in range(ROUNDS):
                take(descriptor, fcntl.LOCK_EX)
                number = int(os.pread(descriptor, 20, 0))
                os.pwrite(descriptor, b"%d" % (number + 1), 0)
                take(descriptor, fcntl.LOCK_UN)

    together(count)
    found, wanted = int(path.read_bytes()), PROCESSES * ROUNDS
    assert found == wanted, f"{wanted} increments under a lock make {found}"
