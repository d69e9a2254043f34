"""Test harness of one NFSv4 case: it connects, gets client ids, and disposes of all of them at the end.

Connections that arrange or look, and are no claim about the target, carry the machine name ``ARRANGES``.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any

from storagetest.errors import AttachError, RemoteProtocolError, TargetDead
from storagetest.wire.nfs4.attributes import (
    decode_attributes,
    numbers_of,
)
from storagetest.wire.nfs4.client import Done, Nfs4Client, ok
from storagetest.wire.nfs4.operations import (
    GETFH,
    PUTROOTFH,
    create,
    getattr_,
    lookup,
    putfh,
    readdir,
    remove,
    setattr_,
    unchecked,
)
from storagetest.wire.nfs4.replies import Nfs4Rules
from storagetest.wire.nfs4.state import StateOwner
from storagetest.wire.nfs4.types import (
    FATTR4_LEASE_TIME,
    FATTR4_MAXFILESIZE,
    FATTR4_MAXNAME,
    FATTR4_MAXREAD,
    FATTR4_MAXWRITE,
    FATTR4_MODE,
    FATTR4_SUPPORTED_ATTRS,
    FATTR4_TYPE,
    NFS_V4,
    nfs_argop4,
    nfs_ftype4,
    nfs_opnum4,
    nfsstat4,
)
from storagetest.wire.rpc import RpcConnection, auth_sys
from storagetest.wire.rpc.busy import GRACE, while_busy
from storagetest.wire.rpc.client import Security
from storagetest.wire.rpc.types import opaque_auth
from storagetest.wire.tcp import RecordedConnection, connect_from_low_port

ARRANGES = b"storagetest-arranges"
"""Machine name in the credentials of connections that are no claim about the target."""

_ARRANGES = "arranges"
"""Their name in the log of a case."""
MINORS = (0, 1, 2)
_NO_MINOR = 99
"""A minor version that no server has."""

ConnectionCallback = Callable[[RecordedConnection, str, int], None]
"""``callback(link, name, port)``: called with each connection; ``port`` is that of NFS, for dissectors."""

IsLeft = Callable[[bytes], bool]
"""``is_left(name)``: whether an entry of the export is the directory of a run that was killed."""

_ANSWERS = 1.0
"""Seconds in which a shared arranger has to answer; later, it is replaced (chosen)."""
_DEPTH = 64
_OPERATIONS = 48
"""Most operations in one COMPOUND of a session that allows as many (chosen)."""
_WITHOUT_SESSION = 8
"""Most operations in one COMPOUND without a session, which states no limit (chosen)."""
_NOT_EMPTY = (nfsstat4.NFS4ERR_NOTEMPTY, nfsstat4.NFS4ERR_EXIST)
"""How servers refuse to remove a directory with entries: the second is that of old NFS servers."""
_Entry = tuple[bytes, bytes]
"""An entry of a directory: the handle of the directory, and the name."""
_PAGE = 4096
"""Most bytes of the first READDIR of a directory that is removed (chosen)."""
_MOST = 5000
"""Entries of the export among which left directories are looked for (chosen)."""


@dataclass(frozen=True, slots=True)
class Nfs4Endpoint:
    """Where a server is, and the export. ``low_ports``: connect from source ports under 1024."""

    address: str
    port: int
    export: str
    deadline: float
    low_ports: bool = False


@dataclass(frozen=True, slots=True)
class Nfs4Facts:
    """What the look found: the minor versions, the export's root, and the run's directory in it."""

    endpoint: Nfs4Endpoint
    minors: tuple[int, ...]
    root: bytes
    name: bytes
    directory: bytes
    supported: dict[int, tuple[int, ...]]
    """The attributes that are supported, by minor version."""
    limits: dict[int, Any]
    """Values by number: lease time, largest file, name, READ and WRITE."""

    @property
    def implementation(self) -> str:
        """The implementation by the form of its handles, "" if unknown; the protocol does not name it."""
        return "nfs-ganesha" if self.root[:1] == b"C" else ""


class Nfs4Harness:
    """Opens connections to one endpoint. A context manager; ``note`` is called with every connection."""

    def __init__(self, endpoint: Nfs4Endpoint, note: ConnectionCallback | None = None) -> None:
        self.endpoint = endpoint
        self.note = note
        self._stack = ExitStack()
        self._connections: list[RpcConnection] = []
        self._rules = Nfs4Rules()

    @property
    def faults(self) -> list[str]:
        """A sentence for each fault of encoding, and for each rule broken, in any reply on any connection."""
        return [fault for rpc in self._connections for fault in rpc.faults]

    def rpc(
        self, *, cred: opaque_auth | None = None, name: str = "", security: Security | None = None
    ) -> RpcConnection:
        """Return a connection on which nothing was sent; ``cred`` is root's by default."""
        endpoint = self.endpoint
        connector = connect_from_low_port if endpoint.low_ports else None
        link = self._stack.enter_context(
            RecordedConnection.connect(
                endpoint.address, endpoint.port, deadline=endpoint.deadline, connector=connector
            )
        )
        if self.note is not None:
            self.note(link, name or "NFS_V4", endpoint.port)
        chosen = auth_sys() if cred is None else cred
        made = RpcConnection(link, NFS_V4, deadline=endpoint.deadline, cred=chosen, security=security)
        self.judge(made)
        return made

    def judge(self, rpc: RpcConnection) -> None:
        """Judge the replies on ``rpc`` from now on, each within this harness's deadline."""
        rpc.rules = self._rules
        rpc.deadline = self.endpoint.deadline
        self._connections.append(rpc)

    def adopt(self, client: Nfs4Client, name: str) -> None:
        """Note and judge, from now on, the connection of a client that was another harness's."""
        client.rpc.link.begin_transcript()
        client.rpc.faults = []
        if self.note is not None:
            self.note(client.rpc.link, name, self.endpoint.port)
        self.judge(client.rpc)

    def new(
        self, minor: int, *, cred: opaque_auth | None = None, name: str = "", owner: bytes | None = None
    ) -> Nfs4Client:
        """Return a client that has no client id yet; what it gets is destroyed at the end."""
        client = Nfs4Client(self.rpc(cred=cred, name=name or f"NFS 4.{minor}"), minor, owner=owner)
        self._stack.callback(_dispose, client)
        return client

    def client(self, minor: int, *, cred: opaque_auth | None = None, name: str = "") -> Nfs4Client:
        """Return a client with a client id, and with a session if its minor version has them."""
        return self.new(minor, cred=cred, name=name).establish()

    def arranger(self, minor: int) -> Nfs4Client:
        """Return a client that is no claim about the target."""
        return self.client(minor, cred=auth_sys(machine=ARRANGES), name=_ARRANGES)

    def close(self) -> None:
        """Dispose of all clients and close all connections."""
        self._stack.close()

    def __enter__(self) -> Nfs4Harness:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class SharedArranger:
    """An arranger that the cases of a session use in turn. A context manager.

    A client id and a session cost as many round trips as a whole case. A client that fails, whose lease has
    expired for example, is replaced.
    """

    def __init__(self) -> None:
        self._own: Nfs4Harness | None = None
        self._client: Nfs4Client | None = None

    def execute(
        self, bench: Nfs4Harness, minor: int, operations: Callable[[], Sequence[nfs_argop4]]
    ) -> tuple[Nfs4Client, Done]:
        """Return the arranger and its reply to ``operations()``, whatever their statuses are.

        ``bench`` notes and judges its connection until another one does. An arranger that the server does not
        know any more, or that is not answered, is replaced, and the next one executes ``operations()``.
        """
        if self._client is not None:
            bench.adopt(self._client, _ARRANGES)
            if (done := _execute(self._client, operations)) is not None:
                return self._client, done
        self.close()
        self._own = Nfs4Harness(bench.endpoint, bench.note)
        self._client = self._own.arranger(minor)
        bench.judge(self._client.rpc)
        return self._client, self._client.compound(*operations())

    def close(self) -> None:
        """Dispose of the client."""
        if self._own is not None:
            self._own.close()
        self._own = self._client = None

    def __enter__(self) -> SharedArranger:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _execute(client: Nfs4Client, operations: Callable[[], Sequence[nfs_argop4]]) -> Done | None:
    """Return the reply of a server that knows the client and has answered all that it was sent."""
    deadline, client.rpc.deadline = client.rpc.deadline, min(client.rpc.deadline, _ANSWERS)
    try:
        if not client.minor:
            ok(client.renew())
        done = client.compound(*operations())
    except (RemoteProtocolError, AssertionError):
        return None
    client.rpc.deadline = deadline
    return done if done.results else None  # none: SEQUENCE failed


def _dispose(client: Nfs4Client) -> None:
    with contextlib.suppress(RemoteProtocolError, AssertionError):
        client.rpc.deadline = min(client.rpc.deadline, 1.0)
        client.dispose()


def look(endpoint: Nfs4Endpoint, name: bytes, *, is_left: IsLeft = lambda _: False) -> Nfs4Facts:
    """Find the minor versions and the export, make the run's own directory ``name``, and remove those left.

    Source ports under 1024 are tried if the server refuses others. Raises AttachError if the export cannot be
    found or written to.
    """
    try:
        facts = _look(endpoint, name)
    except AttachError as refusal:
        try:
            facts = _look(replace(endpoint, low_ports=True), name)
        except (AttachError, TargetDead):
            raise refusal from None
    with contextlib.suppress(AssertionError, RemoteProtocolError):  # the export can be read no further
        _remove_left(facts, is_left)
    return facts


def _look(endpoint: Nfs4Endpoint, name: bytes) -> Nfs4Facts:
    where = f"{endpoint.address}:{endpoint.export}"
    names = [part.encode() for part in endpoint.export.split("/") if part]
    with Nfs4Harness(endpoint) as bench:
        minors = tuple(minor for minor in MINORS if _has(bench, minor))
        if not minors:
            raise AttachError(f"{where}: the server has no minor version of NFSv4 from 0 to 2")
        try:
            nfs = bench.arranger(minors[-1])
            root = ok(nfs.compound(PUTROOTFH, *map(lookup, names), GETFH))["GETFH"].object
            supported = {minor: _supported(bench, minor, root) for minor in minors}
            limits = values(
                ok(
                    nfs.compound(
                        putfh(root),
                        getattr_(
                            FATTR4_LEASE_TIME,
                            FATTR4_MAXFILESIZE,
                            FATTR4_MAXNAME,
                            FATTR4_MAXREAD,
                            FATTR4_MAXWRITE,
                        ),
                    )
                )
            )
            directory = ok(nfs.compound(putfh(root), create(name, values={FATTR4_MODE: 0o777}), GETFH))[
                "GETFH"
            ].object
            nfs.compound(putfh(directory), setattr_({FATTR4_MODE: 0o777}))
            _wait_for_end_of_grace(nfs, directory)
        except (RemoteProtocolError, AssertionError) as error:
            raise AttachError(
                f"{where}: {error}. The cases need an export, by its path on the server, that root or all "
                "users may write to"
            ) from None
        return Nfs4Facts(endpoint, minors, root, name, directory, supported, limits)


def _wait_for_end_of_grace(nfs: Nfs4Client, directory: bytes) -> None:
    """Open a file until that does not end with NFS4ERR_GRACE, and remove it. The cases judge other ends."""
    owner = StateOwner(nfs)
    done = while_busy(
        lambda: owner.try_open(directory, b"grace", how=unchecked()),
        lambda reply: reply.status == nfsstat4.NFS4ERR_GRACE,
        GRACE,
    )
    if done.status == nfsstat4.NFS4_OK:
        with contextlib.suppress(AssertionError):  # clean_up() removes the file, too
            owner.opened(done).close()
            ok(nfs.compound(putfh(directory), remove(b"grace")))


def _has(bench: Nfs4Harness, minor: int) -> bool:
    """Return whether the server has the minor version.

    A server that executes any number as minor version 0 has sessions only if it answers EXCHANGE_ID; the
    cases of unknown minor versions judge it.
    """

    def status(number: int) -> nfsstat4:
        return bench.new(minor, cred=auth_sys(machine=ARRANGES)).raw(PUTROOTFH, minor=number).status

    if minor and status(minor) == status(_NO_MINOR) == nfsstat4.NFS4_OK:
        return _exchanges(bench, minor)
    return status(minor) != nfsstat4.NFS4ERR_MINOR_VERS_MISMATCH


def _exchanges(bench: Nfs4Harness, minor: int) -> bool:
    nfs = bench.new(minor, cred=auth_sys(machine=ARRANGES))
    try:
        return nfs.raw(nfs.exchange_id()).status == nfsstat4.NFS4_OK
    except (RemoteProtocolError, AssertionError):
        return False


def _supported(bench: Nfs4Harness, minor: int, root: bytes) -> tuple[int, ...]:
    done = ok(bench.arranger(minor).compound(putfh(root), getattr_(FATTR4_SUPPORTED_ATTRS)))
    return numbers_of(values(done)[FATTR4_SUPPORTED_ATTRS])


def values(done: Done) -> dict[int, Any]:
    """Return the attributes that GETATTR returned, by number."""
    return decode_attributes(done["GETATTR"].obj_attributes)


def _remove_left(facts: Nfs4Facts, is_left: IsLeft) -> None:
    """Remove what killed runs left; what cannot be removed stays."""
    with Nfs4Harness(facts.endpoint) as bench:
        nfs = bench.arranger(facts.minors[-1])
        for entry in itertools.islice(entries(nfs, facts.root), _MOST):
            if is_left(entry.name):
                with contextlib.suppress(AssertionError, RemoteProtocolError):
                    found = ok(nfs.compound(putfh(facts.root), lookup(entry.name), GETFH))["GETFH"].object
                    _Remover(nfs).empty(found)
                    ok(nfs.compound(putfh(facts.root), remove(entry.name)))


def clean_up(facts: Nfs4Facts) -> None:
    """Remove the run's directory and all in it. Raises AttachError, which names it, if that fails."""
    with Nfs4Harness(facts.endpoint) as bench:
        where = f"{facts.endpoint.address}:{facts.endpoint.export}/{facts.name.decode()}"
        try:
            nfs = bench.arranger(facts.minors[-1])
            _Remover(nfs).empty(facts.directory)
            ok(nfs.compound(putfh(facts.root), remove(facts.name)))
            status = nfs.compound(putfh(facts.root), lookup(facts.name)).status
            assert status == nfsstat4.NFS4ERR_NOENT, f"LOOKUP of it ends with {status.name}"
        except (AssertionError, RemoteProtocolError) as error:
            raise AttachError(f"{where} could not be removed: {error}. Remove it") from None


def entries(
    nfs: Nfs4Client, directory: bytes, *, maxcount: int = 16384, numbers: tuple[int, ...] = ()
) -> Iterator[Any]:
    """Read a whole directory; raises AssertionError if a READDIR is refused or has nothing new."""
    cookie, verifier = 0, bytes(8)
    seen = {cookie}
    while True:
        asked = readdir(cookie=cookie, verifier=verifier, maxcount=maxcount, numbers=numbers)
        page = ok(nfs.compound(putfh(directory), asked))["READDIR"]
        yield from page.reply.entries
        if page.reply.eof:
            return
        assert page.reply.entries, "18.23.3: a READDIR without entries that is not at the end"
        cookie, verifier = page.reply.entries[-1].cookie, page.cookieverf
        assert cookie not in seen, f"18.23.3: the cookie {cookie} comes twice, so the directory has no end"
        seen.add(cookie)


class _Remover:
    """Removes what is in directories. Each COMPOUND is a round trip, so it has many operations.

    A directory is read only when it could not be removed: most are empty.
    """

    def __init__(self, nfs: Nfs4Client) -> None:
        self._nfs = nfs
        self._most = max(1, most_operations(nfs) // 2)  # each may need a PUTFH

    def empty(self, directory: bytes) -> None:
        """Remove all in ``directory``. Raises AssertionError if a removal fails."""
        found = list(entries(self._nfs, directory, numbers=(FATTR4_TYPE,)))
        pending = []
        for entry in found:  # the directories of cases, few of which are empty
            if decode_attributes(entry.attrs).get(FATTR4_TYPE) == nfs_ftype4.NF4DIR:
                pending += self._read(directory, entry.name)
                while len(pending) >= self._most:
                    self._remove(pending[: self._most], _DEPTH)
                    del pending[: self._most]
        self._remove([*pending, *((directory, entry.name) for entry in found)], _DEPTH)

    def _read(self, directory: bytes, name: bytes) -> list[_Entry]:
        """Return the entries of a directory, made readable if the server lets us.

        One READDIR a COMPOUND: knfsd of Linux 6.1 answers two of more than a page with other memory.
        """
        page = readdir(cookie=0, verifier=bytes(8), maxcount=_PAGE)
        done = self._nfs.compound(putfh(directory), lookup(name), GETFH, page)
        if done.status != nfsstat4.NFS4_OK:
            opened = (lookup(name), GETFH, setattr_({FATTR4_MODE: 0o777}))
            done = self._nfs.compound(putfh(directory), *opened)
            if len(done.results) <= len(opened):
                ok(done)  # refused before SETATTR, which may be refused
        handle = done["GETFH"].object
        whole = done.status == nfsstat4.NFS4_OK and done.results[-1].resop == nfs_opnum4.OP_READDIR
        listed = done["READDIR"].reply if whole else None
        found = listed.entries if listed is not None and listed.eof else entries(self._nfs, handle)
        return [(handle, entry.name) for entry in found]

    def _remove(self, pending: list[_Entry], depth: int) -> None:
        """Remove the entries, and all that is in those that are directories.

        An entry may be gone: a COMPOUND that ended with NFS4ERR_DELAY is sent again as a whole.
        """
        emptied: _Entry | None = None
        while pending:
            batch = pending[: self._most]
            done = self._nfs.compound(*_removals(batch))
            executed = sum(one.resop == nfs_opnum4.OP_REMOVE for one in done.results)
            if done.status == nfsstat4.NFS4_OK:
                pending = pending[len(batch) :]
                continue
            last = done.result.resarray[-1].resop if done.result.resarray else None
            if last != nfs_opnum4.OP_REMOVE:
                ok(done)
            failed = batch[executed - 1]
            if done.status in _NOT_EMPTY and failed != emptied and depth:
                self._remove(self._read(*failed), depth - 1)
                emptied = failed
                pending = pending[executed - 1 :]
            elif done.status == nfsstat4.NFS4ERR_NOENT:
                pending = pending[executed:]
            else:
                ok(done)


def most_operations(nfs: Nfs4Client) -> int:
    """Return how many short operations fit into a COMPOUND, that which is the session's own excluded."""
    if nfs.session is None:
        return _WITHOUT_SESSION
    fore = nfs.session.fore
    return min(_OPERATIONS, fore.ca_maxoperations - 1, fore.ca_maxrequestsize // 512)


def _removals(entries_in: list[_Entry]) -> list[nfs_argop4]:
    """Return the operations that remove entries."""
    current, out = b"", list[nfs_argop4]()
    for directory, name in entries_in:
        if directory != current:
            out.append(putfh(directory))
        current = directory
        out.append(remove(name))
    return out
