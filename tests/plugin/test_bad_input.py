"""What a user can get wrong before anything runs: exit code 4, one sentence with its place, no traceback."""

from __future__ import annotations

from collections.abc import Callable

import pytest

Line = Callable[..., pytest.RunResult]


def refused(result: pytest.RunResult, *wanted: str) -> None:
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    text = result.stderr.str() + result.stdout.str()
    assert "Traceback" not in text
    for part in wanted:
        assert part in text


def test_an_unknown_key_is_named_with_its_place(line: Line):
    refused(line(more="tresholds: {}"), "targets.yaml:15:1", "tresholds", "thresholds")


def test_a_target_pattern_that_matches_nothing(line: Line):
    refused(line("--st-target", "nsf*"), "--st-target nsf*", "matches no variant")


def test_a_client_that_is_not_there(line: Line):
    refused(line("--st-client", "c9"), "--st-client c9", "here")


def test_a_profile_that_is_not_there(line: Line):
    refused(line("--st-profile", "huge"), "huge", "smoke")


def test_an_override_that_names_nothing(line: Line):
    refused(line("--st-set", "targets.disc.path=/tmp"), "disc")


def test_a_gate_on_no_metric(line: Line):
    refused(line(more='thresholds: {small-random-write: ["iopz >= 1"]}'), "iopz", "iops", "targets.yaml:15:")


def test_no_targets_file_at_all(pytester: pytest.Pytester):
    pytester.makepyfile("def test_x(variant): pass")
    refused(pytester.runpytest_subprocess(), "targets.yaml", "storagetest lab up")


def test_somebody_elses_project_is_left_alone(pytester: pytest.Pytester):
    pytester.makepyfile("def test_x(): pass")
    result = pytester.runpytest_subprocess()
    result.assert_outcomes(passed=1)
    assert "storagetest" not in "\n".join(text for text in result.outlines if not text.startswith("plugins:"))
    assert not (pytester.path / "results.jsonl").exists()


def test_collecting_contacts_nothing(line: Line):
    targets = """\
version: 1
clients:
  far: {transport: ssh, address: 192.0.2.1, user: nobody}
targets:
  nas: {protocol: nfs, address: 192.0.2.2, export: /x, clients: [far], matrix: {version: ["3", "4.2"]}}
"""
    result = line("--collect-only", "-q", "--st-profile", "smoke", targets=targets)
    assert result.ret == 0
    result.stdout.fnmatch_lines(["*test_writes?nas-v3?", "*test_writes?nas-v4.2?"])
