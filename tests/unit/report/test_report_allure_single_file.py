"""A generated report's directory as one page: everything is in it, and comes out as it was."""

from __future__ import annotations

import base64
import gzip
import json
import re

import pytest

from storagetest.errors import ReportError
from storagetest.report.allure.single_file import build_single_file, iter_bundles

UNFOLDS = "const opened=e=>void 0===e||Boolean(e?.failed||e?.broken);"
READY = "<script async>\n window.allureReportDataReady = true;\n</script>"


@pytest.fixture
def directory(tmp_path):
    (tmp_path / "data" / "attachments").mkdir(parents=True)
    (tmp_path / "widgets").mkdir()
    tags = '<link rel="stylesheet" type="text/css" href="s.css"><link rel="preload" href="f.woff" as="font">'
    (tmp_path / "index.html").write_text(
        f'<html><head>{tags}</head><body><script src="m.js"></script>{READY}</body>'
    )
    (tmp_path / "m.js").write_text(f"1 + 1;{UNFOLDS * 4}")
    (tmp_path / "s.css").write_text("b {}")
    (tmp_path / "f.woff").write_bytes(b"\0")
    (tmp_path / "widgets" / "tree.json").write_text("{}")
    (tmp_path / "data" / "attachments" / "a.html").write_text("<script>no</script>")
    (tmp_path / "data" / "attachments" / "big.bin").write_bytes(bytes(range(256)) * 3000)
    (tmp_path / "data" / "attachments" / "empty.txt").write_bytes(b"")
    return tmp_path


def test_data_go_into_bundles_and_an_index(directory):
    index: dict[str, tuple[int, int, int]] = {}
    packed = list(iter_bundles(directory, index))
    assert set(index) == {
        "widgets/tree.json",
        "data/attachments/a.html",
        "data/attachments/big.bin",
        "data/attachments/empty.txt",
    }
    assert index["widgets/tree.json"][0] == 0
    for name, (bundle, start, length) in index.items():
        assert packed[bundle][start : start + length] == (directory / name).read_bytes()


def test_the_page_has_its_program_its_data_and_nothing_to_fetch(directory):
    page = build_single_file(directory, version="3.99.0")
    found = dict(re.findall(r'<script type="text/plain" id="packed-(\w+)">([^<]*)</script>', page))
    index = json.loads(gzip.decompress(base64.b64decode(found.pop("index"))))
    assert len(index) == 4
    assert len(found) == 1 + max(bundle for bundle, _, _ in index.values())
    assert base64.b64encode(b"1 + 1;").decode() in page
    assert base64.b64encode(b"b {}").decode() in page
    assert "f.woff" not in page
    assert READY not in page
    assert page.index("window.allureReportData") < page.index("data:text/javascript")
    assert "<script>no</script>" not in page


def test_a_generator_that_has_changed_is_noticed(directory):
    (directory / "m.js").unlink()
    with pytest.raises(ReportError, match=r"wants m\.js"):
        build_single_file(directory, version="3.99.0")
    (directory / "index.html").write_text("<html><head></head><body></body></html>")
    with pytest.raises(
        ReportError, match=r"Allure 3\.99\.0: index\.html has '<script async>.* 0 times, not 1"
    ):
        build_single_file(directory, version="3.99.0")


def test_large_groups_of_the_tree_stay_folded(directory):
    page = build_single_file(directory, version="3.99.0")
    program = re.search(r'src="data:text/javascript;base64,([^"]+)"', page)[1]
    assert base64.b64decode(program).decode() == "1 + 1;" + 4 * (
        "const opened=e=>void 0===e||e.total<=100&&Boolean(e?.failed||e?.broken);"
    )


@pytest.mark.parametrize("count", [0, 3, 5])
def test_a_program_that_is_minified_in_another_way_is_an_error(directory, count):
    (directory / "m.js").write_text(UNFOLDS * count)
    with pytest.raises(ReportError) as raised:
        build_single_file(directory, version="3.99.0")
    assert (
        f"Allure 3.99.0: the program has 'void 0===e||Boolean(e?.failed||e?.broken)' {count} times, not 4"
        in (str(raised.value))
    )
