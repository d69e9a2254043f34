"""ksmbd, the SMB server of the Linux kernel: SMB 2.1 to 3.1.1, with the POSIX extensions.

It listens on port 4450, so that Samba can run on the same machine. It grants leases, as Samba does: with
oplocks only, Linux's client does not send its byte-range locks to the server (docs/findings/shared.md).

The share ``a`` is a tmpfs of 512 MiB. The client's root is root on the server.
"""

from __future__ import annotations

from storagetest.lab.services import ADDRESS, ForwardedPort, Secret, Service, Target, YamlValue
from storagetest.lab.services.client import ISOLATE_CONTROLS

_PASSWORD = Secret("ksmbd-password")
_PORT = 4450

_SCRIPT = rf"""
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
ksmbd.adduser --add --password none storagetest
ksmbd.mountd
"""
_CREDENTIALS = r"""
ksmbd.adduser --update --password "$(cat $SECRETS/ksmbd-password)" storagetest
"""


def _target(**changes: YamlValue) -> dict[str, YamlValue]:
    """Return the body of an SMB target."""
    return {
        "protocol": "smb",
        "address": ADDRESS,
        "wire": ForwardedPort("ksmbd"),
        "port": _PORT,
        "share": "a",
        "username": "storagetest",
        "password": _PASSWORD,
        "dialect": "3.1.1",
        "controls": ISOLATE_CONTROLS,
        **changes,
    }


SERVICE = Service(
    "ksmbd",
    _SCRIPT,
    _CREDENTIALS,
    implementation="ksmbd",
    # ksmbd-tools conflicts with samba, because both use port 445 by default. The libraries are its
    # dependencies.
    packages=("libglib2.0-0", "libkrb5-3", "libnl-3-200", "libnl-genl-3-200"),
    unpacked=("ksmbd-tools",),
    modules=("ksmbd",),
    ports={"ksmbd": _PORT},
    targets=(Target("ksmbd", _target()), Target("ksmbd-posix", _target(posix=True))),
    secrets=(_PASSWORD,),
)
