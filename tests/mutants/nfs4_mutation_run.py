"""Mutation run of NFSv4: NFS-Ganesha on loopback."""

from collections.abc import Iterator
from contextlib import contextmanager

from ganesha import EXPORT, ganesha
from mutation_run import MutationRun, TargetKind
from nfs4_mutants import MUTANTS
from rpc_records import splitter


@contextmanager
def serve() -> Iterator[tuple[str, int]]:
    """Start NFS-Ganesha; yield host and port."""
    with ganesha() as server:
        yield "127.0.0.1", server.nfs


GANESHA = "4.3"
"""The version of Debian's package, which does not report it on the wire."""


def mutation_run() -> MutationRun:
    """Return the mutation run."""
    options = {
        "protocol": "nfs",
        "version": "4.2",
        "export": EXPORT,
        "implementation": {"name": "nfs-ganesha", "version": GANESHA},
    }
    return MutationRun("nfs4", MUTANTS, {"ganesha": TargetKind(options, serve)}, splitter, timeout=1.0)
