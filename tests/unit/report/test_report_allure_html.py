"""A real report by the pinned generator: everything is in it, and it opens without the network."""

import base64
import gzip
import json
import re
from pathlib import Path

import pytest

from storagetest.errors import ReportError
from storagetest.report.allure.categories import CATEGORIES
from storagetest.report.allure.html import configuration, generate
from storagetest.report.allure.offline import outside_urls


@pytest.fixture(scope="module")
def page(sample_results, tmp_path_factory) -> Path:
    messages: list[str] = []
    made = generate(
        sample_results, tmp_path_factory.mktemp("report") / "deep", title="sample", progress=messages.append
    )
    assert messages[-1] == "generating the report of 45 results"
    return made


def embedded(page: Path) -> dict[str, bytes]:
    """The data files that the single page carries."""
    found = re.findall(r'<script type="text/plain" id="packed-(\w+)">([^<]*)</script>', page.read_text())
    packed = {name: gzip.decompress(base64.b64decode(text)) for name, text in found}
    index = json.loads(packed["index"])
    return {
        name: packed[str(bundle)][start : start + length] for name, (bundle, start, length) in index.items()
    }


@pytest.mark.html
def test_one_file_without_outside_addresses(page):
    assert [path.name for path in page.parent.iterdir()] == ["index.html"]
    assert outside_urls(page.read_text()) == []
    assert page.stat().st_size < 8 << 20


@pytest.mark.html
def test_the_generators_program_folds_large_groups(page):
    program = re.search(r'src="data:text/javascript;base64,([^"]+)"', page.read_text())[1]
    assert base64.b64decode(program).count(b"e.total<=100&&Boolean(e?.failed||e?.broken)") >= 3


@pytest.mark.html
def test_every_case_is_in_it_under_its_protocol_and_category(page):
    files = embedded(page)
    cases = [json.loads(text) for name, text in files.items() if name.startswith("data/test-results/")]
    assert len(cases) == 45
    names = {case["name"] for case in cases}
    assert "sequential write 1MiB on nas-v4.2-nconnect4" in names
    assert "test_close_to_open[nas-v3]" in names
    tree = json.loads(files["widgets/tree.json"])
    groups = {group["name"] for group in tree["groupsById"].values()}
    assert {"NFS", "SMB", "iSCSI", "NVMe/TCP", "performance", "iops >= 20000", "SBC-3 5.30"} <= groups
    found = {case["categories"][0]["name"] for case in cases if case["categories"]}
    assert found == {category.name for category in CATEGORIES}
    assert all(case["categories"] for case in cases if case["status"] in ("failed", "broken"))


def test_an_error_without_results_names_the_command_that_writes_them(tmp_path):
    with pytest.raises(ReportError, match=r"no Allure results in .*: run pytest with --alluredir="):
        generate(tmp_path, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_the_configuration_is_one_file_grouped_by_protocol(tmp_path):
    document = json.loads(json.dumps(configuration("t", tmp_path)))
    options = document["plugins"]["awesome"]["options"]
    assert options["singleFile"] is False
    assert options["groupBy"] == ["epic", "feature", "story"]
    assert [rule["name"] for rule in document["categories"]["rules"]] == [
        category.name for category in CATEGORIES
    ]


@pytest.mark.html
def test_history_grows_by_a_run_and_is_drawn(sample_results, tmp_path):
    history = tmp_path / "kept" / "history.jsonl"
    for runs in (1, 2):
        page = generate(sample_results, tmp_path / "out", history=history)
        lines = history.read_text().splitlines()
        assert len(lines) == runs
        assert len(json.loads(lines[-1])["testResults"]) == 45
    files = embedded(page)
    charts = next(json.loads(text) for name, text in files.items() if name.endswith("charts.json"))
    assert "Outcomes, run by run" in json.dumps(charts)
    assert [path.name for path in history.parent.iterdir()] == ["history.jsonl"]


@pytest.mark.parametrize("line", ["{", "[]", '{"testResults": 1}'])
def test_a_damaged_history_is_named_and_left_as_it_was(sample_results, tmp_path, line):
    history = tmp_path / "history.jsonl"
    text = f'{{"testResults": {{}}}}\n{line}\n'
    history.write_text(text)
    with pytest.raises(ReportError, match=r"history\.jsonl:2: not a run's history"):
        generate(sample_results, tmp_path / "out", history=history)
    assert history.read_text() == text
    assert not (tmp_path / "out").exists()
