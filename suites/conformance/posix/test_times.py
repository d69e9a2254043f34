"""Time stamps: which call updates which, their resolution and their clock."""

from __future__ import annotations

import errno
import os
import time
from itertools import pairwise

import pytest

from storagetest.agent.testlib import assert_errno, record_observation, run_as_user
from storagetest.agent.testlib.libc import UTIME_NOW, UTIME_OMIT, utimensat
from storagetest.agent.testlib.time_units import coarsest_step, time_units
from storagetest.agent.testlib.tmpfiles import fifo, make_file, open_fd, symbolic_link, wait_clock_tick

pytestmark = [
    pytest.mark.needs("filesystem"),
    pytest.mark.case(
        level="MUST", builds_on=("PSX-DATA-NEW-FILE",), section="POSIX.1-2024 utimensat(): DESCRIPTION"
    ),
]
errors = "POSIX.1-2024 utimensat(): ERRORS"
stamps = "POSIX.1-2024 File Times Update"

USER = 54321
SECOND = 10**9
SOME_DAY = 1_234_567_890 * SECOND


def times(path):
    status = os.stat(path, follow_symlinks=False)
    return status.st_atime_ns, status.st_mtime_ns, status.st_ctime_ns


def rounded(client_dir, *given: int):
    """Return the greatest supported st_atime and st_mtime that are not greater than those given."""
    units = time_units(make_file(client_dir / ".units"))
    os.unlink(client_dir / ".units")
    return tuple(unit.floor(time) for unit, time in zip(units, given))


@pytest.mark.case("PSX-UTIMENS-SETS", kills=("utimens-atime-ignored",))
def test_utimensat_sets_both_times(client_dir):
    """utimensat() shall set the file's access and modification times to those given."""
    make_file(client_dir / "f")
    os.utime(client_dir / "f", ns=(SOME_DAY, SOME_DAY + 2 * SECOND))
    assert times(client_dir / "f")[:2] == rounded(client_dir, SOME_DAY, SOME_DAY + 2 * SECOND)


@pytest.mark.case("PSX-UTIMENS-RESOLUTION", kills=("utimens-rounds", "utimens-rounds-microseconds"))
def test_times_are_rounded_down_to_the_resolution(client_dir):
    """A time shall be set to the greatest value supported by the file system that is not greater than it."""
    accessed, modified = time_units(make_file(client_dir / "f"))
    record_observation(f"time stamps are kept to {modified.step} ns")
    if accessed.step != modified.step:
        record_observation(f"st_atime is kept to {accessed.step} ns")


@pytest.mark.parametrize(
    "second",
    [
        pytest.param(second, id=name.lower(), marks=pytest.mark.case(f"PSX-UTIMENS-{name}"))
        for name, second in (("1970", 0), ("2038", 2**31 - 1), ("AFTER-2038", 2**31 + 1), ("2106", 2**32 + 1))
    ],
)
def test_times_outside_32_bits_are_kept_or_refused(client_dir, second):
    """A time that the file system supports is kept; another is refused or set to the nearest."""
    make_file(client_dir / "f")
    try:
        os.utime(client_dir / "f", ns=(second * SECOND, second * SECOND))
    except OSError as error:
        assert error.errno in (errno.EINVAL, errno.EOVERFLOW, errno.ERANGE)
        record_observation(f"{second} s is refused")
        return
    got = times(client_dir / "f")[1] // SECOND
    record_observation(f"{second} s " + ("is kept" if got == second else f"becomes {got} s"))
    assert second - 2 < got <= second or second > 2**31 - 1


@pytest.mark.case("PSX-UTIMENS-BEFORE-1970", level="MAY", kills=("utimens-early-clamped",))
def test_negative_time_is_kept(client_dir):
    """A negative time is kept if the file system supports it."""
    make_file(client_dir / "f")
    os.utime(client_dir / "f", ns=(-86400 * SECOND, -86400 * SECOND))
    assert times(client_dir / "f")[1] == -86400 * SECOND


@pytest.mark.case("PSX-UTIMENS-NOW", kills=("utimens-atime-ignored", "utimens-now-ignored"))
def test_utimensat_without_times_sets_the_current_time(client_dir):
    """If times is a null pointer, both shall be set to the current time."""
    make_file(client_dir / "f")
    os.utime(client_dir / "f", ns=(0, 0))
    now = times(make_file(client_dir / "probe"))[1]
    os.utime(client_dir / "f")
    accessed, modified, _ = times(client_dir / "f")
    assert modified >= now
    assert accessed >= rounded(client_dir, now)[0]


@pytest.mark.case("PSX-UTIMENS-OMIT-ATIME", kills=("utimens-omit-is-now",))
def test_utime_omit_keeps_atime(client_dir):
    """If tv_nsec is UTIME_OMIT, the time shall not be changed, and tv_sec is ignored: here st_atime."""
    make_file(client_dir / "f")
    os.utime(client_dir / "f", ns=(SOME_DAY, SOME_DAY))
    utimensat(client_dir / "f", (7, UTIME_OMIT), (1_000_000_000, 0))
    assert times(client_dir / "f")[:2] == rounded(client_dir, SOME_DAY, SECOND * 1_000_000_000)


@pytest.mark.case("PSX-UTIMENS-OMIT-MTIME", kills=("utimens-atime-ignored", "utimens-omit-is-now"))
def test_utime_omit_keeps_mtime(client_dir):
    """If tv_nsec is UTIME_OMIT, the time shall not be changed, and tv_sec is ignored: here st_mtime."""
    make_file(client_dir / "f")
    os.utime(client_dir / "f", ns=(SOME_DAY, SOME_DAY))
    utimensat(client_dir / "f", (1_000_000_000, 0), (7, UTIME_OMIT))
    assert times(client_dir / "f")[:2] == rounded(client_dir, SECOND * 1_000_000_000, SOME_DAY)


@pytest.mark.case("PSX-UTIMENS-OMIT-NANOSECONDS", kills=("omitted-atime-in-seconds",))
def test_utime_omit_keeps_nanoseconds(client_dir):
    """UTIME_OMIT leaves a time as it was, to the nanosecond, whether the other one is given or UTIME_NOW."""
    for text, given in (("a time", (1_000_000_000, 5)), ("UTIME_NOW", (0, UTIME_NOW))):
        for kept, name in enumerate(("atime", "mtime")):
            path = make_file(client_dir / f"{name} {text}")
            os.utime(path, ns=(SOME_DAY + 123_456_789, SOME_DAY + 987_654_321))
            before = times(path)[kept]
            new = [given, given]
            new[kept] = (7, UTIME_OMIT)
            utimensat(path, *new)
            assert times(path)[kept] == before, f"{name}, omitted, the other is {text}"


@pytest.mark.case(
    "PSX-UTIMENS-NOW-ONE",
    builds_on=("PSX-DATA-NEW-FILE", "PSX-UTIMENS-OMIT-ATIME", "PSX-UTIMENS-OMIT-MTIME"),
    kills=("utimens-now-ignored", "utimens-omit-is-now"),
)
def test_utime_now_and_utime_omit_combine(client_dir):
    """If tv_nsec is UTIME_NOW, the time stamp shall be set to the current time, whatever tv_sec is."""
    make_file(client_dir / "f")
    os.utime(client_dir / "f", ns=(SOME_DAY, SOME_DAY))
    now = times(make_file(client_dir / "probe"))[1]
    utimensat(client_dir / "f", (7, UTIME_OMIT), (7, UTIME_NOW))
    accessed, modified, _ = times(client_dir / "f")
    assert modified >= now
    assert accessed == rounded(client_dir, SOME_DAY)[0]


@pytest.mark.case(
    "PSX-UTIMENS-NOW-GIVEN",
    builds_on=("PSX-DATA-NEW-FILE", "PSX-UTIMENS-NOW-ONE", "PSX-UTIMENS-SETS"),
    kills=("utimens-now-sets-both",),
)
def test_utime_now_of_one_time_leaves_the_other_as_given(client_dir):
    """With UTIME_NOW for one of the times the other one is what the call gives: in both orders."""
    for name, kept in (("atime", 0), ("mtime", 1)):
        path = make_file(client_dir / name)
        new = [(0, UTIME_NOW), (0, UTIME_NOW)]
        new[kept] = (1_000_000_000, 0)
        utimensat(path, *new)
        found, given = times(path)[kept], rounded(client_dir, *2 * (1_000_000_000 * SECOND,))[kept]
        assert found == given, f"{name} is {found}, not {given} as given; the other was UTIME_NOW"


@pytest.mark.case("PSX-UTIMENS-CTIME", kills=("utimens-ctime-not-moved",))
def test_utimensat_updates_ctime(client_dir):
    """utimensat() shall mark the last file status change time stamp for update; it cannot be set."""
    make_file(client_dir / "f")
    before = times(client_dir / "f")[2]
    wait_clock_tick(client_dir)
    os.utime(client_dir / "f", ns=(0, 0))
    assert times(client_dir / "f")[2] > before


@pytest.mark.case("PSX-UTIMENS-LINK")
def test_times_of_a_link_are_set_separately(client_dir):
    """With AT_SYMLINK_NOFOLLOW the link's own times are set, and not the file's."""
    before = times(make_file(client_dir / "f"))
    symbolic_link("f", client_dir / "link")
    os.utime(client_dir / "link", ns=(SOME_DAY, SOME_DAY), follow_symlinks=False)
    assert times(client_dir / "link")[1] == SOME_DAY
    assert times(client_dir / "f")[1] == before[1]


@pytest.mark.case("PSX-UTIMENS-LINK-NANOSECONDS", kills=("symlink-times-in-seconds",))
def test_times_of_a_link_are_as_exact_as_those_of_a_file(client_dir):
    """The times are set to the specified ones, rounded to what the file system supports: of a link, too."""
    wanted = (SOME_DAY + 123_456_789, SOME_DAY + 987_654_321)
    os.utime(make_file(client_dir / "f"), ns=wanted)
    symbolic_link("absent", client_dir / "link")
    os.utime(client_dir / "link", ns=wanted, follow_symlinks=False)
    assert times(client_dir / "link")[1] == times(client_dir / "f")[1]


@pytest.mark.case("PSX-UTIMENS-DIRECTORY")
def test_times_of_a_directory_can_be_set(client_dir):
    """utimensat() accepts a directory."""
    (client_dir / "d").mkdir()
    os.utime(client_dir / "d", ns=(SOME_DAY, SOME_DAY))
    assert times(client_dir / "d")[1] == SOME_DAY


@pytest.mark.case("PSX-UTIMENS-FUTIMENS", section="POSIX.1-2024 futimens(): DESCRIPTION")
def test_futimens_acts_on_an_open_file(client_dir):
    """futimens() sets the times of the file that a descriptor refers to."""
    with open_fd(make_file(client_dir / "f")) as descriptor:
        os.utime(descriptor, ns=(SOME_DAY, SOME_DAY))
        assert os.fstat(descriptor).st_mtime_ns == SOME_DAY
    assert times(client_dir / "f")[1] == SOME_DAY


@pytest.mark.case("PSX-UTIMENS-EPERM", section=errors, kills=("utimens-by-any-user",))
def test_explicit_times_by_another_user_are_refused(client_dir):
    """[EPERM] The times are explicit, and the process neither owns the file nor is privileged."""
    client_dir.chmod(0o777)
    make_file(client_dir / "f", mode=0o666)
    with run_as_user(USER, USER):
        assert_errno(errno.EPERM, os.utime, client_dir / "f", ns=(0, 0))


@pytest.mark.case(
    "PSX-UTIMENS-EACCES",
    section=errors,
    kills=("utimens-atime-ignored", "utimens-by-any-user", "utimens-now-ignored"),
)
def test_current_time_requires_write_permission(client_dir):
    """[EACCES] times is null, and the process is neither owner nor privileged nor may write the file."""
    client_dir.chmod(0o777)
    make_file(client_dir / "closed", mode=0o644)
    os.utime(make_file(client_dir / "open", mode=0o666), ns=(0, 0))
    with run_as_user(USER, USER):
        assert_errno(errno.EACCES, os.utime, client_dir / "closed")
        os.utime(client_dir / "open")
    assert times(client_dir / "open")[1] > 0


@pytest.mark.case(
    "PSX-TIME-WRITE",
    section="POSIX.1-2024 write(): DESCRIPTION",
    kills=("write-ctime-not-moved", "write-mtime-not-moved"),
)
def test_write_updates_mtime_and_ctime(client_dir):
    """Upon successful completion of a write of more than 0 bytes, mtime and ctime are marked for update."""
    make_file(client_dir / "f")
    before = times(client_dir / "f")
    wait_clock_tick(client_dir)
    with open_fd(client_dir / "f", os.O_WRONLY) as descriptor:
        os.write(descriptor, b"x")
    after = times(client_dir / "f")
    assert after[1] > before[1]
    assert after[2] > before[2]


@pytest.mark.case("PSX-TIME-WRITE-FSTAT", section=stamps, kills=("write-mtime-not-moved",))
def test_fstat_after_a_write_shows_the_new_mtime(client_dir):
    """All fields that are marked for update shall be updated when the file is queried by fstat()."""
    with open_fd(make_file(client_dir / "f")) as descriptor:
        before = os.fstat(descriptor)
        wait_clock_tick(client_dir)
        os.write(descriptor, b"x")
        assert os.fstat(descriptor).st_mtime_ns > before.st_mtime_ns
        assert os.fstat(descriptor).st_size == 1


@pytest.mark.case("PSX-TIME-WRITE-NOTHING", section="POSIX.1-2024 write(): DESCRIPTION", level="SHOULD")
def test_empty_write_updates_no_time(client_dir):
    """If nbyte is 0 and the file is a regular file, write() shall return 0 and have no other results."""
    with open_fd(make_file(client_dir / "f", b"x")) as descriptor:
        before = times(client_dir / "f")
        wait_clock_tick(client_dir)
        assert os.write(descriptor, b"") == 0
    assert times(client_dir / "f")[1:] == before[1:]


@pytest.mark.case("PSX-TIME-WRITE-AFTER-UTIMENS", section=stamps, kills=("write-mtime-not-moved",))
def test_write_after_utimensat_updates_mtime(client_dir):
    """A write updates an mtime that was set before it."""
    with open_fd(make_file(client_dir / "f")) as descriptor:
        os.utime(client_dir / "f", ns=(SOME_DAY, SOME_DAY))
        os.write(descriptor, b"x")
    assert times(client_dir / "f")[1] > SOME_DAY


@pytest.mark.case("PSX-TIME-UTIMENS-AFTER-WRITE", section=stamps)
def test_time_set_after_a_write_is_kept(client_dir):
    """An earlier write cannot change an mtime that was set after it, whenever it is written back."""
    with open_fd(make_file(client_dir / "f")) as descriptor:
        os.write(descriptor, b"x" * 5000)
        os.utime(client_dir / "f", ns=(SOME_DAY, SOME_DAY))
        os.fsync(descriptor)
    assert times(client_dir / "f")[1] == SOME_DAY


@pytest.mark.case(
    "PSX-TIME-TRUNCATE",
    section="POSIX.1-2024 ftruncate(): DESCRIPTION",
    kills=("truncate-mtime-not-moved", "write-ctime-not-moved", "grow-keeps-mtime"),
)
def test_truncate_updates_mtime_and_ctime(client_dir):
    """Upon success mtime and ctime shall be marked for update."""
    make_file(client_dir / "f", b"content")
    for size in (3, 9):
        before = times(client_dir / "f")
        wait_clock_tick(client_dir)
        os.truncate(client_dir / "f", size)
        after = times(client_dir / "f")
        assert after[1] > before[1]
        assert after[2] > before[2]


@pytest.mark.case("PSX-TIME-READ", section="POSIX.1-2024 read(): DESCRIPTION", level="MAY")
def test_read_updates_atime(client_dir):
    """A read marks atime for update; relatime, noatime and the NFS client may leave it unchanged."""
    make_file(client_dir / "f", b"x")
    os.utime(client_dir / "f", ns=(SOME_DAY, SOME_DAY + SECOND))
    (client_dir / "f").read_bytes()
    moved = times(client_dir / "f")[0] != SOME_DAY
    record_observation("a read " + ("moves" if moved else "does not move") + " atime")
    assert moved


@pytest.mark.case("PSX-TIME-READ-MTIME", section="POSIX.1-2024 read(): DESCRIPTION")
def test_read_does_not_update_mtime(client_dir):
    """A read is no modification."""
    make_file(client_dir / "f", b"x")
    before = times(client_dir / "f")
    wait_clock_tick(client_dir)
    (client_dir / "f").read_bytes()
    assert times(client_dir / "f")[1:] == before[1:]


@pytest.mark.case("PSX-TIME-REFUSED", section=stamps)
def test_refused_call_updates_no_time(client_dir):
    """A call that fails marks no time stamp for update."""
    (client_dir / "d").mkdir()
    make_file(client_dir / "d" / "f")
    before = times(client_dir / "d")
    wait_clock_tick(client_dir)
    assert_errno(errno.EEXIST, os.mkdir, client_dir / "d" / "f")
    assert_errno(errno.ENOENT, os.unlink, client_dir / "d" / "absent")
    assert_errno((errno.ENOTEMPTY, errno.EEXIST), os.rmdir, client_dir / "d")
    assert times(client_dir / "d")[1:] == before[1:]


@pytest.mark.case("PSX-TIME-MONOTONIC", section=stamps)
def test_times_of_new_files_are_monotonic(client_dir):
    """The clock of the time stamps does not go back."""
    made = [times(make_file(client_dir / str(number)))[1] for number in range(12)]
    assert made == sorted(made)


@pytest.mark.case("PSX-TIME-CLOCK", section=stamps, level="SHOULD")
def test_clock_of_time_stamps_is_near_the_clients(client_dir):
    """Times are the current time: those of a server's clock differ by less than 2 s from the client's."""
    before = time.time_ns()
    made = times(make_file(client_dir / "f"))[1]
    offset = (made - before) / SECOND
    record_observation(
        "the clock that stamps files is "
        + ("near" if abs(offset) < 2 else f"{offset:.0f} s off")
        + " the client's"
    )
    assert abs(offset) < 2


@pytest.mark.case("PSX-TIME-ORDER", section=stamps)
def test_times_of_a_new_file_are_equal(client_dir):
    """The three time stamps of a new file are marked for update by the same call.

    The updates may come one after the other, up to a stat(): a server sets the attributes after the creation.
    """
    files = [make_file(client_dir / str(number)) for number in range(4)]
    made = [times(path) for path in files]
    read, written = (unit.step for unit in time_units(files[0]))
    status = coarsest_step([changed for _, _, changed in made])
    for accessed, modified, changed in made:
        apart = modified - changed
        assert -SECOND - written < apart < SECOND + status, "st_mtime and st_ctime are of two calls"
        assert -SECOND - read < accessed - modified < SECOND + written, "st_atime is of another call"


@pytest.mark.parametrize(
    "second",
    [
        pytest.param(second, id=str(second), marks=pytest.mark.case(f"PSX-UTIMENS-LATE-{second}"))
        for second in (2**31 + 1, 2**32 + 1)
    ],
)
@pytest.mark.case(kills=("time-after-2038-wraps",))
def test_late_time_is_the_greatest_that_is_supported(client_dir, second):
    """A time is set to the greatest value supported that is not greater than it, or refused."""
    make_file(client_dir / "f")
    try:
        os.utime(client_dir / "f", ns=(second * SECOND, second * SECOND))
    except OSError as error:
        assert error.errno in (errno.EINVAL, errno.EOVERFLOW, errno.ERANGE)
        return
    least = rounded(client_dir, (2**31 - 2) * SECOND, (2**31 - 2) * SECOND)
    for name, found, limit in zip(("atime", "mtime"), times(client_dir / "f"), least):
        assert limit <= found <= second * SECOND, f"{name}, set to {second} s, is {found / SECOND} s"


@pytest.mark.case("PSX-UTIMENS-EARLY-NANOSECONDS", kills=("time-before-1970-nanoseconds",))
def test_nanoseconds_of_an_early_time_are_rounded_down(client_dir):
    """A time before 1970 that is supported is rounded down to the same resolution as a later one."""
    make_file(client_dir / "f")
    part = 123_456_789
    unit = time_units(client_dir / "f")[1]
    early = -86_400 * SECOND + part
    try:
        os.utime(client_dir / "f", ns=(SOME_DAY, early))
    except OSError as error:
        assert error.errno in (errno.EINVAL, errno.EOVERFLOW, errno.ERANGE)
        record_observation("a time before 1970 is refused")
        return
    got = times(client_dir / "f")[1]
    if got >= 0:
        record_observation("a time before 1970 becomes a later one")
        return
    assert got == unit.floor(early), (
        f"set to {early} ns, the time is {got} ns at a resolution of {unit.step} ns"
    )


@pytest.mark.case("PSX-TIME-STAMP", section=stamps, kills=("stamp-nanoseconds-small",))
def test_stamps_advance_as_the_clock_does(client_dir):
    """Time stamps of files made one after the other are apart as the calls were, whatever the clock is."""
    low, high = [], []
    for number in range(4):
        before = time.time_ns()
        modified = times(make_file(client_dir / str(number), b"x"))[1]
        after = time.time_ns()
        low.append(modified - after)
        high.append(modified - before)
        time.sleep(0.22)
    modified = [times(client_dir / str(number))[1] for number in range(4)]
    coarse = all(each % SECOND == 0 for each in modified)
    tolerance = 2 * SECOND if coarse else SECOND // 10  # a clock of 100 Hz, and one that is being adjusted
    assert max(low) - tolerance <= min(high) + tolerance, (
        f"calls 0.22 s or more apart have the time stamps {modified}, whose distance is another"
    )


@pytest.mark.case(
    "PSX-UTIMENS-KINDS",
    section="POSIX.1-2024 utimensat(): DESCRIPTION",
    kills=("utimens-directory-seconds",),
)
def test_times_of_each_kind_have_the_resolution_of_the_file_system(client_dir):
    """The greatest supported value is set: of a directory and a FIFO as of a regular file."""
    (client_dir / "d").mkdir()
    paths = {"a regular file": make_file(client_dir / "f"), "a directory": client_dir / "d"}
    try:
        fifo(client_dir / "fifo")
        paths["a FIFO"] = client_dir / "fifo"
    except OSError:
        record_observation("no FIFO can be made")
    found = {}
    for kind, path in paths.items():
        found[kind] = []
        for nanoseconds in (123_456_789, 999_999_999, 1_000):
            given = 1_500_000_000 * 10**9 + nanoseconds
            os.utime(path, ns=(given + 10**9, given))
            one = os.stat(path)
            found[kind].append((one.st_atime_ns - given, one.st_mtime_ns - given))
    wanted = found["a regular file"]
    for kind, differences in found.items():
        assert differences == wanted, (
            f"times of {kind} differ from what was set by {differences}, not {wanted} ns"
        )


@pytest.mark.case(
    "PSX-TIME-DIRECTORY-SET",
    section=stamps,
    builds_on=("PSX-DATA-NEW-FILE", "PSX-UTIMENS-SETS"),
    kills=("future-directory-mtime-stays",),
)
def test_directory_whose_times_were_set_is_marked_by_the_next_change(client_dir):
    """A change of the entries marks mtime with the present, whether it was set to the past or the future."""
    directory, other = client_dir / "d", client_dir / "other"
    for path in (directory, other):
        path.mkdir()
    calls = {
        "open()": lambda: make_file(directory / "a"),
        "rename()": lambda: os.rename(directory / "a", directory / "b"),
        "rename() away": lambda: os.rename(directory / "b", other / "b"),
        "rename() back": lambda: os.rename(other / "b", directory / "a"),
        "unlink()": lambda: os.unlink(directory / "a"),
        "mkdir()": lambda: os.mkdir(directory / "s"),
        "rmdir()": lambda: os.rmdir(directory / "s"),
    }
    first = os.stat(make_file(client_dir / "clock")).st_mtime_ns
    for given, which in ((SOME_DAY, "past"), (first + 30 * 86400 * SECOND, "future")):
        for text, call in calls.items():
            os.utime(directory, ns=(given, given))
            call()
            found = os.stat(directory).st_mtime_ns
            assert first <= found < first + 86400 * SECOND, (
                f"{text} does not mark mtime of a directory that was set to the {which}: it is "
                f"{(found - first) / 1e9:+g} s from the present"
            )


IN_ORDER = (-(2**33), -(2**31) - 1, -(2**31), -86_400, -1, 0, 1, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**33)
"""Seconds since 1970, on both sides of what 32 bits hold."""


@pytest.mark.case("PSX-UTIMENS-ORDER", kills=("time-before-1970-wraps",))
def test_a_later_time_never_becomes_an_earlier_one(client_dir):
    """Each is the greatest supported value that is not greater, so the times keep their order."""
    make_file(client_dir / "f")
    found = {}
    for second in IN_ORDER:
        try:
            os.utime(client_dir / "f", ns=(second * SECOND, second * SECOND))
        except OSError as error:
            assert error.errno in (errno.EINVAL, errno.EOVERFLOW, errno.ERANGE)
            record_observation(f"{second} s is refused")
            continue
        found[second] = times(client_dir / "f")[:2]
    for earlier, later in pairwise(found):
        for name, first, then in zip(("atime", "mtime"), found[earlier], found[later], strict=True):
            assert first <= then, (
                f"{name}, set to {earlier} s and then to {later} s, is {first / SECOND} s and then "
                f"{then / SECOND} s: the later time is the earlier one"
            )
