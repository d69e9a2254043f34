"""Published experiments end to end, on local targets and with fake metrics."""

import json

from output_files import read_json_lines
from pytest_results import assert_result

from storagetest.installed_suites import SUITES
from storagetest.report.base import Status
from storagetest.report.jsonl import from_json
from storagetest.report.papers.rerun import reruns
from storagetest.verdict.claims import Finding

SUITE = """\
import pytest
@pytest.mark.experiment("a2")
def test_fake(experiment):
    experiment.side("iscsi")
    experiment.side("cifs")
    experiment.point("read 256KiB", "fake-metrics")
    experiment()
"""
BOTH = "roles: {iscsi: disk, cifs: other}\n"


def rerun_of(pytester, experiment: str = "A2"):
    records = [from_json(document) for document in read_json_lines(pytester.path / "results.jsonl")]
    return records, reruns(records)[experiment]


def test_a_claim_that_agrees_and_those_without_measurement(run_with_fake_metrics, pytester):
    run_with_fake_metrics(suite=SUITE, more=BOTH, disk=2000).assert_outcomes(passed=1)
    records, rerun = rerun_of(pytester)
    assert {(each.run.variant, each.status) for each in records} == {
        ("disk", Status.PASSED),
        ("other", Status.PASSED),
    }
    assert rerun.claims["read-256k"].finding is Finding.AGREES
    assert rerun.claims["read-256k"].interval.low > 1
    assert "profile tiny leaves out 'write 256KiB'" in rerun.claims["write-256k"].reason
    assert rerun.claims["read-response"].reason == "other: latency_mean was not measured"
    ((_, conditions),) = rerun.conditions.values()
    assert conditions.processors >= 1
    assert conditions.seconds > 0
    order = (pytester.path / "order").read_text().split()
    assert order == ["disk", "other", "other", "disk", "disk", "other"]  # decided after the third pair


def test_a_claim_that_differs_fails_no_case_and_is_confirmed(run_with_fake_metrics, pytester):
    run_with_fake_metrics(suite=SUITE, more=BOTH, disk=500).assert_outcomes(passed=1)
    _, rerun = rerun_of(pytester)
    assert rerun.claims["read-256k"].finding is Finding.DIFFERS
    assert "confirmed by" in rerun.claims["read-256k"].reason


def test_the_page_is_attached_in_allure(run_with_fake_metrics, pytester):
    run_with_fake_metrics("--alluredir", "allure", suite=SUITE, more=BOTH, disk=2000)
    (page,) = (pytester.path / "allure").glob("*.html")
    assert "iSCSI reads faster at 256 KiB" in page.read_text()
    (result,) = (pytester.path / "allure").glob("*-result.json")
    case = json.loads(result.read_text())
    assert [one["name"] for one in case["attachments"]] == ["published and measured"]
    labels = {label["name"]: label["value"] for label in case["labels"]}
    assert (labels["epic"], labels["feature"]) == (
        "Published experiments",
        "A2: iSCSI against CIFS, 32 workers",
    )


def test_a_role_that_is_absent_is_the_reason_of_its_claims(run_with_fake_metrics, pytester):
    run_with_fake_metrics(suite=SUITE, more="roles: {iscsi: disk}\n").assert_outcomes(passed=1)
    _, rerun = rerun_of(pytester)
    assert rerun.claims["read-256k"].finding is Finding.UNMEASURED
    assert "no target has the role cifs" in rerun.claims["read-256k"].reason


def test_without_any_role_the_case_is_skipped_with_the_reason(run_with_fake_metrics):
    result = run_with_fake_metrics("-rs", suite=SUITE)
    assert_result(result, "*A2: no target has the role iscsi*", skipped=1)


def test_a_side_that_is_left_out_by_the_command_line_is_a_reason(run_with_fake_metrics, pytester):
    run_with_fake_metrics("--st-target", "disk", suite=SUITE, more=BOTH).assert_outcomes(passed=1)
    _, rerun = rerun_of(pytester)
    assert "--st-target leaves out other" in rerun.claims["read-256k"].reason


def test_an_option_that_the_target_does_not_have_is_a_reason(run_with_fake_metrics, pytester):
    suite = SUITE.replace('side("cifs")', 'side("cifs", wsize="4KiB")')
    run_with_fake_metrics(suite=suite, more=BOTH).assert_outcomes(passed=1)
    _, rerun = rerun_of(pytester)
    assert "other: wsize" in rerun.claims["read-256k"].reason


def test_an_unknown_side_or_experiment_is_an_error(run_with_fake_metrics):
    suite = SUITE.replace('side("cifs")', 'side("smb")')
    assert_result(
        run_with_fake_metrics(suite=suite, more=BOTH), "*published data have no side 'smb'*", errors=1
    )
    suite = SUITE.replace('"a2"', '"z9"')
    assert_result(run_with_fake_metrics(suite=suite, more=BOTH), "*z9.toml: No such file*", errors=1)


def test_an_experiment_of_the_suite_runs_on_local_targets(run_pytest, fio, pytester):
    """Experiment C with four levels: real fio on directories."""
    text = (SUITES / "papers" / "test_c_threads.py").read_text()
    text = text.replace("FEWER_LEVELS = [1, 4, 16, 64, 128, 256]", "FEWER_LEVELS = [1, 2]")
    text = text.replace('{"runtime": 9.0, "ramp": 3.0}', '{"runtime": 0.2, "ramp": 0.0}')
    text = text.replace('block_size="4KiB",', 'block_size="4KiB", direct=False, engine="psync",')
    result = run_pytest(suite=text, more="roles: {iscsi: disk, nvme-tcp: other}\n")
    result.assert_outcomes(passed=1)
    _, rerun = rerun_of(pytester, "C")
    assert set(rerun.runs) == {("iscsi", "threads"), ("nvme-tcp", "threads")}
    assert "leaves" not in rerun.claims["peak"].reason
    assert rerun.claims["peak"].interval is not None
    assert "no target has the role iscsi-paths" in rerun.claims["second-path"].reason


def test_the_profiles_of_other_suites_and_a_sample_leave_experiments_out(run_with_fake_metrics):
    result = run_with_fake_metrics("-rs", "--st-profile", "standard", suite=SUITE, more=BOTH)
    assert_result(result, "*published experiments take --st-profile lab*", skipped=1)
    suite = SUITE + "def test_metrics(measure): measure('fake-metrics')\n"
    run_with_fake_metrics("--st-sample", suite=suite, more=BOTH).assert_outcomes(passed=1, deselected=2)


def test_a_load_that_fails_makes_the_case_invalid_and_keeps_the_others(run_with_fake_metrics, pytester):
    suite = SUITE.replace(
        '"fake-metrics")', '"fake-metrics")\n    experiment.point("read 1MiB", "sequential", size=1)'
    )
    suite = suite.replace(", size=1", ', scale={"size": 1 << 60}')
    result = run_with_fake_metrics(suite=suite, more=BOTH, disk=2000)
    assert result.ret == 1
    result.stdout.fnmatch_lines(["*1 invalid*"])
    _, rerun = rerun_of(pytester)
    assert rerun.claims["read-256k"].finding is Finding.AGREES
    assert rerun.claims["large"].finding is Finding.UNMEASURED
    assert "leaves out" not in rerun.claims["large"].reason


FAILS_LATER = """\
from fake_metrics import FakeMetrics
from storagetest.errors import WorkloadError
from storagetest.workloads.base import register

@register
class FailsLater(FakeMetrics):
    name = "fails-later"

    def measure(self, attachment, options, scale):
        if scale.repeat == 4 and "disk" in attachment.path:
            raise WorkloadError("here: the load failed")
        return super().measure(attachment, options, scale)
"""


def test_a_load_that_fails_in_a_further_round_ends_the_rounds(run_with_fake_metrics, pytester):
    pytester.makepyfile(fails_later=FAILS_LATER)
    pytester.syspathinsert()
    suite = SUITE.replace("fake-metrics", "fails-later")
    result = run_with_fake_metrics("-p", "fails_later", suite=suite, more=BOTH, disk=1000, noise=0.2)
    assert result.ret == 1
    result.stdout.fnmatch_lines(["*iscsi read 256KiB: here: the load failed*"])
    order = (pytester.path / "order").read_text().split()
    assert (order.count("disk"), order.count("other")) == (4, 5)


def test_a_case_judges_the_claims_of_its_sides_and_keeps_those_of_other_cases(
    run_with_fake_metrics, pytester
):
    other = """
@pytest.mark.experiment("a2")
def test_other(experiment):
    experiment.side("iscsi")
    experiment.point("read 1MiB", "fake-metrics")
    experiment()
"""
    run_with_fake_metrics(suite=SUITE + other, more=BOTH, disk=2000).assert_outcomes(passed=2)
    _, rerun = rerun_of(pytester)
    assert len(rerun.conditions) == 2
    assert rerun.claims["read-256k"].finding is Finding.AGREES
