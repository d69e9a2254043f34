"""What a case on the wire uses: connections, sessions and trees of its own, and a directory of the run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Self

from storagetest.errors import AttachError
from storagetest.wire.smb2.client import Account, SmbFile, SmbSession, Tree
from storagetest.wire.smb2.codes import (
    SIGNING_ENABLED,
    SIGNING_REQUIRED,
    Access,
    Dialect,
    Disposition,
    FileInfo,
    Options,
    SmbAttribute,
    SmbStatus,
)
from storagetest.wire.smb2.connection import DIALECTS, EncryptionRequired, SmbConnection
from storagetest.wire.smb2.information import DirectoryEntry, directory_entries
from storagetest.wire.smb2.message import SmbMessage
from storagetest.wire.tcp import RecordedConnection


@dataclass(frozen=True, slots=True)
class SmbEndpoint:
    """Address, share and account of the server; ``deadline`` of one response in seconds."""

    address: str
    port: int
    share: str
    account: Account
    deadline: float


def expect(message: SmbMessage, *statuses: SmbStatus) -> SmbMessage:
    """Assert that ``message`` has one of ``statuses`` (by default success), and return it."""
    wanted = statuses or (SmbStatus.SUCCESS,)
    assert message.status in wanted, (
        f"{message.summary()}: {' or '.join(status.name for status in wanted)} is required"
    )
    return message


@dataclass
class SmbHarness:
    """Makes connections and closes them at its end; ``note`` gets each link and its name.

    ``before_session`` is called before :meth:`session` makes one, and raises what is known to prevent it.
    """

    endpoint: SmbEndpoint
    note: Callable[[RecordedConnection, str], None] = lambda _link, _name: None
    before_session: Callable[[], object] = lambda: None
    _made: list[SmbConnection] = field(default_factory=list)

    @property
    def faults(self) -> list[str]:
        """A sentence for each rule that a response has broken, on any connection."""
        return [fault for one in self._made for fault in one.faults]

    def connect(self) -> SmbConnection:
        """Return a connection on which nothing was sent."""
        end = self.endpoint
        link = RecordedConnection.connect(end.address, end.port, deadline=end.deadline)
        self.note(link, f"connection {len(self._made) + 1}")
        self._made.append(SmbConnection(link, end.deadline))
        return self._made[-1]

    def session(
        self,
        dialects: Sequence[int] = DIALECTS,
        *,
        signs: bool = False,
        encrypts: bool = False,
        guid: bytes = b"",
        previous: int = 0,
    ) -> SmbSession:
        """Return a session on a connection of its own; with ``signs`` it requires signatures."""
        self.before_session()
        connection = self.connect()
        connection.guid = guid or connection.guid
        mode = SIGNING_REQUIRED if signs else SIGNING_ENABLED
        connection.negotiate(dialects, mode=mode)
        session = self.unauthenticated(connection)
        return session.setup(mode=mode, signs=signs, encrypts=encrypts, previous=previous)

    def unauthenticated(self, connection: SmbConnection, *, account: Account | None = None) -> SmbSession:
        """Return a session that is not set up yet, of the endpoint's account or of another one."""
        return SmbSession(connection, account or self.endpoint.account, self.endpoint.address)

    def tree(
        self,
        dialects: Sequence[int] = DIALECTS,
        *,
        guid: bytes = b"",
        signs: bool = False,
        encrypts: bool = False,
    ) -> Tree:
        """Return a tree in a session of its own.

        Raises :class:`EncryptionRequired` if the share is refused in a dialect without encryption, and
        states in another one that it requires encryption.
        """
        session = self.session(dialects, guid=guid, signs=signs, encrypts=encrypts)
        try:
            return session.tree(self.endpoint.share)
        except AttachError:
            dialect = session.connection.settled.dialect
            if dialect >= Dialect.SMB_3_0 or not self.requires_encryption():
                raise
        raise EncryptionRequired(
            f"the share {self.endpoint.share!r} requires encryption, which dialect {dialect:#x} does not have"
        )

    def requires_encryption(self) -> bool:
        """Return whether the share requires encryption, as it states in a later dialect (2.2.10)."""
        return self.session().tree(self.endpoint.share).session.channel.encrypts

    def __enter__(self) -> Self:
        return self

    def close(self) -> None:
        """Close every connection that was made."""
        for connection in self._made:
            connection.close()

    def __exit__(self, *_: object) -> None:
        self.close()


def make_directory(tree: Tree, path: str) -> None:
    """Create a directory. Raises AttachError if the server refuses."""
    message = tree.create(path, disposition=Disposition.CREATE, options=Options.DIRECTORY_FILE)
    if message.status:
        raise AttachError(f"cannot create directory {path!r}: {SmbStatus.name_of(message.status)}")
    SmbFile(tree, path, bytes(message["file_id"]), message).close()


def entries(directory: SmbFile, pattern: str = "*") -> Iterator[DirectoryEntry]:
    """Read the names in ``directory`` that match; ends where the server does not go on.

    Raises AttachError if it goes on without new names (MS-FSA 2.1.5.6.3: each query continues the last one).
    """
    seen: set[str] = set()
    while not (listed := directory.list(pattern=pattern)).status:
        page = directory_entries(listed.buffer)
        if not page or seen.issuperset(entry.name for entry in page):
            raise AttachError(f"the listing of {directory.name!r} goes on without new names")
        seen.update(entry.name for entry in page)
        yield from page


def remove_directory(tree: Tree, path: str) -> None:
    """Remove a directory with all that is in it. Raises AttachError if something stays.

    A reparse point is removed itself and never followed.
    """
    directory = tree.open(
        path, disposition=Disposition.OPEN, options=Options.DIRECTORY_FILE | Options.OPEN_REPARSE_POINT
    )
    for entry in entries(directory):
        below = f"{path}\\{entry.name}"
        if entry.name in (".", ".."):
            continue
        if entry.is_directory and not entry.is_reparse_point:
            remove_directory(tree, below)
        else:
            _remove(tree, below, read_only=bool(entry.attributes & SmbAttribute.READONLY))
    removed = directory.delete_on_close().status or directory.close().status
    if removed:
        raise AttachError(f"cannot remove directory {path!r}: {SmbStatus.name_of(removed)}")


def _remove(tree: Tree, path: str, *, read_only: bool) -> None:
    """Remove a file or a reparse point."""
    itself: int = Options.OPEN_REPARSE_POINT
    if read_only:
        opened = tree.open(path, access=Access.WRITE_ATTRIBUTES, disposition=Disposition.OPEN, options=itself)
        opened.set(FileInfo.BASIC, bytes(32) + SmbAttribute.NORMAL.to_bytes(8, "little"))
        opened.close()
    message = tree.create(
        path,
        access=Access.DELETE,
        disposition=Disposition.OPEN,
        options=Options.DELETE_ON_CLOSE | itself,
    )
    if message.status:
        raise AttachError(f"cannot remove {path!r}: {SmbStatus.name_of(message.status)}")
    removed = SmbFile(tree, path, bytes(message["file_id"]), message).close().status
    if removed:
        raise AttachError(f"cannot remove {path!r}: {SmbStatus.name_of(removed)}")
