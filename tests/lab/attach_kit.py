"""What the attach tests share: the lab's targets as options, and a check that an attachment holds data."""

from __future__ import annotations

from typing import Any

from storagetest.hosts import Host
from storagetest.lab.services import lio, nvmet
from storagetest.protocols.base import Attachment, Gives, protocols

APPLIANCE = "10.77.0.1"
NOBODY = "10.77.0.99"
"""An address on the lab's network that no machine has."""
NO_NETWORK = "198.51.100.7"
"""An address for which there is no route (TEST-NET-2, RFC 5737); the clients have no default route."""
IQN = "iqn.2026-11.org.storagetest"
NQN = "nqn.2026-11.org.storagetest"

CHECK = r"""
target=$1
dd if=/dev/urandom of=/tmp/attach-check bs=64k count=32 status=none
dd if=/tmp/attach-check of="$target" bs=64k oflag=direct conv=notrunc status=none || exit 1
dd if="$target" bs=64k count=32 iflag=direct status=none | cmp - /tmp/attach-check
"""


def options(protocol: str, **more: object) -> Any:
    return protocols.get(protocol).Options.model_validate({"address": APPLIANCE, "deadline": 60, **more})


def attach(client: Host, protocol: str, given: Any) -> Any:
    return protocols.get(protocol)().attach(client, given)


def nfs(**more: object) -> Any:
    return options("nfs", **{"export": "/a", **more})


def smb(secrets: dict[str, str], **more: object) -> Any:
    account = {"share": "a", "username": "storagetest", "password": secrets["smb-password"]}
    return options("smb", **{**account, **more})


def iscsi(target: str = "lab-plain", lun: int = 2, disk: int = 2, **more: object) -> Any:
    """LUN 2 of lab-plain (64 MiB) by default; ``disk`` counts over all targets."""
    return options("iscsi", **{"iqn": f"{IQN}:{target}", "lun": lun, "erase": lio.wwid(disk), **more})


def nvme(subsystem: str = "lab2", namespace: int = 1, disk: int = 3, **more: object) -> Any:
    """Namespace 1 of lab2 (64 MiB) by default; ``disk`` counts over all subsystems."""
    known = {"nqn": f"{NQN}:{subsystem}", "namespace": namespace, "erase": nvmet.wwid(disk)}
    return options("nvme-tcp", **{**known, **more})


def check_data(attachment: Attachment) -> None:
    """Write 2 MiB past the page cache, read them back the same way, compare."""
    directory = attachment.gives is Gives.FILESYSTEM
    target = f"{attachment.path}/check" if directory else attachment.path
    attachment.client.run(["sh", "-c", CHECK, "check", target], deadline=60)
    assert attachment.size >= 1 << 20
