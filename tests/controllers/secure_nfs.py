"""A small NFSv4.0 server with RPCSEC_GSS and RPC-with-TLS, which keeps the rules of both, or breaks one.

It has a root and one directory in it, ``secure``, for integrity and privacy only, and the operations
PUTROOTFH, PUTFH, LOOKUP, GETFH, GETATTR of the type, and SECINFO. :class:`Fault` names the rule that it
breaks; each rule of ``tests/mutants/nfs4_security_mutants.py`` is asked for where it applies.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import functools
import secrets
import socket
import ssl
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from storagetest.errors import RemoteProtocolError
from storagetest.wire.nfs4.attributes import encode_attributes, numbers_of
from storagetest.wire.nfs4.types import (
    FATTR4_TYPE,
    NFS_V4,
    COMPOUND4args,
    COMPOUND4res,
    GETATTR4res,
    GETATTR4resok,
    GETFH4res,
    GETFH4resok,
    LOOKUP4res,
    PUTFH4res,
    PUTROOTFH4res,
    SECINFO4res,
    nfs_ftype4,
    nfs_opnum4,
    nfs_resop4,
    nfsstat4,
    rpc_gss_svc_t,
    rpcsec_gss_info,
    secinfo4,
)
from storagetest.wire.rpc.gss import GSS_S_COMPLETE, INTEGRITY, NONE, PRIVACY, Mechanism, decode_credential
from storagetest.wire.rpc.gss_types import (
    MAXSEQ,
    RPCSEC_GSS_VERS_1,
    rpc_gss_cred,
    rpc_gss_init_arg,
    rpc_gss_init_res,
    rpc_gss_integ_data,
    rpc_gss_priv_data,
    rpc_gss_proc_t,
    rpc_gss_service_t,
)
from storagetest.wire.rpc.kerberos import KerberosMechanism
from storagetest.wire.rpc.message import AUTH_NONE, decode_message
from storagetest.wire.rpc.record import RecordReceiver, RpcRecord, frame
from storagetest.wire.rpc.types import (
    accept_stat,
    accepted_data,
    accepted_reply,
    auth_flavor,
    auth_stat,
    call_body,
    msg_type,
    opaque_auth,
    reject_stat,
    rejected_reply,
    reply_body,
    reply_stat,
    rpc_body,
    rpc_msg,
)
from storagetest.wire.xdr import Unpacker, encode

EXPORT = "/secure"
WINDOW = 32
KRB5 = bytes.fromhex("2a864886f712010202")
"""The DER contents of the object identifier of Kerberos 5 (RFC 7530 3.2.1)."""
STARTTLS = opaque_auth(auth_flavor.AUTH_NONE, b"STARTTLS")
BAD_ROUTINE = 13 << 16
"""GSS_S_FAILURE, as a major status (RFC 2744 3.9.1)."""

_ROOT, _SECURE = b"root", b"secure"
OK = nfsstat4.NFS4_OK


@dataclass
class Fault:
    """The rule that a server breaks; "" for none. ``acted``: whether it came to that."""

    name: str = ""
    acted: bool = False

    def breaks(self, *names: str) -> bool:
        """Return whether one of these rules is broken here."""
        if self.name in names:
            self.acted = True
            return True
        return False


@dataclass
class Context:
    """A context of a client: what was seen of its sequence numbers."""

    mechanism: Mechanism
    ends: float
    link: object
    highest: int = 0
    seen: set[int] = field(default_factory=set)
    services: set[int] = field(default_factory=set)


class Denied(Exception):  # what the reply is
    """The call is denied, with this status."""

    def __init__(self, why: auth_stat) -> None:
        super().__init__(why.name)
        self.why = why


@dataclass
class Caller:
    """Who calls: the flavor, and with RPCSEC_GSS the context, the sequence number and the service."""

    flavor: int
    service: int = 0
    seq: int = 0
    context: Context | None = None


class SecureNfs:
    """The server, on loopback. A context manager; ``tls`` is its identity, None for no TLS."""

    def __init__(self, fault: Fault | None = None, *, tls: ssl.SSLContext | None = None) -> None:
        self.fault = fault or Fault()
        self._tls = tls
        self._contexts: dict[bytes, Context] = {}
        self._sockets: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port: int = self._listener.getsockname()[1]

    def __enter__(self) -> SecureNfs:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        for sock in (self._listener, *self._sockets):
            _shut(sock)

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                sock, _ = self._listener.accept()
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self._sockets.append(sock)
                threading.Thread(target=self._serve, args=(sock,), daemon=True).start()

    def _serve(self, sock: socket.socket) -> None:
        receiver, link = RecordReceiver(), object()
        with contextlib.suppress(OSError, RemoteProtocolError, ssl.SSLError):
            while data := sock.recv(65536):
                receiver.receive_data(data)
                while isinstance(record := receiver.next_event(), RpcRecord):
                    reply = self._reply(record.data, link, secure=isinstance(sock, ssl.SSLSocket))
                    if reply is not None:
                        sock.sendall(frame(reply[0]))
                        if reply[1]:
                            sock = self._start_tls(sock)
        sock.close()

    # RPC

    def _reply(self, record: bytes, link: object, *, secure: bool) -> tuple[bytes, bool] | None:
        """Return the reply to a call, and whether TLS starts after it; None for a call that is discarded."""
        message, source = decode_message(record)
        body = message.body.value
        if not isinstance(body, call_body):
            return None
        xid = message.xid
        if body.cred.flavor == auth_flavor.AUTH_TLS:
            return self._tls_probe(xid, body, secure=secure)
        try:
            if body.cred.flavor == auth_flavor.RPCSEC_GSS:
                done = self._gss(xid, body, record, source, link)
                return None if done is None else (done, False)
        except Denied as denied:
            return _denied(xid, denied.why), False
        status, result = self._execute(body, source, Caller(body.cred.flavor))
        return _accepted(xid, AUTH_NONE, status, result), False

    def _execute(self, body: call_body, source: Unpacker, caller: Caller) -> tuple[accept_stat, bytes]:
        procedure = NFS_V4.procedures.get(body.proc)
        if procedure is None:
            return accept_stat.PROC_UNAVAIL, b""
        try:
            argument = procedure.argument.unpack(source)
            source.finish("the argument")
        except RemoteProtocolError:
            return accept_stat.GARBAGE_ARGS, b""
        result = None if body.proc == 0 else self._compound(argument, caller)
        return accept_stat.SUCCESS, encode(procedure.result, result).data

    # RPCSEC_GSS (RFC 2203)

    def _gss(self, xid: int, body: call_body, record: bytes, source: Unpacker, link: object) -> bytes | None:
        try:
            cred = decode_credential(body.cred)
        except RemoteProtocolError:
            if self.fault.breaks("gss-cred-cut"):
                status, result = self._execute(body, source, Caller(auth_flavor.AUTH_NONE))
                return _accepted(xid, AUTH_NONE, status, result)
            raise Denied(auth_stat.AUTH_BADCRED) from None
        service = self._checked(cred)
        if cred.gss_proc in (rpc_gss_proc_t.RPCSEC_GSS_INIT, rpc_gss_proc_t.RPCSEC_GSS_CONTINUE_INIT):
            return self._init(xid, body, cred.gss_proc, source, link)
        context = self._context(cred.handle, link)
        self._check_header(context, body, record, cred.seq_num)
        if cred.seq_num > MAXSEQ and not self.fault.breaks("gss-maxseq-accepted"):
            raise Denied(auth_stat.RPCSEC_GSS_CTXPROBLEM)
        if not self._is_new(context, cred.seq_num):
            return None
        if context.services - {service} and self.fault.breaks("gss-service-fixed"):
            raise Denied(auth_stat.AUTH_BADCRED)
        context.services.add(service)
        caller = Caller(auth_flavor.RPCSEC_GSS, service, cred.seq_num, context)
        if cred.gss_proc == rpc_gss_proc_t.RPCSEC_GSS_DESTROY:
            return self._destroy(xid, cred.handle, caller)
        return self._data(xid, body, caller, source)

    def _checked(self, cred: rpc_gss_cred) -> int:
        """Return the service of a credential whose fields are defined. Raises Denied."""
        breaks = self.fault.breaks
        if cred.version != RPCSEC_GSS_VERS_1 and not breaks("gss-version-accepted"):
            other = breaks("gss-version-status")
            raise Denied(auth_stat.AUTH_FAILED if other else auth_stat.AUTH_REJECTEDCRED)
        if cred.gss_proc not in tuple(rpc_gss_proc_t) and not breaks("gss-proc-accepted"):
            raise Denied(auth_stat.AUTH_BADCRED)
        if cred.service in tuple(rpc_gss_service_t):
            return cred.service
        if not breaks("gss-service-accepted"):
            raise Denied(auth_stat.AUTH_BADCRED)
        return NONE

    def _init(self, xid: int, body: call_body, proc: int, source: Unpacker, link: object) -> bytes:
        breaks = self.fault.breaks
        if body.proc != 0 and not breaks("gss-init-procedure"):
            raise Denied(auth_stat.AUTH_FAILED)
        if proc == rpc_gss_proc_t.RPCSEC_GSS_CONTINUE_INIT and not breaks("gss-continue-accepted"):
            raise Denied(auth_stat.RPCSEC_GSS_CREDPROBLEM)  # Kerberos needs one token
        try:
            token = rpc_gss_init_arg.unpack(source).gss_token
        except RemoteProtocolError:
            return _accepted(xid, AUTH_NONE, accept_stat.GARBAGE_ARGS, b"")
        mechanism = KerberosMechanism.accept()
        try:
            answer = mechanism.step(token)
        except Exception:  # whatever GSS-API makes of a token
            if breaks("gss-init-garbage"):
                result = rpc_gss_init_res(b"handle", GSS_S_COMPLETE, 0, WINDOW, b"")
            else:
                result = rpc_gss_init_res(b"", BAD_ROUTINE, 0, 0, b"")
            return _accepted(xid, AUTH_NONE, accept_stat.SUCCESS, result.encode().data)
        if breaks("gss-init-refused"):
            result = rpc_gss_init_res(b"", BAD_ROUTINE, 0, 0, b"")
            return _accepted(xid, AUTH_NONE, accept_stat.SUCCESS, result.encode().data)
        handle = b"one-handle" if breaks("gss-init-same-handle") else secrets.token_bytes(8)
        self._contexts[handle] = Context(mechanism, time.monotonic() + mechanism.lifetime, link)
        window = 0 if breaks("gss-init-window") else WINDOW
        done = rpc_gss_init_res(handle, GSS_S_COMPLETE, 0, window, answer)
        number = 7 if breaks("gss-init-verifier") else window
        verf = opaque_auth(auth_flavor.RPCSEC_GSS, mechanism.mic(number.to_bytes(4, "big")))
        if breaks("gss-init-verifier-none"):
            verf = AUTH_NONE
        return _accepted(xid, verf, accept_stat.SUCCESS, done.encode().data)

    def _context(self, handle: bytes, link: object) -> Context:
        context = self._contexts.get(handle)
        if context is None and self._contexts and self.fault.breaks("gss-handle-accepted"):
            context = next(reversed(self._contexts.values()))
        if context is None:
            other = self.fault.breaks("gss-handle-status")
            raise Denied(auth_stat.AUTH_TOOWEAK if other else auth_stat.RPCSEC_GSS_CREDPROBLEM)
        if context.link is not link and self.fault.breaks("gss-connection"):
            raise Denied(auth_stat.RPCSEC_GSS_CREDPROBLEM)
        if time.monotonic() >= context.ends:
            raise Denied(auth_stat.RPCSEC_GSS_CREDPROBLEM)
        return context

    def _check_header(self, context: Context, body: call_body, record: bytes, seq: int) -> None:
        end = 24 + 8 + len(body.cred.body) + -len(body.cred.body) % 4  # six words, then the credential
        mic = body.verf.body if body.verf.flavor == auth_flavor.RPCSEC_GSS else b""
        try:
            context.mechanism.verify(record[:end], mic)
        except RemoteProtocolError:
            if self.fault.breaks("gss-header-unchecked"):
                return
            if self.fault.breaks("gss-forged-counts"):
                self._is_new(context, seq)
            other = self.fault.breaks("gss-header-status")
            raise Denied(auth_stat.AUTH_TOOWEAK if other else auth_stat.RPCSEC_GSS_CREDPROBLEM) from None

    def _is_new(self, context: Context, seq: int) -> bool:
        """Return whether a sequence number is to be executed; note it."""
        breaks = self.fault.breaks
        if seq + WINDOW <= context.highest and not breaks("gss-old-executed"):
            return False
        if seq in context.seen:
            if breaks("gss-replay-denied"):
                raise Denied(auth_stat.RPCSEC_GSS_CTXPROBLEM)
            if not breaks("gss-replay-executed"):
                return False
        if seq < context.highest and breaks("gss-window-in-order"):
            return False
        if seq > context.highest + WINDOW and breaks("gss-window-jump"):
            raise Denied(auth_stat.RPCSEC_GSS_CTXPROBLEM)
        context.seen.add(seq)
        context.highest = max(seq, context.highest)
        return True

    def _destroy(self, xid: int, handle: bytes, caller: Caller) -> bytes | None:
        if not self.fault.breaks("gss-destroy-kept"):
            self._contexts.pop(handle, None)
        if self.fault.breaks("gss-destroy-silent"):
            return None
        verf = AUTH_NONE if self.fault.breaks("gss-destroy-verifier") else self._verifier(xid, caller)
        return _accepted(xid, verf, accept_stat.SUCCESS, self._protect(b"", caller))

    def _data(self, xid: int, body: call_body, caller: Caller, source: Unpacker) -> bytes:
        inner = self._reveal(caller, source)
        if inner is None:
            other = self.fault.breaks("gss-body-status")
            status, result = (accept_stat.SYSTEM_ERR if other else accept_stat.GARBAGE_ARGS), b""
        else:
            status, result = self._execute(body, inner, caller)
        verf = self._verifier(xid, caller)
        if status != accept_stat.SUCCESS:
            if self.fault.breaks("gss-error-verifier"):
                verf = AUTH_NONE
            return _accepted(xid, verf, status, result)
        return _accepted(xid, verf, status, self._protect(result, caller))

    def _verifier(self, xid: int, caller: Caller) -> opaque_auth:
        assert caller.context is not None
        if self.fault.breaks("gss-verifier-none"):
            return AUTH_NONE
        number = xid if self.fault.breaks("gss-verifier-xid") else caller.seq
        return opaque_auth(auth_flavor.RPCSEC_GSS, caller.context.mechanism.mic(number.to_bytes(4, "big")))

    def _reveal(self, caller: Caller, source: Unpacker) -> Unpacker | None:
        """Return the argument of a call, None if its body is not what its service requires."""
        assert caller.context is not None
        breaks, mechanism = self.fault.breaks, caller.context.mechanism
        if caller.service == NONE:
            return source
        try:
            if caller.service == INTEGRITY:
                found = rpc_gss_integ_data.unpack(source)
                data = found.databody_integ
                try:
                    mechanism.verify(data, found.checksum)
                except RemoteProtocolError:
                    if not breaks("gss-integ-unchecked"):
                        raise
            else:
                data = mechanism.unwrap(rpc_gss_priv_data.unpack(source).databody_priv)
        except RemoteProtocolError:
            if caller.service == PRIVACY and breaks("gss-priv-unchecked"):
                return Unpacker(COMPOUND4args(b"", 0, ()).encode().data)
            return None
        if data[:4] != caller.seq.to_bytes(4, "big") and not breaks("gss-body-seq"):
            return None
        return Unpacker(data[4:])

    def _protect(self, result: bytes, caller: Caller) -> bytes:
        assert caller.context is not None
        breaks, mechanism = self.fault.breaks, caller.context.mechanism
        if caller.service == NONE:
            return result
        seq = 0 if breaks("gss-reply-seq") else caller.seq
        data = seq.to_bytes(4, "big") + result
        if caller.service == INTEGRITY:
            if breaks("gss-integ-reply-plain"):
                return result
            mic = mechanism.mic(data + b"x" if breaks("gss-integ-reply-checksum") else data)
            return rpc_gss_integ_data(data, mic).encode().data
        if breaks("gss-priv-reply-clear"):
            return rpc_gss_priv_data(_signed(mechanism, data)).encode().data
        if breaks("gss-priv-reply-integrity"):
            return rpc_gss_integ_data(data, mechanism.mic(data)).encode().data
        return rpc_gss_priv_data(mechanism.wrap(data)).encode().data

    # RPC-with-TLS (RFC 9289)

    def _tls_probe(self, xid: int, body: call_body, *, secure: bool) -> tuple[bytes, bool] | None:
        breaks = self.fault.breaks
        if body.proc != 0 or self._tls is None or secure:
            if body.proc != 0 and breaks("tls-other-procedure"):
                return _accepted(xid, AUTH_NONE, accept_stat.SUCCESS, _empty()), False
            if self._tls is None and breaks("tls-probe-silent"):
                return None
            if self._tls is None and breaks("tls-probe-ends"):
                raise OSError("the connection ends")
            return _denied(xid, auth_stat.AUTH_BADCRED), False
        verf = STARTTLS
        if breaks("tls-token"):
            verf = opaque_auth(auth_flavor.AUTH_NONE, b"STARTTLX")
        if breaks("tls-token-longer"):
            verf = opaque_auth(auth_flavor.AUTH_NONE, b"STARTTLS\0\0\0\0")
        if breaks("tls-verifier-flavor"):
            verf = opaque_auth(auth_flavor.AUTH_TLS, b"STARTTLS")
        if breaks("tls-probe-result"):
            return _accepted(xid, verf, accept_stat.SUCCESS, bytes(4)), True
        return _accepted(xid, verf, accept_stat.SUCCESS, b""), True

    def _start_tls(self, sock: socket.socket) -> socket.socket:
        breaks = self.fault.breaks
        if breaks("tls-clear-goes-on"):
            return sock
        assert self._tls is not None
        made = self._tls.wrap_socket(sock, server_side=True)
        if breaks("tls-ends-others"):
            for other in self._sockets:
                _shut(other)
        self._sockets.append(made)
        refuses = made.selected_alpn_protocol() != "sunrpc"
        if refuses and not breaks("tls-other-protocol", "tls-alpn-none", "tls-alpn-other"):
            raise ssl.SSLError("no ALPN of RPC")
        if breaks("tls-silent"):
            while made.recv(65536):
                pass
        return made

    # NFSv4

    def _compound(self, arguments: COMPOUND4args, caller: Caller) -> COMPOUND4res:
        if arguments.minorversion:
            return COMPOUND4res(nfsstat4.NFS4ERR_MINOR_VERS_MISMATCH, arguments.tag, ())
        current, results, status = b"", [], OK
        for one in arguments.argarray:
            current, result, status = self._operation(one, current, caller)
            results.append(nfs_resop4(one.argop, result))
            if status != OK:
                break
        return COMPOUND4res(status, arguments.tag, tuple(results))

    def _operation(self, one: Any, current: bytes, caller: Caller) -> tuple[bytes, Any, nfsstat4]:
        if one.argop == nfs_opnum4.OP_PUTROOTFH:
            return _ROOT, PUTROOTFH4res(OK), OK
        if one.argop == nfs_opnum4.OP_PUTFH:
            status = self._allowed(one.value.object, caller)
            return one.value.object, PUTFH4res(status), status
        if one.argop == nfs_opnum4.OP_LOOKUP:
            status = nfsstat4.NFS4ERR_NOENT
            if current == _ROOT and one.value.objname == _SECURE:
                status = self._allowed(_SECURE, caller)
            return _SECURE, LOOKUP4res(status), status
        if one.argop == nfs_opnum4.OP_GETFH:
            return current, GETFH4res(OK, GETFH4resok(current)), OK
        if one.argop == nfs_opnum4.OP_GETATTR:
            wanted = FATTR4_TYPE in numbers_of(one.value.attr_request)
            found = encode_attributes({FATTR4_TYPE: nfs_ftype4.NF4DIR} if wanted else {})
            return current, GETATTR4res(OK, GETATTR4resok(found)), OK
        if one.argop == nfs_opnum4.OP_SECINFO:
            return self._secinfo(one.value.name, current, caller)
        made: Any = nfs_resop4.ARMS[one.argop]
        status = nfsstat4.NFS4ERR_NOTSUPP
        return current, made(status), status

    def _allowed(self, handle: bytes, caller: Caller) -> nfsstat4:
        breaks = self.fault.breaks
        if handle != _SECURE:
            return OK if handle == _ROOT else nfsstat4.NFS4ERR_BADHANDLE
        if caller.flavor != auth_flavor.RPCSEC_GSS:
            if breaks("wrongsec-flavor"):
                return OK
        elif caller.service == NONE:
            if breaks("wrongsec-service"):
                return OK
        elif not breaks("wrongsec-listed"):
            return OK
        return nfsstat4.NFS4ERR_ACCESS if breaks("wrongsec-status") else nfsstat4.NFS4ERR_WRONGSEC

    def _secinfo(self, name: bytes, current: bytes, caller: Caller) -> tuple[bytes, Any, nfsstat4]:
        breaks = self.fault.breaks
        if current != _ROOT or name != _SECURE:
            return current, SECINFO4res(nfsstat4.NFS4ERR_NOENT), nfsstat4.NFS4ERR_NOENT
        if caller.flavor != auth_flavor.RPCSEC_GSS and breaks("secinfo-wrongsec"):
            return current, SECINFO4res(nfsstat4.NFS4ERR_WRONGSEC), nfsstat4.NFS4ERR_WRONGSEC
        oid = bytes.fromhex("2b0601050502") if breaks("secinfo-mechanism") else KRB5
        services = (rpc_gss_svc_t.RPC_GSS_SVC_INTEGRITY, rpc_gss_svc_t.RPC_GSS_SVC_PRIVACY)
        found: list[secinfo4] = [
            secinfo4(auth_flavor.RPCSEC_GSS, rpcsec_gss_info(oid, 0, service)) for service in services
        ]
        if breaks("secinfo-no-gss"):
            found = []
        if breaks("secinfo-sys"):
            found.append(secinfo4(auth_flavor.AUTH_SYS))
        if breaks("secinfo-none"):
            found.append(
                secinfo4(auth_flavor.RPCSEC_GSS, rpcsec_gss_info(oid, 0, rpc_gss_svc_t.RPC_GSS_SVC_NONE))
            )
        return current, SECINFO4res(OK, tuple(found)), OK


def server_context(fault: Fault) -> ssl.SSLContext:
    """Return the server's side of TLS 1.3 with ALPN, and a certificate of its own for localhost."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    if fault.breaks("tls-version"):
        context.minimum_version = ssl.TLSVersion.TLSv1_2
    if not fault.breaks("tls-alpn-none"):
        context.set_alpn_protocols(["http/1.1"] if fault.breaks("tls-alpn-other") else ["sunrpc"])
    with tempfile.TemporaryDirectory() as where:
        path = Path(where) / "identity.pem"
        path.write_bytes(_identity())
        context.load_cert_chain(path)
    return context


@functools.cache
def _identity() -> bytes:
    """Return a key and a certificate for localhost, as PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = dt.datetime.now(dt.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=30))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return private + certificate.public_bytes(serialization.Encoding.PEM)


def _signed(mechanism: Mechanism, data: bytes) -> bytes:
    """Return ``data`` wrapped without encryption."""
    context: Any = mechanism._context  # type: ignore[attr-defined]
    return bytes(context.wrap(data, False).message)


def _shut(sock: socket.socket) -> None:
    with contextlib.suppress(OSError):
        sock.shutdown(socket.SHUT_RDWR)
    sock.close()


def _empty() -> bytes:
    return encode(COMPOUND4res, COMPOUND4res(OK, b"", ())).data


def _accepted(xid: int, verf: opaque_auth, status: accept_stat, result: bytes) -> bytes:
    body = reply_body(reply_stat.MSG_ACCEPTED, accepted_reply(verf, accepted_data(status)))
    return rpc_msg(xid, rpc_body(msg_type.REPLY, body)).encode().data + result


def _denied(xid: int, why: auth_stat) -> bytes:
    body = reply_body(reply_stat.MSG_DENIED, rejected_reply(reject_stat.AUTH_ERROR, why))
    return rpc_msg(xid, rpc_body(msg_type.REPLY, body)).encode().data
