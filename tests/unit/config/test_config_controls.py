"""config: what takes an administrator, and another target of the same data."""

from __future__ import annotations

import pytest

from storagetest.deprecation import StoragetestDeprecationWarning

HEAD = """\
version: 1
servers:
  array: {transport: local}
targets:
"""


def target(settings: str, *, server: str = "server: array") -> str:
    return f"{HEAD}  first: {{protocol: drawer, number: 1, {settings}, {server}}}\n"


def test_controls_are_command_lines_in_pairs(load_text):
    settings = (
        "controls: {grow: [lvextend, -L, 2g], shrink: [lvreduce, -L, 1g], isolate: [cut], reconnect: [mend]}"
    )
    (variant,) = load_text(target(settings)).variants
    assert variant.controls.grow == ("lvextend", "-L", "2g")
    assert variant.controls.reconnect == ("mend",)
    assert (variant.controls.resizes, variant.controls.isolates) == (True, True)
    (plain,) = load_text(target("optional: false")).variants
    assert (plain.controls.resizes, plain.controls.isolates) == (False, False)


@pytest.mark.parametrize(
    ("settings", "server", "sentence"),
    [
        ("controls: {grow: [x]}", "server: array", "grow and shrink go together"),
        ("controls: {reconnect: [x]}", "server: array", "isolate and reconnect go together"),
        ("controls: {grow: [], shrink: [x]}", "server: array", "grow"),
        ("controls: {grow: ls -l, shrink: [x]}", "server: array", "grow"),
        ("controls: {halt: [x]}", "server: array", "halt"),
        ("controls: {grow: [x], shrink: [x]}", "optional: false", "are run on its server; name that"),
        ("same_data: first", "server: array", "this is the target itself"),
        ("same_data: frist", "server: array", "unknown target 'frist'"),
    ],
)
def test_an_error_names_its_location(error_of, settings, server, sentence):
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
