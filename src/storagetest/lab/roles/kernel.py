"""The servers of the Linux kernel, and Samba: NFS, SMB, iSCSI, NVMe/TCP; Lustre if an overlay contains it."""

from __future__ import annotations

from storagetest.lab.roles import Role
from storagetest.lab.services import knfsd, lio, lustre, nvmet, samba

ROLE = Role(
    summary="knfsd, Samba, LIO, nvmet; Lustre if an overlay contains it",
    services=(knfsd.SERVICE, samba.SERVICE, lio.SERVICE, nvmet.SERVICE, lustre.SERVICE),
)
