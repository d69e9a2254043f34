"""Mutation run of NFSv4: the lab's knfsd, for what NFS-Ganesha on loopback does not serve.

``STORAGETEST_LAB`` names the lab, which is up (see conftest.py). Its export is an ext4, which has extended
attributes and blocks that are allocated.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager

from mutation_run import MutationRun, TargetKind
from nfs4_mutants import KNFSD_MUTANTS
from rpc_records import splitter

from storagetest.lab import Lab

EXPORT = "/x"
MODULES = "test_[csvx][al4eo]*.py"
"""The modules that run on the honest proxy: all but files, names and directories."""


def mutation_run() -> MutationRun:
    """Return the mutation run of the lab that is up."""
    lab = Lab.find(os.environ.get("STORAGETEST_LAB", "default"))
    assert lab is not None, "the lab is down"
    port = next(host.ports["nfs"] for host in lab.status().hosts if "nfs" in host.ports)

    @contextmanager
    def serve() -> Iterator[tuple[str, int]]:
        yield "127.0.0.1", port

    options = {
        "protocol": "nfs",
        "version": "4.2",
        "export": EXPORT,
        "implementation": {"name": "knfsd", "version": lab.status().kernel_release},
    }
    kinds = {"knfsd": TargetKind(options, serve)}
    return MutationRun("nfs4", KNFSD_MUTANTS, kinds, splitter, modules={"knfsd": MODULES}, timeout=3.0)
