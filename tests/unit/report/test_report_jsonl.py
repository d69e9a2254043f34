"""results.jsonl: what goes in comes out, and what is damaged is named."""

import json
import os
import resource
import signal
from dataclasses import replace
from pathlib import Path
from string import printable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storagetest.errors import ResultError
from storagetest.measure.bottleneck import Bottleneck, Limiter, Utilisation
from storagetest.measure.common_window import ClientSummary, ConcurrencySummary
from storagetest.measure.histogram import Histogram
from storagetest.measure.run import Better, Metric, Run, Sample
from storagetest.measure.series import Series
from storagetest.measure.stats import Interval
from storagetest.measure.unit import Unit
from storagetest.report.base import Record, Status
from storagetest.report.jsonl import SCHEMA, JsonlReporter, from_json, read, to_json
from storagetest.verdict.base import Outcome, Threshold, Verdict

SCHEMA_FILE = Path(__file__).parents[3] / "docs" / "reference" / "result.schema.json"

text = st.text(max_size=12)
texts = st.dictionaries(text, text, max_size=3)
numbers = st.floats(allow_nan=False)  # infinities included; NaN equals nothing, see its own test
metrics = st.builds(
    Metric,
    text,
    st.sampled_from(Unit),
    st.sampled_from(Better),
    st.none() | st.floats(0.01, 0.99),
    st.none() | text,
)
histograms = st.lists(st.floats(0, 20), max_size=5).map(Histogram.of)
plain = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**12), 10**12)
    | st.floats(allow_nan=False, allow_infinity=False)
    | text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(text, inner, max_size=3),
    max_leaves=5,
)
series = st.builds(
    lambda points, unit, words: Series(
        *words[:2], unit, words[2], tuple(at for at, _ in points), tuple(value for _, value in points)
    ),
    st.lists(st.tuples(numbers, numbers), max_size=3),
    st.sampled_from(Unit),
    st.tuples(text, text, text),
)
short_texts = st.lists(text, max_size=2).map(tuple)
shares = st.none() | st.floats(0, 1)
rates = st.floats(0, 1e9)
utilisations = st.builds(Utilisation, rates, st.none() | rates, shares, shares, shares)
durations = st.floats(0, 1e6)
maybe = st.none() | durations
members = st.builds(ClientSummary, text, st.dictionaries(text, numbers, max_size=3), maybe, maybe, durations)
stories = st.builds(
    ConcurrencySummary,
    spread=maybe,
    **dict.fromkeys(("limit", "clock_error", "seconds", "first_done", "last_done"), durations),
    members=st.lists(members, min_size=1, max_size=3).map(tuple),
    outliers=short_texts,
)
samples = st.builds(
    Sample,
    values=st.dictionaries(text, numbers, max_size=3),
    seconds=numbers,
    ios=st.integers(0, 2**62),
    latency=st.none() | histograms,
    evidence=texts,
    operations=st.dictionaries(text, histograms, max_size=2),
    invalid=short_texts,
    series=st.lists(series, max_size=2).map(tuple),
    began=st.none() | st.floats(0, 2e9),
    utilisation=st.none() | utilisations,
    concurrency=st.none() | stories,
)
runs = st.builds(
    Run,
    *[text] * 6,  # case, workload, target, variant, protocol and client
    parameters=st.dictionaries(text, plain, max_size=3),
    negotiated=texts,
    samples=st.lists(samples, max_size=3).map(tuple),
    started=numbers,
    profile=text,
    versions=texts,
    invalid=short_texts,
    metrics=st.dictionaries(text, metrics, max_size=2),
    limited_by=st.none() | st.builds(Bottleneck, st.sampled_from(Limiter), text),
    headline=short_texts,
)
verdicts = st.builds(
    Verdict,
    st.sampled_from(Outcome),
    st.builds(Threshold, metrics, st.sampled_from([">=", "<="]), numbers, text, text, text),
    st.none() | st.builds(Interval, numbers, numbers, numbers, st.floats(0.5, 0.999), st.integers(0, 100)),
    text,
)
records = st.builds(
    Record,
    run=runs,
    verdicts=st.lists(verdicts, max_size=2).map(tuple),
    ended=st.none() | st.sampled_from(Status),
    failure=st.none() | text,
    artefacts=texts,
    nodeid=text,
)


@given(records)
def test_to_json_and_from_json_are_inverse(record):
    document = to_json(record)
    assert from_json(document) == record
    assert from_json(json.loads(json.dumps(document, allow_nan=False))) == record


@given(records)
def test_a_file_of_the_previous_version_is_read(record):
    document = to_json(record)
    old = {**document, "schema": "storagetest.result/1", "run": {**document["run"]}}
    old["run"]["samples"] = [
        {
            {"utilisation": "headroom", "concurrency": "together"}.get(name, name): value
            for name, value in one.items()
        }
        for one in document["run"]["samples"]
    ]
    assert from_json(old) == record


def test_completion_latencies_of_an_earlier_version_are_read_as_such(make_record):
    new = make_record()
    new = replace(
        new,
        run=replace(new.run, samples=tuple(replace(s, evidence={"fio.json": "{}"}) for s in new.run.samples)),
    )
    old = from_json({**to_json(new), "schema": "storagetest.result/2"}).run
    assert old.samples[0].values["completion_p99"] == new.run.samples[0].values["p99"]
    assert {"p99", "latency_mean"}.isdisjoint(old.samples[0].values)
    assert set(old.headline) <= set(old.metrics)
    assert old.metrics["completion_mean"].name == "completion_mean"
    assert from_json(to_json(new)) == new


@given(records)
def test_the_published_schema_describes_what_is_written(record):
    jsonschema = pytest.importorskip("jsonschema")
    jsonschema.Draft202012Validator(json.loads(SCHEMA_FILE.read_text())).validate(to_json(record))


def test_nan_survives(make_record):
    sample = replace(make_record().run.samples[0], values={"iops": float("nan")})
    again = from_json(to_json(make_record(samples=(sample,))))
    assert repr(again.run.samples[0].values) == "{'iops': nan}"


def test_parameters_that_json_has_no_word_for_become_their_text(make_record):
    parameters = {"sizes": (1, 2), "path": Path("/x"), "seen": {"a"}, "rate": float("inf")}
    written = to_json(make_record(parameters=parameters))["run"]["parameters"]
    assert written == {"sizes": [1, 2], "path": "/x", "seen": ["a"], "rate": "inf"}


def test_records_are_appended_and_read_in_order(tmp_path, make_record):
    path = tmp_path / "deep" / "results.jsonl"
    first, second = make_record(variant="a"), make_record(variant="b", outcome=Outcome.INVALID)
    JsonlReporter(path).on_record(first)
    JsonlReporter(path).on_record(second)
    assert read(path) == [first, second]
    lines = path.read_text().splitlines()
    assert [json.loads(line)["schema"] for line in lines] == [SCHEMA, SCHEMA]
    assert all(set(line) <= set(printable) for line in lines)


@pytest.mark.parametrize("kept", [1, 30, 200, 5000])
def test_a_torn_line_is_reported_and_the_rest_is_read(write_results, make_record, kept):
    path = write_results(make_record(variant="whole"))
    reporter = JsonlReporter(path)
    size = path.stat().st_size
    reporter.on_record(make_record(variant="torn"))
    os.truncate(path, size + kept)
    messages: list[str] = []
    assert [record.run.variant for record in read(path, on_torn=messages.append)] == ["whole"]
    (message,) = messages
    assert message.startswith(f"{path}:2: damaged: ")
    with pytest.raises(ResultError, match=r"results\.jsonl:2: damaged"):
        read(path)
    # The next run goes on after it, on a line of its own.
    reporter.on_record(make_record(variant="next"))
    assert [record.run.variant for record in read(path, on_torn=messages.append)] == ["whole", "next"]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"other": 1', "damaged"),
        ("[]", "not a JSON object"),
        ("{}", "schema is None"),
        ('{"schema": "storagetest.result/4"}', r"schema is 'storagetest\.result/4'; this version reads"),
        ('{"schema": "storagetest.result/2"}', "member 'run' is missing"),
        ('{"schema": "storagetest.result/2", "run": 3}', "not a result"),
        ("\x00\x01", "damaged"),
    ],
)
def test_a_damaged_line_is_named(write_results, make_record, line, message):
    path = write_results(make_record())
    with path.open("a") as file:
        file.write(f"{line}\n")
    with pytest.raises(ResultError, match=rf"results\.jsonl:2: {message}"):
        read(path, on_torn=lambda line: pytest.fail(f"not torn: {line}"))


def test_no_file_is_a_clear_error(tmp_path):
    with pytest.raises(ResultError, match=r"missing\.jsonl: No such file"):
        read(tmp_path / "missing.jsonl")


def test_a_place_that_cannot_be_written_is_a_clear_error(tmp_path, make_record):
    with pytest.raises(ResultError, match="Is a directory; name another file with --st-results"):
        JsonlReporter(tmp_path).on_record(make_record())


def test_a_full_disk_leaves_no_half_line(write_results, make_record):
    path = write_results(make_record(variant="whole"))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 100, hard))
        with pytest.raises(ResultError, match="only 100 of"):
            write_results(make_record(variant="torn"))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, handler)
    assert [record.run.variant for record in read(path)] == ["whole"]


def test_members_that_came_later_may_be_missing(make_record):
    document = to_json(make_record())
    del document["run"]["headline"]
    for verdict in document["verdicts"]:
        del verdict["threshold"]["against"]
    for metric in document["run"]["metrics"].values():
        del metric["operation"]
    for sample in document["run"]["samples"]:
        del sample["operations"], sample["invalid"]
    assert from_json(document) == make_record()
