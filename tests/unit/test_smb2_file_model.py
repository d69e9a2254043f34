"""The model of the sequences of SMB2 requests (MS-FSA 2.1.5)."""

import pytest

from storagetest.suites.conformance.smb2.file_model import FileModel, ModelLock, ModelOpen
from storagetest.wire.smb2.codes import Access, Action, Disposition, SmbAttribute, SmbStatus

ALL = Access.READ_DATA | Access.WRITE_DATA | Access.DELETE


def opened(model: FileModel, name: str, *, access: int = ALL, deletes: bool = False) -> ModelOpen:
    return model.create(name, Disposition.OPEN_IF, 0, access, deletes=deletes)[0]


@pytest.mark.parametrize(
    ("disposition", "absent", "present", "action"),
    [
        (Disposition.SUPERSEDE, SmbStatus.SUCCESS, SmbStatus.SUCCESS, Action.SUPERSEDED),
        (Disposition.OPEN, SmbStatus.OBJECT_NAME_NOT_FOUND, SmbStatus.SUCCESS, Action.OPENED),
        (Disposition.CREATE, SmbStatus.SUCCESS, SmbStatus.OBJECT_NAME_COLLISION, None),
        (Disposition.OPEN_IF, SmbStatus.SUCCESS, SmbStatus.SUCCESS, Action.OPENED),
        (Disposition.OVERWRITE, SmbStatus.OBJECT_NAME_NOT_FOUND, SmbStatus.SUCCESS, Action.OVERWRITTEN),
        (Disposition.OVERWRITE_IF, SmbStatus.SUCCESS, SmbStatus.SUCCESS, Action.OVERWRITTEN),
    ],
)
def test_dispositions(disposition, absent, present, action):
    model = FileModel()
    assert model.create_status("a", disposition, 0) == absent
    opened(model, "a").file.write(0, b"data")
    assert model.create_status("a", disposition, 0) == present
    if action is not None:
        file = model.create("a", disposition, 0, ALL)[0].file
        assert model.create("a", disposition, 0, ALL)[1] == action
        assert bytes(file.data) == (b"data" if action == Action.OPENED else b"")


def test_a_hidden_file_is_overwritten_with_the_attribute_alone():
    model = FileModel()
    opened(model, "a").file.kinds = SmbAttribute.HIDDEN
    assert model.create_status("a", Disposition.OVERWRITE, 0) == SmbStatus.ACCESS_DENIED
    assert model.create_status("a", Disposition.OVERWRITE, SmbAttribute.HIDDEN) == SmbStatus.SUCCESS


@pytest.mark.parametrize(
    ("offset", "length", "minimum", "status", "data"),
    [
        (0, 4, 0, SmbStatus.SUCCESS, b"0123"),
        (8, 4, 0, SmbStatus.SUCCESS, b"89"),
        (8, 4, 4, SmbStatus.END_OF_FILE, b""),
        (10, 1, 0, SmbStatus.END_OF_FILE, b""),
    ],
)
def test_reads(offset, length, minimum, status, data):
    one = opened(FileModel(), "a")
    one.file.write(0, b"0123456789")
    assert one.read(offset, length, minimum) == (status, data)


def test_a_write_beyond_the_end_leaves_zeroes_and_one_of_nothing_leaves_all():
    file = opened(FileModel(), "a").file
    file.write(2, b"x")
    file.write(9, b"")
    assert bytes(file.data) == b"\0\0x"


def test_locks_deny_others_and_shared_ones_each_write():
    model = FileModel()
    one, other = opened(model, "a"), opened(model, "a")
    one.file.write(0, bytes(100))
    assert one.lock([ModelLock(0, 10, exclusive=True), ModelLock(20, 30, exclusive=False)]) == 0
    assert one.read(5, 1)[0] == SmbStatus.SUCCESS
    assert other.read(5, 1)[0] == SmbStatus.FILE_LOCK_CONFLICT
    assert other.read(25, 1)[0] == SmbStatus.SUCCESS
    assert [each.write_status(25, 1) for each in (one, other)] == [SmbStatus.FILE_LOCK_CONFLICT] * 2
    assert one.lock([ModelLock(5, 6, exclusive=True)]) == SmbStatus.LOCK_NOT_GRANTED
    assert one.lock([ModelLock(5, 6, exclusive=False)]) == SmbStatus.SUCCESS


def test_of_several_locks_all_are_taken_or_none_and_unlocks_stay():
    model = FileModel()
    one, other = opened(model, "a"), opened(model, "a")
    other.lock([ModelLock(10, 20, exclusive=True)])
    wanted = [ModelLock(0, 5, exclusive=True), ModelLock(15, 16, exclusive=False)]
    assert one.lock(wanted) == SmbStatus.LOCK_NOT_GRANTED
    assert not one.locks
    assert other.unlock([(10, 20), (10, 20)]) == SmbStatus.RANGE_NOT_LOCKED
    assert not other.locks


def test_the_last_close_deletes():
    model = FileModel()
    one, other = opened(model, "a", deletes=True), opened(model, "a")
    model.close(one)
    assert model.create_status("a", Disposition.OPEN, 0) == SmbStatus.DELETE_PENDING
    assert other.file.links == 0
    model.close(other)
    assert model.create_status("a", Disposition.OPEN, 0) == SmbStatus.OBJECT_NAME_NOT_FOUND


def test_renames_and_links():
    model = FileModel()
    one = opened(model, "a")
    model.link(one, "b")
    assert one.file.links == 2
    assert model.rename_status(one, "b", replace=False) == SmbStatus.OBJECT_NAME_COLLISION
    assert model.rename_status(one, "c", replace=False) == SmbStatus.SUCCESS
    model.rename(one, "c")
    assert sorted(model.names) == ["b", "c"]
    assert one.name == "c"
    busy = opened(model, "d")
    assert model.rename_status(one, "d", replace=True) == SmbStatus.ACCESS_DENIED
    model.close(busy)
    assert model.rename_status(one, "d", replace=True) == SmbStatus.SUCCESS
    without = opened(model, "b", access=Access.READ_DATA)
    assert model.rename_status(without, "e", replace=True) == SmbStatus.ACCESS_DENIED
