"""The bench of the NVMe/TCP mutants: the small controller of tests/controllers, which has no deviations."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from mutation_run import MutationRun, TargetKind
from nvme_tcp_mutants import MUTANTS
from nvme_tcp_proxy_connection import splitter
from nvme_tcp_server import NQN, Server

__all__ = ["bench"]

PATIENCE = 1.0
"""Seconds that a case waits for what a mutant holds back; the controller answers within milliseconds."""


@contextlib.contextmanager
def serve() -> Iterator[tuple[str, int]]:
    """Start a controller of its own: what a mutant leaves behind is no other's."""
    with Server() as server:
        yield "127.0.0.1", server.port


def bench() -> MutationRun:
    """Return the bench."""
    options = {"protocol": "nvme-tcp", "nqn": NQN, "erase": "uuid.22222222-2222-4222-8222-222222222201"}
    kinds = {"second": TargetKind(options, serve, fresh=True)}
    return MutationRun("nvme_tcp", MUTANTS, kinds, splitter, patience=PATIENCE)
