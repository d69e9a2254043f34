"""What holds the second time, at large sizes and on later pages (RFC 5531 11, RFC 1813 2.6 and 3.3)."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from storagetest.suites.conformance.nfs3.conftest import Arranged
from storagetest.wire.nfs3.client import NO_VERIFIER, Nfs3Client, attributes, ok, refused
from storagetest.wire.nfs3.harness import Nfs3Harness
from storagetest.wire.nfs3.types import (
    FSINFO3resok,
    GETATTR3args,
    WRITE3args,
    nfs_fh3,
    nfsstat3,
    nfstime3,
    sattr3,
    stable_how,
    time_how,
    wcc_attr,
    wcc_data,
)

pytestmark = [pytest.mark.needs("nfs3-wire"), pytest.mark.case(level="MUST", section="RFC 1813 3.3.6")]

LARGEST = 1 << 20
"""Bytes of the largest READ and WRITE, or the server's rtmax and wtmax if they are less (chosen)."""

TICK = 0.03
"""Seconds between two changes of one file, whose times then differ on a clock of 100 Hz (chosen)."""

LONGEST_STEP = 3.0
"""Seconds of the largest granularity of times that a case waits for (chosen; FAT has 2)."""


def sizes(most: int) -> list[int]:
    """Return sizes up to ``most``: powers of two from 4 KiB, and one byte less and more."""
    near = [4096 << step for step in range(9)]
    return sorted({size for one in near for size in (one - 1, one, one + 1) if size <= most} | {most})


def wait_for_another_time(nfs: Nfs3Client, handle: nfs_fh3) -> None:
    """Sleep until a change gets another ctime than ``handle`` has: a tick, or the step that FSINFO states.

    ``time_delta`` is the server's time granularity (RFC 1813 3.3.19). It is waited for only if the times
    are multiples of it: many servers state more than they have.
    """
    delta, now = ok(nfs.fsinfo(handle)).time_delta, nfs.attributes(handle).ctime
    step = delta.seconds * 1_000_000_000 + delta.nseconds
    stated = now.seconds * 1_000_000_000 + now.nseconds
    seconds = step / 1_000_000_000 if step and stated % step == 0 else 0.0
    if seconds > LONGEST_STEP:
        pytest.skip(f"the server keeps times in steps of {seconds:g} s (FSINFO, time_delta)")
    time.sleep(seconds + TICK)


def noise(size: int) -> bytes:
    """Return ``size`` bytes without a period."""
    return random.Random(size).randbytes(size)  # noqa: S311  # data, no secret


@pytest.mark.case("NF3-READ-SIZES", kills=("read-large-eof",))
def test_a_read_of_every_size_returns_data_and_no_early_eof(
    nfs: Nfs3Client, here: Arranged, limits: FSINFO3resok
) -> None:
    most = min(limits.rtmax or LARGEST, LARGEST)
    data = noise(most + 8192)
    file = here.file(data=data)
    for size in sizes(most):
        part = ok(nfs.read(file, 0, size))
        assert part.count == len(part.data) <= size
        assert part.data == data[: part.count]
        assert not part.eof, f"a READ of {size} bytes from the beginning of {len(data)} states eof"


@pytest.mark.case("NF3-READ-SIZES-EOF", kills=("read-eof",))
def test_a_read_of_every_size_that_reaches_the_end_states_eof(
    nfs: Nfs3Client, here: Arranged, limits: FSINFO3resok
) -> None:
    most = min(limits.rtmax or LARGEST, LARGEST)
    data = noise(most)
    file = here.file(data=data)
    for size in sizes(most):
        at = len(data) - size
        part = ok(nfs.read(file, at, size))
        assert part.data == data[at : at + part.count]
        assert part.eof == (part.count == size), f"eof is {part.eof} after {part.count} of {size} bytes"


@pytest.mark.parametrize(
    "stable",
    [
        pytest.param(stable_how.UNSTABLE, marks=pytest.mark.case("NF3-WRITE-SIZES", kills=("write-count",))),
        pytest.param(
            stable_how.DATA_SYNC,
            marks=pytest.mark.case("NF3-WRITE-SIZES-DATA", kills=("write-large-unstable",)),
        ),
        pytest.param(
            stable_how.FILE_SYNC,
            marks=pytest.mark.case("NF3-WRITE-SIZES-FILE", kills=("write-large-unstable",)),
        ),
    ],
)
@pytest.mark.case(section="RFC 1813 3.3.7")
def test_a_write_of_every_size_is_committed_as_asked(
    nfs: Nfs3Client, here: Arranged, limits: FSINFO3resok, stable: stable_how
) -> None:
    file, verifiers = here.file(), set()
    for size in sizes(min(limits.wtmax or LARGEST, LARGEST)):
        data = noise(size)
        done = ok(nfs.write(file, 0, data, stable=stable))
        assert 0 < done.count <= size
        assert done.committed >= stable, f"{size} bytes: {done.committed.name}, and {stable.name} was asked"
        verifiers.add(done.verf)
        head = ok(here.nfs.read(file, 0, 4096)).data
        assert head[: done.count] == data[: min(4096, done.count)]
    assert len(verifiers) == 1, "the write verifier changes while the server keeps its connections"


@pytest.mark.case(
    "NF3-COMMIT-AGAIN",
    section="RFC 1813 3.3.21",
    kills=("commit-second-verifier",),
    builds_on=("NF3-COMMIT-CLEAN",),
)
def test_the_verifier_of_later_commits_is_that_of_the_writes(nfs: Nfs3Client, here: Arranged) -> None:
    file, verifiers = here.file(), set()
    for at in range(4):
        verifiers.add(ok(nfs.write(file, at * 4096, noise(4096), stable=stable_how.UNSTABLE)).verf)
        verifiers.add(ok(nfs.commit(file)).verf)
    assert len(verifiers) == 1, "the write verifier changes while the server keeps its connections"


@pytest.mark.case(
    "NF3-READDIRPLUS-PAGE-HANDLES",
    section="RFC 1813 3.3.17",
    kills=(
        "readdir-later-eof-early",
        "readdirplus-later-page-handles",
    ),
    builds_on=("NF3-READDIRPLUS-SMALL",),
)
def test_each_handle_of_every_page_is_that_of_its_name(nfs: Nfs3Client, here: Arranged) -> None:
    wanted = {name: here.file(name) for name in (b"name-%02d" % at for at in range(40))}
    known = {name: here.nfs.attributes(file).fileid for name, file in wanted.items()}
    cookie, verifier, found = 0, NO_VERIFIER, set()
    for _ in range(len(wanted) + 3):  # a page may have one entry: ".", ".." and an end without any
        done = nfs.readdirplus(here.handle, cookie=cookie, verifier=verifier, dircount=1024, maxcount=2048)
        if done.status == nfsstat3.NFS3ERR_NOTSUPP:
            pytest.skip("the server does not support READDIRPLUS (NFS3ERR_NOTSUPP)")
        page = ok(done)
        for one in page.reply.entries:
            if one.name in known and one.name_handle is not None:
                fileid = here.nfs.attributes(one.name_handle).fileid
                assert fileid == known[one.name] == one.fileid, (
                    f"the handle of {one.name!r} is another file's"
                )
            found.add(one.name)
        if page.reply.eof or not page.reply.entries:
            break
        cookie, verifier = page.reply.entries[-1].cookie, page.cookieverf
    assert set(known) <= found


CHANGES = (
    "CREATE",
    "MKDIR",
    "REMOVE",
    "RMDIR",
    "RENAME",
    "RENAME-FROM",
    "RENAME-TO",
    "SETATTR",
    "SYMLINK",
    "LINK",
)


def add_a_name(nfs: Nfs3Client, name: str, place: nfs_fh3) -> tuple[Any, str]:
    """Make a symbolic link or a hard link; return the result and its field. Skip if the server has none."""
    if name == "SYMLINK":
        done, field = nfs.symlink(place, b"new", b"target"), "dir_wcc"
    else:
        done, field = nfs.link(nfs.find(place, b"file"), place, b"new"), "linkdir_wcc"
    if done.status == nfsstat3.NFS3ERR_NOTSUPP:
        pytest.skip(f"the server does not support {name} (NFS3ERR_NOTSUPP)")
    return done, field


def change(nfs: Nfs3Client, name: str, place: nfs_fh3, other: nfs_fh3) -> wcc_data:
    """Change the directory ``place``, and return its weak cache consistency data."""
    match name:
        case "CREATE":
            done, field = nfs.create(place, b"new"), "dir_wcc"
        case "MKDIR":
            done, field = nfs.mkdir(place, b"new"), "dir_wcc"
        case "REMOVE":
            done, field = nfs.remove(place, b"file"), "dir_wcc"
        case "RMDIR":
            done, field = nfs.rmdir(place, b"empty"), "dir_wcc"
        case "RENAME":
            done, field = nfs.rename(place, b"file", place, b"new"), "todir_wcc"
        case "RENAME-FROM":
            done, field = nfs.rename(place, b"file", other, b"new"), "fromdir_wcc"
        case "RENAME-TO":
            done, field = nfs.rename(other, b"there", place, b"new"), "todir_wcc"
        case "SYMLINK" | "LINK":
            done, field = add_a_name(nfs, name, place)
        case _:
            done, field = nfs.setattr(place, attributes(mode=0o700)), "obj_wcc"
    found: wcc_data = getattr(ok(done), field)
    return found


UNSTATED = "NFS-Ganesha states no attributes before it"
KILLED: dict[str, tuple[str, ...]] = {
    "MKDIR": ("mkdir-parent-nlink",),
    "REMOVE": ("remove-before-is-after",),
    "RENAME-TO": ("rename-target-wcc",),
    "SYMLINK": ("symlink-after-old",),
    "LINK": ("link-after-old",),
}


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(
            name,
            marks=pytest.mark.case(
                f"NF3-BEFORE-{name}",
                kills=KILLED.get(name, ("before-is-after",)),
                builds_on=("NF3-LINK-01",) if name == "LINK" else (),
            ),
        )
        for name in CHANGES
    ],
)
@pytest.mark.case(section="RFC 1813 2.6")
def test_the_attributes_before_a_change_are_those_of_the_directory_then(
    nfs: Nfs3Client, here: Arranged, name: str
) -> None:
    place, other = here.directory(b"place"), here.directory(b"other")
    inside, outside = Arranged(here.nfs, place), Arranged(here.nfs, other)
    inside.file()
    inside.directory(b"empty")
    outside.file(b"there")
    wait_for_another_time(here.nfs, place)
    was = nfs.attributes(place)
    wcc = change(nfs, name, place, other)
    is_now = nfs.attributes(place)
    if wcc.before is not None:
        assert wcc.before == wcc_attr(was.size, was.mtime, was.ctime), "`before` is not what GETATTR stated"
    if wcc.after is not None:
        after = wcc.after.size, wcc.after.mtime, wcc.after.ctime, wcc.after.nlink
        assert after == (is_now.size, is_now.mtime, is_now.ctime, is_now.nlink)
    assert was.ctime != is_now.ctime, "a directory that was changed keeps its ctime"


@pytest.mark.parametrize(
    "stable",
    [
        pytest.param(stable_how.UNSTABLE, marks=pytest.mark.case("NF3-BEFORE-WRITE")),
        pytest.param(stable_how.FILE_SYNC, marks=pytest.mark.case("NF3-BEFORE-WRITE-SYNC")),
    ],
)
@pytest.mark.case(section="RFC 1813 2.6", no_mutant_reason=UNSTATED, builds_on=("NF3-COMMIT-CLEAN",))
def test_the_attributes_before_a_later_write_are_those_of_the_file_then(
    nfs: Nfs3Client, here: Arranged, stable: stable_how
) -> None:
    file = here.file(data=b"0123456789")
    for at in range(2):
        ok(nfs.commit(file))
        time.sleep(TICK)
        was = nfs.attributes(file)
        wcc = ok(nfs.write(file, 10 * at + 5, b"0123456789", stable=stable)).file_wcc
        if wcc.before is not None:
            assert wcc.before == wcc_attr(was.size, was.mtime, was.ctime), "not what GETATTR stated"
        if wcc.after is not None:
            assert wcc.after.size == 10 * at + 15


@pytest.mark.case(
    "NF3-SETATTR-GUARD-AGAIN",
    section="RFC 1813 3.3.2",
    kills=("guard-second-ignored",),
    builds_on=("NF3-BEFORE-SETATTR", "NF3-SETATTR-GUARD"),
)
def test_the_guard_of_every_setattr_is_compared(nfs: Nfs3Client, here: Arranged) -> None:
    file = here.file()
    for mode in (0o600, 0o640, 0o644):
        old = here.nfs.attributes(file).ctime
        wait_for_another_time(here.nfs, file)
        ok(nfs.setattr(file, attributes(mode=mode), guard=old))
        refused(nfs.setattr(file, attributes(mode=0o777), guard=old), nfsstat3.NFS3ERR_NOT_SYNC)
        assert here.nfs.attributes(file).mode & 0o777 == mode


@pytest.mark.case(
    "RPC-REC-LATER", section="RFC 5531 11", kills=("fragments-later-lost",), builds_on=("RPC-REC-TWO",)
)
def test_later_calls_of_a_connection_may_be_in_fragments(bench: Nfs3Harness, root: nfs_fh3) -> None:
    nfs = Nfs3Client(bench.rpc())
    for fragments in ((), (4,), (), (8, 24), (40,), (4, 4, 4)):
        ok(nfs.call("GETATTR", GETATTR3args(root), fragments=fragments))


@pytest.mark.case(
    "RPC-REC-WRITE", section="RFC 5531 11", kills=("fragments-later-lost",), builds_on=("RPC-REC-TWO",)
)
def test_large_writes_in_fragments_are_executed(
    nfs: Nfs3Client, here: Arranged, limits: FSINFO3resok
) -> None:
    file, size = here.file(), min(limits.wtmax or 65536, 65536)
    for at, fragments in enumerate(((), (size // 2,), (1000,) * (size // 1000), (8, 64, size // 4))):
        data = noise(size - at)
        argument = WRITE3args(file, 0, len(data), stable_how.FILE_SYNC, data)
        done = ok(nfs.call("WRITE", argument, fragments=fragments))
        found = ok(here.nfs.read(file, 0, 4096)).data[: done.count]
        assert found, "what was written is not read"
        assert found == data[: len(found)], "what was written is read as others"


GUARDED = {
    "SIZE": attributes(size=3),
    "SIZE-MODE": attributes(size=3, mode=0o600),
    "TIMES": attributes(atime=time_how.SET_TO_SERVER_TIME, mtime=time_how.SET_TO_SERVER_TIME),
    "MODE": attributes(mode=0o600),
}
"""Attributes that a SETATTR sets whose guard does not match."""


def guarded(nfs: Nfs3Client, here: Arranged, new: sattr3, guard: Callable[[nfstime3], nfstime3]) -> None:
    """Check that a guard which differs from the ctime of a file prevents the change."""
    file = here.file(data=b"0123456789")
    old = here.nfs.attributes(file)
    given = guard(old.ctime)
    done = nfs.setattr(file, new, guard=given)
    assert done.status == nfsstat3.NFS3ERR_NOT_SYNC, (
        f"SETATTR with another guard than the ctime ends with {done.status.name}: {given}, {old.ctime}"
    )
    assert here.nfs.attributes(file) == old, "a SETATTR that is refused for its guard changes attributes"


@pytest.mark.parametrize(
    "new",
    [
        pytest.param(
            new,
            id=name,
            marks=pytest.mark.case(
                f"NF3-SETATTR-GUARD-EACH-{name}",
                section="RFC 1813 3.3.2",
                kills=("setattr-guard",) if new.size is None else ("guard-with-size-ignored",),
                builds_on=("NF3-SETATTR-GUARD",),
            ),
        )
        for name, new in GUARDED.items()
    ],
)
def test_a_guard_is_compared_whatever_is_set(nfs: Nfs3Client, here: Arranged, new: sattr3) -> None:
    """A guard that differs by a second prevents the change of each attribute."""
    guarded(nfs, here, new, lambda ctime: replace(ctime, seconds=ctime.seconds - 1))


@pytest.mark.case(
    "NF3-SETATTR-GUARD-NSEC",
    section="RFC 1813 3.3.2",
    kills=("guard-seconds",),
    builds_on=("NF3-SETATTR-GUARD",),
)
def test_the_nanoseconds_of_a_guard_are_compared(nfs: Nfs3Client, here: Arranged) -> None:
    """A guard that differs by a nanosecond prevents the change."""
    look = here.file(b"look")
    if ok(nfs.fsinfo(look)).time_delta.seconds and not here.nfs.attributes(look).ctime.nseconds:
        pytest.skip("the server keeps times in whole seconds (FSINFO, time_delta)")
    new = attributes(mode=0o600)
    guarded(nfs, here, new, lambda ctime: replace(ctime, nseconds=(ctime.nseconds + 1) % 1_000_000_000))
