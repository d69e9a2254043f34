"""The comparison report: its content, and its text if there are no results."""

import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from storagetest.cli import main
from storagetest.measure.histogram import Histogram
from storagetest.measure.run import Better, Metric
from storagetest.measure.series import Series
from storagetest.measure.unit import Unit
from storagetest.report.base import Record
from storagetest.report.baseline import BaselineFile, entries_of
from storagetest.report.compare import compare_stored
from storagetest.report.coverage import CaseOutcome, CaseRecord, KnownFault, Level
from storagetest.report.page.document import SECTIONS, document
from storagetest.report.page.model import build_page_data
from storagetest.report.papers.rerun import with_claims, with_point
from storagetest.verdict.base import Outcome
from storagetest.verdict.claims import ClaimResult, Finding

VOID = {"meta", "link", "br", "rect", "line", "path", "circle", "polyline"}


class Reader(HTMLParser):
    """Ids, links and whether tags are closed in order."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.ids: list[str] = []
        self.links: list[str] = []
        self.open: list[str] = []
        self.feed(page)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        attributes = dict(attrs)
        self.ids += [attributes["id"]] if attributes.get("id") else []
        self.links += [attributes["href"]] if tag == "a" else []
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        pass

    def handle_endtag(self, tag):
        if tag not in VOID:
            assert self.open.pop() == tag


def page_of(records, **more) -> str:
    return document(build_page_data(records, sources=["results.jsonl"], **more), title="A <title>")


def part(page: str, name: str) -> str:
    found = re.search(rf'<section id="{name}".*?</section>', page, re.DOTALL)
    assert found is not None
    return found[0]


@pytest.fixture
def several(make_record):
    return [
        make_record(variant="nas-v3", outcome=Outcome.FAIL),
        make_record(variant="nas-v4.2", outcome=Outcome.PASS),
        make_record(variant="box-q4", protocol="nvme-tcp", outcome=None),
        make_record(
            variant="box-q4", protocol="nvme-tcp", workload="postmark", parameters={}, outcome=Outcome.INVALID
        ),
    ]


def test_it_is_one_whole_file_and_every_link_leads_somewhere(several):
    page = page_of(several)
    seen = Reader(page)
    assert len(seen.ids) == len(set(seen.ids))
    assert {link.removeprefix("#") for link in seen.links} <= set(seen.ids)
    sections = "verdict targets repeats grid scaling latency findings conformance regressions history papers"
    sections += " cases summary"
    assert set(sections.split()) <= set(seen.ids)
    assert "<script" not in page
    assert set(re.findall(r"https?://[^\"' <]+", page)) <= {"http://www.w3.org/2000/svg"}
    assert "A &lt;title&gt;" in page


def test_every_section_has_a_text_if_there_are_no_results():
    page = page_of([])
    Reader(page)
    for module in SECTIONS:
        body = module.section(build_page_data([])).body
        assert re.search(r"nothing|Nothing|NOTHING|no |No |once|From", body), module


def test_targets_stand_side_by_side_with_what_they_reach(several):
    text = part(page_of(several), "targets")
    heads = re.findall(r'<th scope="col">([^<]*)</th>', text)
    assert heads[:5] == ["case", "metric", "nas-v3", "nas-v4.2", "box-q4"]
    assert "</a> best</td>" in text
    assert text.count('class="h0"') >= 4
    assert 'aria-label="lower is better"' in text


def test_what_is_invalid_by_itself_is_compared_with_nothing(make_record):
    odd = make_record(variant="b", outcome=None, invalid=("the clocks were off",))
    text = part(page_of([make_record(variant="a"), odd]), "targets")
    assert "<small>INVALID</small>" in text
    assert "</a> best" not in text


def test_levels_become_a_scaling_curve_and_latency_against_iops(make_record):
    values, metrics = {}, {}
    for threads, iops, mean in ((1, 100.0, 0.01), (2, 190.0, 0.0105), (4, 300.0, 0.0133)):
        values |= {f"threads_{threads}_iops": iops, f"threads_{threads}_mean": mean}
    for name in values:
        kind = (Unit.PER_SECOND, Better.HIGHER) if name.endswith("iops") else (Unit.SECONDS, Better.LOWER)
        metrics[name] = Metric(name, *kind)
    values["knee_threads"] = 2.0
    metrics["knee_threads"] = Metric("knee_threads", Unit.COUNT, Better.HIGHER)
    samples = tuple(replace(each, values=values, latency=None) for each in make_record().run.samples)
    multi_user = {"workload": "multi-user", "parameters": {}, "verdicts": (), "samples": samples}
    multi_user |= {"metrics": metrics, "headline": ("threads_1_iops",)}
    records = [make_record(variant=name, **multi_user) for name in ("nas-v3", "box-q4")]
    page = page_of(records)
    scaling, latency = part(page, "scaling"), part(page, "latency")
    assert "iops by threads" in scaling
    assert "nas-v3, knee at 2" in scaling
    assert scaling.count("<polyline") == 2
    assert '<th scope="row">4</th><td class="n">300/s</td>' in scaling
    assert latency.count("<polyline") == 2


def test_cases_that_differ_in_one_number_become_a_curve(make_record):
    records = [
        make_record(parameters={"direction": "read", "block_size": size}, outcome=None)
        for size in (4096, 65536, 1048576)
    ]
    scaling = part(page_of(records), "scaling")
    assert "bandwidth by block_size" in scaling
    assert ">64KiB</text>" in scaling


def test_sizes_with_a_unit_become_a_curve(make_record):
    sizes = ("4KiB", "64KiB", "1MiB")
    records = [make_record(parameters={"block_size": size}, outcome=None) for size in sizes]
    assert "bandwidth by block_size" in part(page_of(records), "scaling")


def test_a_chart_that_would_be_too_full_is_several(make_record):
    records = [make_record(variant=f"nas-{number:02}", outcome=None) for number in range(11)]
    tails = part(page_of(records), "latency")
    assert tails.count('class="chart"') == 4  # eight and three, twice
    assert all(f"nas-{number:02}" in tails for number in range(11))


def test_changes_against_a_baseline_are_listed_worst_first(make_record):
    def of(factor: float, variant: str):
        values = [{"iops": 1000 * factor * each} for each in (1.0, 0.99, 1.01, 1.005, 0.995)]
        sample = make_record().run.samples[0]
        return make_record(variant=variant, samples=tuple(replace(sample, values=each) for each in values))

    before = BaselineFile(entries_of([of(1.0, "a"), of(1.0, "b")]))
    now = [of(1.0, "a"), of(0.5, "b")]
    rows = compare_stored(before, BaselineFile(entries_of(now)))
    text = part(page_of(now, rows=rows, baseline="base"), "regressions")
    assert "1 worse, 1 no change shown" in text
    assert text.index("-50 %") < text.index("no change shown</b>")
    assert "No baseline was given" in part(page_of(now), "regressions")
    assert "holds none of these cases" in part(page_of(now, baseline="base"), "regressions")


def test_sessions_become_a_history_and_the_last_counts(make_record):
    first = make_record(outcome=Outcome.FAIL)
    last = make_record(started=first.run.started + 86400)
    page = page_of([last, first])
    assert "<polyline" in part(page, "history")
    assert "1 case ran more than once" in page
    assert "What did not pass" not in page


def test_conformance_is_by_standard_section_and_target():
    cases = [
        CaseRecord("A-1", "RFC 7143 11.2", Level.MUST, CaseOutcome.FAILED, target="array", message="a < b"),
        CaseRecord("A-2", "RFC 7143 4.1", Level.MUST, CaseOutcome.PASSED, target="array"),
        CaseRecord("B-1", "NVMe/TCP 3.1", Level.MAY, CaseOutcome.OBSERVED, target="box", observed=("one",)),
    ]
    text = part(page_of([], cases=cases), "conformance")
    name = "RFC 7143, Internet Small Computer System Interface (iSCSI) Protocol (Consolidated)"
    assert f'<th scope="row">{name}</th><td class="n">2</td><td>1 passed, 1 failed</td><td>-</td>' in text
    assert "RFC 7143 11.2 <small>PDU Template, Header, and Opcodes</small>" in text
    assert "<details open><summary>RFC 7143: 1 passed, 1 failed</summary>" in text
    assert "a &lt; b" in text
    assert "No conformance case" in part(page_of([]), "conformance")


def test_the_verdict_and_what_to_do_come_first(several):
    page = page_of(several)
    text = part(page, "verdict")
    assert page.index('<section id="verdict"') < page.index('<section id="targets"')
    assert "<b>FAIL</b> <span>1 of 3 gates met, 1 missed; 1 case INVALID</span>" in text
    kinds = re.findall(r'<li class="([a-z]+)"><a href', text)
    assert kinds == ["failed", "invalid", "plain"]  # the last is the case without a gate
    assert "iops: required" in text
    assert "Set gates under thresholds" in text
    assert "<b>PASS</b>" not in text


def test_one_thing_to_do_is_there_once(make_record):
    missed = [make_record(variant=f"nas-{number}", outcome=Outcome.FAIL) for number in range(6)]
    text = part(page_of(missed), "verdict")
    assert text.count("The limit is not known. Compare the targets below.") == 1
    assert "and 2 more" in text


def test_a_case_on_one_variant_is_not_compared(make_record):
    both = [make_record(variant=each) for each in ("a", "b")]
    alone = make_record(variant="a", workload="postmark", parameters={})
    assert "postmark" not in part(page_of([*both, alone]), "targets")
    assert "postmark" in part(page_of([alone]), "targets")


def test_a_case_without_a_gate_is_measured_and_no_pass(make_record):
    page = page_of([make_record(outcome=None)])
    assert "<b>MEASURED</b> <span>no gate was judged</span>" in part(page, "verdict")
    assert '<li class="plain"><b>1</b> measured, no gate</li>' in part(page, "verdict")
    assert '<b class="learning">no gate</b>' in part(page, "cases")
    summary = part(page, "summary")
    assert re.findall(r'<th scope="col" class="n">([^<]*)</th>', summary) == ["pass", "measured, no gate"]
    assert '<td class="n"></td><td class="n">1</td>' in summary


def test_every_repeat_is_a_point_and_has_percentiles_over_time(make_record):
    samples = tuple(replace(each, began=1000.0 + 2 * n) for n, each in enumerate(make_record().run.samples))
    text = part(page_of([make_record(samples=samples)]), "repeats")
    assert text.count('class="dot"') == 2 * len(samples)
    assert text.count('class="band"') == 2
    assert "Percentiles over time" in text
    assert '<th scope="row">4</th>' in text
    assert "not enough" not in text
    assert "was repeated" in page_of([make_record(repeats=1)])


def test_percentiles_over_time_are_those_of_the_intervals_within_the_repeats(make_record):
    def series(name, value, host="c"):
        return Series(
            "latency", f"read completion {name}", Unit.SECONDS, host, (1.0, 2.5), (value, 2 * value)
        )

    samples = tuple(
        replace(each, began=1000.0 + 10 * n, series=(series("p50", 1e-3), series("p99", 4e-3)))
        for n, each in enumerate(make_record().run.samples)
    )
    text = part(page_of([make_record(samples=samples)]), "repeats")
    assert (
        '<th scope="col" class="n">read completion p50</th><th scope="col" class="n">read completion p99</th>'
        in text
    )
    for at in ("1", "2.5", "11", "12.5"):  # two intervals of each repeat
        assert f'<th scope="row">{at}</th>' in text
    assert "8.00 ms" in text
    two = tuple(replace(each, series=(*each.series, series("p50", 2e-3, "d"))) for each in samples)
    text = part(page_of([make_record(samples=two)]), "repeats")
    assert "read completion p50, c" in text
    assert "read completion p50, d" in text


def test_block_size_and_queue_depth_swept_at_once_are_a_heat_map(make_record):
    def of(size: int | str, depth: int):
        return make_record(parameters={"block_size": size, "queue_depth": depth}, outcome=None)

    swept = [of(size, depth) for size in (4096, "64KiB") for depth in (1, 4, 16)]
    text = part(page_of(swept), "grid")
    assert re.findall(r'<th scope="col" class="n">([^<]*)</th>', text) == ["1", "4", "16"]
    assert re.findall(r'<th scope="row">([^<]*)</th>', text) == ["4KiB", "64KiB"]
    assert len(re.findall(r'<td class="h\d">', text)) == 6
    assert "No run swept" in part(page_of(swept[:3]), "grid")


def test_a_finding_is_explained_with_its_section_and_its_reason():
    known = CaseRecord(
        "ISC-LOGIN-17",
        "RFC 7143 11.13.5",
        Level.MUST,
        CaseOutcome.KNOWN,
        target="lio",
        message="Login Response with status 0301",
        required="A login to no target is refused as not found",
        reason="the status is 0301, not 0203",
        reference="The requested ITN does not exist",
    )
    text = part(page_of([], cases=[known, replace(known, id="ISC-LOGIN-18")]), "findings")
    assert text.count("<article") == 1
    for words in (
        "lio: the status is 0301, not 0203",
        "Status-Class and Status-Detail",
        "<dt>Required</dt><dd>A login to no target is refused as not found</dd>",
        "<dt>The target</dt><dd>Login Response with status 0301</dd>",
        "<dt>The standard</dt><dd>The requested ITN does not exist</dd>",
        "ISC-LOGIN-17, ISC-LOGIN-18",
    ):
        assert words in text
    assert "1 known" not in text


def test_a_known_fault_of_many_cases_is_one_finding():
    known = KnownFault("a bit is set", "bytes are stale", "bits are zero")
    cases = [
        CaseRecord(f"A-{n}", "X 1", Level.MUST, CaseOutcome.PASSED, target="lio", known_faults=(known,))
        for n in range(12)
    ]
    page = page_of([], cases=cases)
    text = part(page, "findings")
    assert text.count("<article") == 1
    for words in (
        "lio: bytes are stale",
        "<dt>The target</dt><dd>a bit is set</dd>",
        "<dt>The standard</dt><dd>bits are zero</dd>",
        "A-8, A-9, and 2 more</dd>",
    ):
        assert words in text
    assert "<dt>Section" not in text
    assert "1 known deviation" in part(page, "verdict")


def test_what_was_found_stands_apart_from_what_is_required():
    failed = CaseRecord(
        "A-1", "X 1", Level.MUST, CaseOutcome.FAILED, message="no answer; required: an answer (X 1)"
    )
    assert "<dd>no answer</dd>" in part(page_of([], cases=[failed]), "findings")


def test_allure_is_linked_next_to_the_sections(make_record):
    page = page_of([make_record()], allure="allure/index.html")
    assert page.count('href="allure/index.html"') == 2
    assert "Allure" not in page_of([make_record()])


def test_papers_say_that_none_was_rerun_until_one_was(make_record):
    assert "No published experiment was rerun" in part(page_of([make_record()]), "papers")
    results = {"peak": ClaimResult(Finding.AGREES, "meets the threshold")}
    run = with_claims(with_point(make_record().run, "C", "iscsi", "threads"), results)
    text = part(page_of([Record(run)]), "papers")
    assert "C: NVMe/TCP against iSCSI" in text
    assert '<td class="n">1</td><td class="n">0</td><td class="n">4</td>' in text


def test_each_case_has_its_figures_intervals_gates_and_reasons(several):
    text = part(page_of(several), "cases")
    assert "51.6k/s<small>18.5k/s … 19.5k/s (99%)</small>" in text
    assert "iops &gt;= 20000: FAIL" in text
    assert "below the threshold" in text


def test_a_percentile_of_few_ios_is_not_shown_as_a_figure(make_record):
    few = tuple(replace(each, latency=Histogram.of([0.001] * 20)) for each in make_record().run.samples)
    text = part(page_of([make_record(samples=few)]), "cases")
    assert "not enough samples" in text


def test_the_command(tmp_path, several, write_results, capsys):
    results, cases = str(write_results(*several)), tmp_path / "cases.jsonl"
    cases.write_text("")
    page = tmp_path / "deep" / "page.html"
    allure = "allure/index.html"
    options = ["--cases", str(cases), "--baseline", results, "-o", str(page), "--allure", allure]
    assert main(["report", "page", results, *options]) == 0
    assert capsys.readouterr().out == f"{page}\n"
    assert "<code>results.jsonl</code>, <code>cases.jsonl</code>" in page.read_text()
    assert f'href="{allure}"' in page.read_text()
    assert [path.name for path in page.parent.iterdir()] == ["page.html"]


@pytest.mark.parametrize("option", ["results", "--cases", "--baseline", "-o"])
def test_what_cannot_be_read_or_written_is_one_message(tmp_path, make_record, write_results, capsys, option):
    good = write_results(make_record())
    argv = ["report", "page", str(tmp_path / "none.jsonl" if option == "results" else good)]
    argv += ["-o", str(good / "x.html" if option == "-o" else tmp_path / "p.html")]
    argv += [option, str(tmp_path / "none")] if option in ("--cases", "--baseline") else []
    assert main(argv) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("storagetest report page: ")


def test_no_text_of_a_user_is_mark_up_anywhere(make_record):
    mark = "<script>'\"&"
    records = [
        make_record(
            variant=f"{mark}{number}", workload=mark, parameters={"direction": mark, "block_size": size}
        )
        for number in range(2)
        for size in (4096, 8192, 16384)
    ]
    records += [replace(record, failure=mark, verdicts=()) for record in records[:1]]
    cases = [CaseRecord(mark, mark, Level.MUST, CaseOutcome.FAILED, target=mark, message=mark)]
    page = page_of(records, cases=cases, baseline=mark)
    Reader(page)
    assert "<svg" in part(page, "scaling")
    assert "<script" not in page
    assert page.count("&lt;script&gt;") > 20
