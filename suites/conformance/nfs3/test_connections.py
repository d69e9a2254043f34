"""What belongs to the server or a lock owner and not to a connection; names and parents (RFC 1813)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from storagetest.suites.conformance.nfs3.conftest import Arranged
from storagetest.wire.nfs3.client import Nfs3Client, attributes, ok
from storagetest.wire.nfs3.harness import Nfs3Harness
from storagetest.wire.nfs3.locks import LockOwner
from storagetest.wire.nfs3.nlm import NLM4_VERS, nlm4_stats
from storagetest.wire.nfs3.types import (
    CREATE3args,
    MKDIR3args,
    REMOVE3args,
    RMDIR3args,
    createhow3,
    createmode3,
    diropargs3,
    nfs_fh3,
    nfsstat3,
    stable_how,
)
from storagetest.wire.rpc.client import next_xid

pytestmark = [pytest.mark.needs("nfs3-wire"), pytest.mark.case(level="MUST", section="RFC 1813 3.3.7")]

VERIFIER = b"\x01\x02\x03\x04\x05\x06\x07\x08"
GRANTED, DENIED = nlm4_stats.NLM4_GRANTED, nlm4_stats.NLM4_DENIED


@pytest.mark.case(
    "NF3-VERIFIER-CONNECTIONS",
    section="RFC 1813 3.3.7, 3.3.21",
    kills=("verifier-of-connection",),
    builds_on=("NF3-COMMIT-CLEAN",),
)
def test_the_write_verifier_is_that_of_the_server_on_every_connection(
    bench: Nfs3Harness, here: Arranged
) -> None:
    """The cookie must be consistent during a single instance of the service (3.3.7, verf)."""
    files = [here.file(b"first", b"data"), here.file(b"second", b"data")]
    found: dict[bytes, str] = {}
    for at in range(3):
        nfs = bench.client(name=f"connection {at + 1}")
        for file in files:
            for how in stable_how:
                found.setdefault(ok(nfs.write(file, 0, b"more", stable=how)).verf, f"{how.name} {at + 1}")
            found.setdefault(ok(nfs.commit(file)).verf, f"COMMIT {at + 1}")
    assert len(found) == 1, f"the write verifier differs between calls and connections: {found.values()}"


@pytest.mark.case(
    "NF3-CREATE-EXCLUSIVE-CONNECTION", section="RFC 1813 3.3.8", kills=("exclusive-of-connection",)
)
def test_an_exclusive_create_is_repeated_on_another_connection(
    nfs: Nfs3Client, bench: Nfs3Harness, here: Arranged
) -> None:
    """The verifier in stable storage recognizes the retransmission, by which a client resumes (3.3.8)."""
    first = nfs.create(here.handle, b"new", mode=createmode3.EXCLUSIVE, verifier=VERIFIER)
    if first.status == nfsstat3.NFS3ERR_NOTSUPP:
        pytest.skip("the server has no exclusive create (NFS3ERR_NOTSUPP)")
    ok(first)
    fileid = here.nfs.attributes(here.nfs.find(here.handle, b"new")).fileid
    for _ in range(2):
        ok(bench.client().create(here.handle, b"new", mode=createmode3.EXCLUSIVE, verifier=VERIFIER))
        assert here.nfs.attributes(here.nfs.find(here.handle, b"new")).fileid == fileid, "it is another file"


@pytest.mark.parametrize(
    "call",
    [
        pytest.param(call, marks=pytest.mark.case(f"NF3-XID-{call}", kills=("xid-of-all-connections",)))
        for call in ("CREATE", "MKDIR", "REMOVE", "RMDIR")
    ],
)
@pytest.mark.case(section="RFC 5531 9, RFC 1813 4.5", level="SHOULD")
def test_the_xid_of_another_connection_is_that_of_another_call(
    bench: Nfs3Harness, here: Arranged, call: str
) -> None:
    """An xid belongs to one client; a call with other arguments on another connection is executed."""
    names = (b"first", b"second")
    makes = call in ("CREATE", "MKDIR")
    if not makes:
        for name in names:
            here.file(name) if call == "REMOVE" else here.directory(name)
    xid = next_xid()
    for name in names:
        place = diropargs3(here.handle, name)
        argument = {
            "CREATE": CREATE3args(place, createhow3(createmode3.GUARDED, attributes(mode=0o644))),
            "MKDIR": MKDIR3args(place, attributes(mode=0o755)),
            "REMOVE": REMOVE3args(place),
            "RMDIR": RMDIR3args(place),
        }[call]
        rpc = bench.rpc(name=name.decode())
        done = rpc.result(rpc.send(rpc.procedure(call), rpc.encode(call, argument, xid=xid)))
        if done.status == nfsstat3.NFS3ERR_JUKEBOX:
            pytest.skip("the server is busy (NFS3ERR_JUKEBOX), and a later call needs an xid of its own")
        ok(done)
        found = here.nfs.lookup(here.handle, name).status
        wanted = nfsstat3.NFS3_OK if makes else nfsstat3.NFS3ERR_NOENT
        assert found == wanted, f"{call} of the {name.decode()} connection succeeds, and is not executed"


# Directories

MOVES = {
    "DOWN": ("top", "first/below"),
    "UP": ("first/inner", "inner"),
    "ACROSS": ("first/inner", "second/inner"),
    "RENAMED": ("first/inner", "second/renamed"),
}
"""From which path to which one a directory is moved; "first" and "second" are directories."""


@pytest.mark.parametrize(
    ("source", "target"),
    [
        pytest.param(
            *paths,
            id=name,
            marks=pytest.mark.case(
                f"NF3-LOOKUP-DOTDOT-{name}",
                kills=("dotdot-before-move",),
                builds_on=("NF3-LOOKUP-DOTDOT", *(() if name == "DOWN" else ("NF3-LOOKUP-DOTDOT-DOWN",))),
            ),
        )
        for name, paths in MOVES.items()
    ],
)
@pytest.mark.case(section="RFC 1813 3.2, 3.3.3, 3.3.14")
def test_dot_dot_is_the_new_parent_of_a_directory_that_was_moved(
    nfs: Nfs3Client, here: Arranged, source: str, target: str
) -> None:
    """A name ".." is an alias of the parent, the directory that contains the current one (3.2)."""
    at = {"": here.handle, "first": here.directory(b"first"), "second": here.directory(b"second")}
    old, old_name = _place(at, source)
    new, new_name = _place(at, target)
    ok(here.nfs.mkdir(old, old_name))
    moved = here.nfs.find(old, old_name)
    ok(nfs.lookup(moved, b".."))
    for directory, name, to, to_name in ((old, old_name, new, new_name), (new, new_name, old, old_name)):
        ok(nfs.rename(directory, name, to, to_name))
        moved = nfs.find(to, to_name)
        parent, wanted = nfs.attributes(ok(nfs.lookup(moved, b"..")).object), nfs.attributes(to)
        assert parent.fileid == wanted.fileid, "LOOKUP of .. leads to a directory that does not contain it"
        for one in nfs.entries(moved):
            listed = one.name != b".." or one.fileid == wanted.fileid
            assert listed, "READDIR lists .. with the fileid of a directory that does not contain it"


def _place(at: dict[str, nfs_fh3], path: str) -> tuple[nfs_fh3, bytes]:
    directory, _, name = path.rpartition("/")
    return at[directory], name.encode()


FORMS = {
    "DOT": (b".a", b".hidden", b".nfs0001"),
    "DOTS": (b"..a", b"...", b".a.b"),
    "SIGNS": (b"#a", b"~a", b"a~", b"-a", b"$a", b"+", b"@"),
    "BLANK": (b" a", b"a b", b"(a)"),
    "DIGITS": (b"0", b"00", b"4294967296", b"1e1"),
    "LONG": (b"l" * 254, b"l" * 255, b"m" * 128),
    "UTF8": ("\N{LATIN SMALL LETTER SHARP S}".encode(), "\N{CJK UNIFIED IDEOGRAPH-6587}".encode()),
}
"""Names by form. A server may refuse to make one, by the rules of its file system."""


@pytest.mark.parametrize(
    "names",
    [
        pytest.param(
            names,
            id=form,
            marks=pytest.mark.case(
                f"NF3-READDIR-NAMES-{form}",
                kills=("readdir-no-dot",) if form.startswith("DOT") else ("listing-plain-names",),
            ),
        )
        for form, names in FORMS.items()
    ],
)
@pytest.mark.case(section="RFC 1813 3.3.16, 3.3.17")
def test_names_of_every_form_are_listed(nfs: Nfs3Client, here: Arranged, names: tuple[bytes, ...]) -> None:
    """Each name that was made is in both listings, with the fileid of its file."""
    wanted: dict[bytes, int] = {}
    longest = ok(here.nfs.pathconf(here.handle)).name_max
    for name in [name for name in (*names, b"plain") if len(name) <= longest]:
        done = here.nfs.create(here.handle, name)
        if done.status == nfsstat3.NFS3_OK:
            wanted[name] = here.nfs.attributes(here.nfs.find(here.handle, name)).fileid
    if set(wanted) == {b"plain"}:
        pytest.skip("the server makes no file with such a name")
    found = {one.name: one.fileid for one in nfs.entries(here.handle) if one.name not in (b".", b"..")}
    assert found == wanted, "READDIR does not list the files that were made"
    if nfs.readdirplus(here.handle).status != nfsstat3.NFS3ERR_NOTSUPP:
        plus = {one.name: one.fileid for one in nfs.entries_plus(here.handle)}
        plus = {name: fileid for name, fileid in plus.items() if name not in (b".", b"..")}
        assert plus == wanted, "READDIRPLUS does not list the files that were made"


# Lock owners


@pytest.mark.case("NLM-OWNER-CONNECTION", section="RFC 1813 6.1.4", kills=("unlock-of-connection",))
@pytest.mark.needs("locks")
def test_a_lock_owner_is_the_same_on_every_connection(
    bench: Nfs3Harness, here: Arranged, owners: Callable[..., LockOwner]
) -> None:
    """nlm4_lock names the owner by caller_name, oh and svid; the connection is no part of it."""
    file = here.file(data=b"x" * 100)
    owner, other = owners(), owners()
    assert owner.lock(file, 0, 10) == GRANTED
    moved = replace(owner, rpc=bench.rpc(NLM4_VERS, name="its second connection"))
    assert moved.test(file, 0, 10).stat == GRANTED, "TEST on another connection is denied to the lock's owner"
    assert moved.lock(file, 5, 10) == GRANTED, "LOCK on another connection is denied to the lock's owner"
    assert other.test(file, 0, 15).stat == DENIED
    assert moved.unlock(file, 0, 15) == GRANTED
    assert other.lock(file, 0, 15) == GRANTED, "UNLOCK on another connection has not released the range"
