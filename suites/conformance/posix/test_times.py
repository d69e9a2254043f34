"""Time stamps: which call moves which, how finely, and by whose clock."""

from __future__ import annotations

import errno
import os
import time

import pytest

from storagetest.agent.testlib import as_user, observe, refused
from storagetest.agent.testlib.libc import UTIME_NOW, UTIME_OMIT, utimensat
from storagetest.agent.testlib.tmpfiles import a_file, opened, tick

pytestmark = [
    pytest.mark.needs("filesystem"),
    pytest.mark.case(level="MUST", section="POSIX.1-2024 utimensat(): DESCRIPTION"),
]
errors = "POSIX.1-2024 utimensat(): ERRORS"
stamps = "POSIX.1-2024 File Times Update"

NOBODY = 54321
SECOND = 10**9
SOME_DAY = 1_234_567_890 * SECOND


def times(path):
    found = os.stat(path, follow_symlinks=False)
    return found.st_atime_ns, found.st_mtime_ns, found.st_ctime_ns


@pytest.mark.case("PSX-UTIMENS-SETS", kills=("utimens-atime-ignored",))
def test_utimensat_sets_both_times(here):
    """utimensat() shall set the file's access and modification times to those given."""
    a_file(here / "f")
    os.utime(here / "f", ns=(SOME_DAY, SOME_DAY + SECOND))
    assert times(here / "f")[:2] == (SOME_DAY, SOME_DAY + SECOND)


@pytest.mark.case("PSX-UTIMENS-RESOLUTION", kills=("utimens-rounds",))
def test_times_are_kept_to_the_greatest_value_that_is_supported(here):
    """A time shall be set to the greatest value supported by the file system that is not greater than it."""
    a_file(here / "f")
    asked = SOME_DAY + 123_456_789
    os.utime(here / "f", ns=(asked, asked))
    got = times(here / "f")[1]
    step = next(
        (step for step in (1, 100, 1000, SECOND // 1000, SECOND, 2 * SECOND) if asked // step * step == got),
        0,
    )
    assert step, f"asked for {asked} ns, got {got} ns, which no resolution makes of it"
    observe(f"time stamps are kept to {step} ns")


@pytest.mark.parametrize(
    "second",
    [
        pytest.param(second, id=name.lower(), marks=pytest.mark.case(f"PSX-UTIMENS-{name}"))
        for name, second in (("1970", 0), ("2038", 2**31 - 1), ("AFTER-2038", 2**31 + 1), ("2106", 2**32 + 1))
    ],
)
def test_times_far_and_near(here, second):
    """A time that the file system has is kept; one that it has not is refused or set to the nearest."""
    a_file(here / "f")
    try:
        os.utime(here / "f", ns=(second * SECOND, second * SECOND))
    except OSError as error:
        assert error.errno in (errno.EINVAL, errno.EOVERFLOW, errno.ERANGE)
        observe(f"{second} s is refused")
        return
    got = times(here / "f")[1] // SECOND
    observe(f"{second} s " + ("is kept" if got == second else f"becomes {got} s"))
    assert got == second or second > 2**31 - 1


@pytest.mark.case("PSX-UTIMENS-BEFORE-1970", level="MAY", kills=("utimens-early-clamped",))
def test_a_time_before_1970(here):
    """A negative time is kept where the file system has it."""
    a_file(here / "f")
    os.utime(here / "f", ns=(-86400 * SECOND, -86400 * SECOND))
    assert times(here / "f")[1] == -86400 * SECOND


@pytest.mark.case("PSX-UTIMENS-NOW", kills=("utimens-atime-ignored", "utimens-now-ignored"))
def test_without_times_it_is_now(here):
    """If times is a null pointer, both shall be set to the current time."""
    a_file(here / "f")
    os.utime(here / "f", ns=(0, 0))
    now = times(a_file(here / "probe"))[1]
    os.utime(here / "f")
    accessed, modified, _ = times(here / "f")
    assert modified >= now
    assert accessed >= now


@pytest.mark.case("PSX-UTIMENS-OMIT-ATIME", kills=("utimens-omit-is-now",))
def test_the_access_time_can_be_left_out(here):
    """If tv_nsec is UTIME_OMIT, the time shall not be changed, and tv_sec is ignored: here st_atime."""
    a_file(here / "f")
    os.utime(here / "f", ns=(SOME_DAY, SOME_DAY))
    utimensat(here / "f", (7, UTIME_OMIT), (1_000_000_000, 0))
    assert times(here / "f")[:2] == (SOME_DAY, SECOND * 1_000_000_000)


@pytest.mark.case("PSX-UTIMENS-OMIT-MTIME", kills=("utimens-atime-ignored", "utimens-omit-is-now"))
def test_the_modification_time_can_be_left_out(here):
    """If tv_nsec is UTIME_OMIT, the time shall not be changed, and tv_sec is ignored: here st_mtime."""
    a_file(here / "f")
    os.utime(here / "f", ns=(SOME_DAY, SOME_DAY))
    utimensat(here / "f", (1_000_000_000, 0), (7, UTIME_OMIT))
    assert times(here / "f")[:2] == (SECOND * 1_000_000_000, SOME_DAY)


@pytest.mark.case("PSX-UTIMENS-NOW-ONE", kills=("utimens-now-ignored", "utimens-omit-is-now"))
def test_one_time_can_be_now_and_the_other_left_out(here):
    """If tv_nsec is UTIME_NOW, the time stamp shall be set to the current time, whatever tv_sec is."""
    a_file(here / "f")
    os.utime(here / "f", ns=(SOME_DAY, SOME_DAY))
    now = times(a_file(here / "probe"))[1]
    utimensat(here / "f", (7, UTIME_OMIT), (7, UTIME_NOW))
    accessed, modified, _ = times(here / "f")
    assert modified >= now
    assert accessed == SOME_DAY


@pytest.mark.case("PSX-UTIMENS-CTIME", kills=("utimens-ctime-not-moved",))
def test_utimensat_stamps_the_status_change(here):
    """utimensat() shall mark the last file status change time stamp for update; it cannot be set."""
    a_file(here / "f")
    before = times(here / "f")[2]
    tick(here)
    os.utime(here / "f", ns=(0, 0))
    assert times(here / "f")[2] > before


@pytest.mark.case("PSX-UTIMENS-LINK")
def test_the_times_of_a_link_are_its_own(here):
    """With AT_SYMLINK_NOFOLLOW the link's own times are set, and not the file's."""
    before = times(a_file(here / "f"))
    os.symlink("f", here / "link")
    os.utime(here / "link", ns=(SOME_DAY, SOME_DAY), follow_symlinks=False)
    assert times(here / "link")[1] == SOME_DAY
    assert times(here / "f")[1] == before[1]


@pytest.mark.case("PSX-UTIMENS-DIRECTORY")
def test_the_times_of_a_directory_are_set(here):
    """Any file will do, a directory too."""
    (here / "d").mkdir()
    os.utime(here / "d", ns=(SOME_DAY, SOME_DAY))
    assert times(here / "d")[1] == SOME_DAY


@pytest.mark.case("PSX-UTIMENS-FUTIMENS", section="POSIX.1-2024 futimens(): DESCRIPTION")
def test_futimens_acts_on_an_open_file(here):
    """futimens() sets the times of the file that a descriptor refers to."""
    with opened(a_file(here / "f")) as descriptor:
        os.utime(descriptor, ns=(SOME_DAY, SOME_DAY))
        assert os.fstat(descriptor).st_mtime_ns == SOME_DAY
    assert times(here / "f")[1] == SOME_DAY


@pytest.mark.case("PSX-UTIMENS-EPERM", section=errors, kills=("utimens-by-anybody",))
def test_times_are_set_by_the_owner(here):
    """[EPERM] The times are explicit, and the process neither owns the file nor is privileged."""
    here.chmod(0o777)
    a_file(here / "f", mode=0o666)
    with as_user(NOBODY, NOBODY):
        refused(errno.EPERM, os.utime, here / "f", ns=(0, 0))


@pytest.mark.case(
    "PSX-UTIMENS-EACCES",
    section=errors,
    kills=("utimens-atime-ignored", "utimens-by-anybody", "utimens-now-ignored"),
)
def test_the_present_time_is_set_by_who_may_write(here):
    """[EACCES] times is null, and the process is neither owner nor privileged nor may write the file."""
    here.chmod(0o777)
    a_file(here / "closed", mode=0o644)
    os.utime(a_file(here / "open", mode=0o666), ns=(0, 0))
    with as_user(NOBODY, NOBODY):
        refused(errno.EACCES, os.utime, here / "closed")
        os.utime(here / "open")
    assert times(here / "open")[1] > 0


@pytest.mark.case(
    "PSX-TIME-WRITE",
    section="POSIX.1-2024 write(): DESCRIPTION",
    kills=("write-ctime-not-moved", "write-mtime-not-moved"),
)
def test_a_write_moves_mtime_and_ctime(here):
    """Upon successful completion of a write of more than 0 bytes, mtime and ctime are marked for update."""
    a_file(here / "f")
    before = times(here / "f")
    tick(here)
    with opened(here / "f", os.O_WRONLY) as descriptor:
        os.write(descriptor, b"x")
    after = times(here / "f")
    assert after[1] > before[1]
    assert after[2] > before[2]


@pytest.mark.case("PSX-TIME-WRITE-FSTAT", section=stamps, kills=("write-mtime-not-moved",))
def test_fstat_after_a_write_shows_the_new_mtime(here):
    """All fields that are marked for update shall be updated when the file is queried by fstat()."""
    with opened(a_file(here / "f")) as descriptor:
        before = os.fstat(descriptor)
        tick(here)
        os.write(descriptor, b"x")
        assert os.fstat(descriptor).st_mtime_ns > before.st_mtime_ns
        assert os.fstat(descriptor).st_size == 1


@pytest.mark.case("PSX-TIME-WRITE-NOTHING", section="POSIX.1-2024 write(): DESCRIPTION", level="SHOULD")
def test_a_write_of_nothing_moves_nothing(here):
    """If nbyte is 0 and the file is a regular file, write() shall return 0 and have no other results."""
    with opened(a_file(here / "f", b"x")) as descriptor:
        before = times(here / "f")
        tick(here)
        assert os.write(descriptor, b"") == 0
    assert times(here / "f")[1:] == before[1:]


@pytest.mark.case("PSX-TIME-WRITE-AFTER-UTIMENS", section=stamps, kills=("write-mtime-not-moved",))
def test_a_write_after_utimensat_moves_mtime_on(here):
    """A time that was set stands only until the next write."""
    with opened(a_file(here / "f")) as descriptor:
        os.utime(here / "f", ns=(SOME_DAY, SOME_DAY))
        os.write(descriptor, b"x")
    assert times(here / "f")[1] > SOME_DAY


@pytest.mark.case("PSX-TIME-UTIMENS-AFTER-WRITE", section=stamps)
def test_a_time_set_after_a_write_stays(here):
    """A write that came before cannot move an mtime that is set after it, whenever it is written back."""
    with opened(a_file(here / "f")) as descriptor:
        os.write(descriptor, b"x" * 5000)
        os.utime(here / "f", ns=(SOME_DAY, SOME_DAY))
        os.fsync(descriptor)
    assert times(here / "f")[1] == SOME_DAY


@pytest.mark.case(
    "PSX-TIME-TRUNCATE",
    section="POSIX.1-2024 ftruncate(): DESCRIPTION",
    kills=("truncate-mtime-not-moved", "write-ctime-not-moved"),
)
def test_a_change_of_size_moves_mtime_and_ctime(here):
    """Upon success mtime and ctime shall be marked for update."""
    a_file(here / "f", b"content")
    for size in (3, 9):
        before = times(here / "f")
        tick(here)
        os.truncate(here / "f", size)
        after = times(here / "f")
        assert after[1] > before[1]
        assert after[2] > before[2]


@pytest.mark.case("PSX-TIME-READ", section="POSIX.1-2024 read(): DESCRIPTION", level="MAY")
def test_a_read_moves_atime(here):
    """A read marks the last data access; a mount with relatime or noatime, and NFS's client, may leave it."""
    a_file(here / "f", b"x")
    os.utime(here / "f", ns=(SOME_DAY, SOME_DAY + SECOND))
    (here / "f").read_bytes()
    moved = times(here / "f")[0] != SOME_DAY
    observe("a read " + ("moves" if moved else "does not move") + " atime")
    assert moved


@pytest.mark.case("PSX-TIME-READ-MTIME", section="POSIX.1-2024 read(): DESCRIPTION")
def test_a_read_does_not_move_mtime(here):
    """A read is no modification."""
    a_file(here / "f", b"x")
    before = times(here / "f")
    tick(here)
    (here / "f").read_bytes()
    assert times(here / "f")[1:] == before[1:]


@pytest.mark.case("PSX-TIME-REFUSED", section=stamps)
def test_what_is_refused_stamps_nothing(here):
    """A call that fails marks no time stamp for update."""
    (here / "d").mkdir()
    a_file(here / "d" / "f")
    before = times(here / "d")
    tick(here)
    refused(errno.EEXIST, os.mkdir, here / "d" / "f")
    refused(errno.ENOENT, os.unlink, here / "d" / "absent")
    refused((errno.ENOTEMPTY, errno.EEXIST), os.rmdir, here / "d")
    assert times(here / "d")[1:] == before[1:]


@pytest.mark.case("PSX-TIME-MONOTONIC", section=stamps)
def test_files_made_one_after_another_have_times_in_that_order(here):
    """The clock that stamps files does not go back."""
    made = [times(a_file(here / str(number)))[1] for number in range(12)]
    assert made == sorted(made)


@pytest.mark.case("PSX-TIME-CLOCK", section=stamps, level="SHOULD")
def test_the_clock_that_stamps_files_is_the_clients_or_near_it(here):
    """Times are the current time; over a network, by the server's clock, within 2 s of the client's."""
    before = time.time_ns()
    made = times(a_file(here / "f"))[1]
    off = (made - before) / SECOND
    observe(
        "the clock that stamps files is " + ("near" if abs(off) < 2 else f"{off:.0f} s off") + " the client's"
    )
    assert abs(off) < 2


@pytest.mark.case("PSX-TIME-ORDER", section=stamps)
def test_all_times_of_a_new_file_are_one(here):
    """The three time stamps of a new file are marked for update by the same call."""
    accessed, modified, changed = times(a_file(here / "f"))
    assert modified == changed
    assert abs(accessed - modified) <= SECOND
