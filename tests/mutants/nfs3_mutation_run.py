"""Mutation run of NFSv3: NFS-Ganesha on loopback, its three programs behind one port."""

from typing import Any

from ganesha import EXPORT
from ganesha_front import serve
from mutation_run import MutationRun, TargetKind
from nfs3_mutants import MUTANTS
from rpc_records import splitter


def mutation_run() -> MutationRun:
    """Return the mutation run."""
    options: dict[str, Any] = {"protocol": "nfs", "version": "3", "export": EXPORT}
    options["implementation"] = {"name": "nfs-ganesha", "version": "4.3"}  # that of Debian 12
    kinds = {"ganesha": TargetKind(options, serve, ports=("port", "mount_port", "lock_port"))}
    return MutationRun("nfs3", MUTANTS, kinds, splitter, timeout=2.0)
