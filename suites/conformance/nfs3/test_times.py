"""The times that the server keeps by itself: what each change has to move (RFC 1813 2.6, 3.3.2).

Clients compare mtime and ctime to find out whether what they have in their caches is still true. A change is
made on one connection, and the times are read on it and on another one.
"""

from __future__ import annotations

import pytest

from storagetest.suites.conformance.nfs3.conftest import Arranged
from storagetest.suites.conformance.nfs3.test_again import wait_for_another_time
from storagetest.wire.nfs3.client import Nfs3Client, attributes, ok
from storagetest.wire.nfs3.types import fattr3, nfs_fh3, stable_how

pytestmark = [pytest.mark.needs("nfs3-wire"), pytest.mark.case(level="MUST", section="RFC 1813 2.6")]

DATA = b"0123456789"
HOWS = (stable_how.UNSTABLE, stable_how.DATA_SYNC, stable_how.FILE_SYNC)


def looks(nfs: Nfs3Client, here: Arranged, file: nfs_fh3) -> list[fattr3]:
    """Return the attributes that the connection of the claims gets, and those that another one gets."""
    return [nfs.attributes(file), here.nfs.attributes(file)]


def assert_later(field: str, before: fattr3, found: list[fattr3], change: str) -> None:
    """Check that a time is later than ``before`` on each connection."""
    was = getattr(before, field)
    for number, one in enumerate(found, 1):
        is_now = getattr(one, field)
        assert (is_now.seconds, is_now.nseconds) > (was.seconds, was.nseconds), (
            f"connection {number}: {field} is {is_now.seconds}.{is_now.nseconds:09} after {change}, "
            f"and was {was.seconds}.{was.nseconds:09} before it"
        )


@pytest.mark.parametrize(
    "how",
    [
        pytest.param(how, marks=pytest.mark.case(f"NF3-TIMES-WRITE-{how.name}", kills=("write-ctime-stays",)))
        for how in HOWS
    ],
)
def test_a_write_changes_both_times(nfs: Nfs3Client, here: Arranged, how: stable_how) -> None:
    """Writing to the file changes the ctime in addition to the mtime (2.6)."""
    file = here.file(data=DATA)
    for offset, what in ((2, "a WRITE inside the file"), (len(DATA), "a WRITE that extends the file")):
        before = nfs.attributes(file)
        wait_for_another_time(nfs, file)
        ok(nfs.write(file, offset, b"abc", stable=how))
        found = looks(nfs, here, file)
        assert_later("mtime", before, found, what)
        assert_later("ctime", before, found, what)


@pytest.mark.parametrize(
    "size",
    [
        pytest.param(
            size, marks=pytest.mark.case(f"NF3-TIMES-SIZE-{name}", kills=("setattr-size-mtime-stays",))
        )
        for name, size in {"ZERO": 0, "CUT": 4, "GROWN": 100_000}.items()
    ],
)
@pytest.mark.case(section="RFC 1813 3.3.2")
def test_a_change_of_the_size_changes_mtime(nfs: Nfs3Client, here: Arranged, size: int) -> None:
    """Changing the size of a file with SETATTR indirectly changes the mtime (3.3.2)."""
    file = here.file(data=DATA)
    before = nfs.attributes(file)
    wait_for_another_time(nfs, file)
    ok(nfs.setattr(file, attributes(size=size)))
    found = looks(nfs, here, file)
    assert_later("mtime", before, found, f"a SETATTR of the size {size}")
    assert_later("ctime", before, found, f"a SETATTR of the size {size}")


@pytest.mark.parametrize(
    "how",
    [
        pytest.param(
            how,
            marks=pytest.mark.case(
                f"NF3-TIMES-LINKS-{how}", kills=("nlink-ctime-stays",), builds_on=("NF3-LINK-01",)
            ),
        )
        for how in ("LINK", "REMOVE", "RENAME")
    ],
)
def test_a_change_of_nlink_changes_ctime(nfs: Nfs3Client, here: Arranged, how: str) -> None:
    """The ctime is when the attributes were last changed (2.6), and nlink is one of them."""
    file = here.file(data=DATA)
    here.file(b"other")
    if how != "LINK":
        here.link(file)
    before = nfs.attributes(file)
    wait_for_another_time(nfs, file)
    match how:
        case "LINK":
            here.link(file)
        case "REMOVE":
            ok(nfs.remove(here.handle, b"second"))
        case _:
            ok(nfs.rename(here.handle, b"other", here.handle, b"second"))
    found = looks(nfs, here, file)
    assert found[0].nlink != before.nlink, f"nlink is {found[0].nlink} as before the {how}"
    assert_later("ctime", before, found, f"a {how} that made nlink {found[0].nlink}")
