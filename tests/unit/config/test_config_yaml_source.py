"""config: every value knows its place, YAML 1.1's traps are refused, and any file is read or refused."""

import re

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from storagetest.config.base import Text
from storagetest.config.loader import Config, build
from storagetest.config.overrides import apply_overrides
from storagetest.config.yaml_source import AmbiguousScalar, parse, read
from storagetest.errors import ConfigError

BOMB = "\n".join(
    ["a: &a [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]"]
    + [
        f"{name}: &{name} [{', '.join(['*' + before] * 10)}]"
        for before, name in zip("abcd", "bcde", strict=True)
    ]
)

REFUSED = [
    ("", "f:1:1: the file is empty"),
    ("# nothing\n", "f:1:1: the file is empty"),
    ("a: 1\nb: {c: 1,\n    c: 2}", "f:3:5: 'c' is written twice, first at f:2:5"),
    ("no: 1", 'f:1:1: no is a boolean in YAML, and a key is text: quote it: "no"'),
    ("a: {4: 1}", 'f:1:5: 4 is a number in YAML, and a key is text: quote it: "4"'),
    ("~: 1", 'f:1:1: ~ is null in YAML, and a key is text: quote it: "~"'),
    ("? [a]\n: b", "f:1:3: a key is text; this is not"),
    (
        "a: [*x]",
        "f:1:5: not YAML: an alias (*) without its anchor (&); quote the value if it is meant as text",
    ),
    ("a: &x [1, *x]", "f:1:4: this value contains itself"),
    ("a: !!python/object:os.system x", "f:1:4: tags (!) are not understood here"),
    ("a: !mine {b: 1}", "f:1:4: tags (!) are not understood here"),
    ("!!set {a}", "f:1:1: tags (!) are not understood here"),
    ("!mine a: 1", "f:1:1: tags (!) are not understood here"),
    ("--- 1\n--- 2", "f:2:1: not YAML: a second document (---); expected one"),
    ("a: 1\nb: 'unclosed", "f:2:13: not YAML: found unexpected end of stream"),
    ("a: @b", "f:1:4: not YAML: found character '@' that cannot start any token; quote the value"),
    ("a:\n\tb: 1", "f:2:1: not YAML: a tab where only spaces may indent"),
    ("a:\n - b\n c: d", "f:3:2: not YAML: this line fits nothing above it; check the indentation"),
    (
        "a: b: c",
        "f:1:5: not YAML: mapping values are not allowed here (check the indentation, or quote the value)",
    ),
    ("a: 1\nb: \0", "f:2:4: a character that is not allowed in YAML"),
    ("[" * 3000, "f:1:1: the values are nested too deeply"),
    ("a: " + "[" * 40 + "]" * 40, "f:1:35: the values are nested too deeply"),
    ("a: {<<: 3}", "f:1:9: << wants a mapping, or a list of them"),
    (BOMB, "f:1:32: more than 20000 values, its aliases unfolded"),
]


@pytest.mark.parametrize(("text", "message"), REFUSED)
def test_a_refusal_names_its_location(text, message):
    with pytest.raises(ConfigError) as caught:
        parse(text, name="f")
    assert str(caught.value) == message
    assert message.startswith(str(caught.value.place))


def test_every_value_and_key_knows_its_place():
    items = parse("a: 1\nb:\n  - x\n  - {c: 'y'}\n", name="f").root.child("b")
    nested = items.child(1).child("c")
    assert (nested.place, nested.key_place) == ("f:4:9", "f:4:6")
    assert items.child(0).place == "f:3:5"
    assert items.key_place == "f:2:1"
    assert items.child(7) is items.child(1).child("nothing") is None


def test_text_brings_its_place_along():
    text = parse("a: x", name="f").root.plain()["a"]
    assert isinstance(text, Text)
    assert text.origin.place == "f:1:4"


def test_merge_keys_give_way_to_what_is_written_and_of_several_the_first_applies():
    text = "a: &a {b: 1, c: 2}\nd: &d {b: 2, c: 3, e: 4}\nf: {c: 5, <<: [*a, *d]}"
    assert parse(text, name="f").root.plain()["f"] == {"c": 5, "b": 1, "e": 4}


NUMBERS = ["010", "1:30", "1:20.5", "1_000", "0b11", "0x_", ".inf", "-.inf", ".nan", "9" * 40]
DATES = ["2026-11-01", "2026-13-45"]


@pytest.mark.parametrize("raw", NUMBERS + DATES)
def test_numbers_that_a_person_reads_otherwise_are_unusable(raw):
    node = parse(f"a: {raw}", name="f").root.child("a")
    assert isinstance(node.value, AmbiguousScalar)
    assert node.raw == raw


@pytest.mark.parametrize(
    ("raw", "value"), [("0", 0), ("-7", -7), ("0x1F", 31), ("4.10", 4.1), ("yes", True), ("Null", None)]
)
def test_plain_scalars_are_read(raw, value):
    assert parse(f"a: {raw}", name="f").root.plain() == {"a": value}


@pytest.mark.parametrize("value", ["*hunter22", "!hunter22!x y", "&hunter22 *hunter23", "%hunter22"])
def test_a_value_is_never_in_a_message(value):
    with pytest.raises(ConfigError) as caught:
        parse(f"password: {value}", name="f")
    assert "hunter" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("none.yaml", b"", r"no such file: .*none.yaml; `storagetest init ADDRESS` writes"),
        (".", b"", "cannot be read: Is a directory"),
        ("t.yaml", b"a: 1\nb: \xff\n", "t.yaml:2:1: this is not UTF-8"),
        ("t.yaml", b"#" * ((1 << 20) + 1), "larger than 1 MiB"),
    ],
    ids=["missing", "directory", "not UTF-8", "huge"],
)
def test_a_file_that_cannot_be_read_is_an_error(tmp_path, name, content, message):
    (tmp_path / "t.yaml").write_bytes(content)
    with pytest.raises(ConfigError, match=message):
        read(tmp_path / name)


def test_a_byte_order_mark_and_windows_lines_are_fine(tmp_path):
    path = tmp_path / "t.yaml"
    path.write_bytes("a: 1\r\nb: |\r\n  x\r\n".encode("utf-8-sig"))
    assert read(path).root.plain() == {"a": 1, "b": "x\n"}


SAMPLE = """\
version: 1
x-a: &a {protocol: shelf, address: 192.0.2.1}
clients:
  here: {transport: local}
  far: {transport: ssh, address: far.example.net, jump: {address: x}, password: "${env:P}"}
servers:
  box: {transport: ssh, address: 192.0.2.1, jump: far}
targets:
  shelf: {<<: *a, path: /a, clients: [here, far], matrix: {version: ["3", "4.1"], nconnect: [1, 2]}}
  drawer: {protocol: drawer, number: 3, thresholds: {"stream[direction=read]": [iops >= 5]}}
profiles:
  smoke: {size: 64MiB, repeats: 3}
thresholds:
  stream: [p99 <= 5ms]
"""

WORDS = sorted(
    {*re.findall(r"[a-z_]+", SAMPLE), "exclude", "client", "login", "secret", "~", "no", "${env:X}", "<<", ""}
)
PIECES = [*WORDS, "4.1", "010", ": ", ", ", "- ", "\n", "\n  ", "&a ", "*a", "!x", *"{}[]'\"#|>\t"]

words = st.sampled_from(WORDS)
scalars = st.none() | st.booleans() | st.integers() | st.floats() | words | st.text(max_size=8) | st.dates()
keys = words | st.text(max_size=5) | st.integers() | st.booleans()
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(keys, inner, max_size=5),
    max_leaves=25,
)
sections = st.sampled_from(["version", "clients", "servers", "targets", "profiles", "thresholds"])

quick = settings(
    deadline=None,
    derandomize=True,  # the same texts every time: a gate must not depend on luck
    max_examples=150,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


def outcome(text: str, *overrides: str) -> str:
    try:
        config = build(apply_overrides(parse(text, name="f"), overrides))
    except ConfigError as error:
        first = str(error).splitlines()[0] if str(error) else ""
        assert re.match(r"f:\d+:\d+: .", first) or first.startswith("--st-set"), first
        return "refused"
    assert isinstance(config, Config)
    return "taken"


def test_the_sample_is_taken(fake_kinds):
    assert outcome(SAMPLE) == "taken"


@quick
@given(text=st.text())
def test_any_text(fake_kinds, text):
    outcome(text)


@quick
@given(pieces=st.lists(st.sampled_from(PIECES), max_size=40))
def test_any_yaml_like_text(fake_kinds, pieces):
    outcome("".join(pieces))


@quick
@given(document=st.dictionaries(sections, values, max_size=6))
def test_any_document(fake_kinds, document):
    outcome(yaml.safe_dump(document))


@quick
@given(
    target=st.dictionaries(
        st.sampled_from([*WORDS, "rsize", "flags", "login", "depth", "timeout"]), values, max_size=6
    ),
    client=st.dictionaries(words, values, max_size=5),
)
def test_any_target_and_client(fake_kinds, validator, target, client):
    head = {"protocol": "shelf", "address": "a", "path": "/a"}
    clients = {"c": {"transport": "ssh", "address": "c", **client}}
    text = yaml.safe_dump({"version": 1, "clients": clients, "targets": {"t": {**head, **target}}})
    if outcome(text) == "taken":
        assert [error.message for error in validator.iter_errors(yaml.safe_load(text))] == []


@quick
@given(st.data())
def test_the_sample_with_pieces_put_in_or_cut_out(fake_kinds, data):
    text = SAMPLE
    for _ in range(data.draw(st.integers(1, 4))):
        start = data.draw(st.integers(0, len(text)))
        end = data.draw(st.integers(start, min(len(text), start + 12)))
        text = text[:start] + data.draw(st.sampled_from(["", *PIECES])) + text[end:]
    outcome(text)


@quick
@given(
    steps=st.lists(st.sampled_from([*WORDS, "0", "1", "99", "stream[direction=read]"]), max_size=5),
    value=st.text(max_size=20) | values.map(lambda value: yaml.safe_dump(value, default_flow_style=True)),
)
def test_any_override(fake_kinds, steps, value):
    outcome(SAMPLE, f"{'.'.join(steps)}={value}")
