"""TLS 1.3 with an external pre-shared key on a link: ``openssl s_client`` as a child behind a socket pair.

Why a child. Python's ssl has no callback for external PSKs before 3.13, and there only for SHA-256; packages
that add one reach TLS 1.2 alone on older Pythons. OpenSSL's program does both hashes everywhere.

Rules:

1. The key never stands in an argument or in a file: it goes through a pipe that only the child reads
   (``-psk_session /dev/fd/N``, an SSL_SESSION as OpenSSL writes one down). ``-psk`` would show it to ``ps``.
2. :meth:`Tls.dial` returns after the handshake, or raises within its deadline. TLS 1.3 and the one cipher
   suite are asked for, and read back.
3. No early data is ever sent (0-RTT: NVMe/TCP 3.6.1.6 forbids it).
4. Closing the socket ends the child and waits for it: no process is left.
"""

from __future__ import annotations

import base64
import contextlib
import os
import select
import shutil
import socket
import subprocess
import time
from dataclasses import dataclass, field

from storagetest.errors import ConfigError, RemoteProtocolError, TargetDead

__all__ = ["PskTls", "psk_session"]

ESTABLISHED = b"CONNECTION ESTABLISHED"
TLS_1_3 = 0x0304
_LAST_WORDS = 2.0
"""Seconds that a child is given to say goodbye to its peer."""


@dataclass(frozen=True, slots=True)
class PskTls:
    """A pre-shared key with its ``identity`` and its one cipher ``suite`` (OpenSSL's name and its number)."""

    identity: str
    key: bytes = field(repr=False)
    suite: str = "TLS_AES_128_GCM_SHA256"
    number: int = 0x1301

    def argv(self, program: str, address: str, port: int, session: int) -> list[str]:
        """Return the command line; ``session`` is the descriptor that the key is read from."""
        where = f"[{address}]:{port}" if ":" in address else f"{address}:{port}"
        argv = [program, "s_client", "-connect", where, "-tls1_3", "-ciphersuites", self.suite]
        argv += ["-psk_identity", self.identity, "-psk_session", f"/dev/fd/{session}"]
        return [*argv, "-brief", "-nocommands", "-no_ign_eof"]

    def dial(self, address: str, port: int, deadline: float) -> socket.socket:
        """Connect and shake hands; return the socket to speak through.

        Raises :class:`TargetDead` where nobody listens, :class:`RemoteProtocolError` where the handshake
        fails or is not over within ``deadline`` seconds, :class:`ConfigError` without OpenSSL.
        """
        program = shutil.which("openssl")
        if program is None:
            raise ConfigError("TLS on the wire is spoken by openssl, which is not installed here")
        until = time.monotonic() + deadline
        ours, theirs = socket.socketpair()
        session = _pipe(psk_session(self.key, self.number))
        try:
            child = subprocess.Popen(
                self.argv(program, address, port, session),
                stdin=theirs.fileno(),
                stdout=theirs.fileno(),
                stderr=subprocess.PIPE,
                pass_fds=(session,),
            )
        finally:
            os.close(session)
            theirs.close()
        tunnel = _ChildSocket(ours, child, (address, port))
        try:
            self._check(_handshake(child, until), f"{address}:{port}", late=time.monotonic() >= until)
        except BaseException:
            tunnel.close()
            raise
        return tunnel

    def early(self, address: str, port: int, deadline: float, data: bytes) -> str:
        """Offer ``data`` as early data (0-RTT); return ``accepted``, ``rejected`` or ``not sent``.

        Raises :class:`RemoteProtocolError` where the handshake fails or the deadline passes.
        """
        program = shutil.which("openssl")
        if program is None:
            raise ConfigError("TLS on the wire is spoken by openssl, which is not installed here")
        session = _pipe(psk_session(self.key, self.number, early=len(data)))
        offered = _pipe(data)
        argv = [one for one in self.argv(program, address, port, session) if one != "-brief"]
        try:
            done = subprocess.run(
                [*argv, "-early_data", f"/dev/fd/{offered}"],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                pass_fds=(session, offered),
                timeout=deadline,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise RemoteProtocolError(f"{address}:{port}: TLS: the handshake is not over in time") from None
        finally:
            os.close(session)
            os.close(offered)
        _, found, rest = done.stdout.partition(b"Early data was ")
        if not found or b"TLSv1.3, Cipher is " not in done.stdout:
            raise _failed(f"{address}:{port}", done.stderr, late=False)
        return rest.partition(b"\n")[0].decode("ascii", "replace").strip()

    def _check(self, said: bytes, where: str, *, late: bool) -> None:
        if ESTABLISHED not in said or f"Ciphersuite: {self.suite}".encode() not in said:
            raise _failed(where, said, late=late)


class _ChildSocket(socket.socket):
    """Our end of the pair: it knows its real peer, and ends the child when it is closed."""

    def __init__(self, ours: socket.socket, child: subprocess.Popen[bytes], peer: tuple[str, int]) -> None:
        super().__init__(fileno=ours.detach())
        self._child, self._peer = child, peer

    def getpeername(self) -> tuple[str, int]:
        return self._peer

    def close(self) -> None:
        """Close, and wait for the child. Safe to call twice."""
        super().close()
        try:
            self._child.wait(_LAST_WORDS)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait()
        if self._child.stderr:
            self._child.stderr.close()


def _handshake(child: subprocess.Popen[bytes], until: float) -> bytes:
    """Return what the child says until its handshake is told of, it ends, or the time is over."""
    assert child.stderr is not None
    said = b""
    while not (ESTABLISHED in said and b"Ciphersuite: " in said.partition(ESTABLISHED)[2]):
        ready, _, _ = select.select([child.stderr], [], [], max(0.0, until - time.monotonic()))
        data = os.read(child.stderr.fileno(), 4096) if ready else b""
        if not data:
            return said
        said += data
    while not said.endswith(b"\n"):  # the line with the cipher suite, whole
        said += os.read(child.stderr.fileno(), 4096)
    return said


def _failed(where: str, said: bytes, *, late: bool) -> Exception:
    lines = [line for line in said.decode("utf-8", "replace").splitlines() if line.strip()]
    if any("connect:errno" in line or "Connection refused" in line for line in lines):
        return TargetDead(f"{where}: cannot connect: {lines[-1]}")
    why = "the handshake is not over in time" if late else "the handshake failed"
    errors = [line for line in lines if "alert" in line or "error" in line]
    return RemoteProtocolError(f"{where}: TLS: {why}: {(errors or lines or ['nothing was said'])[0]}")


def _pipe(data: bytes) -> int:
    """Return a descriptor from which ``data`` is read, once. It is far smaller than a pipe."""
    reader, writer = os.pipe()
    with contextlib.closing(os.fdopen(writer, "wb")) as file:
        file.write(data)
    return reader


def psk_session(key: bytes, suite: int, *, early: int = 0) -> bytes:
    """Return an SSL_SESSION in PEM, as ``-psk_session`` wants one: TLS 1.3, a cipher suite, the key.

    The layout is OpenSSL's own (SSL_SESSION_ASN1): version 1, protocol, cipher, an empty session id, key, and
    in [15] how many bytes of ``early`` data may be sent with it.
    """
    number = early.to_bytes(early.bit_length() // 8 + 1, "big")  # DER: no byte more, and never negative
    extra = bytes([0xAF, len(number) + 2, 0x02, len(number)]) + number if early else b""
    body = b"".join(
        (
            b"\x02\x01\x01",
            b"\x02\x02" + TLS_1_3.to_bytes(2, "big"),
            b"\x04\x02" + suite.to_bytes(2, "big"),
            b"\x04\x00",
            b"\x04" + bytes([len(key)]) + key,
            extra,
        )
    )
    text = base64.encodebytes(b"\x30" + bytes([len(body)]) + body)
    return b"-----BEGIN SSL SESSION PARAMETERS-----\n" + text + b"-----END SSL SESSION PARAMETERS-----\n"
