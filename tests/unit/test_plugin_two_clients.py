"""What stands around two hands: proof before verdict, a directory that goes, hands that are replaced."""

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
    """A watch that has seen a given number of requests, and more of them later."""

    def __init__(self, count: int | None, *, later: int | None = None) -> None:
        self.count = count
        self.later = later

    @contextmanager
    def count_requests(self, sort: RequestKind) -> Iterator[RequestEvidence]:
        seen = RequestEvidence(sort)
        yield seen
        seen.count, seen.how, seen.deferred = self.count, "somebody", self.later is not None

    def recount(self, seen: RequestEvidence) -> None:
        seen.count = self.later


HAND = SimpleNamespace(name="client1", restart_worker=lambda: None, call=lambda name, deadline: None)


def wire(count: int | None, *, later: int | None = None) -> WireProof:
    watch = Counted(count, later=later)
    return WireProof({"client1": watch})  # type: ignore[dict-item]  # what is asked of a watch


@pytest.mark.parametrize("error", [None, AssertionError("stale"), BlockingIOError(11, "locked")])
def test_what_did_not_cross_is_invalid_whatever_was_found(error: Exception | None) -> None:
    said = "INVALID: client1: no lock request left this client"
    with pytest.raises(Invalid, match=said) as caught, wire(0)(HAND, "lock"):
        if error:
            raise error
    assert (str(error) in str(caught.value)) or error is None


@pytest.mark.parametrize("error", [None, AssertionError("stale")])
def test_what_could_not_be_counted_is_invalid_whatever_was_found(error: Exception | None) -> None:
    reason = "neither counters nor a capture tell whether a read crossed the wire: somebody"
    with pytest.raises(Invalid, match=reason) as caught, wire(None)(HAND, "read"):
        if error:
            raise error
    assert (str(error) in str(caught.value)) or error is None


@pytest.mark.parametrize("error", [AssertionError("stale"), BlockingIOError(11, "locked"), HostError("lost")])
def test_what_crossed_ends_as_it_ended(error: Exception) -> None:
    with wire(1)(HAND, "lock"):
        pass
    with pytest.raises(type(error)) as caught, wire(1)(HAND, "lock"):
        raise error
    assert caught.value is error


def test_an_error_of_ours_stays_one_though_nothing_crossed() -> None:
    with pytest.raises(HostError), wire(0)(HAND, "lock"):
        raise HostError("lost")


def test_what_is_put_off_may_cross_until_the_case_ends() -> None:
    proof = wire(0, later=1)
    with proof(HAND, "write"):
        pass
    proof.settle()


def test_what_was_put_off_and_never_sent_is_invalid_whatever_was_found() -> None:
    proof = wire(0, later=0)
    with proof(HAND, "write"):
        pass
    said = r"INVALID: client1: no write request left this client, says somebody \(it found: stale\)"
    with pytest.raises(Invalid, match=said):
        proof.settle(AssertionError("stale"))
    proof.settle()


def test_a_failure_is_not_put_off() -> None:
    with pytest.raises(Invalid, match="it found: stale"), wire(0, later=1)(HAND, "write"):
        raise AssertionError("stale")


def test_a_sort_that_nobody_knows_is_a_mistake() -> None:
    with pytest.raises(ValueError, match="reads"), wire(1)(HAND, "reads"):
        pass


@pytest.fixture
def keeper() -> Iterator[SyscallSessionPool]:
    made = SyscallSessionPool()
    yield made
    made.close()


def test_the_directory_is_both_hands_and_gone_in_the_end(keeper: SyscallSessionPool, tmp_path: Path) -> None:
    a, b = (keeper.get(LocalHost(name)) for name in ("a", "b"))
    place = tmp_path / "case"
    with shared_case_directory((a, b), (str(place), str(place))):
        a.write_file("f", b"x")
        assert b.read_file("f") == b"x"
        b.mkdir("d")
        b.write_file("d/g", b"x")
        b.open("f")
    assert not place.exists()


def test_it_is_gone_though_a_hand_died_or_its_line_broke(keeper: SyscallSessionPool, tmp_path: Path) -> None:
    hosts = [LocalHost("a"), LocalHost("b")]
    a, b = (keeper.get(host) for host in hosts)
    place = tmp_path / "case"
    with shared_case_directory((a, b), (str(place), str(place))):
        a.write_file("f", b"x")
        a.kill_worker()
        os.kill(b.pid, signal.SIGKILL)
        with pytest.raises(HostError):
            b.listdir()
    assert not place.exists()
    assert keeper.get(hosts[0]) is a
    replaced = keeper.get(hosts[1])
    assert replaced is not b
    replaced.chdir(str(tmp_path))
    assert replaced.listdir() == []
