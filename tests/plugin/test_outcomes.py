"""Outcomes of cases, and the verdict of a session."""

import pytest
from pytest_results import assert_result

# A protocol that raises the error that its option names; conftest.py registers it.
FAULTY_PROTOCOL = """\
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from storagetest import errors
from storagetest.config.base import TargetOptions
from storagetest.protocols.base import Attachment, AttachmentKind, OptionMismatch, Protocol, register

@register
class Faulty(Protocol[Any]):
    "Raises the error that its option names."
    name = "faulty"
    title = "Faulty"
    attachment_kind = AttachmentKind.FILESYSTEM
    class Options(TargetOptions):
        raises: str = ""
    example = {}
    def server(self, options): return "server"
    @contextmanager
    def attach(self, client, options):
        if options.raises in vars(errors):
            raise getattr(errors, options.raises)("as configured")
        mismatches = (OptionMismatch("wsize", "1048576", "4096"),) if options.raises == "changed" else ()
        yield Attachment(client=client, path="/tmp", kind=self.attachment_kind, size=1, mismatches=mismatches)
"""

TARGETS = """\
version: 1
clients: {{here: {{transport: local}}}}
targets:
  faulty: {{protocol: faulty, clients: [here], raises: {raises}, optional: {optional}}}
"""

SUITE = """\
def test_one(attachment): pass
def test_two(attachment): pass
"""


@pytest.fixture
def run_faulty(run_pytest, pytester):
    def run(raises: str, *, suite: str = SUITE, optional: str = "false") -> pytest.RunResult:
        pytester.makeconftest(FAULTY_PROTOCOL)
        targets = TARGETS.format(raises=raises, optional=optional)
        return run_pytest("-rs", "-v", targets=targets, suite=suite)

    return run


def test_a_dead_target_is_one_error_and_its_other_cases_are_skipped(run_faulty):
    result = run_faulty("TargetDead")
    reasons = ("*TargetDead: as configured*", "SKIPPED*faulty is dead: as configured*")
    assert_result(result, *reasons, errors=1, skipped=1)
    assert "Traceback" not in result.stdout.str()


def test_a_variant_that_cannot_be_attached_is_one_error(run_faulty):
    run_faulty("AttachError").assert_outcomes(errors=1, skipped=1)


def test_a_refused_option_is_a_skip(run_faulty):
    run_faulty("OptionRefused").assert_outcomes(skipped=2)


def test_a_client_without_the_protocol_is_an_error_unless_the_target_is_optional(run_faulty):
    run_faulty("ClientLacks").assert_outcomes(errors=1, skipped=1)
    run_faulty("ClientLacks", optional="true").assert_outcomes(skipped=2)


def test_an_option_with_another_value_is_a_failure(run_faulty):
    message = "*silently changed: wsize: requested 1048576, got 4096*"
    assert_result(run_faulty("changed"), message, failed=2)


def test_an_assertion_is_a_failure_and_another_exception_an_error(run_faulty):
    suite = """\
from storagetest.errors import HostError
def test_assertion(attachment): assert 1 == 2
def test_error(attachment): raise HostError("connection lost")
"""
    result = run_faulty("nothing", suite=suite)
    assert result.ret == 1
    result.stdout.fnmatch_lines(["*test_assertion*FAILED*", "*test_error*ERROR*", "*1 failed, 1 error*"])


def test_a_missing_capability_is_a_skip_that_names_it(run_faulty):
    suite = """\
import pytest
@pytest.mark.needs("block", "multipath")
def test_one(attachment): pass
"""
    reason = "SKIPPED*faulty has no block, multipath*"
    assert_result(run_faulty("nothing", suite=suite), reason, skipped=1)


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


THREAD = (
    "import threading\n"
    + GATE
    + """def test_metrics(measure):
    thread = threading.Thread(target=measure, args=["fake-metrics"])
    thread.start()
    thread.join()
"""
)
STILL_RUNNING = """
import threading
import fake_metrics

started, end, threads = threading.Event(), threading.Event(), []

def slow(*arguments):
    started.set()
    end.wait(60)

def test_metrics(measure, monkeypatch):
    monkeypatch.setattr(fake_metrics.FakeMetrics, "measure", slow)
    threads.append(threading.Thread(target=measure, args=["fake-metrics"]))
    threads[0].start()
    assert started.wait(60)

def test_after(variant):
    end.set()
    threads[0].join()
"""
AFTER_ITS_TEST = """
calls = []
def test_metrics(measure): calls.append(measure)
def test_after(variant): calls[0]("fake-metrics")
"""
EXPECTED_ERRORS = """
import pytest
from storagetest.errors import HostError

@pytest.fixture
def broken(): raise HostError("connection lost")

@pytest.mark.xfail
def test_setup(broken): pass

@pytest.mark.xfail
def test_call(variant): raise HostError("connection lost")

@pytest.mark.xfail(raises=HostError)
def test_named(variant): raise HostError("connection lost")

@pytest.mark.xfail
@pytest.mark.gate("p99 <= 1s")
def test_invalid(measure): measure("fake-metrics", ios=10)
"""
IMPOSSIBLE = """
import fake_metrics
import pytest
from storagetest.measure.run import Sample

@pytest.mark.parametrize("value", [{values}])
def test_metrics(measure, monkeypatch, value):
    sample = lambda *_: Sample({{"{metric}": value}}, 1.0, 100000)
    monkeypatch.setattr(fake_metrics.FakeMetrics, "measure", sample)
    measure("fake-metrics")
"""


def test_failed_gate_in_a_thread_of_the_test_is_red(run_with_fake_metrics):
    result = run_with_fake_metrics("--st-target", "disk", "-W", "ignore", suite=THREAD, disk=100)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines([HIDDEN])


def test_measurement_that_outlives_its_test_is_an_error(run_with_fake_metrics):
    result = run_with_fake_metrics("--st-target", "disk", "-W", "ignore", suite=STILL_RUNNING)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["*ConfigError: a measurement still runs in a thread of the test*"])


def test_measurement_after_its_test_is_refused(run_with_fake_metrics):
    result = run_with_fake_metrics("--st-target", "disk", suite=AFTER_ITS_TEST)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["*test_metrics*: a measurement started after the end of its test*"])


def test_thresholds_are_unused_if_no_test_calls_its_fixture_measure(run_with_fake_metrics):
    suite = "def test_metrics(measure): pass\n"
    result = run_with_fake_metrics(suite=suite, more='thresholds: {fake-metrics: ["iops >= 1"]}')
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["threshold at *targets.yaml:* judged nothing: 'iops >= 1'*"])


def test_expected_failure_is_no_error_and_no_invalid(run_with_fake_metrics):
    """They say nothing about the target, unless the mark names the exception."""
    result = run_with_fake_metrics("--st-target", "disk", "-v", suite=EXPECTED_ERRORS)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    lines = ("*test_setup*ERROR*", "*test_call*ERROR*", "*test_named*XFAIL*", "*test_invalid*INVALID*")
    result.stdout.fnmatch_lines(lines)


@pytest.mark.parametrize(
    ("metric", "values", "flaws"),
    [
        ("iops", "-5.0, float('nan'), float('inf')", ["-5 /s, which is negative", "nan /s*", "inf /s*"]),
        ("bandwidth", "-1.0", ["-1 B/s, which is negative"]),
        ("p99", "-1.0", ["-1 s, which is negative"]),
        ("client_cpu", "1.3, -0.1", ["1.3 ratio, and a share is at most 1", "-0.1 ratio, which is negative"]),
    ],
)
def test_impossible_value_is_invalid(run_with_fake_metrics, metric, values, flaws):
    suite = IMPOSSIBLE.format(metric=metric, values=values)
    result = run_with_fake_metrics("--st-target", "disk", suite=suite)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines([f"INVALID: *impossible value: {metric} is {flaw}" for flaw in flaws])


def test_least_and_greatest_values_are_possible(run_with_fake_metrics):
    suite = IMPOSSIBLE.format(metric="client_cpu", values="0.0, 1.0")
    assert run_with_fake_metrics("--st-target", "disk", suite=suite).ret == pytest.ExitCode.OK


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
