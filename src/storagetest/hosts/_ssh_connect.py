"""Open one SSH connection: name resolution, TCP (or a channel of a jump host), key exchange, host key, login.

Name and connection share one time budget, key exchange and login another. Each step has its own error
messages, which name host, user, address and port and how to fix the problem. Exceptions of paramiko do not
leave this module.
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

_KEEPALIVE = 15
"""Seconds between keepalives, so that firewalls do not drop an idle connection (chosen)."""
_UNACKNOWLEDGED_MS = 60_000
"""Milliseconds of unacknowledged data until the kernel closes a connection (TCP_USER_TIMEOUT, tcp(7))."""
_DEFAULT_KEYS = ("id_ed25519", "id_ecdsa", "id_rsa")


class TimeBudget:
    """The seconds that the steps of one connection share."""

    def __init__(self, endpoint: Endpoint, seconds: float) -> None:
        self._endpoint = endpoint
        self._seconds = seconds
        self._end = time.monotonic() + seconds

    def left(self) -> float:
        """Return the remaining seconds. Raises :class:`Unreachable` if there are none."""
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
    failure: OSError | None = None
    for family, kind, protocol, _, address in _addresses(endpoint, budget):
        connection = socket.socket(family, kind, protocol)
        try:
            connection.settimeout(budget.left())
            connection.connect(address)
        except OSError as error:
            connection.close()
            failure = error
        else:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _UNACKNOWLEDGED_MS)
            return connection
    if failure is None or isinstance(failure, TimeoutError):
        raise budget.spent() from failure
    raise Unreachable(f"{endpoint.name}: {_connect_error(failure, endpoint.where)}") from failure


def authenticate(
    endpoint: Endpoint, stream: socket.socket | paramiko.Channel, budget: TimeBudget
) -> paramiko.Transport:
    """Start SSH on ``stream``, check the host key and log in; ``stream`` is closed if that fails."""
    transport = paramiko.Transport(stream)
    try:
        _exchange_keys(transport, endpoint, budget)
        _authenticate(transport, endpoint, budget)
        transport.set_keepalive(_KEEPALIVE)
    except BaseException:
        transport.close()
        stream.close()  # a transport that never became active does not close it
        raise
    return transport


def _addresses(endpoint: Endpoint, budget: TimeBudget) -> list[Any]:
    """Resolve the address in a thread, because getaddrinfo(3) has no timeout."""
    results: list[Any] = []

    def resolve() -> None:
        try:
            results.append(socket.getaddrinfo(endpoint.address, endpoint.port, type=socket.SOCK_STREAM))
        except (OSError, UnicodeError) as error:
            results.append(error)

    thread = threading.Thread(target=resolve, name=f"resolve {endpoint.address}", daemon=True)
    thread.start()
    thread.join(budget.left())
    if not results:
        raise budget.spent()
    if isinstance(results[0], Exception):
        reason = getattr(results[0], "strerror", None) or results[0]
        raise Unreachable(
            f"{endpoint.name}: no such host: the name of {endpoint.where} does not resolve ({reason}); "
            "check its spelling, DNS and /etc/hosts"
        ) from results[0]
    addresses: list[Any] = results[0]
    return addresses


def _connect_error(error: OSError, where: str) -> str:
    if error.errno == ECONNREFUSED:
        return f"{where} refused the connection; does sshd run there, on that port?"
    if error.errno in {EHOSTUNREACH, ENETUNREACH}:
        return f"no route to {where} ({error.strerror}); check the address and this machine's network"
    return f"cannot connect to {where}: {error.strerror or error}"


def _exchange_keys(transport: paramiko.Transport, endpoint: Endpoint, budget: TimeBudget) -> None:
    """Exchange keys with the server, and check its host key."""
    name = endpoint.address if endpoint.port == 22 else f"[{endpoint.address}]:{endpoint.port}"
    known = _known_keys(endpoint, name) if endpoint.check_host_key else []
    options = transport.get_security_options()
    preferred = [kind for key in known for kind in _algorithms(key) if kind in options.key_types]
    options.key_types = tuple(dict.fromkeys([*preferred, *options.key_types]))
    transport.banner_timeout = transport.handshake_timeout = budget.left()
    try:
        transport.start_client(timeout=budget.left())
        budget.left()
        offered = transport.get_remote_server_key()
    except (paramiko.SSHException, EOFError, OSError) as error:
        budget.left()
        raise Unreachable(
            f"{endpoint.name}: {endpoint.where} accepted the connection but did not complete the SSH "
            f"handshake ({str(error) or 'it closed the connection'}); is this the port of an sshd?"
        ) from error
    if endpoint.check_host_key and offered not in known:
        raise _unknown_host_key(endpoint, name, offered, known)


def _known_keys(endpoint: Endpoint, name: str) -> list[paramiko.PKey]:
    """Return the keys that the known_hosts files hold for ``name``; a missing file holds none."""
    keys: list[paramiko.PKey] = []
    for file in endpoint.known_hosts:
        try:
            entry = paramiko.HostKeys(str(file)).lookup(name)
        except FileNotFoundError:
            continue
        except (OSError, ValueError, paramiko.SSHException, paramiko.hostkeys.InvalidHostKey) as error:
            raise Unreachable(f"{endpoint.name}: cannot read the known hosts in {file}: {error}") from error
        keys += entry.values() if entry else []
    return keys


def _algorithms(key: paramiko.PKey) -> list[str]:
    """Return the signature algorithms for a host key, best first (RFC 8332 for RSA)."""
    name = key.get_name()
    return ["rsa-sha2-512", "rsa-sha2-256"] if name == "ssh-rsa" else [name]


def _unknown_host_key(
    endpoint: Endpoint, name: str, offered: paramiko.PKey, known: list[paramiko.PKey]
) -> Unreachable:
    files = " or ".join(map(str, endpoint.known_hosts))
    keyscan = f"ssh-keyscan -p {endpoint.port} {endpoint.address} >> {endpoint.known_hosts[0]}"
    if not known:
        return Unreachable(
            f"{endpoint.name}: the host key of {endpoint.where} is unknown: it shows "
            f"{_describe_key(offered)}, and {files} has none for {name}. "
            f"If that is its fingerprint, add it: {keyscan}"
        )
    return Unreachable(
        f"{endpoint.name}: the host key of {endpoint.where} HAS CHANGED: it shows {_describe_key(offered)}, "
        f"but {files} has {', '.join(map(_describe_key, known))} for {name}. "
        "Either the machine was reinstalled, or the connection is intercepted. In the first case: "
        f"ssh-keygen -R '{name}' -f {endpoint.known_hosts[0]}; {keyscan}"
    )


def _describe_key(key: paramiko.PKey) -> str:
    return f"{key.get_name()} {key.fingerprint}"


def _authenticate(transport: paramiko.Transport, endpoint: Endpoint, budget: TimeBudget) -> None:
    tried: list[str] = []
    accepted: list[str] = []
    failure: Exception | None = None
    for description, attempt in _credentials(endpoint):
        tried.append(description)
        transport.auth_timeout = budget.left()
        try:
            attempt(transport)
        except paramiko.BadAuthenticationType as error:
            accepted = error.allowed_types
        except paramiko.AuthenticationException:
            pass
        except (paramiko.SSHException, EOFError, OSError) as error:
            failure = error
        if transport.is_authenticated():
            return
        if not transport.is_active():
            break
    budget.left()
    offered = ", then ".join(tried) or "nothing to offer"
    msg = f"{endpoint.name}: {endpoint.where} refused the login with {offered}"
    if accepted:
        msg += f" (it accepts {', '.join(accepted)})"
    if failure is not None or not transport.is_active():
        msg += " and closed the connection"
    raise Unreachable(f"{msg}; check the user, the key and the server's authorized_keys") from failure


def _credentials(endpoint: Endpoint) -> Iterator[tuple[str, Callable[[paramiko.Transport], object]]]:
    """Yield the credentials in order, as (description, function that tries to log in)."""

    def with_key(key: paramiko.PKey) -> Callable[[paramiko.Transport], object]:
        return lambda transport: transport.auth_publickey(endpoint.user, key)

    files = endpoint.key_files
    if not files and endpoint.password is None:
        for key in _agent_keys():
            yield f"the agent's key {key.fingerprint}", with_key(key)
        files = tuple(file for kind in _DEFAULT_KEYS if (file := Path.home() / ".ssh" / kind).exists())
    password = endpoint.password
    for file in files:
        key, encrypted = _load_key(endpoint, file)
        yield f"the key {file}", with_key(key)
        if encrypted:
            password = None  # it is the key's passphrase and must not be sent to a server
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
        raise Unreachable(
            f"{endpoint.name}: cannot read the key {file} for {endpoint.where}: {error.strerror}"
        ) from error
    except (paramiko.PasswordRequiredException, TypeError):  # TypeError is cryptography's
        pass
    except Exception as error:  # paramiko's and cryptography's; some texts contain bytes of the key
        raise Unreachable(
            f"{endpoint.name}: {file} is not a usable private key ({type(error).__name__})"
        ) from None
    if endpoint.password is None:
        raise Unreachable(
            f"{endpoint.name}: the key {file} for {endpoint.where} has a passphrase; load it into ssh-agent"
        )
    try:
        return paramiko.PKey.from_path(file, endpoint.password.encode()), True  # type: ignore[arg-type]  # it is bytes
    except Exception:  # see above
        raise Unreachable(
            f"{endpoint.name}: the password given is not the passphrase of the key {file}"
        ) from None
