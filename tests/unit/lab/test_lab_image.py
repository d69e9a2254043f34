"""The lab's image and its initramfs."""

import io
import os
import signal
import subprocess
import sys
import tarfile
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from storagetest.errors import LabError
from storagetest.lab import image, kvm, overlays
from storagetest.lab.initramfs import File, archive, load_order, normalised
from storagetest.lab.paths import package_root
from storagetest.polling import wait_until

TINY = image.Recipe(suite="tiny", packages=("one",), excludes=(), early_modules=("squashfs",), version=1)


@pytest.fixture
def cache(monkeypatch, tmp_path) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache/storagetest/lab"


@pytest.fixture
def fake(cache, monkeypatch, tmp_path):
    """Install a fake mmdebstrap that runs a shell script; tree.tar is a minimal image tree."""
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as tar:
        for name, data in {
            "./boot/vmlinuz-1.0": b"kernel",
            "./usr/bin/busybox": b"busybox",
            "./usr/lib/modules/1.0/modules.dep": b"a/squashfs.ko:\n",
            "./usr/lib/modules/1.0/modules.builtin": b"",
            "./usr/lib/modules/1.0/a/squashfs.ko": b"module",
        }.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    (tmp_path / "tree.tar").write_bytes(content.getvalue())
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    (tmp_path / "bin").mkdir()

    def install(script: str) -> None:
        tool = tmp_path / "bin/mmdebstrap"
        tool.write_text(f"#!/bin/sh\ncd {tmp_path}\necho run >>runs\n{script}\n")
        tool.chmod(0o755)

    return install


@pytest.fixture
def built(fake) -> image.Image:
    """The tiny image."""
    fake("cat tree.tar")
    return build()


def build() -> image.Image:
    return image.build(TINY, lambda _: None)


def left(cache: Path) -> list[str]:
    return sorted(path.name for path in (cache / "images").iterdir())


def test_the_hash_covers_the_whole_recipe():
    assert TINY.hash() == replace(TINY).hash()
    changes = [{"packages": ("two",)}, {"version": 2}, {"early_modules": ()}]
    changes += [{"excludes": ("/usr/share/doc/*",)}, {"unpacked": ("one",)}]
    assert len({recipe.hash() for recipe in (TINY, *(replace(TINY, **each) for each in changes))}) == 6


def test_mmdebstrap_gets_the_hosts_sources_and_no_fixed_mirror():
    argv = image.mmdebstrap_argv(image.Recipe.of("bookworm", (), ()), ["/w/host.list"])
    assert argv[-3:] == ["bookworm", "-", "/w/host.list"]
    assert not [argument for argument in argv if "://" in argument]


def test_conflicting_packages_are_only_unpacked():
    argv = image.mmdebstrap_argv(replace(TINY, unpacked=("two", "three")), [])
    assert "--include=one" in argv
    hooks = [argument for argument in argv if argument.startswith("--customize-hook=")]
    assert ["two" in hooks[0], "three" in hooks[1], len(hooks)] == [True, True, 3]


def test_an_image_is_built_and_found(cache, fake):
    fake("cat tree.tar")
    messages: list[str] = []
    built = image.build(TINY, messages.append)
    assert built == image.find(TINY)
    assert built.kernel_release == "1.0"
    assert built.kernel.read_bytes() == b"kernel"
    assert b"modules/00-squashfs.ko" in built.initrd.read_bytes()
    assert left(cache) == [".lock", TINY.hash()]
    assert image.build(TINY, messages.append) == built
    assert len(messages) == 2


def test_a_damaged_image_is_rebuilt(built, tmp_path):
    built.rootfs.write_bytes(b"short")
    assert image.find(TINY) is None
    assert build().rootfs.stat().st_size > 5
    assert (tmp_path / "runs").read_text() == "run\nrun\n"


def test_a_failed_build_has_the_tools_stderr_and_leaves_nothing(cache, fake):
    fake("echo 'E: no network' >&2; exit 1")
    with pytest.raises(LabError, match="E: no network"):
        build()
    assert left(cache) == [".lock"]
    assert image.find(TINY) is None


def test_concurrent_builds_build_once(fake, tmp_path):
    fake("sleep 0.5; cat tree.tar")
    builders = [threading.Thread(target=build) for _ in range(3)]
    for builder in builders:
        builder.start()
    for builder in builders:
        builder.join(30)
    assert (tmp_path / "runs").read_text() == "run\n"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_an_interrupted_build_leaves_no_image(cache, fake, tmp_path, number):
    fake("echo $$ >pid; exec sleep 60")
    program = f"from storagetest.lab import image\nimage.build(image.{TINY!r}, print)"
    argv, env = [sys.executable, "-c", program], {**os.environ, "PYTHONPATH": str(package_root())}
    pid, null = tmp_path / "pid", subprocess.DEVNULL
    with subprocess.Popen(argv, env=env, stdout=null, stderr=null) as builder:
        wait_until(lambda: pid.exists() and pid.read_text() != "", 20, "the build")
        builder.send_signal(number)
    maker = Path("/proc", pid.read_text().strip())
    wait_until(
        lambda: not maker.exists() or "zombie" in (maker / "status").read_text(), 20, "mmdebstrap's end"
    )
    assert image.find(TINY) is None
    fake("cat tree.tar")
    build()
    assert left(cache) == [".lock", TINY.hash()]


def test_missing_tools_are_an_error_with_their_packages(cache, monkeypatch, tmp_path):
    monkeypatch.setattr("shutil.which", lambda *_, **__: None)
    with pytest.raises(LabError, match="apt-get install binutils mmdebstrap squashfs-tools"):
        build()


def tree(path: Path, **files: str) -> Path:
    for name, text in files.items():
        file = path / name.replace("__", "/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return path


def test_an_overlays_hash_covers_content_and_modes(tmp_path):
    first = overlays.describe(tree(tmp_path / "a", usr__sbin__tool="x"))
    assert overlays.describe(tree(tmp_path / "b", usr__sbin__tool="x")).hash == first.hash
    assert overlays.describe(tree(tmp_path / "c", usr__sbin__tool="y")).hash != first.hash
    (tmp_path / "a/usr/sbin/tool").chmod(0o755)
    assert overlays.describe(tmp_path / "a").hash != first.hash


def test_unusable_overlays_are_rejected(tmp_path):
    with pytest.raises(LabError, match="not a directory"):
        overlays.describe(tmp_path / "nowhere")
    with pytest.raises(LabError, match="Move its files to usr/sbin/"):
        overlays.describe(tree(tmp_path, sbin__tool="x"))


def test_modules_for_another_kernel_are_rejected(cache, built, tmp_path):
    overlay = overlays.describe(tree(tmp_path / "o", usr__lib__modules__9__x="x"))
    with pytest.raises(LabError, match=r"modules are for Linux 9, but the image has 1\.0"):
        overlays.pack(overlay, built, lambda _: None)
    assert list((cache / "overlays").iterdir()) == []


def test_an_overlay_is_packed_once(built, tmp_path):
    overlay = overlays.describe(tree(tmp_path / "o", usr__sbin__tool="x"))
    messages: list[str] = []
    packed = overlays.pack(overlay, built, messages.append)
    assert overlays.pack(overlay, built, messages.append) == packed
    assert len(messages) == 1
    assert packed.read_bytes()[:4] == b"hsqs"


def test_the_probes_output_decides_between_kvm_and_emulation():
    assert kvm.parse_probe("…\r\nstoragetest: a guest runs\r\n", "").kvm
    silent = kvm.parse_probe("", "")
    assert not silent.kvm
    assert "no guest output within" in silent.detail
    assert kvm.parse_probe("", "qemu: failed to set MSR\nmore").detail == "qemu: failed to set MSR"


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
