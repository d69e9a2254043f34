"""Objects that are no regular files: their attributes, their data, and how they are made (RFC 1813 3.3)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from storagetest.suites.conformance.nfs3.conftest import Arranged
from storagetest.wire.nfs3.client import Nfs3Client, attributes, ok
from storagetest.wire.nfs3.types import (
    CREATE3args,
    MKDIR3args,
    MKNOD3args,
    SYMLINK3args,
    createhow3,
    createmode3,
    diropargs3,
    ftype3,
    mknoddata3,
    nfs_fh3,
    nfsstat3,
    nfstime3,
    sattr3,
    specdata3,
    symlinkdata3,
)

pytestmark = [pytest.mark.needs("nfs3-wire"), pytest.mark.case(level="MUST", section="RFC 1813 3.3.2")]

THEN, BEFORE = nfstime3(1_000_000_000, 0), nfstime3(900_000_000, 0)
"""Times that every file system can keep."""
LACKING = (nfsstat3.NFS3ERR_NOTSUPP, nfsstat3.NFS3ERR_BADTYPE)
"""Statuses by which a server states that it makes no object of a type (3.3.10, 3.3.11)."""
NULL = specdata3(1, 3)
"""The numbers of the null device of Linux: a server that opens it by mistake does no harm."""
DATA = b"0123456789"


def special(here: Arranged, kind: str) -> nfs_fh3:
    """Make an object, and return its handle; a link names a file with ``DATA``. Skip if there is no such."""
    if kind == "DIR":
        return here.directory(b"made")
    if kind == "SYMLINK":
        here.file(b"target", DATA)
        return here.symlink(b"made", b"target")
    device = kind in ("CHR", "BLK")
    done = here.nfs.mknod(here.handle, b"made", ftype3[f"NF3{kind}"], device=NULL if device else None)
    if done.status != nfsstat3.NFS3_OK:  # the cases of MKNOD judge it
        pytest.skip(f"the server makes no {kind} ({done.status.name})")
    return here.nfs.find(here.handle, b"made")


# SETATTR

SETS: dict[str, sattr3] = {
    "MODE": attributes(mode=0o640),
    "OWNERS": attributes(uid=4007, gid=4008),
    "TIMES": attributes(atime=BEFORE, mtime=THEN),
}


def values(nfs: Nfs3Client, file: nfs_fh3) -> tuple[int, int, int, int, int]:
    """Return the mode, the owners and the times, in seconds."""
    found = nfs.attributes(file)
    return found.mode & 0o7777, found.uid, found.gid, found.atime.seconds, found.mtime.seconds


def with_sets(before: tuple[int, int, int, int, int], name: str) -> tuple[int, int, int, int, int]:
    """Return what :func:`values` are after ``SETS[name]``."""
    mode, uid, gid, atime, mtime = before
    match name:
        case "MODE":
            return 0o640, uid, gid, atime, mtime
        case "OWNERS":
            return mode, 4007, 4008, atime, mtime
        case _:
            return mode, uid, gid, BEFORE.seconds, THEN.seconds


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        pytest.param(
            kind, name, marks=pytest.mark.case(f"NF3-SETATTR-{kind}-{name}", kills=("setattr-files-alone",))
        )
        for kind in ("DIR", "FIFO", "SOCK", "CHR", "BLK")
        for name in SETS
    ],
)
@pytest.mark.usefixtures("superuser", "authenticated", "sets_times")
def test_attributes_of_objects_of_each_type_are_set(
    nfs: Nfs3Client, here: Arranged, kind: str, name: str
) -> None:
    """SETATTR changes attributes of a file system object, whatever its type is."""
    file = special(here, kind)
    before = values(here.nfs, file)
    ok(nfs.setattr(file, SETS[name]))
    found, wanted = values(here.nfs, file), with_sets(before, name)
    assert found == wanted, f"mode, owners and times are {found}, not {wanted}"


LINK_FAULTS = ("setattr-follows", "setattr-link-nothing")


def claim_set(nfs: Nfs3Client, link: nfs_fh3, name: str, status: nfsstat3) -> None:
    """Claim that a link has the owners that were set, and no other size; systems may fix mode and times."""
    if name == "SIZE":
        assert status != nfsstat3.NFS3_OK, "SETATTR of the size of a link succeeds"
    if name == "OWNERS" and status == nfsstat3.NFS3_OK:
        found = nfs.attributes(link)
        assert (found.uid, found.gid) == (4007, 4008), (
            f"SETATTR succeeds, and the owners are {found.uid} and {found.gid}, not 4007 and 4008"
        )


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(
            name,
            marks=pytest.mark.case(
                f"NF3-SETATTR-SYMLINK-{name}",
                kills=("setattr-follows",) if name in ("MODE", "TIMES") else LINK_FAULTS,
            ),
        )
        for name in (*SETS, "SIZE")
    ],
)
@pytest.mark.usefixtures("superuser", "authenticated", "sets_times")
def test_attributes_of_a_link_are_not_those_of_the_file_that_it_names(
    nfs: Nfs3Client, here: Arranged, name: str, observe: Callable[[str], None]
) -> None:
    """The handle is that of the link: SETATTR sets its attributes or refuses, and changes no other object."""
    link = special(here, "SYMLINK")
    target = here.nfs.find(here.handle, b"target")
    before = values(here.nfs, target)
    done = nfs.setattr(link, SETS.get(name, attributes(size=1)))
    observe(done.status.name)
    found = here.nfs.attributes(target)
    assert (values(here.nfs, target), found.size) == (before, len(DATA)), (
        f"a SETATTR of the link ({done.status.name}) changed the file that it names"
    )
    claim_set(here.nfs, link, name, done.status)
    text = ok(here.nfs.readlink(link)).data
    assert text == b"target", f"after SETATTR ({done.status.name}) the text of the link is {text!r}"


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(
            name,
            marks=pytest.mark.case(f"NF3-SETATTR-DANGLING-{name}", kills=("setattr-link-nothing",)),
        )
        for name in ("OWNERS", "SIZE")
    ],
)
@pytest.mark.usefixtures("superuser", "authenticated", "sets_times")
def test_attributes_of_a_link_to_nothing_are_set_or_refused(
    nfs: Nfs3Client, here: Arranged, name: str, observe: Callable[[str], None]
) -> None:
    """The handle is that of the link, which has attributes whatever its text is."""
    link = here.symlink(b"made", b"nothing")
    done = nfs.setattr(link, SETS.get(name, attributes(size=1)))
    observe(done.status.name)
    claim_set(here.nfs, link, name, done.status)
    listed = {one.name for one in here.nfs.entries(here.handle)} - {b".", b".."}
    assert listed == {b"made"}, f"after SETATTR ({done.status.name}) the directory has {sorted(listed)}"


FAT = 315_619_200
"""Two days into 1980, by when the times of file systems begin that keep no 0."""


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param(
            kind,
            marks=pytest.mark.case(
                f"NF3-SETATTR-EPOCH-{kind}", section="RFC 1813 2.5, 3.3.2", kills=("epoch-is-now",)
            ),
        )
        for kind in ("FILE", "DIR")
    ],
)
@pytest.mark.usefixtures("sets_times")
def test_times_of_0_are_set_as_far_as_the_file_system_goes(
    nfs: Nfs3Client, here: Arranged, kind: str
) -> None:
    """A time is the number of seconds since 1970, and 0 is one: it does not mean that there is no time."""
    made = here.file() if kind == "FILE" else here.directory()
    epoch = nfstime3(0, 0)
    done = nfs.setattr(made, attributes(atime=epoch, mtime=epoch))
    if done.status == nfsstat3.NFS3ERR_INVAL:
        pytest.skip("the server refuses the time (NFS3ERR_INVAL)")
    ok(done)
    found = here.nfs.attributes(made)
    assert found.mtime.seconds <= FAT, f"mtime is {found.mtime.seconds} s, and 0 was set"
    assert found.atime.seconds <= FAT, f"atime is {found.atime.seconds} s, and 0 was set"


# READ and WRITE

NO_FILES = ("SYMLINK", "FIFO", "SOCK", "CHR")


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param(
            kind,
            marks=pytest.mark.case(f"NF3-READ-{kind}", section="RFC 1813 3.3.6", kills=("read-dir",)),
        )
        for kind in NO_FILES
    ],
)
def test_what_is_no_regular_file_is_not_read(
    nfs: Nfs3Client, here: Arranged, kind: str, observe: Callable[[str], None]
) -> None:
    """The handle has to be that of an object of type NF3REG; another is refused, and no call waits for it."""
    done = nfs.read(special(here, kind), 0, 10)
    observe(done.status.name)
    assert done.status != nfsstat3.NFS3_OK, f"a READ of a {kind} returns {done.value.count} bytes"


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param(
            kind,
            marks=pytest.mark.case(f"NF3-WRITE-{kind}", section="RFC 1813 3.3.7", kills=("write-dir",)),
        )
        for kind in NO_FILES
    ],
)
def test_what_is_no_regular_file_is_not_written(
    nfs: Nfs3Client, here: Arranged, kind: str, observe: Callable[[str], None]
) -> None:
    """The handle has to be that of an object of type NF3REG; another is refused, and no call waits for it."""
    done = nfs.write(special(here, kind), 0, b"abc")
    observe(done.status.name)
    assert done.status != nfsstat3.NFS3_OK, f"a WRITE to a {kind} has written {done.value.count} bytes"
    if kind == "SYMLINK":
        data = ok(here.nfs.read(here.nfs.find(here.handle, b"target"), 0, 10)).data
        assert data == DATA, f"a WRITE to the link was refused, and the file that it names has {data!r}"


# What is made

NOTHING = attributes()


def created(mode: createmode3) -> Callable[[diropargs3], tuple[str, Any]]:
    """Return what makes the arguments of a CREATE."""
    return lambda where: ("CREATE", CREATE3args(where, createhow3(mode, NOTHING)))


def node(kind: ftype3) -> Callable[[diropargs3], tuple[str, Any]]:
    """Return what makes the arguments of an MKNOD."""
    return lambda where: ("MKNOD", MKNOD3args(where, mknoddata3(kind, NOTHING)))


PLAIN: dict[str, tuple[str, Callable[[diropargs3], tuple[str, Any]]]] = {
    "UNCHECKED": ("3.3.8", created(createmode3.UNCHECKED)),
    "GUARDED": ("3.3.8", created(createmode3.GUARDED)),
    "DIR": ("3.3.9", lambda where: ("MKDIR", MKDIR3args(where, NOTHING))),
    "SYMLINK": ("3.3.10", lambda where: ("SYMLINK", SYMLINK3args(where, symlinkdata3(NOTHING, b"text")))),
    "FIFO": ("3.3.11", node(ftype3.NF3FIFO)),
    "SOCK": ("3.3.11", node(ftype3.NF3SOCK)),
}
"""Calls without an initial attribute."""
TYPES = {"UNCHECKED": "REG", "GUARDED": "REG", "SYMLINK": "LNK"}


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param(
            kind,
            marks=pytest.mark.case(
                f"NF3-MADE-PLAIN-{kind}",
                section=f"RFC 1813 {section}",
                kills=("made-plain-refused",),
                builds_on=(f"NF3-MADE-TYPE-{kind}",) if kind in ("FIFO", "SOCK") else (),
            ),
        )
        for kind, (section, _) in PLAIN.items()
    ],
)
def test_an_object_is_made_though_no_attribute_is_set(nfs: Nfs3Client, here: Arranged, kind: str) -> None:
    """Each initial attribute may be absent (sattr3, 2.6): the server chooses its value."""
    done = nfs.call(*PLAIN[kind][1](diropargs3(here.handle, b"made")))
    if done.status in LACKING:
        pytest.skip(f"the server makes no {kind} ({done.status.name})")
    ok(done)
    found = here.nfs.attributes(here.nfs.find(here.handle, b"made")).type
    wanted = ftype3[f"NF3{TYPES.get(kind, kind)}"]
    assert found == wanted, f"a {found.name} was made, and {wanted.name} was asked for"


@pytest.mark.parametrize(
    ("mode", "kind"),
    [
        pytest.param(
            mode,
            kind,
            marks=pytest.mark.case(
                f"NF3-CREATE-{mode}-OVER-{kind}", section="RFC 1813 3.3.8", kills=("create-over-accepted",)
            ),
        )
        for mode, kind in (
            ("GUARDED", "DIR"),
            ("GUARDED", "SYMLINK"),
            ("EXCLUSIVE", "DIR"),
            ("EXCLUSIVE", "SYMLINK"),
            ("UNCHECKED", "DIR"),
        )
    ],
)
def test_no_file_is_made_in_the_place_of_another_object(
    nfs: Nfs3Client, here: Arranged, mode: str, kind: str, observe: Callable[[str], None]
) -> None:
    """The name is that of a directory, or of a link to nothing; the object stays, and no file is made."""
    if kind == "DIR":
        before = here.nfs.attributes(here.directory(b"made"))
    else:
        before = here.nfs.attributes(here.symlink(b"made", b"nothing"))
    done = nfs.create(here.handle, b"made", mode=createmode3[mode], verifier=b"verifier")
    if done.status == nfsstat3.NFS3ERR_NOTSUPP:
        pytest.skip(f"the server does not support {mode} (NFS3ERR_NOTSUPP)")
    observe(done.status.name)
    assert done.status != nfsstat3.NFS3_OK, f"CREATE {mode} of the name of a {kind} succeeds"
    after = here.nfs.attributes(here.nfs.find(here.handle, b"made"))
    assert replace(after, atime=before.atime) == before, f"the {kind} has changed"
    listed = {one.name for one in here.nfs.entries(here.handle)} - {b".", b".."}
    assert listed == {b"made"}, f"CREATE {mode} was refused, and the directory has {sorted(listed)}"
