"""Samba: SMB 2.1 to 3.1.1; with the POSIX extensions from Samba 4.22 on.

Samba grants durable handles only if kernel oplocks, kernel share modes and POSIX locking are off. They are
off, because no other server opens these files, except for those of ``both``. TCP keepalive detects a lost
client after about 16 s, similar to the lease time of the NFS servers. Reads and writes are not passed to
threads: on one emulated processor that cost a third of the writes per second (measured).

=========  ==================================================================================
a, b       tmpfs, 512 MiB each
c          tmpfs, 32 MiB, for tests of a full file system
x          ext4 on a disk in memory, 512 MiB: streams, extended attributes and ACLs
encrypted  the files of ``a``; unencrypted connections are refused
both       files also served by knfsd (knfsd.py), with kernel locks and leases
posix      tmpfs, 512 MiB; the client's root is root on the server; only in :data:`WITH_POSIX`
=========  ==================================================================================
"""

from __future__ import annotations

from storagetest.lab.services import ADDRESS, ForwardedPort, Secret, Service, Target, YamlValue
from storagetest.lab.services.client import ISOLATE_CONTROLS

_PASSWORD = Secret("smb-password")
_PACKAGES = ("samba", "e2fsprogs")

_SCRIPT = r"""
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
    aio read size = 0
    aio write size = 0
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
"""
_CREDENTIALS = r"""
password=$(cat $SECRETS/smb-password)
printf '%s\n%s\n' "$password" "$password" | smbpasswd -a -s storagetest
"""
_START = "smbd --daemon\n"

# The client uses one account for all its users and checks modes and owners itself, so the server must run all
# operations as root.
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


def _target(**changes: YamlValue) -> dict[str, YamlValue]:
    """Return the body of an SMB target."""
    return {
        "protocol": "smb",
        "address": ADDRESS,
        "wire": ForwardedPort("smb"),
        "share": "a",
        "username": "storagetest",
        "password": _PASSWORD,
        **changes,
    }


def _service(more: str, *targets: Target) -> Service:
    """Return Samba, started after the script ``more``."""
    return Service(
        "samba",
        _SCRIPT + more + _START,
        _CREDENTIALS,
        implementation="samba",
        version="smbd --version",
        packages=_PACKAGES,
        ports={"smb": 445},
        targets=targets,
        secrets=(_PASSWORD,),
    )


SERVICE = _service(
    "",
    Target(
        "smb",
        _target(matrix={"dialect": ["2.1", "3.0", "3.1.1"]}, controls=ISOLATE_CONTROLS),
        "This file contains no passwords: they come from files or from the environment.",
        roles=("cifs",),
    ),
    Target("smb-signed", _target(signing=True, matrix={"dialect": ["3.1.1"]})),
    Target("smb-encrypted", _target(share="encrypted", encryption=True, matrix={"dialect": ["3.1.1"]})),
    Target("smb-both", _target(share="both", dialect="3.1.1", same_data="nfs-both")),
)

_SAMBA_4_22: dict[str, YamlValue] = {"dialect": "3.1.1", "controls": ISOLATE_CONTROLS}

WITH_POSIX = _service(
    _POSIX,
    Target("smb", _target(**_SAMBA_4_22)),
    Target("smb-posix", _target(**_SAMBA_4_22, share="posix", posix=True)),
)
"""Needs Samba 4.22 or later; Debian 12 has 4.17."""

_SMB1 = r"""
sed -i 's/server min protocol = .*/server min protocol = NT1/' /etc/samba/smb.conf
"""

WITH_SMB1 = _service(
    _SMB1,
    Target(
        "smb-old",
        _target(insecure_dialect=True, matrix={"dialect": ["1.0", "2.1", "3.1.1"]}),
        "SMB1 for comparisons with old figures. It is insecure: never on a network with other machines.",
    ),
)
"""Samba 4.17 with SMB1, which it has switched off by default."""
