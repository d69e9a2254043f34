"""The page is stripped of outside addresses, and what is left is found."""

from __future__ import annotations

import base64

import pytest

from storagetest.report.allure.offline import make_offline, outside_urls


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
