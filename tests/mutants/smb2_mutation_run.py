"""The mutation run of the SMB2 mutants: smbd with two shares, smbd mended, and the server of the test kit."""

import contextlib
from collections.abc import Iterator

import smb2_server
from mutation_run import MutationRun, TargetKind
from smb2_break_mutants import MENDED
from smb2_kit_mutants import KIT
from smb2_mended import mended
from smb2_mutants import MUTANTS
from smb2_state_mutants import SEALED
from smbd import PASSWORD, SHARE, account, smbd, version
from smbd import SEALED as SEALED_SHARE


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
    kit = {
        "protocol": "smb",
        "share": smb2_server.SHARE,
        "username": smb2_server.USER,
        "password": smb2_server.PASSWORD,
    }
    kinds = {
        "smbd": TargetKind(options, serve),
        SEALED: TargetKind({**options, "share": SEALED_SHARE}, serve),
        KIT: TargetKind(kit, smb2_server.smb2_server),
        MENDED: TargetKind({**options, "implementation": {"name": "mended", "version": "1"}}, mended),
    }
    modules = {
        SEALED: "test_encryption.py",
        MENDED: "test_breaks.py",
        KIT: "test_compression.py test_persistent.py test_posix.py test_symlinks.py",
    }
    return MutationRun("smb2", MUTANTS, kinds, lambda _from_target: lambda data: [data], modules=modules)
