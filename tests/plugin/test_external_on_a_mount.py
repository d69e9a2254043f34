"""External suites on a client's mount. The suite in this test runs a shell script."""

from datetime import datetime, timedelta
from pathlib import Path

import pytest
from pytest_results import assert_result

SUITE = '''
from collections.abc import Mapping
from typing import ClassVar

from storagetest.external.base import ItemOutcome, Invocation, ClientSuite, ItemResult, register


@register
class Mounted(ClientSuite):
    """A suite whose tests print their names."""

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
        return ItemResult(known.get(test, ItemOutcome.BROKEN), f"{test} as intended", stdout)
'''


@pytest.fixture
def run_suite(run_pytest, pytester, tmp_path):
    """Return a function that runs pytest on the suite's file, with the lines ``more``."""

    def run(*arguments: str, more: str = "", **targets: str) -> pytest.RunResult:
        pytester.makeconftest(SUITE + f"\n\nLOG = {str(tmp_path / 'log')!r}\n")
        (pytester.path / "mounted.external.toml").write_text(f'suite = "mounted"\n{more}')
        return run_pytest("-rA", "--st-target", "disk", *arguments, suite="", **targets)

    return run


def implementation(name: str) -> str:
    """Return a targets file with the implementation's name."""
    target = f"{{protocol: local, path: DIRECTORY/disk, clients: [here], implementation: {name}}}"
    return f"version: 1\nclients: {{here: {{transport: local}}}}\ntargets: {{disk: {target}}}\n"


def test_each_test_has_its_own_directory_on_one_mount_and_leaves_nothing(run_suite, pytester, tmp_path):
    result = run_suite()
    result.assert_outcomes(passed=1, skipped=1, failed=1, errors=1)
    result.stdout.fnmatch_lines_random(["SKIPPED*skips as intended", "*WorkloadError: crashes as intended*"])
    directories = [Path(path) for path in (tmp_path / "log").read_text(encoding="utf-8").split()]
    assert [path.name for path in directories] == ["passes", "skips", "fails", "crashes"]
    assert len({path.parent for path in directories}) == 1, "attached once"
    assert list((pytester.path / "disk").iterdir()) == []


def test_a_client_without_the_program_is_a_skip_that_names_the_package(run_suite):
    result = run_suite(more='program = "/opt/no-such-program"\n')
    message = "SKIPPED*/opt/no-such-program is not installed on here: dash (Debian)"
    assert_result(result, message, skipped=4)


@pytest.mark.parametrize("workers", [(), ("-n", "2")], ids=["alone", "workers"])
def test_a_suite_that_is_absent_is_named_in_every_summary(run_suite, workers: tuple[str, ...]):
    result = run_suite("-r", "N", *workers, more='program = "/opt/no-such-program"\n')
    line = "/opt/no-such-program is not installed on here: dash (Debian) (4 skipped)"
    assert result.stdout.str().count(line) == 1


def test_the_file_may_name_the_program(run_suite):
    run_suite("-k", "passes", more='program = "/bin/sh"\n').assert_outcomes(passed=1, deselected=3)


LAST_DAY = datetime.now().astimezone().date() + timedelta(days=300)


def test_a_known_issue_of_an_implementation_is_expected(run_suite):
    known = f'owner = "ann"\nexpires = {LAST_DAY}\n[[known_issues]]\nimplementation = "box"\n'
    known += 'versions = "==1"\ntests = ["fails"]\nmessage = ["fails *"]\nreason = "known defect"\n'
    for version, outcome in (("1.0.0", "xfailed"), ("1.0.1", "failed")):
        named = implementation(f"{{name: box, version: {version}}}")
        result = run_suite("-k", "fails", more=known, targets=named)
        result.assert_outcomes(deselected=3, **{outcome: 1})


def test_a_test_with_outcome_skip_is_not_run(run_suite, tmp_path):
    known = f'expires = {LAST_DAY}\n[[known_issues]]\nwhere = {{protocol = "local"}}\ncases = ["*"]\n'
    run_suite(more=f'{known}reason = "r"\noutcome = "skip"\n').assert_outcomes(skipped=4)
    assert not (tmp_path / "log").exists()


def test_collection_contacts_no_client(run_suite, tmp_path):
    result = run_suite("--collect-only", "-q")
    result.stdout.fnmatch_lines(["*::passes[[]disk]", "*4 tests collected*"])
    assert not (tmp_path / "log").exists()
