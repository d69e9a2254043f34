"""Opening one SSH connection: name, TCP (or a channel of a jump host), key exchange, host key, login.

Each step draws on one budget of time and has errors of its own, worded for a person: one sentence that names
host, user, address and port, and what to do. No exception of paramiko's leaves this module.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from errno import ECONNREFUSED, EHOSTUNREACH, ENETUNREACH
from pathlib import Path
from typing import Any

from storagetest.hosts._paramiko import paramiko
from storagetest.hosts._ssh_settings import Endpoint
from storagetest.hosts._supervised_host import Unreachable

__all__ = ["TimeBudget", "authenticate", "tcp_connect"]

_KEEPALIVE = 15
"""Seconds between keepalives, so that no firewall forgets an idle connection."""
_UNACKNOWLEDGED_MS = 60_000
"""Milliseconds after which the kernel gives up a connection whose data nobody acknowledges (tcp(7))."""
_USUAL_KEYS = ("id_ed25519", "id_ecdsa", "id_rsa")


class TimeBudget:
    """The seconds that the steps of one connection share."""

    def __init__(self, endpoint: Endpoint, seconds: float) -> None:
        self._endpoint = endpoint
        self._seconds = seconds
        self._end = time.monotonic() + seconds

    def left(self) -> float:
        """Return the seconds that remain; :class:`Unreachable` when none do."""
        left = self._end - time.monotonic()
        if left <= 0:
            raise self.spent()
        return left

    def spent(self) -> Unreachable:
        """Return the error for a host that did not answer in time."""
        return Unreachable(
            f"{self._endpoint.name}: {self._endpoint.where} did not answer within {self._seconds:g} s; "
            "is it up, and does a firewall let SSH through?"
        )


def tcp_connect(endpoint: Endpoint, budget: TimeBudget) -> socket.socket:
    """Connect to ``endpoint`` by TCP."""
    wrong: OSError | None = None
    for family, kind, protocol, _, address in _addresses(endpoint, budget):
        connection = socket.socket(family, kind, protocol)
        try:
            connection.settimeout(budget.left())
            connection.connect(address)
        except OSError as error:
            connection.close()
            wrong = error
        else:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _UNACKNOWLEDGED_MS)
            return connection
    if wrong is None or isinstance(wrong, TimeoutError):
        raise budget.spent() from wrong
    raise Unreachable(f"{endpoint.name}: {_why_not(wrong, endpoint.where)}") from wrong


def authenticate(
    endpoint: Endpoint, line: socket.socket | paramiko.Channel, budget: TimeBudget
) -> paramiko.Transport:
    """Speak SSH over ``line``, check the host's key and log in; ``line`` is closed if that fails."""
    transport = paramiko.Transport(line)
    try:
        _exchange_keys(transport, endpoint, budget)
        _authenticate(transport, endpoint, budget)
        transport.set_keepalive(_KEEPALIVE)
    except BaseException:
        transport.close()
        line.close()  # which a transport that never became active leaves open
        raise
    return transport


def _addresses(endpoint: Endpoint, budget: TimeBudget) -> list[Any]:
    """Resolve the address, beside us in a thread: getaddrinfo(3) has no time-out."""
    answer: list[Any] = []

    def ask() -> None:
        try:
            answer.append(socket.getaddrinfo(endpoint.address, endpoint.port, type=socket.SOCK_STREAM))
        except (OSError, UnicodeError) as error:
            answer.append(error)

    thread = threading.Thread(target=ask, name=f"resolve {endpoint.address}", daemon=True)
    thread.start()
    thread.join(budget.left())
    if not answer:
        raise budget.spent()
    if isinstance(answer[0], Exception):
        why = getattr(answer[0], "strerror", None) or answer[0]
        msg = (
            f"{endpoint.name}: no such host: the name of {endpoint.where} does not resolve ({why}); "
            "check its spelling, DNS and /etc/hosts"
        )
        raise Unreachable(msg) from answer[0]
    found: list[Any] = answer[0]
    return found


def _why_not(error: OSError, where: str) -> str:
    if error.errno == ECONNREFUSED:
        return f"{where} refused the connection; does sshd run there, on that port?"
    if error.errno in {EHOSTUNREACH, ENETUNREACH}:
        return f"no route to {where} ({error.strerror}); check the address and this machine's network"
    return f"cannot connect to {where}: {error.strerror or error}"


def _exchange_keys(transport: paramiko.Transport, endpoint: Endpoint, budget: TimeBudget) -> None:
    """Agree on keys with the server, and make sure that it is the one we know."""
    name = endpoint.address if endpoint.port == 22 else f"[{endpoint.address}]:{endpoint.port}"
    known = _known_keys(endpoint, name) if endpoint.check_host_key else []
    options = transport.get_security_options()
    wanted = [kind for key in known for kind in _algorithms(key) if kind in options.key_types]
    options.key_types = tuple(dict.fromkeys([*wanted, *options.key_types]))
    transport.banner_timeout = transport.handshake_timeout = budget.left()
    try:
        transport.start_client(timeout=budget.left())
        budget.left()
        offered = transport.get_remote_server_key()
    except (paramiko.SSHException, EOFError, OSError) as error:
        budget.left()
        msg = (
            f"{endpoint.name}: {endpoint.where} took the connection but did not speak SSH to its end "
            f"({str(error) or 'it hung up'}); is this the port of an sshd?"
        )
        raise Unreachable(msg) from error
    if endpoint.check_host_key and offered not in known:
        raise _stranger(endpoint, name, offered, known)


def _known_keys(endpoint: Endpoint, name: str) -> list[paramiko.PKey]:
    """Return the keys that the known_hosts files hold for ``name``; a missing file holds none."""
    keys: list[paramiko.PKey] = []
    for file in endpoint.known_hosts:
        try:
            found = paramiko.HostKeys(str(file)).lookup(name)
        except FileNotFoundError:
            continue
        except (OSError, ValueError, paramiko.SSHException, paramiko.hostkeys.InvalidHostKey) as error:
            msg = f"{endpoint.name}: cannot read the known hosts in {file}: {error}"
            raise Unreachable(msg) from error
        keys += found.values() if found else []
    return keys


def _algorithms(key: paramiko.PKey) -> list[str]:
    """Return the signature algorithms for a host key, best first (RFC 8332 for RSA)."""
    name = key.get_name()
    return ["rsa-sha2-512", "rsa-sha2-256"] if name == "ssh-rsa" else [name]


def _stranger(
    endpoint: Endpoint, name: str, offered: paramiko.PKey, known: list[paramiko.PKey]
) -> Unreachable:
    files = " or ".join(map(str, endpoint.known_hosts))
    keyscan = f"ssh-keyscan -p {endpoint.port} {endpoint.address} >> {endpoint.known_hosts[0]}"
    if not known:
        return Unreachable(
            f"{endpoint.name}: the host key of {endpoint.where} is unknown: it shows "
            f"{_described(offered)}, and {files} has none for {name}. "
            f"If that is its fingerprint, add it: {keyscan}"
        )
    return Unreachable(
        f"{endpoint.name}: the host key of {endpoint.where} HAS CHANGED: it shows {_described(offered)}, "
        f"but {files} has {', '.join(map(_described, known))} for {name}. "
        "Either the machine was installed anew, "
        "or somebody stands in between. In the first case: "
        f"ssh-keygen -R '{name}' -f {endpoint.known_hosts[0]}; {keyscan}"
    )


def _described(key: paramiko.PKey) -> str:
    return f"{key.get_name()} {key.fingerprint}"


def _authenticate(transport: paramiko.Transport, endpoint: Endpoint, budget: TimeBudget) -> None:
    tried: list[str] = []
    taken: list[str] = []
    broken: Exception | None = None
    for what, attempt in _credentials(endpoint):
        tried.append(what)
        transport.auth_timeout = budget.left()
        try:
            attempt(transport)
        except paramiko.BadAuthenticationType as error:
            taken = error.allowed_types
        except paramiko.AuthenticationException:
            pass
        except (paramiko.SSHException, EOFError, OSError) as error:
            broken = error
        if transport.is_authenticated():
            return
        if not transport.is_active():
            break
    budget.left()
    offered = ", then ".join(tried) or "nothing to offer"
    msg = f"{endpoint.name}: {endpoint.where} refused the login with {offered}"
    if taken:
        msg += f" (it takes {', '.join(taken)})"
    if broken is not None or not transport.is_active():
        msg += " and hung up"
    raise Unreachable(f"{msg}; check the user, the key and the server's authorized_keys") from broken


def _credentials(endpoint: Endpoint) -> Iterator[tuple[str, Callable[[paramiko.Transport], object]]]:
    """What to log in with, as (what to call it, the attempt), in order."""

    def with_key(key: paramiko.PKey) -> Callable[[paramiko.Transport], object]:
        return lambda transport: transport.auth_publickey(endpoint.user, key)

    files = endpoint.key_files
    if not files and endpoint.password is None:
        for key in _agent_keys():
            yield f"the agent's key {key.fingerprint}", with_key(key)
        files = tuple(file for kind in _USUAL_KEYS if (file := Path.home() / ".ssh" / kind).exists())
    password = endpoint.password
    for file in files:
        key, encrypted = _load_key(endpoint, file)
        yield f"the key {file}", with_key(key)
        if encrypted:
            password = None  # it was the key's passphrase, and that is nothing to show to a server
    if password is not None:
        yield "a password", lambda transport: transport.auth_password(endpoint.user, password)


def _agent_keys() -> tuple[paramiko.PKey, ...]:
    if "SSH_AUTH_SOCK" not in os.environ:
        return ()
    try:
        return paramiko.Agent().get_keys()
    except (paramiko.SSHException, OSError):
        return ()


def _load_key(endpoint: Endpoint, file: Path) -> tuple[paramiko.PKey, bool]:
    """Return the private key in ``file``, and whether the password was its passphrase."""
    try:
        return paramiko.PKey.from_path(file), False
    except OSError as error:
        msg = f"{endpoint.name}: cannot read the key {file} for {endpoint.where}: {error.strerror}"
        raise Unreachable(msg) from error
    except (paramiko.PasswordRequiredException, TypeError):  # the latter is cryptography's
        pass
    except (
        Exception
    ) as error:  # of many kinds, by paramiko and cryptography; some texts hold bytes of the key
        msg = f"{endpoint.name}: {file} is no private key that can be used ({type(error).__name__})"
        raise Unreachable(msg) from None
    if endpoint.password is None:
        msg = f"{endpoint.name}: the key {file} for {endpoint.where} has a passphrase; load it into ssh-agent"
        raise Unreachable(msg)
    try:
        return paramiko.PKey.from_path(file, endpoint.password.encode()), True  # type: ignore[arg-type]  # it is bytes
    except Exception:  # see above
        msg = f"{endpoint.name}: the password given is not the passphrase of the key {file}"
        raise Unreachable(msg) from None
