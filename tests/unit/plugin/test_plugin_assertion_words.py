"""Sentences of assertions without a message."""

import pytest

from storagetest.plugin.conformance.assertion_words import sentence


@pytest.mark.parametrize(
    ("source", "values", "expected"),
    [
        ("done.status == 0", "2 == 0", "`done.status` is 2; it has to be 0"),
        ("0 == done.status", "0 == 2", "`done.status` is 2; it has to be 0"),
        ("found == data", "b'a' == b'b'", "`found` is b'a'; it has to be `data`, b'b'"),
        ("session.tsih != 0", "0 != 0", "`session.tsih` is 0; it must not be 0"),
        ("len(a) <= n", "9 <= 8", "`len(a)` is 9; it has to be at most `n`, 8"),
        ("key in keys", "3 in [1, 2]", "`key` is 3; it has to be in `keys`, [1, 2]"),
        ("key not in keys", "1 not in [1, 2]", "`key` is 1; it must not be in `keys`, [1, 2]"),
        ("x is None", "<X 1> is None", "`x` is <X 1>; it has to be None"),
        ("x == LogoutResult.OK", "1 == <R.OK: 0>", "`x` is 1; it has to be `LogoutResult.OK`, <R.OK: 0>"),
        ("text == 'a == b'", "'c == d' == 'a == b'", "`text` is 'c == d'; it has to be 'a == b'"),
        ("not other.ended(within=0.2)", "", "`other.ended(within=0.2)` is true; it has to be false"),
        ("not found", "not [4]", "`found` is [4]; it has to be false"),
        ("answer.good", "", "`answer.good` is false; it has to be true"),
        ("answer.good", "None", "`answer.good` is None; it has to be true"),
        ("a == b", "", "`a` has to be `b`, and it is not"),
        ("a not in b", "", "`a` must not be in `b`, and it is"),
    ],
)
def test_an_assertion_is_a_sentence(source: str, values: str, expected: str) -> None:
    assert sentence(source, values) == expected


@pytest.mark.parametrize(
    ("source", "values"),
    [
        ("a == b", "<x == y> == <z == w>"),  # it is not certain which operator it is
        ("a and b", "(True and 0)"),
        ("0 < a < 3", "0 < 5"),
        ("all(x for", ""),
    ],
)
def test_other_forms_are_shown_as_they_are(source: str, values: str) -> None:
    assert sentence(source, values) == f"`{source}` is false" + (f": {values}" if values else "")


def test_long_values_are_cut() -> None:
    assert len(sentence("a == b", f"{b'x' * 5000!r} == {b'y' * 5000!r}")) < 700
