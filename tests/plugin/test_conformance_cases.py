"""Conformance cases under a pytest of their own: ids, levels, records, and what a broken one shows."""

from __future__ import annotations

import json
from typing import Any

import pytest

HEAD = """
import pytest
from storagetest.errors import HostError, RemoteProtocolError
"""


def run(pytester: pytest.Pytester, suite: str, *arguments: str) -> pytest.RunResult:
    pytester.makepyfile(test_cases=HEAD + suite)
    return pytester.runpytest_subprocess("-p", "no:cacheprovider", *arguments)


def records(pytester: pytest.Pytester) -> dict[str, dict[str, Any]]:
    lines = (pytester.path / "cases.jsonl").read_text(encoding="utf-8").splitlines()
    return {document["id"]: document for document in map(json.loads, lines)}


LEVELS = """
pytestmark = pytest.mark.case(section="X 1")

@pytest.mark.case("A-1", level="MUST", kills=("m",))
def test_must(): assert False, "broken"

@pytest.mark.case("A-2", level="SHOULD", section="X 2")
def test_should(): assert False, "not kept"

@pytest.mark.case("A-3", level="MAY")
def test_may(observe):
    observe("one of two"); observe("one of two"); observe("and more")

@pytest.mark.case("A-4", level="MUST")
def test_kept(): pass

@pytest.mark.case("A-5", level="MUST")
def test_skipped(): pytest.skip("not here")

@pytest.mark.case("A-6", level="MUST")
@pytest.mark.xfail(strict=True, reason="known")
def test_known(): assert False

@pytest.mark.case("A-7", level="MUST", no_mutant_reason="nothing to kill")
def test_remote(): raise RemoteProtocolError("the bytes: 0102")

@pytest.mark.case("A-8", level="MUST")
def test_ours(): raise HostError("our own line")
"""


def test_the_level_decides(pytester: pytest.Pytester):
    result = run(pytester, LEVELS)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    seen = records(pytester)
    assert {name: one["outcome"] for name, one in seen.items()} == {
        "A-1": "failed",
        "A-2": "warned",
        "A-3": "observed",
        "A-4": "passed",
        "A-5": "skipped",
        "A-6": "known",
        "A-7": "failed",
        "A-8": "error",
    }
    assert seen["A-1"]["kills"] == ["m"]
    assert (seen["A-2"]["section"], seen["A-1"]["section"]) == ("X 2", "X 1")
    assert seen["A-3"]["observed"] == ["one of two", "and more"]
    assert seen["A-7"]["message"] == "the bytes: 0102"
    assert seen["A-7"]["no_mutant_reason"] == "nothing to kill"
    result.stdout.fnmatch_lines(["X 2 *1 warned", "warned: A-2 (X 2): not kept*"])
    assert "1 error" in result.stdout.lines[-1] or "1 error" in result.stdout.str()


def test_what_breaks_before_a_case_fails_it_whatever_its_level(pytester: pytest.Pytester):
    suite = """
from storagetest.errors import RemoteProtocolError
@pytest.fixture
def session(): raise RemoteProtocolError("the bytes: 0102")
@pytest.mark.case("S-1", section="1", level="SHOULD")
def test_should(session): pass
@pytest.mark.case("M-1", section="1", level="MAY")
def test_may(session): pass
"""
    run(pytester, suite)
    assert {name: one["outcome"] for name, one in records(pytester).items()} == {
        "S-1": "failed",
        "M-1": "failed",
    }


def test_strict_makes_a_should_fail(pytester: pytest.Pytester):
    suite = """
@pytest.mark.case("A-2", level="SHOULD", section="X 2")
def test_should(): assert False, "not kept"
"""
    assert run(pytester, suite).ret == pytest.ExitCode.OK
    assert run(pytester, suite, "--st-strict").ret == pytest.ExitCode.TESTS_FAILED


TWICE = """
@pytest.mark.case("A", section="1", level="MUST")
def test_a(): pass

@pytest.mark.case("A", section="1", level="MUST")
def test_b(): pass
"""

FOR_TWO = """
@pytest.mark.case("A", section="1", level="MUST")
@pytest.mark.parametrize("x", [1, 2])
def test_a(x): pass
"""


@pytest.mark.parametrize(
    ("suite", "words"),
    [
        (
            TWICE,
            "two cases have the id A",
        ),
        ('@pytest.mark.case("A", section="1")\ndef test_a(): pass\n', "expected case(id"),
        ('@pytest.mark.case(section="1", level="MUST")\ndef test_a(): pass\n', "the marks have the id None"),
        ('@pytest.mark.case("A", section="1", level="SHALL")\ndef test_a(): pass\n', "unknown level 'SHALL'"),
        (
            FOR_TWO,
            "two cases have the id A",
        ),
        ('@pytest.mark.case("A", section="1", level="MUST", killz=())\ndef test_a(): pass\n', "killz"),
    ],
)
def test_a_wrong_mark_ends_the_run_before_it_starts(pytester: pytest.Pytester, suite: str, words: str):
    result = run(pytester, suite)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert words in result.stderr.str() + result.stdout.str()
    assert not (pytester.path / "cases.jsonl").exists()


def test_parameters_have_ids_of_their_own(pytester: pytest.Pytester):
    suite = """
@pytest.mark.case("F", section="1", level="MUST")
@pytest.mark.parametrize("x", [
    pytest.param(x, marks=pytest.mark.case(f"P-{x}", section=str(x))) for x in (1, 2)
])
def test_a(x): pass
"""
    assert run(pytester, suite).ret == pytest.ExitCode.OK
    assert {name: one["section"] for name, one in records(pytester).items()} == {"P-1": "1", "P-2": "2"}


def test_one_process_writes_what_workers_saw(pytester: pytest.Pytester):
    suite = """
@pytest.mark.parametrize("x", [
    pytest.param(x, marks=pytest.mark.case(f"P-{x}", section="1", level="MUST")) for x in range(8)
])
def test_a(x): assert x != 3
"""
    assert run(pytester, suite, "-n", "2").ret == pytest.ExitCode.TESTS_FAILED
    seen = records(pytester)
    assert len(seen) == 8
    assert [name for name, one in seen.items() if one["outcome"] == "failed"] == ["P-3"]


WIRE = """
import socket
from storagetest.wire.tcp import RecordedConnection

def words():
    return lambda outgoing, data: [(data.decode(), [])]

@pytest.mark.case("W-1", section="1", level="MUST")
def test_wire(wire_log):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        with RecordedConnection.connect(*listener.getsockname(), deadline=5) as link:
            peer, _ = listener.accept()
            wire_log.add(link, name="greeting", decoder=words, port=4420)
            link.send(b"hello")
            peer.sendall(b"go away")
            link.receive(deadline=5)
            peer.close()
    assert False, "rude"
"""


def test_what_went_over_the_wire_is_shown_and_kept(pytester: pytest.Pytester):
    result = run(pytester, WIRE, "--st-wire", "wire")
    result.stdout.fnmatch_lines(["*- wire -*", "greeting (127.0.0.1:*):", "*──▶ hello", "*◀── go away"])
    assert "hello" in (pytester.path / "wire" / "W-1.txt").read_text(encoding="utf-8")
    raw = (pytester.path / "wire" / "W-1.pcap").read_bytes()
    assert b"hello" in raw
    assert b"go away" in raw


TARGETS = """\
version: 1
clients:
  here: {transport: local}
targets:
  fast: {protocol: iscsi, address: 127.0.0.1, iqn: "iqn.2024-01.example:x"}
  slow: {protocol: iscsi, address: 127.0.0.1, iqn: "iqn.2024-01.example:y"}
"""

WIRE_AGAIN = """
from storagetest.wire.tcp import Chunk

class Link:
    peer = "array"
    def __init__(self, text): self.transcript = [Chunk(0.0, outgoing=True, data=text.encode())]

def log(wire_log, text):
    wire_log.add(Link(text), name="x", decoder=lambda: lambda outgoing, data: [(data.decode(), [])], port=1)

@pytest.mark.parametrize("x", [
    pytest.param(x, marks=pytest.mark.case(f"P/{x}", section="1", level="MUST")) for x in ("one", "..two")
])
def test_a(wire_log, variant, x): log(wire_log, f"{variant.id} {x}")
"""

REPEAT = """
from _pytest.runner import runtestprotocol

def pytest_runtest_protocol(item, nextitem):
    for _ in range(2):
        reports = runtestprotocol(item, nextitem=None if _ == 0 else nextitem, log=True)
    return True
"""


@pytest.mark.parametrize("arguments", [(), ("-n", "2")], ids=["one process", "two workers"])
def test_captures_of_variants_parameters_and_repeated_runs_are_all_kept(
    pytester: pytest.Pytester, arguments: tuple[str, ...]
):
    (pytester.path / "targets.yaml").write_text(TARGETS, encoding="utf-8")
    pytester.makeconftest(REPEAT)
    for _ in range(2):
        run(pytester, WIRE_AGAIN, "--st-wire", "wire", *arguments)
    wanted = {
        f"{target}/P%2F{x}{number}.{kind}": f"{target} {x}".encode()
        for target in ("fast", "slow")
        for x in ("one", "..two")
        for number in ("", ".2", ".3", ".4")
        for kind in ("pcap", "txt")
    }
    directory = pytester.path / "wire"
    assert {str(path.relative_to(directory)) for path in directory.glob("*/*")} == set(wanted)
    assert all(text in (directory / name).read_bytes() for name, text in wanted.items())


def test_allure_has_the_ladder_and_a_capture(pytester: pytest.Pytester):
    run(pytester, WIRE, "--alluredir", "allure")
    (path,) = (pytester.path / "allure").glob("*-result.json")
    result = json.loads(path.read_text(encoding="utf-8"))
    attached = {one["name"]: pytester.path / "allure" / one["source"] for one in result["attachments"]}
    assert "──▶ hello" in attached["on the wire"].read_text(encoding="utf-8")
    assert b"go away" in attached["capture for Wireshark"].read_bytes()
    assert {"1", "MUST", "failed"} <= {one["value"] for one in result["labels"] if one["name"] == "tag"}
    assert {one["name"]: one["value"] for one in result["parameters"]} == {
        "case": "W-1",
        "section": "1",
        "level": "MUST",
    }


def test_a_wire_case_runs_once_a_target_and_only_where_it_can(pytester: pytest.Pytester):
    (pytester.path / "targets.yaml").write_text(
        """\
version: 1
clients:
  here: {transport: local}
targets:
  flash:
    protocol: nvme-tcp
    address: 127.0.0.1
    nqn: nqn.2024-01.example:x
    matrix: {header_digest: [true, false], data_digest: [true, false]}
  scsi: {protocol: iscsi, address: 127.0.0.1, iqn: "iqn.2024-01.example:x"}
""",
        encoding="utf-8",
    )
    suite = """
@pytest.mark.needs("nvme-tcp-wire")
@pytest.mark.case("W-1", section="1", level="MUST")
def test_wire(variant): pass
"""
    result = run(pytester, suite)
    result.assert_outcomes(passed=1)
    assert records(pytester)["W-1"]["target"] == "flash"


INVALID = """
from storagetest.plugin.outcomes import Invalid

@pytest.mark.parametrize("level", [
    pytest.param("MUST", marks=pytest.mark.case("A-1", section="X 1", level="MUST")),
    pytest.param("MAY", marks=pytest.mark.case("A-2", section="X 1", level="MAY")),
])
def test_vacuous(level): raise Invalid("nothing crossed the wire")
"""


def test_a_case_that_proves_nothing_is_invalid_whatever_its_level(pytester: pytest.Pytester):
    result = run(pytester, INVALID)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert {name: one["outcome"] for name, one in records(pytester).items()} == {
        "A-1": "invalid",
        "A-2": "invalid",
    }
    result.stdout.fnmatch_lines(
        ["X 1 *2 invalid", "invalid: A-1 (X 1): INVALID: nothing crossed the wire", "*2 invalid*"]
    )


TWO = """
pytestmark = [pytest.mark.needs("filesystem", "two_clients"), pytest.mark.case(section="X", level="MUST")]

@pytest.mark.case("A-1")
def test_two(client_sessions): pass
"""
ONE_MACHINE = """\
version: 1
clients:
  one: {{transport: local}}
  again: {{transport: local}}
targets:
  disk: {{protocol: local, path: {place}, clients: [one, again]}}
"""


def test_two_names_for_one_machine_are_one_client(pytester: pytest.Pytester, tmp_path):
    pytester.path.joinpath("targets.yaml").write_text(ONE_MACHINE.format(place=tmp_path))
    result = run(pytester, TWO, "-rs")
    result.assert_outcomes(skipped=1)
    result.stdout.fnmatch_lines(["*SKIPPED*disk has no two_clients*"])
