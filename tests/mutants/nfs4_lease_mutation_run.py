"""Mutation run of leases: NFS-Ganesha on loopback with a short lease."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ganesha import EXPORT, ganesha
from mutation_run import MutationRun, TargetKind
from nfs4_lease_mutants import LEASE
from nfs4_mutants import LEASE_MUTANTS
from rpc_records import splitter


@contextmanager
def serve() -> Iterator[tuple[str, int]]:
    """Start NFS-Ganesha; yield host and port."""
    with ganesha(lease=LEASE) as server:
        yield "127.0.0.1", server.nfs


def mutation_run() -> MutationRun:
    """Return the mutation run."""
    options = {
        "protocol": "nfs",
        "version": "4.2",
        "export": EXPORT,
        "implementation": {"name": "nfs-ganesha", "version": "4.3"},  # that of Debian 12
    }
    kinds = {"lease": TargetKind(options, serve)}
    return MutationRun("nfs4", LEASE_MUTANTS, kinds, splitter, timeout=2.0, options=("-k", "test_lease"))
