"""Helpers of the attach tests: options of the lab's targets, and a data check of an attachment."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from storagetest.hosts import Host, Journal, SshHost, SshSettings
from storagetest.lab import Lab
from storagetest.lab.services import lio, nvmet
from storagetest.protocols.base import Attachment, AttachmentKind, protocols

APPLIANCE = "10.77.0.1"
UNUSED_ADDRESS = "10.77.0.99"
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


LEFT = r"""
grep -o ' /run/storagetest/[^ ]*' /proc/self/mountinfo | sed 's/^/mount/'
ls -1U /run/storagetest 2>/dev/null | sed 's/^/file /'
ls -d /dev/mapper/storagetest-* 2>/dev/null
ls -d /sys/class/iscsi_session/* /sys/class/nvme/* 2>/dev/null
ls -d /etc/iscsi/nodes/*/* 2>/dev/null
grep -lszxE '(u?mount|iscsiadm|nvme|mkfs|rm)(\.[a-z0-9]+)?' /proc/[0-9]*/cmdline
exit 0
"""


class RecordingHost(SshHost):
    """A host over SSH that records all command lines, so that a test can search them for secrets."""

    def __init__(self, settings: SshSettings) -> None:
        super().__init__(settings)
        self.commands: list[str] = []
        self.before: Callable[[Sequence[str]], None] = lambda argv: None
        """Called with each command line before it is executed."""

    def run(self, argv, **more):
        if self.shortcut is not None:
            self._record(argv)
        return super().run(argv, **more)

    def _execute(self, argv, **more):
        self._record(argv)
        return super()._execute(argv, **more)

    def _record(self, argv: Sequence[str]) -> None:
        self.commands.append(" ".join(argv))
        self.before(argv)

    def left(self) -> list[str]:
        """Return leftovers of an attach: mounts, files, sessions, records, controllers, journal entries."""
        found = self.run(["bash", "-c", LEFT], deadline=30).stdout.splitlines()
        return found + [f"journal: {getattr(entry, 'what', entry)}" for entry in Journal(self).entries()]


def connect(lab: Lab, name: str) -> RecordingHost:
    return RecordingHost(SshSettings(name, name, ssh_config=lab.ssh_config))


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


def lustre(**more: object) -> Any:
    known = {"mgs": f"{APPLIANCE}@tcp", "fsname": "lustre", "deadline": 60}
    return protocols.get("lustre").Options.model_validate({**known, **more})


def check_data(attachment: Attachment) -> None:
    """Write 2 MiB with O_DIRECT, read them back with O_DIRECT, compare."""
    directory = attachment.kind is AttachmentKind.FILESYSTEM
    target = f"{attachment.path}/check" if directory else attachment.path
    attachment.client.run(["sh", "-c", CHECK, "check", target], deadline=60)
    assert attachment.size >= 1 << 20
