"""Mutation run of restarts: NFS-Ganesha on loopback, which a command restarts, with a short grace period."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from ganesha import EXPORT, Ganesha, ganesha
from mutation_run import MutationRun, TargetKind
from nfs4_mutants import RESTART_MUTANTS
from nfs4_restart_mutants import GRACE
from rpc_records import splitter

SELECTED = "test_restart and not NFS42"
"""Minor version 2 has the rules of 1, and a restart takes long."""

_running: dict[int, Ganesha] = {}


@contextmanager
def serve() -> Iterator[tuple[str, int]]:
    """Start NFS-Ganesha; yield host and port."""
    with ganesha(lease=GRACE, grace=GRACE) as server:
        _running[server.nfs] = server
        yield "127.0.0.1", server.nfs


def controls(port: int) -> Mapping[str, Any]:
    """Return the controls of the server at ``port``."""
    return {"restart": list(_running[port].restart)}


def mutation_run() -> MutationRun:
    """Return the mutation run."""
    options = {
        "protocol": "nfs",
        "version": "4.2",
        "export": EXPORT,
        "implementation": {"name": "nfs-ganesha", "version": "4.3"},  # that of Debian 12
    }
    kinds = {"restart": TargetKind(options, serve, controls=controls)}
    return MutationRun("nfs4", RESTART_MUTANTS, kinds, splitter, timeout=2.0, options=("-k", SELECTED))
