"""TLS over NVMe/TCP: keys and names by published vectors, and the handshake against a real TLS 1.3 server."""

import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from suite_runs import run_suite

from storagetest.errors import ConfigError, RemoteProtocolError, TargetDead
from storagetest.wire.nvme_tcp.session import ControllerSession, Identity, SubsystemEndpoint
from storagetest.wire.nvme_tcp.tls import ConfiguredPsk, PskHash, TlsKey, retained_psk, tls_key, tls_psk
from storagetest.wire.openssl_psk import PskTls, psk_session

sys.path.insert(0, str(Path(__file__).parents[1] / "controllers"))

from nvme_tcp_server import NQN, Server
from tls_terminator import TlsTerminator

# The example of NVMe/TCP 3.6.1.5, and libnvme's vectors (test/psk.c): identities of version 1.
KEY32 = bytes.fromhex("5512DBB6737D0106F65975B773DFB011FFC344BCF442E2DD6D8BC4870B5D5B03")
KEY48 = KEY32 + KEY32[16:]
HOST, SUBSYSTEM = "nqn.psk-test-host", "nqn.psk-test-subsys"
WRITTEN = [
    (KEY32, None, "NVMeTLSkey-1:00:VRLbtnN9AQb2WXW3c9+wEf/DRLz0QuLdbYvEhwtdWwNf9LrZ:"),
    (KEY32, PskHash.SHA256, "NVMeTLSkey-1:01:VRLbtnN9AQb2WXW3c9+wEf/DRLz0QuLdbYvEhwtdWwNf9LrZ:"),
    (
        KEY48,
        PskHash.SHA384,
        "NVMeTLSkey-1:02:VRLbtnN9AQb2WXW3c9+wEf/DRLz0QuLdbYvEhwtdWwP/w0S89ELi3W2LxIcLXVsDn8kXZQ==:",
    ),
]
DIGESTS = [
    (KEY32, PskHash.SHA256, "iSbjiStwJ/1TrTvDlt2fjFmzvsytOJelidNnA+X5lEU="),
    (KEY48, PskHash.SHA384, "QhW2+Rp6RzHlNtCslyRxMnwJ11tKKhz8JCAQpQ+XUD8f9td1VeH5h53yz2wKJG1a"),
]


@pytest.mark.parametrize(("key", "psk_hash", "text"), WRITTEN)
def test_a_configured_psk_is_read_and_written(key: bytes, psk_hash: PskHash | None, text: str) -> None:
    psk = ConfiguredPsk.decode(text)
    assert (psk.key, psk.hash, psk.encode()) == (key, psk_hash, text)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("NVMeTLSkey-2:01:AAAA:", "has the form NVMeTLSkey-1"),
        ("NVMeTLSkey-1:01:VRLb", "has the form NVMeTLSkey-1"),
        (WRITTEN[1][2] + ":", "has the form NVMeTLSkey-1"),
        (WRITTEN[1][2].replace(":01:", ":03:"), "hash is 00, 01 or 02"),
        ("NVMeTLSkey-1:01:!!!!:", "not Base64"),
        ("NVMeTLSkey-1:01:AAAAAAAA:", "32 or 48 bytes"),
        (WRITTEN[1][2].replace("VRLb", "VRLc"), "CRC-32 does not match"),
    ],
)
def test_an_invalid_configured_psk_raises_without_showing_the_key(text: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why) as caught:
        ConfiguredPsk.decode(text)
    assert "tnN9AQb2" not in str(caught.value)


@pytest.mark.parametrize(("key", "psk_hash", "digest"), DIGESTS)
def test_identities_of_version_1_are_libnvmes(key: bytes, psk_hash: PskHash, digest: str) -> None:
    made = tls_key(ConfiguredPsk(key, psk_hash), HOST, SUBSYSTEM, psk_hash=psk_hash, version=1)
    assert made.identity == f"NVMe1R{psk_hash.specifier} {HOST} {SUBSYSTEM} {digest}"


def test_the_identity_of_the_standards_example() -> None:
    host = "nqn.2014-08.org.nvmexpress:uuid:f81d4fae-7dec-11d0-a765-00a0c91e6bf6"
    subsystem = "nqn.2014-08.org.nvmexpress:uuid:36ebf5a9-1df9-47b3-a6d0-e9ba32e428a2"
    made = tls_key(ConfiguredPsk(KEY32, PskHash.SHA256), host, subsystem)
    assert made.identity == f"NVMe0R01 {host} {subsystem}"
    assert KEY32.hex() not in repr(made)
    assert made.key.hex() not in repr(made)


def hkdf(key: bytes, label: str, context: str, length: int, digest: str) -> str:
    """HKDF by OpenSSL's own implementation (openssl-kdf(1)), with RFC 8446's HkdfLabel spelled out."""
    full = f"tls13 {label}".encode()
    info = length.to_bytes(2, "big") + bytes([len(full)]) + full + bytes([len(context)]) + context.encode()
    argv = ["openssl", "kdf", "-keylen", str(length), "-kdfopt", f"digest:{digest}"]
    argv += ["-kdfopt", f"hexkey:{key.hex()}", "-kdfopt", f"hexinfo:{info.hex()}", "HKDF"]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=30, check=True)
    return done.stdout.strip().replace(":", "").lower()


@pytest.mark.parametrize(("key", "psk_hash"), [(KEY32, PskHash.SHA256), (KEY48, PskHash.SHA384)])
def test_derived_keys_are_openssls(key: bytes, psk_hash: PskHash) -> None:
    retained = retained_psk(ConfiguredPsk(key, psk_hash), HOST)
    assert retained.hex() == hkdf(key, "HostNQN", HOST, len(key), psk_hash.algorithm)
    name = f"NVMe0R{psk_hash.specifier} {HOST} {SUBSYSTEM}"
    wanted = hkdf(retained, "nvme-tls-psk", name, psk_hash.size, psk_hash.algorithm)
    assert tls_psk(retained, name, psk_hash).hex() == wanted


def test_a_retained_psk_is_used_unchanged() -> None:
    assert retained_psk(ConfiguredPsk(KEY32), HOST) == KEY32


# The handshake


def dial(key: TlsKey) -> PskTls:
    return PskTls(key.identity, key.key, key.hash.suite, key.hash.number)


def made(
    psk_hash: PskHash = PskHash.SHA256, *, key: bytes = KEY32, subnqn: str = NQN
) -> tuple[Identity, TlsKey]:
    name = Identity("nqn.2014-08.org.nvmexpress:uuid:f81d4fae-7dec-11d0-a765-00a0c91e6bf6", bytes(15) + b"\1")
    return name, tls_key(ConfiguredPsk(key, PskHash.SHA256), name.nqn, subnqn, psk_hash=psk_hash)


@pytest.fixture
def controller() -> Iterator[Server]:
    with Server() as server:
        yield server


@pytest.mark.parametrize("psk_hash", list(PskHash))
def test_a_session_over_tls(controller: Server, psk_hash: PskHash) -> None:
    name, key = made(psk_hash)
    with TlsTerminator(key, controller.port) as front:
        where = SubsystemEndpoint("127.0.0.1", front.listens, NQN, connector=dial(key).connect)
        with ControllerSession.connect(where, identity=name) as session:
            assert session.namespaces() == [1, 2]
            assert session.io_queue().icresp.maxh2cdata
            assert session.admin.link.peer == f"127.0.0.1:{front.listens}"


@pytest.mark.parametrize("wrong", ["psk", "identity"])
def test_a_wrong_psk_or_identity_is_refused_in_the_handshake(controller: Server, wrong: str) -> None:
    _, key = made()
    other = made(key=KEY32[::-1])[1] if wrong == "psk" else made(subnqn="nqn.another")[1]
    refused = pytest.raises(RemoteProtocolError, match=r"TLS: the handshake failed: .*alert")
    with TlsTerminator(key, controller.port) as front, refused:
        dial(other).connect("127.0.0.1", front.listens, 10.0)
    assert not controller.subsystem.controllers, "no Connect came through"


@pytest.mark.parametrize(("early", "result"), [(0, "rejected"), (4096, "accepted")])
def test_send_early_data_returns_whether_it_was_accepted(controller: Server, early: int, result: str) -> None:
    _, key = made()
    with TlsTerminator(key, controller.port, early=early) as front:
        assert dial(key).send_early_data("127.0.0.1", front.listens, 10.0, bytes(128)) == result


def test_a_server_without_tls_fails_the_handshake(controller: Server) -> None:
    with pytest.raises(RemoteProtocolError, match="TLS: the handshake failed"):
        dial(made()[1]).connect("127.0.0.1", controller.port, 10.0)


def test_a_silent_server_times_out() -> None:
    late = pytest.raises(RemoteProtocolError, match="the handshake is not over in time")
    with socket.create_server(("127.0.0.1", 0)) as silent, late:
        dial(made()[1]).connect("127.0.0.1", silent.getsockname()[1], 0.5)


def test_a_closed_port_raises_target_dead() -> None:
    with socket.create_server(("127.0.0.1", 0)) as gone:
        port = gone.getsockname()[1]
    with pytest.raises(TargetDead, match="cannot connect"):
        dial(made()[1]).connect("127.0.0.1", port, 10.0)


def test_connect_without_openssl_raises_config_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda _: None)
    with pytest.raises(ConfigError, match="openssl is not installed"):
        dial(made()[1]).connect("127.0.0.1", 1, 1.0)


def test_no_process_is_left_and_none_shows_the_key(controller: Server) -> None:
    name, key = made()
    before = children()
    with TlsTerminator(key, controller.port) as front:
        where = SubsystemEndpoint("127.0.0.1", front.listens, NQN, connector=dial(key).connect)
        with ControllerSession.connect(where, identity=name):
            running = {line for pid in children() - before if "s_client" in (line := command(pid))}
            assert running
            secrets = (key.key.hex(), KEY32.hex(), psk_session(key.key, 0x1301).decode().splitlines()[1])
            assert not [line for line in running for secret in secrets if secret.lower() in line.lower()]
        assert not [pid for pid in children() - before if "s_client" in command(pid)]
    assert children() == before


def children() -> set[int]:
    """Return the processes below this one, ended but not waited for among them."""
    found = Path(f"/proc/self/task/{os.getpid()}/children").read_text(encoding="ascii")
    more = [
        path.read_text(encoding="ascii")
        for path in Path("/proc/self/task").glob("*/children")
        if path.parent.name != str(os.getpid())
    ]
    return {int(pid) for text in (found, *more) for pid in text.split()}


def command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except FileNotFoundError:
        return ""


# The suite's cases, run by pytest


CASES = {
    "NVT-TLS-SHA256",
    "NVT-TLS-SHA384",
    "NVT-TLS-PSK-WRONG",
    "NVT-TLS-IDENTITY-HOST",
    "NVT-TLS-IDENTITY-SUBSYSTEM",
    "NVT-TLS-EARLY-DATA",
    "NVT-TLS-CLEAR",
}


def suite(where: Path, port: int, name: Identity) -> dict[str, str]:
    """Run the suite on a target with ``tls_key``; return every case's outcome."""
    key = where / "key"
    key.write_text(WRITTEN[1][2], encoding="ascii")
    target = {"protocol": "nvme-tcp", "address": "127.0.0.1", "port": port, "nqn": NQN, "host_nqn": name.nqn}
    cases = run_suite({"second": target | {"tls_key": f"${{file:{key}}}"}}, where, "nvme_tcp")
    return {one["id"]: one["outcome"] for one in cases}


def test_the_suites_tls_cases(controller: Server, tmp_path: Path) -> None:
    name, key = made()
    with TlsTerminator(key, controller.port) as front:
        outcomes = suite(tmp_path, front.listens, name)
    # This front has one key, of SHA-256; another hash is a SHOULD.
    wanted = dict.fromkeys(CASES, "passed") | {"NVT-TLS-SHA384": "warned", "NVT-TLS-CLEAR": "observed"}
    assert outcomes == wanted


def erring(case: str) -> TlsKey:
    """Return the key of a server that accepts what the case requires it to refuse."""
    name, key = made()
    if case == "NVT-TLS-PSK-WRONG":
        return made(key=bytes(byte ^ 0x5A for byte in KEY32))[1]
    if case == "NVT-TLS-IDENTITY-SUBSYSTEM":
        return made(subnqn="nqn.2024-01.org.example:no-such")[1]
    stranger = "nqn.2014-08.org.nvmexpress:uuid:00000000-0000-4000-8000-000000000001"
    return replace(key, identity=key.identity.replace(name.nqn, stranger))


@pytest.mark.parametrize("case", ["NVT-TLS-PSK-WRONG", "NVT-TLS-IDENTITY-HOST", "NVT-TLS-IDENTITY-SUBSYSTEM"])
def test_a_server_that_accepts_a_wrong_psk_or_identity_fails_the_case(
    controller: Server, tmp_path: Path, case: str
) -> None:
    with TlsTerminator(erring(case), controller.port) as front:
        assert suite(tmp_path, front.listens, made()[0])[case] == "failed"


def test_a_server_that_accepts_early_data_fails_the_case(controller: Server, tmp_path: Path) -> None:
    name, key = made()
    with TlsTerminator(key, controller.port, early=4096) as front:
        assert suite(tmp_path, front.listens, name)["NVT-TLS-EARLY-DATA"] == "failed"


def test_a_server_without_tls_fails_the_cases(controller: Server, tmp_path: Path) -> None:
    outcomes = suite(tmp_path, controller.port, made()[0])
    assert outcomes["NVT-TLS-SHA256"] == "failed"
    assert outcomes["NVT-TLS-EARLY-DATA"] == "failed"
