"""config: comparisons, controls and known issues, and what is wrong with them."""

from datetime import date
from pathlib import Path

import pytest

from storagetest.config.controls import COMMANDS, ON_THE_SERVER, PAIRS
from storagetest.config.implementations import Implementation
from storagetest.deprecation import StoragetestDeprecationWarning
from storagetest.errors import ConfigError

HEAD = """\
version: 1
clients: {one: {transport: local}, two: {transport: local}}
targets:
  shelf: {protocol: shelf, address: a.example.net, path: /a, matrix: {version: ["3", "4.0"]}, client: one}
  first: {protocol: drawer, number: 1, erase: naa.1, client: one}
  again: {protocol: drawer, number: 2, erase: naa.1, client: one}
  apart: {protocol: drawer, number: 3, client: two}
"""


def comparison(gate: str, *, metric: str = "iops", workload: str = "stream[direction=read]") -> str:
    return f"{HEAD}comparisons:\n  pair: {{workload: '{workload}', metric: {metric}, gate: {gate}}}\n"


def test_a_comparison_is_read_and_the_schema_takes_it(load_text):
    text = comparison("shelf-v4.0 >= 1.1 x shelf-v3")
    (found,) = load_text(text).comparisons
    assert (found.name, found.workload, dict(found.parameters)) == ("pair", "stream", {"direction": "read"})
    assert (found.left.id, found.right.id) == ("shelf-v4.0", "shelf-v3")
    threshold = found.threshold
    assert (threshold.metric.name, threshold.op, threshold.bound) == ("iops", ">=", 1.1)
    assert threshold.against == "shelf-v3"
    assert threshold.text == "iops: shelf-v4.0 >= 1.1 x shelf-v3"


def test_a_target_with_one_variant_is_named_by_its_name(load_text):
    (found,) = load_text(comparison("first >= shelf-v3")).comparisons
    assert (found.left.id, found.threshold.bound) == ("first", 1.0)


@pytest.mark.parametrize(
    ("gate", "op"), [("shelf-v3 >= 1.7 x first", ">="), ("shelf-v3 <= 0.9 x first", "<=")]
)
@pytest.mark.parametrize("metric", ["iops", "p99"])
def test_a_comparison_may_require_either_side_to_be_the_better(load_text, gate, op, metric):
    (found,) = load_text(comparison(gate, metric=metric)).comparisons
    assert (found.threshold.op, found.threshold.metric.name) == (op, metric)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            comparison("shelf >= first"),
            "the target 'shelf' has several variants; name one: shelf-v3, shelf-v4.0",
        ),
        (comparison("shelv >= first"), "unknown variant 'shelv'"),
        (comparison("first >= first"), "first is compared with itself"),
        (comparison("first >= again"), "first and again are one device, which cannot be attached twice"),
        (comparison("first >= apart"), "first and apart have no client in common"),
        (comparison("shelf-v3 is better"), "a comparison reads like"),
        (comparison("shelf-v3 >= 0 x first"), "a factor of 0 compares nothing"),
        (comparison("shelf-v3 >= first", metric="speed"), "stream has no metric 'speed'"),
        (comparison("shelf-v3 >= first", workload="stream[dir=read]"), "stream has no parameter 'dir'"),
        (comparison("shelf-v3 >= first", workload="strem"), "unknown workload 'strem'"),
        (HEAD + "comparisons: [x]\n", "expected a mapping (key: value)"),
        (HEAD + "comparisons: {a.b: {workload: stream, metric: iops, gate: a >= b}}\n", "invalid name"),
        (HEAD + "comparisons: {pair: {workload: stream, gate: a >= b}}\n", "comparisons.pair.metric: "),
        (
            HEAD + "comparisons: {pair: {workload: 5, metric: iops, gate: a >= b}}\n",
            "comparisons.pair.workload: ",
        ),
    ],
)
def test_an_error_in_a_comparison_names_its_location(error_of, text, message):
    error = str(error_of(text))
    assert message in error
    assert error.split(":")[1].isdigit()


def test_the_schema_knows_no_other_keys(fits_schema):
    good = {"workload": "stream", "metric": "iops", "gate": "a >= b"}
    assert fits_schema(comparisons={"pair": good})
    assert not fits_schema(comparisons={"pair": {**good, "also": 1}})
    assert not fits_schema(comparisons={"pair": {"workload": "stream"}})


ARRAY = """\
version: 1
servers:
  array: {transport: local}
targets:
"""


def target(settings: str, *, server: str = "server: array") -> str:
    return f"{ARRAY}  first: {{protocol: drawer, number: 1, {settings}, {server}}}\n"


def test_controls_are_command_lines_in_pairs(load_text):
    settings = (
        "controls: {grow: [lvextend, -L, 2g], shrink: [lvreduce, -L, 1g], isolate: [cut], reconnect: [mend]}"
    )
    (variant,) = load_text(target(settings)).variants
    assert variant.controls.grow == ("lvextend", "-L", "2g")
    assert variant.controls.reconnect == ("mend",)
    assert variant.controls.capabilities == {"resize", "isolation"}
    assert variant.controls.pair("isolation") == (("cut",), ("mend",))
    (plain,) = load_text(target("optional: false")).variants
    assert plain.controls.capabilities == frozenset()


@pytest.mark.parametrize("capability", PAIRS)
def test_each_pair_of_controls_is_a_capability(load_text, capability):
    do, undo = PAIRS[capability]
    settings = f"controls: {{{do}: [do, it], {undo}: [undo]}}"
    (variant,) = load_text(target(settings)).variants
    assert variant.controls.capabilities == {capability}
    assert variant.controls.pair(capability) == (("do", "it"), ("undo",))


def test_controls_of_a_client_need_no_server(load_text):
    for capability in COMMANDS.keys() - ON_THE_SERVER:
        do, undo = PAIRS[capability]
        assert load_text(
            target(f"controls: {{{do}: [do], {undo}: [undo]}}", server="optional: false")
        ).variants


@pytest.mark.parametrize("capability", sorted(ON_THE_SERVER))
def test_controls_of_a_server_need_its_name(error_of, capability):
    names = COMMANDS[capability]
    lines = ", ".join(f"{name}: [do]" for name in names)
    error = str(error_of(target(f"controls: {{{lines}}}", server="optional: false")))
    assert f"{' and '.join(names)} {'are' if len(names) > 1 else 'is'} run on its server; name that" in error


def test_a_restart_is_a_capability(load_text):
    (variant,) = load_text(target("controls: {restart: [reboot]}")).variants
    assert variant.controls.capabilities == {"restart"}


@pytest.mark.parametrize(
    ("settings", "server", "sentence"),
    [
        ("controls: {grow: [x]}", "server: array", "grow and shrink go together"),
        ("controls: {reconnect: [x]}", "server: array", "isolate and reconnect go together"),
        ("controls: {remove_device: [x]}", "server: array", "remove_device and return_device go together"),
        ("controls: {grow: [], shrink: [x]}", "server: array", "grow"),
        ("controls: {grow: ls -l, shrink: [x]}", "server: array", "grow"),
        ("controls: {halt: [x]}", "server: array", "halt"),
        ("controls: {grow: [x], shrink: [x]}", "optional: false", "are run on its server; name that"),
        ("controls: {restart: [x]}", "optional: false", "restart is run on its server; name that"),
        ("same_data: first", "server: array", "this is the target itself"),
        ("same_data: frist", "server: array", "unknown target 'frist'"),
    ],
)
def test_an_error_in_controls_names_its_location(error_of, settings, server, sentence):
    error = str(error_of(target(settings, server=server)))
    assert error.startswith("t.yaml:5:")
    assert sentence in error


def test_another_target_of_the_same_data(load_text):
    text = target("same_data: second") + "  second: {protocol: drawer, number: 2}\n"
    first, second = load_text(text).variants
    assert (first.same_data, second.same_data) == ("second", None)


def test_the_schema_knows_them(fits_schema):
    assert fits_schema({"controls": {"grow": ["x"], "shrink": ["y"]}, "same_data": "second"})
    for bad in ({"halt": ["x"]}, {"grow": []}, {"grow": "x"}):
        assert not fits_schema({"controls": bad})


def test_the_old_keys_are_accepted_with_a_warning(load_text, error_of):
    text = target("controls: {cut_off: [cut], let_back: [mend]}")
    with pytest.warns(
        StoragetestDeprecationWarning, match="the key (cut_off|let_back) .* Use (isolate|reconnect)"
    ):
        (variant,) = load_text(text).variants
    assert variant.controls.isolate == ("cut",)
    both = error_of(target("controls: {cut_off: [a], isolate: [b], reconnect: [c]}"))
    assert "cut_off is the old name of isolate: give one of them" in str(both)


SHELF = """\
version: 1
targets:
  shelf: {protocol: shelf, address: a.example.net, path: /a, matrix: {version: ["3", "4.0"]}}
  first: {protocol: drawer, number: 1}
"""
LIST = """\
- cases: [PSX-UTIME-ROUND, "PSX-ACL-*"]
  variants: [shelf-v3, "fir*"]
  implementation: box
  versions: ">=1"
  message: ["* == *"]
  reason: times are kept to the second
  owner: storage team
  expires: 2027-03-31
  reference: BUG-1
"""


def entry(**changed: str | None) -> str:
    entry = {
        "cases": "[A-1]",
        "implementation": "box",
        "versions": '"<2"',
        "message": "[it *]",
        "reason": "r",
        "owner": "o",
        "expires": "2027-03-31",
        **changed,
    }
    pairs = ", ".join(f"{key}: {value}" for key, value in entry.items() if value is not None)
    return f"{SHELF}known_issues:\n  - {{{pairs}}}\n"


BOX = Implementation("box", "1.9")
ANYTHING: dict[str, str | None] = {"implementation": None, "versions": None, "outcome": "allow"}


def test_a_list_is_read(load_text):
    loaded = load_text(f"{SHELF}known_issues:\n{LIST}")
    (issue,) = loaded.known_issues
    assert issue.cases == (("PSX-UTIME-ROUND", "t.yaml:6:11"), ("PSX-ACL-*", "t.yaml:6:28"))
    assert (issue.entry.expires, issue.entry.strict, issue.place) == (date(2027, 3, 31), True, "t.yaml:6:3")
    assert str(issue) == "times are kept to the second (storage team, BUG-1; t.yaml:6:3)"
    variants = {variant.id: variant for variant in loaded.variants}
    assert {name: issue.covers("PSX-ACL-3", one, BOX) for name, one in variants.items()} == {
        "shelf-v3": True,
        "shelf-v4.0": False,
        "first": True,
    }
    assert not issue.covers("PSX-OPEN-EXCL", variants["first"], BOX)


def test_a_target_names_all_its_variants_and_none_means_all(load_text):
    by_target, everywhere = (
        load_text(entry(variants=variants)).known_issues[0] for variants in ("[shelf]", None)
    )
    variants = load_text(SHELF).variants
    assert [by_target.covers("A-1", one, BOX) for one in variants] == [True, True, False]
    assert [everywhere.covers("A-1", one, BOX) for one in variants] == [True, True, True]


def test_an_entry_is_about_what_all_its_keys_name(load_text):
    named = "/a, implementation: {name: knfsd, version: 6.1.0-56},"

    def covered(**keys: str | None) -> list[bool | None]:
        loaded = load_text(entry(**keys).replace("/a,", named))
        issue = loaded.known_issues[0]
        return [issue.covers("A-1", each, each.implementation) for each in loaded.variants]

    knfsd = {"implementation": "knfsd", "versions": '">=6.1,<6.2"'}
    assert covered(**knfsd) == [True, True, False]
    assert covered(**{**knfsd, "versions": '">=6.2"'}) == [False, False, False]
    assert covered(**knfsd, where="{version: ['3', '4.1']}") == [True, False, False]
    assert covered(**ANYTHING, where="{target: first}") == [False, False, True]
    assert covered(**ANYTHING, variants="[shelf]", where="{version: '4.0'}") == [False, True, False]


def test_an_entry_about_versions_needs_that_the_version_is_known(load_text):
    loaded = load_text(entry())
    issue, variant = loaded.known_issues[0], loaded.variants[0]
    versions = ("1.9-rc", "2", "", "unknown")
    found = [issue.covers("A-1", variant, Implementation("box", version)) for version in versions]
    assert found == [True, False, None, None]
    assert issue.covers("A-1", variant, Implementation("other")) is False
    assert issue.covers("A-2", variant, Implementation("box")) is False


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ("{name: a/b}", r"t.yaml:3:\d+: targets.shelf.implementation.name: "),
        ("{version: 6.1.2}", r"t.yaml:3:\d+: targets.shelf.implementation.name: this is missing"),
        (
            "{name: a, version: newest}",
            r"implementation.version: expected a version that begins with a number",
        ),
        ("{name: a, version: 6.1}", r"implementation.version: 6.1 is a number in YAML, not text: quote it"),
        ("{name: a, release: '1'}", r"implementation.release: no such key"),
    ],
)
def test_an_error_in_an_implementation_names_its_location(load_text, written: str, message: str):
    with pytest.raises(ConfigError, match=message):
        load_text(SHELF.replace("/a,", f"/a, implementation: {written},"))


def test_a_message_is_compared_with_the_first_line(load_text):
    issue = load_text(entry(message='["4 == *", "refused*"]')).known_issues[0]
    assert issue.expects("4 == 5\nmore")
    assert issue.expects("refused by EIO")
    assert not issue.expects("5 == 4\n4 == 5")


def test_a_separate_file_is_read_in_addition_to_the_targets_file(load_text, tmp_path: Path):
    (tmp_path / "known").mkdir()
    (tmp_path / "known" / "nas.yaml").write_text(LIST, encoding="utf-8")
    (issue,) = load_text(f"{SHELF}known_issues: known/nas.yaml\n").known_issues
    assert issue.place == "known/nas.yaml:1:3"
    (tmp_path / "known" / "nas.yaml").write_text(LIST.replace("owner", "ovner"), encoding="utf-8")
    with pytest.raises(ConfigError, match=r"known/nas.yaml:7:3: .*ovner: no such key; did you mean 'owner'"):
        load_text(f"{SHELF}known_issues: known/nas.yaml\n")


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
            entry(vendor="b"),
            r"t.yaml:6:\d+: known_issues.0.vendor: this key was removed. Write `implementation`",
        ),
        (
            entry(message=None),
            r"t.yaml:6:5: known_issues.0: an expected failure requires `message`, globs of",
        ),
        (
            entry(versions=None),
            r"t.yaml:6:5: known_issues.0: an expected failure requires `versions`, such as",
        ),
        (entry(implementation=None), r"known_issues.0: `versions` requires `implementation`"),
        (entry(message='["*"]'), r"known_issues.0: `message` matches every failure"),
        (entry(expires="2999-12-31"), r"known_issues.0: `expires` is 2999-12-31, which is more than a year"),
        (entry(versions="1"), r"known_issues.0.versions: expected a range of versions in quotes"),
        (entry(where="{versoin: '3'}"), r"known_issues.0: where: no protocol has an option versoin"),
        (entry(outcome="allow", message=None), r"known_issues.0: `outcome: allow` requires `message`"),
        (entry(outcome="skip", message="[a]"), r"known_issues.0: `outcome: skip` does not allow `message`"),
        (
            entry(outcome="xfail"),
            r"t.yaml:6:\d+: known_issues.0.outcome: 'xfail' is not 'fail', 'skip' or 'all",
        ),
        (entry(strict="maybe"), r"t.yaml:6:\d+: known_issues.0.strict: expected true or false"),
        (f"{SHELF}known_issues: {{A-1: x}}\n", r"t.yaml:5:15: known_issues: expected a list"),
        (f"{SHELF}known_issues: [A-1]\n", r"t.yaml:5:16: known_issues.0: expected a mapping \(key: value\)"),
        (f"{SHELF}known_issues: none.yaml\n", r"t.yaml:5:15: known_issues: no such file: none.yaml"),
    ],
)
def test_an_error_in_a_known_issue_names_its_location(load_text, text: str, message: str):
    with pytest.raises(ConfigError, match=message):
        load_text(text)


def test_the_schema_takes_both_forms(fits_schema):
    good = {"cases": ["A-1"], "reason": "r", "owner": "o", "expires": "2027-03-31", "versions": "<2"}
    for known in ("known.yaml", [good], [], [{**good, "strict": False, "reference": "x", "variants": ["*"]}]):
        assert fits_schema(known_issues=known)
    for bad in ({}, [{**good, "until": "x"}], [{key: good[key] for key in ("cases", "reason")}], ""):
        assert not fits_schema(known_issues=bad)
