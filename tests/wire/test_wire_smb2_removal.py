"""The removal of a run's directory with what is in it; a reparse point in it is never followed."""

import struct
from types import SimpleNamespace
from typing import Any

import pytest

from storagetest.errors import AttachError
from storagetest.wire.smb2.codes import Options, SmbAttribute, SmbCommand, SmbStatus
from storagetest.wire.smb2.harness import entries, remove_directory

DIRECTORY, LINK = SmbAttribute.DIRECTORY, SmbAttribute.DIRECTORY | SmbAttribute.REPARSE_POINT


def entry(name: str, attributes: int) -> bytes:
    """One entry of FileIdBothDirectoryInformation (MS-FSCC 2.4.21), the last of its response."""
    encoded = name.encode("utf-16-le")
    return struct.pack("<40xQQII40x", 0, 0, attributes, len(encoded)) + encoded


class Share:
    """Directories by path, with the attributes of their entries; notes what is listed and what is removed."""

    def __init__(self, directories: dict[str, dict[str, int]], *, refused: str = "") -> None:
        self.directories, self.refused = directories, refused
        self.listed: list[str] = []
        self.removed: list[str] = []
        self.changed: list[str] = []

    def open(self, path: str, **_: Any) -> Any:
        rest = [*self.directories.get(path, {}).items()]

        def listing(*, pattern: str) -> Any:
            assert pattern == "*"
            self.listed.append(path)
            if not rest:
                return SimpleNamespace(status=SmbStatus.NO_MORE_FILES)
            return SimpleNamespace(status=0, buffer=entry(*rest.pop(0)))

        def removal() -> Any:
            self.removed.append(path)
            return SimpleNamespace(status=0)

        return SimpleNamespace(
            list=listing,
            delete_on_close=removal,
            set=lambda *_: self.changed.append(path),
            close=lambda: SimpleNamespace(status=0),
        )

    def create(self, path: str, *, options: int, **_: Any) -> Any:
        assert options & Options.OPEN_REPARSE_POINT
        self.removed.append(path)
        return Response(SmbStatus.ACCESS_DENIED if path == self.refused else 0)

    def call(self, encoded: Any, **_: Any) -> Any:
        assert int.from_bytes(encoded.data[12:14], "little") == SmbCommand.CLOSE
        return Response(0)


class Response(dict[str, Any]):
    """The response to CREATE or CLOSE."""

    def __init__(self, status: int) -> None:
        super().__init__(file_id=bytes(16))
        self.status = status


def test_a_reparse_point_is_removed_and_not_followed():
    share = Share({"run": {"..": DIRECTORY, "link": LINK, "file": 0}, "run\\link": {"precious": 0}})
    remove_directory(share, "run")
    assert set(share.listed) == {"run"}
    assert share.removed == ["run\\link", "run\\file", "run"]


def test_a_directory_is_removed_with_what_is_in_it():
    share = Share({"run": {"sub": DIRECTORY}, "run\\sub": {"file": 0}})
    remove_directory(share, "run")
    assert share.removed == ["run\\sub\\file", "run\\sub", "run"]


def test_a_read_only_file_is_made_writable_first():
    share = Share({"run": {"file": SmbAttribute.READONLY}})
    remove_directory(share, "run")
    assert share.changed == ["run\\file"]
    assert share.removed == ["run\\file", "run"]


def test_what_cannot_be_removed_is_named():
    share = Share({"run": {"file": 0}}, refused="run\\file")
    with pytest.raises(AttachError, match=r"cannot remove 'run.*file': STATUS_ACCESS_DENIED"):
        remove_directory(share, "run")


@pytest.mark.parametrize("page", [entry("file", 0), b""], ids=["the same names", "no names"])
def test_a_listing_that_goes_on_without_new_names_is_an_error(page: bytes):
    endless = SimpleNamespace(name="run", list=lambda pattern: SimpleNamespace(status=0, buffer=page))
    with pytest.raises(AttachError, match="the listing of 'run' goes on without new names"):
        list(entries(endless))
