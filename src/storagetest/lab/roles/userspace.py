"""Servers in user space: NFS-Ganesha and tgt.

A case that passes on the role ``kernel`` and fails on this one, or the reverse, shows a server bug or a wrong
case. There is no SMB server: ksmbd crashes on Debian 12; the role ``smb`` has it.
"""

from __future__ import annotations

from storagetest.lab.roles import Role, SmokeTest
from storagetest.lab.services import ganesha, tgt

ROLE = Role(
    summary="NFS-Ganesha and tgt",
    services=(ganesha.SERVICE, tgt.SERVICE),
    smoke_tests=(
        SmokeTest(("nfs-v3-nconnect1", "nfs-v4.2-nconnect1", "iscsi*"), min_passed=12),
        SmokeTest((), paths=("conformance/iscsi",), options=("-m", "not slow"), min_passed=160),
    ),
)
