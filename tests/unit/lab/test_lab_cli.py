"""Errors and warnings of `storagetest lab`."""

import argparse

import pytest

from storagetest.lab import roles
from storagetest.lab.cli import add_parser

ROLES = ", ".join(roles.names())
LAB_NAME = "use up to 32 lower-case letters, digits and dashes"
BUILD = "storagetest lab image --appliance kernel --build"


def run(*argv: str) -> int:
    parser = argparse.ArgumentParser()
    add_parser(parser.add_subparsers())
    args = parser.parse_args(["lab", *argv])
    return args.func(args)


@pytest.fixture(autouse=True)
def empty_directories(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["up", "--appliance", "nas"], f"--appliance nas: unknown role. Known roles: {ROLES}."),
        (["up", "--clients", "-1"], "--clients -1: use 0 to 64"),
        (["up", "--name", "A b"], f"invalid lab name 'A b': {LAB_NAME}"),
        (["up", "--overlay", "/nowhere"], "--overlay /nowhere: not a directory"),
        (["status"], "lab default is not up"),
        (["ssh", "client1", "--", "true"], "lab default is not up. Run `storagetest lab up`."),
        (["image", "--print-kernel"], f"the image is not built yet. Run `{BUILD}`."),
    ],
)
def test_an_error_is_one_line(capsys, argv, message):
    assert run(*argv) == 2
    assert capsys.readouterr() == ("", f"storagetest lab: {message}\n")


def test_down_without_a_lab_is_no_error(capsys):
    assert run("down", "--name", "x") == 0
    assert capsys.readouterr().err == "lab x is not up\n"


@pytest.mark.parametrize(("old", "new"), roles.RENAMED.items())
def test_a_former_role_name_is_accepted_with_a_warning(capsys, old, new):
    assert run("image", "--appliance", old) == 2
    warning, error = capsys.readouterr().err.splitlines()
    assert warning.startswith("storagetest lab: warning: --appliance: ")
    assert old in warning
    assert new in warning
    assert f"--appliance {new} --build" in error
