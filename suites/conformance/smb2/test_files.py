"""CREATE, CLOSE, READ and WRITE (MS-SMB2 3.3.5.9 to 3.3.5.13)."""

from __future__ import annotations

import struct
from contextlib import suppress

import pytest

from storagetest.suites.conformance.smb2.handles import with_credits
from storagetest.wire.smb2 import contexts as c
from storagetest.wire.smb2.codes import (
    Access,
    Action,
    Disposition,
    Lock,
    Options,
    SmbShare,
    SmbStatus,
)
from storagetest.wire.smb2.harness import expect
from storagetest.wire.tcp import PeerClosed

pytestmark = [pytest.mark.needs("smb-wire"), pytest.mark.case(section="MS-SMB2 3.3.5.9", level="MUST")]

READ, WRITE, DELETE = Access.GENERIC_READ, Access.GENERIC_WRITE, Access.DELETE


def case(identifier, *values, kills, **more):
    return pytest.param(*values, marks=pytest.mark.case(identifier, kills=kills, **more))


@pytest.mark.parametrize(
    ("disposition", "action"),
    [
        case("SMB-DISP-01", Disposition.SUPERSEDE, Action.CREATED, kills=("create-action-other",)),
        case("SMB-DISP-02", Disposition.CREATE, Action.CREATED, kills=("create-action-other",)),
        case("SMB-DISP-03", Disposition.OPEN_IF, Action.CREATED, kills=("create-action-other",)),
        case("SMB-DISP-04", Disposition.OVERWRITE_IF, Action.CREATED, kills=("create-action-other",)),
    ],
)
@pytest.mark.case(section="MS-SMB2 2.2.13, 2.2.14")
def test_a_file_that_is_not_there_is_created(tree, path, disposition, action):
    assert tree.open(path, disposition=disposition).message["action"] == action


@pytest.mark.parametrize(
    "disposition",
    [
        case("SMB-DISP-05", Disposition.OPEN, kills=("open-creates", "accepts-create", "status-create")),
        case(
            "SMB-DISP-06",
            Disposition.OVERWRITE,
            kills=("accepts-create", "status-create"),
            builds_on=("SMB-DISP-05",),
        ),
    ],
)
@pytest.mark.case(section="MS-SMB2 2.2.13")
def test_a_file_that_is_not_there_is_not_found(tree, path, disposition):
    expect(tree.create(path, disposition=disposition), SmbStatus.OBJECT_NAME_NOT_FOUND)


@pytest.mark.parametrize(
    ("disposition", "action", "size"),
    [
        case("SMB-DISP-07", Disposition.SUPERSEDE, Action.SUPERSEDED, 0, kills=("create-size-other",)),
        case(
            "SMB-DISP-08",
            Disposition.OPEN,
            Action.OPENED,
            10,
            kills=("create-action-other", "create-size-other"),
        ),
        case(
            "SMB-DISP-09",
            Disposition.OPEN_IF,
            Action.OPENED,
            10,
            kills=(
                "open-if-created",
                "create-action-other",
            ),
        ),
        case(
            "SMB-DISP-10",
            Disposition.OVERWRITE,
            Action.OVERWRITTEN,
            0,
            kills=(
                "overwrite-keeps",
                "create-action-other",
            ),
        ),
        case(
            "SMB-DISP-11",
            Disposition.OVERWRITE_IF,
            Action.OVERWRITTEN,
            0,
            kills=(
                "overwrite-keeps",
                "create-action-other",
            ),
        ),
    ],
)
@pytest.mark.case(section="MS-SMB2 2.2.13, 2.2.14")
def test_a_file_that_is_there(tree, written, disposition, action, size):
    message = tree.open(written(), disposition=disposition).message
    # A server without supersede overwrites: the file is empty in both.
    allowed = (action, Action.OVERWRITTEN) if action == Action.SUPERSEDED else (action,)
    assert message["action"] in allowed
    assert message["end_of_file"] == size


@pytest.mark.case(
    "SMB-DISP-12", section="MS-SMB2 2.2.13", kills=("create-opens", "accepts-create", "status-create")
)
def test_a_file_that_is_there_collides(tree, written):
    expect(tree.create(written(), disposition=Disposition.CREATE), SmbStatus.OBJECT_NAME_COLLISION)


@pytest.mark.parametrize(
    ("access", "share", "second", "allowed"),
    [
        case("SMB-SHARE-01", READ, SmbShare.READ, READ, True, kills=("status-success-lost",)),
        case(
            "SMB-SHARE-02",
            READ,
            SmbShare.READ,
            WRITE,
            False,
            kills=("share-ignored", "accepts-create", "status-create"),
        ),
        case(
            "SMB-SHARE-03",
            READ,
            SmbShare.WRITE,
            READ,
            False,
            kills=("share-ignored", "accepts-create", "status-create"),
        ),
        case("SMB-SHARE-04", READ, SmbShare.WRITE, WRITE, True, kills=("status-success-lost",)),
        case(
            "SMB-SHARE-05",
            READ,
            SmbShare.NONE,
            READ,
            False,
            kills=("share-ignored", "accepts-create", "status-create"),
        ),
        case(
            "SMB-SHARE-06",
            READ,
            SmbShare.READ,
            DELETE,
            False,
            kills=("share-ignored", "accepts-create", "status-create"),
        ),
        case("SMB-SHARE-07", READ, SmbShare.DELETE, DELETE, True, kills=("status-success-lost",)),
    ],
)
@pytest.mark.case(section="MS-FSA 2.1.5.1.2.2")
def test_share_modes(tree, written, access, share, second, allowed):
    name = written()
    tree.open(name, access=access, share=share)
    message = tree.create(name, access=second, disposition=Disposition.OPEN)
    expect(message, SmbStatus.SUCCESS if allowed else SmbStatus.SHARING_VIOLATION)


@pytest.mark.case("SMB-SHARE-08", section="MS-FSA 2.1.5.1.2.2", kills=("accepts-create", "status-create"))
def test_the_second_opens_share_mode_counts_as_well(tree, written):
    name = written()
    tree.open(name, access=WRITE)
    message = tree.create(name, access=READ, share=SmbShare.READ, disposition=Disposition.OPEN)
    expect(message, SmbStatus.SHARING_VIOLATION)


@pytest.mark.parametrize(
    ("fields", "statuses"),
    [
        case(
            "SMB-CRE-01",
            {"disposition": 6},
            (SmbStatus.INVALID_PARAMETER,),
            kills=("accepts-create", "status-create"),
        ),
        case(
            "SMB-CRE-04",
            {"options": 0x41},
            (SmbStatus.INVALID_PARAMETER,),
            kills=("accepts-create", "status-create"),
        ),
    ],
)
@pytest.mark.case(section="MS-SMB2 3.3.5.9, MS-FSA 2.1.5.1")
def test_a_create_with_an_invalid_field(tree, path, fields, statuses):
    expect(tree.create(path, over=fields), *statuses)


@pytest.mark.case("SMB-CRE-02", section="MS-FSA 2.1.5.1", no_mutant_reason="smbd breaks this rule itself")
def test_an_undefined_share_access_is_an_invalid_parameter(tree, path):
    expect(tree.create(path, share=8), SmbStatus.INVALID_PARAMETER)


@pytest.mark.case(
    "SMB-CRE-03", section="MS-SMB2 3.3.5.9", level="SHOULD", no_mutant_reason="smbd does not do it"
)
def test_no_access_at_all_is_denied(tree, path):
    expect(tree.create(path, access=0), SmbStatus.ACCESS_DENIED)


@pytest.mark.case("SMB-CRE-05", level="SHOULD", kills=("accepts-create", "status-create"))
def test_a_name_that_begins_with_a_backslash_is_invalid(tree, path):
    expect(tree.create("\\" + path), SmbStatus.INVALID_PARAMETER, SmbStatus.OBJECT_NAME_INVALID)


@pytest.mark.case(
    "SMB-CRE-06", section="MS-FSA 2.1.5.1", kills=("type-ignored", "accepts-create", "status-create")
)
def test_a_file_opened_as_a_directory_is_none(tree, written):
    message = tree.create(written(), disposition=Disposition.OPEN, options=Options.DIRECTORY_FILE)
    expect(message, SmbStatus.NOT_A_DIRECTORY)


@pytest.mark.case(
    "SMB-CRE-07", section="MS-FSA 2.1.5.1", kills=("type-ignored", "accepts-create", "status-create")
)
def test_a_directory_opened_as_a_file_is_one(tree, run_directory):
    expect(tree.create(run_directory.get(), disposition=Disposition.OPEN), SmbStatus.FILE_IS_A_DIRECTORY)


@pytest.mark.case("SMB-CRE-08", section="MS-FSA 2.1.5.1", kills=("accepts-create", "status-create"))
def test_a_path_whose_directory_is_missing_is_not_found(tree, path):
    expect(tree.create(f"{path}\\below"), SmbStatus.OBJECT_PATH_NOT_FOUND)


@pytest.mark.case(
    "SMB-CRE-09", section="MS-SMB2 3.3.5.9.5", kills=("maximal-access-lost", "maximal-access-status")
)
def test_maximal_access_has_the_access_that_was_granted(tree, path):
    found = tree.open(path, contexts=[(c.MAXIMAL_ACCESS, b"")]).contexts
    assert c.MAXIMAL_ACCESS in found
    status, access = struct.unpack("<II", found[c.MAXIMAL_ACCESS])
    assert status == SmbStatus.SUCCESS, f"QueryStatus is {SmbStatus.name_of(status)}"
    assert access & (Access.READ_DATA | Access.WRITE_DATA) == Access.READ_DATA | Access.WRITE_DATA


@pytest.mark.case("SMB-CRE-10", section="MS-SMB2 3.3.5.9.9", kills=("disk-id-changes",))
def test_the_on_disk_id_stays(tree, path):
    first, second = (tree.open(path, contexts=[(c.ON_DISK_ID, b"")]).contexts for _ in range(2))
    assert c.ON_DISK_ID in first
    assert first[c.ON_DISK_ID] == second.get(c.ON_DISK_ID)


@pytest.mark.case("SMB-CRE-11", section="MS-SMB2 3.3.5.9", kills=("file-id-same",))
def test_two_opens_have_two_file_ids(tree, path):
    assert tree.open(path).file_id != tree.open(path).file_id


@pytest.mark.case(
    "SMB-DEL-01",
    section="MS-FSA 2.1.5.5",
    kills=("delete-on-close-ignored", "status-create", "accepts-create"),
)
def test_delete_on_close_removes_the_file(tree, path):
    expect(tree.open(path, options=Options.DELETE_ON_CLOSE).close())
    expect(tree.create(path, disposition=Disposition.OPEN), SmbStatus.OBJECT_NAME_NOT_FOUND)


@pytest.mark.case("SMB-DEL-02", section="MS-FSA 2.1.5.1", kills=("accepts-create", "status-create"))
def test_delete_on_close_without_the_access_is_denied(tree, path):
    expect(
        tree.create(path, access=READ, options=Options.DELETE_ON_CLOSE),
        SmbStatus.INVALID_PARAMETER,
        SmbStatus.ACCESS_DENIED,
    )


@pytest.mark.case(
    "SMB-DEL-03", section="MS-FSA 2.1.5.1.2", kills=("disposition-ignored", "accepts-create", "status-create")
)
def test_a_file_to_be_deleted_is_not_opened(tree, path):
    file = tree.open(path)
    expect(file.delete_on_close())
    expect(tree.create(path, disposition=Disposition.OPEN), SmbStatus.DELETE_PENDING)


@pytest.mark.case("SMB-DEL-04", section="MS-FSCC 2.4.11", kills=("status-success-lost",))
def test_the_disposition_is_taken_back(tree, path):
    file = tree.open(path)
    expect(file.delete_on_close())
    expect(file.delete_on_close(pending=False))
    expect(file.close())
    expect(tree.create(path, disposition=Disposition.OPEN))


@pytest.mark.case("SMB-CLOSE-01", section="MS-SMB2 3.3.5.10", kills=("accepts-close", "status-close"))
def test_a_file_is_closed_once(tree, path):
    file = tree.open(path)
    expect(file.close())
    expect(file.close(), SmbStatus.FILE_CLOSED)


@pytest.mark.case(
    "SMB-CLOSE-02",
    section="MS-SMB2 3.3.5.10",
    kills=(
        "close-size-of-open",
        "close-flags-ignored",
        "close-size-other",
    ),
)
def test_a_close_returns_attributes_if_asked(tree, path):
    file = tree.open(path)
    expect(file.write(b"x" * 77))
    message = expect(file.close(flags=1))
    assert (message["flags"] & 1, message["end_of_file"]) == (1, 77)


@pytest.mark.parametrize(
    "command",
    [
        case("SMB-CLOSED-01", "read", kills=("accepts-read", "status-read")),
        case("SMB-CLOSED-02", "write", kills=("accepts-write", "status-write")),
        case("SMB-CLOSED-03", "flush", kills=("accepts-flush", "status-flush")),
        case("SMB-CLOSED-04", "query", kills=("accepts-query-info", "status-query-info")),
        case("SMB-CLOSED-05", "set_size", kills=("accepts-set-info", "status-set-info")),
        case("SMB-CLOSED-06", "lock", kills=("accepts-lock", "status-lock")),
    ],
)
@pytest.mark.case(section="MS-SMB2 3.3.5.11 to 3.3.5.21")
def test_a_closed_file_is_closed_to_every_command(tree, path, command):
    file = tree.open(path)
    expect(file.close())
    argument = {"read": 1, "write": b"x", "query": 5, "set_size": 1, "lock": (0, 1, Lock.EXCLUSIVE)}.get(
        command
    )
    message = getattr(file, command)(*([] if argument is None else [argument]))
    expect(message, SmbStatus.FILE_CLOSED)


IO = pytest.mark.case(section="MS-SMB2 3.3.5.12")


@IO
@pytest.mark.case("SMB-READ-01", kills=("read-data-changed", "read-short", "read-data-remaining"))
def test_what_was_written_is_read(tree, written):
    file = tree.open(written(b"abcdef" * 5000))
    assert expect(file.read(30000)).buffer == b"abcdef" * 5000


@IO
@pytest.mark.case("SMB-READ-02", kills=("accepts-read", "status-read"))
def test_a_read_at_the_end_is_end_of_file(tree, written):
    expect(tree.open(written()).read(1, 10), SmbStatus.END_OF_FILE)


@IO
@pytest.mark.case(
    "SMB-READ-03",
    kills=(
        "read-padded",
        "read-data-changed",
    ),
)
def test_a_read_over_the_end_is_cut(tree, written):
    assert expect(tree.open(written()).read(100, 8)).buffer == b"89"


@IO
@pytest.mark.case("SMB-READ-04", level="SHOULD", kills=("minimum-ignored", "accepts-read", "status-read"))
def test_fewer_bytes_than_the_minimum_are_end_of_file(tree, written):
    expect(tree.open(written()).read(100, minimum=50), SmbStatus.END_OF_FILE)


@IO
@pytest.mark.case("SMB-READ-05", kills=("accepts-read", "status-read"))
def test_a_read_without_the_access_is_denied(tree, written):
    expect(tree.open(written(), access=WRITE).read(1), SmbStatus.ACCESS_DENIED)


@IO
@pytest.mark.case("SMB-READ-06", level="SHOULD", kills=("accepts-read", "status-read"))
def test_a_read_over_the_largest_size_is_an_invalid_parameter(tree, written):
    largest = tree.session.connection.settled.message["max_read"]
    charge = {"credit_charge": 1 + largest // 65536}
    file = tree.open(written())
    with_credits(tree, charge["credit_charge"])
    expect(file.read(largest + 1, over=charge), SmbStatus.INVALID_PARAMETER)


WRITES = pytest.mark.case(section="MS-SMB2 3.3.5.13")


@WRITES
@pytest.mark.case("SMB-WRITE-01", kills=("write-count-other",))
def test_a_write_states_its_count(tree, path):
    assert expect(tree.open(path).write(b"x" * 1000))["count"] == 1000


@WRITES
@pytest.mark.case("SMB-WRITE-02", kills=("read-data-changed",))
def test_a_gap_is_zeros(tree, path):
    file = tree.open(path)
    expect(file.write(b"x", 100))
    assert expect(file.read(101)).buffer == bytes(100) + b"x"


@WRITES
@pytest.mark.case("SMB-WRITE-03", level="SHOULD", kills=("accepts-write", "status-write"))
def test_a_write_without_the_access_is_denied(tree, written):
    expect(tree.open(written(), access=READ).write(b"x"), SmbStatus.ACCESS_DENIED)


@WRITES
@pytest.mark.case("SMB-WRITE-04", level="SHOULD", kills=("accepts-write", "status-write"))
def test_data_past_the_message_are_an_invalid_parameter(tree, path):
    file = tree.open(path)
    with suppress(PeerClosed):  # a server may disconnect for a message that is not whole (3.3.5.2)
        expect(file.write(b"x", over={"buffer_length": 5000}), SmbStatus.INVALID_PARAMETER)


@IO
@pytest.mark.case("SMB-READ-07", kills=("read-offset-ignored",))
def test_a_read_begins_at_its_offset(tree, written):
    assert expect(tree.open(written()).read(3, 4)).buffer == b"456"


@WRITES
@pytest.mark.case("SMB-WRITE-05", kills=("write-offset-ignored",))
def test_a_write_begins_at_its_offset(tree, written):
    file = tree.open(written())
    expect(file.write(b"xx", 4))
    assert expect(file.read(10)).buffer == b"0123xx6789"
