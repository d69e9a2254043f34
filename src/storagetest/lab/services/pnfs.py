"""pNFS: the kernel's NFS server with the block layout (RFC 5663), and what its clients need for it.

The file system is XFS on the disk that all machines share (``Role.shared_disk``). With a layout, a client
reads and writes the blocks of a file on that disk itself, and asks the server only for the map. blkmapd finds
the disk on the client by the UUID in the file system's super block. A client has it behind device-mapper, as
the lab's other disks, so that a change of the table takes it away; its own node is removed, because blkmapd
would find the file system on both.

======  ==================================================================================
/p      XFS on the shared disk, 512 MiB, exported with ``pnfs``
/plain  a directory of the same file system, exported without: all data go through the server
======  ==================================================================================

knfsd of Debian's kernels for virtual machines has no other layout: NFSD_SCSILAYOUT and
NFSD_FLEXFILELAYOUT are not set in their configuration.
"""

from __future__ import annotations

from storagetest.lab.qemu import SHARED_DISK
from storagetest.lab.services import ADDRESS, Service, Target, YamlValue, knfsd, nfs_wire
from storagetest.lab.services.client import ISOLATE_CONTROLS

SHARED_DISK_SIZE = 512  # MiB; mkfs.xfs makes no file system of less than 300

_FIND_DISK = rf"""
disk=
for block in /sys/block/vd*; do
    [ "$(cat "$block/serial")" != {SHARED_DISK} ] || disk=/dev/${{block##*/}}
done
[ -n "$disk" ]
"""

_FILE_SYSTEMS = rf"""
root=/srv/nfs
mkdir -p $root
mount -t tmpfs -o mode=755,size=1m tmpfs $root
mkdir $root/p $root/plain
{_FIND_DISK}
mkfs.xfs -q -f -K "$disk"
mount -t xfs "$disk" $root/p
mkdir $root/p/plain
chmod 1777 $root/p $root/p/plain
mount --bind $root/p/plain $root/plain
"""

_EXPORTS = """\
/  *($options,fsid=0,crossmnt)
/p *($options,fsid=1,pnfs)
/plain *($options,fsid=2)
"""

_DM, _TABLE = "pnfs", "/run/lab/pnfs.table"
"""The device-mapper disk of a client, and the file with its table."""
_SHELL = ("env", "DM_DISABLE_UDEV=1", "sh", "-euc")
_REPLACE = f"dmsetup suspend --nolockfs --noflush {_DM}; dmsetup reload {_DM} --table"
_RESUME = f"dmsetup resume {_DM}"
_PIPEFS = "/var/lib/nfs/rpc_pipefs"

_CLIENT = rf"""
{_FIND_DISK}
mkdir -p {_PIPEFS} /run/rpc_pipefs
mount -t rpc_pipefs rpc_pipefs {_PIPEFS}
mount --bind {_PIPEFS} /run/rpc_pipefs
export DM_DISABLE_UDEV=1
echo "0 $(cat "/sys/block/${{disk##*/}}/size") linear $(cat "/sys/block/${{disk##*/}}/dev") 0" >{_TABLE}
dmsetup create {_DM} {_TABLE}
rm "$disk"
blkmapd
"""

REMOVE_DEVICE = [*_SHELL, f'set -- $(dmsetup table {_DM}); {_REPLACE} "$1 $2 error"; {_RESUME}']
RETURN_DEVICE = [*_SHELL, f'{_REPLACE} "$(cat {_TABLE})"; {_RESUME}']
"""Commands on a client that make its shared disk fail, and work again."""


def _target(export: str, **more: YamlValue) -> dict[str, YamlValue]:
    return {"protocol": "nfs", "address": ADDRESS, **nfs_wire(), "export": export, **more}


SERVICE = Service(
    "pnfs",
    knfsd.script(_FILE_SYSTEMS, _EXPORTS),
    implementation="knfsd",
    packages=(*knfsd.PACKAGES, "xfsprogs"),
    modules=(*knfsd.MODULES, "xfs"),
    ports=knfsd.PORTS,
    targets=(
        Target(
            "nfs-pnfs",
            _target(
                "/p",
                layout="block",
                matrix={"version": ["4.1", "4.2"]},
                controls=ISOLATE_CONTROLS
                | {"remove_device": [*REMOVE_DEVICE], "return_device": [*RETURN_DEVICE]},
            ),
            "Clients read and write the blocks themselves, on a disk that they share with the server.",
        ),
        Target(
            "nfs-plain",
            _target("/plain", layout="none", version="4.2", controls=ISOLATE_CONTROLS),
            "The same file system without layouts: all data go through the server.",
        ),
    ),
)

CLIENT = Service("pnfs-client", _CLIENT, packages=("nfs-common",), modules=("blocklayoutdriver",))
