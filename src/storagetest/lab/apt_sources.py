"""Which of this machine's apt sources can make the image: those of the same Debian, and no third party's.

So a mirror or a proxy that the machine is set up with is used for the image too. Where nothing fits (another
release, another distribution) mmdebstrap's own default is right.
"""

from __future__ import annotations

import re
from pathlib import Path

__all__ = ["matching", "select_deb822", "select_lines"]

_ETC = Path("/etc/apt")
_LINE = re.compile(r"deb\s+(?:\[(?P<options>[^]]*)\]\s+)?\S+\s+(?P<suite>\S+)\s+(?P<components>.+)")


def _fits(suite: str, suites: list[str], components: list[str], signed_by: str) -> bool:
    ours = {suite, f"{suite}-updates", f"{suite}-security"}
    return bool(suites) and set(suites) <= ours and "main" in components and _debian(signed_by)


def _debian(signed_by: str) -> bool:
    return not signed_by or "debian-archive" in signed_by


def select_lines(text: str, suite: str) -> str:
    """Return the lines of a one-line-style file (sources.list(5)) that are of ``suite``."""
    kept = []
    for line in text.splitlines():
        found = _LINE.fullmatch(line.partition("#")[0].strip())
        if found is None:
            continue
        options = dict(option.split("=", 1) for option in (found["options"] or "").split() if "=" in option)
        if _fits(suite, [found["suite"]], found["components"].split(), options.get("signed-by", "")):
            kept.append(line)
    return "".join(f"{line}\n" for line in kept)


def select_deb822(text: str, suite: str) -> str:
    """Return the stanzas of a deb822-style file (sources.list(5)) that are of ``suite``."""
    return "\n\n".join(stanza for stanza in re.split(r"\n\s*\n", text) if _stanza_fits(stanza, suite))


def _stanza_fits(stanza: str, suite: str) -> bool:
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
    return _fits(suite, fields.get("suites", "").split(), components, fields.get("signed-by", ""))


def matching(suite: str, work: Path, etc: Path = _ETC) -> list[str]:
    """Write the sources that fit ``suite`` to files in ``work`` and return their paths, or none."""
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
