"""Building images and packing overlays: whole or not at all, once, and named by what they are made of."""

from __future__ import annotations

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
from storagetest.lab import accel, image, overlays, roles
from storagetest.lab.paths import package_root
from storagetest.polling import wait_until

TINY = image.Recipe(suite="tiny", packages=("one",), excludes=(), early_modules=("squashfs",), version=1)


@pytest.fixture
def cache(monkeypatch, tmp_path) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache/storagetest/lab"


@pytest.fixture
def fake(monkeypatch, tmp_path):
    """A mmdebstrap that runs a shell script instead, and what a tiny tree looks like."""
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


def left(cache: Path) -> list[str]:
    return sorted(path.name for path in (cache / "images").iterdir())


def test_the_hash_is_of_all_that_makes_an_image():
    assert TINY.hash() == replace(TINY).hash()
    others = {
        replace(TINY, packages=("two",)).hash(),
        replace(TINY, version=2).hash(),
        replace(TINY, early_modules=()).hash(),
        replace(TINY, excludes=("/usr/share/doc/*",)).hash(),
        replace(TINY, unpacked=("one",)).hash(),
    }
    assert len(others | {TINY.hash()}) == 6


def test_mmdebstrap_is_given_the_hosts_sources_and_no_mirror_of_ours():
    argv = image.mmdebstrap_argv(image.RECIPES["bookworm"], ["/w/host.list"])
    assert argv[-3:] == ["bookworm", "-", "/w/host.list"]
    assert not [argument for argument in argv if "://" in argument]


def test_what_would_not_be_installed_beside_the_others_is_laid_over_them():
    argv = image.mmdebstrap_argv(replace(TINY, unpacked=("two", "three")), [])
    assert "--include=one" in argv
    hooks = [argument for argument in argv if argument.startswith("--customize-hook=")]
    assert ["two" in hooks[0], "three" in hooks[1], len(hooks)] == [True, True, 3]


def test_every_role_has_a_release_with_an_image():
    found = {name: roles.load(name).recipe.suite for name in roles.names()}
    assert found["kernel"] == "bookworm"
    assert found["smb"] == "trixie"
    assert len({recipe.hash() for recipe in image.RECIPES.values()}) == len(image.RECIPES)


def test_an_image_is_built_and_found(cache, fake):
    fake("cat tree.tar")
    said: list[str] = []
    built = image.build(TINY, said.append)
    assert built == image.find(TINY)
    assert built.kernel_release == "1.0"
    assert built.kernel.read_bytes() == b"kernel"
    assert b"modules/00-squashfs.ko" in built.initrd.read_bytes()
    assert left(cache) == [".lock", TINY.hash()]
    assert image.build(TINY, said.append) == built
    assert len(said) == 2


def test_a_damaged_image_is_not_used_but_built_anew(cache, fake, tmp_path):
    fake("cat tree.tar")
    built = image.build(TINY, lambda _: None)
    built.rootfs.write_bytes(b"short")
    assert image.find(TINY) is None
    assert image.build(TINY, lambda _: None).rootfs.stat().st_size > 5
    assert (tmp_path / "runs").read_text() == "run\nrun\n"


def test_a_build_that_fails_says_why_and_leaves_nothing(cache, fake):
    fake("echo 'E: no network' >&2; exit 1")
    with pytest.raises(LabError, match="E: no network"):
        image.build(TINY, lambda _: None)
    assert left(cache) == [".lock"]
    assert image.find(TINY) is None


def test_two_who_build_at_once_build_once(cache, fake, tmp_path):
    fake("sleep 0.5; cat tree.tar")
    builders = [threading.Thread(target=image.build, args=(TINY, lambda _: None)) for _ in range(3)]
    for builder in builders:
        builder.start()
    for builder in builders:
        builder.join(30)
    assert (tmp_path / "runs").read_text() == "run\n"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_an_interrupted_build_leaves_nothing_that_counts(cache, fake, tmp_path, number):
    fake("echo $$ >pid; exec sleep 60")
    program = f"from storagetest.lab import image\nimage.build(image.{TINY!r}, print)"
    with subprocess.Popen(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": str(package_root())},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as builder:
        wait_until(
            lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text() != "", 20, "the build"
        )
        builder.send_signal(number)
    maker = Path("/proc", (tmp_path / "pid").read_text().strip())
    wait_until(
        lambda: not maker.exists() or "zombie" in (maker / "status").read_text(), 20, "mmdebstrap's end"
    )
    assert image.find(TINY) is None
    fake("cat tree.tar")
    image.build(TINY, lambda _: None)
    assert left(cache) == [".lock", TINY.hash()]


def test_missing_tools_come_with_their_packages(cache, monkeypatch, tmp_path):
    monkeypatch.setattr("shutil.which", lambda *_, **__: None)
    with pytest.raises(LabError, match="apt-get install mmdebstrap squashfs-tools"):
        image.build(TINY, lambda _: None)


def tree(path: Path, **files: str) -> Path:
    for name, text in files.items():
        file = path / name.replace("__", "/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return path


def test_an_overlay_is_known_by_what_is_in_it(tmp_path):
    first = overlays.describe(tree(tmp_path / "a", usr__sbin__tool="x"))
    assert overlays.describe(tree(tmp_path / "b", usr__sbin__tool="x")).hash == first.hash
    assert overlays.describe(tree(tmp_path / "c", usr__sbin__tool="y")).hash != first.hash
    (tmp_path / "a/usr/sbin/tool").chmod(0o755)
    assert overlays.describe(tmp_path / "a").hash != first.hash


def test_what_cannot_be_an_overlay_is_refused(tmp_path):
    with pytest.raises(LabError, match="not a directory"):
        overlays.describe(tmp_path / "nowhere")
    with pytest.raises(LabError, match="put its files under usr/sbin/"):
        overlays.describe(tree(tmp_path, sbin__tool="x"))


def test_modules_for_another_kernel_are_refused(cache, fake, tmp_path):
    fake("cat tree.tar")
    built = image.build(TINY, lambda _: None)
    overlay = overlays.describe(tree(tmp_path / "o", usr__lib__modules__9__x="x"))
    with pytest.raises(LabError, match=r"modules are for Linux 9; the image has 1\.0"):
        overlays.pack(overlay, built, lambda _: None)
    assert list((cache / "overlays").iterdir()) == []


def test_an_overlay_is_packed_once(cache, fake, tmp_path):
    fake("cat tree.tar")
    built = image.build(TINY, lambda _: None)
    overlay = overlays.describe(tree(tmp_path / "o", usr__sbin__tool="x"))
    said: list[str] = []
    packed = overlays.pack(overlay, built, said.append)
    assert overlays.pack(overlay, built, said.append) == packed
    assert len(said) == 1
    assert packed.read_bytes()[:4] == b"hsqs"


def test_a_guest_that_greets_means_kvm_and_silence_means_emulation():
    assert accel.judge("…\r\nstoragetest: a guest runs\r\n", "").kvm
    silent = accel.judge("", "")
    assert not silent.kvm
    assert "does not start within" in silent.detail
    assert accel.judge("", "qemu: failed to set MSR\nmore").detail == "qemu: failed to set MSR"
