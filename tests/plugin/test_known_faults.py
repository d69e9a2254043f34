"""A rule that a target is known to break in any reply fails no case, is reported, and hides nothing else."""

from __future__ import annotations

import sys
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from output_files import read_cases

sys.path.insert(0, str(Path(__file__).parents[1] / "controllers"))
from iscsi_target import IQN, Connection, Server

from storagetest.wire.iscsi.encoding import EncodedPdu
from storagetest.wire.iscsi.pdu import Reject

SUITE = """\
import pytest
from storagetest.config.implementations import Implementation
from storagetest.plugin.conformance.known_issues import apply_identified
from storagetest.plugin.conformance.repeated_faults import fail_on_faults

pytestmark = pytest.mark.case(section="X 1", level="MUST")


@pytest.mark.case("SOUND")
def test_sound(request, variant):
    fail_on_faults(request.node, [])

@pytest.mark.case("STALE")
def test_stale(request, variant):
    fail_on_faults(request.node, ["a bit is set (X 2)", "a bit is set (X 2)"])

@pytest.mark.case("STALE-MAY", level="MAY")
def test_stale_may(request, variant):
    fail_on_faults(request.node, ["a bit is set (X 2)"])

@pytest.mark.case("BROKEN")
def test_broken(request, variant):
    assert False, "a bit is set (X 2)"

@pytest.mark.case("BROKEN-SHOULD", level="SHOULD")
def test_broken_should(request, variant):
    assert False, "the data differs"

@pytest.mark.case("ANOTHER")
def test_another(request, variant):
    fail_on_faults(request.node, ["another bit is set (X 2)", "a bit is set (X 2)"])
"""
SOUND = SUITE.partition('@pytest.mark.case("STALE")')[0]
TARGETS = """\
version: 1
clients:
  here: {transport: local}
targets:
  disk: {protocol: local, path: DIRECTORY/disk, clients: [here], implementation: {name: box, version: 1.5-b}}
  other: {protocol: local, path: DIRECTORY/other, clients: [here], implementation: {name: box, version: v3}}
"""
NEXT_YEAR = str(datetime.now().astimezone().date() + timedelta(days=300))
OUTCOMES = {
    "SOUND": "passed",
    "STALE": "passed",
    "STALE-MAY": "observed",
    "BROKEN": "failed",
    "BROKEN-SHOULD": "warned",
    "ANOTHER": "failed",
}


def entry(*, fault: str = "a bit is set (X 2)", versions: str = "<2", expires: str = NEXT_YEAR) -> str:
    return (
        f'known_issues:\n  - {{faults: ["{fault}"], implementation: box, versions: "{versions}", '
        f"reason: bytes are stale, reference: the text, owner: ann, expires: {expires}}}\n"
    )


@pytest.mark.parametrize("workers", [(), ("-n", "2")])
def test_a_known_fault_fails_no_case_and_hides_no_other_failure(run_pytest, pytester, workers) -> None:
    result = run_pytest(*workers, suite=SUITE, targets=TARGETS, more=entry())
    known, other = read_cases(pytester.path, "disk"), read_cases(pytester.path, "other")
    assert {name: record["outcome"] for name, record in known.items()} == OUTCOMES
    assert {name: record["outcome"] for name, record in other.items()} == {**OUTCOMES, "STALE": "failed"}
    assert known["BROKEN"]["message"].startswith("a bit is set (X 2)")
    assert known["ANOTHER"]["message"].startswith("another bit is set (X 2). Later cases")
    fault = {"fault": "a bit is set (X 2)", "reason": "bytes are stale", "reference": "the text"}
    assert {name for name, record in known.items() if record["known_faults"] == [fault]} == {
        "STALE",
        "STALE-MAY",
        "ANOTHER",
    }
    assert not any(record["known_faults"] for record in other.values())
    line = f"known until {NEXT_YEAR}: disk: a bit is set (X 2): bytes are stale (ann, the text; *): 3 cases"
    result.stdout.fnmatch_lines([line])
    result.stdout.no_fnmatch_line("NOT SEEN*")


def test_the_table_of_a_suite_has_such_entries(run_pytest, pytester) -> None:
    (pytester.path / "known_issues.toml").write_text(
        f'[[known_issues]]\nfaults = ["a bit is set (X 2)"]\nimplementation = "box"\nversions = "<2"\n'
        f'reason = "r"\nreference = "s"\nowner = "ann"\nexpires = {NEXT_YEAR}\n',
        encoding="utf-8",
    )
    result = run_pytest("--st-target", "disk", suite=SUITE, targets=TARGETS)
    assert read_cases(pytester.path)["STALE"]["outcome"] == "passed"
    result.stdout.fnmatch_lines(
        [f"known until {NEXT_YEAR}: disk: a bit is set (X 2): r (ann, s; *): 3 cases"]
    )


def test_the_implementation_that_a_suite_identifies_counts(run_pytest, pytester) -> None:
    suite = SUITE.replace(
        '@pytest.mark.case("SOUND")',
        "@pytest.fixture(autouse=True)\n"
        "def identified(request, variant):\n"
        "    apply_identified(request.node, Implementation('box', '1'))\n\n"
        '@pytest.mark.case("SOUND")',
    )
    targets = TARGETS.replace(", implementation: {name: box, version: 1.5-b}", "")
    run_pytest("--st-target", "disk", suite=suite, targets=targets, more=entry())
    assert read_cases(pytester.path)["STALE"]["outcome"] == "passed"


def test_an_expired_entry_excuses_nothing(run_pytest, pytester) -> None:
    result = run_pytest("--st-target", "disk", suite=SUITE, targets=TARGETS, more=entry(expires="2020-02-29"))
    outcomes = {name: record["outcome"] for name, record in read_cases(pytester.path).items()}
    assert outcomes == {**OUTCOMES, "STALE": "failed"}
    result.stdout.fnmatch_lines(
        [
            "*known issue, expired after 2020-02-29: bytes are stale*",
            "EXPIRED 2020-02-29: disk: a bit is set*",
        ]
    )
    assert result.ret == pytest.ExitCode.TESTS_FAILED


def test_without_a_version_the_entry_does_not_apply(run_pytest, pytester) -> None:
    targets = TARGETS.replace(", version: 1.5-b", "")
    result = run_pytest("--st-target", "disk", suite=SUITE, targets=targets, more=entry())
    assert read_cases(pytester.path)["STALE"]["outcome"] == "failed"
    result.stdout.fnmatch_lines(["NOT APPLIED disk: known issues of box do not apply, because its version *"])


def test_an_entry_whose_fault_is_not_seen_is_named_and_the_run_is_green(run_pytest) -> None:
    line = f"NOT SEEN until {NEXT_YEAR}: disk: a bit is set (X 2): *: 1 case"
    result = run_pytest("--st-target", "disk", suite=SOUND, targets=TARGETS, more=entry())
    result.stdout.fnmatch_lines([line])
    assert result.ret == pytest.ExitCode.OK
    result = run_pytest("--st-target", "disk", "-k", "sound", suite=SOUND, targets=TARGETS, more=entry())
    result.stdout.no_fnmatch_line("NOT SEEN*")


def test_a_sentence_is_no_glob(run_pytest, pytester) -> None:
    run_pytest("--st-target", "disk", suite=SUITE, targets=TARGETS, more=entry(fault="a bit*"))
    assert read_cases(pytester.path)["STALE"]["outcome"] == "failed"


class _StaleReject(Reject):
    """A Reject that has, in reserved bytes, what LIO 6.1 leaves there (docs/findings/iscsi.md)."""

    def parts(self) -> EncodedPdu:
        return super().parts().override_bytes(20, b"\0\0\0\1").override_bytes(44, b"\0\0\x08\0")


@pytest.mark.parametrize(("version", "outcome"), [("6.1.0-56-cloud-amd64", "passed"), ("6.2", "failed")])
def test_what_lio_leaves_in_a_reject_is_known_of_its_versions(
    run_on_target, pytester, monkeypatch: pytest.MonkeyPatch, version: str, outcome: str
) -> None:
    """The table of the iSCSI suite, and a case of it."""
    send = Connection.send

    def stale(self: Connection, pdu: Any, *, uses: bool = True) -> None:
        if isinstance(pdu, Reject):
            pdu = _StaleReject(reason=pdu.reason, data=pdu.data)
        send(self, pdu, uses=uses)

    monkeypatch.setattr(Connection, "send", stale)
    suite = Path(__file__).parents[2] / "suites" / "conformance" / "iscsi" / "test_numbering.py"
    with Server() as server:
        named = {"name": "lio", "version": version}
        disk = {"protocol": "iscsi", "port": server.port, "iqn": IQN, "implementation": named}
        _, outcomes = run_on_target(disk, str(suite), "-k", "test_a_reject_uses")
    assert outcomes == {"ISC-STATSN-07": outcome}
    (record,) = read_cases(pytester.path).values()
    assert [known["fault"] for known in record["known_faults"]] == (
        ["a reserved bit is set in a Reject of the target (RFC 7143 11.17)"] if outcome == "passed" else []
    )
