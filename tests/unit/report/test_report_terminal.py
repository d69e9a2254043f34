"""The tables in the terminal, and that they fit."""

from dataclasses import replace

import pytest

from storagetest.measure.common_window import ClientSummary, ConcurrencySummary
from storagetest.measure.run import METRICS, Sample
from storagetest.report.base import Status
from storagetest.report.metric_values import metric_values
from storagetest.report.terminal import summary_lines
from storagetest.verdict import BASELINE, Interval, Outcome, Threshold, Verdict
from storagetest.workloads.base import workloads

LONG = "files-smb-3.1.1-encrypted-signed-multichannel4-rdma-compressed"


@pytest.fixture
def mixed(make_record):
    small = {"queue_depth": 16, "block_size": 4096}
    return [
        make_record(variant="nfs-v4.2-nconnect4"),
        make_record(variant="nfs-v3", workload="small-random-write", parameters=small, outcome=Outcome.FAIL),
        make_record(variant=LONG, repeats=1, outcome=Outcome.INVALID),
        make_record(variant="array", repeats=0, outcome=None, ended=Status.ERROR, failure="array: refused"),
        make_record(variant="bare", outcome=None),
    ]


def table(lines):
    return lines[: lines.index("")] if "" in lines else lines


def test_no_records_no_lines():
    assert summary_lines([]) == []


def test_the_table_in_full(mixed):
    header, _, *rows = table(summary_lines(mixed, width=160))
    assert header.split() == ["variant", "case", "block", "depth", "MiB/s", "IOPS", "mean", "p99", "verdict"]
    by_variant = {row.split()[0]: row for row in rows}
    assert by_variant["nfs-v3"].split()[1:] == [
        "small-random-write", "4KiB", "16", "201.7", "51,645", "4.14", "ms", "10.3", "ms", "FAIL",
    ]  # fmt: skip
    assert by_variant["array"].endswith("-        -        -  ERROR")
    assert by_variant["bare"].endswith("no gate")
    assert by_variant[LONG].endswith("INVALID")


@pytest.mark.parametrize("width", [100, 80])
def test_it_fits(mixed, width):
    lines = table(summary_lines(mixed, width=width))
    assert max(len(line) for line in lines) <= width
    assert lines[0] == "variant  case"
    for name in ("nfs-v3  small-random-write queue_depth=16 4KiB", LONG):  # no id is cut
        assert any(line.startswith(name) for line in lines)
    assert sum("51,645" in line for line in lines) == 3


def test_runs_on_several_clients_say_on_how_many(make_record):
    def on(*names):
        members = tuple(ClientSummary(name, {}, 0.0, 2.0) for name in names)
        story = ConcurrencySummary(0.01, 0.02, 0.001, 2.0, 2.0, 2.1, members, ())
        samples = make_record().run.samples
        return make_record(samples=tuple(replace(sample, concurrency=story) for sample in samples))

    lines = table(summary_lines([make_record(), on("a", "b"), on("a", "b", "c", "d")], width=100))
    assert "clients" in lines[0].split()
    at = lines[0].index("clients")
    assert [line[at : at + len("clients")].strip() for line in lines[2:]] == ["1", "2", "4"]


def test_what_is_narrower_still_loses_columns_and_not_digits(mixed):
    _, header, _, *rows = table(summary_lines(mixed, width=32))
    assert header.split() == ["MiB/s", "p99", "verdict"]
    assert sum("201.7  10.3 ms" in row for row in rows) == 3


@pytest.mark.parametrize("width", [160, 100])
def test_columns_line_up(mixed, width):
    header, _, *rows = (
        line for line in table(summary_lines(mixed, width=width)) if width == 160 or line.startswith("    ")
    )
    end = header.index("MiB/s") + len("MiB/s")
    assert {row[end - 1].isdigit() or row[end - 1] == "-" for row in rows} == {True}
    assert {row[end : end + 2] for row in rows} == {"  "}


def test_reasons_stand_beneath(mixed):
    lines = summary_lines(mixed, width=100)
    beneath = "\n".join(lines[lines.index("") :])
    for text in (
        "FAIL nfs-v3 on client1: small-random-write queue_depth=16 4KiB\n    iops: required >= 20k/s, ",
        f"INVALID {LONG} on client1",
        "it takes at least 3 runs",
        "ERROR array on client1: sequential read 1MiB\n    array: refused",
    ):
        assert text in beneath
    assert "PASS" not in beneath
    assert "no gate" not in beneath


def test_colour_only_repeats_the_word(mixed):
    plain = summary_lines(mixed, width=100)
    coloured = summary_lines(mixed, width=100, colour=True)
    assert any("\x1b[31mFAIL\x1b[0m" in line for line in coloured)
    for code in ("\x1b[31m", "\x1b[32m", "\x1b[33m", "\x1b[0m"):
        coloured = [line.replace(code, "") for line in coloured]
    assert coloured == plain


def test_a_percentile_of_too_few_ios_is_not_shown(make_record):
    few = replace(make_record().run.samples[0], latency=None, ios=9999)
    (row,) = table(summary_lines([make_record(samples=(few,))], width=120))[2:]
    assert "too few  PASS" in row


def test_another_headline_is_another_table(make_record):
    other = make_record(variant="nfs-v3", workload="metadata", headline=("p50", "client_cpu", "p99"))
    lines = summary_lines([other, make_record()], width=120)
    first, second = lines[: lines.index("")], lines[lines.index("") + 1 :]
    assert first[0].split()[2:] == ["block", "MiB/s", "IOPS", "mean", "p99", "verdict"]
    assert second[0].split() == ["variant", "case", "block", "p50", "client_cpu", "p99", "verdict"]
    assert second[2].split()[0] == "nfs-v3"
    assert "%" in second[2]


def test_of_another_headline_the_first_number_stays_longest(make_record):
    record = make_record(headline=("p50", "p95", "client_cpu", "p99"))
    seen = []
    for width in range(60, 20, -1):
        names = summary_lines([record], width=width)[1].split()[:-1]
        if names not in seen:
            seen.append(names)
    longest = ["p50", "p95", "client_cpu", "p99"]
    assert seen == [["block", *longest], longest, ["p50", "p95", "p99"], ["p50", "p99"], ["p50"]]


VARIANTS = ("nvme-tcp-no-hdgst-no-ddgst-queues16-queuedepth1024", "nfs-v4.2-nconnect16")


@pytest.mark.parametrize("width", [140, 100, 80])
def test_the_tables_of_all_workloads_fit(make_record, width: int) -> None:
    def record(name: str, variant: str):
        metrics, headline = workloads.get(name).metrics, workloads.get(name).headline
        values = {name: 0.5 if one.unit.value == "ratio" else 123456.789 for name, one in metrics.items()}
        title = f"{name} sequential write 1MiB queue_depth=32 jobs=16"
        run = {"title": title, "metrics": metrics, "headline": headline, "outcome": None}
        return make_record(variant=variant, workload=name, samples=(Sample(values, 30.0, 10**7),) * 3, **run)

    records = [record(name, variant) for name in workloads.all() for variant in VARIANTS]
    lines = summary_lines(records, width=width)
    assert len(lines) > len(records)
    assert max(map(len, lines)) <= width
    assert sum(line.endswith("no gate") for line in lines) == len(records)  # the verdict is never cut


def test_the_interval_of_a_ratio_is_not_shown_as_the_metrics(make_record):
    threshold = Threshold(METRICS["iops"], ">=", 0.95, "iops >= baseline - 5 %", "targets.yaml:9:3", BASELINE)
    verdict = Verdict(Outcome.PASS, threshold, Interval(1.0, 0.98, 1.02, 0.9, 3), "as good as before")
    shown = metric_values(make_record(verdicts=(verdict,)))["iops"]
    assert shown.interval is not None
    assert shown.interval.low > 1000
    assert shown.gate_text == "iops >= baseline - 5 %: PASS"


def test_why_a_run_is_invalid_is_printed_once_and_not_for_each_gate(make_record, change):
    record = make_record(outcome=Outcome.INVALID)
    record = change(record, invalid=("the client was busy",), verdicts=record.verdicts * 10)
    assert record.reasons == ("the client was busy",)
    assert "\n".join(summary_lines([record])).count("busy") == 1


def test_a_gate_that_passes_and_finds_little_is_named(make_record, change):
    record = make_record(outcome=Outcome.PASS)
    gate = Threshold(METRICS["iops"], ">=", 0.95, "iops >= baseline - 5 %", "", BASELINE)
    for share, named in ((0.18, True), (0.09, False)):
        verdict = Verdict(Outcome.PASS, gate, None, "", visible_loss=share)
        lines = "\n".join(summary_lines([change(record, verdicts=(verdict,))]))
        assert ("iops >= baseline - 5 %: passed, and finds only a loss of 18 % or more" in lines) is named


def parameter_columns(lines):
    """The headings between the case and the first metric, and the cells below them."""
    header, _, *rows = table(lines)
    start, end = header.index("case") + len("case"), header.index("MiB/s")
    names = header[start:end].split()
    return names, [row[start:end].split()[-len(names) :] if names else [] for row in rows]


@pytest.mark.parametrize(
    ("first", "second", "names", "cells"),
    [
        ({"block_size": 4096}, {"block_size": 8192}, ["block"], [["4KiB"], ["8KiB"]]),
        ({"block_size": "4KiB", "jobs": 1}, {"jobs": None}, ["block"], [["4KiB"], ["-"]]),
        ({"queue_depth": 1}, {"queue_depth": 4, "jobs": 8}, ["depth", "jobs"], [["1", "-"], ["4", "8"]]),
        ({"queue_depth": [4]}, {}, ["depth"], [["[4]"], ["-"]]),
        ({"read_percent": 70}, {"read_percent": 30}, ["reads"], [["70%"], ["30%"]]),
        ({"levels": [1, 2]}, {"users": 3}, [], [[], []]),
    ],
)  # fmt: skip
def test_parameters_that_matter_have_columns(make_record, first, second, names, cells):
    records = [
        make_record(variant=variant, workload="x", parameters=parameters, title="x")
        for variant, parameters in (("a", first), ("b", second))
    ]
    found, values = parameter_columns(summary_lines(records, width=200))
    assert found == names
    assert values == cells


def test_a_line_does_not_say_a_parameter_twice(make_record):
    parameters = {"direction": "read", "block_size": "4KiB", "queue_depth": 16, "users": 3}
    record = make_record(workload="x", parameters=parameters, title="x read 4KiB queue_depth=16 users=3")
    wide, narrow = (table(summary_lines([record], width=width)) for width in (200, 60))
    assert wide[2].split()[1:6] == ["x", "read", "users=3", "4KiB", "16"]
    assert narrow[3].endswith("x read 4KiB queue_depth=16 users=3")
    assert narrow[1].split()[:2] == ["block", "depth"]
