"""Mutation run of RPCSEC_GSS and RPC-with-TLS: a server of our own and a KDC, on loopback."""

from __future__ import annotations

import atexit
import functools
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import kdc
from mutation_run import MutationRun, TargetKind
from nfs4_security_mutants import MUTANTS, PENDING
from rpc_records import splitter
from secure_nfs import EXPORT, Fault, SecureNfs, server_context

OPTIONS: dict[str, Any] = {
    "protocol": "nfs",
    "version": "4.0",
    "export": EXPORT,
    "implementation": {"name": "secure-nfs", "version": "1"},
}
KERBEROS = {**OPTIONS, "security": "krb5p", "service_principal": "nfs@localhost"}


@functools.cache
def realm() -> kdc.Kdc:
    """Start the KDC of this process; it ends with it."""
    stack = ExitStack()
    atexit.register(stack.close)
    return stack.enter_context(kdc.realm())


@contextmanager
def serve_gss() -> Iterator[tuple[str, int]]:
    """Start a server with Kerberos; yield host and port."""
    realm()
    with SecureNfs(fault_of_next()) as server:
        yield "127.0.0.1", server.port


@contextmanager
def serve_tls() -> Iterator[tuple[str, int]]:
    """Start a server with TLS."""
    fault = fault_of_next()
    with SecureNfs(fault, tls=server_context(fault)) as server:
        yield "127.0.0.1", server.port


@contextmanager
def serve_clear() -> Iterator[tuple[str, int]]:
    """Start a server without either."""
    with SecureNfs(fault_of_next()) as server:
        yield "127.0.0.1", server.port


def fault_of_next() -> Fault:
    return PENDING.pop() if PENDING else Fault()


def mutation_run() -> MutationRun:
    """Return the mutation run."""
    kinds = {
        "gss": TargetKind(KERBEROS, serve_gss, fresh=True),
        "tls": TargetKind(OPTIONS, serve_tls, fresh=True),
        "clear": TargetKind(OPTIONS, serve_clear, fresh=True),
    }
    modules = {"gss": "test_[gw][sr]*.py", "tls": "test_tls.py", "clear": "test_tls.py"}
    return MutationRun("nfs4", MUTANTS, kinds, splitter, modules=modules, timeout=1.0)
