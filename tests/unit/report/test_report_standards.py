"""Titles of the standards' sections: the tables, and that each section that a case cites has one."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from storagetest.errors import ResultError
from storagetest.report.standards import citations, read_titles, section_title, untitled

PLUGIN = """
import json

ITEMS = []  # also those that are deselected, because no target has what they need

def pytest_itemcollected(item):
    ITEMS.append(item)

def pytest_collection_finish(session):
    from storagetest.plugin.conformance.cases import case_of

    cases = filter(None, map(case_of, ITEMS))
    with open("sections.json", "w") as file:
        json.dump(sorted({case.section for case in cases}), file)
"""

TARGETS = """
version: 1
clients: {here: {transport: local}}
targets: {none: {protocol: local, path: /var/tmp, clients: [here]}}
"""


@pytest.fixture(scope="module")
def cited(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Return the sections that the suites' cases cite, as pytest collects them."""
    place = tmp_path_factory.mktemp("sections")
    (place / "sections_plugin.py").write_text(PLUGIN)
    (place / "targets.yaml").write_text(TARGETS)
    suites = Path(__file__).parents[3] / "suites" / "conformance"
    argv = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "sections_plugin"]
    argv += ["--st-targets", "targets.yaml", "-p", "no:cacheprovider", str(suites)]
    done = subprocess.run(
        argv,
        cwd=place,
        env={**os.environ, "PYTHONPATH": str(place)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    sections: list[str] = json.loads((place / "sections.json").read_text())
    return sections


def test_every_section_that_a_case_cites_has_a_title(cited):
    names = read_titles()
    assert len(cited) > 800
    assert {missing for section in cited for missing in untitled(section, names)} == set()


def test_a_section_without_a_title_is_found():
    names = read_titles()
    assert untitled("RFC 7143 99.1, 11.13.5; RFC 9999 3", names) == ["RFC 7143 99.1", "RFC 9999 3"]


@pytest.mark.parametrize(
    ("section", "expected"),
    [
        ("RFC 7143 11.13.2, 11.13.5", [("RFC 7143", "11.13.2"), ("RFC 7143", "11.13.5")]),
        ("SAM-5 5.14, SPC-4 INQUIRY", [("SAM-5", "5.14")]),
        ("NVM Base 8.1.24; NVM 3.1", [("NVM Base", "8.1.24"), ("NVM", "3.1")]),
        ("MS-SMB2 3.3.5.9 (FILE_CREATE), MS-FSA 2.1.5.1", [("MS-SMB2", "3.3.5.9"), ("MS-FSA", "2.1.5.1")]),
        ("RFC 7143 C", [("RFC 7143", "C")]),
        ("SPC-4 READ(6)", []),
        ("rename(2): ERRORS", []),
    ],
)
def test_citations(section, expected):
    assert list(citations(section, read_titles())) == expected


def test_the_title_is_that_of_the_nearest_section():
    assert section_title("RFC 8881 18.16.3") == "Operation 18: OPEN"
    assert section_title("RFC 7143 11.13.2, 11.13.5") == "Version-active; Status-Class and Status-Detail"
    assert section_title("POSIX.1-2024 rename(): ERRORS") == ""


def test_a_file_that_is_no_table_is_refused(tmp_path):
    (tmp_path / "x.toml").write_text('standard = "X"\n')
    with pytest.raises(ResultError, match="not a table of section titles"):
        read_titles(tmp_path)
