"""lab image --check-overlay: what a tree lacks, item by item."""

from pathlib import Path

import pytest

from storagetest.cli import main
from storagetest.errors import LabError
from storagetest.lab import cli, image, overlay_check
from storagetest.lab.services import OverlayContents, lustre

RELEASE = "6.1.0-56-cloud-amd64"
ELF = b"\x7fELF".ljust(18, b"\0") + b"\x3e\x00"
HELPER = "usr/sbin/mount.box"
CONTENTS = OverlayContents(
    modules=("box", "box_net"),
    programs=((HELPER, "the helper"),),
    plugins=(("plug.so", "a plugin"),),
    libraries=("libbox",),
)


def module(release: str) -> bytes:
    return ELF + b"\0vermagic=" + release.encode() + b" SMP preempt mod_unload \0"


def put(path: Path, data: bytes, mode: int = 0o755) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    path.chmod(mode)
    return path


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    path = tmp_path / "tree"
    for name in ("box", "box-net"):
        put(path / "usr/lib/modules" / RELEASE / "updates" / f"{name}.ko", module(RELEASE), 0o644)
    put(path / HELPER, ELF + b"\0libbox.so.2\0libc.so.6\0")
    for name in ("box/plug.so", "libbox.so.2"):
        put(path / "usr/lib/x86_64-linux-gnu" / name, ELF)
    return path


def problems(tree: Path) -> dict[str, str]:
    findings = overlay_check.check(tree, CONTENTS, RELEASE)
    return {finding.item.rpartition("/")[2]: finding.problem for finding in findings if finding.problem}


def test_a_complete_tree_has_no_problem(tree):
    assert problems(tree) == {}
    assert len(overlay_check.check(tree, CONTENTS, RELEASE)) == 5


@pytest.mark.parametrize(
    ("change", "found"),
    [
        (lambda tree: (tree / HELPER).unlink(), {"mount.box": "missing"}),
        (lambda tree: (tree / HELPER).chmod(0o644), {"mount.box": "not executable: chmod 755"}),
        (lambda tree: put(tree / HELPER, b"#!/bin/sh\n"), {"mount.box": "a script: libtool's wrapper"}),
        (lambda tree: put(tree / HELPER, ELF[:18] + b"\xb7\0"), {"mount.box": "not a program for x86-64"}),
        (lambda tree: next(tree.rglob("plug.so")).unlink(), {"plug.so": "missing"}),
        (lambda tree: next(tree.rglob("libbox.so.2")).unlink(), {"libbox.so.2": "missing"}),
        (lambda tree: next(tree.rglob("box-net.ko")).unlink(), {"box_net.ko": "missing"}),
        (
            lambda tree: put(next(tree.rglob("box.ko")), module("6.1.0-1-amd64")),
            {"box.ko": f"it is built for Linux 6.1.0-1-amd64, and the image has {RELEASE}"},
        ),
        (lambda tree: put(next(tree.rglob("box.ko")), b""), {"box.ko": "this is not a kernel module"}),
        (
            lambda tree: next(tree.rglob("box.ko")).rename(tree / "usr/lib/modules" / RELEASE / "box.ko.xz"),
            {"box.ko": "box.ko.xz is compressed, and"},
        ),
        (
            lambda tree: (tree / "usr/lib/modules" / RELEASE).rename(tree / "usr/lib/modules/5.10"),
            dict.fromkeys(("box.ko", "box_net.ko"), "the tree has modules for Linux 5.10"),
        ),
    ],
)
def test_what_is_missing_or_unusable_is_a_problem(tree, change, found: dict[str, str]):
    change(tree)
    seen = problems(tree)
    assert seen.keys() == found.keys()
    for item, text in found.items():
        assert seen[item].startswith(text)


def test_a_link_to_nothing_is_a_problem(tree):
    (tree / HELPER).unlink()
    (tree / HELPER).symlink_to("../libexec/mount.box")
    assert problems(tree)["mount.box"] == "a link to ../libexec/mount.box, which the tree does not have"


def test_a_tree_that_hides_a_directory_of_the_image_is_an_error(tree):
    (tree / "sbin").mkdir()
    with pytest.raises(LabError, match="would hide the image's own"):
        overlay_check.check(tree, CONTENTS, RELEASE)


@pytest.fixture
def built(monkeypatch, tmp_path) -> None:
    found = image.Image(tmp_path / "image", RELEASE)
    monkeypatch.setattr(cli.image, "find", lambda _: found)


@pytest.mark.usefixtures("built")
def test_the_command_lists_what_is_missing_and_fails(tmp_path, capsys):
    tree = tmp_path / "lustre"
    tree.mkdir()
    assert main(["lab", "image", "--check-overlay", str(tree)]) == 1
    first, *lines, last = capsys.readouterr().out.splitlines()
    assert first == f"lustre, for Linux {RELEASE} of the image:"
    assert all(line.startswith("  NO  ") for line in lines)
    assert last.startswith(f"{len(lines)} missing or unusable: ")
    contents = lustre.SERVICE.overlay
    assert contents is not None
    for name in contents.modules:
        put(tree / "usr/lib/modules" / RELEASE / f"{name}.ko", module(RELEASE))
    for name, _ in contents.programs:
        put(tree / name, ELF)
    for name, _ in contents.plugins:
        put(tree / "usr/lib64" / name, ELF)
    assert main(["lab", "image", "--check-overlay", str(tree)]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == f"complete: storagetest lab up --overlay {tree}"


@pytest.mark.usefixtures("built")
@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["--check-overlay", "/none"], "--overlay /none: not a directory"),
        (["--appliance", "empty", "--check-overlay", "/"], "no service of the role empty needs an overlay"),
    ],
)
def test_what_cannot_be_checked_is_an_error(capsys, argv: list[str], words: str):
    assert main(["lab", "image", *argv]) == 2
    assert words in capsys.readouterr().err
