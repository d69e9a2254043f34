"""``roles``: which target takes each part of a published experiment (``suites/papers``).

    roles: {iscsi: my-array, cifs: my-nas, nfs: my-nas-nfs-v3}

A value is a variant's id, or the name of a target, of which the first variant is used. A role that is not
given leaves its measurements out; the report names them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from storagetest.config.models import Variant
from storagetest.config.validation import ValidationErrors, suggest
from storagetest.config.yaml_source import YamlNode

ROLES: Mapping[str, str] = {
    "cifs": "a file share, published as CIFS or SMB",
    "cluster": "a cluster file system, published as Lustre or pNFS",
    "iscsi": "an iSCSI LUN of at least the profile's size",
    "iscsi-paths": "an iSCSI LUN over two active paths",
    "iscsi-thin": "a thinly provisioned iSCSI LUN",
    "memory": "a file system in memory; without this role /dev/shm of the client",
    "nfs": "an NFS export on a disk of the server",
    "nvme-tcp": "an NVMe/TCP namespace of at least the profile's size",
}
"""Known roles, and what each needs."""


def read_roles(
    section: YamlNode, variants: Sequence[Variant], problems: ValidationErrors
) -> Mapping[str, Variant]:
    """Return the variant of each role; adds errors to ``problems``."""
    roles = {}
    for name, node in problems.mapping(section, "roles").items():
        where = f"roles.{name}"
        if name not in ROLES:
            problems.add(node.key_place, f"{where}: no such role{suggest(name, ROLES)}")
        elif not isinstance(node.value, str):
            problems.add(node.place, f"{where}: expected a target or a variant, not {node.kind}")
        elif (variant := _variant(node.value, variants)) is None:
            known = [*(one.target for one in variants), *(one.id for one in variants)]
            problems.add(
                node.place, f"{where}: unknown target {str(node.value)!r}{suggest(node.value, known)}"
            )
        else:
            roles[name] = variant
    return roles


def _variant(name: str, variants: Sequence[Variant]) -> Variant | None:
    for attribute in ("id", "target"):
        for variant in variants:
            if getattr(variant, attribute) == name:
                return variant
    return None
