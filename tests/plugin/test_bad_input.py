"""Errors in the targets file and the options: exit code 4 before any test runs, no traceback."""

from __future__ import annotations

import pytest
from pytest_results import assert_usage_error


@pytest.mark.parametrize(
    ("arguments", "more", "parts"),
    [
        ([], "tresholds: {}", ["targets.yaml:9:1", "tresholds", "thresholds"]),
        (["--st-target", "nsf*"], "", ["--st-target nsf*", "matches no variant"]),
        (["--st-client", "c9"], "", ["--st-client c9", "here"]),
        (["--st-profile", "huge"], "", ["huge", "smoke"]),
        (["--st-set", "targets.disc.path=/tmp"], "", ["disc"]),
        ([], 'thresholds: {small-random-write: ["iopz >= 1"]}', ["iopz", "iops", "targets.yaml:9:"]),
    ],
    ids=["key", "target", "client", "profile", "override", "metric"],
)
def test_an_unknown_name_is_reported_with_what_is_known(run_pytest, arguments, more, parts):
    assert_usage_error(run_pytest(*arguments, more=more), *parts)


def test_a_missing_targets_file(pytester):
    pytester.makepyfile("def test_x(variant): pass")
    assert_usage_error(pytester.runpytest_inprocess(), "targets.yaml", "storagetest lab up")


def test_another_project_is_not_affected(pytester):
    pytester.makepyfile("def test_x(): pass")
    result = pytester.runpytest_subprocess()  # a process that loads the plugin by its entry point
    result.assert_outcomes(passed=1)
    assert "storagetest-" in result.stdout.str()
    assert "storagetest" not in "\n".join(line for line in result.outlines if not line.startswith("plugins:"))
    assert not (pytester.path / "results.jsonl").exists()


def test_collection_contacts_no_host(run_pytest):
    targets = """\
version: 1
clients:
  far: {transport: ssh, address: 192.0.2.1, user: tester}
targets:
  nas: {protocol: nfs, address: 192.0.2.2, export: /x, clients: [far], matrix: {version: ["3", "4.2"]}}
"""
    result = run_pytest("--collect-only", "-q", "--st-profile", "smoke", targets=targets)
    assert result.ret == 0
    result.stdout.fnmatch_lines(["*test_writes?nas-v3?", "*test_writes?nas-v4.2?"])
