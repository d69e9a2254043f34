"""The mutation run of the SMB2 mutants: two smbd, for the honest proxy and for the mutants."""

import contextlib
from collections.abc import Iterator

from mutation_run import MutationRun, TargetKind
from smb2_mutants import MUTANTS
from smbd import PASSWORD, SHARE, account, smbd, version


@contextlib.contextmanager
def serve() -> Iterator[tuple[str, int]]:
    with smbd() as server:
        yield server.address, server.port


def mutation_run() -> MutationRun:
    """Return the mutation run."""
    options = {
        "protocol": "smb",
        "share": SHARE,
        "username": account().pw_name,
        "password": PASSWORD,
        "implementation": {"name": "samba", "version": version()},
    }
    return MutationRun(
        "smb2", MUTANTS, {"smbd": TargetKind(options, serve)}, lambda _from_target: lambda data: [data]
    )
