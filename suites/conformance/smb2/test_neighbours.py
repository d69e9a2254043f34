"""What one dialect, session, tree, open, lock or request is to another one (MS-SMB2 3.3, MS-FSA 2.1).

Two of a kind at once: each has an identity, a position and rights of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from storagetest.suites.conformance.smb2.support import (
    NO_FSCTL,
    READ,
    case,
    open_directory,
    skip_if_encrypted,
    skip_if_guest,
    watch,
)
from storagetest.wire.smb2.caching import is_held
from storagetest.wire.smb2.client import SmbFile, Tree, create_request
from storagetest.wire.smb2.codes import (
    RETURN_SINGLE_ENTRY,
    Access,
    Capability,
    Dialect,
    Disposition,
    FileInfo,
    Flags,
    Lock,
    SmbCommand,
    SmbShare,
    SmbStatus,
)
from storagetest.wire.smb2.connection import DIALECTS
from storagetest.wire.smb2.harness import SmbEndpoint, SmbHarness, expect
from storagetest.wire.smb2.information import directory_entries
from storagetest.wire.smb2.message import request

pytestmark = [pytest.mark.needs("smb-wire"), pytest.mark.case(section="MS-SMB2 3.3.5.4", level="MUST")]

NOW = Lock.EXCLUSIVE | Lock.FAIL_IMMEDIATELY

# Dialects

UNKNOWN = 0x0400
"""A number that is that of no dialect (2.2.3)."""


@pytest.mark.parametrize(
    "offer",
    [
        case("SMB-NEG-ORDER", tuple(reversed(DIALECTS)), kills=("dialect-last-chosen",)),
        case("SMB-NEG-ORDER-2", (*DIALECTS[2:], *DIALECTS[:2]), kills=("dialect-last-chosen",)),
        case("SMB-NEG-AMONG", (UNKNOWN, *DIALECTS), kills=("dialect-unknown-refused",)),
        case("SMB-NEG-AMONG-2", (*DIALECTS[:2], UNKNOWN, *DIALECTS[2:]), kills=("dialect-unknown-refused",)),
    ],
)
def test_the_greatest_common_dialect_is_chosen_in_any_list(bench: SmbHarness, offer: Sequence[int]) -> None:
    """Neither the order of Dialects nor a number that the server does not know changes the choice."""
    greatest = bench.connect().negotiate().dialect
    connection = bench.connect()
    chosen = expect(connection.call(connection.negotiate_request(offer)))["dialect"]
    assert chosen == greatest, f"{chosen:#x} is chosen, and {greatest:#x} from the list of all dialects"


# Sessions and trees


@pytest.mark.case("SMB-SES-OPEN", section="MS-SMB2 3.3.5.12", kills=("open-of-other-session",))
def test_an_open_is_that_of_its_session(
    bench: SmbHarness, endpoint: SmbEndpoint, tree: Tree, written: Callable[[], str]
) -> None:
    """The open is looked up in the session of the request; one of another session is FILE_CLOSED."""
    file = tree.open(written(), disposition=Disposition.OPEN)
    second = bench.unauthenticated(tree.session.connection).setup().tree(endpoint.share)
    stranger = SmbFile(second, file.name, file.file_id, file.message)
    expect(stranger.read(4), SmbStatus.FILE_CLOSED)
    expect(stranger.write(b"changed"), SmbStatus.FILE_CLOSED)
    expect(stranger.close(), SmbStatus.FILE_CLOSED)
    assert expect(file.read(4)).buffer == b"0123"


@pytest.mark.case(
    "SMB-TREE-TWICE", section="MS-SMB2 3.3.5.7, 2.2.10", kills=("tree-id-same", "tree-second-access")
)
def test_a_second_tree_of_a_share_is_another_one(bench: SmbHarness, endpoint: SmbEndpoint) -> None:
    """TreeId is unique in the session; what is stated of the share is the same."""
    session = bench.session([Dialect.SMB_3_0_2])
    first, second = session.tree(endpoint.share), session.tree(endpoint.share)
    assert first.tree_id != second.tree_id, f"both trees have TreeId {first.tree_id:#x}"
    for name in ("share_type", "share_flags", "capabilities", "maximal_access"):
        stated = [int(tree.message[name]) for tree in (first, second)]
        assert stated[0] == stated[1], f"{name} is {stated[0]:#x}, and {stated[1]:#x} in the second tree"


# Listings

NAMES = [f"name-{number}" for number in range(8)]
LISTED = sorted([".", "..", *NAMES])
CLASSES = (FileInfo.NAMES, FileInfo.BOTH_DIRECTORY, FileInfo.ID_BOTH_DIRECTORY, FileInfo.DIRECTORY)


@pytest.fixture
def filled(tree: Tree, directory: str) -> str:
    """Return the name of a directory with NAMES."""
    for name in NAMES:
        expect(tree.open(f"{directory}\\{name}").close())
    return directory


def page(opened: SmbFile, info_class: FileInfo = FileInfo.NAMES, *, flags: int = 0) -> list[str]:
    """Return the names of one response; of the end, none."""
    message = opened.list(info_class, flags=flags)
    if message.status == SmbStatus.NO_MORE_FILES:
        return []
    return [entry.name for entry in directory_entries(expect(message).buffer, info_class)]


@pytest.mark.parametrize(
    "singles",
    [
        case("SMB-LIST-REST-1", 1, kills=("entry-after-single-lost",)),
        case("SMB-LIST-REST-2", 2, kills=("class-change-restarts", "entry-after-single-lost")),
        case("SMB-LIST-REST-5", 5, kills=("class-change-restarts", "entry-after-single-lost")),
    ],
)
@pytest.mark.case(section="MS-FSA 2.1.5.6.3, MS-SMB2 3.3.5.18")
def test_a_listing_goes_on_where_single_entries_end(tree: Tree, filled: str, singles: int) -> None:
    """Each query begins behind the last entry, whether that came alone, and whatever its class was."""
    opened = open_directory(tree, filled)
    found = []
    for at in range(singles):
        found += page(opened, CLASSES[at % len(CLASSES)], flags=RETURN_SINGLE_ENTRY)
    assert len(found) == singles, f"{singles} queries of a single entry return {len(found)}"
    while names := page(opened, CLASSES[singles % len(CLASSES)]):
        found += names
        assert len(found) <= 2 * len(LISTED), "the listing does not end"
    assert sorted(found) == LISTED


@pytest.mark.case("SMB-LIST-TWO-OPENS", section="MS-FSA 2.1.5.6.3", kills=("directory-cursor-shared",))
def test_each_open_of_a_directory_has_a_position_of_its_own(tree: Tree, filled: str) -> None:
    """Two opens of a directory are read in turn, and each has every name once."""
    opens = [open_directory(tree, filled) for _ in range(2)]
    found: list[list[str]] = [[], []]
    for _ in range(len(LISTED) + 1):
        for opened, names in zip(opens, found, strict=True):
            names.extend(page(opened, flags=RETURN_SINGLE_ENTRY))
    assert [sorted(names) for names in found] == [LISTED, LISTED]


# Locks


@pytest.mark.case("SMB-LOCK-OWN", section="MS-FSA 2.1.4.10", kills=("lock-own-overlap-granted",))
def test_exclusive_locks_of_one_open_do_not_overlap(tree: Tree, written: Callable[[], str]) -> None:
    """Overlapping exclusive locks are not allowed even by the same owner; a shared lock over one is."""
    file = tree.open(written())
    expect(file.lock((10, 10, NOW)))
    for start, length in ((10, 10), (15, 10), (5, 10), (12, 2), (0, 100)):
        expect(file.lock((start, length, NOW)), SmbStatus.LOCK_NOT_GRANTED)
    expect(file.lock((20, 10, NOW)))
    expect(file.lock((0, 10, NOW)))


EMPTY = {
    "INSIDE": ((30, 10), (35, 0), SmbStatus.LOCK_NOT_GRANTED, ("accepts-lock",)),
    "BEGIN": ((30, 10), (30, 0), SmbStatus.SUCCESS, ("lock-of-none-is-one",)),
    "END": ((30, 10), (40, 0), SmbStatus.SUCCESS, ("status-success-lost",)),
    "HELD-INSIDE": ((35, 0), (30, 10), SmbStatus.LOCK_NOT_GRANTED, ("accepts-lock",)),
    "HELD-BEGIN": ((30, 0), (30, 10), SmbStatus.SUCCESS, ("lock-of-none-is-one",)),
    "HELD-END": ((40, 0), (30, 10), SmbStatus.SUCCESS, ("status-success-lost",)),
}
"""A lock that is held and another one, of which one has no byte, and how the second request ends."""


@pytest.mark.parametrize(
    ("held", "asked", "status"),
    [case(f"SMB-LOCK-EMPTY-{name}", *one[:3], kills=one[3]) for name, one in EMPTY.items()],
)
@pytest.mark.case(section="MS-FSA 2.1.4.10")
def test_a_lock_of_no_byte_conflicts_within_another_range(
    tree: Tree,
    other: Tree,
    written: Callable[[], str],
    held: tuple[int, int],
    asked: tuple[int, int],
    status: SmbStatus,
) -> None:
    """A range without bytes is between two bytes: it conflicts inside another one, and not at its edges."""
    name = written()
    expect(tree.open(name).lock((*held, NOW)))
    expect(other.open(name).lock((*asked, NOW)), status)


# Share modes


@pytest.mark.case("SMB-SHARE-ATTRIBUTES", section="MS-FSA 2.1.5.1.2.2", kills=("attributes-open-violates",))
def test_an_open_for_attributes_violates_no_share_mode(
    tree: Tree, other: Tree, written: Callable[[], str]
) -> None:
    """Share modes concern access to data and DELETE; an open without these is always allowed."""
    name, attributes = written(), Access.READ_ATTRIBUTES | Access.SYNCHRONIZE
    held = tree.open(name, share=SmbShare.NONE, disposition=Disposition.OPEN)
    looked = other.open(name, access=attributes, share=SmbShare.NONE, disposition=Disposition.OPEN)
    expect(looked.query(FileInfo.BASIC))
    expect(held.close())
    expect(tree.open(name, share=SmbShare.NONE, disposition=Disposition.OPEN).close())


@pytest.mark.case("SMB-SHARE-STREAM", section="MS-FSA 2.1.5.1.2.2", kills=("stream-shares-of-file",))
def test_share_modes_are_those_of_a_stream(tree: Tree, other: Tree, written: Callable[[], str]) -> None:
    """The open of a stream is compared with the opens of that stream, not with those of the file's others."""
    name = written()
    message = tree.create(f"{name}:first")
    if message.status in (*NO_FSCTL, SmbStatus.OBJECT_NAME_INVALID):
        pytest.skip("the file system has no named streams")
    expect(SmbFile(tree, name, bytes(expect(message)["file_id"]), message).close())
    expect(tree.open(f"{name}:second").close())
    tree.open(name, share=SmbShare.NONE, disposition=Disposition.OPEN)
    tree.open(f"{name}:first", share=SmbShare.NONE, disposition=Disposition.OPEN)
    other.open(f"{name}:second", share=SmbShare.NONE, disposition=Disposition.OPEN)
    expect(other.create(f"{name}:first", disposition=Disposition.OPEN), SmbStatus.SHARING_VIOLATION)


# Requests


@pytest.mark.case("SMB-COMP-TWO-FILES", section="MS-SMB2 3.3.5.2.7.1", kills=("compound-second-file",))
def test_two_opens_of_one_compound_are_two_files(tree: Tree, directory: str) -> None:
    """Unrelated requests of a compound are handled each for itself: each CREATE has a file of its own."""
    connection, names = tree.session.connection, [f"{directory}\\{letter}" for letter in "ab"]
    expect(tree.call(request(SmbCommand.ECHO)))
    if connection.granted < len(names):
        pytest.skip("the server grants one credit")
    ids = tree.send(*(create_request(name) for name in names))
    messages = [expect(tree.receive(mid)) for mid in ids]
    opens = [
        SmbFile(tree, name, bytes(one["file_id"]), one) for name, one in zip(names, messages, strict=True)
    ]
    assert opens[0].file_id != opens[1].file_id, "both responses have one FileId"
    for opened, name in zip(opens, names, strict=True):
        expect(opened.write(name.encode()))
        expect(opened.close())
    for name in names:
        file = tree.open(name, access=READ, disposition=Disposition.OPEN)
        assert expect(file.read(1000)).buffer == name.encode(), f"{name!r} has the data of another file"


@pytest.mark.case("SMB-CANCEL-LATER", section="MS-SMB2 3.3.5.16", kills=("cancel-oldest",))
def test_a_cancel_leaves_the_requests_before_it(tree: Tree, directory: str) -> None:
    """The request that CANCEL names is cancelled, not one that waits longer."""
    opened = open_directory(tree, directory)
    mids = [watch(opened) for _ in range(3)]
    tree.session.connection.cancel(mids[1], channel=tree.session.channel, tree=tree.tree_id)
    expect(tree.receive(mids[1]), SmbStatus.CANCELLED)
    assert is_held(tree, mids[0]), "the request before the cancelled one has ended"
    assert is_held(tree, mids[2]), "the request behind the cancelled one has ended"


@pytest.mark.parametrize(
    "dialect",
    [
        case(f"SMB-SIGN-FINAL-{dialect:x}", dialect, kills=("final-unsigned",))
        for dialect in (Dialect.SMB_2_1, Dialect.SMB_3_1_1)
    ],
)
@pytest.mark.case(section="MS-SMB2 3.3.4.1.1", level="SHOULD")
def test_the_final_response_of_a_signed_request_is_signed(bench: SmbHarness, path: str, dialect: int) -> None:
    """An interim response is not signed, the final one is, with success and with an error."""
    tree = bench.tree([dialect], signs=True)
    skip_if_guest(tree.session)
    skip_if_encrypted(tree)
    for cancelled in (False, True):
        name = f"{path}-{cancelled}"
        held, waits = tree.open(name), tree.open(name)
        expect(held.lock((0, 5, NOW)))
        mid = tree.send(waits.lock_request((0, 5, Lock.EXCLUSIVE)))[0]
        if tree.session.connection.receive_interim(mid) is None:
            pytest.skip("the server answers a lock that waits synchronously")
        if cancelled:
            tree.session.connection.cancel(mid, channel=tree.session.channel, tree=tree.tree_id)
        else:
            expect(held.lock((0, 5, Lock.UNLOCK)))
        message = expect(tree.receive(mid), SmbStatus.CANCELLED if cancelled else SmbStatus.SUCCESS)
        assert message.flags & Flags.SIGNED, f"not signed: {message.summary()}"


@pytest.mark.parametrize(
    "dialect",
    [
        case(f"SMB-SIGN-ERROR-{dialect:x}", dialect, kills=("error-unsigned",))
        for dialect in (Dialect.SMB_2_1, Dialect.SMB_3_1_1)
    ],
)
@pytest.mark.case(section="MS-SMB2 3.3.4.1.1", level="SHOULD")
def test_an_error_response_to_a_signed_request_is_signed(bench: SmbHarness, path: str, dialect: int) -> None:
    """A client that requires signatures believes no error without one."""
    tree = bench.tree([dialect], signs=True)
    skip_if_guest(tree.session)
    skip_if_encrypted(tree)
    message = tree.create(path, disposition=Disposition.OPEN)
    expect(message, SmbStatus.OBJECT_NAME_NOT_FOUND)
    assert message.flags & Flags.SIGNED, f"not signed: {message.summary()}"


# Credits


@pytest.mark.case("SMB-CRED-COMPOUND", section="MS-SMB2 3.3.1.2", kills=("compound-grants-none",))
def test_compounds_never_leave_the_client_without_a_credit(bench: SmbHarness) -> None:
    """Each compound asks for as many credits as it uses: the client is never left with none."""
    connection, echo = bench.connect(), request(SmbCommand.ECHO)
    connection.asks = 1
    connection.negotiate()
    session = bench.unauthenticated(connection).setup()
    expect(session.call(echo, over={"credits": 8}))
    if not 2 <= connection.granted <= 100:
        pytest.skip(f"the server grants {connection.granted} credits to a client that asks for 8")
    for number in range(connection.granted):
        if connection.granted >= 2:
            for mid in connection.send(echo, echo, channel=session.channel):
                expect(connection.receive(mid))
        assert connection.granted >= 1, f"no credit is left after {number + 1} compounds"


@pytest.mark.case("SMB-CHARGE-NONE", section="MS-SMB2 3.3.5.2.5", kills=("charge-zero-refused",))
def test_a_credit_charge_of_zero_is_enough_for_64_kib(tree: Tree, path: str) -> None:
    """CreditCharge 0 is refused for a payload or response over 64 KiB alone."""
    if not tree.session.connection.settled.capabilities & Capability.LARGE_MTU:
        pytest.skip("the server has no multi-credit requests")
    file, none = tree.open(path), {"credit_charge": 0}
    data = bytes(range(256)) * 256
    assert expect(file.write(data, over=none))["count"] == len(data)
    assert expect(file.read(len(data), over=none)).buffer == data
    expect(file.query(FileInfo.ALL, over=none))
