"""Conformance cases: ids, levels, records, and the report of a failure."""

import json
import re
import socket

import pytest
from output_files import case_outcomes, read_cases
from pytest_results import assert_result, assert_usage_error

HEAD = """
import pytest
from storagetest.errors import HostError, RemoteProtocolError
"""


@pytest.fixture
def run(run_inner, pytester):
    """Return a function that runs pytest on cases, without a targets file unless the test writes one."""

    def run_cases(suite: str, *arguments: str) -> pytest.RunResult:
        pytester.makepyfile(test_cases=HEAD + suite)
        return run_inner(*arguments)

    return run_cases


LEVELS = """
pytestmark = pytest.mark.case(section="X 1")

@pytest.mark.case("A-1", level="MUST", kills=("m",))
def test_must(): assert False, "violated"

@pytest.mark.case("A-2", level="SHOULD", section="X 2")
def test_should(): assert False, "not satisfied"

@pytest.mark.case("A-3", level="MAY")
def test_may(observe):
    observe("first"); observe("first"); observe("second")

@pytest.mark.case("A-4", level="MUST")
def test_passed(): pass

@pytest.mark.case("A-5", level="MUST")
def test_skipped(): pytest.skip("not supported")

@pytest.mark.case("A-6", level="MUST")
@pytest.mark.xfail(strict=True, reason="known")
def test_known(): assert False

@pytest.mark.case("A-7", level="MUST", no_mutant_reason="no mutant")
def test_remote(): raise RemoteProtocolError("the bytes: 0102")

@pytest.mark.case("A-8", level="MUST")
def test_error(): raise HostError("connection lost")

@pytest.mark.case("A-9", level="SHOULD")
def test_remote_should(): raise RemoteProtocolError("the bytes: 0304")

@pytest.mark.case("A-10", level="MUST")
@pytest.mark.xfail(strict=True, reason="known")
def test_remote_known(): raise RemoteProtocolError("the bytes: 0506")
"""


def test_the_level_determines_the_outcome(run, pytester):
    result = run(LEVELS)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    records = read_cases(pytester.path)
    assert case_outcomes(pytester.path) == {
        "A-1": "failed",
        "A-2": "warned",
        "A-3": "observed",
        "A-4": "passed",
        "A-5": "skipped",
        "A-6": "known",
        "A-7": "failed",
        "A-8": "error",
        "A-9": "warned",
        "A-10": "known",
    }
    assert records["A-1"]["kills"] == ["m"]
    assert (records["A-2"]["section"], records["A-1"]["section"]) == ("X 2", "X 1")
    assert records["A-3"]["observed"] == ["first", "second"]
    assert records["A-7"]["message"] == "the bytes: 0102; required: remote (X 1)"
    assert records["A-7"]["no_mutant_reason"] == "no mutant"
    result.stdout.fnmatch_lines(["X 2 *1 warned", "warned: A-2 (X 2): not satisfied*"])
    result.stdout.fnmatch_lines(
        ["=* 2 failed, 1 passed, 1 skipped, 2 xfailed, 1 error, 2 warned, 1 observed in *"]
    )


def test_a_failure_before_a_case_fails_it_at_every_level(run, pytester):
    suite = """
from storagetest.errors import RemoteProtocolError
@pytest.fixture
def session(): raise RemoteProtocolError("the bytes: 0102")
@pytest.mark.case("S-1", section="1", level="SHOULD")
def test_should(session): pass
@pytest.mark.case("M-1", section="1", level="MAY")
def test_may(session): pass
"""
    run(suite)
    assert case_outcomes(pytester.path) == {"S-1": "failed", "M-1": "failed"}


def test_with_strict_a_should_is_a_failure(run):
    suite = """
@pytest.mark.case("A-2", level="SHOULD", section="X 2")
def test_should(): assert False, "not satisfied"
"""
    assert run(suite).ret == pytest.ExitCode.OK
    assert run(suite, "--st-strict").ret == pytest.ExitCode.TESTS_FAILED


DUPLICATE = """
@pytest.mark.case("A", section="1", level="MUST")
def test_a(): pass

@pytest.mark.case("A", section="1", level="MUST")
def test_b(): pass
"""

PARAMETRIZED = """
@pytest.mark.case("A", section="1", level="MUST")
@pytest.mark.parametrize("x", [1, 2])
def test_a(x): pass
"""


@pytest.mark.parametrize(
    ("suite", "message"),
    [
        (DUPLICATE, "two cases have the id A"),
        ('@pytest.mark.case("A", section="1")\ndef test_a(): pass\n', "expected case(id"),
        ('@pytest.mark.case(section="1", level="MUST")\ndef test_a(): pass\n', "the marks have the id None"),
        ('@pytest.mark.case("A", section="1", level="SHALL")\ndef test_a(): pass\n', "unknown level 'SHALL'"),
        (PARAMETRIZED, "two cases have the id A"),
        ('@pytest.mark.case("A", section="1", level="MUST", killz=())\ndef test_a(): pass\n', "killz"),
    ],
)
def test_an_invalid_mark_is_a_usage_error(run, pytester, suite: str, message: str):
    assert_usage_error(run(suite), message)
    assert not (pytester.path / "cases.jsonl").exists()


def test_each_parameter_may_have_an_id(run, pytester):
    suite = """
@pytest.mark.case("F", section="1", level="MUST")
@pytest.mark.parametrize("x", [
    pytest.param(x, marks=pytest.mark.case(f"P-{x}", section=str(x))) for x in (1, 2)
])
def test_a(x): pass
"""
    assert run(suite).ret == pytest.ExitCode.OK
    sections = {name: record["section"] for name, record in read_cases(pytester.path).items()}
    assert sections == {"P-1": "1", "P-2": "2"}


def test_the_controller_writes_the_cases_of_workers(run, pytester):
    suite = """
@pytest.mark.parametrize("x", [
    pytest.param(x, marks=pytest.mark.case(f"P-{x}", section="1", level="MUST")) for x in range(8)
])
def test_a(x): assert x != 3
"""
    assert run(suite, "-n", "2").ret == pytest.ExitCode.TESTS_FAILED
    outcomes = case_outcomes(pytester.path)
    assert len(outcomes) == 8
    assert [name for name, outcome in outcomes.items() if outcome == "failed"] == ["P-3"]


WIRE = """
import socket
from storagetest.wire.tcp import RecordedConnection

def decoder():
    return lambda outgoing, data: [(data.decode(), [])]

@pytest.mark.case("W-1", section="1", level="MUST")
def test_wire(wire_log):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        with RecordedConnection.connect(*listener.getsockname(), deadline=5) as connection:
            peer, _ = listener.accept()
            wire_log.add(connection, name="greeting", decoder=decoder, port=4420)
            connection.send(b"hello")
            peer.sendall(b"goodbye")
            connection.receive(deadline=5)
            peer.close()
    assert False, "connection closed"
"""


def test_the_wire_log_is_shown_and_saved(run, pytester):
    result = run(WIRE, "--st-wire", "wire")
    result.stdout.fnmatch_lines(["*- wire -*", "greeting (127.0.0.1:*):", "*──▶ hello", "*◀── goodbye"])
    assert "hello" in (pytester.path / "wire" / "W-1.txt").read_text(encoding="utf-8")
    raw = (pytester.path / "wire" / "W-1.pcap").read_bytes()
    assert b"hello" in raw
    assert b"goodbye" in raw


TWO_TARGETS = """\
version: 1
clients:
  here: {transport: local}
targets:
  fast: {protocol: iscsi, address: 127.0.0.1, iqn: "iqn.2024-01.example:x"}
  slow: {protocol: iscsi, address: 127.0.0.1, iqn: "iqn.2024-01.example:y"}
"""

WIRE_AGAIN = """
from storagetest.wire.tcp import Chunk

class Connection:
    peer = "array"
    def __init__(self, text): self.transcript = [Chunk(0.0, outgoing=True, data=text.encode())]

def log(wire_log, text):
    decoder = lambda: lambda outgoing, data: [(data.decode(), [])]
    wire_log.add(Connection(text), name="x", decoder=decoder, port=1)

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
def test_captures_of_variants_parameters_and_repeats_are_all_saved(run, pytester, arguments):
    (pytester.path / "targets.yaml").write_text(TWO_TARGETS, encoding="utf-8")
    pytester.makeconftest(REPEAT)
    for _ in range(2):
        run(WIRE_AGAIN, "--st-wire", "wire", *arguments)
    expected = {
        f"{target}/P%2F{x}{number}.{kind}": f"{target} {x}".encode()
        for target in ("fast", "slow")
        for x in ("one", "..two")
        for number in ("", ".2", ".3", ".4")
        for kind in ("pcap", "txt")
    }
    directory = pytester.path / "wire"
    assert {str(path.relative_to(directory)) for path in directory.glob("*/*")} == set(expected)
    assert all(text in (directory / name).read_bytes() for name, text in expected.items())


def test_allure_contains_the_ladder_and_a_capture(run, pytester):
    run(WIRE, "--alluredir", "allure")
    (path,) = (pytester.path / "allure").glob("*-result.json")
    result = json.loads(path.read_text(encoding="utf-8"))
    attached = {file["name"]: pytester.path / "allure" / file["source"] for file in result["attachments"]}
    assert "──▶ hello" in attached["on the wire"].read_text(encoding="utf-8")
    assert b"goodbye" in attached["capture for Wireshark"].read_bytes()
    assert {"1", "MUST", "failed"} <= {label["value"] for label in result["labels"] if label["name"] == "tag"}
    parameters = {entry["name"]: entry["value"] for entry in result["parameters"]}
    assert parameters == {"case": "W-1", "section": "1", "level": "MUST"}


def test_a_wire_case_runs_once_on_each_suitable_target(run, pytester):
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
    run(suite).assert_outcomes(passed=1)
    assert read_cases(pytester.path)["W-1"]["target"] == "flash"


INVALID = """
from storagetest.plugin.outcomes import Invalid

@pytest.mark.parametrize("level", [
    pytest.param("MUST", marks=pytest.mark.case("A-1", section="X 1", level="MUST")),
    pytest.param("MAY", marks=pytest.mark.case("A-2", section="X 1", level="MAY")),
])
def test_vacuous(level): raise Invalid("no data was sent")
"""


def test_an_invalid_case_is_invalid_at_every_level(run, pytester):
    result = run(INVALID)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert case_outcomes(pytester.path) == {"A-1": "invalid", "A-2": "invalid"}
    result.stdout.fnmatch_lines(
        ["X 1 *2 invalid", "invalid: A-1 (X 1): INVALID: no data was sent", "*2 invalid*"]
    )


TWO_CLIENTS = """
pytestmark = [pytest.mark.needs("filesystem", "two_clients"), pytest.mark.case(section="X", level="MUST")]

@pytest.mark.case("A-1")
def test_two(client_sessions): pass
"""
ONE_MACHINE = """\
version: 1
clients:
  one: {transport: local}
  again: {transport: local}
targets:
  disk: {protocol: local, path: /tmp, clients: [one, again]}
"""


def test_two_names_of_one_machine_are_one_client(run, pytester):
    pytester.path.joinpath("targets.yaml").write_text(ONE_MACHINE)
    assert_result(run(TWO_CLIENTS, "-rs"), "*SKIPPED*disk has no two_clients*", skipped=1)


UNREADABLE = """
import socket, struct
from storagetest.plugin.conformance.first_look import Look
from storagetest.wire.tcp import RecordedConnection

pytestmark = pytest.mark.needs("nvme-tcp-wire")

@pytest.fixture
def reply(wire_log, variant):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        with RecordedConnection.connect(*listener.getsockname(), deadline=5) as link:
            peer, _ = listener.accept()
            wire_log.add(link, name="greeting", decoder=lambda: lambda outgoing, data: [], port=4420)
            peer.sendall(b"x")
            data = link.receive(deadline=5)
            peer.close()
    return data

@pytest.fixture
def number(reply): return struct.unpack(">I", reply)

@pytest.mark.case("KEY", section="1", level="MUST")
def test_key(reply): {"y": 1}[reply.decode()]

@pytest.mark.case("INT", section="1", level="MUST")
def test_int(reply): int(reply)

@pytest.mark.case("NONE", section="1", level="MUST")
def test_none(reply): None.digest

@pytest.mark.case("FIXTURE", section="1", level="MUST")
def test_fixture(number): pass

@pytest.mark.case("SHOULD", section="1", level="SHOULD")
def test_should(reply): [][0]

@pytest.mark.case("SILENT", section="1", level="MUST")
def test_silent(): {}["no reply"]

def look(): return b"x"[5]
LOOK = Look("the page", look)

@pytest.mark.case("LOOK-1", section="1", level="MUST")
def test_look(): LOOK.get()

@pytest.mark.case("LOOK-2", section="1", level="MUST")
def test_look_again(): LOOK.get()
"""


def test_what_cannot_be_read_is_a_failure_of_the_target(run_on_target, pytester):
    pytester.makepyfile(test_cases=HEAD + UNREADABLE)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        target = {"protocol": "nvme-tcp", "port": listener.getsockname()[1], "nqn": "nqn.2026-11.org.x:y"}
        _, outcomes = run_on_target(target, str(pytester.path / "test_cases.py"))
    assert outcomes == {
        "KEY": "failed",
        "INT": "failed",
        "NONE": "failed",
        "FIXTURE": "failed",
        "SHOULD": "warned",
        "SILENT": "error",
        "LOOK-1": "failed",
        "LOOK-2": "skipped",
    }
    records = read_cases(pytester.path)
    line = '{"y": 1}[reply.decode()]'
    wanted = (
        rf"what the target sent cannot be read: KeyError: 'x', at test_cases.py:\d+: .*{re.escape(line)}.*"
    )
    assert re.fullmatch(wanted, records["KEY"]["message"])
    assert records["FIXTURE"]["message"].startswith(
        "what the target sent cannot be read: error: unpack requires"
    )
    assert records["LOOK-1"]["message"].startswith("the page cannot be read: IndexError")


FINDINGS = """
pytestmark = pytest.mark.case(section="RFC 1 2.3", level="MUST")

@pytest.mark.case("BARE")
def test_a_reply_is_good():
    status = 2
    assert status == 0

@pytest.mark.case("RULE")
def test_rule():
    \'\'\'The reservation ends.

    More about it.
    \'\'\'
    held = 3
    assert held == 0, "2.3: it is released"

@pytest.mark.case("SENTENCE")
def test_sentence():
    assert False, "status 2; GOOD was expected"

@pytest.mark.case("SHOULD", level="SHOULD")
def test_a_should():
    assert not [1], "left"
"""


def test_a_message_is_what_was_found_and_then_what_is_required(run, pytester):
    result = run(FINDINGS.replace("\\'", "'"))
    messages = {name: record["message"].splitlines()[0] for name, record in read_cases(pytester.path).items()}
    assert messages == {
        "BARE": "`status` is 2; it has to be 0; required: a reply is good (RFC 1 2.3)",
        "RULE": "2.3: it is released (found: 3 == 0); required: The reservation ends (RFC 1 2.3)",
        "SENTENCE": "status 2; GOOD was expected; required: sentence (RFC 1 2.3)",
        "SHOULD": "left (found: not [1]); required: a should (RFC 1 2.3)",
    }
    result.stdout.fnmatch_lines(["*- required -*", "a reply is good (RFC 1 2.3)"])
    result.stdout.fnmatch_lines(["FAILED test_cases.py::test_a_reply_is_good - `status` is 2; it has*"])
