"""Mutation run of delegations and the back channel: a server of our own, on loopback."""

from delegating_nfs import EXPORT
from mutation_run import MutationRun, TargetKind
from nfs4_delegation_mutants import MUTANTS, serve
from rpc_records import splitter

OPTIONS = {
    "protocol": "nfs",
    "version": "4.2",
    "export": EXPORT,
    "implementation": {"name": "delegating-nfs", "version": "1"},
}
MODULES = "test_callbacks*.py"


def mutation_run() -> MutationRun:
    """Return the mutation run."""
    kinds = {"delegating": TargetKind(OPTIONS, serve)}
    return MutationRun("nfs4", MUTANTS, kinds, splitter, modules={"delegating": MODULES}, timeout=3.0)
