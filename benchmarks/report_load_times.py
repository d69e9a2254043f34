"""How large are the reports of many cases, and how long does a browser take to open them?

Made-up results of as many measured cases as asked for (and a tenth as many conformance cases) are made into
the comparison report and, unless left out, into the Allure report. Each is opened in a headless Chromium
several times, at 1280 and at 390 px: from the call to load it until it has loaded and two frames have been
drawn (Allure: until its tree of cases is there). The processor time of the page's process is also
printed: other load on the machine affects it less. Exit status 0: each median is at most
3 s; 1: one is not; 2: it could not run.

    python benchmarks/report_load_times.py
    python benchmarks/report_load_times.py --cases 1000 --no-allure --keep out/
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import sample_results

from storagetest.errors import StoragetestError
from storagetest.report.allure.html import generate
from storagetest.report.page.document import document
from storagetest.report.page.model import build_page_data

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "unit" / "report"))  # the browser's

from browser_kit import Browser, browser, missing

LIMIT = 3.0
_DRAWN = "return document.readyState === 'complete' && window.twice === true"
_FRAMES = (
    "window.twice = false; requestAnimationFrame(() => requestAnimationFrame(() => window.twice = true))"
)
_TREE = "return document.querySelectorAll('[data-testid^=\"tree-section\"]').length > 0"

SUITE = """\
import sys
sys.path.insert(0, {benchmarks!r})
import sample_results
import pytest
from storagetest.report.allure import reporter as allure

RECORDS = list(sample_results.records({count}))

@pytest.mark.parametrize("number", range({count}))
def test_made_up(number):
    record = RECORDS[number]
    run = record.run
    title = sample_results.TITLES[run.protocol]
    allure.identify(epic=title, feature=run.workload, variant=run.variant, client=run.client)
    allure.on_case([record])
    if record.status.value == "failed":
        raise AssertionError("\\n".join(record.reasons))
    if record.status.value == "invalid":
        pytest.fail("INVALID: " + "\\n".join(record.reasons), pytrace=False)
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Make the reports, open them, print, and return the exit status."""
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("--cases", type=int, default=10_000)
    parser.add_argument("--loads", type=int, default=5)
    parser.add_argument("--no-allure", action="store_true", help="the comparison report alone")
    parser.add_argument("--keep", type=Path, help="leave the pages in this directory")
    wanted = parser.parse_args(arguments)
    lacking = missing()
    if lacking:
        print(lacking, file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory() as scratch:
        place = wanted.keep or Path(scratch)
        place.mkdir(parents=True, exist_ok=True)
        try:
            pages = {"comparison": (_comparison(place, wanted.cases), None)}
            if not wanted.no_allure:
                pages["allure"] = (_allure(place, wanted.cases, Path(scratch)), _TREE)
        except StoragetestError as error:
            print(error, file=sys.stderr)
            return 2
        slow = 0
        for name, (page, ready) in pages.items():
            for width in (1280, 390):
                loads = [_opened(page, width, ready) for _ in range(wanted.loads)]
                taken, busy = [seconds for seconds, _ in loads], [seconds for _, seconds in loads]
                slow += statistics.median(taken) > LIMIT
                print(
                    f"{name:11} {wanted.cases:,} cases {page.stat().st_size / 2**20:6.1f} MiB {width:4} px: "
                    f"median {statistics.median(taken):.2f} s ({min(taken):.2f}..{max(taken):.2f}, "
                    f"{len(taken)} loads), processor {statistics.median(busy):.2f} s",
                    flush=True,
                )
    print(f"{'at most' if not slow else 'MORE THAN'} {LIMIT:g} s")
    return 1 if slow else 0


def _comparison(place: Path, count: int) -> Path:
    began = time.monotonic()
    data = build_page_data(
        sample_results.records(count, evidence=False),
        cases=tuple(sample_results.cases(count // 10)),
        sources=["made up"],
    )
    made = time.monotonic()
    page = place / "comparison.html"
    page.write_text(document(data, title=f"{count:,} made-up cases"), encoding="utf-8")
    print(
        f"comparison  made in {time.monotonic() - made:.1f} s (the results in {made - began:.1f} s)",
        flush=True,
    )
    return page


def _allure(place: Path, count: int, scratch: Path) -> Path:
    began = time.monotonic()
    suite = scratch / "test_many.py"
    suite.write_text(SUITE.format(benchmarks=str(Path(__file__).parent), count=count))
    argv = [sys.executable, "-m", "pytest", "-q", "--tb=no", "-p", "no:storagetest", "-p", "no:cacheprovider"]
    argv += ["--rootdir", str(scratch), "-c", "/dev/null", f"--alluredir={scratch / 'results'}", str(suite)]
    done = subprocess.run(argv, cwd=scratch, capture_output=True, text=True, timeout=3600, check=False)
    if done.returncode != 1:  # some of them fail, as is meant
        raise StoragetestError(done.stdout[-2000:] + done.stderr[-2000:])
    ran = time.monotonic()
    page = generate(scratch / "results", place / "allure", title=f"{count:,} made-up cases")
    print(
        f"allure      made in {time.monotonic() - ran:.1f} s (the results in {ran - began:.1f} s)", flush=True
    )
    return page


def _opened(page: Path, width: int, ready: str | None) -> tuple[float, float]:
    """Return the seconds that a browser takes that has not seen it, by the clock and of the processor."""
    with browser() as tab:
        tab.look(width)
        tab.command("Performance.enable")
        began = time.monotonic()
        tab.open(page)
        _drawn(tab, ready)
        taken = time.monotonic() - began
        metrics = {one["name"]: one["value"] for one in tab.command("Performance.getMetrics")["metrics"]}
        return taken, metrics["ProcessTime"]


def _drawn(tab: Browser, ready: str | None) -> None:
    if ready is not None:
        tab.wait(ready)
    tab.run(_FRAMES)
    tab.wait(_DRAWN)


if __name__ == "__main__":
    raise SystemExit(main())
