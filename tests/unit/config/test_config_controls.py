"""config: what takes an administrator, and another target of the same data."""

from __future__ import annotations

import pytest
from jsonschema import Draft202012Validator

from storagetest.config.schema import make_schema
from storagetest.deprecation import StoragetestDeprecationWarning
from storagetest.errors import ConfigError

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
def test_an_error_names_its_location(load_text, settings, server, sentence):
    with pytest.raises(ConfigError, match=r"t\.yaml:5:\d+: ") as caught:
        load_text(target(settings, server=server))
    assert sentence in str(caught.value)


def test_another_target_of_the_same_data(load_text):
    text = target("same_data: second") + "  second: {protocol: drawer, number: 2}\n"
    first, second = load_text(text).variants
    assert (first.same_data, second.same_data) == ("second", None)


def test_the_schema_knows_them(kinds):
    validator = Draft202012Validator(make_schema(kinds.protocols.all(), kinds.workloads.all()))

    def document(**more: object) -> dict[str, object]:
        return {"version": 1, "targets": {"first": {"protocol": "drawer", "number": 1, **more}}}

    validator.validate(document(controls={"grow": ["x"], "shrink": ["y"]}, same_data="second"))
    for bad in ({"halt": ["x"]}, {"grow": []}, {"grow": "x"}):
        assert list(validator.iter_errors(document(controls=bad)))


def test_the_old_keys_are_accepted_with_a_warning(load_text):
    text = target("controls: {cut_off: [cut], let_back: [mend]}")
    with pytest.warns(
        StoragetestDeprecationWarning, match="the key (cut_off|let_back) .* Use (isolate|reconnect)"
    ):
        (variant,) = load_text(text).variants
    assert variant.controls.isolate == ("cut",)
    with pytest.raises(ConfigError, match="cut_off is the old name of isolate: give one of them"):
        load_text(target("controls: {cut_off: [a], isolate: [b], reconnect: [c]}"))
