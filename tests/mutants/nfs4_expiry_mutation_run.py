"""Mutation run of a context that outlives its ticket: each server comes with new tickets for a short time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from mutation_run import MutationRun, TargetKind
from nfs4_security_mutants import EXPIRY_MUTANTS
from nfs4_security_mutation_run import KERBEROS, fault_of_next, realm
from rpc_records import splitter
from secure_nfs import SecureNfs

TICKET = 45
"""Seconds for which tickets are valid: enough to collect the suite on a busy machine (chosen)."""


@contextmanager
def serve() -> Iterator[tuple[str, int]]:
    """Start a server, and log in again; yield host and port."""
    made = realm()
    made.login(made.where / "cache", seconds=TICKET)
    with SecureNfs(fault_of_next()) as server:
        yield "127.0.0.1", server.port


def mutation_run() -> MutationRun:
    """Return the mutation run."""
    kinds = {"gss": TargetKind(KERBEROS, serve, fresh=True)}
    chosen = ("-k", "ticket_has_expired")
    return MutationRun("nfs4", EXPIRY_MUTANTS, kinds, splitter, options=chosen)
