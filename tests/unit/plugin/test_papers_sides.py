"""Sides of a published experiment: which of them are attached at the same time, and why one is missing."""

from types import SimpleNamespace

import pytest

from storagetest.config import load
from storagetest.plugin.papers.sides import groups, resolve

TARGETS = """\
version: 1
clients: {one: {transport: local}, two: {transport: local}}
targets:
  array: {protocol: iscsi, address: a.example.net, iqn: "iqn.2026-11.org.example:a", erase: naa.1}
  same: {protocol: iscsi, address: b.example.net, iqn: "iqn.2026-11.org.example:a", erase: naa.1}
  box: {protocol: nvme-tcp, address: a.example.net, nqn: "nqn.2026-11.org.example:b", erase: naa.2}
  nas: {protocol: nfs, address: n.example.net, export: /a, matrix: {version: ["4.2", "3"], nconnect: [1]}}
roles: {iscsi: array, iscsi-paths: same, nvme-tcp: box, nfs: nas}
"""


@pytest.fixture
def state(tmp_path):
    (tmp_path / "targets.yaml").write_text(TARGETS)
    config = load(tmp_path / "targets.yaml")
    return SimpleNamespace(
        config=config,
        variants={variant.id: variant for variant in config.variants},
        failure_reason=lambda variant: None,
        clients=lambda variant: variant.clients,
    )


def side(state, name: str, role: str = "", clients: int = 1, **options):
    return resolve(name, role or name, options, clients, state)


def test_options_are_in_the_id_once(state):
    assert side(state, "nfs").variant.id == "nas-v4.2-nconnect1"
    changed = side(state, "nfs", version="3", wsize="4KiB").variant
    assert (changed.id, changed.options.version, changed.options.wsize) == (
        "nas-v3-nconnect1-wsize4KiB",
        "3",
        4096,
    )


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"name": "cifs"}, "no target has the role cifs"),
        ({"name": "nfs", "lun": 3}, "nas-v4.2-nconnect1: lun"),
        ({"name": "nfs", "version": "5"}, "nas-v4.2-nconnect1: version"),
        ({"name": "nfs", "clients": 3}, "has 2 clients, and 3 are needed"),
    ],
)
def test_a_side_without_a_target_has_a_reason(state, arguments, reason):
    found = side(state, arguments.pop("name"), **arguments)
    assert found.variant is None
    assert reason in found.reason


def test_one_device_and_one_target_are_attached_once_at_a_time(state):
    sides = [side(state, "iscsi"), side(state, "iscsi-paths"), side(state, "nvme-tcp"), side(state, "nfs")]
    sides += [side(state, "a", "nfs", wsize="4KiB"), side(state, "b", "iscsi", filesystem="ext4")]
    names = [[each.name for each in group] for group in groups(sides)]
    assert names == [["iscsi", "nvme-tcp", "nfs"], ["iscsi-paths", "a"], ["b"]]


def test_memory_needs_no_role(state):
    memory = side(state, "memory").variant
    assert (memory.id, memory.protocol, memory.options.path) == ("memory", "local", "/dev/shm")
