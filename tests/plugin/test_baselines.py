"""Gates against baselines, and comparisons of two variants."""

import json
from functools import partial

import pytest
from output_files import read_json_lines
from pytest_results import assert_result, assert_usage_error

SUITE = "def test_metrics(measure): measure('fake-metrics')\n"
GATE = 'thresholds: {fake-metrics: ["iops >= baseline - 5 %"]}\n'


def test_a_baseline_is_saved_compared_and_extended(run_with_fake_metrics, pytester):
    saved = run_with_fake_metrics("--st-save-baseline", "base.json", more=GATE)
    # Gates against a baseline are not judged while the first one is saved.
    assert_result(saved, "baseline: base.json: 2 cases saved", passed=2)
    document = json.loads((pytester.path / "base.json").read_text())
    assert document["schema"] == "storagetest.baseline/2"
    assert [case["variant"] for case in document["cases"]] == ["disk", "other"]
    assert len(document["cases"][0]["sessions"][0]["values"]["iops"]) == 10  # the whole budget
    assert document["cases"][0]["noise_floors"] == {}

    run_with_fake_metrics("--st-baseline", "base.json", more=GATE).assert_outcomes(passed=2)

    learning = run_with_fake_metrics("--st-baseline", "base.json", more=GATE, disk=800)
    assert_result(
        learning,
        "LEARNING disk on here: fake-metrics",
        "*iops: required >= baseline - 5 %, measured 800.0/s against 999.3/s of 1",
        "*session: -19.9 % (3 runs): learning: 1 of 5 sessions, too few to know how",
        passed=2,
    )
    strict = run_with_fake_metrics("--st-baseline", "base.json", "--st-strict", more=GATE)
    assert strict.ret == 1
    strict.stdout.fnmatch_lines(["*learning: 1 of 5 sessions*", "*2 invalid*"])

    run_with_fake_metrics(
        "--st-baseline", "base.json", "--st-save-baseline", "base.json", more=GATE, disk=1030
    )
    document = json.loads((pytester.path / "base.json").read_text())
    assert [len(case["sessions"]) for case in document["cases"]] == [2, 2]
    assert document["cases"][0]["noise_floors"]["iops"] == pytest.approx(0.03, abs=1e-3)


@pytest.fixture
def five_sessions(run_with_fake_metrics):
    """Return a function that saves five sessions of ``disk``'s given speeds as ``base``."""

    def save(*speeds: int) -> None:
        for speed in speeds:
            run_with_fake_metrics("--st-save-baseline", "base", disk=speed)

    return save


def test_against_five_sessions_a_gate_passes_or_fails(run_with_fake_metrics, five_sessions):
    five_sessions(1000, 1004, 998, 1001, 997)
    run_with_fake_metrics("--st-baseline", "base", more=GATE).assert_outcomes(passed=2)
    assert_result(
        run_with_fake_metrics("--st-baseline", "base", more=GATE, disk=800),
        "*disk on here: iops: required >= baseline - 5 %, measured *against 999.3/s of 5 sessions: -20*%*"
        " worse than required, and by more than the sessions differ (*",
        passed=1,
        failed=1,
    )


def test_a_loss_that_sessions_show_anyway_is_no_failure(run_with_fake_metrics, five_sessions):
    five_sessions(1000, 850, 950, 900, 1050)
    log = ("--log-cli-level", "INFO")
    result = run_with_fake_metrics("--st-baseline", "base", "--st-target", "disk", *log, more=GATE, disk=840)
    assert_result(
        result,
        "*fake-metrics on disk: iops >= baseline - 5 %: finds a loss of * % or more in 10 runs*",
        passed=1,
    )


def test_a_run_that_misses_its_gate_is_not_saved(run_with_fake_metrics, pytester):
    run_with_fake_metrics("--st-save-baseline", "base", "--st-target", "disk")
    result = run_with_fake_metrics(
        "--st-baseline", "base", "--st-save-baseline", "base", "--st-target", "disk", more=GATE, disk=450
    )
    result.assert_outcomes(failed=1)
    (file,) = (pytester.path / "base").glob("*.json")
    assert file.name.startswith("fake-metrics-disk-")
    assert len(json.loads(file.read_text())["cases"][0]["sessions"]) == 1


def test_a_results_file_is_a_baseline_too(run_with_fake_metrics):
    run_with_fake_metrics("--st-results", "before.jsonl")
    run_with_fake_metrics("--st-results", "before.jsonl")
    run_with_fake_metrics("--st-baseline", "before.jsonl", more=GATE).assert_outcomes(passed=2)


def test_a_gate_mark_can_refer_to_the_baseline(run_with_fake_metrics):
    suite = f'import pytest\n@pytest.mark.gate("p99 <= baseline + 10 %")\n{SUITE}'
    run_with_fake_metrics("--st-save-baseline", "base", suite=suite).assert_outcomes(passed=2)
    run_with_fake_metrics("--st-baseline", "base", suite=suite).assert_outcomes(passed=2)
    run_with_fake_metrics("--st-baseline", "base", suite=suite, disk=450).assert_outcomes(passed=1, failed=1)


def test_a_case_without_a_baseline_value_is_invalid(run_with_fake_metrics):
    run_with_fake_metrics("--st-save-baseline", "base", "--st-target", "disk")
    result = run_with_fake_metrics("--st-baseline", "base", "--st-target", "other", more=GATE)
    assert result.ret == 1
    result.stdout.fnmatch_lines(
        ["*no verdict: the baseline", "*base has no iops of this case; save it first"]
    )


def test_without_a_baseline_the_error_names_the_option(run_with_fake_metrics):
    result = run_with_fake_metrics(more=GATE)
    assert result.ret == 1
    result.stdout.fnmatch_lines(
        ["*targets.yaml:*: threshold 'iops >= baseline - 5 %': no baseline is given. Add --st-baseline*"]
    )


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("none", None, "--st-baseline none: no such baseline. Create it with --st-save-baseline none"),
        ("bad.json", '{"schema": "storagetest.baseline/7"}', "bad.json: schema is 'storagetest.baseline/7'*"),
        ("bad.json", '{"schema": "storagetest.baseline/1"', "bad.json: damaged: *"),
        ("bad.json", '{"schema": "storagetest.baseline/1"}', "bad.json: member 'cases' is missing"),
        ("bad.jsonl", "not JSON", "bad.jsonl:1: damaged*"),
    ],
)
def test_an_unreadable_baseline_is_a_usage_error(
    run_with_fake_metrics, pytester, name: str, text: str | None, message: str
):
    if text is not None:
        (pytester.path / name).write_text(text)
    result = run_with_fake_metrics("--st-baseline", name)
    assert_usage_error(result)
    result.stderr.fnmatch_lines([f"*{message}"])


def test_a_results_file_is_not_overwritten_by_a_baseline(run_with_fake_metrics, pytester):
    (pytester.path / "results.jsonl").write_text("")
    result = run_with_fake_metrics("--st-save-baseline", "results.jsonl")
    assert_usage_error(result, "not a directory or a .json file")


def test_two_workers_save_one_baseline(run_with_fake_metrics, pytester):
    run_with_fake_metrics("-n", "2", "--st-save-baseline", "base.json").assert_outcomes(passed=2)
    document = json.loads((pytester.path / "base.json").read_text())
    assert [len(case["sessions"]) for case in document["cases"]] == [1, 1]


def test_comparing_with_and_saving_to_a_new_path(run_with_fake_metrics, pytester):
    arguments = ("--st-baseline", "base", "--st-save-baseline", "base", "--st-target", "disk")
    first = run_with_fake_metrics(*arguments, more=GATE)
    assert first.ret == 1  # INVALID without a baseline, and saved
    first.stdout.fnmatch_lines(["*baseline: base: 1 case saved", "*1 invalid*"])
    run_with_fake_metrics(*arguments, more=GATE).assert_outcomes(passed=1)


COMPARISON_SUITE = "def test_comparison(comparison): comparison()\n"


@pytest.fixture
def run_comparison(run_with_fake_metrics):
    return partial(run_with_fake_metrics, suite=COMPARISON_SUITE)


def more(gate: str, metric: str = "iops", workload: str = "fake-metrics") -> str:
    return f"comparisons: {{pair: {{workload: '{workload}', metric: {metric}, gate: {gate}}}}}\n"


def test_two_variants_are_measured_in_turns_and_judged(run_comparison, pytester):
    result = run_comparison(more=more("disk >= 1.5 x other"), disk=2000)
    result.assert_outcomes(passed=1)
    assert (pytester.path / "order").read_text() == "disk other other disk disk other "
    first, second = read_json_lines(pytester.path / "results.jsonl")
    runs = [(record["run"]["variant"], len(record["run"]["samples"])) for record in (first, second)]
    assert runs == [("disk", 3), ("other", 3)]
    assert first["verdicts"][0]["threshold"]["against"] == "other"
    assert second["verdicts"] == []
    assert not list((pytester.path / "disk").iterdir())


def test_without_a_comparison_the_case_is_a_skip_with_a_reason(run_with_fake_metrics):
    result = run_with_fake_metrics("-rs", "-v", suite=COMPARISON_SUITE)
    result.assert_outcomes(skipped=1)
    result.stdout.fnmatch_lines(["*test_comparison[[]no-comparison[]]*"])
    result.stdout.fnmatch_lines(["SKIPPED *the targets file has no comparison of selected variants"])


def test_a_missed_gate_is_confirmed_by_fresh_pairs(run_comparison):
    result = run_comparison(more=more("disk >= 1.5 x other"))
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        "*disk on here: iops: required disk >= 1.5 x other, measured *: 1 x (* interval * pairs):"
        " misses the requirement, confirmed by * fresh pairs*"
    )


def test_an_undecided_comparison_is_invalid(run_comparison):
    result = run_comparison(more=more("disk >= other"), noise=0.02)
    assert result.ret == 1
    result.stdout.fnmatch_lines(["*1 invalid*"])


def test_a_metric_of_which_less_is_better(run_comparison):
    run_comparison(more=more("disk <= 0.6 x other", "p99"), disk=2000).assert_outcomes(passed=1)
    run_comparison(more=more("disk <= 0.6 x other", "p99")).assert_outcomes(failed=1)


def test_a_comparison_without_both_variants_is_skipped(run_comparison):
    gate = more("disk >= 0.5 x other")
    run_comparison("--st-target", "disk", more=gate).assert_outcomes(skipped=1)
    run_comparison().assert_outcomes(skipped=1)


def test_other_cases_of_the_left_variant_run_too(run_comparison):
    suite = COMPARISON_SUITE + "def test_metrics(measure): measure('fake-metrics')\n"
    run_comparison(suite=suite, more=more("disk >= 0.5 x other")).assert_outcomes(passed=3)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (more("disk >= disc"), "unknown variant 'disc'; did you mean 'disk'?"),
        (more("disk > other"), "unknown operator '>': write disk >= 1 x other, or <="),
        (more("disk >= other", "iop"), "fake-metrics has no metric 'iop'; did you mean 'iops'?"),
        (
            more("disk >= other", workload="fake-metric"),
            "unknown workload 'fake-metric'; did you mean 'fake-metrics'?",
        ),
        (more("disk >= other", workload="fake-metrics[x=1]"), "fake-metrics has no parameter 'x'*"),
        ("comparisons: {pair: {workload: fake-metrics, metric: iops}}", "comparisons.pair.gate: *"),
        (
            "comparisons: {pair: {workload: fake-metrics, metric: iops, gate: a, b: c}}",
            "comparisons.pair.b: *",
        ),
        ("comparisons: [fake-metrics]", "comparisons: expected a mapping (key: value)*"),
    ],
)
def test_an_error_is_reported_with_its_line(run_comparison, text, message):
    result = run_comparison(more=text)
    assert_usage_error(result)
    result.stderr.fnmatch_lines([f"*targets.yaml:*{message.replace('[', '[[]')}*"])
