"""ksmbd, the SMB server of the Linux kernel: SMB 2.1 to 3.1.1, with the POSIX extensions for who asks.

It listens on a port of its own, so that it can stand beside Samba. It grants leases, as Samba does, and not
only oplocks, with which Linux's client keeps its byte-range locks to itself (docs/findings/shared.md).

Its share ``a`` is a tmpfs of 512 MiB, and root on the client is root here.
"""

from __future__ import annotations

from storagetest.lab.services import ADDRESS, Secret, Service, Target, Value
from storagetest.lab.services.client import CUT_OFF

__all__ = ["SERVICE"]

_PASSWORD = Secret("ksmbd-password")
_PORT = 4450

_SCRIPT = rf"""
. /run/lab/lib.sh
root=/srv/ksmbd
mkdir -p $root/a /etc/ksmbd
mount -t tmpfs -o mode=1777,size=512m tmpfs $root/a
cat >/etc/ksmbd/ksmbd.conf <<EOF
[global]
    tcp port = {_PORT}
    server min protocol = SMB2_10
    netbios name = APPLIANCE
    workgroup = STORAGETEST
    smb2 leases = yes
    create mask = 0777
    directory mask = 0777
    force user = root
    force group = root
[a]
    path = $root/a
    read only = no
EOF
ksmbd.adduser --add --password "$(cat $SECRETS/ksmbd-password)" storagetest
modules ksmbd
ksmbd.mountd
"""


def _target(**changes: Value) -> dict[str, Value]:
    """Return the body of an SMB target."""
    return {
        "protocol": "smb",
        "implementation": "ksmbd",
        "server": "appliance",
        "address": ADDRESS,
        "port": _PORT,
        "share": "a",
        "username": "storagetest",
        "password": _PASSWORD,
        "clients": "all",
        "dialect": "3.1.1",
        "controls": CUT_OFF,
        **changes,
    }


SERVICE = Service(
    "ksmbd",
    _SCRIPT,
    ports={"ksmbd": _PORT},
    targets=(Target("ksmbd", _target()), Target("ksmbd-posix", _target(posix=True))),
    secrets=(_PASSWORD,),
)
