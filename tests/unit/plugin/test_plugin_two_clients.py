"""Two syscall sessions: wire proof before the verdict, removal of the directory, replacement of sessions."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest

from storagetest.counters.request_counts import RequestKind
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
