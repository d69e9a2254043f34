"""Bad input to `storagetest lab` is one clear sentence."""

from __future__ import annotations

import argparse

import pytest

from storagetest.lab.cli import add_parser


def run(*argv: str) -> int:
    parser = argparse.ArgumentParser()
    add_parser(parser.add_subparsers())
    args = parser.parse_args(["lab", *argv])
    return args.func(args)


@pytest.fixture(autouse=True)
def empty(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.mark.parametrize(
    ("argv", "sentence"),
    [
        (
            ["up", "--appliance", "nas"],
            "no appliance is called 'nas'; there are: alternate, bare, kernel, smb",
        ),
        (["up", "--clients", "-1"], "a lab has up to 64 clients: not -1"),
        (
            ["up", "--name", "A b"],
            "a lab's name has up to 32 lower-case letters, digits and dashes: not 'A b'",
        ),
        (["up", "--overlay", "/nowhere"], "/nowhere is not a directory, so it cannot be an overlay"),
        (["status"], "lab default is not up"),
        (["ssh", "client1", "--", "true"], "lab default is not up: `storagetest lab up` starts it"),
        (
            ["image", "--print-kernel"],
            "the image is not built yet: `storagetest lab image --appliance kernel --build` builds it",
        ),
    ],
)
def test_one_sentence(capsys, argv, sentence):
    assert run(*argv) == 2
    assert capsys.readouterr() == ("", f"storagetest lab: {sentence}\n")


def test_down_of_what_is_not_up_is_no_error(capsys):
    assert run("down", "--name", "x") == 0
    assert capsys.readouterr().err == "lab x is not up\n"
