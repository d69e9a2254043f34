"""Test harness of one NFSv3 case: it mounts, connects, arranges files, and closes all connections at the end.

Connections that arrange or look, and are no claim about the target, carry the machine name ``ARRANGES``.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from types import TracebackType

from storagetest.errors import AttachError, RemoteProtocolError, TargetDead
from storagetest.wire.nfs3.client import Nfs3Client, attributes, is_busy, ok
from storagetest.wire.nfs3.mount import MOUNT_V3, mountstat3
from storagetest.wire.nfs3.nlm import NLM4_VERS
from storagetest.wire.nfs3.nsm import SM_VERS
from storagetest.wire.nfs3.replies import Nfs3Rules
from storagetest.wire.nfs3.types import (
    NFS_V3,
    FSINFO3resok,
    REMOVE3args,
    RMDIR3args,
    diropargs3,
    ftype3,
    nfs_fh3,
    nfsstat3,
)
from storagetest.wire.rpc import RpcConnection, RpcError, auth_sys
from storagetest.wire.rpc.busy import GRACE, while_busy
from storagetest.wire.rpc.rpcbind import IPPROTO_TCP, PMAP_PORT, PMAP_VERS, mapping
from storagetest.wire.rpc.types import opaque_auth
from storagetest.wire.tcp import RecordedConnection, connect_from_low_port
from storagetest.wire.xdr import Program

ARRANGES = b"storagetest-arranges"
"""Machine name in the credentials of connections that are no claim about the target."""

OTHER_UID = 4001
"""The uid of callers that are not root (chosen)."""

ConnectionCallback = Callable[[RecordedConnection, str, int], None]
"""``callback(link, name, port)``: called with each connection; ``port`` is that of NFS, for dissectors."""

IsLeft = Callable[[bytes], bool]
"""``is_left(name)``: whether an entry of the export is the directory of a run that was killed."""

_DEPTH = 64
_OVERLAP = 32
"""Most calls that overlap when a directory is removed (chosen)."""
_MOST = 5000
"""Entries of the export among which left directories are looked for (chosen)."""


@dataclass(frozen=True, slots=True)
class Nfs3Endpoint:
    """Where a server's programs are, and the export. A port that is None is that of rpcbind."""

    address: str
    port: int
    export: str
    deadline: float
    mount_port: int | None = None
    lock_port: int | None = None
    status_port: int | None = None
    low_ports: bool = False

    def port_of(self, program: Program) -> int:
        """Return the TCP port of ``program``. Raises TargetDead if rpcbind does not know it."""
        known = {
            NFS_V3: self.port,
            MOUNT_V3: self.mount_port,
            NLM4_VERS: self.lock_port,
            SM_VERS: self.status_port,
        }
        known_port = known.get(program)
        if known_port is not None:
            return known_port
        with RecordedConnection.connect(self.address, PMAP_PORT, deadline=self.deadline) as link:
            rpc = RpcConnection(link, PMAP_VERS, deadline=self.deadline)
            port: int = rpc.call("GETPORT", mapping(program.number, program.version, IPPROTO_TCP, 0))
        if not port:
            raise TargetDead(f"{self.address}: the server's rpcbind knows no {program.name} over TCP")
        return port


@dataclass(frozen=True, slots=True)
class Nfs3Export:
    """What the look found: the endpoint that works, the export's root, and the run's directory in it."""

    endpoint: Nfs3Endpoint
    root: nfs_fh3
    limits: FSINFO3resok
    name: bytes
    directory: nfs_fh3
    flavors: tuple[int, ...] = ()
    """The flavors of authentication that MNT stated."""
    root_is: int = 0
    """The owner of what the caller with uid 0 makes: another uid on an export with root_squash."""
    user_is: int = OTHER_UID
    """The owner of what the caller with uid OTHER_UID makes: another uid on an export with all_squash."""

    @property
    def implementation(self) -> str:
        """The implementation by the form of its handles, "" if unknown; the protocol does not name it."""
        return "nfs-ganesha" if self.root.data[:1] == b"C" else ""


class Nfs3Harness:
    """Opens connections to one endpoint. A context manager; ``note`` is called with every connection."""

    def __init__(self, endpoint: Nfs3Endpoint, note: ConnectionCallback | None = None) -> None:
        self.endpoint = endpoint
        self._note = note
        self._stack = ExitStack()
        self._connections: list[RpcConnection] = []
        self._rules = Nfs3Rules()

    @property
    def faults(self) -> list[str]:
        """A sentence for each fault of encoding, and for each rule broken, in any reply on any connection."""
        return [fault for rpc in self._connections for fault in rpc.faults]

    def rpc(
        self,
        program: Program = NFS_V3,
        *,
        cred: opaque_auth | None = None,
        name: str = "",
        port: int | None = None,
    ) -> RpcConnection:
        """Return a connection to ``program`` on which nothing was sent; ``cred`` is root's by default."""
        endpoint = self.endpoint
        to = endpoint.port_of(program) if port is None else port
        connector = connect_from_low_port if endpoint.low_ports else None
        link = self._stack.enter_context(
            RecordedConnection.connect(endpoint.address, to, deadline=endpoint.deadline, connector=connector)
        )
        if self._note is not None:
            self._note(link, name or program.name, endpoint.port)
        made = RpcConnection(
            link, program, deadline=endpoint.deadline, cred=auth_sys() if cred is None else cred
        )
        made.rules = self._rules
        self._connections.append(made)
        return made

    def client(self, *, cred: opaque_auth | None = None, name: str = "") -> Nfs3Client:
        """Return the procedures of version 3 on a new connection."""
        return Nfs3Client(self.rpc(cred=cred, name=name))

    def arranger(self) -> Nfs3Client:
        """Return a client that is no claim about the target."""
        return self.client(cred=auth_sys(machine=ARRANGES), name="arranges")

    def close(self) -> None:
        """Close all connections."""
        self._stack.close()

    def __enter__(self) -> Nfs3Harness:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def look(endpoint: Nfs3Endpoint, name: bytes, *, is_left: IsLeft = lambda _: False) -> Nfs3Export:
    """Mount the export, make the run's own directory ``name`` in it, and remove those that are left.

    Source ports under 1024 are tried if the server refuses others. Raises AttachError if the export cannot be
    mounted or written to.
    """
    try:
        facts = _look(endpoint, name)
    except AttachError as refusal:
        try:
            facts = _look(replace(endpoint, low_ports=True), name)
        except AttachError:
            raise refusal from None
        except TargetDead as error:
            raise AttachError(f"{refusal}. It may require a source port under 1024, and {error}") from None
    with contextlib.suppress(AssertionError, RemoteProtocolError):  # the export can be read no further
        _remove_left(facts, is_left)
    return facts


def _look(endpoint: Nfs3Endpoint, name: bytes) -> Nfs3Export:
    where = f"{endpoint.address}:{endpoint.export}"
    with Nfs3Harness(endpoint) as bench:
        mount = bench.rpc(MOUNT_V3, cred=auth_sys(machine=ARRANGES))
        nfs = bench.arranger()
        try:
            mounted = mount.call("MNT", endpoint.export.encode())
        except RpcError as error:
            raise AttachError(f"{where}: MNT: {error}") from None
        if mounted.fhs_status != mountstat3.MNT3_OK:
            raise AttachError(
                f"{where}: MNT ended with {mounted.fhs_status.name}. Check that this machine may mount it"
            )
        root = nfs_fh3(mounted.value.fhandle)
        try:
            limits = ok(nfs.fsinfo(root))
            made = nfs.mkdir(root, name, new=attributes(mode=0o777))
        except (RpcError, AssertionError) as error:
            raise AttachError(f"{where}: {error}") from None
        if made.status != nfsstat3.NFS3_OK:
            raise AttachError(
                f"{where}: MKDIR in the export ended with {made.status.name}. The cases need a directory "
                "that root (no_root_squash) or all users (mode 1777) may write to"
            )
        directory = nfs.find(root, name)
        # Whatever the server's umask is. Ganesha makes no change in its grace period (NFS3ERR_JUKEBOX).
        while_busy(lambda: nfs.setattr(directory, attributes(mode=0o777)), is_busy, GRACE)
        facts = Nfs3Export(endpoint, root, limits, name, directory, tuple(mounted.value.auth_flavors))
        try:
            root_is, user_is = (_owner(bench, directory, uid) for uid in (0, OTHER_UID))
        except (RpcError, AssertionError) as error:
            clean_up(facts)
            raise AttachError(f"{where}: {error}") from None
        return replace(facts, root_is=root_is, user_is=user_is)


def _owner(bench: Nfs3Harness, directory: nfs_fh3, uid: int) -> int:
    """Return the owner of a file that ``uid`` makes."""
    nfs = bench.client(cred=auth_sys(uid, uid, machine=ARRANGES))
    ok(nfs.create(directory, b"owner"))
    owner: int = nfs.attributes(nfs.find(directory, b"owner")).uid
    ok(bench.arranger().remove(directory, b"owner"))
    return owner


def _remove_left(facts: Nfs3Export, is_left: IsLeft) -> None:
    """Remove what killed runs left; what cannot be removed stays."""
    with Nfs3Harness(facts.endpoint) as bench:
        nfs = bench.arranger()
        for entry in itertools.islice(nfs.entries(facts.root, count=8192), _MOST):
            if is_left(entry.name):
                with contextlib.suppress(AssertionError, RemoteProtocolError):
                    _remove_all(nfs, nfs.find(facts.root, entry.name), _DEPTH)
                    ok(nfs.rmdir(facts.root, entry.name))


def clean_up(facts: Nfs3Export) -> None:
    """Remove the run's directory and all in it. Raises AttachError, which names it, if that fails."""
    with Nfs3Harness(facts.endpoint) as bench:
        nfs = bench.arranger()
        try:
            _remove_all(nfs, facts.directory, _DEPTH)
            ok(nfs.rmdir(facts.root, facts.name))
            status = nfs.lookup(facts.root, facts.name).status
            assert status == nfsstat3.NFS3ERR_NOENT, f"LOOKUP of it ends with {status.name}"
            mount = bench.rpc(MOUNT_V3, cred=auth_sys(machine=ARRANGES))
            mount.call("UMNT", facts.endpoint.export.encode())
        except (AssertionError, RemoteProtocolError) as error:
            where = f"{facts.endpoint.address}:{facts.endpoint.export}/{facts.name.decode()}"
            raise AttachError(f"{where} could not be removed: {error}. Remove it") from None


def _remove_all(nfs: Nfs3Client, directory: nfs_fh3, depth: int) -> None:
    """Remove all in ``directory`` by calls that overlap: a round trip each would take most of the time."""
    nfs.setattr(directory, attributes(mode=0o777))
    types = _types_in(nfs, directory)
    inner = {name for name, kind in types.items() if kind == ftype3.NF3DIR}
    for batch in _batches([name for name in types if name not in inner]):
        for result in nfs.call_all("REMOVE", [REMOVE3args(diropargs3(directory, name)) for name in batch]):
            ok(result)
    for batch in _batches(sorted(inner)):
        asked = [RMDIR3args(diropargs3(directory, name)) for name in batch]
        for name, result in zip(batch, nfs.call_all("RMDIR", asked), strict=True):
            if result.status != nfsstat3.NFS3_OK:
                assert depth, f"{name!r} is below {_DEPTH} other directories"
                _remove_all(nfs, nfs.find(directory, name), depth - 1)
                ok(nfs.rmdir(directory, name))


def _types_in(nfs: Nfs3Client, directory: nfs_fh3) -> dict[bytes, ftype3]:
    """Return the type of each entry by name; READDIRPLUS, or the attributes in it, may be missing."""
    try:
        stated = {entry.name: entry.name_attributes for entry in nfs.entries_plus(directory)}
    except AssertionError:
        stated = dict.fromkeys(entry.name for entry in nfs.entries(directory, count=8192))
    return {
        name: (nfs.attributes(nfs.find(directory, name)) if found is None else found).type
        for name, found in stated.items()
        if name not in (b".", b"..")
    }


def _batches(names: list[bytes]) -> Iterator[list[bytes]]:
    return (names[at : at + _OVERLAP] for at in range(0, len(names), _OVERLAP))
