"""Seeded sequences of operations, each compared with a model (:mod:`storagetest.wire.sequences`).

Each of the other modules tests a rule with a few operations. Here the rules hold together: what one operation
leaves is what the next one finds, whatever came before it.
"""

from __future__ import annotations

import pytest

from storagetest.suites.conformance.nfs4.data_driver import Nfs4Data
from storagetest.suites.conformance.nfs4.lock_driver import Nfs4Locks
from storagetest.suites.conformance.nfs4.minors import rule
from storagetest.suites.conformance.nfs4.name_driver import Nfs4Names
from storagetest.suites.conformance.nfs4.state_driver import SECOND, SET, Nfs4Attributes, Nfs4Shares
from storagetest.wire.nfs4.operations import unchecked
from storagetest.wire.nfs4.state import StateOwner
from storagetest.wire.nfs4.types import FATTR4_MAXREAD, FATTR4_MAXWRITE, FATTR4_TIME_DELTA
from storagetest.wire.sequences.attributes import attribute_steps, run_attributes
from storagetest.wire.sequences.data import FILES, data_steps, run_data
from storagetest.wire.sequences.names import name_steps, run_names
from storagetest.wire.sequences.ranges import END, LockStep, posix_lock_steps, run_locks
from storagetest.wire.sequences.shares import READ, WRITE, ShareStep, run_shares, share_steps

pytestmark = [pytest.mark.needs("nfs4-wire"), pytest.mark.case(level="MUST")]

LARGEST = 1 << 17
"""Bytes of the largest READ and WRITE of a sequence, or the server's limit if it is less (chosen)."""

HEADERS = 4096
"""Bytes of a message that are no data of READ or WRITE, more than enough (chosen)."""

MUTATIONS = 32
"""Operations of a sequence of data that change a file: each shape of each deck comes (chosen)."""


def transfer(facts, nfs) -> int:
    """Return the largest READ and WRITE that server and session allow, and the sequences use."""
    stated = [facts.limits.get(number) or LARGEST for number in (FATTR4_MAXREAD, FATTR4_MAXWRITE)]
    if nfs.session is not None:
        fore = nfs.session.fore
        stated += [fore.ca_maxrequestsize - HEADERS, fore.ca_maxresponsesize - HEADERS]
    return min(LARGEST, *stated)


@rule(
    "SEQUENCE-DATA",
    "16.36",
    "18.32",
    kills=(
        "compound-size-stale",
        "shrunk-data-returns",
        "size-after-setattr-old",
        "unstable-after-commit-lost",
        "write-later-tail-lost",
        "write-odd-at-512",
    ),
)
def test_files_have_the_data_that_the_operations_left(facts, nfs, here, minor):
    """READ and GETATTR return what WRITE, SETATTR, COMMIT, COPY and DEALLOCATE have left."""
    owner = StateOwner(nfs)
    files = [owner.open(here.handle, b"file-%d" % at, how=unchecked()) for at in range(FILES)]
    driver = Nfs4Data(files, transfer(facts, nfs))
    tried = [owner.open(here.handle, b"tried-%d" % at, how=unchecked()) for at in range(2)]
    features = Nfs4Data(tried, driver.most).features()
    run_data(driver, data_steps(40 + minor, MUTATIONS, features), 40 + minor)
    for file in (*files, *tried):
        file.close()


NAMES = 45
"""Operations of a sequence of names that change a directory (chosen)."""


@rule(
    "SEQUENCE-NAMES",
    "16.27",
    "18.26",
    kills=("readdir-first-mask", "readlink-slash-lost", "symlink-text-normal", "symlink-one-fault"),
)
def test_names_are_those_that_the_operations_left(nfs, here, minor):
    """LOOKUP, READDIR, READLINK and numlinks are what CREATE, OPEN, LINK, RENAME and REMOVE have left."""
    features = Nfs4Names(nfs, here.directory(b"names")).features()
    driver = Nfs4Names(nfs, here.directory(b"tree"))
    run_names(driver, name_steps(50 + minor, NAMES, features), 50 + minor)


LOCKS = 34
"""Operations of a sequence of locks that are no LOCKT (chosen)."""


@rule("SEQUENCE-LOCKS", "16.10", "18.10", kills=("locku-frees-neighbour",))
def test_locks_are_those_that_the_operations_left(bench, nfs, here, version):
    """LOCK and LOCKT are granted and denied as LOCK, LOCKU and CLOSE of three owners have left."""
    here.file(data=b"x" * 100)
    driver = Nfs4Locks(nfs, bench.client(version), here.handle, b"file")
    run_locks(driver, posix_lock_steps(60 + version, LOCKS), 60 + version)
    driver.end()


OPENS = 60
"""Operations of a sequence of opens that are no READ and no WRITE (chosen)."""


@rule("SEQUENCE-OPENS", "9.9", "9.7", kills=("open-again-replaces",))
def test_opens_are_allowed_as_those_before_them_deny(bench, nfs, here, version):
    """OPEN, READ and WRITE are allowed as OPEN, OPEN_DOWNGRADE and CLOSE of three owners have left it."""
    here.file(data=b"x" * 100)
    clients = [nfs, nfs, bench.client(version)]
    driver = Nfs4Shares(clients, here.handle, b"file")
    steps = share_steps(70 + version, OPENS, (1, 2, 3), (0, 0, 1, 2, 3), joins=True)
    run_shares(driver, steps, 70 + version)


MODES = (0o644, 0o600, 0o666, 0o711, 0o755, 0o640, 0o777, 0o751)
"""Modes that let the owner write: the user of an export may be no superuser."""

SIZES = (0, 1, 513, 4097, 65535)
TIMES = tuple(
    at * SECOND + 123_456_000 * (at % 8) for at in (0, 1, 1_000_000_007, 1_500_000_001, (1 << 31) - 2)
)
"""Values of attributes; times in nanoseconds, of whole microseconds (chosen)."""

ATTRIBUTES = 44
"""SETATTRs of a sequence (chosen): each pair of attributes comes twice."""


@rule(
    "SEQUENCE-ATTRIBUTES",
    "16.32",
    "18.30",
    kills=("mtime-sets-atime", "mtime-with-mode-lost", "times-swapped"),
)
def test_attributes_are_those_that_the_operations_left(facts, nfs, here, minor):
    """GETATTR returns what SETATTR of single attributes, pairs and all has left."""
    missing = {name for name, number in SET.items() if number not in facts.supported[minor]}
    if missing:
        pytest.skip(f"the server does not support {', '.join(sorted(missing))}")
    delta = here.read(here.handle, FATTR4_TIME_DELTA).get(FATTR4_TIME_DELTA)
    step = max(1, delta.seconds * SECOND + delta.nseconds) if delta else SECOND
    times = [at // step * step for at in TIMES]
    domains = {"mode": MODES, "size": SIZES, "atime": times, "mtime": times}
    driver = Nfs4Attributes(nfs, [here.file(b"one"), here.file(b"two")])
    steps = attribute_steps(80 + minor, ATTRIBUTES, domains, {"size": ("atime", "mtime")})
    run_attributes(driver, steps, 80 + minor)


@rule("OPEN-AGAIN-OWN-DENY", "9.9", "9.7", no_mutant_reason="NFS-Ganesha itself refuses the second OPEN")
def test_an_owner_may_add_an_access_that_it_does_not_deny(nfs, here):
    """Denials are compared with accesses: writing that is denied keeps none from reading."""
    here.file(data=b"x" * 100)
    driver = Nfs4Shares([nfs], here.handle, b"file")
    assert driver.open(ShareStep("open", 0, WRITE, WRITE))
    assert driver.again(ShareStep("again", 0, READ, 0)), "READ is refused to the owner that denies writing"
    assert driver.read(ShareStep("read", 0))
    driver.close(ShareStep("close", 0))


@rule(
    "LOCK-TO-END-KIND",
    "16.10.4",
    "18.10.3",
    over={"PART": ((0, END), (50, 60)), "OVER": ((50, 60), (0, END))},
    no_mutant_reason="NFS-Ganesha itself keeps the first lock",
)
def test_a_lock_of_another_kind_replaces_one_of_its_owner(bench, nfs, here, version, what):
    """A LOCK that succeeds replaces what its owner has there, and one of them goes to the end of the file."""
    here.file(data=b"x" * 100)
    driver = Nfs4Locks(nfs, bench.client(version), here.handle, b"file")
    for exclusive, (start, end) in zip((True, False), what, strict=True):
        assert driver.lock(LockStep("lock", 0, start, end, exclusive=exclusive)) is True
    found = driver.test(LockStep("test", 1, 50, 60, exclusive=False))
    driver.end()
    assert found is True, f"a shared lock of bytes that are locked shared is denied: {found}"


@rule("OD-WRITE", "16.19", "18.18.3", no_mutant_reason="NFS-Ganesha itself accepts the WRITE")
def test_a_downgrade_takes_the_right_to_write(nfs, here):
    """The accesses of OPEN_DOWNGRADE replace those that the stateid had: a WRITE ends with OPENMODE."""
    here.file(data=b"x" * 100)
    driver = Nfs4Shares([nfs], here.handle, b"file")
    assert driver.open(ShareStep("open", 0, READ))
    assert driver.again(ShareStep("again", 0, READ | WRITE))
    driver.downgrade(ShareStep("downgrade", 0, READ))
    wrote = driver.write(ShareStep("write", 0))
    driver.close(ShareStep("close", 0))
    assert not wrote, "WRITE succeeds with the stateid of an open that was downgraded to reading"
