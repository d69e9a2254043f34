"""A mutation run of iSCSI mutants before the small target of tests/controllers, which needs no lab."""

import contextlib
from collections.abc import Iterator

from iscsi_mutants import MUTANTS
from iscsi_target import IQN, NAA, Server
from mutation_run import MutationRun, TargetKind


@contextlib.contextmanager
def serve() -> Iterator[tuple[str, int]]:
    """Start a new target, so that mutants do not affect each other."""
    with Server() as server:
        yield "127.0.0.1", server.port


def mutation_run() -> MutationRun:
    """Return the mutation run."""
    options = {"protocol": "iscsi", "iqn": IQN, "lun": 0, "erase": f"naa.{NAA.hex()}"}
    kinds = {"plain": TargetKind(options, serve, fresh=True)}
    return MutationRun("iscsi", MUTANTS, kinds, lambda _from_target: lambda data: [data], timeout=1.0)
