"""The block suite undoes registrations from both clients, and states what it cannot undo."""

from __future__ import annotations

import errno
import importlib.util
import struct
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from storagetest.agent.testlib import pr_ioctl

CONFTEST = Path(__file__).parents[3] / "suites/conformance/block/conftest.py"
CONFLICT = 0x18


@pytest.fixture(scope="module")
def suite() -> ModuleType:
    spec = importlib.util.spec_from_file_location("block_suite_conftest", CONFTEST)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


class Device:
    """Registrations by client. ``refuses`` has (client, name of the ioctl) that end in a conflict."""

    def __init__(self, registered: dict[str, int], refuses: set[tuple[str, str]]) -> None:
        self.keys, self.refuses = dict(registered), refuses
        self.dead: set[str] = set()
        self.sticky = False

    def call(self, client: str, name: str, *arguments: Any) -> list[int] | int:
        if client in self.dead:
            raise OSError(errno.EIO, "Input/output error")
        if name != "ioctl":
            if self.sticky or self.keys.keys() - {client}:
                raise OSError(errno.EBADE, "Invalid exchange")
            return len(arguments[1])
        _, number, data = arguments
        action = {200: "register", 205: "clear"}[number & 0xFF]
        if (client, action) in self.refuses:
            return [CONFLICT]
        if action == "clear":
            self.keys.clear()
        elif struct.unpack_from("=QQ", data)[1]:
            self.keys[client] = struct.unpack_from("=QQ", data)[1]
        else:
            self.keys.pop(client, None)
        return [0]


class Session:
    def __init__(self, device: Device, name: str) -> None:
        self.device, self.name = device, name

    def call(self, name: str, *arguments: Any) -> list[int] | int:
        return self.device.call(self.name, name, *arguments)


def pair_on(suite: ModuleType, device: Device) -> tuple[Any, Any]:
    first, second = (
        suite.Initiator(Session(device, name), "/dev/x", key, 1, "") for name, key in (("a", 0xA), ("b", 0xB))
    )
    return first, second


def test_pr_numbers() -> None:
    assert [pr_ioctl.register(1)[0] & 0xFF, pr_ioctl.clear(1)[0] & 0xFF] == [200, 205]


@pytest.mark.parametrize("registered", [{}, {"a": 1}, {"b": 2}, {"a": 1, "b": 2}])
@pytest.mark.parametrize("refused", [set(), {("a", "register")}, {("a", "clear")}, {("b", "clear")}])
def test_either_client_undoes_all(suite: ModuleType, registered: dict[str, int], refused: set[Any]) -> None:
    device = Device(registered, refused)
    pair = pair_on(suite, device)
    assert suite.undo_registrations(pair) == ""
    assert suite.still_refused(pair) == ""
    assert not device.keys


def test_a_client_that_does_not_respond_hinders_no_other(suite: ModuleType) -> None:
    device = Device({"b": 2}, set())
    device.dead = {"a"}
    assert suite.undo_registrations(pair_on(suite, device)) == ""
    assert not device.keys
    assert "a: " in suite.still_refused(pair_on(suite, device))


@pytest.mark.parametrize(
    "refused", [{(client, action) for client in "ab"} for action in ("register", "clear")]
)
def test_what_no_client_can_undo_is_returned(suite: ModuleType, refused: set[tuple[str, str]]) -> None:
    left = suite.undo_registrations(pair_on(suite, Device({"b": 2}, refused)))
    assert left.count("IOC_PR_CLEAR end with") == 2


def test_a_reservation_that_outlives_clear_is_noticed(suite: ModuleType) -> None:
    device = Device({}, set())
    device.sticky = True
    pair = pair_on(suite, device)
    assert suite.undo_registrations(pair) == ""
    assert suite.still_refused(pair) == "a may not write (EBADE)"
