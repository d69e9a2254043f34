"""One page from the generator's directory: its program inlined, its data packed and unpacked on demand.

The generator also has a single-file form, but that is one program with all data as its text: a browser parses
all of it before it shows anything, and the generator cannot write more than 512 MB. Rules:

1. Files are packed into bundles of about 256 KiB, gzip, base64, each in an inert ``<script>`` that a browser
   only skips. Similar entries are adjacent (widgets first, then by kind), so they compress well.
2. A script in the head serves data to the program: it implements ``name in`` and unpacks the bundle that
   contains a name. Only ``data:`` addresses are fetched.
3. Files that the program loads by a tag are inlined as ``data:`` addresses; fonts are left out, as in the
   generator's single file.
4. The program unfolds and draws every group with a failure. Groups of more than :data:`_UNFOLDED` cases stay
   folded until the reader unfolds them, because drawing 10,000 cases takes 15 s.
5. The percentage of the ring is that of all cases (:func:`_of_all_cases`).
"""

from __future__ import annotations

import base64
import gzip
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from storagetest.errors import ReportError

_BUNDLE = 256 << 10
_UNFOLDED = 100
_UNFOLDS = b"void 0===e||Boolean(e?.failed||e?.broken)"
"""Whether a group is unfolded, as the generator's minified program writes it."""
_UNFOLDS_COUNT = 4
"""How often it is in the program of Allure 3.18.0: its modules have a copy each."""
_FOLDS = f"void 0===e||e.total<={_UNFOLDED}&&Boolean(e?.failed||e?.broken)".encode()
_RING = "pie_chart.json"
"""The widget of the ring: its slices (drawing, status and count), and the percentage in its middle."""
_NO_CASES = "__empty__"
"""The status of the only slice of a report without cases."""
_SHELL = {".html", ".js", ".css", ".woff", ".woff2", ".map"}

_DATA_PROXY = """<script>
(() => {
  const kept = new Map();
  const unpacked = name => {
    if (!kept.has(name)) {
      if (kept.size > 40) kept.delete(kept.keys().next().value);
      const text = document.getElementById(`packed-${name}`).textContent;
      kept.set(name, fetch(`data:application/gzip;base64,${text}`)
        .then(got => new Response(got.body.pipeThrough(new DecompressionStream('gzip'))).arrayBuffer())
        .then(bytes => new Uint8Array(bytes)));
    }
    return kept.get(name);
  };
  const base64 = bytes => {
    if (bytes.toBase64) return bytes.toBase64();
    let text = '';
    for (let at = 0; at < bytes.length; at += 32768)
      text += String.fromCharCode(...bytes.subarray(at, at + 32768));
    return btoa(text);
  };
  let index = {};
  window.allureReportDataReady = false;
  window.allureReportData = new Proxy({}, {
    has: (_, name) => Object.hasOwn(index, name),
    get: (_, name) => {
      if (!Object.hasOwn(index, name)) return undefined;
      const [bundle, from, length] = index[name];
      return unpacked(bundle).then(bytes => base64(bytes.subarray(from, from + length)));
    },
  });
  document.addEventListener('DOMContentLoaded', () => unpacked('index').then(bytes => {
    index = JSON.parse(new TextDecoder().decode(bytes));
    window.allureReportDataReady = true;
  }));
})();
</script>"""
_READY = re.compile(r"<script async>\s*window\.allureReportDataReady = true;\s*</script>")
_TAG = re.compile(
    r'<script[^>]*\ssrc="(?P<js>[^":]+\.js)"[^>]*></script>'
    r'|<link rel="stylesheet"[^>]*\shref="(?P<css>[^":]+\.css)"[^>]*>'
    r'|<link rel="preload"[^>]*\.woff2?"[^>]*>'
)


def build_single_file(directory: Path, *, version: str) -> str:
    """Return the report in ``directory`` (the one with index.html) as one page.

    ``version`` is the generator's, for the message. Raises :class:`ReportError` if the report is not laid out
    as the pinned generator does it.
    """
    page = (directory / "index.html").read_text(encoding="utf-8")
    ready = len(_READY.findall(page))
    _expect(ready, 1, "<script async>window.allureReportDataReady = true;</script>", "index.html", version)
    _expect(page.count("<head>"), 1, "<head>", "index.html", version)
    page = _READY.sub("", page)
    unfolds = sum(
        _read(directory, match["js"]).count(_UNFOLDS) for match in _TAG.finditer(page) if match["js"]
    )
    _expect(unfolds, _UNFOLDS_COUNT, _UNFOLDS.decode(), "the program", version)
    page = _TAG.sub(lambda match: _inlined(directory, match), page)
    index: dict[str, tuple[int, int, int]] = {}
    packed = [_script(str(number), bundle) for number, bundle in enumerate(iter_bundles(directory, index))]
    packed.append(_script("index", json.dumps(index, separators=(",", ":")).encode()))
    head, body = page.replace("<head>", f"<head>{_DATA_PROXY}", 1), "".join(packed)
    before, end, after = head.rpartition("</body>")
    return f"{before}{body}{end}{after}"


def _expect(count: int, expected: int, text: str, where: str, version: str) -> None:
    """Raise :class:`ReportError` unless ``text`` is ``expected`` times in ``where``."""
    if count != expected:
        raise ReportError(
            f"report of Allure {version}: {where} has {text!r} {count} times, not {expected}: "
            "the generator has changed. Install the version that storagetest pins, or report this."
        )


def iter_bundles(directory: Path, index: dict[str, tuple[int, int, int]]) -> Iterator[bytes]:
    """Yield the data files' bytes in bundles; ``index`` gets each one's bundle, offset and length."""
    names = (path.relative_to(directory) for path in directory.rglob("*") if path.is_file())
    # An attachment is data whatever it is called.
    data = [name for name in names if name.parts[0] == "data" or name.suffix not in _SHELL]
    number, bundle = 0, bytearray()
    for name in sorted(data, key=_order):
        content = (directory / name).read_bytes()
        if name.parts[0] == "widgets" and name.name == _RING:
            content = _of_all_cases(content)
        if bundle and len(bundle) + len(content) > _BUNDLE:
            yield bytes(bundle)
            number, bundle = number + 1, bytearray()
        index[name.as_posix()] = (number, len(bundle), len(content))
        bundle += content
    if bundle:
        yield bytes(bundle)


def _of_all_cases(ring: bytes) -> bytes:
    """Return the ring of the report's head with the share that passed of all cases, rounded down.

    The generator leaves skipped cases out of it, so that it is at 100 % although some cases did not run.
    """
    document = json.loads(ring)
    counts = {one["status"]: one["count"] for one in document["slices"] if one["status"] != _NO_CASES}
    passed, every = counts.get("passed", 0), sum(counts.values())
    document["percentage"] = passed * 10000 // every / 100 if every else 0
    return json.dumps(document).encode()


def _order(path: Path) -> tuple[bool, str, str, str]:
    return path.parts[0] == "data", path.parent.as_posix(), path.suffix, path.name


def _script(name: str, content: bytes) -> str:
    text = base64.b64encode(gzip.compress(content, 6, mtime=0)).decode()
    return f'<script type="text/plain" id="packed-{name}">{text}</script>\n'


def _inlined(directory: Path, match: re.Match[str]) -> str:
    tag: Mapping[str, str | None] = match.groupdict()
    if tag["js"]:
        program = _read(directory, tag["js"]).replace(_UNFOLDS, _FOLDS)
        return f'<script src="data:text/javascript;base64,{base64.b64encode(program).decode()}"></script>'
    if tag["css"]:
        style = base64.b64encode(_read(directory, tag["css"])).decode()
        return f'<link rel="stylesheet" href="data:text/css;base64,{style}">'
    return ""


def _read(directory: Path, name: str) -> bytes:
    try:
        return (directory / name).read_bytes()
    except OSError as error:
        raise ReportError(f"the generated report wants {name}: {error.strerror}") from None
