"""A small NFSv4.1 and 4.2 server with pNFS block layouts, which keeps the rules of layouts, or breaks one.

Its files are in memory. :class:`Fault` names the rule that it breaks: each rule of
``tests/mutants/nfs4_layout_mutants.py`` is asked for where it applies. Connections that arrange what a case
needs (``ARRANGES``) are served without the fault. It keeps no replies for retries, and knows no locks: it is
for the cases of layouts. The layout operations are in :mod:`pnfs_layouts`.
"""

from __future__ import annotations

import contextlib
import itertools
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from pnfs_layouts import LAYOUT_OPERATIONS, LEASE, Answered, Layouts
from pnfs_state import Call, Client, Fault, Node, Refused, Session

from storagetest.errors import RemoteProtocolError
from storagetest.wire.nfs4.attributes import (
    ATTRIBUTES,
    bitmap,
    decode_attributes,
    encode_attributes,
    numbers_of,
)
from storagetest.wire.nfs4.harness import ARRANGES
from storagetest.wire.nfs4.types import (
    CREATE_SESSION4_FLAG_CONN_BACK_CHAN,
    EXCHGID4_FLAG_USE_NON_PNFS,
    EXCHGID4_FLAG_USE_PNFS_MDS,
    FATTR4_FILEID,
    FATTR4_FS_LAYOUT_TYPES,
    FATTR4_LAYOUT_BLKSIZE,
    FATTR4_LEASE_TIME,
    FATTR4_MAXFILESIZE,
    FATTR4_MAXNAME,
    FATTR4_MAXREAD,
    FATTR4_MAXWRITE,
    FATTR4_MODE,
    FATTR4_SIZE,
    FATTR4_SUPPORTED_ATTRS,
    FATTR4_TIME_MODIFY,
    FATTR4_TYPE,
    NFS_CB,
    NFS_V4,
    OPEN4_SHARE_ACCESS_READ,
    CB_COMPOUND4args,
    CB_COMPOUND4res,
    CB_SEQUENCE4args,
    COMPOUND4args,
    COMPOUND4res,
    CREATE4resok,
    CREATE_SESSION4resok,
    EXCHANGE_ID4resok,
    GETATTR4resok,
    GETFH4resok,
    OPEN4resok,
    READ4resok,
    READDIR4resok,
    REMOVE4resok,
    SEQUENCE4resok,
    WRITE4resok,
    change_info4,
    channel_attrs4,
    createmode4,
    dirlist4,
    entry4,
    layoutiomode4,
    layouttype4,
    nfs_argop4,
    nfs_cb_argop4,
    nfs_cb_opnum4,
    nfs_ftype4,
    nfs_opnum4,
    nfs_resop4,
    nfsstat4,
    nfstime4,
    open_claim_type4,
    open_delegation4,
    open_delegation_type4,
    opentype4,
    server_owner4,
    stable_how4,
    state_protect4_r,
    state_protect_how4,
    stateid4,
)
from storagetest.wire.rpc.message import decode_message, encode_call, encode_reply
from storagetest.wire.rpc.record import RecordReceiver, RpcRecord, frame
from storagetest.wire.rpc.types import call_body
from storagetest.wire.xdr import Union
from storagetest.wire.xdr.codecs import UINT, Enumeration, VarArray

EXPORT = "/"
OK = nfsstat4.NFS4_OK
COMPOUND, CB_COMPOUND = NFS_V4.procedure("COMPOUND"), NFS_CB.procedure("CB_COMPOUND")
CHANGE = change_info4(False, 1, 2)
SUPPORTED = (
    FATTR4_SUPPORTED_ATTRS, FATTR4_TYPE, FATTR4_SIZE, FATTR4_LEASE_TIME, FATTR4_FILEID, FATTR4_MAXFILESIZE,
    FATTR4_MAXNAME, FATTR4_MAXREAD, FATTR4_MAXWRITE, FATTR4_MODE, FATTR4_TIME_MODIFY, FATTR4_FS_LAYOUT_TYPES,
    FATTR4_LAYOUT_BLKSIZE,
)  # fmt: skip
_OUTSIDE = ("EXCHANGE_ID", "CREATE_SESSION", "DESTROY_SESSION", "DESTROY_CLIENTID", "BIND_CONN_TO_SESSION")
"""Operations that need no SEQUENCE."""


@dataclass
class Link:
    """A connection of a client: what is sent on it, and the callbacks whose replies are awaited."""

    sock: socket.socket
    lock: threading.Lock = field(default_factory=threading.Lock)
    awaited: dict[int, Callable[[CB_COMPOUND4res], None]] = field(default_factory=dict)

    def send(self, data: bytes) -> None:
        """Send a record."""
        with self.lock, contextlib.suppress(OSError):
            self.sock.sendall(frame(data))


class PnfsNfs(Layouts):
    """The server, on loopback. A context manager."""

    def __init__(self, fault: Fault | None = None) -> None:
        super().__init__(fault or Fault())
        self.root = self.make_node(nfs_ftype4.NF4DIR)
        self._clients: dict[int, Client] = {}
        self._sessions: dict[bytes, Session] = {}
        self._numbers = itertools.count(1)
        self._lock = threading.RLock()
        self._sockets: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port: int = self._listener.getsockname()[1]

    def __enter__(self) -> PnfsNfs:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        for sock in (self._listener, *self._sockets):
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
            sock.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                sock, _ = self._listener.accept()
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self._sockets.append(sock)
                threading.Thread(target=self._serve, args=(Link(sock),), daemon=True).start()

    def _serve(self, link: Link) -> None:
        receiver = RecordReceiver()
        with contextlib.suppress(OSError, RemoteProtocolError):
            while data := link.sock.recv(1 << 18):
                receiver.receive_data(data)
                while isinstance(record := receiver.next_event(), RpcRecord):
                    self._take(record.data, link)
        link.sock.close()

    def _take(self, record: bytes, link: Link) -> None:
        message, source = decode_message(record)
        body = message.body.value
        if not isinstance(body, call_body):
            answered = link.awaited.pop(message.xid, None)
            if answered is not None:
                with self._lock:
                    answered(CB_COMPOUND4res.unpack(source))
            return
        if body.proc != COMPOUND.number:
            link.send(encode_reply(message.xid, NFS_V4.procedures[0], None).data)
            return
        arguments: Any = _Arguments.unpack(source)
        with self._lock:
            call = Call(link, arguments.minorversion, arranges=ARRANGES in body.cred.body)
            result = self._compound(call, arguments)
        link.send(encode_reply(message.xid, COMPOUND, result).data)
        for send in call.later:  # after the reply, as a server with a thread of its own would
            send()

    # COMPOUND

    def _compound(self, call: Call, arguments: COMPOUND4args) -> COMPOUND4res:
        if arguments.minorversion not in (1, 2):
            return COMPOUND4res(nfsstat4.NFS4ERR_MINOR_VERS_MISMATCH, arguments.tag, ())
        results, status = [], OK
        self.call = call
        for one in arguments.argarray:
            result = self._operation(call, one)
            results.append(nfs_resop4(one.argop, result))
            status = _status(result)
            if status != OK:
                break
        return COMPOUND4res(status, arguments.tag, tuple(results))

    def _operation(self, call: Call, one: Any) -> Any:
        name = one.argop.name.removeprefix("OP_")
        made: Any = nfs_resop4.ARMS[one.argop]
        if not call.session and name not in ("SEQUENCE", *_OUTSIDE):
            return _failed(made, nfsstat4.NFS4ERR_OP_NOT_IN_SESSION)
        execute = self.operation(name)
        if execute is None:
            return _failed(made, nfsstat4.NFS4ERR_NOTSUPP)
        try:
            found = execute(self, call, one.value)
        except Refused as refused:
            if refused.value is not None:
                return made(refused.status, refused.value)
            return _failed(made, refused.status)
        if not issubclass(made, Union):
            return made(OK) if found is None else made(OK, found)
        return made(OK, found)

    def operation(self, name: str) -> Callable[[Any, Call, Any], Any] | None:
        """Return what executes an operation, or None if the server does not have it."""
        return LAYOUT_OPERATIONS.get(name) or _OPERATIONS.get(name)

    # Clients and sessions

    def _exchange_id(self, call: Call, asked: Any) -> Any:
        number = next(self._numbers)
        self._clients[number] = Client(number)
        flags = EXCHGID4_FLAG_USE_PNFS_MDS
        if self.breaks("layout-mds"):
            flags = EXCHGID4_FLAG_USE_NON_PNFS
        owner = server_owner4(0, b"pnfs-nfs")
        protect = state_protect4_r(state_protect_how4.SP4_NONE)
        return EXCHANGE_ID4resok(number, 1, flags, protect, owner, b"pnfs-nfs", ())

    def _create_session(self, call: Call, asked: Any) -> Any:
        client = self._clients.get(asked.csa_clientid)
        if client is None:
            raise Refused(nfsstat4.NFS4ERR_STALE_CLIENTID)
        name = next(self._numbers).to_bytes(16, "big")
        session = Session(name, client, call.link, asked.csa_cb_program, call.minor)
        client.session = self._sessions[name] = session
        fore = channel_attrs4(0, 1 << 20, 1 << 20, 65536, 16, 16, ())
        flags = asked.csa_flags & CREATE_SESSION4_FLAG_CONN_BACK_CHAN
        return CREATE_SESSION4resok(name, asked.csa_sequence, flags, fore, asked.csa_back_chan_attrs)

    def _sequence(self, call: Call, asked: Any) -> Any:
        call.session = self._sessions.get(asked.sa_sessionid)
        if call.session is None:
            raise Refused(nfsstat4.NFS4ERR_BADSESSION)
        call.session.link = call.link
        number, slot = asked.sa_sequenceid, asked.sa_slotid
        return SEQUENCE4resok(asked.sa_sessionid, number, slot, 15, 15, 0)

    def _destroy_session(self, call: Call, asked: Any) -> None:
        self._sessions.pop(asked.dsa_sessionid, None)

    def _destroy_client(self, call: Call, asked: Any) -> None:
        client = self._clients.pop(asked.dca_clientid, None)
        if client is not None:
            self.forget(client)

    def call_back(self, client: Client, operation: nfs_cb_argop4, answered: Answered) -> None:
        """Send a callback; ``answered`` is called with the status of its operation."""
        session = client.session
        if session is None:
            return
        session.cb_sequence += 1
        sequence = CB_SEQUENCE4args(session.name, session.cb_sequence, 0, 0, False, ())
        argument = CB_COMPOUND4args(
            b"", session.minor, 0, (nfs_cb_argop4(nfs_cb_opnum4.OP_CB_SEQUENCE, sequence), operation)
        )
        xid = 0x7000_0000 + next(self._numbers)
        link = session.link
        link.awaited[xid] = lambda result: answered(result.status)
        program = replace(NFS_CB, number=session.cb_program)
        link.send(encode_call(program, CB_COMPOUND, argument, xid=xid).data)

    # Files

    def _putrootfh(self, call: Call, asked: Any) -> None:
        call.current = self.root

    def _putfh(self, call: Call, asked: Any) -> None:
        call.current = self.node_of(asked.object)

    def _getfh(self, call: Call, asked: Any) -> Any:
        return GETFH4resok(call.node.handle)

    def _lookup(self, call: Call, asked: Any) -> None:
        call.current = self._named(call.node, asked.objname)

    @staticmethod
    def _named(node: Node, name: bytes) -> Node:
        if name not in node.entries:
            raise Refused(nfsstat4.NFS4ERR_NOENT)
        return node.entries[name]

    def _create(self, call: Call, asked: Any) -> Any:
        made = self.make_node(asked.objtype.type)
        call.node.entries[asked.objname] = made
        call.current = made
        return CREATE4resok(CHANGE, ())

    def _remove(self, call: Call, asked: Any) -> Any:
        node = self._named(call.node, asked.target)
        if node.entries:
            raise Refused(nfsstat4.NFS4ERR_NOTEMPTY)
        self.recall(call, node, 0)
        del call.node.entries[asked.target]
        return REMOVE4resok(CHANGE)

    def _readdir(self, call: Call, asked: Any) -> Any:
        wanted = numbers_of(asked.attr_request)
        listed = list(enumerate(call.node.entries.items(), 3))
        entries = [entry4(at, name, self._attributes(node, wanted)) for at, (name, node) in listed]
        left = tuple(one for one in entries if one.cookie > asked.cookie)
        return READDIR4resok(bytes(8), dirlist4(left, True))

    def _attributes(self, node: Node, wanted: tuple[int, ...]) -> Any:
        size = len(node.data)
        seconds, rest = divmod(node.modified, 1_000_000_000)
        values: dict[int, Any] = {
            FATTR4_SUPPORTED_ATTRS: bitmap(*SUPPORTED),
            FATTR4_TYPE: node.kind,
            FATTR4_SIZE: size,
            FATTR4_LEASE_TIME: LEASE,
            FATTR4_FILEID: int.from_bytes(node.handle, "big"),
            FATTR4_MAXFILESIZE: 1 << 62,
            FATTR4_MAXNAME: 255,
            FATTR4_MAXREAD: 1 << 20,
            FATTR4_MAXWRITE: 1 << 20,
            FATTR4_MODE: 0o777,
            FATTR4_TIME_MODIFY: nfstime4(seconds, rest),
            FATTR4_FS_LAYOUT_TYPES: (layouttype4.LAYOUT4_BLOCK_VOLUME,),
            FATTR4_LAYOUT_BLKSIZE: 4096,
        }
        return encode_attributes({one: values[one] for one in wanted if one in values})

    def _getattr(self, call: Call, asked: Any) -> Any:
        return GETATTR4resok(self._attributes(call.node, numbers_of(asked.attr_request)))

    def _setattr(self, call: Call, asked: Any) -> Any:
        values = decode_attributes(asked.obj_attributes)
        size = values.get(FATTR4_SIZE)
        if size is not None:
            if size < len(call.node.data):
                self.recall(call, call.node, size)
            call.node.resize(size)
        return bitmap(*(one for one in values if one in ATTRIBUTES))

    def _open(self, call: Call, asked: Any) -> Any:
        directory = call.node
        assert asked.claim.claim == open_claim_type4.CLAIM_NULL
        name = asked.claim.value
        if name not in directory.entries:
            if asked.openhow.opentype != opentype4.OPEN4_CREATE:
                raise Refused(nfsstat4.NFS4ERR_NOENT)
            directory.entries[name] = self.make_node(nfs_ftype4.NF4REG)
        elif (
            asked.openhow.opentype == opentype4.OPEN4_CREATE
            and asked.openhow.value.mode == createmode4.GUARDED4
        ):
            raise Refused(nfsstat4.NFS4ERR_EXIST)
        node = call.current = directory.entries[name]
        stateid = stateid4(1, b"open" + next(self._numbers).to_bytes(8, "big"))
        writes = asked.share_access & 3 != OPEN4_SHARE_ACCESS_READ
        self.opens[stateid.other] = (call.client, node, writes)
        call.stateid = stateid
        return OPEN4resok(stateid, CHANGE, 0, (), open_delegation4(open_delegation_type4.OPEN_DELEGATE_NONE))

    def _close(self, call: Call, asked: Any) -> Any:
        found = self.opens.pop(asked.open_stateid.other, None)
        if found is None:
            raise Refused(nfsstat4.NFS4ERR_BAD_STATEID)
        self.closed(call.client, found[1])
        return stateid4(0xFFFF_FFFF, bytes(12))

    def _read(self, call: Call, asked: Any) -> Any:
        stateid = call.stateid if asked.stateid == stateid4(1, bytes(12)) else asked.stateid
        if stateid is None or (stateid.other not in self.opens and any(stateid.other)):
            raise Refused(nfsstat4.NFS4ERR_BAD_STATEID)
        data = call.node.data
        found = bytes(data[asked.offset : asked.offset + asked.count])
        return READ4resok(asked.offset + asked.count >= len(data), found)

    def _write(self, call: Call, asked: Any) -> Any:
        call.node.write(asked.offset, asked.data)
        return WRITE4resok(len(asked.data), stable_how4.FILE_SYNC4, bytes(8))

    def _nothing(self, call: Call, asked: Any) -> None:
        """Succeed."""


_OPERATIONS: dict[str, Callable[[PnfsNfs, Call, Any], Any]] = {
    "EXCHANGE_ID": PnfsNfs._exchange_id,
    "CREATE_SESSION": PnfsNfs._create_session,
    "SEQUENCE": PnfsNfs._sequence,
    "DESTROY_SESSION": PnfsNfs._destroy_session,
    "DESTROY_CLIENTID": PnfsNfs._destroy_client,
    "RECLAIM_COMPLETE": PnfsNfs._nothing,
    "PUTROOTFH": PnfsNfs._putrootfh,
    "PUTFH": PnfsNfs._putfh,
    "GETFH": PnfsNfs._getfh,
    "LOOKUP": PnfsNfs._lookup,
    "CREATE": PnfsNfs._create,
    "REMOVE": PnfsNfs._remove,
    "READDIR": PnfsNfs._readdir,
    "GETATTR": PnfsNfs._getattr,
    "SETATTR": PnfsNfs._setattr,
    "OPEN": PnfsNfs._open,
    "CLOSE": PnfsNfs._close,
    "READ": PnfsNfs._read,
    "WRITE": PnfsNfs._write,
}


def _lenient(made: Any) -> Any:
    """Return a structure whose enumerations are numbers, because a case may send one that is not defined."""
    fields = tuple(
        (name, UINT if codec in (Enumeration(layouttype4), Enumeration(layoutiomode4)) else codec)
        for name, codec in made.FIELDS
    )
    return type(made.__name__, (made,), {"FIELDS": fields})


class _Operation(nfs_argop4):
    """An operation whose layout type and iomode may be any number."""

    ARMS = nfs_argop4.ARMS | {
        number: _lenient(nfs_argop4.ARMS[number])
        for number in map(nfs_opnum4.__getitem__, ("OP_LAYOUTGET", "OP_LAYOUTRETURN", "OP_GETDEVICEINFO"))
    }


class _Arguments(COMPOUND4args):
    """A COMPOUND of these operations."""

    FIELDS = (*COMPOUND4args.FIELDS[:2], ("argarray", VarArray(_Operation)))


def _status(result: Any) -> nfsstat4:
    name = result.DISCRIMINANT[0] if isinstance(result, Union) else result.FIELDS[0][0]
    found: nfsstat4 = getattr(result, name)
    return found


def _failed(made: Any, status: nfsstat4) -> Any:
    if issubclass(made, Union):
        return made(status)
    return made(status, *(() for _ in made.FIELDS[1:]))


def main() -> None:
    """Serve until the end of the process, for a look by hand."""
    with PnfsNfs() as server:
        print(f"port {server.port}", flush=True)
        time.sleep(3600)


if __name__ == "__main__":
    main()
