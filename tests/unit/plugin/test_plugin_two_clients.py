"""Cases of two clients: their fixtures, and reservations of a block device."""

import errno
import importlib.util
import os
import signal
import struct
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from storagetest.agent.testlib import pr_ioctl
from storagetest.counters.base import RequestKind
from storagetest.errors import HostError
from storagetest.hosts import LocalHost
from storagetest.plugin.fixtures.two_clients import SyscallSessionPool, WireProof, shared_case_directory
from storagetest.plugin.outcomes import Invalid
from storagetest.runner.request_evidence import RequestEvidence


class Counted:
    """A counter with ``count`` requests, and ``later`` at the second count."""

    def __init__(self, count: int | None, *, later: int | None = None) -> None:
        self.count = count
        self.later = later

    @contextmanager
    def count_requests(self, sort: RequestKind) -> Iterator[RequestEvidence]:
        evidence = RequestEvidence(sort)
        yield evidence
        evidence.count, evidence.how, evidence.deferred = self.count, "a counter", self.later is not None

    def recount(self, evidence: RequestEvidence) -> None:
        evidence.count = self.later


SESSION = SimpleNamespace(name="client1", restart_worker=lambda: None, call=lambda name, deadline: None)


def wire(count: int | None, *, later: int | None = None) -> WireProof:
    counter = Counted(count, later=later)
    return WireProof({"client1": counter})  # type: ignore[dict-item]  # a stub


@pytest.mark.parametrize("error", [None, AssertionError("stale"), BlockingIOError(11, "locked")])
def test_no_request_is_invalid_whatever_the_body_raised(error: Exception | None) -> None:
    message = "INVALID: client1: no lock request was sent"
    with pytest.raises(Invalid, match=message) as caught, wire(0)(SESSION, "lock"):
        if error:
            raise error
    assert (str(error) in str(caught.value)) or error is None


@pytest.mark.parametrize("error", [None, AssertionError("stale")])
def test_uncountable_requests_are_invalid_whatever_the_body_raised(error: Exception | None) -> None:
    reason = "neither counters nor a capture show whether a read request was sent: a counter"
    with pytest.raises(Invalid, match=reason) as caught, wire(None)(SESSION, "read"):
        if error:
            raise error
    assert (str(error) in str(caught.value)) or error is None


@pytest.mark.parametrize("error", [AssertionError("stale"), BlockingIOError(11, "locked"), HostError("lost")])
def test_an_error_is_raised_unchanged_if_a_request_was_sent(error: Exception) -> None:
    with wire(1)(SESSION, "lock"):
        pass
    with pytest.raises(type(error)) as caught, wire(1)(SESSION, "lock"):
        raise error
    assert caught.value is error


def test_a_host_error_stays_an_error_if_no_request_was_sent() -> None:
    with pytest.raises(HostError), wire(0)(SESSION, "lock"):
        raise HostError("lost")


def test_a_deferred_request_may_be_sent_until_the_end_of_the_case() -> None:
    proof = wire(0, later=1)
    with proof(SESSION, "write"):
        pass
    proof.check_deferred()


def test_a_deferred_request_that_is_never_sent_is_invalid() -> None:
    proof = wire(0, later=0)
    with proof(SESSION, "write"):
        pass
    message = r"INVALID: client1: no write request was sent, by a counter \(the case found: stale\)"
    with pytest.raises(Invalid, match=message):
        proof.check_deferred(AssertionError("stale"))
    proof.check_deferred()


def test_a_failure_is_not_deferred() -> None:
    with pytest.raises(Invalid, match="the case found: stale"), wire(0, later=1)(SESSION, "write"):
        raise AssertionError("stale")


def test_an_unknown_kind_of_request_raises_value_error() -> None:
    with pytest.raises(ValueError, match="reads"), wire(1)(SESSION, "reads"):
        pass


@pytest.fixture
def pool() -> Iterator[SyscallSessionPool]:
    pool = SyscallSessionPool()
    yield pool
    pool.close()


def test_both_sessions_share_a_directory_that_is_removed(pool: SyscallSessionPool, tmp_path: Path) -> None:
    a, b = (pool.get(LocalHost(name)) for name in ("a", "b"))
    path = tmp_path / "case"
    with shared_case_directory((a, b), (str(path), str(path))):
        a.write_file("f", b"x")
        assert b.read_file("f") == b"x"
        b.mkdir("d")
        b.write_file("d/g", b"x")
        b.open("f")
    assert not path.exists()


def test_directory_is_removed_after_worker_and_session_died(pool: SyscallSessionPool, tmp_path: Path) -> None:
    hosts = [LocalHost("a"), LocalHost("b")]
    a, b = (pool.get(host) for host in hosts)
    path = tmp_path / "case"
    with shared_case_directory((a, b), (str(path), str(path))):
        a.write_file("f", b"x")
        a.kill_worker()
        os.kill(b.pid, signal.SIGKILL)
        with pytest.raises(HostError):
            b.listdir()
    assert not path.exists()
    assert pool.get(hosts[0]) is a
    replaced = pool.get(hosts[1])
    assert replaced is not b
    replaced.chdir(str(tmp_path))
    assert replaced.listdir() == []


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
