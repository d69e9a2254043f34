"""known_issues.toml: its entries, and errors in a file."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path

import pytest

from storagetest.plugin.conformance.known_issues_table import read_suite_table

LAST_DAY = datetime.now().astimezone().date() + timedelta(days=300)
FAIL = f"""\
owner = "ann"
expires = {LAST_DAY}

[[known_issues]]
implementation = "knfsd"
versions = ">=6.1,<6.6"
where = {{ version = "4.2" }}
cases = ["A-1", "B-*"]
message = ["it *"]
reason = "r"
reference = "s"
strict = false
"""
SKIP = """\
[[known_issues]]
cases = ["A-2"]
where = { protocol = "nfs" }
outcome = "skip"
reason = "r"
reference = "s"
"""
FAULTS = """\
[[known_issues]]
faults = ["a bit is set"]
implementation = "box"
versions = "==2"
where = { protocol = "iscsi" }
reason = "r"
reference = "s"
"""
ALLOW = SKIP.replace('outcome = "skip"', 'outcome = "allow"\nmessage = ["", "x*"]').replace("A-2", "A-3")


def write(directory: Path, text: str, name: str = "known_issues.toml") -> Path:
    directory.mkdir(exist_ok=True)
    (directory / name).write_text(text, encoding="utf-8")
    return directory


def test_a_table_is_read(tmp_path):
    fail, skip, allow = read_suite_table(write(tmp_path / "posix", FAIL + SKIP + ALLOW))
    assert [glob for glob, _ in fail.cases] == ["A-1", "B-*"]
    assert (fail.entry.implementation, fail.entry.where) == ("knfsd", {"version": "4.2"})
    assert fail.entry.versions is not None
    assert [fail.entry.versions.contains(version) for version in ("6.1.0-56-cloud-amd64", "6.6")] == [
        True,
        False,
    ]
    assert (fail.entry.owner, fail.entry.expires, fail.entry.strict) == ("ann", LAST_DAY, False)
    assert str(fail) == f"r (ann, s; {tmp_path}/posix/known_issues.toml:4:1)"
    assert (skip.entry.outcome, skip.entry.owner, skip.entry.expires) == ("skip", "ann", LAST_DAY)
    assert (allow.entry.outcome, allow.entry.message) == ("allow", ("", "x*"))
    assert allow.place == f"{tmp_path}/posix/known_issues.toml:19:1"
    assert read_suite_table(tmp_path) == ()


def test_an_entry_about_versions_needs_no_last_day(tmp_path):
    text = SKIP.replace("where", 'implementation = "box"\nversions = "==2"\nwhere')
    (skip,) = read_suite_table(write(tmp_path, text))
    assert (skip.entry.expires, skip.entry.implementation) == (None, "box")


def test_an_entry_about_faults_is_about_no_case(tmp_path):
    (known,) = read_suite_table(write(tmp_path, FAIL.partition("[[")[0] + FAULTS))
    assert (known.entry.faults, known.entry.cases, known.cases) == (("a bit is set",), (), ())
    assert not known.covers_case("A-1")


@pytest.mark.parametrize("name", ["known.toml", "expectations.toml"])
def test_a_file_of_an_earlier_release_is_an_error_that_names_what_to_write(tmp_path, name: str):
    with pytest.raises(
        pytest.UsageError, match=rf"{name}: this file is not read any more. Write its entries to "
    ):
        read_suite_table(write(tmp_path, "", name))


SHARED = FAIL.partition("[[")[0]
TABLE = "known_issues.toml"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[known_issues\n", r"known_issues.toml:1:14: not TOML: Expected ']'"),
        ("a = 1\n", r"known_issues.toml:1:1: a: no such key; known: expires, known_issues, owner"),
        ("known_issues = 1\n", r":1:1: known_issues: expected \[\[known_issues\]\]"),
        (f"{SHARED}[[known_issue]]\n", r":4:1: known_issue: no such key; did you mean 'known_issues'"),
        (FAIL.replace("reference", "refrence"), ":11:1: known_issues.refrence: no such key; did you mean"),
        (FAIL.replace('reference = "s"\n', ""), ":4:1: known_issues.reference: this is missing"),
        (FAIL.replace('owner = "ann"\n', ""), "an expected failure requires `owner` and `expires`"),
        (FAIL.replace(f"expires = {LAST_DAY}\n", ""), "an expected failure requires `owner` and `expires`"),
        (
            FAIL.replace(f"{LAST_DAY}", f"{LAST_DAY}T00:00:00Z"),
            "expires: expected a date, such as 2027-03-31",
        ),
        (
            FAIL.replace('message = ["it *"]\n', ""),
            f"{TABLE}:4:1: known_issues: an expected failure requires `message`, globs of the failure",
        ),
        (
            FAIL.replace('versions = ">=6.1,<6.6"\n', "").replace('message = ["it *"]\n', ""),
            "an expected failure requires `versions`, such as .* and `message`, globs of",
        ),
        (
            FAIL.replace('implementation = "knfsd"\n', ""),
            "`versions` requires `implementation`, whose versions",
        ),
        (
            FAIL.replace(">=6.1,<6.6", "6.1"),
            f"{TABLE}:6:12: .*versions: expected a range of versions, such as",
        ),
        (FAIL.replace('">=6.1,<6.6"', "6.1"), r"versions: expected a range of versions in quotes, such as"),
        (
            FAIL.replace("it *", "*"),
            "`message` matches every failure: name the text of the one that is expected",
        ),
        (
            FAIL.replace(f"{LAST_DAY}", "2999-12-31"),
            "`expires` is 2999-12-31, which is more than a year ahead",
        ),
        (
            FAIL.replace("implementation", "vendor"),
            f"{TABLE}:5:1: known_issues.vendor: this key was removed. Write `implementation`, such as",
        ),
        (
            FAIL.replace("implementation", "controller"),
            "known_issues.controller: this key was removed. Write",
        ),
        (FAIL.replace("version =", "versoin ="), "no protocol has an option versoin"),
        (FAIL.replace("version =", "implementation ="), "no protocol has an option implementation"),
        (FAIL.replace('["A-1", "B-*"]', "[]"), "expected a list of at least 1"),
        (FAIL.replace("false", '"no"'), ":12:10: known_issues.strict: expected true or false"),
        (
            FAIL + SKIP.replace("where", "#"),
            f"{TABLE}:13:1: known_issues: one of `where` and `implementation`",
        ),
        (SHARED + ALLOW.replace("message", "#"), "`outcome: allow` requires `message`"),
        (
            SKIP,
            f"{TABLE}:1:1: known_issues: an entry without an end: `expires` or `implementation` with `versi",
        ),
        (
            SKIP.replace("where", 'implementation = "box"\nversions = "==2"\nwhere').replace("A-2", "*"),
            "an entry about all cases requires `expires`",
        ),
        (
            SHARED + SKIP.replace("where", 'implementation = "box"\nwhere'),
            "`implementation` requires `versions`",
        ),
        (
            SHARED + FAULTS.replace("where", 'cases = ["A-1"]\nmessage = ["x"]\nwhere'),
            "`faults` does not allow `cases`, `message`: the entry is not about a case",
        ),
        (
            SHARED + FAULTS.replace("where", "strict = false\nwhere"),
            "`faults` does not allow `strict`: the entry is not about a case",
        ),
        (
            SHARED + FAULTS.replace('implementation = "box"\nversions = "==2"\n', ""),
            "`faults` requires `implementation`, its name at the target",
        ),
        (SHARED + FAULTS.replace('versions = "==2"\n', ""), "`implementation` requires `versions`"),
        (FAULTS, "an expected failure requires `owner` and `expires`"),
        (SHARED + FAULTS.replace('["a bit is set"]', "[]"), "expected a list of at least 1"),
        (SHARED + FAULTS.replace("faults", "# faults"), "`cases` is missing, or `faults`"),
        (FAIL + "run = false\n", "known_issues.run: no such key"),
        (FAIL + 'on = "V"\n', "known_issues.on: no such key"),
    ],
)
def test_an_invalid_table_is_an_error_that_names_its_place(tmp_path, text: str, words: str):
    with pytest.raises(pytest.UsageError, match=words) as raised:
        read_suite_table(write(tmp_path, text))
    assert str(tmp_path / "known_issues.toml") in str(raised.value)


def test_the_tables_of_the_suites_are_valid():
    suites = Path(__file__).parents[2] / "suites" / "conformance"
    assert any(read_suite_table.__wrapped__(path) for path in suites.iterdir())
