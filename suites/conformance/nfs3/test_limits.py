"""What fits is kept whole: long names, wide owners, the upper bits of a mode, ranges behind the end."""

from __future__ import annotations

from typing import Any

import pytest

from storagetest.suites.conformance.nfs3.conftest import Arranged
from storagetest.wire.nfs3.client import Nfs3Client, attributes, ok
from storagetest.wire.nfs3.types import createmode3, nfs_fh3, nfsstat3

pytestmark = [pytest.mark.needs("nfs3-wire"), pytest.mark.case(level="MUST")]

# Names

LONG = 255
"""Bytes of a long name: as long as those of most file systems can be (chosen)."""

USES = {
    "LOOKUP": ("3.3.3", ("old",)),
    "MKDIR": ("3.3.9", ("old", "new")),
    "SYMLINK": ("3.3.10", ("old", "new")),
    "REMOVE": ("3.3.12", ()),
    "RENAME": ("3.3.14", ("new",)),
    "LINK": ("3.3.15", ("old", "new")),
}
"""Procedures with a name: their section, and the names that the directory has afterwards."""


def use(nfs: Nfs3Client, procedure: str, place: nfs_fh3, old: bytes, new: bytes) -> Any:
    """Return the result of ``procedure`` with the name of a file, or with a new name."""
    match procedure:
        case "LOOKUP":
            return nfs.lookup(place, old)
        case "MKDIR":
            return nfs.mkdir(place, new)
        case "SYMLINK":
            return nfs.symlink(place, new, b"target")
        case "REMOVE":
            return nfs.remove(place, old)
        case "RENAME":
            return nfs.rename(place, old, place, new)
        case _:
            return nfs.link(nfs.find(place, old), place, new)


@pytest.mark.parametrize(
    "procedure",
    [
        pytest.param(
            name,
            marks=pytest.mark.case(
                f"NF3-NAME-WHOLE-{name}", section=f"RFC 1813 3.2, {section}", kills=("names-254",)
            ),
        )
        for name, (section, _) in USES.items()
    ],
)
def test_every_procedure_takes_a_name_that_create_takes(
    nfs: Nfs3Client, here: Arranged, procedure: str
) -> None:
    """The maximum is that of the file system (name_max of PATHCONF), and so of all procedures."""
    length = min(LONG, ok(nfs.pathconf(here.handle)).name_max)
    old, new = b"a" * length, b"b" * length
    if here.nfs.create(here.handle, old).status == nfsstat3.NFS3ERR_NAMETOOLONG:
        pytest.skip(f"the file system has no names of {length} bytes (NFS3ERR_NAMETOOLONG)")
    done = use(nfs, procedure, here.handle, old, new)
    if done.status == nfsstat3.NFS3ERR_NOTSUPP:
        pytest.skip(f"the server does not support {procedure} (NFS3ERR_NOTSUPP)")
    ok(done)
    _, left = USES[procedure]
    found = {one.name for one in here.nfs.entries(here.handle)} - {b".", b".."}
    assert found == {{"old": old, "new": new}[one] for one in left}, f"{procedure} leaves {sorted(found)}"


# Owners


@pytest.mark.parametrize(
    "number",
    [
        pytest.param(number, marks=pytest.mark.case(f"NF3-SETATTR-WIDE-{number}", kills=("owners-16",)))
        for number in (65_539, 2_000_000_001, 4_000_000_001)
    ],
)
@pytest.mark.usefixtures("superuser", "authenticated")
@pytest.mark.case(section="RFC 1813 2.5, 3.3.2")
def test_owners_of_32_bits_are_kept_or_refused(nfs: Nfs3Client, here: Arranged, number: int) -> None:
    """uid3 and gid3 have 32 bits; a server that cannot store a number may answer NFS3ERR_INVAL (3.3.2)."""
    file = here.file()
    done = nfs.setattr(file, attributes(uid=number, gid=number + 1))
    if done.status in (nfsstat3.NFS3ERR_INVAL, nfsstat3.NFS3ERR_PERM):
        pytest.skip(f"the server stores no uid {number} ({done.status.name})")
    ok(done)
    found = nfs.attributes(file)
    assert (found.uid, found.gid) == (number, number + 1)


# Modes


@pytest.mark.parametrize(
    ("kind", "mode"),
    [
        pytest.param(
            kind, mode, marks=pytest.mark.case(f"NF3-MADE-MODE-{kind}-{mode:o}", kills=("made-mode-777",))
        )
        for kind, mode in (("FILE", 0o4755), ("FILE", 0o2755), ("DIR", 0o1777))
    ],
)
@pytest.mark.usefixtures("superuser", "authenticated")
@pytest.mark.case(section="RFC 1813 2.6, 3.3.8, 3.3.9")
def test_the_upper_bits_of_an_initial_mode_are_set(
    nfs: Nfs3Client, here: Arranged, kind: str, mode: int
) -> None:
    """mode3 has set-user-ID, set-group-ID and "save swapped text"; root may set them, as by SETATTR."""
    new = attributes(mode=mode)
    if kind == "DIR":
        ok(nfs.mkdir(here.handle, b"made", new=new))
    else:
        ok(nfs.create(here.handle, b"made", mode=createmode3.GUARDED, new=new))
    found = nfs.attributes(nfs.find(here.handle, b"made")).mode & 0o7777
    assert found == mode, f"the mode is {found:o}, and {mode:o} was asked for"


# COMMIT

RANGES = {"AT": (4096, 4096), "BEHIND": (1 << 20, 4096), "FAR": (1 << 40, 0)}
"""Offset and count of ranges of a file of 4096 bytes without data in them."""


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.case(f"NF3-COMMIT-{name}", kills=("commit-behind-invalid",)))
        for name in RANGES
    ],
)
@pytest.mark.case(section="RFC 1813 3.3.21")
def test_a_range_without_data_is_committed(nfs: Nfs3Client, here: Arranged, name: str) -> None:
    """Another client may have shortened the file; the errors of COMMIT have none for a range."""
    file = here.file(data=b"d" * 4096)
    ok(nfs.commit(file, *RANGES[name]))
    found = ok(nfs.read(file, 0, 8192)).data
    assert found, "a file of 4096 bytes is read as empty"
    assert found == (b"d" * 4096)[: len(found)]
