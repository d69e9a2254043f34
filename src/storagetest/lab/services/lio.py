"""LIO, the kernel's iSCSI target, configured through configfs: targetcli would add 15 s to each start.

Access is by "demo mode" (LIO creates an ACL for any initiator), with write access. Every LUN is a disk in
memory behind device-mapper (see disks in guest/lib.sh) with a fixed serial number. LIO builds the NAA
identifier from the first 25 hexadecimal digits of the serial number (SPC-4 7.8.6.6.5, NAA type 6, company id
00:14:05), so the disk's wwid on a client is known before the lab is up.

===========  ===========================================================================================
lab-plain    LUN 0 of 512 MiB, LUN 1 of 128 MiB, LUN 2 of 64 MiB; digests as the initiator requests
lab-chap     LUN 0 of 64 MiB, can grow to 96 MiB; CHAP
lab-mutual   LUN 0 of 64 MiB; mutual CHAP
lab-paths    LUN 0 of 64 MiB, through two addresses
lab-thin     LUN 0 of 512 MiB, thinly provisioned in chunks of 64 KiB (dm-thin), which count what is mapped
===========  ===========================================================================================
"""

from __future__ import annotations

from storagetest.lab.services import (
    SECOND_ADDRESS,
    Secret,
    Service,
    Target,
    YamlValue,
    resize_controls,
    wire_target,
)

_IQN = "iqn.2026-11.org.storagetest"
_PORT = 3260
_USER = "storagetest"
_PASSWORD, _MUTUAL = Secret("chap-password"), Secret("chap-mutual-password")
_SERIAL_DIGITS = 25

_SCRIPT = r"""
configfs
# LIO writes persistent reservations (APTPL) under /etc/target if that exists when target_core_mod is loaded,
# else under /var/target. Without the directory each PERSISTENT RESERVE OUT fails with NOT READY.
mkdir -p /etc/target/pr /var/target/pr
core=/sys/kernel/config/target/core/iblock_0
fabric=/sys/kernel/config/target/iscsi
mkdir -p $core $fabric

# target NAME AUTHENTICATION: create a target; AUTHENTICATION is 0 or 1
target() {
    tpg=$fabric/@IQN@:$1/tpgt_1
    mkdir -p "$tpg/np/0.0.0.0:@PORT@"
    for setting in generate_node_acls=1 demo_mode_write_protect=0 cache_dynamic_acls=1 authentication=$2; do
        echo "${setting#*=}" >"$tpg/attrib/${setting%=*}"
    done
}

# lun NUMBER DISK SERIAL: add a LUN to the target that was created last
lun() {
    mkdir "$core/$2"
    echo "udev_path=/dev/mapper/$2" >"$core/$2/control"
    echo 1 >"$core/$2/enable"
    echo "$3" >"$core/$2/wwn/vpd_unit_serial"
    echo 1 >"$core/$2/attrib/emulate_tpu"
    mkdir "$tpg/lun/lun_$1"
    ln -s "$core/$2" "$tpg/lun/lun_$1/$2"
}

disks iscsi-plain-0=512 iscsi-plain-1=128 iscsi-plain-2=64 iscsi-chap-0=64/96 iscsi-mutual-0=64 \
    iscsi-paths-0=64

one_at_a_time modprobe dm-thin-pool
disks iscsi-thin-data=512 iscsi-thin-meta=4
export DM_DISABLE_UDEV=1
dmsetup create iscsi-thin-pool \
    --table "0 1048576 thin-pool /dev/mapper/iscsi-thin-meta /dev/mapper/iscsi-thin-data 128 0"
dmsetup message iscsi-thin-pool 0 "create_thin 0"
dmsetup create iscsi-thin-0 --table "0 1048576 thin /dev/mapper/iscsi-thin-pool 0"

target lab-plain 0
lun 0 iscsi-plain-0 @SERIAL0@
lun 1 iscsi-plain-1 @SERIAL1@
lun 2 iscsi-plain-2 @SERIAL2@
echo 1 >"$tpg/enable"

target lab-chap 1
lun 0 iscsi-chap-0 @SERIAL3@
echo 1 >"$tpg/enable"

target lab-mutual 1
lun 0 iscsi-mutual-0 @SERIAL4@
echo 1 >"$tpg/enable"

second_address @SECOND@
target lab-paths 0
lun 0 iscsi-paths-0 @SERIAL5@
echo 1 >"$tpg/enable"

target lab-thin 0
lun 0 iscsi-thin-0 @SERIAL6@
echo 1 >"$tpg/enable"
"""

# The fourth word of a thin device's status is its mapped sectors (dm-thin in the kernel's documentation).
_COUNT_MAPPED = "set -- $(DM_DISABLE_UDEV=1 dmsetup status iscsi-thin-0); echo $(($4 * 512))"

_CREDENTIALS = r"""
fabric=/sys/kernel/config/target/iscsi
for target in lab-chap lab-mutual; do
    auth=$fabric/@IQN@:$target/tpgt_1/auth
    printf %s @USER@ >"$auth/userid"
    cat $SECRETS/chap-password >"$auth/password"
done
printf %s @USER@-target >"$auth/userid_mutual"
cat $SECRETS/chap-mutual-password >"$auth/password_mutual"
"""


def _serial(number: int) -> str:
    return f"57057e57{number:0{_SERIAL_DIGITS - 8}x}"


def wwid(number: int) -> str:
    """Return the wwid of LUN ``number`` (counted over all targets), as in sysfs on a client."""
    return f"naa.6001405{_serial(number)}"


def _script(text: str) -> str:
    fields = {"IQN": _IQN, "PORT": str(_PORT), "USER": _USER, "SECOND": SECOND_ADDRESS}
    fields |= {f"SERIAL{number}": _serial(number) for number in range(7)}
    for name, value in fields.items():
        text = text.replace(f"@{name}@", value)
    return text


def _target(name: str, number: int, **more: YamlValue) -> dict[str, YamlValue]:
    """Return the body of an iSCSI target."""
    return wire_target("iscsi", _PORT, iqn=f"{_IQN}:{name}", lun=0, erase=wwid(number), **more)


SERVICE = Service(
    "lio",
    _script(_SCRIPT),
    _script(_CREDENTIALS),
    implementation="lio",
    modules=("target_core_mod", "target_core_iblock", "iscsi_target_mod"),
    ports={"iscsi": _PORT},
    targets=(
        Target(
            "iscsi",
            _target("lab-plain", 0, matrix={"header_digest": ["none", "crc32c"]}),
            "Data on a block device is overwritten only if `erase` contains the wwid of that device.",
            roles=("iscsi",),
        ),
        Target(
            "iscsi-chap",
            _target(
                "lab-chap",
                3,
                chap={"username": _USER, "password": _PASSWORD},
                controls=resize_controls("iscsi-chap-0", 64, 96),
            ),
            "`controls` are commands on the server or a client. Here they resize the device on the server.",
        ),
        Target(
            "iscsi-paths",
            _target("lab-paths", 5, more_paths=[{"address": SECOND_ADDRESS}], optional=True),
            "One LUN through two portals, combined by device-mapper multipath if the client has it.",
            roles=("iscsi-paths",),
        ),
        Target(
            "iscsi-thin",
            _target("lab-thin", 6, optional=True, controls={"allocated": ["sh", "-euc", _COUNT_MAPPED]}),
            "A thinly provisioned LUN. `allocated` counts on the server what it takes there.",
            roles=("iscsi-thin",),
        ),
    ),
    secrets=(_PASSWORD, _MUTUAL),
)
