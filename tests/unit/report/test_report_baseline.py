"""Baselines on disk: what is kept, by which name, and what is refused."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from storagetest.errors import ResultError
from storagetest.measure.run import METRICS
from storagetest.report.base import Status
from storagetest.report.baseline import MOST_SESSIONS, entries_of, key_of, load, save
from storagetest.verdict import BASELINE, Outcome, Threshold, Verdict


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
        (b'{"schema": "storagetest.baseline/2"}', "schema is 'storagetest.baseline/2'; this version"),
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
