"""LIO, the kernel's iSCSI target, set up through configfs: targetcli takes 15 s where this takes none.

Access is by "demo mode" (any initiator gets an ACL made for it), write allowed. Every LUN is a disk in
memory behind device-mapper (see disks in guest/lib.sh) with a fixed serial number: LIO makes the NAA
identifier of the first 25 hexadecimal digits of it (SPC-4 7.8.6.6.5, NAA type 6, company id 00:14:05), so
what a client's kernel shows as the disk's wwid is known before the lab is up.

===========  ===========================================================================================
lab-plain    LUN 0 of 512 MiB, LUN 1 of 128 MiB, LUN 2 of 64 MiB; digests as the initiator asks
lab-chap     LUN 0 of 64 MiB, which can grow to 96; the initiator has to log in
lab-mutual   LUN 0 of 64 MiB; both sides have to
lab-paths    LUN 0 of 64 MiB, through two addresses
===========  ===========================================================================================
"""

from __future__ import annotations

from storagetest.lab.services import ADDRESS, SECOND_ADDRESS, Secret, Service, Target, Value, Wire, resizing

__all__ = ["SERVICE", "wwid"]

_IQN = "iqn.2026-11.org.storagetest"
_PORT = 3260
_USER = "storagetest"
_PASSWORD, _MUTUAL = Secret("chap-password"), Secret("chap-mutual-password")
_SERIAL_DIGITS = 25

_SCRIPT = r"""
. /run/lab/lib.sh
configfs
mkdir -p /etc/target/pr # where LIO keeps registrations that outlive a power loss; it complains without
modules target_core_mod target_core_iblock iscsi_target_mod
core=/sys/kernel/config/target/core/iblock_0
fabric=/sys/kernel/config/target/iscsi
mkdir -p $core $fabric

# target NAME AUTHENTICATION
target() {
    tpg=$fabric/@IQN@:$1/tpgt_1
    mkdir -p "$tpg/np/0.0.0.0:@PORT@"
    for setting in generate_node_acls=1 demo_mode_write_protect=0 cache_dynamic_acls=1 authentication=$2; do
        echo "${setting#*=}" >"$tpg/attrib/${setting%=*}"
    done
}

# lun NUMBER DISK SERIAL: to the target made last
lun() {
    mkdir "$core/$2"
    echo "udev_path=/dev/mapper/$2" >"$core/$2/control"
    echo 1 >"$core/$2/enable"
    echo "$3" >"$core/$2/wwn/vpd_unit_serial"
    echo 1 >"$core/$2/attrib/emulate_tpu"
    mkdir "$tpg/lun/lun_$1"
    ln -s "$core/$2" "$tpg/lun/lun_$1/$2"
}

credentials() {
    printf %s @USER@ >"$tpg/auth/userid"
    cat $SECRETS/chap-password >"$tpg/auth/password"
}

disks iscsi-plain-0=512 iscsi-plain-1=128 iscsi-plain-2=64 iscsi-chap-0=64/96 iscsi-mutual-0=64 \
    iscsi-paths-0=64

target lab-plain 0
lun 0 iscsi-plain-0 @SERIAL0@
lun 1 iscsi-plain-1 @SERIAL1@
lun 2 iscsi-plain-2 @SERIAL2@
echo 1 >"$tpg/enable"

target lab-chap 1
credentials
lun 0 iscsi-chap-0 @SERIAL3@
echo 1 >"$tpg/enable"

target lab-mutual 1
credentials
printf %s @USER@-target >"$tpg/auth/userid_mutual"
cat $SECRETS/chap-mutual-password >"$tpg/auth/password_mutual"
lun 0 iscsi-mutual-0 @SERIAL4@
echo 1 >"$tpg/enable"

second_address @SECOND@
target lab-paths 0
lun 0 iscsi-paths-0 @SERIAL5@
echo 1 >"$tpg/enable"
"""


def _serial(number: int) -> str:
    return f"57057e57{number:0{_SERIAL_DIGITS - 8}x}"


def wwid(number: int) -> str:
    """Return the wwid of LUN ``number`` (counted over all targets), as sysfs shows it on a client."""
    return f"naa.6001405{_serial(number)}"


def _script() -> str:
    fields = {"IQN": _IQN, "PORT": str(_PORT), "USER": _USER, "SECOND": SECOND_ADDRESS}
    fields |= {f"SERIAL{number}": _serial(number) for number in range(6)}
    text = _SCRIPT
    for name, value in fields.items():
        text = text.replace(f"@{name}@", value)
    return text


def _target(name: str, number: int, **more: Value) -> dict[str, Value]:
    """Return the body of an iSCSI target."""
    return {
        "protocol": "iscsi",
        "server": "appliance",
        "address": ADDRESS,
        "port": _PORT,
        "wire": Wire("iscsi"),
        "iqn": f"{_IQN}:{name}",
        "lun": 0,
        "implementation": "lio",
        "clients": "all",
        "erase": wwid(number),
        **more,
    }


SERVICE = Service(
    "lio",
    _script(),
    ports={"iscsi": _PORT},
    targets=(
        Target(
            "iscsi",
            _target("lab-plain", 0, matrix={"header_digest": ["none", "crc32c"]}),
            "Data on a block device is destroyed only where `erase` names the very device, by its wwid.",
        ),
        Target(
            "iscsi-chap",
            _target(
                "lab-chap",
                3,
                chap={"username": _USER, "password": _PASSWORD},
                controls=resizing("iscsi-chap-0", 64, 96),
            ),
            "What takes an administrator is done by command lines: its server can make this one larger.",
        ),
        Target(
            "iscsi-paths",
            _target("lab-paths", 5, more_paths=[{"address": SECOND_ADDRESS}], optional=True),
            "One LUN through two portals, joined by device-mapper on the client, if that has it.",
        ),
    ),
    secrets=(_PASSWORD, _MUTUAL),
)
