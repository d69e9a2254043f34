"""The servers of the Linux kernel, and Samba: NFS, SMB, iSCSI, NVMe/TCP, and Lustre where an overlay has it."""

from __future__ import annotations

from storagetest.lab.roles import Role
from storagetest.lab.services import knfsd, lio, nvmet, samba

__all__ = ["ROLE"]

ROLE = Role(
    name="kernel",
    about="knfsd, Samba, LIO and nvmet",
    services=(knfsd.SERVICE, samba.SERVICE, lio.SERVICE, nvmet.SERVICE),
)
