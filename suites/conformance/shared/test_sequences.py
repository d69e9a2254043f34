"""Seeded random sequences of two clients, compared with a model after each step.

Each of the other modules tests a rule with a few calls. Here the rules hold together: what one client leaves
is what the other finds, whatever both have done and cached before.
"""

from __future__ import annotations

from errno import EACCES, EMLINK, ENOSYS, EOPNOTSUPP, EPERM

import pytest

from storagetest.suites.conformance.shared.two_client_names import NamesOfTwo
from storagetest.suites.conformance.shared.two_client_sequence import LockedData, TwoClientLocks

pytestmark = [pytest.mark.needs("filesystem", "shared", "two_clients")]

DATA_STEPS, LOCK_STEPS, NAME_STEPS = 60, 60, 54
"""Steps of a sequence (chosen): each costs two round trips to a client and some requests to the target."""

LACKING = (EACCES, EMLINK, ENOSYS, EOPNOTSUPP, EPERM)
"""Errors of a file system or a protocol that has no links of a sort (link(2), symlink(2))."""

DATA_1_KILLS = (
    "truncate-keeps-old-data", "hole-reads-garbage", "two-lock-keeps-old-end", "two-size-only-grows",
    "two-third-size-unseen", "two-same-size-old", "writes-are-whole-pages",
)  # fmt: skip
DATA_2_KILLS = ("two-same-size-old", "writes-are-whole-pages", "reads-are-torn")
LOCKS_1_KILLS = (
    "lock-conversion-refused", "lock-write-only", "unlock-middle-frees-tail", "lock-convert-drops-right",
    "lock-upgrade-ignored", "unlock-part-unlocks-all", "lock-neighbours-grow", "large-lock-wraps",
)  # fmt: skip
LOCKS_2_KILLS = ("lock-lost-on-truncate", "lock-lost-on-unlink", "lock-32-bit", "lock-to-size-only")


def has(session, make: str) -> bool:
    """Whether the file system has hard links ("link"), or symbolic ones ("symlink")."""
    session.write_file("one", b"")
    try:
        session.call(make, "one", "two")
    except OSError as error:
        if error.errno not in LACKING:
            raise
        return False
    else:
        session.unlink("two")
        return True
    finally:
        session.unlink("one")


@pytest.mark.parametrize(
    ("seed", "one_size"),
    [
        pytest.param(
            1, False, marks=pytest.mark.case("SHR-SEQUENCE-DATA-1", kills=DATA_1_KILLS), id="any-size"
        ),
        pytest.param(
            2, True, marks=pytest.mark.case("SHR-SEQUENCE-DATA-2", kills=DATA_2_KILLS), id="one-size"
        ),
    ],
)
@pytest.mark.case(section="RFC 7530 10.3.2; nfs(5), Data And Metadata Coherence", level="MUST")
def test_open_files_have_under_a_lock_what_both_clients_left(a, b, crossed_wire, seed, one_size):
    """Both keep two files open; each change and each look is made under a lock."""
    sequence = LockedData((a, b), seed, one_size=one_size)
    with crossed_wire(a, "lock"), crossed_wire(b, "lock"):
        sequence.run(DATA_STEPS)


@pytest.mark.parametrize(
    ("seed", "exact"),
    [
        pytest.param(1, False, marks=pytest.mark.case("SHR-SEQUENCE-LOCKS-1", kills=LOCKS_1_KILLS), id="any"),
        pytest.param(
            2, True, marks=pytest.mark.case("SHR-SEQUENCE-LOCKS-2", kills=LOCKS_2_KILLS), id="exact"
        ),
    ],
)
@pytest.mark.case(section="RFC 7530 16.10 to 16.12; POSIX.1-2024 fcntl(): F_SETLK, F_GETLK", level="MUST")
def test_locks_are_those_that_both_clients_have_left(a, b, crossed_wire, seed, exact):
    """After each request the client is granted or refused, and each byte locked or free, as in the model."""
    sequence = TwoClientLocks((a, b), seed, exact=exact)
    with crossed_wire(a, "lock"), crossed_wire(b, "lock"):
        sequence.run(LOCK_STEPS)


NAMES_KILLS = (
    "stray-nfs-name", "rename-old-stays", "link-copies", "unlink-not-done", "names-never-expire",
    "names-appear-late", "listings-never-expire", "two-other-link-gone", "two-moved-directory-stays",
    "two-moved-in-absent",
)  # fmt: skip
NAMES_1_KILLS = ("writes-follow-the-name", "two-append-at-own-end", "two-old-name")


@pytest.mark.parametrize(
    "seed",
    [
        pytest.param(1, marks=pytest.mark.case("SHR-SEQUENCE-NAMES-1", kills=NAMES_KILLS + NAMES_1_KILLS)),
        pytest.param(
            2, marks=pytest.mark.case("SHR-SEQUENCE-NAMES-2", kills=(*NAMES_KILLS, "two-data-by-name"))
        ),
    ],
)
@pytest.mark.case(section="RFC 7530 10.3.1; POSIX.1-2024 rename(), link(), unlink(), mkdir()", level="MUST")
def test_names_are_those_that_both_clients_have_left(a, b, eventually, seed):
    """A new name leads the other client to its file at once; in the end both have the whole tree."""
    sequence = NamesOfTwo((a, b), seed, eventually, links=has(a, "link"), symlinks=has(a, "symlink"))
    sequence.run(NAME_STEPS)
    for session in (a, b):
        found: list[str] = []

        def is_settled(session=session, found=found) -> bool:
            found.append(sequence.differences(session))
            return not found[-1]

        try:
            eventually(is_settled, "the whole tree")
        except AssertionError as late:
            raise AssertionError(f"{session.name}, in the end: {found[-1]} ({late})") from None
