"""The cpio archive is read back by an independent reader; modules come in an order in which they load."""

from __future__ import annotations

import pytest

from storagetest.errors import LabError
from storagetest.lab.initramfs import File, archive, load_order, normalised


def read_back(data: bytes) -> dict[str, tuple[int, bytes]]:
    """Read a newc archive as the kernel does: header of 13 eight-digit fields, name and body padded to 4."""
    found, at = {}, 0
    while True:
        assert data[at : at + 6] == b"070701"
        fields = [int(data[at + 6 + 8 * index : at + 14 + 8 * index], 16) for index in range(13)]
        mode, size, name_size = fields[1], fields[6], fields[11]
        name = data[at + 110 : at + 110 + name_size - 1].decode()
        at = (at + 110 + name_size + 3) & ~3
        if name == "TRAILER!!!":
            assert at == len(data)
            return found
        found[name] = (mode, data[at : at + size])
        at = (at + size + 3) & ~3


def test_an_archive_holds_its_files_and_their_parents_first():
    found = read_back(
        archive({"a/b/c": File(b"12345", 0o755), "init": File(b"x"), "l": File(b"init", link=True)})
    )
    assert list(found) == ["a", "a/b", "a/b/c", "init", "l"]
    assert found["a/b"] == (0o040755, b"")
    assert found["a/b/c"] == (0o100755, b"12345")
    assert found["init"] == (0o100644, b"x")
    assert found["l"] == (0o120777, b"init")


def test_archives_can_stand_behind_one_another():
    assert len(archive({"odd": File(b"1")})) % 4 == 0


DEPENDS = """\
kernel/virtio/virtio_ring.ko:
kernel/virtio/virtio.ko: kernel/virtio/virtio_ring.ko
kernel/virtio/virtio_pci.ko: kernel/virtio/virtio.ko kernel/virtio/virtio_ring.ko
kernel/net/virtio-net.ko.zst: kernel/virtio/virtio.ko kernel/virtio/virtio_ring.ko
"""


def test_dependencies_are_loaded_first_and_once():
    order = load_order(DEPENDS, ["virtio_pci", "virtio_net"])
    assert [normalised(path) for path in order] == ["virtio_ring", "virtio", "virtio_pci", "virtio_net"]


def test_built_in_modules_are_not_loaded():
    assert load_order(DEPENDS, ["ext4", "virtio"], "kernel/fs/ext4/ext4.ko\n") == [
        "kernel/virtio/virtio_ring.ko",
        "kernel/virtio/virtio.ko",
    ]


def test_missing_module_is_named():
    with pytest.raises(LabError, match="no module squashfs"):
        load_order(DEPENDS, ["squashfs"])
