"""The cases that a case of the suites builds on."""

import subprocess
import sys

import pytest

from storagetest.installed_suites import SUITES
from storagetest.plugin.conformance.causes import Built, bases_first

LIST = """\
import pytest

CASES = []

@pytest.hookimpl(tryfirst=True)
def pytest_itemcollected(item):
    from storagetest.plugin.conformance.cases import case_of
    CASES.append(case_of(item))

def pytest_collection_finish():
    for case in CASES:
        print("case", case.id, case.level.value, *case.builds_on)
"""
TARGETS = """\
version: 1
clients: {here: {transport: local}}
targets: {disk: {protocol: local, path: /var/tmp, clients: [here]}}
"""


@pytest.fixture(scope="module")
def cases(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[str, list[str]]]:
    """Level and bases of each case of the suites."""
    here = tmp_path_factory.mktemp("collected")
    (here / "targets.yaml").write_text(TARGETS)
    (here / "pytest.ini").write_text("[pytest]\n")
    (here / "listing.py").write_text(LIST)
    argv = [sys.executable, "-m", "pytest", "-p", "listing", "-p", "no:cacheprovider", "--co", "-q", "-n0"]
    argv += ["--import-mode=importlib", "-c", str(here / "pytest.ini"), str(SUITES / "conformance")]
    done = subprocess.run(argv, cwd=here, capture_output=True, text=True, check=True, timeout=120)
    rows = [line.split()[1:] for line in done.stdout.splitlines() if line.startswith("case ")]
    return {name: (level, bases) for name, level, *bases in rows}


def test_every_base_is_a_must_of_the_suites(cases: dict[str, tuple[str, list[str]]]) -> None:
    bases = {base for _, bases in cases.values() for base in bases}
    assert len(bases) > 5
    assert {base: cases.get(base, ("no case", []))[0] for base in bases} == dict.fromkeys(bases, "MUST")


def test_no_case_builds_on_itself_through_others(cases: dict[str, tuple[str, list[str]]]) -> None:
    def all_bases(name: str, path: tuple[str, ...] = ()) -> None:
        assert name not in path, f"a circle: {' → '.join([*path, name])}"
        for base in cases[name][1]:
            all_bases(base, (*path, name))

    for name in cases:
        all_bases(name)


def built(*names: str, **bases: tuple[str, ...]) -> list[Built]:
    item: pytest.Item = None  # type: ignore[assignment]  # not used
    return [Built(item, name[0], name[1:], bases.get(name[1:], ())) for name in names]


@pytest.mark.parametrize(
    ("items", "ordered"),
    [
        (built("va", "vb", "vc"), "va vb vc"),
        (built("va", "vb", "vc", a=("c",)), "vc va vb"),
        (built("va", "vb", "vc", a=("b",), b=("c",)), "vc vb va"),
        (built("va", "vb", a=("b",), b=("a",)), "vb va"),
        (built("va", "wb", a=("b",)), "va wb"),
        (built("va", "wa", "vb", "wb", a=("b",)), "vb va wb wa"),
        (built("va", "v", "v", "vb", a=("b",)), "vb va v v"),
    ],
)
def test_bases_run_first_on_their_variant(items: list[Built], ordered: str) -> None:
    assert " ".join(each.variant + each.id for each in bases_first(items)) == ordered
