"""Select this machine's apt sources for an image: those of Debian itself, of the image's release.

So the image build uses the same mirror or proxy as this machine. If no source matches (another release or
distribution), mmdebstrap uses its default.
"""

from __future__ import annotations

import re
from pathlib import Path

_ETC = Path("/etc/apt")
_LINE = re.compile(r"deb\s+(?:\[(?P<options>[^]]*)\]\s+)?\S+\s+(?P<suite>\S+)\s+(?P<components>.+)")


def _matches(suite: str, suites: list[str], components: list[str], signed_by: str) -> bool:
    suites_of_release = {suite, f"{suite}-updates", f"{suite}-security"}
    return (
        bool(suites)
        and set(suites) <= suites_of_release
        and "main" in components
        and _signed_by_debian(signed_by)
    )


def _signed_by_debian(signed_by: str) -> bool:
    return not signed_by or "debian-archive" in signed_by


def select_lines(text: str, suite: str) -> str:
    """Return the lines of a one-line-style file (sources.list(5)) that match ``suite``."""
    selected = []
    for line in text.splitlines():
        match = _LINE.fullmatch(line.partition("#")[0].strip())
        if match is None:
            continue
        options = dict(option.split("=", 1) for option in (match["options"] or "").split() if "=" in option)
        if _matches(suite, [match["suite"]], match["components"].split(), options.get("signed-by", "")):
            selected.append(line)
    return "".join(f"{line}\n" for line in selected)


def select_deb822(text: str, suite: str) -> str:
    """Return the stanzas of a deb822-style file (sources.list(5)) that match ``suite``."""
    return "\n\n".join(stanza for stanza in re.split(r"\n\s*\n", text) if _stanza_matches(stanza, suite))


def _stanza_matches(stanza: str, suite: str) -> bool:
    fields: dict[str, str] = {}
    name = ""
    for line in stanza.splitlines():
        if line.startswith("#"):
            continue
        if line[:1].isspace():
            fields[name] = f"{fields.get(name, '')} {line.strip()}"
        else:
            name, _, value = line.partition(":")
            name = name.strip().lower()
            fields[name] = value.strip()
    if "deb" not in fields.get("types", "").split() or fields.get("enabled", "yes").lower() == "no":
        return False
    components = fields.get("components", "").split()
    return _matches(suite, fields.get("suites", "").split(), components, fields.get("signed-by", ""))


def matching(suite: str, work: Path, etc: Path = _ETC) -> list[str]:
    """Write the sources that match ``suite`` to files in ``work``; return the paths, empty if none match."""
    lines = "".join(select_lines(_read(file), suite) for file in [etc / "sources.list", *_parts(etc, "list")])
    stanzas = "\n\n".join(
        filter(None, (select_deb822(_read(file), suite) for file in _parts(etc, "sources")))
    )
    paths = []
    for name, text in (("host.list", lines), ("host.sources", stanzas)):
        if text:
            path = work / name
            path.write_text(f"{text}\n")
            paths.append(str(path))
    return paths


def _parts(etc: Path, suffix: str) -> list[Path]:
    return sorted((etc / "sources.list.d").glob(f"*.{suffix}"))


def _read(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""
