"""Allure's report in one file, and without a network."""

import base64
import gzip
import json
import re

import pytest

from storagetest.errors import ReportError
from storagetest.report.allure.offline import make_offline, outside_urls
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


@pytest.mark.parametrize(
    ("counts", "percentage"),
    [
        ({"passed": 2, "skipped": 1}, 66.66),
        ({"passed": 4}, 100),
        ({"failed": 1, "skipped": 3}, 0),
        ({"__empty__": 1}, 0),
    ],
)
def test_the_ring_counts_skipped_cases(directory, counts, percentage):
    slices = [{"d": "M0", "status": status, "count": count} for status, count in counts.items()]
    for folder in (directory / "widgets", directory / "widgets" / "default", directory / "data"):
        folder.mkdir(exist_ok=True)
        (folder / "pie_chart.json").write_text(json.dumps({"slices": slices, "percentage": 99.9}))
    index: dict[str, tuple[int, int, int]] = {}
    packed = list(iter_bundles(directory, index))

    def read(name):
        bundle, start, length = index[name]
        return json.loads(packed[bundle][start : start + length])

    for name in ("widgets/pie_chart.json", "widgets/default/pie_chart.json"):
        assert read(name) == {"slices": slices, "percentage": percentage}
    assert read("data/pie_chart.json")["percentage"] == 99.9  # an attachment stays as it is


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


def data_url(kind: str, text: str) -> str:
    return f"data:text/{kind};base64,{base64.b64encode(text.encode()).decode()}"


PROGRAM = """
var ns="http://www.w3.org/2000/svg", base="https://localhost"; // ünïcode
var home="https://allurereport.org";
"""
PAGE = f"""<!DOCTYPE html>
<html>
<head>
    <link rel="stylesheet" href="{data_url("css", "a {}")}">
</head>
<body>
    <script src="{data_url("javascript", PROGRAM)}"></script>
    <script async src="https://www.googletagmanager.com/gtag/js?id=G-1"></script>
    <script>
        window.dataLayer = window.dataLayer || [];
    </script>
    <script>window.mine = 1;</script>
    <script>d("log.txt", "{base64.b64encode(b"see http://nas.example/").decode()}")</script>
</body>
</html>
"""


def test_known_addresses_go_and_the_rest_stays():
    page = make_offline(PAGE)
    assert "googletagmanager" in PAGE
    assert "googletagmanager" not in page
    assert "dataLayer" not in page
    assert "window.mine = 1;" in page
    assert data_url("javascript", PROGRAM.replace("https://allurereport.org", "#")) in page
    assert data_url("css", "a {}") in page
    assert outside_urls(PAGE) == [
        "https://allurereport.org",
        "https://www.googletagmanager.com/gtag/js?id=G-1",
    ]
    assert outside_urls(page) == []


def test_a_policy_forbids_the_rest():
    page = make_offline(PAGE)
    (policy,) = [line for line in page.splitlines() if "Content-Security-Policy" in line]
    assert "default-src 'none'" in policy
    assert "http" not in policy.replace("http-equiv", "")


@pytest.mark.parametrize(
    ("markup", "url"),
    [
        ('<link href="https://fonts.example/a.css">', "https://fonts.example/a.css"),
        ("<style>@import url(//cdn.example.com/x.css)</style>", "//cdn.example.com/x.css"),
        ("<script>new WebSocket('wss://live.example/x')</script>", "wss://live.example/x"),
        (
            f'<script src="{data_url("javascript", "fetch(`http://10.0.0.1/x`)")}"></script>',
            "http://10.0.0.1/x",
        ),
        (
            f'<link href="{data_url("css", "a{background:url(http://x.example/y.png)}")}">',
            "http://x.example/y.png",
        ),
    ],
)
def test_what_is_not_known_is_found(markup, url):
    assert outside_urls(make_offline(PAGE.replace("</body>", f"{markup}</body>"))) == [url]


def test_packed_data_is_not_taken_for_addresses() -> None:
    packed = '<script type="text/plain" id="packed-7">H4sIOUT/ws//OUTc1SRP/9UDe1CXb31k44==</script>'
    page = make_offline(PAGE).replace("</body>", f"{packed}</body>")
    assert outside_urls(page) == []
    assert outside_urls(page.replace(packed, f"{packed} https://evil.example")) == ["https://evil.example"]
