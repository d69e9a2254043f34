"""NFS-Ganesha, an NFS server in user space: versions 3, 4.0, 4.1 and 4.2 on ext4 in memory.

FSAL VFS does not export tmpfs. NFSv3 uses the paths of NFSv4 (``mount_path_pseudo``), so the exports have the
same names as those of knfsd.

====  ========================================================
/a    ext4, 512 MiB
/b    ext4, 128 MiB
/c    ext4, 32 MiB, for tests of a full file system
====  ========================================================
"""

from __future__ import annotations

from storagetest.lab.services import ADDRESS, Service, Target, nfs_wire
from storagetest.lab.services.client import ISOLATE_CONTROLS

_PORTS = {"rpcbind": 111, "nfs": 2049, "mountd": 20048, "statd": 32765, "lockd": 32768}

_SCRIPT = r"""
disks nfs-a=512 nfs-b=128 nfs-c=32
mkdir -p /run/ganesha /var/lib/nfs/ganesha
cat >/run/lab/ganesha.conf <<EOF
NFS_CORE_PARAM {
    Protocols = 3, 4;
    mount_path_pseudo = true;
    NFS_Port = 2049;
    MNT_Port = 20048;
    NLM_Port = 32768;
    Enable_RQUOTA = false;
}
NFSv4 {
    Lease_Lifetime = 10;
    Grace_Period = 10;
    Minor_Versions = 0, 1, 2;
    RecoveryBackend = fs;
}
EXPORT_DEFAULTS {
    Access_Type = RW;
    Squash = No_Root_Squash;
    SecType = sys;
    Transports = TCP;
    Protocols = 3, 4;
}
EOF
number=0
for export in a b c; do
    number=$((number + 1))
    mkdir -p /srv/nfs/$export
    mkfs.ext4 -q -E nodiscard /dev/mapper/nfs-$export
    mount -t ext4 /dev/mapper/nfs-$export /srv/nfs/$export
    chmod 1777 /srv/nfs/$export
    echo "EXPORT { Export_Id = $number; Path = /srv/nfs/$export; Pseudo = /$export; FSAL { Name = VFS; } }"
done >>/run/lab/ganesha.conf
rpcbind -w
rpc.statd --no-notify -p 32765
ganesha.nfsd -f /run/lab/ganesha.conf -L /run/lab/log/ganesha.nfsd -N EVENT
wait_until 30 rpcinfo -t 127.0.0.1 nfs 4
"""

SERVICE = Service(
    "ganesha",
    _SCRIPT,
    implementation="ganesha",
    version="ganesha.nfsd -v",
    packages=("nfs-ganesha", "nfs-ganesha-vfs", "nfs-common", "rpcbind", "e2fsprogs"),
    ports=_PORTS,
    targets=(
        Target(
            "nfs",
            {
                "protocol": "nfs",
                "address": ADDRESS,
                **nfs_wire(),
                "export": "/a",
                "matrix": {"version": ["3", "4.0", "4.1", "4.2"], "nconnect": [1, 2]},
                "controls": ISOLATE_CONTROLS,
            },
            "Each combination of the matrix is one variant of the target: nfs-v4.2-nconnect2, and so on.",
        ),
    ),
)
