"""The suite of Lustre as pytest collects it: ids, sections, and the variants that its cases run on."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

from storagetest.agent.bundle import OLDEST_PYTHON
from storagetest.report.requirements import read

SUITE = Path(__file__).parents[2] / "suites" / "conformance" / "lustre"
ON_A_CLIENT = sorted(path for path in SUITE.glob("test_*.py") if "client_dir" in path.read_text())
TARGETS = """\
version: 1
clients:
  a: {transport: ssh, address: a.example.com}
  b: {transport: ssh, address: b.example.com}
servers: {mds: {transport: ssh, address: mds.example.com}}
targets:
  fs: {protocol: lustre, mgs: mgs@tcp, fsname: lustre, clients: [a, b]}
  lab:
    {protocol: lustre, mgs: mgs@tcp, fsname: two, clients: [a, b], server: mds, controls: {
    stop_mds: [e], start_mds: [f],
    deactivate_ost: [a], activate_ost: [b], exhaust_space: [c], free_space: [d]}}
  nas: {protocol: nfs, address: nas.example.net, export: /e, clients: [a, b]}
"""
LIST = """\
from storagetest.plugin.conformance.cases import case_of
from storagetest.plugin.items import item_variant

def pytest_collection_finish(session):
    for item in session.items:
        case, skip = case_of(item), item.get_closest_marker("skip")
        two = "client_sessions" in item.fixturenames
        reason = skip.kwargs.get("reason", "") if skip else ""
        print("case", case.id, item_variant(item), case.level.value, two, reason, case.section, sep="|")
"""


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, str]]:
    """A row for each case and variant."""
    here = tmp_path_factory.mktemp("collected")
    (here / "targets.yaml").write_text(TARGETS)
    (here / "pytest.ini").write_text("[pytest]\n")
    (here / "listing.py").write_text(LIST)
    argv = [sys.executable, "-m", "pytest", "-p", "listing", "-p", "no:cacheprovider", "--co", "-q"]
    options = ["--import-mode=importlib", "-c", str(here / "pytest.ini"), str(SUITE)]
    done = subprocess.run(
        [*argv, *options], cwd=here, capture_output=True, text=True, check=True, timeout=300
    )
    names = ("id", "variant", "level", "two", "skip", "section")
    found = [line.split("|")[1:] for line in done.stdout.splitlines() if line.startswith("case|")]
    return [dict(zip(names, row, strict=True)) for row in found]


def test_there_are_cases_over_the_whole_ground(rows: list[dict[str, str]]) -> None:
    ids = {row["id"] for row in rows}
    assert len(ids) >= 160
    grounds = {identifier.split("-")[1] for identifier in ids}
    assert grounds == {
        *("STRIPE", "POOL", "INHERIT", "LAYOUT", "REFUSED", "PFL", "DOM", "MIGRATE", "FIEMAP", "QUOTA"),
        *("CHANGELOG", "GROUP", "LLOCK", "ATTR", "XATTR", "ACL", "UNLINK", "APPEND", "EXEC", "FSX", "MMAP"),
        *("DIRECT", "TORN", "PDO", "FLOCK", "INACTIVE", "FULL", "RECOVERY"),
    }
    assert all(re.fullmatch(r"LUS-[A-Z]+-\d\d", identifier) for identifier in ids)


def test_the_cases_run_on_lustre_and_nowhere_else(rows: list[dict[str, str]]) -> None:
    faults = {row["id"] for row in rows if row["variant"] == "fs" and row["skip"]}
    assert {identifier.split("-")[1] for identifier in faults} == {"INACTIVE", "FULL", "RECOVERY"}
    assert all(row["skip"].startswith("nas has no layouts") for row in rows if row["variant"] == "nas")


def test_a_fault_runs_only_if_the_target_has_its_controls(rows: list[dict[str, str]]) -> None:
    reasons = {row["id"].split("-")[1]: row["skip"] for row in rows if row["variant"] == "fs"}
    assert reasons["INACTIVE"] == "fs has no ost_deactivation"
    assert reasons["FULL"] == "fs has no space_exhaustion"
    assert reasons["RECOVERY"] == "fs has no mds_restart"
    with_controls = [row["skip"] for row in rows if row["variant"] == "lab"]
    assert set(with_controls) == {""}
    assert len(with_controls) == len({row["id"] for row in rows})


def test_about_half_of_the_cases_need_two_clients(rows: list[dict[str, str]]) -> None:
    two = {row["id"] for row in rows if row["two"] == "True"}
    assert len(two) >= 70
    assert len({row["id"] for row in rows} - two) >= 70


def test_a_section_names_a_page(rows: list[dict[str, str]]) -> None:
    pages = (
        r"lfs-\w+\(1\)",
        r"llapi_group_lock\(3\)",
        "Lustre Operations Manual: ",
        r"POSIX\.1-2024 \w+\(\)",
    )
    known = re.compile("|".join([*pages, r"(xattr|acl)\([57]\)", r"open\(2\)", "Linux, Documentation/"]))
    assert [row["section"] for row in rows if not known.match(row["section"])] == []


def test_every_case_is_in_a_row_of_the_requirements(rows: list[dict[str, str]]) -> None:
    held = {case for row in read(SUITE / "requirements" / "lustre.toml").requirements for case in row.cases}
    assert {row["id"] for row in rows} == held


@pytest.mark.parametrize("path", ON_A_CLIENT, ids=lambda path: path.stem)
def test_module_imports_only_what_the_client_has(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"), feature_version=OLDEST_PYTHON)
    for node in ast.walk(tree):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        for name in names:
            standard = name.partition(".")[0] in sys.stdlib_module_names
            assert standard or name == "pytest" or name.startswith("storagetest.agent"), name


@pytest.mark.parametrize("path", sorted(SUITE.glob("test_*.py")), ids=lambda path: path.stem)
def test_each_case_has_a_sentence_as_docstring(path: Path) -> None:
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
            assert (ast.get_docstring(node) or "").endswith("."), node.name
