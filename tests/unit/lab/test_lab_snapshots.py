"""Snapshots in the cache: what their name depends on, and that incomplete ones are not used."""

import os
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from storagetest.errors import LabError
from storagetest.lab import guest_files, qemu, roles, snapshots
from storagetest.lab.fault_injection import FaultableVm
from storagetest.lab.services import client


@pytest.fixture(autouse=True)
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(snapshots.qmp, "execute", lambda *_, **__: {"status": "completed"})
    return tmp_path / "storagetest/lab/snapshots"


def machines(role: str = "kernel", clients: int = 1) -> list[qemu.Machine]:
    loaded = roles.load(role)
    return qemu.machines(loaded.memory, loaded.services, clients, 512, (client.SERVICE,))


@pytest.fixture
def boot(tmp_path: Path) -> qemu.Boot:
    for name in ("rootfs", "another", "overlay"):
        Path(tmp_path, name).touch()
    return qemu.Boot("/images/1/vmlinuz", str(tmp_path / "rootfs"), None, kvm=False)


def saved(name: str = "0123456789ab") -> snapshots.LabSnapshot:
    with snapshots.new() as snapshot:
        files = snapshot.files("appliance")
        Path(files.memory).write_bytes(bytes(4096))
        Path(files.state).write_bytes(b"state")
        return snapshots.save(snapshot, Path("lab"), ["appliance"], name)


def test_the_key_depends_on_what_the_state_of_the_machines_depends_on(monkeypatch, boot, tmp_path):
    def key(version: str = "7.2", *, start: qemu.Boot = boot, **lab: object) -> str:
        return snapshots.key_of(machines(**lab), start, version)  # type: ignore[arg-type]

    assert key() == key(), "passwords and keys are not in it"
    keys = [
        key(),
        key(clients=2),
        key(role="userspace"),
        key(version="8.0"),
        key(start=replace(boot, rootfs=str(tmp_path / "another"))),
        key(start=replace(boot, overlay=str(tmp_path / "overlay"))),
        key(start=replace(boot, kvm=True)),
    ]
    monkeypatch.setattr(guest_files, "_script", lambda name: b"another boot script")
    keys.append(key())
    os.utime(boot.rootfs, ns=(1, 1))
    keys.append(key())
    Path(boot.rootfs).write_bytes(b"built again")
    os.utime(boot.rootfs, ns=(1, 1))
    assert len({*keys, key()}) == 10


def test_a_saved_snapshot_is_found_and_its_temporary_directory_is_gone(cache):
    snapshot = saved()
    assert snapshots.find("0123456789ab") == snapshot
    assert [path.name for path in cache.iterdir()] == ["0123456789ab"]
    assert cache.stat().st_mode & 0o077 == 0, "the files contain the memory of a lab, with its passwords"


def test_a_second_save_keeps_the_first_which_a_lab_may_be_reading():
    state = Path(saved().files("appliance").state)
    state.write_bytes(b"first")
    assert saved() == snapshots.find("0123456789ab")
    assert state.read_bytes() == b"first"


def test_a_second_save_replaces_an_incomplete_snapshot():
    Path(saved().files("appliance").state).unlink()
    assert saved() == snapshots.find("0123456789ab")


@pytest.mark.parametrize("damage", ["truncated", "missing", "without sizes"])
def test_a_damaged_snapshot_is_not_found(damage):
    files = saved().files("appliance")
    if damage == "truncated":
        os.truncate(files.memory, 4095)
    elif damage == "missing":
        Path(files.state).unlink()
    else:
        Path(files.state).with_name("snapshot.json").write_text("[]")
    assert snapshots.find("0123456789ab") is None


def test_versions_are_kept_with_the_snapshot():
    snapshot = saved("key")
    assert snapshot.versions(2) is None
    snapshot.keep_versions(["knfsd 6.1", "samba 4.17"])
    assert snapshot.versions(2) == ["knfsd 6.1", "samba 4.17"]
    assert snapshot.versions(3) is None  # a service more: the key is another, but nothing is guessed
    assert snapshots.find("key") == snapshot


@pytest.mark.parametrize("damage", ["", "[1, 2]", "{", '"ab"'])
def test_damaged_versions_are_none(damage):
    snapshot = saved("key")
    (snapshot.path / "versions.json").write_text(damage)
    assert snapshot.versions(2) is None


def test_versions_of_a_snapshot_that_was_removed_are_not_kept():
    snapshot = saved("key")
    snapshots.discard("key")
    snapshot.keep_versions(["knfsd 6.1"])
    assert snapshot.versions(1) is None


def test_a_discarded_snapshot_is_gone(cache):
    saved()
    snapshots.discard("0123456789ab")
    snapshots.discard("0123456789ab")
    assert list(cache.iterdir()) == []


def disk_of(lab: Path) -> Path:
    lab.mkdir()
    return lab / qemu.SHARED_DISK


def test_a_snapshot_has_its_own_copy_of_the_shared_disk_and_each_lab_too(tmp_path):
    disk = disk_of(tmp_path / "first")
    snapshots.write_shared_disk(disk.parent, 1 << 20, None)
    assert disk.read_bytes() == bytes(1 << 20)
    with disk.open("r+b") as file:
        file.write(b"as it was saved")
    with snapshots.new() as snapshot:
        Path(snapshot.files("appliance").memory).write_bytes(b"memory")
        kept = snapshots.save(snapshot, disk.parent, ["appliance"], "0123456789ab")
    disk.write_bytes(b"changed later")
    for name in ("second", "third"):
        other = disk_of(tmp_path / name)
        snapshots.write_shared_disk(other.parent, 1 << 20, kept)
        assert other.read_bytes() == b"as it was saved".ljust(1 << 20, b"\0")
        other.write_bytes(b"changed by another lab")


def test_a_snapshot_without_its_shared_disk_is_not_used(tmp_path):
    disk = disk_of(tmp_path / "first")
    snapshots.write_shared_disk(disk.parent, 4096, None)
    with snapshots.new() as snapshot:
        Path(snapshot.files("appliance").memory).write_bytes(b"memory")
        kept = snapshots.save(snapshot, disk.parent, ["appliance"], "0123456789ab")
    (kept.path / qemu.SHARED_DISK).unlink()
    assert snapshots.find("0123456789ab") is None


def test_a_machine_with_a_shared_disk_is_not_restored_alone(tmp_path):
    disk_of(tmp_path / "lab").touch()
    started = SimpleNamespace(snapshot="0123456789ab")
    with pytest.raises(LabError, match="appliance: restore failed: the disk that the machines share"):
        FaultableVm("appliance", tmp_path / "lab", lambda: started).restore()  # type: ignore[arg-type, return-value]


def test_the_least_recently_used_snapshots_are_removed():
    names = [f"{number:012x}" for number in range(snapshots.KEPT + 1)]
    for age, name in enumerate(names[:-1]):
        facts = saved(name).path / "snapshot.json"
        os.utime(facts, (1000 + age, 1000 + age))
    snapshots.find(names[0])
    saved(names[-1])
    assert [name for name in names if snapshots.find(name) is None] == [names[1]]


def test_a_failed_save_is_an_error_and_leaves_nothing(monkeypatch, cache):
    answer = {"status": "failed", "error-desc": "no space"}
    monkeypatch.setattr(snapshots.qmp, "execute", lambda *_, **__: answer)
    with pytest.raises(LabError, match="qmp-appliance: migrate: no space"):
        saved()
    assert list(cache.iterdir()) == []


def test_leftovers_of_an_ended_process_are_removed_and_those_of_a_running_one_are_kept(cache):
    left, other = cache / ".save-4194305", cache / f".save-{os.getppid()}"  # the first is above pid_max
    for path in (left, other):
        path.mkdir(parents=True)
    with snapshots.new():
        assert not left.exists()
        assert other.exists()
