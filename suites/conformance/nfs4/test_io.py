"""READ, WRITE and COMMIT (RFC 7530 16.3, 16.23, 16.36; RFC 8881 18.3, 18.22, 18.32)."""

from __future__ import annotations

import pytest

from storagetest.suites.conformance.nfs4.minors import rule
from storagetest.suites.conformance.nfs_holes import SPARSE, WRITES, hole_edges
from storagetest.wire.nfs4.client import ok, refused
from storagetest.wire.nfs4.operations import ANONYMOUS, commit, putfh, read, write
from storagetest.wire.nfs4.state import StateOwner
from storagetest.wire.nfs4.types import FATTR4_SIZE, OPEN4_SHARE_ACCESS_READ, nfsstat4, stable_how4

pytestmark = [pytest.mark.needs("nfs4-wire"), pytest.mark.case(level="MUST")]

DATA = bytes(1 + number % 251 for number in range(10000))


@pytest.fixture
def file(here, owner):
    """Return a file with ``DATA``, open for reading and writing; it is closed at the end."""
    here.file(data=DATA)
    opened = owner.open(here.handle, b"file")
    yield opened
    opened.close()


def check_range(file, offset, wanted):
    """Check that READ returns ``wanted`` at ``offset``, in several replies if the server limits them."""
    at = 0
    while at < len(wanted):
        data = ok(file.on(read(file.stateid, offset + at, len(wanted) - at)))["READ"].data
        assert data, f"READ at {offset + at} returns nothing"
        assert data == wanted[at : at + len(data)], f"READ at {offset + at} returns other data"
        at += len(data)


@rule(
    "READ",
    "16.23.4",
    "18.22.3",
    kills=("read-data", "read-eof"),
    over={"FIRST": (0, 1), "INSIDE": (4095, 3), "WHOLE": (0, 10000), "LAST": (9999, 1), "OVER": (9990, 100)},
)
def test_read_returns_the_data_and_whether_it_reached_the_end(file, what):
    offset, count = what
    found = ok(file.on(read(file.stateid, offset, count)))["READ"]
    assert found.data
    assert DATA[offset : offset + count].startswith(found.data)
    assert found.eof == (offset + len(found.data) == len(DATA))


@rule(
    "READ-END",
    "16.23.4",
    "18.22.3",
    kills=("read-empty", "read-eof"),
    over={"AT": 10000, "AFTER": 10001, "FAR": 1 << 40},
)
def test_read_at_or_after_the_end_returns_nothing_and_eof(file, what):
    found = ok(file.on(read(file.stateid, what, 100)))["READ"]
    assert found.data == b""
    assert found.eof


@rule("READ-ZERO", "16.23.4", "18.22.3", kills=("read-empty",))
def test_read_of_zero_bytes_returns_nothing(file):
    assert ok(file.on(read(file.stateid, 10, 0)))["READ"].data == b""


@rule(
    "IO-DIR",
    "16.23.4",
    "18.22.3",
    kills=("io-isdir",),
    over={"READ": read(ANONYMOUS, 0, 10), "WRITE": write(ANONYMOUS, 0, b"data")},
)
def test_data_of_a_directory_is_refused(nfs, here, what):
    refused(nfs.compound(putfh(here.handle), what), nfsstat4.NFS4ERR_ISDIR)


@rule(
    "WRITE",
    "16.36.4",
    "18.32.3",
    kills=("write-count", "write-offset"),
    over={"1": 1, "4097": 4097, "9000": 9000},
)
def test_written_data_is_read(file, what):
    data = DATA[::-1][:what]
    count = ok(file.on(write(file.stateid, 100, data)))["WRITE"].count
    assert 0 < count <= what
    check_range(file, 99, DATA[99:100] + data[:count])


@rule(
    "WRITE-STABLE",
    "16.36.4",
    "18.32.3",
    kills=("write-committed",),
    over={"DATA": stable_how4.DATA_SYNC4, "FILE": stable_how4.FILE_SYNC4},
)
def test_data_is_committed_at_least_as_requested(file, what):
    assert ok(file.on(write(file.stateid, 0, b"data", what)))["WRITE"].committed >= what


@rule("COMMIT-VERIFIER", "16.3.4", "18.3.3", kills=("commit-verifier",))
def test_the_verifier_of_commit_is_that_of_write(file):
    written = ok(file.on(write(file.stateid, 0, b"data", stable_how4.UNSTABLE4)))["WRITE"].writeverf
    assert ok(file.on(commit()))["COMMIT"].writeverf == written


@rule("WRITE-VERIFIER-CLIENTS", "16.36.4", "18.32.3", kills=("verifier-of-client",))
def test_the_write_verifier_is_the_same_for_all_clients(file, here, bench, version):
    """The verifier is unchanged during a single instance of the server, for every client."""
    here.file(b"second")
    other = StateOwner(bench.client(version)).open(here.handle, b"second")
    found = {
        ok(one.on(write(one.stateid, 0, b"data", stable_how4.UNSTABLE4)))["WRITE"].writeverf
        for one in (file, other, file)
    }
    other.close()
    assert len(found) == 1, f"two clients of one server have {len(found)} verifiers"


@rule("WRITE-ZERO", "16.36.4", "18.32.3", kills=("write-count",))
def test_write_of_zero_bytes_changes_nothing(file, here):
    assert ok(file.on(write(file.stateid, 20000, b"")))["WRITE"].count == 0
    assert here.read(file.handle, FATTR4_SIZE)[FATTR4_SIZE] == len(DATA)


@rule("WRITE-HOLE", "16.36.4", "18.32.3", kills=("read-data", "write-offset"))
def test_a_hole_reads_as_zero(file):
    ok(file.on(write(file.stateid, 20000, b"data")))
    check_range(file, 10000, bytes(10000) + b"data")


@rule("READ-HOLE-EDGE", "16.23.4", "18.22.3", kills=("read-hole-shifted",))
def test_a_read_that_begins_in_a_hole_and_ends_in_data_returns_both(here, owner):
    """At pages and a byte from them: a server may send both from its cache, a page at a time."""
    here.file(b"sparse")
    opened = owner.open(here.handle, b"sparse")
    for offset, data in WRITES.items():
        opened.write_all(offset, data)
    for offset, count in hole_edges():
        check_range(opened, offset, SPARSE[offset : offset + count])
    opened.close()


@rule("WRITE-OPENMODE", "16.36.4", "18.32.3", kills=("write-openmode",))
def test_write_through_a_read_only_open_is_refused(here, owner):
    here.file(data=DATA)
    opened = owner.open(here.handle, b"file", access=OPEN4_SHARE_ACCESS_READ)
    refused(opened.on(write(opened.stateid, 0, b"data")), nfsstat4.NFS4ERR_OPENMODE)
    opened.close()


@rule("WRITE-SEEN", "16.36.4", "18.32.3", kills=("read-data", "write-offset"))
def test_another_client_reads_what_was_written(file, here, bench, version):
    ok(file.on(write(file.stateid, 0, b"data")))
    other = StateOwner(bench.client(version)).open(here.handle, b"file")
    check_range(other, 0, b"data" + DATA[4:100])
    other.close()
