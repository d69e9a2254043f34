"""QUERY_DIRECTORY: classes, patterns, restarts, short buffers, the end (MS-SMB2 3.3.5.18)."""

from __future__ import annotations

import pytest

from storagetest.suites.conformance.smb2.handles import with_credits
from storagetest.suites.conformance.smb2.support import READ, case, open_directory
from storagetest.wire.smb2.codes import (
    REOPEN,
    RESTART_SCANS,
    RETURN_SINGLE_ENTRY,
    Access,
    Disposition,
    FileInfo,
    SmbStatus,
)
from storagetest.wire.smb2.harness import expect, make_directory
from storagetest.wire.smb2.information import directory_entries

pytestmark = [pytest.mark.needs("smb-wire"), pytest.mark.case(section="MS-SMB2 3.3.5.18", level="MUST")]

FILES = {"alpha.txt": 10, "alps.doc": 20, "beta.txt": 0}
CLASSES = {
    "DIRECTORY": FileInfo.DIRECTORY,
    "FULL": FileInfo.FULL_DIRECTORY,
    "BOTH": FileInfo.BOTH_DIRECTORY,
    "ID-BOTH": FileInfo.ID_BOTH_DIRECTORY,
    "ID-FULL": FileInfo.ID_FULL_DIRECTORY,
    "NAMES": FileInfo.NAMES,
}
FIXED = {
    FileInfo.DIRECTORY: 64,
    FileInfo.FULL_DIRECTORY: 68,
    FileInfo.BOTH_DIRECTORY: 94,
    FileInfo.ID_BOTH_DIRECTORY: 104,
    FileInfo.ID_FULL_DIRECTORY: 80,
    FileInfo.NAMES: 12,
}
"""Where FileName begins in an entry of the class (MS-FSCC 2.4)."""
SIZED = {name: number for name, number in CLASSES.items() if name != "NAMES"}
"""The classes whose entries have sizes and attributes."""


@pytest.fixture
def filled(tree, directory):
    """Return the name of a directory with FILES and the directory ``sub``."""
    for name, size in FILES.items():
        file = tree.open(f"{directory}\\{name}")
        if size:
            expect(file.write(b"x" * size))
        expect(file.close())
    make_directory(tree, f"{directory}\\sub")
    return directory


@pytest.fixture
def opened(tree, filled):
    """Return an open of ``filled``."""
    return open_directory(tree, filled)


def listing(opened, info_class=FileInfo.ID_BOTH_DIRECTORY, pattern="*", *, flags=0, **more):
    """Return the entries of all responses up to the end, without ``.`` and ``..``."""
    found = []
    while True:
        message = opened.list(info_class, pattern, flags=flags, **more)
        if message.status == SmbStatus.NO_MORE_FILES:
            return found
        page = directory_entries(expect(message).buffer, info_class)
        assert page, "a response without an entry that is not at the end"
        found += page
        found = [entry for entry in found if entry.name not in (".", "..")]
        assert len(found) < 500, "the listing does not end"
        flags &= ~(RESTART_SCANS | REOPEN)


def names(entries):
    return sorted(entry.name for entry in entries)


EVERYTHING = sorted([*FILES, "sub"])


@pytest.mark.parametrize(
    "info_class",
    [
        case(
            f"SMB-LIST-{name}",
            number,
            kills=("directory-entry-lost", "directory-name-other", "status-success-lost", "last-entry-next"),
        )
        for name, number in CLASSES.items()
    ],
)
def test_a_listing_has_every_name_once(opened, info_class):
    assert names(listing(opened, info_class)) == EVERYTHING


@pytest.mark.parametrize(
    "info_class",
    [
        case(f"SMB-LIST-SIZE-{name}", number, kills=("directory-size-other",))
        for name, number in SIZED.items()
    ],
)
@pytest.mark.case(section="MS-FSCC 2.4")
def test_an_entry_has_the_size_of_its_file(opened, info_class):
    found = {entry.name: entry.size for entry in listing(opened, info_class) if not entry.is_directory}
    assert found == FILES


@pytest.mark.parametrize(
    "info_class",
    [
        case(f"SMB-LIST-ATTRIBUTE-{name}", number, kills=("directory-attributes-other",))
        for name, number in SIZED.items()
    ],
)
@pytest.mark.case(section="MS-FSCC 2.6")
def test_an_entry_states_whether_it_is_a_directory(opened, info_class):
    assert [entry.name for entry in listing(opened, info_class) if entry.is_directory] == ["sub"]


@pytest.mark.case(
    "SMB-LIST-DOTS", section="MS-FSA 2.1.5.6.3", level="SHOULD", kills=("directory-name-other",)
)
def test_the_directory_and_its_parent_are_listed(opened):
    found = [entry.name for entry in directory_entries(expect(opened.list()).buffer)]
    assert found[:2] == [".", ".."]


PATTERNS = pytest.mark.case(section="MS-FSA 2.1.4.4, 2.1.5.6.3")


@PATTERNS
@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        case("SMB-PATTERN-STAR", "al*", ["alpha.txt", "alps.doc"], kills=("pattern-ignored",)),
        case("SMB-PATTERN-MIDDLE", "*a.t*", ["alpha.txt", "beta.txt"], kills=("pattern-ignored",)),
        case("SMB-PATTERN-END", "*.txt", ["alpha.txt", "beta.txt"], kills=("pattern-ignored",)),
        case("SMB-PATTERN-MARK", "?eta.txt", ["beta.txt"], kills=("pattern-ignored",)),
        case("SMB-PATTERN-NAME", "beta.txt", ["beta.txt"], kills=("pattern-ignored",)),
        case("SMB-PATTERN-CASE", "BETA.*", ["beta.txt"], kills=("pattern-ignored",), level="SHOULD"),
    ],
)
def test_only_names_that_match_are_listed(opened, pattern, found):
    assert names(listing(opened, pattern=pattern)) == found


@PATTERNS
@pytest.mark.parametrize(
    "pattern",
    [
        case(
            "SMB-PATTERN-NONE",
            "gamma*",
            kills=("no-match-no-more-files", "accepts-query-directory", "status-query-directory"),
        ),
        case("SMB-PATTERN-ABSENT", "gamma.txt", kills=("accepts-query-directory", "status-query-directory")),
    ],
)
def test_the_first_query_without_a_match_is_no_such_file(opened, pattern):
    expect(opened.list(pattern=pattern), SmbStatus.NO_SUCH_FILE)


@PATTERNS
@pytest.mark.case("SMB-PATTERN-EMPTY", level="MAY")
def test_an_empty_pattern_matches_everything(opened):
    assert names(listing(opened, pattern="")) == EVERYTHING


@pytest.mark.case(
    "SMB-LIST-END", section="MS-FSA 2.1.5.6.3", kills=("accepts-query-directory", "status-query-directory")
)
def test_the_end_of_a_listing_stays_the_end(opened):
    listing(opened)
    expect(opened.list(), SmbStatus.NO_MORE_FILES)


@pytest.mark.parametrize(
    "info_class",
    [
        case(
            f"SMB-LIST-SINGLE-{name}",
            number,
            kills=(
                "single-entry-ignored",
                "single-ignored",
            ),
        )
        for name, number in CLASSES.items()
    ],
)
def test_a_single_entry_is_returned_on_request(opened, info_class):
    message = expect(opened.list(info_class, flags=RETURN_SINGLE_ENTRY))
    assert len(directory_entries(message.buffer, info_class)) == 1


@pytest.mark.case("SMB-LIST-SINGLES", kills=("directory-name-other",))
def test_single_entries_are_every_name_once(opened):
    assert names(listing(opened, flags=RETURN_SINGLE_ENTRY)) == EVERYTHING


@pytest.mark.case("SMB-LIST-RESTART", kills=("restart-ignored",))
def test_a_restart_begins_at_the_first_name(opened):
    listing(opened)
    assert names(listing(opened, flags=RESTART_SCANS)) == EVERYTHING


@pytest.mark.case("SMB-LIST-REOPEN", kills=("restart-ignored",))
def test_a_reopen_takes_a_new_pattern(opened):
    listing(opened, pattern="al*")
    assert names(listing(opened, pattern="beta*", flags=REOPEN)) == ["beta.txt"]


@pytest.mark.case("SMB-LIST-NEW", section="MS-FSA 2.1.5.6.3", kills=("directory-name-other",))
def test_a_restart_finds_a_name_that_is_new(tree, filled, opened):
    listing(opened)
    expect(tree.open(f"{filled}\\new").close())
    assert "new" in names(listing(opened, flags=RESTART_SCANS))


@pytest.mark.case("SMB-LIST-GONE", section="MS-FSA 2.1.5.6.3", kills=("delete-on-close-ignored",))
def test_a_restart_does_not_find_a_name_that_was_removed(tree, filled, opened):
    listing(opened)
    expect(tree.open(f"{filled}\\beta.txt", options=0x1040).close())  # DELETE_ON_CLOSE, NON_DIRECTORY_FILE
    assert "beta.txt" not in names(listing(opened, flags=RESTART_SCANS))


@pytest.mark.parametrize(
    "size",
    [
        case("SMB-LIST-BUFFER-300", 300, kills=("length-ignored",)),
        case("SMB-LIST-BUFFER-512", 512, kills=("length-ignored",)),
        case("SMB-LIST-BUFFER-1000", 1000, kills=("length-ignored",)),
    ],
)
def test_responses_are_not_longer_than_the_buffer_and_have_every_name_once(tree, directory, size):
    wanted = sorted(f"file-{number:02}" for number in range(30))
    for name in wanted:
        expect(tree.open(f"{directory}\\{name}").close())
    opened, found = open_directory(tree, directory), []
    while not (message := opened.list(length=size)).status:
        assert len(found) < 100, "the listing does not end"
        assert message.buffer, "a response without an entry that is not at the end"
        assert len(message.buffer) <= size, "the response is longer than OutputBufferLength"
        found += [entry.name for entry in directory_entries(message.buffer)]
    expect(message, SmbStatus.NO_MORE_FILES)
    assert sorted(name for name in found if name not in (".", "..")) == wanted  # those: SMB-LIST-DOTS


@pytest.mark.parametrize(
    "info_class",
    [
        case(f"SMB-LIST-SHORT-{name}", number, kills=("length-ignored", "accepts-query-directory"))
        for name, number in CLASSES.items()
    ],
)
@pytest.mark.case(section="MS-FSA 2.1.5.6.3")
def test_a_buffer_that_is_too_short_for_an_entry_is_refused(opened, info_class):
    # MS-FSA names the first for the buffer, MS-SMB2 the second for the request.
    message = opened.list(info_class, "alpha.txt", length=8)
    expect(message, SmbStatus.INFO_LENGTH_MISMATCH, SmbStatus.INVALID_PARAMETER)


LONG = "a-name-that-is-longer-than-those-of-the-other-files.txt"


@pytest.mark.parametrize(
    "info_class",
    [
        case(f"SMB-LIST-NAME-SHORT-{name}", number, kills=("short-buffer-ends-listing",))
        for name, number in CLASSES.items()
    ],
)
@pytest.mark.case(section="MS-FSA 2.1.5.6.3")
def test_a_name_that_does_not_fit_is_not_the_end_of_the_listing(tree, opened, info_class):
    """A buffer for the fixed part of an entry is too small for it; a query of more has the entry."""
    expect(tree.open(f"{opened.name}\\{LONG}").close())
    message = opened.list(info_class, LONG, length=FIXED[info_class] + 16)
    expect(message, SmbStatus.BUFFER_OVERFLOW, SmbStatus.INFO_LENGTH_MISMATCH, SmbStatus.BUFFER_TOO_SMALL)
    if message.status != SmbStatus.BUFFER_OVERFLOW:  # that has returned the entry, with a part of its name
        assert names(listing(opened, info_class, LONG)) == [LONG]


@pytest.mark.parametrize(
    "info_class",
    [
        case(f"SMB-LIST-CLASS-{number}", number, kills=("accepts-query-directory", "status-query-directory"))
        for number in (0, 4, 200)  # none, FileBasicInformation, none
    ],
)
def test_a_class_that_is_not_of_directories_is_an_invalid_class(opened, info_class):
    expect(opened.list(info_class), SmbStatus.INVALID_INFO_CLASS, SmbStatus.NOT_SUPPORTED)


@pytest.mark.case("SMB-LIST-FILE", no_mutant_reason="smbd breaks this rule itself")
def test_a_file_is_not_listed(tree, written):
    expect(tree.open(written()).list(), SmbStatus.INVALID_PARAMETER)


@pytest.mark.case("SMB-LIST-CLOSED", kills=("accepts-query-directory", "status-query-directory"))
def test_a_closed_directory_is_not_listed(opened):
    expect(opened.close())
    expect(opened.list(), SmbStatus.FILE_CLOSED)


@pytest.mark.case("SMB-LIST-ACCESS", kills=("accepts-query-directory", "access-more"))
def test_a_directory_opened_without_the_access_is_not_listed(tree, filled):
    opened = open_directory(tree, filled, access=Access.READ_ATTRIBUTES | Access.SYNCHRONIZE)
    expect(opened.list(), SmbStatus.ACCESS_DENIED)


@pytest.mark.case("SMB-LIST-LARGEST", level="SHOULD", no_mutant_reason="smbd breaks this rule itself")
def test_a_buffer_over_the_largest_transaction_is_an_invalid_parameter(opened):
    connection = opened.tree.session.connection
    largest = connection.settled.message["max_transact"]
    over = {"credit_charge": 1 + largest // 65536}
    with_credits(opened.tree, over["credit_charge"])
    expect(opened.list(length=largest + 1, over=over), SmbStatus.INVALID_PARAMETER)


@pytest.mark.case("SMB-LIST-TWO", kills=("directory-entry-lost",))
def test_each_open_of_a_directory_has_its_own_position(tree, filled):
    first, second = open_directory(tree, filled), open_directory(tree, filled)
    listing(first)
    assert names(listing(second)) == EVERYTHING


@pytest.mark.case("SMB-LIST-EMPTY", section="MS-FSA 2.1.5.6.3", kills=("status-query-directory",))
def test_an_empty_directory_has_no_names(tree, directory):
    assert listing(open_directory(tree, directory)) == []


@pytest.mark.case("SMB-LIST-SUB", section="MS-SMB2 3.3.5.9", kills=("directory-entry-lost",))
def test_a_directory_below_is_listed_by_its_path(tree, filled):
    expect(tree.open(f"{filled}\\sub\\inner", disposition=Disposition.CREATE).close())
    assert names(listing(open_directory(tree, f"{filled}\\sub", access=READ))) == ["inner"]
