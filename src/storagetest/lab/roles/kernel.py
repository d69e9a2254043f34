"""The servers of the Linux kernel, and Samba: NFS, SMB, iSCSI, NVMe/TCP; Lustre where an overlay has it."""

from __future__ import annotations

from storagetest.lab.roles import Role
from storagetest.lab.services import knfsd, lio, lustre, nvmet, samba

__all__ = ["ROLE"]

ROLE = Role(
    name="kernel",
    about="knfsd, Samba, LIO, nvmet, and Lustre where there is",
    services=(knfsd.SERVICE, samba.SERVICE, lio.SERVICE, nvmet.SERVICE, lustre.SERVICE),
)
