"""config: comparisons of two variants, and what is wrong with them."""

from __future__ import annotations

import pytest

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
        (comparison("shelf-v3 <= shelf-v4.0"), "did you mean shelf-v3 >= 1 x shelf-v4.0?"),
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
def test_an_error_names_its_location(error_of, text, message):
    error = str(error_of(text))
    assert message in error
    assert error.split(":")[1].isdigit()


def test_the_schema_knows_no_other_keys(fits_schema):
    good = {"workload": "stream", "metric": "iops", "gate": "a >= b"}
    assert fits_schema(comparisons={"pair": good})
    assert not fits_schema(comparisons={"pair": {**good, "also": 1}})
    assert not fits_schema(comparisons={"pair": {"workload": "stream"}})
