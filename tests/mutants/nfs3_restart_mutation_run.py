"""Mutation run of restarts: NFS-Ganesha on loopback, which a command restarts, with a short grace period."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from ganesha import EXPORT, Ganesha, ganesha
from ganesha_front import GaneshaFront
from mutation_run import MutationRun, TargetKind
from nfs3_mutants import RESTART_MUTANTS
from nfs3_restart_mutants import GRACE
from rpc_records import splitter

_running: dict[int, Ganesha] = {}


@contextmanager
def serve() -> Iterator[tuple[str, int]]:
    """Start NFS-Ganesha with a front; yield host and port."""
    with ganesha(lease=GRACE, grace=GRACE) as server, GaneshaFront(server) as front:
        _running[front.port] = server
        yield "127.0.0.1", front.port


def controls(port: int) -> Mapping[str, Any]:
    """Return the controls of the server whose front is at ``port``."""
    return {"restart": list(_running[port].restart)}


def mutation_run() -> MutationRun:
    """Return the mutation run."""
    options: dict[str, Any] = {"protocol": "nfs", "version": "3", "export": EXPORT}
    options["implementation"] = {"name": "nfs-ganesha", "version": "4.3"}  # that of Debian 12
    ports = ("port", "mount_port", "lock_port", "status_port")
    kinds = {"restart": TargetKind(options, serve, ports=ports, controls=controls)}
    return MutationRun(
        "nfs3", RESTART_MUTANTS, kinds, splitter, timeout=2.0, options=("-k", "test_restart or test_status")
    )
