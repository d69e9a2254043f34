"""Seeded sequences of requests, each compared with a model (:mod:`storagetest.wire.sequences`).

Each of the other modules tests a rule with a few requests. Here the rules hold together: what one request
leaves is what the next one finds, whatever came before it.
"""

from __future__ import annotations

import pytest

from storagetest.suites.conformance.smb2.data_driver import Smb2Data
from storagetest.suites.conformance.smb2.directory_sequence import DirectorySequence
from storagetest.suites.conformance.smb2.file_sequence import FileSequence
from storagetest.suites.conformance.smb2.lock_driver import Smb2Locks
from storagetest.suites.conformance.smb2.name_driver import Smb2Names
from storagetest.suites.conformance.smb2.state_driver import Smb2Attributes, Smb2Shares
from storagetest.suites.conformance.smb2.support import case
from storagetest.wire.sequences.attributes import attribute_steps, run_attributes
from storagetest.wire.sequences.data import FILES, data_steps, run_data
from storagetest.wire.sequences.names import name_steps, run_names
from storagetest.wire.sequences.ranges import run_locks, smb_lock_steps
from storagetest.wire.sequences.shares import run_shares, share_steps
from storagetest.wire.smb2.codes import Dialect, Disposition, SmbAttribute
from storagetest.wire.smb2.harness import expect, make_directory

pytestmark = [pytest.mark.needs("smb-wire"), pytest.mark.case(level="MUST", section="MS-FSA 2.1.5")]

MUTATIONS = 32
"""Requests of a sequence of data that change a file: each shape of each deck comes (chosen)."""


DATA_KILLS = (
    "write-odd-at-512",
    "read-odd-far-even",
    "shrunk-data-returns",
    "write-after-flush-elsewhere",
    "read-tail-zero",
)


@pytest.mark.parametrize(
    "seed", [case(f"SMB-SEQUENCE-DATA-{seed}", seed, kills=DATA_KILLS) for seed in (1, 2)]
)
@pytest.mark.case(section="MS-FSA 2.1.5.4")
def test_files_have_the_data_that_the_requests_left(tree, directory, seed):
    """READ and the sizes are what WRITE, SET_INFO, FLUSH and the FSCTLs have left."""
    files = [tree.open(f"{directory}\\file-{at}") for at in range(FILES)]
    through = tree.session.connection.settled.dialect > Dialect.SMB_2_0_2
    driver = Smb2Data(files, through=through)
    features = driver.features(tree.open(f"{directory}\\tried"))
    run_data(driver, data_steps(seed, MUTATIONS, features), seed)
    for file in files:
        expect(file.close())


LOCKS = 110
"""Requests of a sequence of locks (chosen)."""


@pytest.mark.case("SMB-SEQUENCE-LOCKS", section="MS-FSA 2.1.5.8", kills=("lock-offset-32",))
def test_locks_are_those_that_the_requests_left(tree, other, written):
    """LOCK is granted and denied as LOCK and CLOSE of three opens of two sessions have left."""
    name = written()
    files = [each.open(name, disposition=Disposition.OPEN) for each in (tree, tree, other)]
    run_locks(Smb2Locks(files), smb_lock_steps(7, LOCKS), 7)
    for file in files:
        expect(file.close())


OPENS = 100
"""Requests of a sequence of opens that are no READ and no WRITE (chosen)."""


ACCESSES = (1, 2, 4, 3)
DENIALS = (0, 1, 2, 4, 7)
"""Bits of reading, writing and deleting (chosen)."""


@pytest.mark.case("SMB-SEQUENCE-OPENS", section="MS-FSA 2.1.5.1.2.2", kills=("share-none-reads",))
def test_opens_are_allowed_as_those_before_them_share(tree, other, written):
    """CREATE, READ and WRITE are allowed as CREATE and CLOSE of three opens of two sessions have left it."""
    driver = Smb2Shares([tree, tree, other], written())
    run_shares(driver, share_steps(9, OPENS, ACCESSES, DENIALS, joins=False), 9)


TIMES = tuple(
    at * 10_000_000 + 116444736000000000 + 1_234_560 * (at % 8) for at in (1, 1_000_000_007, 1_500_000_001)
)
"""Values of times: 1970, 2001 and 2017, of whole microseconds (chosen)."""

KINDS = (
    SmbAttribute.HIDDEN,
    SmbAttribute.SYSTEM,
    SmbAttribute.ARCHIVE,
    SmbAttribute.HIDDEN | SmbAttribute.SYSTEM,
    SmbAttribute.NORMAL,
)

ATTRIBUTES = 48
"""Requests of SET_INFO in a sequence (chosen): each pair of attributes comes twice."""


@pytest.mark.case(
    "SMB-SEQUENCE-ATTRIBUTES",
    section="MS-FSCC 2.4.7",
    kills=("times-first-alone", "times-swapped", "attributes-zero-reset", "attributes-with-times-lost"),
)
def test_attributes_are_those_that_the_requests_left(tree, directory):
    """QUERY_INFO returns what SET_INFO of single attributes, pairs and all has left."""
    files = [tree.open(f"{directory}\\{name}") for name in ("one", "two")]
    domains = {
        "created": TIMES,
        "accessed": TIMES,
        "written": TIMES,
        "attributes": KINDS,
        "size": (0, 1, 513, 4097),
    }
    together = ("created", "accessed", "written", "attributes")
    disturbs = {"size": ("accessed", "written", "attributes")}
    steps = attribute_steps(10, ATTRIBUTES, domains, disturbs, together=together)
    run_attributes(Smb2Attributes(files), steps, 10)
    for file in files:
        expect(file.close())


NAMES = 36
"""Requests of a sequence of names that change a directory (chosen)."""


@pytest.mark.case(
    "SMB-SEQUENCE-NAMES", section="MS-FSA 2.1.5.6.3", kills=("rename-listed-old", "listing-entry-33-lost")
)
def test_names_are_those_that_the_requests_left(tree, directory):
    """CREATE, QUERY_DIRECTORY and NumberOfLinks are what CREATE and SET_INFO have left."""
    driver = Smb2Names(tree, directory)
    features = driver.features()
    make_directory(tree, f"{directory}\\tree")
    driver.paths[0] = f"{directory}\\tree"
    run_names(driver, name_steps(11, NAMES, features), 11)


STEPS = 300
"""Steps of a sequence of requests of all kinds (chosen): each kind comes some ten times."""


FILE_KILLS = ("related-to-create-alone", "restart-keeps-pattern", "unlocks-taken-back", "write-none-is-one")


@pytest.mark.parametrize(
    "seed", [case(f"SMB-SEQUENCE-FILES-{seed}", seed, kills=FILE_KILLS) for seed in (1, 2, 3)]
)
@pytest.mark.case(section="MS-FSA 2.1.5.1")
def test_files_are_what_requests_of_all_kinds_left(tree, other, directory, seed):
    """CREATE, CLOSE, READ, WRITE, LOCK, SET_INFO and listings find what those before them have left."""
    FileSequence([tree, other], directory, seed, STEPS).run()


TREE_STEPS = 150
"""Steps of a sequence of directories (chosen): each kind of request comes some seven times."""

TREE_KILLS = ("create-directory-opens",)


@pytest.mark.parametrize(
    "seed", [case(f"SMB-SEQUENCE-TREE-{seed}", seed, kills=TREE_KILLS) for seed in (1, 2)]
)
@pytest.mark.case(section="MS-FSA 2.1.5.1")
def test_directories_are_what_requests_of_all_kinds_left(tree, other, directory, seed):
    """CREATE, renames, deletion, listings, attributes and streams find what those before them have left."""
    DirectorySequence([tree, other], directory, seed, TREE_STEPS).run()
