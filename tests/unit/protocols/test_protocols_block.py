"""Is a device in use? Decisions on given facts; facts and clearing on real loop devices."""

import dataclasses
import errno
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from device_facts import CLEAN
from loop_devices import loop_device, make_image, needs_loop_devices

from storagetest.errors import AttachError, DataAtRisk
from storagetest.hosts import Journal, LocalHost
from storagetest.protocols import _block_device, _device_probe
from storagetest.protocols._block_device import LABEL, parse_facts, refusal_reason
from storagetest.protocols.base import AttachmentKind, protocols

Local: Any = protocols.get("local")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"identity": ""}, "has no identity"),
        ({"mounts": ("/home",)}, "mounted on /home"),
        ({"swap": True}, "swap"),
        ({"holders": ("dm-0 (vg-lv)",)}, r"in use by dm-0 \(vg-lv\)"),
        ({"same_disks": ("sdb",)}, "also as sdb"),
        ({"partition": True}, "it is a partition"),
        ({"partitions": ("sdx1",)}, "has partitions: sdx1"),
        ({"busy": "Device or resource busy"}, "refuses exclusive access"),
        ({"problem": "wipefs cannot say"}, "wipefs cannot say"),
        ({"signatures": (("ext4", "home"),)}, r"signature: ext4 \(label 'home'\)"),
        ({"signatures": (("LVM2_member", ""),)}, "signature: LVM2_member"),
        ({"signatures": (("ext4", LABEL), ("gpt", ""))}, "signature: gpt"),
        ({"signatures": (("ext4", f"{LABEL}-home"),)}, "signature: ext4"),
        ({"read_only": True}, "read-only"),
    ],
)
def test_any_sign_of_use_is_a_refusal(change: dict[str, Any], words: str) -> None:
    assert re.search(words, refusal_reason(dataclasses.replace(CLEAN, **change), "naa.1"))


def test_the_named_device_is_granted() -> None:
    assert refusal_reason(CLEAN, "naa.1") is None
    assert refusal_reason(dataclasses.replace(CLEAN, signatures=(("ext4", LABEL),)), "naa.1") is None


@pytest.mark.parametrize("erase", [None, "naa.2", "naa.11", "NAA.1", ""])
def test_erase_must_be_exact_and_the_message_names_the_line(erase: str | None) -> None:
    assert refusal_reason(CLEAN, erase).endswith('\n    erase: "naa.1"')


def test_a_sign_of_use_comes_before_the_invitation_to_erase() -> None:
    assert "erase:" not in refusal_reason(dataclasses.replace(CLEAN, mounts=("/",)), None)


def test_a_device_that_is_not_there() -> None:
    with pytest.raises(AttachError, match="No such file"):
        parse_facts(json.dumps({"problem": "/dev/x: No such file or directory"}))


def test_program_and_facts_agree_on_their_keys(tmp_path: Path) -> None:
    """The program imports nothing of ours, so only a test can hold the two together."""
    assert _device_probe.__doc__
    fields = {field.name for field in dataclasses.fields(_block_device.DeviceFacts)}
    assert fields == set(CLEAN.__slots__)
    assert parse_facts(
        json.dumps({**dataclasses.asdict(CLEAN), "signatures": [{"type": "a", "label": "b"}]})
    ) == (dataclasses.replace(CLEAN, signatures=(("a", "b"),)))


@pytest.fixture
def sysfs(tmp_path: Path) -> Path:
    """A multipath map dm-0 of two paths to one disk, as sysfs shows it."""
    (tmp_path / "dm-0" / "dm").mkdir(parents=True)
    (tmp_path / "dm-0" / "slaves").mkdir()
    for name in ("sda", "sdb"):
        (tmp_path / name / "device").mkdir(parents=True)
        (tmp_path / name / "device" / "wwid").write_text("naa.1\n")
        (tmp_path / "dm-0" / "slaves" / name).symlink_to(tmp_path / name)
    (tmp_path / "dm-0" / "dm" / "uuid").write_text("storagetest-mpath-x\n")
    return tmp_path


def test_a_multipath_map_is_known_by_its_paths(sysfs: Path) -> None:
    assert _device_probe.identity(sysfs / "dm-0") == "naa.1"
    (sysfs / "dm-0/dm/uuid").write_text("mpath-3600\n")
    assert _device_probe.identity(sysfs / "dm-0") == "naa.1"


def test_a_map_of_another_kind_or_of_two_disks_is_known_by_nothing(sysfs: Path) -> None:
    (sysfs / "sdb/device/wwid").write_text("naa.2\n")
    assert _device_probe.identity(sysfs / "dm-0") == ""
    (sysfs / "sdb/device/wwid").write_text("naa.1\n")
    (sysfs / "dm-0/dm/uuid").write_text("LVM-xyz\n")
    assert _device_probe.identity(sysfs / "dm-0") == ""


def refuse(_count: int) -> int:
    raise OSError(errno.EIO, os.strerror(errno.EIO))


READ_FAULTS: dict[str, Callable[[int], int]] = {
    "refused": refuse,
    "short": lambda count: count - 512,
    "empty": lambda _count: 0,
}


@pytest.mark.parametrize("fault", READ_FAULTS.values(), ids=READ_FAULTS)
@pytest.mark.parametrize("at", range(4))
def test_a_bad_read_of_the_device_is_a_problem(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: int, fault: Callable[[int], int]
) -> None:
    """Of two readings of start and end, each read in turn fails."""
    disk = make_image(tmp_path / "disk.img", 4 << 20)
    assert _device_probe._signatures(str(disk)) == []
    counts, preadv = iter(range(8)), os.preadv

    def read(handle: int, buffers: list[Any], start: int) -> int:
        count = preadv(handle, buffers, start)
        return fault(count) if next(counts) == at else count

    monkeypatch.setattr(os, "preadv", read)
    with pytest.raises((OSError, ValueError), match=r"Input/output error|returned"):
        _device_probe._signatures(str(disk))


@pytest.mark.parametrize("second", [[], [{"type": "xfs", "label": ""}]])
def test_signatures_that_differ_between_two_looks_are_a_problem(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, second: list[dict[str, str]]
) -> None:
    disk = make_image(tmp_path / "disk.img", 4 << 20)
    found = iter([[{"type": "ext4", "label": ""}], second])
    monkeypatch.setattr(_device_probe, "_wipefs", lambda _device: next(found))
    with pytest.raises(ValueError, match="differ"):
        _device_probe._signatures(str(disk))


def test_a_device_without_blocks_is_a_problem(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no blocks"):
        _device_probe._signatures(str(make_image(tmp_path / "disk.img", 0)))


@pytest.mark.parametrize(
    "text", ["", "x", "[]", "null", "1", '{"path": "/dev/sda"}', '{"path": 1, "signatures": [1]}', "{}"]
)
def test_facts_that_are_garbled_are_refused(text: str) -> None:
    with pytest.raises(AttachError, match="returned no facts"):
        parse_facts(text)


@pytest.fixture
def image(tmp_path: Path) -> Path:
    return make_image(tmp_path / "disk.img", 64 << 20)


@pytest.fixture
def device(image: Path) -> Iterator[str]:
    with loop_device(image) as name:
        yield name


def attach(device: str, **more: object) -> Any:
    return Local().attach(LocalHost(), Local.Options(device=device, **more))


def assert_refused(device: str, message: str, *, error: type[Exception] = DataAtRisk, **more: object) -> None:
    with pytest.raises(error, match=message), attach(device, **more):
        pytest.fail("it was leased")


def run(*argv: str) -> None:
    subprocess.run(argv, check=True, capture_output=True)


def mounts_of(device: str) -> list[str]:
    return [line for line in Path("/proc/self/mountinfo").read_text().splitlines() if f" {device} " in line]


@needs_loop_devices
def test_raw_device_is_leased_and_cleared(device: str, image: Path) -> None:
    with attach(device, erase=f"loop.{image}") as attachment:
        assert (attachment.path, attachment.kind, attachment.size) == (device, AttachmentKind.BLOCK, 64 << 20)
        make_file_system(device, "by chance")
    content = image.read_bytes()
    assert not any(content[: 1 << 20])
    assert not any(content[-(1 << 20) :])
    assert Journal(LocalHost()).entries() == []


@needs_loop_devices
def test_file_system_is_made_mounted_and_removed(device: str, image: Path) -> None:
    with attach(device, erase=f"loop.{image}", filesystem="ext4") as attachment:
        assert attachment.kind is AttachmentKind.FILESYSTEM
        assert 0 < attachment.size < 64 << 20
        assert attachment.negotiated == {"filesystem": "ext4"}
        assert list(Path(attachment.path).iterdir()) == []
        (Path(attachment.path) / "file").write_text("x")
        assert mounts_of(device)
        assert any(device in entry.description for entry in Journal(LocalHost()).entries())
    assert not mounts_of(device)
    assert not Path(attachment.path).exists()
    assert _device_probe.facts(device)["signatures"] == []


@needs_loop_devices
def test_leftover_of_ours_may_be_wiped(device: str, image: Path) -> None:
    make_file_system(device, LABEL)
    with attach(device, erase=f"loop.{image}"):
        assert _device_probe.facts(device)["signatures"] == []


def make_file_system(device: str, label: str = "precious") -> None:
    run("mkfs.ext4", "-q", "-F", "-L", label, device)


def with_swap_signature(device: str) -> None:
    run("mkswap", device)


def with_partition_table(device: str) -> None:
    # A master boot record with one Linux partition from sector 2048 on, 4096 sectors long.
    entry = bytes([0, 0, 0, 0, 0x83, 0, 0, 0]) + (2048).to_bytes(4, "little") + (4096).to_bytes(4, "little")
    with Path(device).open("r+b") as disk:
        disk.write(bytes(446) + entry + bytes(48) + b"\x55\xaa")
    run("blockdev", "--rereadpt", device)


@needs_loop_devices
@pytest.mark.parametrize("other_user", [make_file_system, with_swap_signature, with_partition_table])
@pytest.mark.parametrize("filesystem", [None, "ext4"])
def test_data_is_never_overwritten(
    device: str, image: Path, other_user: Callable[[str], None], filesystem: str | None
) -> None:
    other_user(device)
    before = image.read_bytes()
    message = r"data that is in use: it (has a signature|has partitions)"
    assert_refused(device, message, erase=f"loop.{image}", filesystem=filesystem)
    assert image.read_bytes() == before
    if other_user is with_partition_table:
        run("wipefs", "--all", device)
        run("blockdev", "--rereadpt", device)


@needs_loop_devices
@pytest.mark.parametrize("erase", [None, "loop.another", "naa.1"])
def test_unnamed_device_is_never_overwritten(device: str, image: Path, erase: str | None) -> None:
    before = image.read_bytes()
    assert_refused(device, "erase: ", erase=erase)
    assert image.read_bytes() == before


@needs_loop_devices
def test_mounted_device_is_refused(device: str, image: Path, tmp_path: Path) -> None:
    make_file_system(device, LABEL)
    run("mount", device, str(tmp_path))
    try:
        assert_refused(device, "it is mounted on", erase=f"loop.{image}")
    finally:
        run("umount", str(tmp_path))


@needs_loop_devices
def test_device_held_exclusively_is_refused(device: str, image: Path) -> None:
    handle = os.open(device, os.O_RDONLY | os.O_EXCL)
    try:
        assert_refused(device, "refuses exclusive access", erase=f"loop.{image}")
    finally:
        os.close(handle)


@needs_loop_devices
def test_same_disk_twice_is_refused(device: str, image: Path) -> None:
    with loop_device(image):
        assert_refused(device, "has the same disk also", erase=f"loop.{image}")


@pytest.mark.parametrize("name", ["/dev/no-such-device", "/dev/null"])
def test_no_such_device(name: str) -> None:
    assert_refused(name, r"No such file|is not a block device", error=AttachError)


def test_clear_leaves_another_device_alone(image: Path) -> None:
    argv = [sys.executable, _device_probe.__file__, "clear", "/dev/null", "loop.x"]
    assert subprocess.run(argv, capture_output=True, check=False).returncode != 0


def test_tools_follow_the_file_system() -> None:
    options = Local.Options(device="/dev/x", filesystem="xfs")
    assert _block_device.required_tools(options) == ["python3", "wipefs", "mkfs.xfs"]
