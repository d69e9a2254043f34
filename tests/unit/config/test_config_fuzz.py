"""config: whatever is in the file, what comes out is a Config or a ConfigError that leads with its place."""

from __future__ import annotations

import re

import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from storagetest.config.loader import Config, build
from storagetest.config.overrides import apply_overrides
from storagetest.config.yaml_source import parse
from storagetest.errors import ConfigError

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
