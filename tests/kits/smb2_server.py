"""An SMB server on loopback for what smbd does not offer: compression, persistent handles, symbolic links.

Files are kept in memory. The server implements what the cases of these areas and the suite's fixtures send;
every other request ends in STATUS_NOT_SUPPORTED. pyspnego authenticates the account (NTLM).
"""

from __future__ import annotations

import contextlib
import fnmatch
import os
import socket
import struct
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import smb2_posix
import spnego
from smb2_store import Node, Open, Store, ids, listing
from spnego.exceptions import SpnegoError

from storagetest.errors import RemoteProtocolError
from storagetest.wire.smb2 import compression, crypto, posix
from storagetest.wire.smb2 import contexts as c
from storagetest.wire.smb2.codes import (
    SIGNING_ENABLED,
    Capability,
    Compression,
    ContextType,
    Dialect,
    FileInfo,
    Flags,
    Fsctl,
    FsInfo,
    InfoType,
    Options,
    Signing,
    SmbCommand,
    SmbStatus,
)
from storagetest.wire.smb2.message import SmbEncoded, SmbMessage, decode, response, split_compound
from storagetest.wire.smb2.stream import Frames, frame

SHARE, USER, PASSWORD = "files", "tester", "wire-Pass-1"
LARGEST = 1 << 20
"""MaxReadSize, MaxWriteSize and MaxTransactSize in bytes."""

ALGORITHMS = (Compression.PATTERN_V1, Compression.LZ77, Compression.LZNT1)
_FILETIME_1970 = 116_444_736_000_000_000
TIMEOUT = 10_000
"""Milliseconds that a persistent handle is kept without a connection."""


class Disconnect(Exception):
    """The server ends the connection."""


class Refused(Exception):
    """A request ends with a status; ``tail`` is the error's data."""

    def __init__(self, status: SmbStatus, tail: bytes = b"", contexts: int = 0) -> None:
        super().__init__(status.name)
        self.status, self.tail, self.contexts = status, tail, contexts


@dataclass
class Session:
    """A session of one connection."""

    number: int
    context: Any
    preauth: bytes
    keys: crypto.SmbKeys | None = None


class Connection:
    """One connection, in a thread of its own."""

    def __init__(self, store: Store, sock: socket.socket) -> None:
        self.store, self.sock = store, sock
        self.dialect, self.client, self.preauth = 0, b"", bytes(64)
        self.cipher, self.signing = 0, int(Signing.HMAC_SHA256)
        self.algorithms: tuple[int, ...] = ()
        self.chained = self.posix = False
        self.sessions: dict[int, Session] = {}
        self.trees: set[int] = set()

    def serve(self) -> None:
        frames = Frames()
        with contextlib.suppress(OSError, RemoteProtocolError, Disconnect):
            while data := self.sock.recv(65536):
                frames.receive_data(data)
                while (one := frames.next_frame()) is not None:
                    with self.store.lock:
                        self.expire()
                        answers = self.answers(one)
                    for answer in answers:
                        self.sock.sendall(frame(answer))
        with contextlib.suppress(OSError):
            self.sock.shutdown(socket.SHUT_RDWR)
        self.sock.close()
        with self.store.lock:
            self.lose()

    def lose(self) -> None:
        """Keep the persistent opens of this connection, and close the others (MS-SMB2 3.3.7.1)."""
        for each in [each for each in self.store.opens.values() if each.connection is self]:
            each.connection, each.lost_at = None, time.monotonic()
            if not each.persistent:
                self.end(each)

    def expire(self) -> None:
        """Close the persistent opens whose timeout is over (3.3.6.2)."""
        now = time.monotonic()
        for each in list(self.store.opens.values()):
            if each.connection is None and now - each.lost_at > TIMEOUT / 1000:
                self.end(each)

    def end(self, opened: Open) -> None:
        """Close an open; the last one of a file that is to be deleted removes it."""
        self.store.opens.pop(opened.file_id[:8], None)
        others = any(each.node is opened.node for each in self.store.opens.values())
        if opened.deletes and not others and opened.parent.children is not None:
            opened.parent.children.pop(opened.name, None)

    # Frames

    def answers(self, data: bytes) -> list[bytes]:
        session = None
        if data[:4] == crypto.TRANSFORM_ID:
            session = self.sessions.get(crypto.transform_session(data))
            if session is None or session.keys is None:
                raise Disconnect
            data = crypto.decrypt(data, session.keys.encrypt, self.cipher)
        if data[:4] == compression.COMPRESSED_ID:
            largest = LARGEST + 256 + compression.HEADER_SIZE
            data = compression.decompress(data, self.algorithms, chained=self.chained, largest=largest)
        answers = [self.answer(decode(part), session) for part in split_compound(data)]
        if session is None or session.keys is None:
            return answers
        keys, size = session.keys, crypto.nonce_size(self.cipher)
        return [
            crypto.encrypt(each, keys.decrypt, self.cipher, session.number, os.urandom(size))
            for each in answers
        ]

    def answer(self, message: SmbMessage, encrypted: Session | None) -> bytes:
        """Return the response to one request, signed and compressed as the request wants it."""
        try:
            made = self.execute(message, encrypted)
        except Refused as refused:
            made = response(SmbCommand(message.command), refused.tail, status=refused.status)
            if refused.contexts:
                made = made.override(context_count=refused.contexts)
        number = int.from_bytes(made.data[40:48], "little") or int(message["session_id"])
        charge = max(1, int(message["credit_charge"]))
        data = made.override(
            message_id=message["message_id"],
            session_id=number,
            credit_charge=message["credit_charge"],
            credits=max(charge, min(int(message["credits"]), 64)),
        ).data
        if not int.from_bytes(data[36:40], "little"):
            data = data[:36] + int(message["tree_id"]).to_bytes(4, "little") + data[40:]
        session = self.sessions.get(number)
        status = int.from_bytes(data[8:12], "little")
        ends_setup = message.command == SmbCommand.SESSION_SETUP and not status
        if message.command == SmbCommand.NEGOTIATE and not status:
            self.preauth = crypto.next_hash(crypto.next_hash(bytes(64), message.raw), data)
        if message.command == SmbCommand.SESSION_SETUP and status and session:
            session.preauth = crypto.next_hash(session.preauth, data)
        if session and session.keys and not encrypted and (message.flags & Flags.SIGNED or ends_setup):
            data = crypto.sign(data, session.keys.signing, self.signing)
        wants = message.command == SmbCommand.READ and message["flags"] & 2 and not status
        return self.compressed(data) if wants and self.algorithms else data

    def compressed(self, data: bytes) -> bytes:
        """Return a READ response compressed, with its header and the fixed part as they are."""
        head, body = data[:80], data[80:]
        sized = [Compression(each) for each in self.algorithms if each != Compression.PATTERN_V1]
        if self.chained:
            rest = (
                (Compression.PATTERN_V1, body)
                if len(set(body)) == 1 and Compression.PATTERN_V1 in self.algorithms
                else (sized[0] if sized else Compression.NONE, body)
            )
            made = compression.compress_chained([(Compression.NONE, head), rest])
        elif sized:
            made = compression.compress(data, sized[0], offset=80)
        else:
            made = data
        return made if len(made) < len(data) else data

    def execute(self, message: SmbMessage, encrypted: Session | None) -> SmbEncoded:
        command = SmbCommand(message.command)
        if command is SmbCommand.NEGOTIATE:
            return self.negotiate(message)
        if not self.dialect:
            raise Disconnect
        if command is SmbCommand.SESSION_SETUP:
            return self.session_setup(message)
        session = self.session_of(message)
        if command is SmbCommand.TREE_CONNECT:
            if self.dialect == Dialect.SMB_3_1_1 and not message.flags & Flags.SIGNED and not encrypted:
                raise Disconnect
            return self.tree_connect(message)
        if command is SmbCommand.ECHO:
            return response(command)
        if command is SmbCommand.LOGOFF:
            del self.sessions[session.number]
            return response(command)
        if int(message["tree_id"]) not in self.trees:
            raise Refused(SmbStatus.NETWORK_NAME_DELETED)
        handler = self.handlers().get(command)
        if handler is None:
            raise Refused(SmbStatus.NOT_SUPPORTED)
        return handler(message)

    def session_of(self, message: SmbMessage) -> Session:
        """Return the session of a request, whose signature is checked."""
        session = self.sessions.get(int(message["session_id"]))
        if session is None or session.keys is None:
            raise Refused(SmbStatus.USER_SESSION_DELETED)
        signed = message.flags & Flags.SIGNED
        if signed and not crypto.is_signed_right(message.raw, session.keys.signing, self.signing):
            raise Refused(SmbStatus.ACCESS_DENIED)
        return session

    def handlers(self) -> dict[SmbCommand, Callable[[SmbMessage], SmbEncoded]]:
        """Return what executes the requests in a tree."""
        return {
            SmbCommand.CREATE: self.create,
            SmbCommand.CLOSE: self.close,
            SmbCommand.READ: self.read,
            SmbCommand.WRITE: self.write,
            SmbCommand.FLUSH: lambda _message: response(SmbCommand.FLUSH),
            SmbCommand.QUERY_DIRECTORY: self.query_directory,
            SmbCommand.QUERY_INFO: self.query_info,
            SmbCommand.SET_INFO: self.set_info,
            SmbCommand.IOCTL: self.ioctl,
            SmbCommand.TREE_DISCONNECT: self.tree_disconnect,
        }

    # Sessions

    def negotiate(self, message: SmbMessage) -> SmbEncoded:
        if self.dialect:
            raise Disconnect
        count = int(message["dialect_count"])
        offered = struct.unpack_from(f"<{count}H", message.raw, 100)
        if not count:
            raise Refused(SmbStatus.INVALID_PARAMETER)
        common = set(offered) & set(map(int, Dialect)) - {int(Dialect.WILDCARD)}
        if not common:
            raise Refused(SmbStatus.NOT_SUPPORTED)
        self.dialect, self.client = max(common), bytes(message["client_guid"])
        self.signing = int(Signing.HMAC_SHA256 if self.dialect < Dialect.SMB_3_0 else Signing.AES_CMAC)
        self.cipher = 1
        capabilities = Capability.LARGE_MTU if self.dialect >= Dialect.SMB_2_1 else 0
        if self.dialect >= Dialect.SMB_3_0:
            capabilities |= Capability.PERSISTENT_HANDLES | Capability.ENCRYPTION
        answers = self.contexts(message) if self.dialect == Dialect.SMB_3_1_1 else []
        tail = c.encode_negotiate(answers)
        more = {"context_offset": 128, "context_count": len(answers)} if answers else {}
        return response(
            SmbCommand.NEGOTIATE,
            tail,
            security_mode=SIGNING_ENABLED,
            dialect=self.dialect,
            server_guid=self.store.guid,
            capabilities=int(capabilities),
            max_transact=LARGEST,
            max_read=LARGEST,
            max_write=LARGEST,
            system_time=_FILETIME_1970 + time.time_ns() // 100,
            **{"buffer_offset": 128, "buffer_length": 0, **more},
        )

    def contexts(self, message: SmbMessage) -> list[c.NegotiateContext]:
        """Choose from the negotiate contexts of the request (3.3.5.4)."""
        try:
            found = c.decode_negotiate(message.raw, message["context_offset"], message["context_count"])
        except RemoteProtocolError:  # two of one type
            self.dialect = 0
            raise Refused(SmbStatus.INVALID_PARAMETER) from None
        wrong = ContextType.PREAUTH_INTEGRITY not in found
        asked = found.get(ContextType.COMPRESSION)
        if wrong or (asked is not None and (len(asked) < 10 or not asked[0] | asked[1])):
            self.dialect = 0
            raise Refused(SmbStatus.INVALID_PARAMETER)
        answers = [c.preauth(os.urandom(32))]
        for kind, known in ((ContextType.ENCRYPTION, (2, 1, 4, 3)), (ContextType.SIGNING, (2, 1, 0))):
            if kind in found:
                offered = struct.unpack(f"<{len(found[kind]) // 2 - 1}H", found[kind][2:])
                choice = next((each for each in offered if each in known), None)
                if choice is not None:
                    answers.append(c.numbers(kind, [choice]))
                    if kind == ContextType.ENCRYPTION:
                        self.cipher = choice
                    else:
                        self.signing = choice
        self.posix = found.get(ContextType.POSIX) == posix.GUID
        if self.posix:
            answers.append(posix.available())
        if asked is not None:
            count, _, flags = struct.unpack_from("<HHI", asked)
            offered = struct.unpack_from(f"<{count}H", asked, 8)
            self.algorithms = tuple(each for each in offered if each in ALGORITHMS)
            self.chained = bool(flags & 1 and self.algorithms)
            if not self.chained:
                self.algorithms = tuple(each for each in self.algorithms if each != Compression.PATTERN_V1)[
                    :1
                ]
            answers.append(c.compression(self.algorithms or (Compression.NONE,), chained=self.chained))
        return answers

    def session_setup(self, message: SmbMessage) -> SmbEncoded:
        number = int(message["session_id"])
        if message["flags"] & 1:
            raise Refused(SmbStatus.REQUEST_NOT_ACCEPTED)
        session = self.sessions.get(number)
        if number and session is None:
            raise Refused(SmbStatus.USER_SESSION_DELETED)
        if session is None:
            options = spnego.NegotiateOptions.use_ntlm
            session = Session(
                next(ids) << 8, spnego.server(protocol="negotiate", options=options), self.preauth
            )
            self.sessions[session.number] = session
        session.preauth = crypto.next_hash(session.preauth, message.raw)
        try:
            token = session.context.step(message.buffer) or b""
        except SpnegoError:
            del self.sessions[session.number]
            raise Refused(SmbStatus.LOGON_FAILURE) from None
        status = 0 if session.context.complete else SmbStatus.MORE_PROCESSING_REQUIRED
        if not status:
            key = session.context.session_key
            session.keys = crypto.session_keys(key, self.dialect, session.preauth, self.cipher)
        made = response(SmbCommand.SESSION_SETUP, token, status=status)
        return made.override(session_id=session.number)

    def tree_connect(self, message: SmbMessage) -> SmbEncoded:
        name = message.buffer.decode("utf-16-le").rpartition("\\")[2]
        if name.lower() != SHARE:
            raise Refused(SmbStatus.BAD_NETWORK_NAME)
        tree = next(ids)
        self.trees.add(tree)
        available = 0x10 if self.dialect >= Dialect.SMB_3_0 else 0  # CONTINUOUS_AVAILABILITY (2.2.10)
        made = response(
            SmbCommand.TREE_CONNECT, share_type=1, maximal_access=0x1F01FF, capabilities=available
        )
        return made.override(tree_id=tree)

    def tree_disconnect(self, message: SmbMessage) -> SmbEncoded:
        self.trees.discard(int(message["tree_id"]))
        return response(SmbCommand.TREE_DISCONNECT)

    # Files

    def opened(self, message: SmbMessage) -> Open:
        found = self.store.opens.get(bytes(message["file_id"])[:8])
        if found is None or found.connection is not self:
            raise Refused(SmbStatus.FILE_CLOSED)
        return found

    def walk(self, path: str, options: int, *, exact: bool) -> tuple[Node, str]:
        """Return the parent and the last name of ``path``; stop on a symbolic link (3.3.5.9).

        With ``exact``, as in a POSIX open, case counts and the separator is a slash.
        """
        node, names = self.store.root, [name for name in path.split("/" if exact else "\\") if name]
        for at, sent in enumerate(names):
            last = at + 1 == len(names)
            if node.children is None:
                raise Refused(SmbStatus.OBJECT_PATH_NOT_FOUND)
            name = smb2_posix.found(node.children, sent, exact=exact)
            child = node.children.get(name)
            if child is not None and child.link and not (last and options & Options.OPEN_REPARSE_POINT):
                raise self.stopped(child, "".join("\\" + each for each in names[at + 1 :]))
            if last:
                return node, name
            if child is None:
                raise Refused(SmbStatus.OBJECT_PATH_NOT_FOUND)
            node = child
        return node, ""

    def stopped(self, link: Node, unparsed: str) -> Refused:
        """Return the error response of a symbolic link (2.2.2.2.1)."""
        rest = len(unparsed.encode("utf-16-le"))
        body = struct.pack("<IIHH", 0x4C4D5953, 0xA000000C, len(link.link) - 8, rest) + link.link[8:]
        data = struct.pack("<I", len(body)) + body
        if self.dialect != Dialect.SMB_3_1_1:
            return Refused(SmbStatus.STOPPED_ON_SYMLINK, data)
        return Refused(SmbStatus.STOPPED_ON_SYMLINK, struct.pack("<II", len(data), 0) + data, contexts=1)

    def create(self, message: SmbMessage) -> SmbEncoded:
        asked = c.decode_create(message.second)
        if c.DURABLE_RECONNECT_V2 in asked:
            opened = self.reconnect(asked[c.DURABLE_RECONNECT_V2])
            return self.created(opened, 1, b"")
        durable = asked.get(c.DURABLE_V2, b"")
        guid = durable[16:32]
        if guid and (known := next((each for each in self.store.opens.values() if each.guid == guid), None)):
            if not message.flags & Flags.REPLAY:
                raise Refused(SmbStatus.DUPLICATE_OBJECTID)
            return self.created(known, 1, durable)
        mode = asked.get(posix.GUID, b"") if self.posix else b""
        path, options = message.buffer.decode("utf-16-le"), int(message["options"])
        parent, name = self.walk(path, options, exact=bool(mode))
        node, action = self.found(message, parent, name)
        if mode and action == 2:
            node.mode = int.from_bytes(mode[:4], "little")
        opened = Open(node, parent, name, self, guid=guid)
        opened.deletes = bool(message["options"] & Options.DELETE_ON_CLOSE)
        opened.persistent = bool(durable) and bool(durable[4] & c.DURABLE_PERSISTENT)
        self.store.opens[opened.file_id[:8]] = opened
        return self.created(opened, action, durable, smb2_posix.created(node) if mode else b"")

    def found(self, message: SmbMessage, parent: Node, name: str) -> tuple[Node, int]:
        """Return the file of a CREATE, made if its disposition wants that, and CreateAction (2.2.14)."""
        siblings = parent.children if parent.children is not None else {}
        node = siblings.get(name) if name else self.store.root
        disposition, options = int(message["disposition"]), int(message["options"])
        if any(each.node is node and each.connection is None for each in self.store.opens.values()):
            raise Refused(SmbStatus.FILE_NOT_AVAILABLE)
        if node is None:
            if disposition in (1, 4):
                raise Refused(SmbStatus.OBJECT_NAME_NOT_FOUND)
            siblings[name] = Node(children={} if options & Options.DIRECTORY_FILE else None)
            return siblings[name], 2
        if disposition == 2:
            raise Refused(SmbStatus.OBJECT_NAME_COLLISION)
        if options & Options.DIRECTORY_FILE and node.children is None:
            raise Refused(SmbStatus.NOT_A_DIRECTORY)
        if options & Options.NON_DIRECTORY_FILE and node.children is not None:
            raise Refused(SmbStatus.FILE_IS_A_DIRECTORY)
        if disposition in (0, 4, 5):
            node.data.clear()
        return node, {0: 0, 4: 3, 5: 3}.get(disposition, 1)

    def created(self, opened: Open, action: int, durable: bytes, extended: bytes = b"") -> SmbEncoded:
        more: dict[str, int] = {}
        granted = [(posix.GUID, extended)] if extended else []
        if durable and opened.persistent:
            granted.append((c.DURABLE_V2, struct.pack("<II", TIMEOUT, c.DURABLE_PERSISTENT)))
        tail = c.encode_create(granted)
        if tail:
            more = {"context_offset": 152, "context_length": len(tail)}
        size = len(opened.node.data)
        more |= {"end_of_file": size, "allocation_size": size, "attributes": opened.node.attributes}
        return response(SmbCommand.CREATE, tail, action=action, file_id=opened.file_id, **more)

    def reconnect(self, data: bytes) -> Open:
        """Return the open of a reconnect (3.3.5.9.12)."""
        persistent = bool(data[32] & c.DURABLE_PERSISTENT)
        found = self.store.opens.get(data[:8])
        if found is None and persistent:
            found = next((each for each in self.store.opens.values() if each.guid == data[16:32]), None)
        if found is None or found.guid != data[16:32] or found.connection or found.persistent != persistent:
            raise Refused(SmbStatus.OBJECT_NAME_NOT_FOUND)
        found.connection = self
        return found

    def close(self, message: SmbMessage) -> SmbEncoded:
        self.end(self.opened(message))
        return response(SmbCommand.CLOSE)

    def read(self, message: SmbMessage) -> SmbEncoded:
        data = self.opened(message).node.data
        piece = bytes(data[message["offset"] : message["offset"] + message["length"]])
        if not piece:
            raise Refused(SmbStatus.END_OF_FILE)
        return response(SmbCommand.READ, piece)

    def write(self, message: SmbMessage) -> SmbEncoded:
        data, at = self.opened(message).node.data, int(message["offset"])
        data.extend(bytes(max(0, at - len(data))))
        data[at : at + len(message.buffer)] = message.buffer
        return response(SmbCommand.WRITE, count=len(message.buffer))

    def query_directory(self, message: SmbMessage) -> SmbEncoded:
        opened = self.opened(message)
        writers = {FileInfo.ID_BOTH_DIRECTORY: listing, FileInfo.POSIX: smb2_posix.listing}
        writer = writers.get(message["info_class"])
        if opened.node.children is None or writer is None:
            raise Refused(SmbStatus.INVALID_PARAMETER)
        if opened.listed and not message["flags"] & 0x11:
            raise Refused(SmbStatus.NO_MORE_FILES)
        opened.listed = True
        pattern = message.buffer.decode("utf-16-le") or "*"
        every = {".": opened.node, "..": opened.parent, **opened.node.children}
        chosen = [(name, node) for name, node in every.items() if fnmatch.fnmatchcase(name, pattern)]
        if not chosen:
            raise Refused(SmbStatus.NO_SUCH_FILE)
        return response(SmbCommand.QUERY_DIRECTORY, writer(chosen))

    def query_info(self, message: SmbMessage) -> SmbEncoded:
        node = self.opened(message).node
        size = len(node.data)
        found = {
            (InfoType.FILE, FileInfo.BASIC): struct.pack("<QQQQII", 0, 0, 0, 0, node.attributes, 0),
            (InfoType.FILE, FileInfo.STANDARD): struct.pack(
                "<QQIBBxx", size, size, 1, 0, node.children is not None
            ),
            (InfoType.FILESYSTEM, FsInfo.ATTRIBUTE): struct.pack("<III", 0x80, 255, 0),
            **smb2_posix.classes(node),
        }.get((message["info_type"], message["info_class"]))
        if found is None:
            raise Refused(SmbStatus.NOT_SUPPORTED)
        return response(SmbCommand.QUERY_INFO, found)

    def set_info(self, message: SmbMessage) -> SmbEncoded:
        opened, data = self.opened(message), message.buffer
        match message["info_class"]:
            case FileInfo.DISPOSITION:
                if data[0] and opened.node.children:
                    raise Refused(SmbStatus.DIRECTORY_NOT_EMPTY)
                opened.deletes = bool(data[0])
            case FileInfo.END_OF_FILE:
                size = int.from_bytes(data[:8], "little")
                opened.node.data[:] = opened.node.data[:size].ljust(size, b"\0")
            case FileInfo.BASIC:
                pass
            case _:
                raise Refused(SmbStatus.NOT_SUPPORTED)
        return response(SmbCommand.SET_INFO)

    def ioctl(self, message: SmbMessage) -> SmbEncoded:
        code = int(message["control_code"])
        if code not in (Fsctl.SET_REPARSE_POINT, Fsctl.GET_REPARSE_POINT):
            raise Refused(SmbStatus.NOT_SUPPORTED)
        node, tail = self.opened(message).node, b""
        if code == Fsctl.SET_REPARSE_POINT:
            node.link = message.buffer
        elif not node.link:
            raise Refused(SmbStatus.NOT_A_REPARSE_POINT)
        else:
            tail = node.link
        return response(SmbCommand.IOCTL, tail, control_code=code, file_id=message["file_id"])


@contextlib.contextmanager
def smb2_server() -> Iterator[tuple[str, int]]:
    """Run a server until the end of the context; yield its address and port."""
    store, threads, socks = Store(), list[threading.Thread](), list[socket.socket]()
    with tempfile.TemporaryDirectory(prefix="smb2-server-") as where:
        users = Path(where, "users")
        users.write_text(f":{USER}:{PASSWORD}\n")
        before = os.environ.get("NTLM_USER_FILE")
        os.environ["NTLM_USER_FILE"] = str(users)
        listener = socket.create_server(("127.0.0.1", 0), backlog=64)

        def accept() -> None:
            with contextlib.suppress(OSError):
                while True:
                    sock, _ = listener.accept()
                    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    socks.append(sock)
                    threads.append(threading.Thread(target=Connection(store, sock).serve, daemon=True))
                    threads[-1].start()

        accepting = threading.Thread(target=accept, daemon=True)
        accepting.start()
        try:
            yield "127.0.0.1", int(listener.getsockname()[1])
        finally:
            for sock in (listener, *socks):
                with contextlib.suppress(OSError):
                    sock.shutdown(socket.SHUT_RDWR)
                sock.close()
            for thread in (accepting, *threads):
                thread.join(timeout=10)
            if before is None:
                del os.environ["NTLM_USER_FILE"]
            else:
                os.environ["NTLM_USER_FILE"] = before
