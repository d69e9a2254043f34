"""Foreign suites on a client's mount, with a suite of our own: its program is a shell script."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

SUITE = '''
from collections.abc import Mapping
from typing import ClassVar

from storagetest.external.base import ItemOutcome, Invocation, ClientSuite, ItemResult, register


@register
class Mounted(ClientSuite):
    """A suite whose tests say what they are called."""

    name: ClassVar[str] = "mounted"
    program: ClassVar[str] = "sh"
    package: ClassVar[str] = "dash (Debian)"
    tests: ClassVar[tuple[str, ...]] = ("passes", "skips", "fails", "crashes")

    def files(self, test: str) -> Mapping[str, str]:
        return {"settings": test}

    def invocation(self, test: str, *, program: str, place: str, scratch: str) -> Invocation:
        script = 'ls -A "$1" && echo data >"$1/left" && cat "$2/settings" && pwd && echo "$1" >>LOG'
        return Invocation((program, "-c", script.replace("LOG", LOG), "sh", place, scratch))

    def verdict(self, test: str, *, status: int, stdout: str, stderr: str) -> ItemResult:
        assert status == 0 and stdout.startswith(test), stdout + stderr
        known = {"passes": ItemOutcome.PASSED, "skips": ItemOutcome.SKIPPED, "fails": ItemOutcome.FAILED}
        return ItemResult(known.get(test, ItemOutcome.BROKEN), f"{test} as it should", stdout)
'''


@pytest.fixture
def line(pytester: pytest.Pytester, tmp_path: Path):
    """Return a function that runs a pytest of its own on a file of wanted tests."""

    def run(*arguments: str, more: str = "", **target: str) -> pytest.RunResult:
        (tmp_path / "disk").mkdir(exist_ok=True)
        targets = {
            "disk": {"protocol": "local", "path": str(tmp_path / "disk"), "clients": ["here"], **target}
        }
        document = {"version": 1, "clients": {"here": {"transport": "local"}}, "targets": targets}
        pytester.path.joinpath("targets.yaml").write_text(json.dumps(document), encoding="utf-8")
        pytester.makeconftest(SUITE + f"\n\nLOG = {str(tmp_path / 'log')!r}\n")
        pytester.path.joinpath("mounted.external.toml").write_text(
            f'suite = "mounted"\n{more}', encoding="utf-8"
        )
        return pytester.runpytest_subprocess("-p", "no:cacheprovider", "-rA", *arguments)

    return run


def test_each_test_has_a_directory_of_its_own_on_one_mount_and_leaves_nothing(line, tmp_path: Path) -> None:
    result = line()
    result.assert_outcomes(passed=1, skipped=1, failed=1, errors=1)
    result.stdout.fnmatch_lines_random(
        ["SKIPPED*skips as it should", "*WorkloadError: crashes as it should*"]
    )
    places = [Path(place) for place in (tmp_path / "log").read_text(encoding="utf-8").split()]
    assert [place.name for place in places] == ["passes", "skips", "fails", "crashes"]
    assert len({place.parent for place in places}) == 1, "attached once"
    assert list((tmp_path / "disk").iterdir()) == []


def test_a_client_without_the_program_is_a_skip_that_says_where_it_comes_from(line) -> None:
    result = line(more='program = "/opt/no-such-program"\n')
    result.assert_outcomes(skipped=4)
    result.stdout.fnmatch_lines(["SKIPPED*/opt/no-such-program is not installed on here: dash (Debian)"])


def test_the_program_is_where_the_file_says(line) -> None:
    line("-k", "passes", more='program = "/bin/sh"\n').assert_outcomes(passed=1, deselected=3)


def test_what_an_implementation_is_known_to_fail_is_expected_to(line) -> None:
    known = 'owner = "ann"\nexpires = 2999-12-31\n[[known_issues]]\nimplementation = "box-1"\n'
    known += 'tests = ["fails"]\nreason = "it is so"\n'
    line("-k", "fails", more=known, implementation="box-1").assert_outcomes(xfailed=1, deselected=3)
    line("-k", "fails", more=known, implementation="box-2").assert_outcomes(failed=1, deselected=3)


def test_a_test_that_does_harm_is_skipped_and_runs_nothing(line, tmp_path: Path) -> None:
    known = '[[known_issues]]\nwhere = {protocol = "local"}\ncases = ["*"]\nreason = "r"\noutcome = "skip"\n'
    line(more=known).assert_outcomes(skipped=4)
    assert not (tmp_path / "log").exists()


def test_an_entry_of_an_earlier_release_names_the_implementation(line) -> None:
    known = '[[known]]\non = "box-1"\ntests = ["fails"]\nreason = "it is so"\n'
    result = line("-k", "fails", more=known, implementation="box-1")
    result.assert_outcomes(xfailed=1, deselected=3, warnings=2)
    result.stdout.fnmatch_lines_random(["*the key on is deprecated *. Use implementation."])


def test_collecting_asks_no_client(line, tmp_path: Path) -> None:
    result = line("--collect-only", "-q")
    result.stdout.fnmatch_lines(["*::passes[[]disk]", "*4 tests collected*"])
    assert not (tmp_path / "log").exists()
