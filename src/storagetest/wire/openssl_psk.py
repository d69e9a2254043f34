"""TLS 1.3 with an external pre-shared key: ``openssl s_client`` as a child process behind a socket pair.

Why: Python's ssl has no callback for external PSKs before 3.13, and from 3.13 only for SHA-256. Packages that
add one support only TLS 1.2 on older Pythons. OpenSSL's program supports both hashes with every Python.

Rules:

1. The key is never in an argument or in a file: the child reads it from a pipe (``-psk_session /dev/fd/N``,
   an SSL_SESSION in OpenSSL's PEM format). With ``-psk``, ``ps`` would show it.
2. :meth:`PskTls.connect` returns after the handshake, or raises within its deadline, also if the child exits
   in the middle of a line or never stops writing. It requests and verifies TLS 1.3 and the one cipher suite.
3. No early data is ever sent (0-RTT: NVMe/TCP 3.6.1.6 forbids it).
4. Closing the socket ends the child and waits for it, so that no process is left. Every wait has a timeout.
"""

from __future__ import annotations

import base64
import contextlib
import os
import re
import select
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

from storagetest.errors import ConfigError, LocalProtocolError, RemoteProtocolError, TargetDead

TLS_1_3 = 0x0304
_ESTABLISHED = re.compile(rb"^CONNECTION ESTABLISHED\n(?:.*\n)*?Ciphersuite: (.*)\n", re.MULTILINE)
"""What ``s_client -brief`` writes to stderr after the handshake: whole lines, with the cipher suite."""
_EXIT_TIMEOUT = 2.0
"""Seconds for the child to close its connection and exit; the same again after SIGKILL (chosen)."""


@dataclass(frozen=True, slots=True)
class PskTls:
    """A pre-shared key with its ``identity`` and its one cipher ``suite`` (OpenSSL's name and its number)."""

    identity: str
    key: bytes = field(repr=False)
    suite: str = "TLS_AES_128_GCM_SHA256"
    number: int = 0x1301

    def argv(self, program: str, address: str, port: int, session: int) -> list[str]:
        """Return the command line; ``session`` is the descriptor from which the child reads the key."""
        peer = f"[{address}]:{port}" if ":" in address else f"{address}:{port}"
        argv = [program, "s_client", "-connect", peer, "-tls1_3", "-ciphersuites", self.suite]
        argv += ["-psk_identity", self.identity, "-psk_session", f"/dev/fd/{session}"]
        return [*argv, "-brief", "-nocommands", "-no_ign_eof"]

    def connect(self, address: str, port: int, deadline: float) -> socket.socket:
        """Connect, run the TLS handshake and return a socket that carries the plain data.

        Raises :class:`TargetDead` if the TCP connection is refused, :class:`RemoteProtocolError` if the
        handshake fails or takes longer than ``deadline`` seconds, :class:`ConfigError` without OpenSSL.
        """
        program = _openssl()
        until = time.monotonic() + deadline
        with contextlib.ExitStack() as stack:
            own_end, child_end = (stack.enter_context(end) for end in socket.socketpair())
            session = stack.enter_context(_pipe(psk_session(self.key, self.number)))
            child = subprocess.Popen(
                self.argv(program, address, port, session),
                stdin=child_end.fileno(),
                stdout=child_end.fileno(),
                stderr=subprocess.PIPE,
                pass_fds=(session,),
            )
            tunnel = _ChildSocket(own_end, child, (address, port))
        try:
            self._check(_handshake(child, until), f"{address}:{port}", late=time.monotonic() >= until)
        except BaseException:
            tunnel.close()
            raise
        return tunnel

    def send_early_data(self, address: str, port: int, deadline: float, data: bytes) -> str:
        """Send ``data`` as early data (0-RTT); return ``accepted``, ``rejected`` or ``not sent``.

        Raises :class:`RemoteProtocolError` if the handshake fails or the deadline passes.
        """
        program = _openssl()
        with _pipe(psk_session(self.key, self.number, early=len(data))) as session, _pipe(data) as early_data:
            argv = [arg for arg in self.argv(program, address, port, session) if arg != "-brief"]
            try:
                result = subprocess.run(
                    [*argv, "-early_data", f"/dev/fd/{early_data}"],
                    stdin=subprocess.DEVNULL,
                    capture_output=True,
                    pass_fds=(session, early_data),
                    timeout=deadline,
                    check=False,
                )
            except subprocess.TimeoutExpired:
                raise _handshake_error(f"{address}:{port}", b"", late=True) from None
        _, separator, rest = result.stdout.partition(b"Early data was ")
        if not separator or b"TLSv1.3, Cipher is " not in result.stdout:
            raise _handshake_error(f"{address}:{port}", result.stderr, late=False)
        return rest.partition(b"\n")[0].decode("ascii", "replace").strip()

    def _check(self, output: bytes, peer: str, *, late: bool) -> None:
        established = _ESTABLISHED.search(output)
        if established is None or established[1] != self.suite.encode():
            raise _handshake_error(peer, output, late=late)


class _ChildSocket(socket.socket):
    """The caller's end of the pair: it returns its real peer, and ends the child when it is closed."""

    def __init__(self, own_end: socket.socket, child: subprocess.Popen[bytes], peer: tuple[str, int]) -> None:
        super().__init__(fileno=own_end.detach())
        self._child, self._peer = child, peer

    def getpeername(self) -> tuple[str, int]:
        return self._peer

    def close(self) -> None:
        """Close the socket and wait for the child to exit. Safe to call twice."""
        super().close()
        try:
            self._child.wait(_EXIT_TIMEOUT)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait(_EXIT_TIMEOUT)
        finally:
            if self._child.stderr:
                self._child.stderr.close()


def _openssl() -> str:
    program = shutil.which("openssl")
    if program is None:
        raise ConfigError("TLS: openssl is not installed on this machine. Install it to run the TLS cases.")
    return program


def _handshake(child: subprocess.Popen[bytes], until: float) -> bytes:
    """Return the child's stderr until the handshake is complete, the child exits, or ``until`` has passed."""
    assert child.stderr is not None
    output = b""
    while not _ESTABLISHED.search(output) and (remaining := until - time.monotonic()) > 0:
        ready, _, _ = select.select([child.stderr], [], [], remaining)
        data = os.read(child.stderr.fileno(), 4096) if ready else b""
        if not data:
            break
        output += data
    return output


def _handshake_error(peer: str, output: bytes, *, late: bool) -> Exception:
    lines = [line for line in output.decode("utf-8", "replace").splitlines() if line.strip()]
    if any("connect:errno" in line or "Connection refused" in line for line in lines):
        return TargetDead(f"{peer}: cannot connect: {lines[-1]}")
    reason = "the handshake is not over in time" if late else "the handshake failed"
    errors = [line for line in lines if "alert" in line or "error" in line]
    return RemoteProtocolError(f"{peer}: TLS: {reason}: {(errors or lines or ['openssl wrote nothing'])[0]}")


@contextlib.contextmanager
def _pipe(data: bytes) -> Iterator[int]:
    """Yield a descriptor from which ``data`` can be read once.

    Raises :class:`LocalProtocolError` for more than PIPE_BUF bytes, because the write could block.
    """
    if len(data) > select.PIPE_BUF:
        raise LocalProtocolError(f"TLS: {len(data)} bytes do not fit into a pipe of {select.PIPE_BUF}")
    reader, writer = os.pipe()
    try:
        with os.fdopen(writer, "wb") as file:
            file.write(data)
        yield reader
    finally:
        os.close(reader)


def psk_session(key: bytes, suite: int, *, early: int = 0) -> bytes:
    """Return an SSL_SESSION in PEM for ``-psk_session``: TLS 1.3, a cipher suite, the key.

    The layout is OpenSSL's own (SSL_SESSION_ASN1): version 1, protocol, cipher, an empty session id, key, and
    in [15] the largest number of bytes of ``early`` data.
    """
    number = early.to_bytes(early.bit_length() // 8 + 1, "big")  # DER: the shortest form, and not negative
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
