"""The mutation run of sessions that expire: smbd with Kerberos, and a KDC whose tickets are short."""

import atexit
import functools
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import kdc
from mutation_run import MutationRun, TargetKind
from smb2_expiry_mutants import MUTANTS
from smbd import PASSWORD, SHARE, account, smbd, version

TICKET = 5
"""Seconds of a ticket: each case waits for its end, and even a loaded machine sets a session up before it."""


@functools.cache
def realm() -> tuple[kdc.Kdc, Path]:
    """Start the KDC of this process, which ends with it; return it and the keytab of the servers."""
    stack = ExitStack()
    atexit.register(stack.close)
    made = stack.enter_context(kdc.realm(ticket=TICKET))
    made.add_user(account().pw_name, PASSWORD)
    return made, made.add_service("cifs/localhost")


@contextmanager
def serve() -> Iterator[tuple[str, int]]:
    with smbd(realm=kdc.REALM, keytab=realm()[1]) as server:
        yield server.address, server.port


def mutation_run() -> MutationRun:
    """Return the mutation run."""
    options = {
        "protocol": "smb",
        "share": SHARE,
        "username": account().pw_name,
        "password": PASSWORD,
        "kerberos": "localhost",
        "implementation": {"name": "samba", "version": version()},
    }
    kinds = {"kerberos": TargetKind(options, serve)}
    modules = {"kerberos": "test_expiry.py"}
    return MutationRun("smb2", MUTANTS, kinds, lambda _from_target: lambda data: [data], modules=modules)
