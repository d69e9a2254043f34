"""tgt, an iSCSI target in user space. Its LUN 0 is a controller; disks begin at LUN 1.

==========  ==========================================
lab-plain   LUN 1 of 512 MiB, LUN 2 of 64 MiB
lab-chap    LUN 1 of 64 MiB; CHAP
lab-paths   LUN 1 of 64 MiB, through two addresses
==========  ==========================================
"""

from __future__ import annotations

from storagetest.lab.services import (
    SECOND_ADDRESS,
    Secret,
    Service,
    Target,
    YamlValue,
    wire_target,
)

_IQN = "iqn.2026-11.org.storagetest"
_PORT = 3260
_USER = "storagetest"
_SERIAL = "57057e57000"
_PASSWORD = Secret("chap-password")

_SCRIPT = (
    r"""
disks iscsi-plain-1=512 iscsi-plain-2=64 iscsi-chap-1=64 iscsi-paths-1=64
second_address @SECOND@
tgtd
admin() { tgtadm --lld iscsi "$@"; }
wait_until 30 admin --op show --mode system >/dev/null

# target TID NAME: create a target
target() {
    tid=$1
    admin --op new --mode target --tid $tid -T @IQN@:$2
    admin --op bind --mode target --tid $tid -I ALL
    for digest in HeaderDigest DataDigest; do # the default is to refuse digests
        admin --op update --mode target --tid $tid --name $digest --value CRC32C,None
    done
}

# lun NUMBER DISK SERIAL: add a LUN to the target that was created last
lun() {
    admin --op new --mode logicalunit --tid $tid --lun $1 -b /dev/mapper/$2
    admin --op update --mode logicalunit --tid $tid --lun $1 --params scsi_sn=$3,scsi_id=$3
}

target 1 lab-plain
lun 1 iscsi-plain-1 @SERIAL@1
lun 2 iscsi-plain-2 @SERIAL@2
target 2 lab-chap
lun 1 iscsi-chap-1 @SERIAL@3
target 3 lab-paths
lun 1 iscsi-paths-1 @SERIAL@4
""".replace("@IQN@", _IQN)
    .replace("@SERIAL@", _SERIAL)
    .replace("@SECOND@", SECOND_ADDRESS)
)


_CREDENTIALS = r"""
admin() { tgtadm --lld iscsi "$@"; }
admin --op delete --mode account --user @USER@ || true # of the lab that the snapshot was made of
admin --op new --mode account --user @USER@ --password "$(cat $SECRETS/chap-password)"
admin --op bind --mode account --tid 2 --user @USER@
""".replace("@USER@", _USER)


def wwid(number: int) -> str:
    """Return the wwid of disk ``number``, as in sysfs on a client: tgt pads the NAA identifier with zeros."""
    return f"naa.6{f'{_SERIAL}{number}':0>31}"


def _target(name: str, disk: int, **more: YamlValue) -> dict[str, YamlValue]:
    """Return the body of an iSCSI target."""
    return wire_target("iscsi", _PORT, iqn=f"{_IQN}:{name}", lun=1, erase=wwid(disk), **more)


SERVICE = Service(
    "tgt",
    _SCRIPT,
    _CREDENTIALS,
    implementation="tgt",
    version="tgtd --version",
    packages=("tgt",),
    ports={"iscsi": _PORT},
    targets=(
        Target(
            "iscsi",
            _target("lab-plain", 1, matrix={"header_digest": ["none", "crc32c"]}),
            "Data on a block device is overwritten only if `erase` contains the wwid of that device.",
        ),
        Target(
            "iscsi-chap",
            _target("lab-chap", 3, chap={"username": _USER, "password": _PASSWORD}),
        ),
        Target(
            "iscsi-paths",
            _target("lab-paths", 4, more_paths=[{"address": SECOND_ADDRESS}], optional=True),
            "One LUN through two portals, combined by device-mapper multipath if the client has it.",
        ),
    ),
    secrets=(_PASSWORD,),
)
