"""The child process behind TLS: whatever it writes, and however it ends, dialling ends within its timeout."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from storagetest.errors import LocalProtocolError, RemoteProtocolError
from storagetest.wire.openssl_psk import PskTls

TLS = PskTls("identity", bytes(32))
WHOLE = r"CONNECTION ESTABLISHED\nProtocol version: TLSv1.3\nCiphersuite: TLS_AES_128_GCM_SHA256\n"


@pytest.fixture
def fake_openssl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Return a function that installs a shell script as ``openssl``."""

    def install(script: str) -> None:
        program = tmp_path / "openssl"
        program.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
        program.chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")

    return install


def test_connect_returns_after_the_handshake_lines(fake_openssl) -> None:
    fake_openssl(f"printf '{WHOLE}' >&2; exec cat")
    with TLS.connect("127.0.0.1", 1, 30) as tunnel:
        tunnel.settimeout(30)
        tunnel.sendall(b"echo")
        assert tunnel.recv(4) == b"echo"


@pytest.mark.parametrize("length", range(0, len(WHOLE.replace(r"\n", "n")), 7))
def test_a_child_that_exits_within_a_line_fails_the_handshake(fake_openssl, length: int) -> None:
    text = WHOLE.replace(r"\n", "\n")[:length]
    fake_openssl(f"printf '%s' '{text}' >&2; exit 0")
    with pytest.raises(RemoteProtocolError, match="TLS: the handshake failed"):
        TLS.connect("127.0.0.1", 1, 30)


def test_another_cipher_suite_fails_the_handshake(fake_openssl) -> None:
    fake_openssl(f"printf '{WHOLE.replace('128', '256')}' >&2; exec cat")
    with pytest.raises(RemoteProtocolError, match="TLS: the handshake failed"):
        TLS.connect("127.0.0.1", 1, 30)


@pytest.mark.parametrize("script", ["exec cat", "exec yes >&2"], ids=["silent", "endless output"])
def test_a_child_that_does_not_end_is_killed_after_the_timeout(fake_openssl, script: str) -> None:
    fake_openssl(script)
    with pytest.raises(RemoteProtocolError, match="TLS: the handshake is not over in time"):
        TLS.connect("127.0.0.1", 1, 0.2)


def test_more_early_data_than_a_pipe_holds_is_refused(fake_openssl) -> None:
    fake_openssl("exit 0")
    with pytest.raises(LocalProtocolError, match="do not fit into a pipe"):
        TLS.send_early_data("127.0.0.1", 1, 30, bytes(1 << 20))
