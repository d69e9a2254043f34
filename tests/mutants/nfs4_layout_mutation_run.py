"""Mutation run of layouts: a server of our own, on loopback."""

from mutation_run import MutationRun, TargetKind
from nfs4_layout_mutants import MUTANTS, serve
from pnfs_nfs import EXPORT
from rpc_records import splitter

OPTIONS = {
    "protocol": "nfs",
    "version": "4.2",
    "export": EXPORT,
    "implementation": {"name": "pnfs-nfs", "version": "1"},
}
MODULES = "test_layout*.py"


def mutation_run() -> MutationRun:
    """Return the mutation run."""
    kinds = {"pnfs": TargetKind(OPTIONS, serve)}
    return MutationRun("nfs4", MUTANTS, kinds, splitter, modules={"pnfs": MODULES}, timeout=3.0)
