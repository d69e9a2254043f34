"""CHANGE_NOTIFY: events, filters, the end of a watch (MS-SMB2 3.3.5.19, MS-FSA 2.1.5.11)."""

from __future__ import annotations

import itertools
import struct
from contextlib import suppress

import pytest

from storagetest.errors import RemoteProtocolError
from storagetest.polling import wait_until
from storagetest.suites.conformance.smb2.support import (
    case,
    expect_refused,
    open_directory,
    skip_without_security,
    watch,
)
from storagetest.wire.smb2.caching import is_held
from storagetest.wire.smb2.codes import (
    DACL_SECURITY,
    WATCH_TREE,
    Access,
    FileInfo,
    InfoType,
    NotifyAction,
    SmbAttribute,
    SmbCommand,
    SmbNotify,
    SmbStatus,
)
from storagetest.wire.smb2.harness import expect, make_directory
from storagetest.wire.smb2.information import notifications
from storagetest.wire.smb2.message import request
from storagetest.wire.tcp import ResponseTimeout

pytestmark = [pytest.mark.needs("smb-wire"), pytest.mark.case(section="MS-SMB2 3.3.5.19", level="MUST")]

NAMES = SmbNotify.FILE_NAME | SmbNotify.DIR_NAME
EVERYTHING = NAMES | SmbNotify.ATTRIBUTES | SmbNotify.SIZE | SmbNotify.LAST_WRITE
REFUSED = ("accepts-change-notify",)
HIDDEN = SmbAttribute.HIDDEN
YEAR_2014 = 0x01D0000000000000
"""A time of that year, in intervals of 100 ns since 1601."""


@pytest.fixture
def opened(tree, directory):
    """Return an open of the case's directory."""
    return open_directory(tree, directory)


PRIME = "prime-"
"""How the names begin that show that a watch is in place."""


def ready(opened, other, kinds=NAMES, *, flags=0, length=4096):
    """Watch the directory, and return the id of a request whose watch is in place.

    A server may begin to watch after its interim response: changes are made until one is reported.
    """
    mid = watch(opened, kinds, flags=flags, length=length)
    made = itertools.count()

    def is_reported():
        make_directory(other, f"{opened.name}\\{PRIME}{next(made)}")
        expect(other.open(f"{opened.name}\\{PRIME}{next(made)}").close())
        with suppress(ResponseTimeout):
            opened.tree.receive(mid, deadline=0.2)
            return True
        return False

    deadline = opened.tree.session.connection.deadline
    wait_until(is_reported, deadline, "the report of a change", error=RemoteProtocolError)
    return watch(opened, kinds, flags=flags, length=length)


MOST = 100
"""Responses among which the changes of a case are looked for (chosen)."""


def changes(opened, mid, kinds=NAMES, *, flags=0):
    """Return the changes that the case made, from the response to ``mid`` or from later ones."""
    for _ in range(MOST):
        listed = notifications(expect(opened.tree.receive(mid)).buffer)
        # Samba 4.22 reports a new directory under a name of its own too, which ends with the right one.
        found = [(action, name) for action, name in listed if PRIME not in name]
        if found:
            return found
        mid = watch(opened, kinds, flags=flags)
    raise AssertionError(f"{MOST} responses have no change that the case made")


def changes_up_to(opened, mid, name, kinds=NAMES):
    """Return the changes up to the last one of ``name``; a server may make names of its own before it."""
    found = changes(opened, mid, kinds)
    while name not in [one for _, one in found]:
        found += changes(opened, watch(opened, kinds), kinds)
    return found


@pytest.mark.case(
    "SMB-NOTIFY-ADDED",
    section="MS-FSCC 2.7.1",
    kills=("notify-action-other", "notify-name-other", "final-synchronous"),
)
def test_a_new_file_is_added(opened, other):
    mid = ready(opened, other, NAMES)
    other.open(f"{opened.name}\\new")
    assert changes(opened, mid)[0] == (NotifyAction.ADDED, "new")


@pytest.mark.case(
    "SMB-NOTIFY-DIR", section="MS-FSCC 2.7.1", kills=("notify-action-other", "notify-name-other")
)
def test_a_new_directory_is_added(opened, other):
    mid = ready(opened, other, SmbNotify.DIR_NAME)
    make_directory(other, f"{opened.name}\\sub")
    assert (NotifyAction.ADDED, "sub") in changes_up_to(opened, mid, "sub", SmbNotify.DIR_NAME)


@pytest.mark.case("SMB-NOTIFY-REMOVED", section="MS-FSCC 2.7.1", kills=("notify-action-other", "notify-lost"))
def test_a_deleted_file_is_removed(opened, other):
    file = other.open(f"{opened.name}\\old")
    mid = ready(opened, other, NAMES)
    expect(file.delete_on_close())
    expect(file.close())
    assert (NotifyAction.REMOVED, "old") in changes(opened, mid)


@pytest.mark.case(
    "SMB-NOTIFY-RENAMED",
    section="MS-FSCC 2.7.1",
    kills=("notify-rename-old-only", "notify-action-other", "notify-name-other"),
)
def test_a_renamed_file_has_its_old_and_its_new_name(opened, other):
    file = other.open(f"{opened.name}\\old")
    mid = ready(opened, other, NAMES)
    expect(file.rename(f"{opened.name}\\new"))
    found = changes_up_to(opened, mid, "new")
    assert found == [(NotifyAction.RENAMED_OLD_NAME, "old"), (NotifyAction.RENAMED_NEW_NAME, "new")]


CHANGED = {
    "ATTRIBUTES": (SmbNotify.ATTRIBUTES, FileInfo.BASIC, struct.pack("<QQQQII", 0, 0, 0, 0, HIDDEN, 0)),
    "SIZE": (SmbNotify.SIZE, FileInfo.END_OF_FILE, struct.pack("<Q", 100)),
    "LAST-WRITE": (SmbNotify.LAST_WRITE, FileInfo.BASIC, struct.pack("<QQQQII", 0, 0, YEAR_2014, 0, 0, 0)),
}
"""A bit of CompletionFilter, and the class and data that change what it is about."""


@pytest.mark.parametrize(
    "change", [case(f"SMB-NOTIFY-{name}", one, kills=("notify-names-only",)) for name, one in CHANGED.items()]
)
@pytest.mark.case(section="MS-SMB2 2.2.35")
def test_a_change_of_a_file_is_a_modification(opened, other, change):
    """The client is notified if attributes, size or time of the last write of a file are changed."""
    kind, info_class, data = change
    file = other.open(f"{opened.name}\\file")
    mid = ready(opened, other, NAMES | kind)
    done = file.set(info_class, data)
    if done.status == SmbStatus.NOT_SUPPORTED:
        pytest.skip("the file system does not keep what the case changes")
    expect(done)
    assert (NotifyAction.MODIFIED, "file") in changes_up_to(opened, mid, "file", NAMES | kind)


def another_access(file):
    """Set the time of the last access."""
    return file.set(FileInfo.BASIC, struct.pack("<QQQQII", 0, YEAR_2014, 0, 0, 0, 0))


def another_creation(file):
    """Set the time of the creation."""
    return file.set(FileInfo.BASIC, struct.pack("<QQQQII", YEAR_2014, 0, 0, 0, 0, 0))


def one_attribute(file):
    """Set an extended attribute."""
    name, value = b"NAME", b"value"
    head = struct.pack("<IBBH", 0, 0, len(name), len(value))
    return file.set(FileInfo.FULL_EA, head + name + b"\0" + value)


def its_access_list(file):
    """Set the access list that the file has."""
    skip_without_security(file)
    kept = file.query(0, kind=InfoType.SECURITY, additional=DACL_SECURITY)
    return file.set(0, expect(kept).buffer, kind=InfoType.SECURITY, additional=DACL_SECURITY)


RARE = {
    "LAST-ACCESS": (SmbNotify.LAST_ACCESS, another_access, "notify-other-times-never"),
    "CREATION": (SmbNotify.CREATION, another_creation, "notify-other-times-never"),
    "EA": (SmbNotify.EA, one_attribute, "notify-ea-security-never"),
    "SECURITY": (SmbNotify.SECURITY, its_access_list, "notify-ea-security-never"),
}
"""A bit of CompletionFilter that clients seldom set, what it is about, and the mutant that ignores it."""


@pytest.mark.parametrize(
    ("kind", "change"),
    [case(f"SMB-NOTIFY-{name}", *one[:2], kills=(one[2],)) for name, one in RARE.items()],
)
@pytest.mark.case(section="MS-SMB2 2.2.35")
def test_a_change_that_is_seldom_watched_is_a_modification(opened, other, kind, change):
    """The client is notified if times of access or creation, extended attributes or access lists change."""
    access = Access.GENERIC_READ | Access.GENERIC_WRITE | Access.READ_CONTROL | Access.WRITE_DAC
    file = other.open(f"{opened.name}\\file", access=access)
    mid = ready(opened, other, NAMES | kind)
    done = change(file)
    if done.status in (SmbStatus.NOT_SUPPORTED, SmbStatus.EAS_NOT_SUPPORTED):
        pytest.skip("the file system does not keep what the case changes")
    expect(done)
    assert (NotifyAction.MODIFIED, "file") in changes_up_to(opened, mid, "file", NAMES | kind)


@pytest.mark.case("SMB-NOTIFY-KEPT", section="MS-FSA 2.1.5.11", kills=("notify-name-other",))
def test_a_change_between_two_requests_is_kept(opened, other):
    mid = ready(opened, other, NAMES)
    other.open(f"{opened.name}\\first")
    found = changes(opened, mid)
    other.open(f"{opened.name}\\second")
    while len(found) < 2:
        found += changes(opened, watch(opened, NAMES))
    assert [name for _, name in found][:2] == ["first", "second"]


@pytest.mark.case("SMB-NOTIFY-FILTER", section="MS-SMB2 2.2.35", kills=("notify-filter-ignored",))
def test_a_change_that_is_not_of_the_filter_is_not_reported(opened, other):
    mid = ready(opened, other, SmbNotify.DIR_NAME)
    other.open(f"{opened.name}\\file")
    make_directory(other, f"{opened.name}\\sub")
    found = changes_up_to(opened, mid, "sub", SmbNotify.DIR_NAME)
    assert (NotifyAction.ADDED, "sub") in found
    assert "file" not in [name for _, name in found]


def _rename_and_remove(opened_again):
    """Rename what is open, then delete it."""
    expect(opened_again.rename(f"{opened_again.name}-renamed"))
    expect(opened_again.delete_on_close())
    expect(opened_again.close())


@pytest.mark.parametrize(
    ("kinds", "of_files"),
    [
        case("SMB-NOTIFY-FILES-ALONE", SmbNotify.FILE_NAME, True, kills=("notify-directories-as-files",)),
        case("SMB-NOTIFY-DIRECTORIES-ALONE", SmbNotify.DIR_NAME, False, kills=("notify-filter-ignored",)),
    ],
)
@pytest.mark.case(section="MS-SMB2 2.2.35")
def test_names_of_the_other_kind_are_not_reported(opened, other, kinds, of_files):
    """A watch of files reports no directory that is made, renamed and removed; one of directories no file."""
    mid = ready(opened, other, kinds)
    mine, end = f"{opened.name}\\other", f"{opened.name}\\end"
    access = Access.GENERIC_READ | Access.DELETE
    if of_files:
        make_directory(other, mine)
        _rename_and_remove(open_directory(other, mine, access=access))
        other.open(end)
    else:
        _rename_and_remove(other.open(mine))
        make_directory(other, end)
    found = changes_up_to(opened, mid, "end", kinds)
    wrong = [(action, name) for action, name in found if name.startswith("other")]
    assert not wrong, f"a change of a name of the other kind is reported: {wrong}"


@pytest.mark.case("SMB-NOTIFY-BELOW", section="MS-SMB2 2.2.35", kills=("notify-watches-tree",))
def test_a_change_below_is_not_reported_without_the_flag(tree, opened, other):
    make_directory(tree, f"{opened.name}\\sub")
    mid = ready(opened, other, SmbNotify.FILE_NAME)
    other.open(f"{opened.name}\\sub\\inner")
    other.open(f"{opened.name}\\outer")
    assert changes(opened, mid, SmbNotify.FILE_NAME)[0] == (NotifyAction.ADDED, "outer")


@pytest.mark.case(
    "SMB-NOTIFY-TREE",
    section="MS-SMB2 2.2.35",
    kills=(
        "notify-tree-last-component",
        "notify-tree-ignored",
    ),
)
def test_a_change_below_is_reported_with_the_flag(tree, opened, other):
    make_directory(tree, f"{opened.name}\\sub")
    mid = ready(opened, other, SmbNotify.FILE_NAME, flags=WATCH_TREE)
    other.open(f"{opened.name}\\sub\\inner")
    found = changes(opened, mid, SmbNotify.FILE_NAME, flags=WATCH_TREE)
    assert found[0] == (NotifyAction.ADDED, "sub\\inner")


@pytest.mark.case(
    "SMB-NOTIFY-CLOSE",
    section="MS-SMB2 3.3.5.10, 3.3.4.1",
    kills=("notify-cleanup-lost", "notify-status-other", "notify-lost"),
)
def test_a_close_of_the_directory_ends_the_watch(opened):
    mid = watch(opened, NAMES)
    expect(opened.close())
    expect(opened.tree.receive(mid), SmbStatus.NOTIFY_CLEANUP)


@pytest.mark.case(
    "SMB-NOTIFY-SMALL", section="MS-FSA 2.1.5.11", kills=("length-ignored", "notify-status-other")
)
def test_changes_that_do_not_fit_are_to_be_enumerated(opened, other):
    mid = ready(opened, other, NAMES, length=8)
    other.open(f"{opened.name}\\new")
    expect(opened.tree.receive(mid), SmbStatus.NOTIFY_ENUM_DIR)


@pytest.mark.case("SMB-NOTIFY-FILE", kills=REFUSED)
def test_a_file_is_not_watched(tree, written):
    file = tree.open(written())
    message = file.call(SmbCommand.CHANGE_NOTIFY, filter=NAMES, output_length=4096)
    expect_refused(message, SmbStatus.INVALID_PARAMETER)


@pytest.mark.case("SMB-NOTIFY-CLOSED", kills=REFUSED)
def test_a_closed_directory_is_not_watched(opened):
    expect(opened.close())
    message = opened.call(SmbCommand.CHANGE_NOTIFY, filter=NAMES, output_length=4096)
    expect_refused(message, SmbStatus.FILE_CLOSED)


@pytest.mark.case("SMB-NOTIFY-ACCESS", kills=REFUSED)
def test_a_directory_opened_without_the_access_is_not_watched(tree, directory):
    opened = open_directory(tree, directory, access=Access.READ_ATTRIBUTES | Access.SYNCHRONIZE)
    mid = tree.send(
        request(SmbCommand.CHANGE_NOTIFY, file_id=opened.file_id, filter=NAMES, output_length=4096)
    )[0]
    assert tree.session.connection.receive_interim(mid) is None
    expect_refused(tree.receive(mid), SmbStatus.ACCESS_DENIED)


@pytest.mark.parametrize(
    "count",
    [
        case(
            "SMB-NOTIFY-CANCEL-1",
            1,
            kills=(
                "cancelled-notify-succeeds",
                "notify-status-other",
            ),
        ),
        case("SMB-NOTIFY-CANCEL-2", 2, kills=("notify-status-other",)),
    ],
)
@pytest.mark.case(section="MS-SMB2 3.3.5.16")
def test_only_the_cancelled_request_ends(tree, opened, count):
    mids = [watch(opened) for _ in range(count + 1)]
    for mid in mids[:count]:
        tree.session.connection.cancel(mid, channel=tree.session.channel, tree=tree.tree_id)
        expect(tree.receive(mid), SmbStatus.CANCELLED)
    assert is_held(tree, mids[-1])


@pytest.mark.case("SMB-NOTIFY-QUEUE-ORDER", section="MS-SMB2 3.3.1.3", kills=("notify-last-first",))
def test_requests_of_one_open_are_answered_in_their_order(opened, other):
    """Of two requests that wait, the first one is answered first."""
    first = ready(opened, other)
    for _ in range(MOST):  # what answers it before there are two, are changes of ready()
        if is_held(opened.tree, first):
            break
        expect(opened.tree.receive(first))
        first = watch(opened)
    second = watch(opened)
    for name in ("one", "two"):
        expect(other.open(f"{opened.name}\\{name}").close())
    expect(opened.tree.receive(first))
    assert not opened.tree.session.connection.is_answered(second), "the second request is answered first"


@pytest.mark.case("SMB-NOTIFY-QUEUE-CLOSE", section="MS-SMB2 3.3.5.10", kills=("notify-cleanup-of-first",))
def test_a_close_of_the_directory_ends_every_request(opened):
    """Each of three requests that wait is answered with STATUS_NOTIFY_CLEANUP."""
    mids = [watch(opened) for _ in range(3)]
    expect(opened.close())
    for mid in mids:
        expect(opened.tree.receive(mid), SmbStatus.NOTIFY_CLEANUP)


@pytest.mark.case("SMB-NOTIFY-QUEUE-FILTER", section="MS-SMB2 3.3.1.3", kills=("notify-filter-of-last",))
def test_the_filter_of_the_first_request_is_that_of_the_open(opened, other):
    """A later request of another CompletionFilter is answered by what the first one watches."""
    mid = ready(opened, other, SmbNotify.FILE_NAME)
    other.open(f"{opened.name}\\one")
    changes_up_to(opened, mid, "one", SmbNotify.FILE_NAME)
    later = watch(opened, SmbNotify.SECURITY)
    other.open(f"{opened.name}\\two")
    assert notifications(expect(opened.tree.receive(later)).buffer), "the response names no change"
