"""A Kerberos realm on loopback: MIT's KDC (Debian's krb5-kdc, krb5-admin-server, krb5-user) in a directory.

Its configuration, database, keytabs and credential cache are in that directory; nothing of the machine is
read or changed. :func:`realm` sets the Kerberos variables of this process, and restores them at its end.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from storagetest.errors import ClientLacks
from storagetest.lab.subprocess_util import die_with_parent
from storagetest.polling import wait_until
from storagetest.wire.rpc.kerberos import library

REALM = "STORAGE.TEST"
SERVICE, ROOT = "nfs/localhost", "root/localhost"
"""Principals: the server, and a client that servers map to uid 0."""

_PATH = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
_STARTED = 60.0
_CONFIGURATION = """
[libdefaults]
    default_realm = {realm}
    dns_lookup_kdc = false
    dns_lookup_realm = false
    dns_canonicalize_hostname = false
    rdns = false
    udp_preference_limit = 1
    default_ccache_name = FILE:{where}/cache
    ticket_lifetime = {ticket}s
[realms]
    {realm} = {{
        kdc = 127.0.0.1:{port}
    }}
[domain_realm]
    localhost = {realm}
"""
_PROFILE = """
[kdcdefaults]
    kdc_listen = 127.0.0.1:{port}
    kdc_tcp_listen = 127.0.0.1:{port}
[realms]
    {realm} = {{
        database_name = {where}/principal
        key_stash_file = {where}/stash
        acl_file = {where}/acl
        max_life = 1h
        disable_pac = true
    }}
[logging]
    kdc = FILE:{where}/kdc.log
    default = FILE:{where}/kdc.log
"""


@dataclass(frozen=True, slots=True)
class Kdc:
    """A realm: the variables with which programs use it, and the keytabs of its principals."""

    where: Path
    environment: Mapping[str, str]

    @property
    def server_keytab(self) -> Path:
        """The keytab of the service."""
        return self.where / "server.keytab"

    def add_service(self, principal: str) -> Path:
        """Add a principal with a random key; return a keytab of it alone."""
        keytab = self.where / f"{principal.replace('/', '-')}.keytab"
        _run(self.environment, "kadmin.local", "-q", f"addprinc -randkey {principal}")
        _run(self.environment, "kadmin.local", "-q", f"ktadd -k {keytab} {principal}")
        return keytab

    def add_user(self, principal: str, password: str) -> None:
        """Add a principal with a password."""
        _run(self.environment, "kadmin.local", "-q", f"addprinc -pw {password} {principal}")

    def login(self, cache: Path, *, seconds: int) -> None:
        """Put tickets of the client, valid for ``seconds``, into ``cache``."""
        keytab = self.where / "client.keytab"
        _run(
            self.environment,
            "kinit",
            "-k",
            "-t",
            str(keytab),
            "-l",
            f"{seconds}s",
            "-c",
            f"FILE:{cache}",
            ROOT,
        )


def why_not() -> str:
    """Return why there is no realm on this machine, "" if there is one."""
    programs = ("krb5kdc", "kdb5_util", "kadmin.local", "kinit")
    missing = [name for name in programs if shutil.which(name, path=_PATH) is None]
    if missing:
        return f"{', '.join(missing)}: not installed (krb5-kdc, krb5-admin-server, krb5-user; script/setup)"
    try:
        library()
    except ClientLacks as lacks:
        return str(lacks)
    return ""


@contextlib.contextmanager
def realm(*, ticket: int = 3600) -> Iterator[Kdc]:
    """Start a KDC; yield it with a client whose tickets are valid for ``ticket`` seconds."""
    with tempfile.TemporaryDirectory(prefix="kdc-") as name, contextlib.ExitStack() as stack:
        where = Path(name)
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        values = {"realm": REALM, "where": where, "port": port, "ticket": ticket}
        (where / "krb5.conf").write_text(_CONFIGURATION.format(**values))
        (where / "kdc.conf").write_text(_PROFILE.format(**values))
        kerberos = {
            "KRB5_CONFIG": str(where / "krb5.conf"),
            "KRB5_KDC_PROFILE": str(where / "kdc.conf"),
            "KRB5CCNAME": f"FILE:{where / 'cache'}",
            "KRB5_KTNAME": f"FILE:{where / 'server.keytab'}",
            "KRB5RCACHENAME": "none:",
        }
        made = Kdc(where, {**os.environ, **kerberos, "PATH": _PATH})
        _create(made)
        stack.enter_context(_running(made, port))
        made.login(where / "cache", seconds=ticket)
        stack.enter_context(_variables(kerberos))
        yield made


def _create(made: Kdc) -> None:
    password = secrets.token_hex(16)
    _run(made.environment, "kdb5_util", "create", "-s", "-r", REALM, "-P", password)
    for principal, keytab in ((SERVICE, "server.keytab"), (ROOT, "client.keytab")):
        _run(made.environment, "kadmin.local", "-q", f"addprinc -randkey {principal}")
        _run(made.environment, "kadmin.local", "-q", f"ktadd -k {made.where / keytab} {principal}")


@contextlib.contextmanager
def _running(made: Kdc, port: int) -> Iterator[None]:
    program = shutil.which("krb5kdc", path=_PATH)
    assert program is not None
    process = subprocess.Popen(
        [program, "-n", "-P", str(made.where / "pid")],
        env=made.environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        preexec_fn=die_with_parent(),  # noqa: PLW1509  # safe with threads, see there
    )  # fmt: skip
    try:
        wait_until(lambda: _listens(process, made, port), _STARTED, "krb5kdc on loopback", interval=0.05)
        yield
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _listens(process: subprocess.Popen[bytes], made: Kdc, port: int) -> bool:
    if process.poll() is not None:
        log = made.where / "kdc.log"
        text = log.read_text() if log.exists() else ""
        raise AssertionError(f"krb5kdc ended with {process.returncode}: {text[-1500:]}")
    with contextlib.suppress(OSError):
        socket.create_connection(("127.0.0.1", port), timeout=5).close()
        return True
    return False


@contextlib.contextmanager
def _variables(values: Mapping[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _run(environment: Mapping[str, str], program: str, *arguments: str) -> None:
    done = subprocess.run(
        [shutil.which(program, path=_PATH) or program, *arguments],
        env=environment, capture_output=True, text=True, timeout=120, stdin=subprocess.DEVNULL, check=False,
    )  # fmt: skip
    assert done.returncode == 0, f"{program} {' '.join(arguments)}: {done.stdout}{done.stderr}"
