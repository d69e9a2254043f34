"""Samba: SMB 2.1 to 3.1.1, and nothing older; with the POSIX extensions from Samba 4.22 on.

Durable handles are only given where neither the kernel's leases nor POSIX locks are used for SMB's, so all
three are off: nobody else opens these files, but for those of ``both``. A client that falls silent is noticed
after about 16 s, as short as the leases of NFS.

=========  ==================================================================================
a, b       tmpfs, 512 MiB each: fast
c          tmpfs, 32 MiB: soon full
x          ext4 on a disk in memory, 512 MiB: streams, extended attributes and ACLs
encrypted  the files of a, for connections that encrypt; others are refused
both       the files that the kernel's NFS server serves, too (knfsd.py), with its locks and leases
posix      tmpfs, 512 MiB; root on the client is root here: only :data:`WITH_POSIX` has it
=========  ==================================================================================
"""

from __future__ import annotations

from storagetest.lab.services import ADDRESS, Secret, Service, Target, Value
from storagetest.lab.services.client import CUT_OFF

__all__ = ["SERVICE", "WITH_POSIX"]

_PASSWORD = Secret("smb-password")

_SCRIPT = r"""
. /run/lab/lib.sh
root=/srv/smb
mkdir -p $root/a $root/b $root/c $root/x /run/samba /var/lib/samba/private /var/log/samba
for size in a=512m b=512m c=32m; do
    mount -t tmpfs -o mode=1777,size=${size#*=} tmpfs $root/${size%=*}
done
disks smb-x=512
mkfs.ext4 -q -E nodiscard /dev/mapper/smb-x
mount -t ext4 /dev/mapper/smb-x $root/x
chmod 1777 $root/x
cat >/etc/samba/smb.conf <<EOF
[global]
    server role = standalone server
    workgroup = STORAGETEST
    passdb backend = tdbsam
    server min protocol = SMB2_10
    smb ports = 445
    disable netbios = yes
    load printers = no
    printcap name = /dev/null
    disable spoolss = yes
    socket options = TCP_NODELAY SO_KEEPALIVE TCP_KEEPIDLE=10 TCP_KEEPINTVL=2 TCP_USER_TIMEOUT=16000
    kernel oplocks = no
    kernel share modes = no
    posix locking = no
    logging = file
    log file = /run/lab/log/smbd
    log level = 1
    read only = no
    create mask = 0777
    directory mask = 0777
[a]
    path = $root/a
[b]
    path = $root/b
[c]
    path = $root/c
[x]
    path = $root/x
    vfs objects = acl_xattr streams_xattr
[encrypted]
    path = $root/a
    smb encrypt = required
[both]
    path = /srv/nfs/both
    force user = root
    kernel oplocks = yes
    posix locking = yes
EOF
echo 'storagetest:x:1000:1000::/srv/smb:/usr/sbin/nologin' >>/etc/passwd
echo 'storagetest:x:1000:' >>/etc/group
password=$(cat $SECRETS/smb-password)
printf '%s\n%s\n' "$password" "$password" | smbpasswd -a -s storagetest
"""
_START = "smbd --daemon\n"

# What root on the client may, root on the server must: the client asks as one account for all its users, and
# looks at modes and owners itself.
_POSIX = r"""
mkdir $root/posix
mount -t tmpfs -o mode=1777,size=512m tmpfs $root/posix
sed -i 's/^.global.$/&\n    smb3 unix extensions = yes/' /etc/samba/smb.conf
cat >>/etc/samba/smb.conf <<EOF
[posix]
    path = $root/posix
    force user = root
    mangled names = no
EOF
"""


def _target(**changes: Value) -> dict[str, Value]:
    """Return the body of an SMB target."""
    return {
        "protocol": "smb",
        "implementation": "samba",
        "server": "appliance",
        "address": ADDRESS,
        "share": "a",
        "username": "storagetest",
        "password": _PASSWORD,
        "clients": "all",
        **changes,
    }


SERVICE = Service(
    "samba",
    _SCRIPT + _START,
    ports={"smb": 445},
    targets=(
        Target(
            "smb",
            _target(matrix={"dialect": ["2.1", "3.0", "3.1.1"]}, controls=CUT_OFF),
            "A password never stands in this file: it comes from a file or from the environment.",
        ),
        Target("smb-signed", _target(signing=True, matrix={"dialect": ["3.1.1"]})),
        Target("smb-encrypted", _target(share="encrypted", encryption=True, matrix={"dialect": ["3.1.1"]})),
        Target("smb-both", _target(share="both", dialect="3.1.1", same_data="nfs-both")),
    ),
    secrets=(_PASSWORD,),
)

_NEWER: dict[str, Value] = {"implementation": "samba-4-22", "dialect": "3.1.1", "controls": CUT_OFF}

WITH_POSIX = Service(
    "samba",
    _SCRIPT + _POSIX + _START,
    ports={"smb": 445},
    targets=(
        Target("smb", _target(**_NEWER)),
        Target("smb-posix", _target(**_NEWER, share="posix", posix=True)),
    ),
    secrets=(_PASSWORD,),
)
"""For a Samba that has them: 4.22 does, 4.17 does not."""
