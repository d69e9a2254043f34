"""Remove all external references from a generated single-file report, and verify it.

The generator's page has an analytics script and three addresses in its program: a "powered by" link, an
unused trace viewer, and a placeholder base address. Rules:

1. Known references are removed or replaced, in the page and inside its ``data:`` URLs.
2. A Content-Security-Policy forbids the page to load anything external, also for a later version of the
   generator or for an attachment.
3. :func:`outside_urls` lists the remaining addresses in the page and its program. XML namespace names
   (w3.org) are not loaded and do not count; the contents of attachments are not checked.
"""

from __future__ import annotations

import base64
import re

_ANALYTICS = re.compile(
    r'<script[^>]*src="https://www\.googletagmanager\.com/[^"]*"[^>]*></script>\s*<script>.*?</script>',
    re.DOTALL,
)
_PACKED = re.compile(r'<script type="text/plain"[^>]*>[A-Za-z0-9+/=]*</script>')  # base64 may spell "ws//"
_DATA_URL = re.compile(r"data:(text/[a-z]+);base64,([A-Za-z0-9+/=]+)")
_URL = re.compile(
    r"""(?:https?|wss?):?//[A-Za-z0-9][^\s"'`<>\\)]*|(?<=["'(=])//[a-z0-9-]+\.[a-z][^\s"'`<>\\)]*"""
)
_NAMESPACES = re.compile(r"http://www\.w3\.org/(?:\d{4}|XML|TR)/")
_PLACEHOLDERS = ("https://localhost",)

_REPLACED = (
    # The "powered by" link goes to the report itself.
    ("https://allurereport.org", "#"),
    # The viewer for another tool's traces.
    ("https://trace.playwright.dev", "about:blank"),
)
_POLICY = (
    '<meta http-equiv="Content-Security-Policy" content="'
    "default-src 'none'; script-src 'unsafe-inline' 'unsafe-eval' data: blob:; "
    "style-src 'unsafe-inline' data: blob:; img-src data: blob:; "
    "font-src data:; media-src data: blob:; connect-src data: blob:; "
    "frame-src data: blob: 'self'; worker-src data: blob:; form-action 'none'"
    '">'
)


def make_offline(page: str) -> str:
    """Return ``page`` without its outside addresses, and with a policy that forbids any."""
    page = _DATA_URL.sub(_without_references, _ANALYTICS.sub("", page))
    return page.replace("<head>", f"<head>\n    {_POLICY}", 1)


def outside_urls(page: str) -> list[str]:
    """Return the addresses of other hosts in the page's mark-up, styles and program, sorted."""
    page = _PACKED.sub("", page)
    shell = _DATA_URL.sub(
        "", re.sub(r"window\.allureReport(?:Data|Options)\b.*?</script>", "", page, flags=re.DOTALL)
    )
    urls = filter(_is_in_a_tag, _DATA_URL.finditer(page))
    programs = [base64.b64decode(match[2]).decode("utf-8", "replace") for match in urls]
    found = {match[0] for text in (shell, *programs) for match in _URL.finditer(text)}
    return sorted(url for url in found if not _NAMESPACES.match(url) and url not in _PLACEHOLDERS)


def _is_in_a_tag(match: re.Match[str]) -> bool:
    """Whether a data: URL is that of a script or a link tag, and not of an attachment."""
    before = match.string[max(0, match.start() - 200) : match.start()]
    return re.search(r"<(?:script|link)\b[^<>]*$", before) is not None


def _without_references(match: re.Match[str]) -> str:
    """Return the data: URL of a tag with the known references replaced; any other is not changed."""
    if not _is_in_a_tag(match):
        return match[0]
    text = base64.b64decode(match[2]).decode()
    for old, new in _REPLACED:
        text = text.replace(old, new)
    return f"data:{match[1]};base64,{base64.b64encode(text.encode()).decode()}"
