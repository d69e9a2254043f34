"""What calls that make a file set, and what later replies state of it (RFC 1813 2.5, 3.3)."""

from __future__ import annotations

import pytest

from storagetest.suites.conformance.nfs3.conftest import Arranged
from storagetest.wire.nfs3.client import Nfs3Client, attributes, ok
from storagetest.wire.nfs3.types import (
    FSINFO3resok,
    createmode3,
    ftype3,
    nfs_fh3,
    nfsstat3,
    nfstime3,
    specdata3,
)

pytestmark = [pytest.mark.needs("nfs3-wire"), pytest.mark.case(level="MUST", section="RFC 1813 3.3.2")]

SECOND = 1_000_000_000
"""Nanoseconds in a second."""


def in_nanoseconds(time: nfstime3) -> int:
    """Return a time in nanoseconds."""
    return time.seconds * SECOND + time.nseconds


@pytest.mark.parametrize(
    ("field", "nanoseconds"),
    [
        pytest.param(
            field,
            nanoseconds,
            marks=pytest.mark.case(
                f"NF3-SETATTR-{field.upper()}-{nanoseconds}",
                kills=("setattr-seconds",),
                builds_on=(f"NF3-SETATTR-{field.upper()}",),
            ),
        )
        for field in ("atime", "mtime")
        for nanoseconds in (123_456_789, SECOND - 1)
    ],
)
@pytest.mark.case(section="RFC 1813 3.3.2, 3.3.19")
@pytest.mark.usefixtures("sets_times")
def test_a_time_is_set_as_exactly_as_time_delta_states(
    nfs: Nfs3Client, here: Arranged, limits: FSINFO3resok, field: str, nanoseconds: int
) -> None:
    file, time = here.file(), nfstime3(1_234_567_890, nanoseconds)
    ok(nfs.setattr(file, attributes(**{field: time})))
    found = in_nanoseconds(getattr(nfs.attributes(file), field))
    step = max(in_nanoseconds(limits.time_delta), 1)
    assert abs(found - in_nanoseconds(time)) < step, (
        f"{field} is {found} ns, and {in_nanoseconds(time)} was set"
    )


LAST_SIGNED = 0x7FFFFFFF
"""The last second of file systems that keep signed numbers of 32 bits, in 2038; they may keep it instead."""


@pytest.mark.parametrize(
    "seconds",
    [
        pytest.param(seconds, marks=pytest.mark.case(f"NF3-SETATTR-LATE-{year}", kills=("times-31-bits",)))
        for year, seconds in {2038: LAST_SIGNED + 1, 2050: 2_524_608_000, 2105: 4_260_211_200}.items()
    ],
)
@pytest.mark.case(section="RFC 1813 2.5")
@pytest.mark.usefixtures("sets_times")
def test_a_late_time_is_set_as_far_as_the_file_system_goes(
    nfs: Nfs3Client, here: Arranged, seconds: int
) -> None:
    """The seconds of a time are an unsigned number of 32 bits."""
    file = here.file()
    done = nfs.setattr(file, attributes(mtime=nfstime3(seconds, 0)))
    if done.status == nfsstat3.NFS3ERR_INVAL:
        pytest.skip("the server refuses the time (NFS3ERR_INVAL)")
    ok(done)
    found = nfs.attributes(file).mtime.seconds
    assert LAST_SIGNED <= found <= seconds, f"mtime is {found} s, and {seconds} s was set"


@pytest.mark.case(
    "NF3-PATHCONF-LINKMAX",
    section="RFC 1813 3.3.20",
    kills=("pathconf-linkmax-one",),
    builds_on=("NF3-LINK-01",),
)
def test_a_file_has_no_more_links_than_linkmax(nfs: Nfs3Client, here: Arranged) -> None:
    file = here.file()
    for at in range(3):
        here.link(file, b"link-%d" % at)
    most, links = ok(nfs.pathconf(file)).linkmax, nfs.attributes(file).nlink
    assert links <= most, f"linkmax is {most}, and the file has {links} links"


@pytest.mark.parametrize(
    ("mode", "size"),
    [
        pytest.param(
            mode,
            size,
            marks=pytest.mark.case(f"NF3-CREATE-{mode.name}-SIZE-{size}", kills=("create-size-ignored",)),
        )
        for mode in (createmode3.UNCHECKED, createmode3.GUARDED)
        for size in (1, 100_000)
    ],
)
@pytest.mark.case(section="RFC 1813 3.3.8")
def test_a_new_file_has_the_size_that_was_asked_for(
    nfs: Nfs3Client, here: Arranged, mode: createmode3, size: int
) -> None:
    done = nfs.create(here.handle, b"new", mode=mode, new=attributes(mode=0o644, size=size))
    if done.status in (nfsstat3.NFS3ERR_INVAL, nfsstat3.NFS3ERR_NOTSUPP):  # "unsupported argument" (2.6)
        pytest.skip(f"the server makes no file with a size ({done.status.name})")
    ok(done)
    file = nfs.find(here.handle, b"new")
    assert nfs.attributes(file).size == size
    end = ok(nfs.read(file, size - 1, 10))
    assert (end.data, end.eof) == (b"\0", True)


@pytest.mark.parametrize(
    "length",
    [
        pytest.param(
            length,
            marks=pytest.mark.case(f"NF3-SYMLINK-LONG-{length}", kills=mutants),
        )
        for mutants, lengths in {
            ("readlink-255", "symlink-255"): (256, 1000, 1023),
            ("symlink-1023",): (1024, 2000, 4000),
        }.items()
        for length in lengths
    ],
)
@pytest.mark.case(section="RFC 1813 3.3.10")
def test_a_long_text_of_a_symbolic_link_is_kept(nfs: Nfs3Client, here: Arranged, length: int) -> None:
    text = (b"directory/" * 400)[: length - 1] + b"x"
    done = nfs.symlink(here.handle, b"link", text)
    if done.status in (nfsstat3.NFS3ERR_NOTSUPP, nfsstat3.NFS3ERR_NAMETOOLONG):
        pytest.skip(f"the server has no symbolic link of {length} bytes ({done.status.name})")
    ok(done)
    link = nfs.find(here.handle, b"link")
    assert ok(nfs.readlink(link)).data == text
    assert nfs.attributes(link).size == length, "the size of a symbolic link is not that of its text"


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param(
            kind, marks=pytest.mark.case(f"NF3-MKNOD-DEVICE-{kind.name[3:]}", kills=("rdev-swapped",))
        )
        for kind in (ftype3.NF3BLK, ftype3.NF3CHR)
    ],
)
@pytest.mark.usefixtures("superuser")
@pytest.mark.case(section="RFC 1813 2.5, 3.3.11")
def test_a_device_has_the_numbers_that_it_was_made_with(
    nfs: Nfs3Client, here: Arranged, kind: ftype3
) -> None:
    done = nfs.mknod(here.handle, b"device", kind, device=specdata3(7, 11))
    if done.status in (nfsstat3.NFS3ERR_NOTSUPP, nfsstat3.NFS3ERR_BADTYPE, nfsstat3.NFS3ERR_PERM):
        pytest.skip(f"the server makes no device ({done.status.name})")
    ok(done)
    found = nfs.attributes(nfs.find(here.handle, b"device"))
    assert (found.type, found.rdev) == (kind, specdata3(7, 11))


def made(here: Arranged, kind: str) -> nfs_fh3:
    """Return a file or a directory."""
    return here.directory() if kind == "DIR" else here.file()


@pytest.mark.parametrize(
    ("kind", "mode"),
    [
        pytest.param(
            kind,
            mode,
            marks=pytest.mark.case(f"NF3-SETATTR-MODE-{kind}-{mode:o}", kills=("setattr-mode-low",)),
        )
        for kind, mode in (("FILE", 0o4755), ("FILE", 0o2755), ("DIR", 0o1777))
    ],
)
@pytest.mark.usefixtures("superuser")
@pytest.mark.case(section="RFC 1813 2.5, 3.3.2", level="SHOULD")
def test_the_upper_bits_of_a_mode_are_set(nfs: Nfs3Client, here: Arranged, kind: str, mode: int) -> None:
    file = made(here, kind)
    ok(nfs.setattr(file, attributes(mode=mode)))
    assert nfs.attributes(file).mode & 0o7777 == mode


@pytest.mark.parametrize(
    ("uid", "gid"),
    [
        pytest.param(
            uid,
            gid,
            marks=pytest.mark.case(
                f"NF3-SETATTR-OWNERS-{uid}-{gid}", kills=("uid-gid-swapped", "gid-with-uid")
            ),
        )
        for uid, gid in ((4001, 4002), (4003, 4001))
    ],
)
@pytest.mark.usefixtures("superuser")
def test_owner_and_group_are_set_together(nfs: Nfs3Client, here: Arranged, uid: int, gid: int) -> None:
    file = here.file()
    ok(nfs.setattr(file, attributes(uid=uid, gid=gid)))
    found = nfs.attributes(file)
    assert (found.uid, found.gid) == (uid, gid)


@pytest.mark.case("NF3-FSINFO-MAXFILESIZE", section="RFC 1813 3.3.19", kills=("maxfilesize-2g",))
def test_no_file_is_larger_than_maxfilesize(nfs: Nfs3Client, here: Arranged) -> None:
    file = here.file()
    done = nfs.write(file, 1 << 32, b"data")
    size, most = nfs.attributes(file).size, ok(nfs.fsinfo(here.handle)).maxfilesize
    assert size <= most, f"maxfilesize is {most}, and after a WRITE ({done.status.name}) the size is {size}"
