"""Words that the project does not use, because there is a standard term (docs/glossary.md).

The test reads every tracked Python, Markdown, TOML and template file. Identifiers are split at
underscores and capitals.
"""

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SEARCHED = (
    "src",
    "suites",
    "tests",
    "benchmarks",
    "script",
    "docs",
    "examples",
    "README.md",
    "CONTRIBUTING.md",
)
ENDINGS = {".py", ".md", ".toml", ".j2", ".sh", ".yaml", ".yml", ".ini", ""}

REFUSED = {
    "attendant": "fork server",
    "attendants": "fork servers",
    "beside": "alongside, concurrency",
    "casekit": "testlib",
    "complaint": "stderr, error output",
    "complaints": "error output",
    "crew": "worker pool",
    "crowd": "clients",
    "crowds": "clients",
    "errand": "agent channel",
    "errands": "agent channels",
    "hear": "read, receive",
    "heard": "read, received",
    "hears": "reads, receives",
    "lent": "leased",
    "nobody": "no process, no client",
    "patience": "timeout",
    "said": "output, result",
    "says": "states, requires, prints",
    "somebody": "another process, another user",
    "tell": "send, report, write",
    "tells": "sends, reports, writes",
    "told": "sent, informed",
    "whoever": "the process that",
}
PHRASES = {
    r"\bthe house\b": "the architecture",
    r"\bbad luck\b": "faults",
    r"\blets? go\b": "release",
    r"\bwhat is (asked|said|told)\b": "the request, the output",
    r"\bstart gate\b": "start barrier",
}

ALLOWED_FILES = {
    "docs/how-to/upgrade.md",
    "src/storagetest/agent/casekit/__init__.py",
    "src/storagetest/plugin/conformance/known_issues_table.py",
    "src/storagetest/plugin/fixtures/deprecated.py",
    "tests/plugin/test_deprecated_names.py",
    "tests/plugin/test_known_issues_table.py",
    "tests/unit/test_words.py",
}
"""This file, and those that contain old names because they map them to new ones."""

METRIC_NAMES = re.compile(r"\b(beside|alone)_\w+|[\"'`]beside[\"'`]")
"""Metrics of the workload noisy-neighbour; users' thresholds contain their names."""
QUOTED = re.compile(r"[\"“][^\"”\n]*[\"”]")
"""In Markdown, a quotation of a standard or of a program keeps its words."""


def tracked_files() -> list[str]:
    command = ["git", "ls-files", "--", *SEARCHED]
    output = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    files = [
        name for name in output.splitlines() if Path(name).suffix in ENDINGS and name not in ALLOWED_FILES
    ]
    assert len(files) > 300, "git ls-files found too few files to check"
    return [name for name in files if (ROOT / name).is_file() and not (ROOT / name).is_symlink()]


def refused_words(text: str) -> list[str]:
    """Return the refused words and phrases of ``text``, each with its replacement."""
    text = METRIC_NAMES.sub("", text)
    spaced = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", text).lower()
    words = set(re.findall(r"[a-z]+", spaced.replace("_", " ")))
    found = [f"{word} (use: {REFUSED[word]})" for word in sorted(words & REFUSED.keys())]
    return found + [f"{phrase} (use: {use})" for phrase, use in PHRASES.items() if re.search(phrase, spaced)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("def what_was_said(x):", ["said"]),
        ("class StartGate: ...", ["start gate"]),
        ("the house", ["the house"]),
        ("a crowded saidel", []),
    ],
)
def test_words_are_found_in_prose_and_in_identifiers(text: str, expected: list[str]) -> None:
    found = refused_words(text)
    assert len(found) == len(expected), found
    assert all(word in entry for word, entry in zip(expected, found, strict=True))


def findings_in(name: str) -> list[str]:
    """Return each refused word of a file, with its line."""
    findings = []
    for number, line in enumerate((ROOT / name).read_text(encoding="utf-8").splitlines(), start=1):
        checked = QUOTED.sub("", line) if name.endswith((".md", ".toml")) else line
        findings += [f"{name}:{number}: {found}" for found in refused_words(checked)]
    return findings


def test_no_file_uses_a_refused_word() -> None:
    findings = [finding for name in tracked_files() for finding in findings_in(name)]
    assert not findings, "\n".join(findings)


def test_the_glossary_is_short_and_sorted() -> None:
    terms = re.findall(r"^\| \*\*(.+?)\*\*", (ROOT / "docs/glossary.md").read_text(), re.MULTILINE)
    assert terms == sorted(terms, key=str.lower)
    assert 0 < len(terms) <= 25
