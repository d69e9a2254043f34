"""Marks, options and values that would silently have no effect are refused before anything is measured."""

from __future__ import annotations

import pytest

IMPORT = "import pytest\n"
NO_WARNING = ("-W", "ignore::pytest.PytestUnknownMarkWarning")


@pytest.mark.parametrize(
    ("mark", "message"),
    [
        ('gates("iops >= 1")', "*@pytest.mark.gates is not a registered mark; did you mean 'gate'?"),
        ('need("block")', "*@pytest.mark.need is not a registered mark; did you mean 'needs'?"),
        ("gate()", "*@pytest.mark.gate has no threshold, such as 'iops >= 20000'"),
        ('needs("filesytem")', "*no protocol has the capability 'filesytem'; did you mean 'filesystem'?"),
    ],
)
def test_mark_without_effect_ends_the_run_before_a_case(run_pytest, mark, message):
    result = run_pytest(*NO_WARNING, suite=f"{IMPORT}@pytest.mark.{mark}\ndef test_a(attachment): pass\n")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"ERROR: {message}"])


@pytest.mark.parametrize("mark", ["flaky", "needs('iscsi-wire', 'two_clients')", "slow"])
def test_other_marks_are_not_refused(run_pytest, mark):
    suite = f"{IMPORT}@pytest.mark.{mark}\ndef test_a(attachment): pass\ndef test_b(attachment): pass\n"
    assert run_pytest(*NO_WARNING, suite=suite).ret == pytest.ExitCode.OK


def test_registered_mark_is_not_refused(run_pytest, pytester):
    pytester.makeini("[pytest]\nmarkers = gates: where the gates are\n")
    suite = f"{IMPORT}@pytest.mark.gates\ndef test_a(attachment): pass\n"
    assert run_pytest(suite=suite).ret == pytest.ExitCode.OK


def test_gate_on_a_test_that_measures_nothing_is_an_error(run_pytest):
    suite = f'{IMPORT}@pytest.mark.gate("iops >= 1")\ndef test_a(attachment): pass\n'
    result = run_pytest("--st-target", "disk", suite=suite)
    result.assert_outcomes(passed=1, errors=1)
    result.stdout.fnmatch_lines(["*ConfigError: @pytest.mark.gate('iops >= 1') judged nothing: *"])


def test_empty_client_is_refused(run_pytest):
    result = run_pytest("--st-client=", suite="def test_a(attachment): pass\n")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*--st-client : no such client. There are: here"])


def test_empty_list_of_thresholds_is_refused(run_pytest):
    result = run_pytest(suite="def test_a(attachment): pass\n", more="thresholds: {sequential: []}")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*targets.yaml:*: thresholds.sequential: an empty list gates nothing;*"])
