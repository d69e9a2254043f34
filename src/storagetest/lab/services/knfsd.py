"""The kernel's NFS server: versions 3, 4.0, 4.1 and 4.2 over the same exports.

Each export is a separate file system with its own fsid. So is the NFSv4 root, because overlayfs cannot be
exported. ``rootdir`` makes the paths of NFSv3 equal to those of NFSv4. Lease and grace times are short.
nfsdcld keeps client records over a server restart, so the grace period ends early if no client has state to
reclaim.

=====  ========================================================================================
/a     tmpfs, 512 MiB
/b     tmpfs, 512 MiB, for operations between two exports
/c     tmpfs, 32 MiB, for tests of a full file system
/x     ext4 on a disk in memory, 512 MiB: extended attributes, block allocation
/both  tmpfs, 128 MiB, also served by Samba (samba.py)
=====  ========================================================================================
"""

from __future__ import annotations

from storagetest.lab.services import ADDRESS, Service, Target, YamlValue, nfs_wire
from storagetest.lab.services.client import ISOLATE_CONTROLS

PORTS = {"rpcbind": 111, "nfs": 2049, "mountd": 20048, "statd": 32765, "lockd": 32768}
"""Ports of the services. mountd, statd and lockd get fixed ones: the wire suites connect to them from the
host."""

RESTART_CONTROLS: dict[str, YamlValue] = {"restart": ["sh", "-c", "rpc.nfsd 0 && rpc.nfsd"]}
"""Target controls (storagetest.config.controls) that restart nfsd and lockd, which forget all state."""

MODULES = ("nfsd", "lockd")
PACKAGES = ("nfs-kernel-server", "nfs-common", "rpcbind", "e2fsprogs")

_FILE_SYSTEMS = r"""
root=/srv/nfs
mkdir -p $root
mount -t tmpfs -o mode=755,size=1m tmpfs $root
mkdir $root/a $root/b $root/c $root/x $root/both
for size in a=512m b=512m c=32m both=128m; do
    mount -t tmpfs -o mode=1777,size=${size#*=} tmpfs $root/${size%=*}
done
disks nfs-x=512
mkfs.ext4 -q -E nodiscard /dev/mapper/nfs-x
mount -t ext4 /dev/mapper/nfs-x $root/x
chmod 1777 $root/x
"""

_CONFIGURE = r"""
cat >/etc/nfs.conf <<EOF
[exports]
rootdir=$root
[nfsd]
vers3=y
vers4=y
vers4.0=y
vers4.1=y
vers4.2=y
grace-time=10
lease-time=10
threads=8
[mountd]
port=20048
[statd]
port=32765
[lockd]
port=32768
udp-port=32768
EOF
options="rw,insecure,no_root_squash,no_subtree_check,sync"
cat >/etc/exports <<EOF
"""

_START = r"""EOF
rpcbind -w
sysctl -q -w fs.nfs.nlm_tcpport=32768 fs.nfs.nlm_udpport=32768 fs.nfs.nlm_grace_period=10
mountpoint -q /proc/fs/nfsd || mount -t nfsd nfsd /proc/fs/nfsd
echo 1048576 >/proc/fs/nfsd/max_block_size # the default depends on the memory size
mkdir -p /var/lib/nfs/rpc_pipefs /var/lib/nfs/nfsdcld
mount -t rpc_pipefs rpc_pipefs /var/lib/nfs/rpc_pipefs
# With a write-ahead log, which SQLite remembers, the record of a client takes 11 ms in emulation, and not 17.
python3 - <<'EOF'
import sqlite3
sqlite3.connect("/var/lib/nfs/nfsdcld/main.sqlite").execute("pragma journal_mode=wal")
EOF
nfsdcld
exportfs -r
rpc.statd --no-notify
rpc.nfsd
rpc.mountd
"""

_EXPORTS = """\
/  *($options,fsid=0,crossmnt)
/a *($options,fsid=1)
/b *($options,fsid=2)
/c *($options,fsid=3)
/x *($options,fsid=4)
/both *($options,fsid=5)
"""


def script(file_systems: str, exports: str) -> str:
    """Return a service's script that mounts ``file_systems`` below $root and serves ``exports`` (exports(5)).

    The options of an export begin with $options.
    """
    return f"{file_systems}{_CONFIGURE}{exports}{_START}"


SERVICE = Service(
    "knfsd",
    script(_FILE_SYSTEMS, _EXPORTS),
    implementation="knfsd",
    packages=PACKAGES,
    modules=MODULES,
    ports=PORTS,
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
            roles=("cluster",),
        ),
        Target(
            "nfs-ext4",
            {
                "protocol": "nfs",
                "address": ADDRESS,
                **nfs_wire(),
                "export": "/x",
                "matrix": {"version": ["4.2"]},
                "controls": RESTART_CONTROLS,
            },
            "Has user.* attributes and block allocation, as tmpfs has not. Cases may restart the server.",
            roles=("nfs",),
        ),
        Target(
            "nfs-both",
            {
                "protocol": "nfs",
                "address": ADDRESS,
                **nfs_wire(),
                "export": "/both",
                "matrix": {"version": ["3", "4.2"]},
                "same_data": "smb-both",
            },
            "The same files as smb-both, for cases about one data set that two protocols serve.",
        ),
    ),
)
