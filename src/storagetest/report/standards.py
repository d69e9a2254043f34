"""Titles of the sections that conformance cases cite, from ``suites/conformance/standards/*.toml``.

One table for each standard:

    standard = "RFC 7143"
    title = "Internet Small Computer System Interface (iSCSI) Protocol (Consolidated)"
    names = ["…"]                   # optional: other names by which cases cite it

    [sections]
    "11.13.5" = "Status-Class and Status-Detail"

A section without a title has the title of the nearest section that encloses it: 16.16.4 that of 16.16. A
citation that has a name instead of a number, such as ``SPC-4 INQUIRY`` or ``rename(2)``, is its own title.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from storagetest.errors import ResultError
from storagetest.installed_suites import SUITES

TABLES = SUITES / "conformance" / "standards"

_NUMBER = re.compile(r"(\d+(?:\.\d+)*|[A-Z])(?![\w(-])")
"""The number of a section at the start of a citation: ``11.13.5``, or ``C`` of an appendix."""


@dataclass(frozen=True, slots=True)
class SectionTitles:
    """The titles of one standard by section number."""

    standard: str
    title: str
    sections: Mapping[str, str]

    def find(self, number: str) -> str:
        """Return the title of the section, or of the nearest one that encloses it; "" if none has one."""
        while number not in self.sections and "." in number:
            number = number.rpartition(".")[0]
        return self.sections.get(number, "")


def read_titles(directory: Path = TABLES) -> dict[str, SectionTitles]:
    """Return the tables by the names that cases cite the standards by. Raises :class:`ResultError`."""
    found: dict[str, SectionTitles] = {}
    for path in sorted(directory.glob("*.toml")):
        try:
            document = tomllib.loads(path.read_text(encoding="utf-8"))
            titles = SectionTitles(document["standard"], document["title"], document["sections"])
            names = [titles.standard, *document.get("names", [])]
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError, KeyError) as error:
            raise ResultError(f"{path}: not a table of section titles: {error}") from None
        found |= dict.fromkeys(names, titles)
    return found


def citations(section: str, names: Mapping[str, SectionTitles]) -> Iterator[tuple[str, str]]:
    """Yield (standard, section number) of each numbered citation in ``RFC 7143 11.13.2, 11.13.5; SAM-5 7.7``.

    A number without a standard is one of the standard before it. A standard that is not in ``names`` is
    yielded too, if it looks like one (``RFC 9999 1.2``).
    """
    standard = ""
    for part in re.split(r"[;,]\s*", section):
        known = max((name for name in names if part.startswith(f"{name} ")), key=len, default="")
        other = re.match(r"(RFC \d+|MS-\w+)(?= )", part)
        standard = known or (other[1] if other else standard)
        rest = part.removeprefix(f"{standard} ") if known or other else part
        number = _NUMBER.match(rest)
        if standard and number:
            yield standard, number[1]


def section_title(section: str) -> str:
    """Return the titles of the sections that ``section`` cites, each once; "" if it has no number."""
    names = _installed()
    found = (
        names[standard].find(number) for standard, number in citations(section, names) if standard in names
    )
    return "; ".join(dict.fromkeys(filter(None, found)))


def standard_title(standard: str) -> str:
    """Return the title of a standard, "" if there is no table of it."""
    titles = _installed().get(standard)
    return titles.title if titles else ""


def untitled(section: str, names: Mapping[str, SectionTitles]) -> list[str]:
    """Return the numbered citations in ``section`` that no table has a title for."""
    return [
        f"{standard} {number}"
        for standard, number in citations(section, names)
        if standard not in names or not names[standard].find(number)
    ]


@cache
def _installed() -> Mapping[str, SectionTitles]:
    return read_titles()
