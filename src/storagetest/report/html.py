"""The HTML report: Allure 3, generated here, in one file that opens from disk and asks nobody for anything.

One file, because a browser refuses a page from ``file://`` to fetch its neighbours: the directory form of the
report wants a web server. It weighs about 3.6 MB of program plus the results.

Steps: :func:`configuration` (pure) → the generator, from the pinned packages (:mod:`storagetest.report.node`)
→ :func:`storagetest.report.offline.make_offline` (pure) → the page, put in place by one rename.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any

from storagetest.errors import ReportError
from storagetest.report.categories import CATEGORIES, VERDICT_LABEL, Category
from storagetest.report.node import Node, cache_directory, find_node, install, run
from storagetest.report.offline import make_offline, outside_urls

__all__ = ["configuration", "generate"]

_DEADLINE = 300.0
_PASSED_ON = ("HOME", "LANG", "LC_ALL", "NODE_OPTIONS", "PATH", "TMPDIR", "TZ")
"""What the generator sees of our environment: it would link to the CI system that it finds there."""

_CHARTS: Sequence[Mapping[str, Any]] = (
    {"type": "currentStatus", "title": "All cases"},
    {"type": "successRateDistribution", "title": "Passed, by protocol, suite and variant"},
    {"type": "durations", "title": "How long cases took", "groupBy": "none"},
)
"""Those of the generator's charts that say something about a single run."""


def generate(
    results_dir: Path,
    out: Path,
    *,
    node: str | os.PathLike[str] | None = None,
    title: str = "storagetest",
    progress: Callable[[str], None] = lambda _: None,
) -> Path:
    """Generate the report of ``results_dir`` (what ``--alluredir`` wrote) and return the path of its page.

    ``out`` is a directory; the page is ``out/index.html``. ``node`` is a Node.js to use rather than one that
    is found. Raises :class:`ReportError`: nothing to report, no Node.js, npm or the generator failed, or the
    page still points outside.
    """
    count = sum(1 for _ in results_dir.glob("*-result.json"))
    if count == 0:
        msg = f"no Allure results in {results_dir}: run pytest with --alluredir={results_dir} first"
        raise ReportError(msg)
    found = find_node(node)
    with as_file(files("storagetest.report") / "allure3") as manifest:
        packages = install(found, manifest, cache=cache_directory(), progress=progress)
    progress(f"generating the report of {count} results")
    with tempfile.TemporaryDirectory(prefix="storagetest-report-") as scratch:
        page = make_offline(_generated(found, packages, results_dir.resolve(), Path(scratch), title))
    left = outside_urls(page)
    if left:
        msg = f"the generated report points outside, to {', '.join(left)}; the pinned generator has changed"
        raise ReportError(msg)
    out.mkdir(parents=True, exist_ok=True)
    final = out / "index.html"
    partial = out / f".index.html.{os.getpid()}"
    partial.write_text(page, encoding="utf-8")
    partial.replace(final)
    return final


def configuration(title: str, output: Path) -> dict[str, Any]:
    """Return the generator's configuration: one file; protocol, suite, variant; our categories."""
    return {
        "name": title,
        "output": str(output),
        "appendHistory": False,
        "hideLabels": ["framework", "language", "package", "thread"],
        "categories": {"rules": [_rule(category) for category in CATEGORIES]},
        "plugins": {
            "awesome": {
                "options": {
                    "reportName": title,
                    "singleFile": True,
                    "reportLanguage": "en",
                    "groupBy": ["epic", "feature", "story"],
                    "sections": ["charts", "timeline"],
                    "charts": list(_CHARTS),
                    "publish": False,
                }
            }
        },
    }


def _rule(category: Category) -> dict[str, Any]:
    matchers: list[dict[str, Any]] = []
    if category.verdict:
        matchers.append({"statuses": [category.status], "labels": {VERDICT_LABEL: f"^{category.verdict}$"}})
    if category.message:
        matchers.append({"statuses": [category.status], "message": category.message})
    return {
        "name": category.name,
        "matchers": matchers or [{"statuses": [category.status]}],
        "groupByMessage": True,
        "expand": True,
    }


def _generated(node: Node, packages: Path, results: Path, scratch: Path, title: str) -> str:
    output = scratch / "out"
    config = scratch / "allurerc.json"
    config.write_text(json.dumps(configuration(title, output)), encoding="utf-8")
    argv = [
        *node.node,
        str(packages / "node_modules" / "allure" / "cli.js"),
        "generate",
        f"--config={config}",
        f"--cwd={scratch}",
        f"--output={output}",
        str(results),
    ]
    env = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
    said = run(node, argv, cwd=scratch, deadline=_DEADLINE, env=env)
    pages = sorted(output.rglob("index.html"), key=lambda path: len(path.parts))
    if not pages:
        msg = f"the report generator left no page for {results}; it said:\n{said.strip()}"
        raise ReportError(msg)
    return pages[0].read_text(encoding="utf-8")
