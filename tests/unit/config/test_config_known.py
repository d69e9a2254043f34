"""config: known issues, in the targets file and in one of their own, and what is wrong with them."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pytest

from storagetest.errors import ConfigError

HEAD = """\
version: 1
targets:
  shelf: {protocol: shelf, address: a.example.net, path: /a, matrix: {version: ["3", "4.0"]}}
  first: {protocol: drawer, number: 1}
"""
LIST = """\
- cases: [PSX-UTIME-ROUND, "PSX-ACL-*"]
  variants: [shelf-v3, "fir*"]
  reason: times are kept to the second
  owner: storage team
  expires: 2027-03-31
  reference: BUG-1
"""


def entry(**changed: str | None) -> str:
    entry = {"cases": "[A-1]", "reason": "r", "owner": "o", "expires": "2027-03-31", **changed}
    pairs = ", ".join(f"{key}: {value}" for key, value in entry.items() if value is not None)
    return f"{HEAD}known_issues:\n  - {{{pairs}}}\n"


def test_a_list_is_read(load_text):
    loaded = load_text(f"{HEAD}known_issues:\n{LIST}")
    (issue,) = loaded.known_issues
    assert issue.cases == (("PSX-UTIME-ROUND", "t.yaml:6:11"), ("PSX-ACL-*", "t.yaml:6:28"))
    assert (issue.entry.expires, issue.entry.strict, issue.place) == (date(2027, 3, 31), True, "t.yaml:6:3")
    assert str(issue) == "times are kept to the second (storage team, BUG-1; t.yaml:6:3)"
    variants = {variant.id: variant for variant in loaded.variants}
    assert {name: issue.covers("PSX-ACL-3", one) for name, one in variants.items()} == {
        "shelf-v3": True,
        "shelf-v4.0": False,
        "first": True,
    }
    assert not issue.covers("PSX-OPEN-EXCL", variants["first"])


def test_a_target_names_all_its_variants_and_none_means_all(load_text):
    by_target, everywhere = (
        load_text(entry(variants=variants)).known_issues[0] for variants in ("[shelf]", None)
    )
    variants = load_text(HEAD).variants
    assert [by_target.covers("A-1", one) for one in variants] == [True, True, False]
    assert [everywhere.covers("A-1", one) for one in variants] == [True, True, True]


def test_an_entry_is_about_what_all_its_keys_name(load_text):
    def covered(*, vendor: str = "", **keys: str) -> list[bool]:
        loaded = load_text(entry(**keys).replace("/a,", "/a, implementation: knfsd,"))
        return [loaded.known_issues[0].covers("A-1", each, vendor=vendor) for each in loaded.variants]

    assert covered(implementation="knfsd") == [True, True, False]
    assert covered(implementation="knfsd", where="{version: ['3', '4.1']}") == [True, False, False]
    assert covered(where="{target: first}") == [False, False, True]
    assert covered(variants="[shelf]", where="{version: '4.0'}") == [False, True, False]
    assert covered(vendor="ACME", reference="x") == [True, True, True]


def test_an_entry_about_a_vendor_needs_that_it_is_reported(load_text):
    loaded = load_text(entry(vendor="ACME"))
    issue, variant = loaded.known_issues[0], loaded.variants[0]
    assert issue.needs_report
    assert issue.covers("A-1", variant, vendor="ACME")
    assert not issue.covers("A-1", variant)
    assert not issue.covers("A-1", variant, vendor="OTHER")
    assert not issue.covers("A-1", variant, controller="ACME")


def test_a_message_is_compared_with_the_first_line(load_text):
    issue = load_text(entry(message='["4 == *", "refused*"]')).known_issues[0]
    assert issue.expects("4 == 5\nmore")
    assert issue.expects("refused by EIO")
    assert not issue.expects("5 == 4\n4 == 5")
    assert load_text(entry()).known_issues[0].expects("whatever it is")


def test_a_separate_file_is_read_in_addition_to_the_targets_file(load_text, tmp_path: Path):
    (tmp_path / "known").mkdir()
    (tmp_path / "known" / "nas.yaml").write_text(LIST, encoding="utf-8")
    (issue,) = load_text(f"{HEAD}known_issues: known/nas.yaml\n").known_issues
    assert issue.place == "known/nas.yaml:1:3"
    (tmp_path / "known" / "nas.yaml").write_text(LIST.replace("owner", "ovner"), encoding="utf-8")
    with pytest.raises(ConfigError, match=r"known/nas.yaml:4:3: .*ovner: no such key; did you mean 'owner'"):
        load_text(f"{HEAD}known_issues: known/nas.yaml\n")


def test_a_quoted_day_is_a_day(load_text):
    assert load_text(entry(expires='"2027-03-31"')).known_issues[0].entry.expires == date(2027, 3, 31)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            entry(owner=None),
            r"t.yaml:6:5: known_issues.0.owner: this is missing: The person or team that removes the cause",
        ),
        (entry(expires=None), r"t.yaml:6:5: known_issues.0.expires: this is missing: The last day"),
        (entry(expires="soon"), r"t.yaml:6:\d+: known_issues.0.expires: expected a date, such as 2027-03-31"),
        (entry(expires="2027-02-30"), r"t.yaml:6:\d+: known_issues.0.expires: 2027-02-30 is not a date"),
        (entry(expires="2027-03-31 10:00:00"), r"t.yaml:6:\d+: .*expires: expected a date"),
        (entry(expires="20270331"), r"t.yaml:6:\d+: .*expires: expected a date"),
        (entry(cases="[]"), r"t.yaml:6:\d+: known_issues.0.cases: expected a list of at least 1"),
        (entry(cases="A-1"), r"t.yaml:6:\d+: known_issues.0.cases: expected a list"),
        (entry(until="x"), r"t.yaml:6:\d+: known_issues.0.until: no such key"),
        (
            entry(variants="[shelv]"),
            r"t.yaml:6:\d+: .*variants: 'shelv' matches no variant; did you mean 'shelf'",
        ),
        (
            entry(implementation="a", vendor="b"),
            r"t.yaml:6:5: known_issues.0: expected only one of `implementation`, `vend",
        ),
        (entry(vendor="b", where="{version: '3'}"), r"known_issues.0: `where` is not allowed with `vendor`"),
        (entry(where="{versoin: '3'}"), r"known_issues.0: where: no protocol has an option versoin"),
        (entry(outcome="allow"), r"known_issues.0: `outcome: allow` requires `message`"),
        (entry(outcome="skip", message="[a]"), r"known_issues.0: `outcome: skip` does not allow `message`"),
        (
            entry(outcome="xfail"),
            r"t.yaml:6:\d+: known_issues.0.outcome: 'xfail' is not 'fail', 'skip' or 'all",
        ),
        (entry(strict="maybe"), r"t.yaml:6:\d+: known_issues.0.strict: expected true or false"),
        (f"{HEAD}known_issues: {{A-1: x}}\n", r"t.yaml:5:15: known_issues: expected a list"),
        (f"{HEAD}known_issues: [A-1]\n", r"t.yaml:5:16: known_issues.0: expected a mapping \(key: value\)"),
        (f"{HEAD}known_issues: none.yaml\n", r"t.yaml:5:15: known_issues: no such file: none.yaml"),
    ],
)
def test_an_error_names_its_location(load_text, text: str, message: str):
    with pytest.raises(ConfigError, match=message):
        load_text(text)


def test_the_schema_takes_both_forms(fits_schema):
    good = {"cases": ["A-1"], "reason": "r", "owner": "o", "expires": "2027-03-31"}
    for known in ("known.yaml", [good], [], [{**good, "strict": False, "reference": "x", "variants": ["*"]}]):
        assert fits_schema(known_issues=known)
    for bad in ({}, [{**good, "until": "x"}], [{key: good[key] for key in ("cases", "reason")}], ""):
        assert not fits_schema(known_issues=bad)
