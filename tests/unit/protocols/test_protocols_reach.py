"""The check before an attach: its parser and words, and the real command against this machine's loopback."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from storagetest.errors import ClientLacks, TargetDead
from storagetest.hosts import LocalHost
from storagetest.protocols import _preflight
from storagetest.protocols._preflight import PreflightResult
from storagetest.protocols.base import ClientRequirements

GOOD = PreflightResult(root=True, tools=(), modules=(), connect=(0, ""))


def say(findings: PreflightResult) -> None:
    _preflight.raise_for_findings(
        findings, client="c1", target="nfs h:/e", address="h", port=2049, packages="nfs-common"
    )


def test_parse() -> None:
    text = "root no\ntool mount.nfs\ntool x\nmodule nfsv4\nconnect 1 bash: connect: Connection refused\n"
    assert _preflight.parse_findings(text) == PreflightResult(
        False, ("mount.nfs", "x"), ("nfsv4",), (1, "bash: connect: Connection refused")
    )
    assert _preflight.parse_findings("connect 0 \n") == GOOD
    assert _preflight.parse_findings("") == PreflightResult(True, (), (), None)


def test_nothing_lacking_is_silent() -> None:
    say(GOOD)
    say(PreflightResult(True, (), (), None))


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"tools": ("mount.nfs",)}, ClientLacks, "c1 has no mount.nfs.*Install nfs-common"),
        ({"modules": ("nfsv4",)}, ClientLacks, "c1's kernel has no nfsv4"),
        (
            {"root": False, "modules": ("nfsv4",), "connect": None},
            ClientLacks,
            "not root and cannot load modules",
        ),
        ({"root": False}, ClientLacks, "require root on c1"),
        ({"connect": (1, "Connection refused")}, TargetDead, "c1 cannot connect to h port 2049: .*refused"),
        ({"connect": (124, "")}, TargetDead, "no response within"),
    ],
)
def test_each_lack_has_its_error(change: dict[str, Any], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        say(replace(GOOD, **change))


def test_unknown_words_are_passed_on() -> None:
    assert _preflight.unreachable_reason(1, "bash: something new", "h") == "bash: something new"
    assert _preflight.unreachable_reason(7, "", "h") == "status 7"


@pytest.fixture
def listener() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def check(address: str, port: int, **more: object) -> None:
    needs = ClientRequirements(address=address, port=port, **more)  # type: ignore[arg-type]  # tools or modules
    _preflight.check_client(LocalHost(), needs, target="a target", deadline=30)


def test_open_port_is_reached(listener: int) -> None:
    check("127.0.0.1", listener, tools=("sh",))


def test_closed_port(listener: int) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        closed = server.getsockname()[1]
    with pytest.raises(TargetDead, match=f"cannot connect to .* port {closed}: .* refused"):
        check("127.0.0.1", closed)


def test_unknown_name() -> None:
    with pytest.raises(TargetDead, match=r"the name 'no-such-host\.invalid'"):
        check("no-such-host.invalid", 1)


def test_missing_tool_and_module_are_found() -> None:
    with pytest.raises(ClientLacks, match="no-such-tool"):
        check("", 0, tools=("sh", "no-such-tool"))
    with pytest.raises(ClientLacks, match="no_such_module"):
        check("", 0, modules=("no_such_module",))


def test_collect_never_raises() -> None:
    found = _preflight.collect_diagnostics(
        LocalHost(), {"good": ["echo", "x"], "bad": ["false"], "missing": ["no-such-tool"]}
    )
    assert found["good"] == "x\n"
    assert "exited 1" in found["bad"]
    assert "not installed" in found["missing"]
    assert "dmesg" in found
