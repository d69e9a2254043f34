"""nvmet, the kernel's NVMe/TCP target, configured through configfs. Any host may connect and enable digests.

====  =====================================================================================
lab1  namespace 1 of 512 MiB, can grow to 544 MiB; namespace 2 of 64 MiB
lab2  namespace 1 of 64 MiB
lab3  namespace 1 of 64 MiB, through two ports; the ANA state of the second is non-optimized
====  =====================================================================================

The namespaces have fixed UUIDs, so the disk's wwid on a client is known before the lab is up.
"""

from __future__ import annotations

from storagetest.lab.services import (
    SECOND_ADDRESS,
    Service,
    Target,
    YamlValue,
    resize_controls,
    wire_target,
)

_NQN = "nqn.2026-11.org.storagetest"
_PORT = 4420
_SECOND_PORT = 4421

_SCRIPT = r"""
configfs
nvmet=/sys/kernel/config/nvmet

# port NUMBER ADDRESS TCP-PORT
port() {
    mkdir "$nvmet/ports/$1"
    for setting in adrfam=ipv4 trtype=tcp traddr=$2 trsvcid=$3; do
        echo "${setting#*=}" >"$nvmet/ports/$1/addr_${setting%=*}"
    done
}

port 1 0.0.0.0 @PORT@
second_address @SECOND@
port 2 @SECOND@ @SECOND_PORT@
echo non-optimized >"$nvmet/ports/2/ana_groups/1/ana_state"

# subsystem NAME SERIAL
subsystem() {
    subsystem=$nvmet/subsystems/@NQN@:$1
    mkdir "$subsystem"
    echo 1 >"$subsystem/attr_allow_any_host"
    echo "$2" >"$subsystem/attr_serial"
    echo storagetest >"$subsystem/attr_model"
    ln -s "$subsystem" "$nvmet/ports/1/subsystems/"
}

# namespace NUMBER DISK UUID: add a namespace to the subsystem that was created last
namespace() {
    namespace=$subsystem/namespaces/$1
    mkdir "$namespace"
    printf %s "/dev/mapper/$2" >"$namespace/device_path"
    echo "$3" >"$namespace/device_uuid"
    echo "$3" >"$namespace/device_nguid"
    echo 1 >"$namespace/enable"
}

disks nvme-lab1-1=512/544 nvme-lab1-2=64 nvme-lab2-1=64 nvme-lab3-1=64

subsystem lab1 57057e570001
namespace 1 nvme-lab1-1 @UUID1@
namespace 2 nvme-lab1-2 @UUID2@
subsystem lab2 57057e570002
namespace 1 nvme-lab2-1 @UUID3@
subsystem lab3 57057e570003
namespace 1 nvme-lab3-1 @UUID4@
ln -s "$subsystem" "$nvmet/ports/2/subsystems/"
"""


def _uuid(number: int) -> str:
    return f"57057e57-0000-4000-8000-{number:012x}"


def wwid(number: int) -> str:
    """Return the wwid of namespace ``number`` (counted over all subsystems), as in sysfs on a client."""
    return f"uuid.{_uuid(number)}"


def _script() -> str:
    fields = {"NQN": _NQN, "PORT": str(_PORT), "SECOND": SECOND_ADDRESS, "SECOND_PORT": str(_SECOND_PORT)}
    fields |= {f"UUID{number}": _uuid(number) for number in range(1, 5)}
    text = _SCRIPT
    for name, value in fields.items():
        text = text.replace(f"@{name}@", value)
    return text


def _target(subsystem: str, disk: int, **more: YamlValue) -> dict[str, YamlValue]:
    """Return the body of an NVMe/TCP target."""
    return wire_target("nvme-tcp", _PORT, nqn=f"{_NQN}:{subsystem}", namespace=1, erase=wwid(disk), **more)


_NOTIFY = f"echo 1 >/sys/kernel/config/nvmet/subsystems/{_NQN}:lab1/namespaces/1/revalidate_size"
_SECOND_PATH: YamlValue = [{"address": SECOND_ADDRESS, "port": _SECOND_PORT}]

SERVICE = Service(
    "nvmet",
    _script(),
    implementation="nvmet",
    modules=("nvmet", "nvmet-tcp"),
    ports={"nvme-tcp": _PORT},
    targets=(
        Target(
            "nvme-tcp",
            _target(
                "lab1",
                1,
                matrix={"header_digest": [False, True], "data_digest": [False, True]},
                more_namespaces=[{"namespace": 2, "erase": wwid(2)}],
                controls=resize_controls("nvme-lab1-1", 512, 544, _NOTIFY),
            ),
            roles=("nvme-tcp",),
        ),
        Target(
            "nvme-tcp-paths",
            _target("lab3", 4, more_paths=_SECOND_PATH, optional=True),
            "One namespace through two ports, combined by the client's kernel (native multipath).",
        ),
    ),
)
