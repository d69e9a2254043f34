"""Seeded sequences of calls, each compared with a model (:mod:`storagetest.wire.sequences`).

Each of the other modules tests a rule with a few calls. Here the rules hold together: what one call leaves is
what the next one finds, whatever came before it.
"""

from __future__ import annotations

import pytest

from storagetest.suites.conformance.nfs3.attribute_driver import SECOND, Nfs3Attributes
from storagetest.suites.conformance.nfs3.data_driver import Nfs3Data
from storagetest.suites.conformance.nfs3.lock_driver import NlmLocks
from storagetest.suites.conformance.nfs3.name_driver import Nfs3Names
from storagetest.wire.nfs3.client import Nfs3Client, attributes, ok
from storagetest.wire.nfs3.types import nfs_fh3, nfsstat3
from storagetest.wire.sequences.attributes import attribute_steps, run_attributes
from storagetest.wire.sequences.data import FILES, data_steps, run_data
from storagetest.wire.sequences.names import name_steps, run_names
from storagetest.wire.sequences.ranges import OWNERS, posix_lock_steps, run_locks

pytestmark = [pytest.mark.needs("nfs3-wire"), pytest.mark.case(level="MUST")]

LARGEST = 1 << 17
"""Bytes of the largest READ and WRITE of a sequence, or the server's limit if it is less (chosen)."""

MUTATIONS = 32
"""Calls of a sequence of data that change a file: each shape of each deck comes (chosen)."""


@pytest.mark.parametrize(
    "seed",
    [
        pytest.param(
            seed,
            marks=pytest.mark.case(
                f"NF3-SEQUENCE-DATA-{seed}",
                section="RFC 1813 3.3.7",
                kills=(
                    "write-odd-last-kept",
                    "write-across-64k-cut",
                    "unstable-after-commit-lost",
                    "shrunk-data-returns",
                ),
            ),
        )
        for seed in (1, 2)
    ],
)
def test_files_have_the_data_that_the_calls_left(nfs: Nfs3Client, here, limits, seed: int) -> None:
    """READ and GETATTR return what WRITE, SETATTR and COMMIT have left."""
    files = [here.file(b"file-%d" % at) for at in range(FILES)]
    driver = Nfs3Data(nfs, files, min(LARGEST, limits.rtmax, limits.wtmax))
    run_data(driver, data_steps(seed, MUTATIONS), seed)


NAMES = 55
"""Calls of a sequence of names that change a directory (chosen)."""


@pytest.mark.case(
    "NF3-SEQUENCE-NAMES",
    section="RFC 1813 3.3.14",
    kills=(
        "rename-other-fileid",
        "rename-listed-twice",
        "readlink-slash-lost",
        "names-lower-case",
        "symlink-one-fault",
    ),
    builds_on=("NF3-LINK-01",),
)
def test_names_are_those_that_the_calls_left(nfs: Nfs3Client, here) -> None:
    """LOOKUP, READDIR, READLINK and nlink are what CREATE, MKDIR, LINK, RENAME and REMOVE have left."""
    driver = Nfs3Names(nfs, here.directory(b"names"))
    features = driver.features()
    driver = Nfs3Names(nfs, here.directory(b"tree"))
    try:
        run_names(driver, name_steps(5, NAMES, features), 5)
    except AssertionError as error:
        if driver.renamed and nfsstat3.NFS3ERR_STALE.name in str(error):
            pytest.skip(f"a handle is stale after a RENAME, which it may be (3.3.14): {error}")
        raise


LOCKS = 40
"""Calls of a sequence of locks that are no tests (chosen)."""


@pytest.mark.needs("locks")
@pytest.mark.case("NLM-SEQUENCE", section="RFC 1813 6.3.1", kills=("nlm-holder-32",))
def test_locks_are_those_that_the_calls_left(owners, here) -> None:
    """LOCK and TEST are granted and denied as LOCK and UNLOCK of the same and other owners have left."""
    driver = NlmLocks([owners() for _ in range(OWNERS)], here.file(data=b"x" * 100))
    run_locks(driver, posix_lock_steps(6, LOCKS), 6)


MODES = (0o644, 0o600, 0o1644, 0o4711, 0o2755, 0o000, 0o777, 0o6751)
SIZES = (0, 1, 513, 4097, 65535)
TIMES = tuple(
    at * SECOND + 123_456_000 * (at % 8) for at in (0, 1, 1_000_000_007, 1_500_000_001, (1 << 31) - 2)
)
"""Values of attributes; times in nanoseconds, of whole microseconds (chosen)."""

ATTRIBUTES = 44
"""Calls of SETATTR in a sequence (chosen): each pair of attributes comes twice."""


def kept_modes(nfs: Nfs3Client, file: nfs_fh3) -> list[int]:
    """Return the modes whose upper bits the server keeps (SHOULD: NF3-SETATTR-MODE-FILE-4755)."""
    kept = []
    for mode in MODES:
        ok(nfs.setattr(file, attributes(mode=mode)))
        if mode <= 0o777 or nfs.attributes(file).mode & 0o7777 == mode:
            kept.append(mode)
    return kept


@pytest.mark.case(
    "NF3-SEQUENCE-ATTRIBUTES",
    section="RFC 1813 3.3.2",
    kills=("times-swapped", "mode-with-size-lost"),
    builds_on=("NF3-SETATTR-ATIME", "NF3-SETATTR-MTIME"),
)
@pytest.mark.usefixtures("superuser", "sets_times")
def test_attributes_are_those_that_the_calls_left(nfs: Nfs3Client, here, limits) -> None:
    """GETATTR returns what SETATTR of single attributes, pairs and all has left."""
    step = max(1, limits.time_delta.seconds * SECOND + limits.time_delta.nseconds)
    times = [at // step * step for at in TIMES]
    domains = {"mode": kept_modes(nfs, here.file(b"look")), "size": SIZES, "atime": times, "mtime": times}
    driver = Nfs3Attributes(nfs, [here.file(b"one"), here.file(b"two")])
    steps = attribute_steps(8, ATTRIBUTES, domains, {"size": ("atime", "mtime")})
    run_attributes(driver, steps, 8)
