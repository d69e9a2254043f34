"""known_issues.toml: its entries, the files and keys of earlier releases, and errors in a file."""

from __future__ import annotations

import warnings
from datetime import date
from pathlib import Path

import pytest

from storagetest.deprecation import StoragetestDeprecationWarning
from storagetest.plugin.conformance.known_issues_table import read_suite_table

FAIL = """\
owner = "ann"
expires = 2999-12-31

[[known_issues]]
implementation = "knfsd"
where = { version = "4.2" }
cases = ["A-1", "B-*"]
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
ALLOW = SKIP.replace('outcome = "skip"', 'outcome = "allow"\nmessage = ["", "x*"]').replace("A-2", "A-3")

OLD_KNOWN = FAIL.replace("[[known_issues]]", "[[issue]]").replace("reference", "says")
OLD_EXPECTATIONS = (
    (SKIP + ALLOW)
    .replace("[[known_issues]]", "[[expect]]")
    .replace('outcome = "skip"', "skip = true")
    .replace('outcome = "allow"\nmessage', "skip = false\nallow")
)


def write(directory: Path, text: str, name: str = "known_issues.toml") -> Path:
    directory.mkdir(exist_ok=True)
    (directory / name).write_text(text, encoding="utf-8")
    return directory


def test_a_table_is_read(tmp_path):
    fail, skip, allow = read_suite_table(write(tmp_path / "posix", FAIL + SKIP + ALLOW))
    assert [glob for glob, _ in fail.cases] == ["A-1", "B-*"]
    assert (fail.entry.implementation, fail.entry.where) == ("knfsd", {"version": "4.2"})
    assert (fail.entry.owner, fail.entry.expires, fail.entry.strict) == ("ann", date(2999, 12, 31), False)
    assert str(fail) == "r (ann, s; posix/known_issues.toml: entry 1)"
    assert (skip.entry.outcome, skip.entry.owner, skip.entry.expires) == ("skip", None, None)
    assert (allow.entry.outcome, allow.entry.message) == ("allow", ("", "x*"))
    assert str(allow) == "r (s; posix/known_issues.toml: entry 3)"
    assert read_suite_table(tmp_path) == ()


def test_the_files_of_earlier_releases_are_read_with_a_warning(tmp_path):
    new = read_suite_table(write(tmp_path / "new", FAIL + SKIP + ALLOW))
    old = write(write(tmp_path / "old", OLD_KNOWN, "known.toml"), OLD_EXPECTATIONS, "expectations.toml")
    with pytest.warns(StoragetestDeprecationWarning) as recorded:
        read = read_suite_table(old)
    assert [str(issue).partition(" (")[0] for issue in read] == ["r", "r", "r"]
    names = ("where", "implementation", "outcome", "message", "owner", "expires", "reference", "strict")
    for one, other in zip(read, new, strict=True):
        assert [getattr(one.entry, name) for name in names] == [getattr(other.entry, name) for name in names]
    assert sorted(str(warning.message).partition(": ")[2] for warning in recorded) == [
        f"the {old_name} is deprecated and will be removed in the next release. Use {new_name}."
        for old_name, new_name in (
            ("file expectations.toml", "known_issues.toml"),
            ("file known.toml", "known_issues.toml"),
            ("key allow", 'outcome = "allow" with message'),
            ("key says", "reference"),
            ("key skip", 'outcome = "skip"'),
            ("table [[expect]]", "[[known_issues]]"),
            ("table [[issue]]", "[[known_issues]]"),
        )
    ]


def test_the_current_files_cause_no_warning():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for path in (Path(__file__).parents[2] / "suites" / "conformance").iterdir():
            read_suite_table.__wrapped__(path)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[known_issues\n", r"known_issues.toml: "),
        ("a = 1\n", r"unknown: a. Expected \[\[known_issues\]\] tables, owner and expires"),
        ("known_issues = 1\n", r"known_issues: expected \[\[known_issues\]\]"),
        ("[[issue]]\n", r"unknown: issue"),
        (FAIL.replace("reference", "refrence"), "entry 1: known_issues.refrence: no such key; did you mean"),
        (FAIL.replace('reference = "s"\n', ""), "entry 1: known_issues.reference: this is missing"),
        (
            FAIL.replace('owner = "ann"\n', ""),
            "entry 1: known_issues: an expected failure requires `owner` and",
        ),
        (FAIL.replace("expires = 2999-12-31\n", ""), "an expected failure requires `owner` and `expires`"),
        (FAIL.replace("2999-12-31", "2999-12-31T00:00:00Z"), "expires: expected a date, such as 2027-03-31"),
        (FAIL.replace("implementation", "vendor"), "`where` is not allowed with `vendor` or `controller`"),
        (FAIL + 'vendor = "V"\n', "expected only one of `implementation`, `vendor` and `controller`"),
        (
            FAIL.replace('implementation = "knfsd"\n', ""),
            "an expected failure requires one of `implementation`",
        ),
        (FAIL.replace("version", "versoin"), "no protocol has an option versoin"),
        (FAIL.replace('["A-1", "B-*"]', "[]"), "expected a list of at least 1"),
        (FAIL.replace("false", '"no"'), "strict: expected true or false"),
        (FAIL + SKIP.replace("where", "#"), "entry 2: known_issues: one of `where`, `implementation`"),
        (ALLOW.replace("message", "#"), "`outcome: allow` requires `message`"),
        (FAIL + "run = false\n", "known_issues.run: no such key"),
        (FAIL + 'on = "V"\n', "known_issues.on: no such key"),
    ],
)
def test_an_invalid_table_is_an_error_that_names_the_entry(tmp_path, text: str, words: str):
    with pytest.raises(pytest.UsageError, match=words) as raised:
        read_suite_table(write(tmp_path, text))
    assert str(tmp_path / "known_issues.toml") in str(raised.value)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            OLD_EXPECTATIONS.replace("skip = true\n", ""),
            "entry 1: known_issues: an expected failure requires",
        ),
        (
            OLD_EXPECTATIONS.replace("skip = false", "skip = true"),
            "entry 2: .*`outcome: skip` does not allow `mess",
        ),
        (OLD_EXPECTATIONS.replace("skip = true", 'skip = "yes"'), "entry 1: skip: expected true or false"),
        (OLD_EXPECTATIONS + 'message = ["x"]\n', "entry 2: allow is another name of message"),
        (OLD_EXPECTATIONS + "[[issue]]\n", "unknown: issue"),
    ],
)
@pytest.mark.filterwarnings("ignore::storagetest.deprecation.StoragetestDeprecationWarning")
def test_an_invalid_table_of_an_earlier_release_is_an_error(tmp_path, text: str, words: str):
    with pytest.raises(pytest.UsageError, match=words):
        read_suite_table(write(tmp_path, text, "expectations.toml"))
