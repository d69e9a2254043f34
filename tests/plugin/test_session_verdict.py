"""A green exit status means that something was checked: what makes a run red at its end."""

from __future__ import annotations

import pytest

GATE = 'import pytest\n@pytest.mark.gate("iops >= 500")\n'
OTHER_WORKLOAD = 'thresholds: {fake-metrics: ["iops >= 1"], sequential: ["bandwidth >= 1MiB/s"]}'
HIDDEN = "*test_metrics[[]disk[]]: a gate failed, and the test ended as *: iops: * >= 500*"

SWALLOWED = (
    GATE + "def test_metrics(measure):\n    try: measure('fake-metrics')\n    except AssertionError: pass\n"
)
SKIPPED = SWALLOWED.replace("pass\n", "pytest.skip('slow today')\n")
EXPECTED = GATE + "@pytest.mark.xfail\ndef test_metrics(measure): measure('fake-metrics')\n"
TEARDOWN = """
import pytest
@pytest.fixture
def later(measure):
    yield
    try: measure("fake-metrics")
    except AssertionError: pass

@pytest.mark.gate("iops >= 500")
def test_metrics(later): pass
"""


@pytest.mark.parametrize("suite", [SWALLOWED, SKIPPED, EXPECTED, TEARDOWN])
def test_failed_gate_is_red_however_the_test_ends(run_with_fake_metrics, suite):
    result = run_with_fake_metrics("--st-target", "disk", suite=suite, disk=100)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines([HIDDEN])


def test_failed_gate_of_a_failed_test_is_reported_once(run_with_fake_metrics):
    suite = GATE + "def test_metrics(measure): measure('fake-metrics')\n"
    result = run_with_fake_metrics("--st-target", "disk", suite=suite, disk=100)
    result.assert_outcomes(failed=1)
    result.stdout.no_fnmatch_line("*the test ended as*")


@pytest.mark.parametrize("workers", [(), ("-n", "1")], ids=["one process", "xdist"])
def test_nothing_checked_is_red_unless_it_is_allowed(run_pytest, workers):
    suite = "import pytest\ndef test_metrics(attachment): pytest.skip('no time')\n"
    result = run_pytest(*workers, suite=suite)
    result.assert_outcomes(skipped=2)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["nothing was checked: all 2 cases on the targets were skipped (why: -rs).*"])
    assert run_pytest(*workers, "--st-allow", "nothing-checked", suite=suite).ret == pytest.ExitCode.OK


def test_skips_of_tests_without_a_target_are_not_counted(run_pytest):
    suite = "import pytest\ndef test_other(): pytest.skip('no time')\n"
    assert run_pytest(suite=suite).ret == pytest.ExitCode.OK


def test_one_checked_case_is_enough(run_pytest):
    suite = "import pytest\ndef test_a(attachment): pass\ndef test_b(attachment): pytest.skip('no time')\n"
    assert run_pytest(suite=suite).ret == pytest.ExitCode.OK


def test_threshold_that_judged_nothing_is_red_unless_it_is_allowed(run_with_fake_metrics):
    result = run_with_fake_metrics(more=OTHER_WORKLOAD)
    result.assert_outcomes(passed=2)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["threshold at *targets.yaml:*judged nothing: 'bandwidth >= 1MiB/s'.*"])
    result.stdout.no_fnmatch_line("*judged nothing: 'iops >= 1'*")
    allowed = run_with_fake_metrics("--st-allow", "unused-thresholds", more=OTHER_WORKLOAD)
    assert allowed.ret == pytest.ExitCode.OK


@pytest.mark.parametrize("narrowed", [["--st-target", "disk"], ["-k", "metrics"], ["test_suite.py"]])
def test_narrowed_run_may_leave_thresholds_unused(run_with_fake_metrics, narrowed):
    assert run_with_fake_metrics(*narrowed, more=OTHER_WORKLOAD).ret == pytest.ExitCode.OK


def test_thresholds_of_a_run_that_measures_nothing_are_not_reported(run_pytest):
    suite = "def test_a(attachment): pass\n"
    assert run_pytest(suite=suite, more='thresholds: {sequential: ["bandwidth >= 1MiB/s"]}').ret == 0


def test_collecting_judges_nothing(run_pytest):
    suite = "def test_a(attachment): pass\n"
    assert run_pytest("--collect-only", suite=suite).ret == pytest.ExitCode.OK
