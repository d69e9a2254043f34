"""The kernel's NFS server: versions 3, 4.0, 4.1 and 4.2 over the same exports.

Each export is a file system of its own, with an fsid of its own; the root of version 4's name space is one
too, since an overlay cannot be exported. ``rootdir`` makes /a the same path for version 3. Leases and grace
are short, and nfsdcld remembers clients over a restart of the server: that grace ends early when there is
nobody to wait for.

=====  ========================================================================================
/a     tmpfs, 512 MiB: fast
/b     tmpfs, 512 MiB: a second one, for whatever goes from one export to another
/c     tmpfs, 32 MiB: soon full
/x     ext4 on a disk in memory, 512 MiB: extended attributes, real allocation
/both  tmpfs, 128 MiB, which Samba serves, too (samba.py)
=====  ========================================================================================
"""

from __future__ import annotations

from storagetest.lab.services import ADDRESS, Service, Target
from storagetest.lab.services.client import CUT_OFF

__all__ = ["SERVICE"]

# mountd, statd and lockd would take any port; the wire suites reach them from the host.
_PORTS = {"rpcbind": 111, "nfs": 2049, "mountd": 20048, "statd": 32765, "lockd": 32768}

_SCRIPT = r"""
. /run/lab/lib.sh
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
/  *($options,fsid=0,crossmnt)
/a *($options,fsid=1)
/b *($options,fsid=2)
/c *($options,fsid=3)
/x *($options,fsid=4)
/both *($options,fsid=5)
EOF
rpcbind -w
modules nfsd lockd
sysctl -q -w fs.nfs.nlm_tcpport=32768 fs.nfs.nlm_udpport=32768
mountpoint -q /proc/fs/nfsd || mount -t nfsd nfsd /proc/fs/nfsd
echo 1048576 >/proc/fs/nfsd/max_block_size # by itself it goes by the memory there is
mkdir -p /var/lib/nfs/rpc_pipefs /var/lib/nfs/nfsdcld
mount -t rpc_pipefs rpc_pipefs /var/lib/nfs/rpc_pipefs
nfsdcld
exportfs -r
rpc.statd --no-notify
rpc.nfsd
rpc.mountd
"""

SERVICE = Service(
    "knfsd",
    _SCRIPT,
    ports=_PORTS,
    targets=(
        Target(
            "nfs",
            {
                "protocol": "nfs",
                "implementation": "knfsd",
                "server": "appliance",
                "address": ADDRESS,
                "export": "/a",
                "clients": "all",
                "matrix": {"version": ["3", "4.0", "4.1", "4.2"], "nconnect": [1, 2]},
                "controls": CUT_OFF,
            },
            "Each combination of the matrix is one variant of the target: nfs-v4.2-nconnect2, and so on.",
        ),
        Target(
            "nfs-ext4",
            {
                "protocol": "nfs",
                "implementation": "knfsd",
                "server": "appliance",
                "address": ADDRESS,
                "export": "/x",
                "clients": "all",
                "matrix": {"version": ["4.2"]},
            },
            "An export on ext4 has what the one on tmpfs lacks: user.* attributes and blocks to allocate.",
        ),
        Target(
            "nfs-both",
            {
                "protocol": "nfs",
                "implementation": "knfsd",
                "server": "appliance",
                "address": ADDRESS,
                "export": "/both",
                "clients": "all",
                "matrix": {"version": ["3", "4.2"]},
                "same_data": "smb-both",
            },
            "The files of smb-both, for cases about what one protocol's clients see of the other's.",
        ),
    ),
)
