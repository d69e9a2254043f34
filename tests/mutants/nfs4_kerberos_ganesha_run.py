"""Run of the cases with Kerberos on NFS-Ganesha, without mutants: a proxy has no keys."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ganesha import EXPORT, ganesha
from mutation_run import MutationRun, TargetKind
from nfs4_security_mutation_run import KERBEROS, realm
from rpc_records import splitter


@contextmanager
def serve() -> Iterator[tuple[str, int]]:
    """Start NFS-Ganesha with a keytab; yield host and port."""
    with ganesha(keytab=realm().server_keytab, flavors="sys, krb5, krb5i, krb5p") as server:
        yield "127.0.0.1", server.nfs


def mutation_run() -> MutationRun:
    """Return the run."""
    options = {
        **KERBEROS,
        "export": EXPORT,
        "implementation": {"name": "nfs-ganesha", "version": "4.3"},  # that of Debian 12
    }
    kinds = {"ganesha": TargetKind(options, serve)}
    return MutationRun("nfs4", {}, kinds, splitter, modules={"ganesha": "test_[gw][sr]*.py"})
