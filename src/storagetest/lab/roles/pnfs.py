"""knfsd with the block layout of pNFS, on a disk that the appliance and its clients share.

The disk is a file of the lab: a snapshot has a copy of it, and a resumed lab gets its own. A single machine
cannot be put back into the state of the snapshot (``Lab.vm(NAME).restore()``), because the disk does not go
back with it.
"""

from __future__ import annotations

from storagetest.lab.roles import Role, SmokeTest
from storagetest.lab.services import pnfs

ROLE = Role(
    summary="knfsd with pNFS block layouts on a shared disk",
    services=(pnfs.SERVICE,),
    client_services=(pnfs.CLIENT,),
    shared_disk=pnfs.SHARED_DISK_SIZE,
    smoke_tests=(SmokeTest(("nfs-pnfs-v4.2", "nfs-plain"), min_passed=4),),
)
