"""Generate Allure 3's HTML report: one file that opens from disk and loads nothing.

One file, because a browser does not let a page from ``file://`` fetch other files: the directory form of the
report requires a web server. The file has about 3.6 MB of program plus the compressed results.

Steps: :func:`configuration` (pure) → the generator, from the pinned packages
(:mod:`storagetest.report.allure.nodejs`) → one page of its directory
(:mod:`storagetest.report.allure.single_file`) → :func:`storagetest.report.allure.offline.make_offline` (pure)
→ the page, which replaces the old one by one rename.

History: the generator reads one file of JSON lines, one run per line, and appends to it. It uses a copy of
the user's file, which replaces the file by one rename after the page exists: a report that fails does not
change the history. The history has each case's status and duration, not its measured values.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any

from storagetest.errors import ReportError
from storagetest.files import replace_file
from storagetest.report.allure.categories import CATEGORIES, VERDICT_LABEL, Category
from storagetest.report.allure.nodejs import NodeJs, cache_directory, find_node, install, run
from storagetest.report.allure.offline import make_offline, outside_urls
from storagetest.report.allure.single_file import build_single_file

_PACKAGE = Path("node_modules", "allure")
"""The generator, in the directory of the installed packages."""

_DEADLINE = 300.0
_PASSED_ON = ("HOME", "LANG", "LC_ALL", "NODE_OPTIONS", "PATH", "TMPDIR", "TZ")
"""Environment variables for the generator; without this limit it links to a detected CI system."""

_CHARTS: Sequence[Mapping[str, Any]] = (
    {"type": "currentStatus", "title": "All cases"},
    {"type": "successRateDistribution", "title": "Passed, by protocol, suite and variant"},
    {"type": "durations", "title": "How long cases took", "groupBy": "none"},
)
"""The generator's charts that are useful for a single run."""

_TRENDS: Sequence[Mapping[str, Any]] = (
    {"type": "statusDynamics", "title": "Outcomes, run by run", "limit": 20},
    {"type": "statusTransitions", "title": "Newly failing and newly passing, run by run", "limit": 20},
    {"type": "durationDynamics", "title": "How long runs took", "limit": 20},
)
"""The generator's charts that are useful for several runs."""

HISTORY_RUNS = 50
"""Maximum number of runs in a history."""


def generate(
    results_dir: Path,
    out: Path,
    *,
    node: str | os.PathLike[str] | None = None,
    title: str = "storagetest",
    history: Path | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> Path:
    """Generate the report of ``results_dir`` (what ``--alluredir`` wrote) and return the path of its page.

    ``out`` is a directory; the page is ``out/index.html``. ``node`` is a Node.js to use rather than one that
    is found. ``history`` is the file of earlier runs: trends are drawn from it, and this run is added.
    Raises :class:`ReportError`: nothing to report, no Node.js, npm or the generator failed, or the
    page still points outside.
    """
    count = sum(1 for _ in results_dir.glob("*-result.json"))
    if count == 0:
        raise ReportError(
            f"no Allure results in {results_dir}: run pytest with --alluredir={results_dir} first"
        )
    found = find_node(node)
    with as_file(files("storagetest.report.allure") / "npm") as manifest:
        packages = install(found, manifest, cache=cache_directory(), progress=progress)
    progress(f"generating the report of {count} results")
    with tempfile.TemporaryDirectory(prefix="storagetest-report-") as scratch:
        copy = _copied(history, Path(scratch)) if history else None
        page = make_offline(_generated(found, packages, results_dir.resolve(), Path(scratch), title, copy))
        left = outside_urls(page)
        if left:
            some = ", ".join(url[:100] for url in left[:3])
            raise ReportError(
                f"the generated report points outside, to {some}; the pinned generator has changed"
            )
        final = out / "index.html"
        _put(page.encode(), final)
        if history and copy:
            _put(copy.read_bytes(), history)
    return final


def _copied(history: Path, scratch: Path) -> Path:
    """Return a copy of the history for the generator to work on. Raises :class:`ReportError`."""
    copy = scratch / "history.jsonl"
    if not history.exists():
        return copy
    try:
        shutil.copyfile(history, copy)
    except OSError as error:
        raise ReportError(f"{history}: {error.strerror}") from None
    for number, line in enumerate(copy.read_bytes().splitlines(), start=1):
        if line.strip() and not _is_a_run(line):
            raise ReportError(f"{history}:{number}: not a run's history; move the file away for a new one")
    return copy


def _is_a_run(line: bytes) -> bool:
    try:
        document = json.loads(line)
    except ValueError:
        return False
    return isinstance(document, dict) and isinstance(document.get("testResults"), dict)


def _put(content: bytes, final: Path) -> None:
    try:
        final.parent.mkdir(parents=True, exist_ok=True)
        replace_file(final, content)
    except OSError as error:
        raise ReportError(f"{final}: {error.strerror}") from None


def configuration(title: str, output: Path, history: Path | None = None) -> dict[str, Any]:
    """Return the generator's configuration: one file; protocol, suite, requirement; our categories."""
    history_options = {"historyPath": str(history), "historyLimit": HISTORY_RUNS} if history else {}
    return {
        "name": title,
        "output": str(output),
        **history_options,
        "appendHistory": history is not None,
        "hideLabels": ["framework", "language", "package", "thread"],
        "categories": {"rules": [_rule(category) for category in CATEGORIES]},
        "plugins": {
            "awesome": {
                "options": {
                    "reportName": title,
                    "singleFile": False,
                    "reportLanguage": "en",
                    "groupBy": ["epic", "feature", "story"],
                    "sections": ["charts", "timeline"],
                    "charts": [*_CHARTS, *(_TRENDS if history else ())],
                    "publish": False,
                }
            }
        },
    }


def _rule(category: Category) -> dict[str, Any]:
    criteria: list[dict[str, Any]] = []
    if category.verdict:
        criteria.append({"labels": {VERDICT_LABEL: f"^{category.verdict}$"}})
    if category.message:
        criteria.append({"message": category.message})
    return {
        "name": category.name,
        "matchers": [{"statuses": [category.status], **criterion} for criterion in criteria or [{}]],
        "groupByMessage": True,
        "expand": True,
    }


def _generated(
    node: NodeJs, packages: Path, results: Path, scratch: Path, title: str, history: Path | None
) -> str:
    output = scratch / "out"
    config = scratch / "allurerc.json"
    config.write_text(json.dumps(configuration(title, output, history)), encoding="utf-8")
    argv = [
        *node.node,
        str(packages / _PACKAGE / "cli.js"),
        "generate",
        f"--config={config}",
        f"--cwd={scratch}",
        f"--output={output}",
        str(results),
    ]
    env = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
    output_text = run(node, argv, cwd=scratch, deadline=_DEADLINE, env=env)
    pages = sorted(output.rglob("index.html"), key=lambda path: len(path.parts))
    if not pages:
        raise ReportError(
            f"the report generator left no page for {results}; its output:\n{output_text.strip()}"
        )
    version = json.loads((packages / _PACKAGE / "package.json").read_text(encoding="utf-8"))["version"]
    return build_single_file(pages[0].parent, version=version)
