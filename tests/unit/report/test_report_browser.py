"""The comparison report and Allure's in a headless Chromium: no console error, no dead link, no text cut.

Without a browser these are skipped, with what to install; where CI is set they fail instead, as script/setup
installs it there.
"""

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from browser_kit import Browser, browser, missing

from storagetest.measure.run import Better, Metric
from storagetest.measure.unit import Unit
from storagetest.report.allure.html import generate
from storagetest.report.baseline import BaselineFile, entries_of
from storagetest.report.compare import compare_stored
from storagetest.report.coverage import CaseOutcome, CaseRecord, Level
from storagetest.report.page.document import document
from storagetest.report.page.model import build_page_data
from storagetest.verdict.base import Outcome

LOOKS = [(width, dark) for width in (1280, 390) for dark in (False, True)]

CUT = """
const wide = document.documentElement.clientWidth, out = [];
const all = document.documentElement.scrollWidth;
if (all > wide) out.push(`the page is ${all}`);
for (const one of document.querySelectorAll('body *')) {
    if (!one.checkVisibility() || one.closest('svg') && one.tagName !== 'text') continue;
    const text = [...one.childNodes].some(node => node.nodeType === 3 && node.data.trim());
    if (!text) continue;
    const box = one.getBoundingClientRect();
    const style = getComputedStyle(one);
    if (one.tagName === 'text') {
        const frame = one.closest('svg').getBoundingClientRect();
        if (box.left < frame.left - 1 || box.right > frame.right + 1 || box.bottom > frame.bottom + 1)
            out.push(`svg: ${one.textContent}`);
    } else if (!one.closest('.wide') && (box.right > wide + 1 || box.left < -1)) {
        out.push(`${one.tagName}: ${one.textContent.slice(0, 60)}`);
    }
    if (style.overflow !== 'visible' && style.overflowX !== 'auto' && one.scrollWidth > one.clientWidth + 1)
        out.push(`cut: ${one.textContent.slice(0, 60)}`);
}
return out;
"""

CONTRAST = """
const paint = document.createElement('canvas').getContext('2d', {willReadFrequently: true});
const rgb = (colour, under) => {
    paint.fillStyle = under; paint.fillRect(0, 0, 1, 1);
    paint.fillStyle = colour; paint.fillRect(0, 0, 1, 1);
    const got = paint.getImageData(0, 0, 1, 1).data;
    return [got[0], got[1], got[2]];
};
const light = colour => {
    const line = v => v <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4;
    const [r, g, b] = colour.map(v => line(v / 255));
    return .2126 * r + .7152 * g + .0722 * b;
};
const ground = one => {
    const all = [];
    for (let at = one; at; at = at.parentElement) all.unshift(getComputedStyle(at).backgroundColor);
    let under = 'rgb(255, 255, 255)';
    for (const colour of all) under = `rgb(${rgb(colour, under).join(',')})`;
    return under;
};
let worst = [21, ''];
for (const one of document.querySelectorAll('body *')) {
    if (![...one.childNodes].some(node => node.nodeType === 3 && node.data.trim())) continue;
    const under = ground(one), style = getComputedStyle(one);
    const ink = one.tagName === 'text' ? style.fill : style.color;
    const a = light(rgb(ink, under)), b = light(rgb(under, under));
    const ratio = (Math.max(a, b) + .05) / (Math.min(a, b) + .05);
    if (ratio < worst[0]) worst = [ratio, `${one.tagName}.${one.className}: ${one.textContent.slice(0, 40)}`];
}
return worst;
"""


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    lacking = missing()
    if lacking is not None:
        if os.environ.get("CI"):
            pytest.fail(f"{lacking}; script/setup installs both where CI is set")
        pytest.skip(lacking)
    with browser() as tab:
        yield tab


def levels(record, change):
    """The record as a workload that goes through numbers of threads."""
    values, metrics = {}, {}
    for number, threads in enumerate((1, 2, 4, 8, 16, 32, 64, 128, 256), start=1):
        for name, value in (("iops", 4000.0 * number), ("mean", 2e-4 * threads / number)):
            unit = Unit.PER_SECOND if name == "iops" else Unit.SECONDS
            better = Better.HIGHER if name == "iops" else Better.LOWER
            values[f"threads_{threads}_{name}"] = value
            metrics[f"threads_{threads}_{name}"] = Metric(f"threads_{threads}_{name}", unit, better)
    samples = tuple(replace(each, values=values) for each in record.run.samples)
    return change(record, metrics=metrics, samples=samples, headline=("threads_256_iops",), verdicts=())


def records(make_record, change) -> list:
    variants = ("nas-v3", "nas-v4.2-nconnect4", "files-3.1.1-encrypted", "array-digests", "box-queues4")
    every = [
        make_record(
            variant=variant, parameters={"direction": way, "block_size": size}, repeats=4, outcome=outcome
        )
        for variant, outcome in zip(variants, [*Outcome, None], strict=True)
        for way in ("read", "write")
        for size in (4096, 65536, 1048576)
    ]
    every += [
        levels(make_record(variant=each, workload="multi-user", parameters={}), change) for each in variants
    ]
    later = [change(each, started=each.run.started + 90_000) for each in every[:6]]
    return [*every, *later]


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory, make_record, change) -> Path:
    every = records(make_record, change)
    cases = [
        CaseRecord(f"ISC-{number}", f"RFC 7143 {number % 4 + 1}.{number}", Level.MUST, outcome, target=target)
        for target in ("array", "box")
        for number, outcome in enumerate([*CaseOutcome, *CaseOutcome])
    ]
    rows = compare_stored(BaselineFile(entries_of(every[:12])), BaselineFile(entries_of(every)))
    data = build_page_data(every, cases=cases, rows=rows, baseline="before.jsonl", sources=["results.jsonl"])
    path = tmp_path_factory.mktemp("page") / "page.html"
    path.write_text(document(data, title="Sample results"), encoding="utf-8")
    return path


@pytest.mark.parametrize(("width", "dark"), LOOKS)
def test_no_text_of_the_comparison_is_cut_or_pale(chromium, page, width, dark):
    chromium.look(width, dark=dark)
    chromium.open(page)
    for opened in ("false", "true"):
        chromium.run(f"document.querySelectorAll('details').forEach(one => one.open = {opened})")
        assert chromium.run(CUT) == []
    ratio, where = chromium.run(CONTRAST)
    assert ratio >= 4.5, where
    ground = chromium.run("return getComputedStyle(document.body).backgroundColor")
    assert ground == ("rgb(15, 20, 25)" if dark else "rgb(255, 255, 255)")
    assert chromium.console() == []


def test_every_link_of_the_comparison_leads_somewhere_and_opens_what_is_folded(chromium, page):
    chromium.look(1280)
    chromium.open(page)
    dead = chromium.run(
        "return [...document.querySelectorAll('a')].map(one => one.getAttribute('href'))"
        ".filter(to => !to.startsWith('#') || !document.getElementById(to.slice(1)))"
    )
    assert dead == []
    chromium.run("document.querySelector('.heat a').click()")
    seen = "const one = document.querySelector('tr:target'); return one && one.checkVisibility()"
    assert chromium.wait(seen, deadline=20) < 20
    assert chromium.console() == []


def test_every_chart_has_a_name_a_description_and_its_figures(chromium, page):
    chromium.open(page)
    charts = chromium.run(
        "return [...document.querySelectorAll('svg.chart')].map(one => one.getAttribute('aria-labelledby')"
        ".split(' ').map(id => document.getElementById(id).textContent)"
        ".concat(one.closest('figure').querySelectorAll('tbody tr').length))"
    )
    assert len(charts) > 8
    assert all(title and described and rows for title, described, rows in charts)


def test_printed_it_is_light_and_nothing_is_folded(chromium, page, tmp_path):
    chromium.look(800, dark=True, media="print")
    chromium.open(page)
    hidden = chromium.run(
        "return [...document.querySelectorAll('td')]"
        ".filter(one => !one.checkVisibility({contentVisibilityAuto: true})).length"
    )
    assert hidden == 0
    assert chromium.run("return getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    chromium.printed(tmp_path / "page.pdf")
    assert (tmp_path / "page.pdf").read_bytes().startswith(b"%PDF")
    chromium.look(1280)


@pytest.fixture(scope="module")
def allure(sample_results: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("allure")
    for _ in range(2):
        made = generate(sample_results, out, title="sample", history=out / "history.jsonl")
    return made


@pytest.mark.html
@pytest.mark.parametrize(("width", "dark"), LOOKS)
def test_allure_opens_without_console_errors_and_fits(chromium, allure, width, dark):
    chromium.look(width, dark=dark)
    chromium.open(allure)
    chromium.wait("return document.querySelectorAll('[data-testid^=\"tree-leaf\"]').length > 0", deadline=60)
    assert "sequential write" in chromium.run("return document.body.innerText")
    assert chromium.run("return document.documentElement.scrollWidth <= document.documentElement.clientWidth")
    assert chromium.console() == []


@pytest.mark.html
def test_allures_trends_are_drawn_from_its_history(chromium, allure):
    chromium.look(1280)
    chromium.open(allure)
    chromium.run("location.hash = '#charts'; location.reload()")
    condition = "return document.body.innerText.includes('Outcomes, run by run')"
    assert chromium.wait(condition, deadline=60) < 60
    assert chromium.console() == []
