"""Initial attributes, times that are set together, and what refused calls state (RFC 1813 2.6, 3.3)."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from typing import Any

import pytest

from storagetest.suites.conformance.nfs3.conftest import Arranged
from storagetest.wire.nfs3.client import Nfs3Client, attributes, ok
from storagetest.wire.nfs3.types import (
    ACCESS3_READ,
    FSF3_CANSETTIME,
    FSINFO3resok,
    createmode3,
    fattr3,
    ftype3,
    nfs_fh3,
    nfsstat3,
    nfstime3,
    sattr3,
    time_how,
    wcc_attr,
    wcc_data,
)

pytestmark = [pytest.mark.needs("nfs3-wire"), pytest.mark.case(level="MUST", section="RFC 1813 3.3.2")]

THEN, BEFORE = nfstime3(1_000_000_000, 0), nfstime3(900_000_000, 0)
"""Times that every file system can keep."""

LACKING = (nfsstat3.NFS3ERR_NOTSUPP, nfsstat3.NFS3ERR_BADTYPE)
"""Statuses by which a server states that it makes no object of a type (3.3.10, 3.3.11)."""

INITIAL = ("UNCHECKED", "GUARDED", "DIR")
"""Ways of CREATE, and MKDIR, whose arguments have initial attributes."""

# What is made


def make(nfs: Nfs3Client, kind: str, place: nfs_fh3, new: sattr3) -> nfs_fh3:
    """Make an object with initial attributes, and return its handle; skip if the server makes none."""
    match kind:
        case "UNCHECKED" | "GUARDED":
            done = nfs.create(place, b"made", mode=createmode3[kind], new=new)
        case "DIR":
            done = nfs.mkdir(place, b"made", new=new)
        case _:
            done = nfs.mknod(place, b"made", ftype3[f"NF3{kind}"])
    if done.status in LACKING:
        pytest.skip(f"the server makes no {kind} ({done.status.name})")
    if kind in INITIAL and done.status == nfsstat3.NFS3ERR_INVAL:  # "unsupported argument" (2.6)
        pytest.skip(f"the server makes no {kind} with these attributes ({done.status.name})")
    ok(done)
    return nfs.find(place, b"made")


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param(kind, marks=pytest.mark.case(f"NF3-MADE-TIMES-{kind}", kills=("made-times-ignored",)))
        for kind in INITIAL
    ],
)
@pytest.mark.case(section="RFC 1813 3.3.8, 3.3.9")
def test_initial_times_are_those_that_were_asked_for(
    nfs: Nfs3Client, here: Arranged, limits: FSINFO3resok, kind: str
) -> None:
    """The arguments have the initial attributes for the file (3.3.8) and for the subdirectory (3.3.9)."""
    if not limits.properties & FSF3_CANSETTIME:
        pytest.skip("the server sets no times (FSINFO, FSF3_CANSETTIME)")
    found = nfs.attributes(make(nfs, kind, here.handle, attributes(mode=0o755, atime=BEFORE, mtime=THEN)))
    assert (found.mtime.seconds, found.atime.seconds) == (THEN.seconds, BEFORE.seconds)


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param(kind, marks=pytest.mark.case(f"NF3-MADE-OWNERS-{kind}", kills=("made-owners-ignored",)))
        for kind in INITIAL
    ],
)
@pytest.mark.usefixtures("superuser", "authenticated")
@pytest.mark.case(section="RFC 1813 3.3.8, 3.3.9")
def test_initial_owners_are_those_that_root_asks_for(nfs: Nfs3Client, here: Arranged, kind: str) -> None:
    """The arguments have the initial attributes for the file (3.3.8) and for the subdirectory (3.3.9)."""
    found = nfs.attributes(make(nfs, kind, here.handle, attributes(mode=0o755, uid=4007, gid=4008)))
    assert (found.uid, found.gid) == (4007, 4008)


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param(
            kind, marks=pytest.mark.case(f"NF3-MADE-TYPE-{kind}", kills=("listing-special-regular",))
        )
        for kind in ("FIFO", "SOCK")
    ],
)
@pytest.mark.case(section="RFC 1813 3.3.11, 3.3.17")
def test_a_special_file_has_its_type_in_every_result(nfs: Nfs3Client, here: Arranged, kind: str) -> None:
    """MKNOD makes a special file of the type; the attributes of a result are those of the file (2.6)."""
    wanted = ftype3[f"NF3{kind}"]
    file = make(nfs, kind, here.handle, attributes())
    stated: dict[str, fattr3 | None] = {
        "GETATTR": nfs.attributes(file),
        "LOOKUP": ok(nfs.lookup(here.handle, b"made")).obj_attributes,
        "ACCESS": ok(nfs.access(file, ACCESS3_READ)).obj_attributes,
    }
    if nfs.readdirplus(here.handle).status != nfsstat3.NFS3ERR_NOTSUPP:
        listed = {one.name: one.name_attributes for one in nfs.entries_plus(here.handle)}
        stated["READDIRPLUS"] = listed[b"made"]
    types = {name: one.type for name, one in stated.items() if one is not None}
    assert set(types.values()) == {wanted}, f"it is {wanted.name}, and the results state {types}"


# Times that are set together

HOWS = (time_how.DONT_CHANGE, time_how.SET_TO_SERVER_TIME, time_how.SET_TO_CLIENT_TIME)
_SHORT = dict(zip(HOWS, ("KEPT", "SERVER", "CLIENT"), strict=True))


@pytest.mark.parametrize(
    ("atime", "mtime"),
    [
        pytest.param(
            *hows,
            marks=pytest.mark.case(
                f"NF3-SETATTR-TIMES-{_SHORT[hows[0]]}-{_SHORT[hows[1]]}",
                kills=("setattr-mixed-times",)
                if set(hows) == {time_how.SET_TO_SERVER_TIME, time_how.SET_TO_CLIENT_TIME}
                else ("setattr-server-time",)
                if hows[1] == time_how.SET_TO_SERVER_TIME
                else ("setattr-server-atime",)
                if hows[0] == time_how.SET_TO_SERVER_TIME and hows[1] == time_how.DONT_CHANGE
                else ("setattr-mtime",)
                if hows[1] == time_how.SET_TO_CLIENT_TIME
                else ("setattr-atime",),
            ),
        )
        for hows in product(HOWS, HOWS)
        if set(hows) != {time_how.DONT_CHANGE}
    ],
)
@pytest.mark.case(section="RFC 1813 2.6, 3.3.2")
def test_each_time_is_set_in_its_own_way(
    nfs: Nfs3Client, here: Arranged, limits: FSINFO3resok, atime: time_how, mtime: time_how
) -> None:
    """set_atime and set_mtime are two unions, each with a discriminant of its own (2.6)."""
    if not limits.properties & FSF3_CANSETTIME:
        pytest.skip("the server sets no times (FSINFO, FSF3_CANSETTIME)")
    file = here.file()
    ok(here.nfs.setattr(file, attributes(atime=BEFORE, mtime=BEFORE)))
    how = {"atime": atime, "mtime": mtime}
    ok(
        nfs.setattr(
            file,
            attributes(
                **{
                    name: THEN if one == time_how.SET_TO_CLIENT_TIME else one
                    for name, one in how.items()
                    if one != time_how.DONT_CHANGE
                }
            ),
        )
    )
    found = here.nfs.attributes(file)
    for name, one in how.items():
        seconds = getattr(found, name).seconds
        if one == time_how.SET_TO_SERVER_TIME:
            assert abs(seconds - found.ctime.seconds) <= 1, f"{name} is not the server's time, as ctime is"
        else:
            wanted = THEN if one == time_how.SET_TO_CLIENT_TIME else BEFORE
            assert seconds == wanted.seconds, f"{name} is {seconds}, and it has to be {wanted.seconds}"


# Refused calls


def refuse(nfs: Nfs3Client, call: str, place: nfs_fh3) -> tuple[Any, nfsstat3, Mapping[str, nfs_fh3]]:
    """Send a call that has to fail; return its result, the status, and the objects of its fields."""
    of_place = {"dir_wcc": place}
    match call:
        case "SETATTR":
            file = nfs.find(place, b"file")
            done = nfs.setattr(file, attributes(mode=0o600, size=1), guard=BEFORE)
            return done, nfsstat3.NFS3ERR_NOT_SYNC, {"obj_wcc": file}
        case "CREATE":
            return nfs.create(place, b"file", mode=createmode3.GUARDED), nfsstat3.NFS3ERR_EXIST, of_place
        case "MKDIR":
            return nfs.mkdir(place, b"inner"), nfsstat3.NFS3ERR_EXIST, of_place
        case "REMOVE":
            return nfs.remove(place, b"absent"), nfsstat3.NFS3ERR_NOENT, of_place
        case "RMDIR":
            return nfs.rmdir(place, b"inner"), nfsstat3.NFS3ERR_NOTEMPTY, of_place
        case "LOOKUP":
            return nfs.lookup(place, b"absent"), nfsstat3.NFS3ERR_NOENT, {"dir_attributes": place}
        case "RENAME":
            inner = nfs.find(place, b"inner")
            done = nfs.rename(inner, b"absent", place, b"new")
            return done, nfsstat3.NFS3ERR_NOENT, {"fromdir_wcc": inner, "todir_wcc": place}
        case _:
            file = nfs.find(place, b"file")
            done = nfs.link(file, place, b"inner")
            return done, nfsstat3.NFS3ERR_EXIST, {"file_attributes": file, "linkdir_wcc": place}


@pytest.mark.parametrize(
    "call",
    [
        pytest.param(
            call,
            marks=pytest.mark.case(
                f"NF3-REFUSED-{call}",
                kills=("not-sync-after-new",) if call == "SETATTR" else ("refused-after-other",),
            ),
        )
        for call in ("SETATTR", "CREATE", "MKDIR", "REMOVE", "RMDIR", "LOOKUP", "RENAME", "LINK")
    ],
)
@pytest.mark.case(section="RFC 1813 2.6")
def test_a_refused_call_changes_nothing_and_states_what_is(
    nfs: Nfs3Client, here: Arranged, call: str
) -> None:
    """Attributes in a result are the real ones of the object, also in that of a call that failed (2.6)."""
    place = here.directory(b"place")
    inside = Arranged(here.nfs, place)
    inside.file(data=b"0123456789")
    Arranged(here.nfs, inside.directory(b"inner")).file(b"kept")
    objects = [place, nfs.find(place, b"file"), nfs.find(place, b"inner")]
    was = {one.data: nfs.attributes(one) for one in objects}
    done, status, fields = refuse(nfs, call, place)
    if done.status in LACKING:
        pytest.skip(f"the server does not support {call} ({done.status.name})")
    assert done.status == status, f"{call} ends with {done.status.name}; {status.name} is required"
    for name, handle in fields.items():
        stated, one = getattr(done.value, name), was[handle.data]
        after = stated.after if isinstance(stated, wcc_data) else stated
        if after is not None:
            assert without_atime(after) == without_atime(one), f"{name} is not what GETATTR stated before"
        if isinstance(stated, wcc_data) and stated.before is not None:
            assert stated.before == wcc_attr(one.size, one.mtime, one.ctime), f"{name}.before is another"
    for handle in objects:
        is_now = without_atime(nfs.attributes(handle))
        assert is_now == without_atime(was[handle.data]), "the refused call has changed an object"


def without_atime(found: fattr3) -> dict[str, object]:
    """Return attributes without the time of access and the space in use, which may change by themselves."""
    return {name: getattr(found, name) for name, _ in fattr3.FIELDS if name not in ("atime", "used")}
