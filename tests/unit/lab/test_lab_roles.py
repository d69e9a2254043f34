"""A new role is one module: command line, image, targets.yaml, docs and smoke tests come from it."""

from __future__ import annotations

import argparse
import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from storagetest.lab import cli, guest_files, qemu, roles
from storagetest.lab.paths import lab_dir
from storagetest.lab.reference import page
from storagetest.lab.services import client
from storagetest.lab.targets import targets_yaml

ROOT = Path(__file__).parents[3]
TOY = '''
"""A server for this test."""

from storagetest.lab.roles import Role, SmokeTest
from storagetest.lab.services import ADDRESS, Service, Target

_TARGET = {"protocol": "nfs", "address": ADDRESS, "export": "/toy"}
SERVICE = Service(
    "toyd",
    "toyd --port 2050\\n",
    implementation="toyfs",
    packages=("toy-server",),
    unpacked=("toy-tools",),
    modules=("toy-ko",),
    ports={"toy": 2050},
    targets=(Target("toy-nfs", _TARGET),),
)
ROLE = Role(summary="a toy server", services=(SERVICE,), debian="sid", smoke_tests=(SmokeTest(("toy-nfs",)),))
'''


@pytest.fixture
def toy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Add a role by one module, and nothing else."""
    (tmp_path / "toy.py").write_text(TOY)
    monkeypatch.setattr(roles, "__path__", [*roles.__path__, str(tmp_path)])
    yield "toy"
    sys.modules.pop("storagetest.lab.roles.toy", None)


def test_the_command_line_offers_it(toy: str, capsys: pytest.CaptureFixture[str]):
    parser = argparse.ArgumentParser()
    cli.add_parser(parser.add_subparsers())
    with pytest.raises(SystemExit):
        parser.parse_args(["lab", "up", "--help"])
    assert "empty, kernel, smb, toy, userspace" in " ".join(capsys.readouterr().out.split())


def test_the_image_has_its_packages(toy: str):
    recipe = roles.load(toy).recipe
    assert recipe.suite == "sid"
    assert {"toy-server", "linux-image-cloud-amd64", *client.SERVICE.packages} <= set(recipe.packages)
    assert recipe.unpacked == ("toy-tools",)
    assert "samba" not in recipe.packages
    assert "toy-server" not in roles.load("kernel").recipe.packages


def test_roles_on_one_debian_release_share_an_image():
    assert roles.load("kernel").recipe == roles.load("userspace").recipe == roles.load("empty").recipe
    assert {"samba", "nfs-ganesha"} <= set(roles.load("empty").recipe.packages)
    assert roles.load("smb").recipe.hash() != roles.load("kernel").recipe.hash()


def test_the_guest_loads_its_modules_and_runs_its_script(toy: str):
    role = roles.load(toy)
    machines = qemu.machines(role.memory, role.services, 1, 512, (client.SERVICE,))
    boot = qemu.Boot("kernel", "rootfs", None, kvm=False)
    files = guest_files.files(machines[0], machines, guest_files.Private(b"", b"", {}), boot=boot)
    script = files["lab/services/toyd.sh"].data
    assert script == b". /run/lab/lib.sh\nmodules toy-ko\ntoyd --port 2050\n"
    assert machines[0].forwards == {"ssh": 22, "toy": 2050}


def test_the_generated_targets_file_has_its_targets(toy: str):
    text = targets_yaml("default", "spec", lab_dir("default"), ["client1"], roles.load(toy).targets)
    assert yaml.safe_load(text)["targets"]["toy-nfs"] == {
        "protocol": "nfs",
        "implementation": "toyfs",
        "server": "appliance",
        "clients": "all",
        "address": "10.77.0.1",
        "export": "/toy",
    }


def test_the_reference_page_has_its_tables(toy: str):
    text = page()
    assert "| [`toy`](#toy) | a toy server | sid | 3072 |" in text
    assert "## toy\n\nA server for this test." in text
    assert "| `toy-nfs` | `nfs` | `toyfs` |" in text


def test_the_lab_tests_run_its_smoke_tests(toy: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(ROOT / "tests" / "lab")
    spec = importlib.util.spec_from_file_location("roles_smoke_tests", ROOT / "tests/lab/test_roles.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert toy in module.ROLES
