"""Comparing results with each other and with baselines."""

import json
from dataclasses import replace

import pytest

from storagetest.cli import main
from storagetest.errors import ResultError
from storagetest.measure.run import METRICS
from storagetest.report.base import Status
from storagetest.report.baseline import MOST_SESSIONS, entries_of, key_of, load, save
from storagetest.verdict import BASELINE, Outcome, Threshold, Verdict

AROUND = [1.0, 0.99, 1.01, 1.005, 0.995]


@pytest.fixture
def scaled(make_record):
    """Return a function that makes a record with ``runs`` repeats: iops around ``factor`` times 1000."""

    def make(factor: float, *, runs: int = 5, **changes):
        sample = make_record().run.samples[0]
        samples = tuple(replace(sample, values={"iops": 1000 * factor * each}) for each in AROUND[:runs])
        return make_record(samples=samples, **changes)

    return make


@pytest.fixture
def compare(write_results):
    """Return a function that compares a baseline, or records, with other records: the exit status."""

    def run(before, after, *options: str) -> int:
        a = write_results(*before, name="a.jsonl") if isinstance(before, list) else before
        return main(["compare", str(a), str(write_results(*after, name="b.jsonl")), *options])

    return run


@pytest.mark.parametrize(
    ("factor", "status", "word"), [(1.0, 0, "~"), (1.2, 0, "better"), (0.8, 1, "worse"), (0.999, 0, "~")]
)
def test_the_exit_status_shows_whether_a_metric_is_worse(scaled, compare, capsys, factor, status, word):
    assert compare([scaled(1.0)], [scaled(factor)]) == status
    out = capsys.readouterr().out.splitlines()
    assert len(out) == 2
    assert out[1].rstrip().endswith(word)


def test_lines_fit_a_hundred_columns_whatever_the_case_is_called(make_record, compare, capsys):
    record = make_record(variant="nfs-" + "very-" * 40 + "long")
    compare([record], [record])
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 1 + len(record.run.metrics)
    assert max(map(len, lines)) <= 100


def test_three_runs_a_side_are_reported_as_too_few(scaled, compare, capsys):
    assert compare([scaled(1.0, runs=3)], [scaled(0.5, runs=3)]) == 2
    output = capsys.readouterr()
    assert "too few runs" in output.out
    assert "four runs each" in output.err


def test_runs_of_the_same_case_are_pooled(scaled, compare):
    assert compare([scaled(1.0, runs=3)] * 2, [scaled(0.5, runs=3)] * 2) == 1


def test_runs_without_a_common_case_are_reported(make_record, compare, capsys):
    others = [make_record(variant="smb-v3.1.1"), make_record(variant="smb-v2.1")]
    assert compare([make_record()], others) == 2
    stderr = capsys.readouterr().err
    sides = [line.partition(" on ")[::2] for line in stderr.splitlines() if " only: " in line]
    assert [(side[:4], variant) for side, variant in sides] == [
        ("in A", "nfs-v4.2-nconnect4"), ("in B", "smb-v3.1.1"), ("in B", "smb-v2.1")
    ]  # fmt: skip
    assert "not all cases were compared" in stderr


def test_case_that_one_file_lacks_is_no_success_unless_it_is_allowed(scaled, tmp_path, compare, capsys):
    both = [scaled(1.0), scaled(1.0, variant="smb")]
    assert compare(both, [scaled(1.0)]) == 2
    assert "in A only: " in (stderr := capsys.readouterr().err)
    assert " on smb" in stderr
    assert compare([], [], "--allow-missing") == 0
    assert main(["compare", str(tmp_path / "b.jsonl"), str(tmp_path / "a.jsonl")]) == 2
    assert compare([], [scaled(0.1)] * 3) == 1


def test_case_with_too_few_runs_among_others_is_no_success(scaled, compare):
    few = [scaled(1.0), scaled(1.0, variant="smb", runs=2)]
    assert compare([scaled(1.0), scaled(1.0, variant="smb")], few) == 2


def test_invalid_runs_are_left_out_and_counted(scaled, compare, capsys):
    invalid = scaled(0.1, invalid=("the client was the bottleneck",))
    assert compare([scaled(1.0)], [scaled(1.0), invalid]) == 0
    assert "1 INVALID run of B left out" in capsys.readouterr().err


@pytest.mark.parametrize(("factor", "status"), [(0.85, 0), (0.5, 1)])
def test_a_baselines_noise_floor_holds(scaled, compare, tmp_path, factor, status):
    for day, stored in enumerate((1.0, 0.85)):
        save(tmp_path / "base.json", [scaled(stored, started=day)])
    assert compare(tmp_path / "base.json", [scaled(factor)]) == status


def test_a_floor_can_be_given(scaled, compare):
    assert compare([scaled(1.0)], [scaled(0.9)]) == 1
    assert compare([], [], "--floor", "15") == 0
    with pytest.raises(SystemExit) as caught:
        compare([], [], "--floor", "-1")
    assert caught.value.code == 2


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("once upon a time\n", "b.jsonl:1: damaged"),
        ('{"schema":"storagetest.result/9"}\n', "b.jsonl:1: schema is 'storagetest.result/9'"),
        (None, "b.jsonl: No such file"),
        ("", "not all cases were compared"),
    ],
)
def test_a_bad_file_is_named_and_nothing_is_compared(make_record, compare, tmp_path, capsys, text, message):
    if text is not None:
        (tmp_path / "b.jsonl").write_text(text)
    assert compare([make_record()], []) == 2
    assert message in capsys.readouterr().err


def test_a_line_that_a_crash_cut_off_is_left_out(scaled, compare, write_results, capsys):
    with write_results(scaled(1.0), name="b.jsonl").open("a") as file:
        file.write('{"schema":"storagetest.result/2","nodeid":"x')
    assert compare([scaled(1.0)], []) == 0
    assert "cut off" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["base.json", "base", "some/where/base.json"])
def test_what_was_saved_is_loaded_again(make_record, tmp_path, name):
    records = [make_record(), make_record(variant="smb-v3.1.1")]
    assert save(tmp_path / name, records) == 2
    stored = load(tmp_path / name)
    assert stored.learned
    run = records[0].run
    entry = stored.entries[key_of(run)]
    assert entry.reference("iops").sessions == (tuple(sample.values["iops"] for sample in run.samples),)
    assert entry.reference("iops").floor is None
    assert entry.reference("nothing").values == ()
    assert entry.metrics["p99"] == METRICS["p99"]


def test_a_directory_has_a_file_a_case_whose_name_stays(make_record, tmp_path):
    for _ in range(2):
        save(tmp_path / "base", [make_record(), make_record(variant="nfs-v3")])
    names = sorted(path.name for path in (tmp_path / "base").iterdir())
    assert len(names) == 2
    assert names[0].startswith("sequential-nfs-v3-")
    assert [len(entry.sessions) for entry in load(tmp_path / "base").entries.values()] == [2, 2]


def test_the_key_holds_no_address_and_no_time_and_the_order_of_parameters_is_nothing(make_record):
    record = make_record(parameters={"direction": "read", "block_size": 4096})
    other = make_record(parameters={"block_size": 4096, "direction": "read"})
    moved = replace(other.run, started=5.0, negotiated={"addr": "192.0.2.9"}, versions={"kernel": "7"})
    assert key_of(record.run) == key_of(moved)
    for change in ({"parameters": {"direction": "write"}}, {"profile": "thorough"}, {"client": "client2"}):
        assert key_of(record.run) != key_of(replace(record.run, **change))


def test_completion_latencies_of_an_earlier_version_are_not_compared_with_total_ones(make_record, tmp_path):
    path = tmp_path / "base.json"
    save(path, [make_record()])
    path.write_text(path.read_text().replace("storagetest.baseline/2", "storagetest.baseline/1"))
    (old,) = load(path).entries.values()
    assert len(old.reference("iops").values) == 3
    assert old.reference("p99").values == ()
    assert {"latency_mean", "p99"}.isdisjoint(old.metrics)


def test_saves_append_sessions_and_the_floor_is_learned_from_them(make_record, tmp_path):
    path = tmp_path / "base.json"
    for day in range(3):
        save(path, [make_record(started=day)])
    (case,) = json.loads(path.read_text())["cases"]
    assert [session["started"] for session in case["sessions"]] == [0, 1, 2]
    assert case["noise_floors"]["iops"] == 0  # three times the very same values
    (entry,) = load(path).entries.values()
    assert len(entry.reference("iops").values) == 9


def test_the_latest_sessions_are_kept(make_record, tmp_path):
    path = tmp_path / "base.json"
    for day in range(MOST_SESSIONS + 2):
        save(path, [make_record(started=day)])
    (entry,) = load(path).entries.values()
    assert [session.started for session in entry.sessions] == list(range(2, MOST_SESSIONS + 2))


def against(outcome: Outcome) -> Verdict:
    return Verdict(
        outcome, Threshold(METRICS["iops"], ">=", 0.95, "iops >= baseline - 5 %", "", BASELINE), None, ""
    )


def test_what_does_not_fit_is_not_saved(make_record, tmp_path):
    for record, fits in (
        (make_record(verdicts=(against(Outcome.FAIL),)), False),
        (make_record(verdicts=(against(Outcome.INVALID),)), True),  # such as: no baseline yet
        (make_record(outcome=Outcome.FAIL), True),  # an absolute gate does not judge a change
        (make_record(ended=Status.ERROR), False),
        (make_record(invalid=("no steady state",)), False),
        (make_record(samples=()), False),
    ):
        assert save(tmp_path / "base.json", [record]) == int(fits), record


def test_a_results_file_stands_in_for_a_baseline(make_record, write_results):
    stored = load(write_results(make_record(), make_record(), make_record(invalid=("so",))))
    assert not stored.learned
    assert stored.left_out == 1
    assert [len(entry.sessions) for entry in stored.entries.values()] == [2]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b'{"schema": "storagetest.baseline/3"}', "schema is 'storagetest.baseline/3'; this version"),
        (b'{"schema": "storagetest.baseline/1"}', "member 'cases' is missing"),
        (b'{"schema": "storagetest.baseline/1", "cases": [{}]}', "member 'case' is missing"),
        (b'{"schema": "storagetest.baseline/1", "cases": 5}', "not a baseline"),
        (b'{"schema": "storagetest.baseline/1", "cases": [', "damaged"),
        (b"[]", "not a JSON object"),
        (b"{}", "schema is None"),
        (b"\xff\xfe\x00", "not text"),
        (None, "No such file"),
    ],
)
def test_what_cannot_be_read_is_refused_by_name(tmp_path, text, message):
    path = tmp_path / "base.json"
    if text is not None:
        path.write_bytes(text)
    with pytest.raises(ResultError) as caught:
        load(path)
    assert str(caught.value).startswith(str(path))
    assert message in str(caught.value)


def test_a_failed_write_is_reported_and_keeps_the_old_file(make_record, tmp_path):
    save(tmp_path / "base.json", [make_record()])
    before = (tmp_path / "base.json").read_text()
    with pytest.raises(ResultError, match="--st-save-baseline"):
        save(tmp_path / "base.json" / "below", [make_record()])
    assert (tmp_path / "base.json").read_text() == before
    assert [path.name for path in tmp_path.iterdir()] == ["base.json"]


def test_a_record_without_any_metric_is_an_entry_without_any(make_record):
    run = make_record().run
    bare = tuple(replace(sample, values={}) for sample in run.samples)
    (entry,) = entries_of([make_record(samples=bare)]).values()
    assert dict(entry.metrics) == {}


def test_a_case_of_ours_that_was_renamed_keeps_its_baseline(make_record, tmp_path):
    path = tmp_path / "base.json"
    new = "suites/performance/test_custom_workloads.py::test_custom_workload[disk-oltp]"
    save(path, [make_record(case="suites/performance/test_own.py::test_own[disk-oltp]")])
    assert [key.case for key in load(path).entries] == [new]
