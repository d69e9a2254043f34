"""Ranges of hosts in ``clients``, ``servers`` and the clients of a target."""

import pytest

from storagetest.config.ranges import expand
from storagetest.errors import ConfigError

RANGES = """\
version: 1
clients:
  client[01-12]:
    transport: ssh
    address: "192.0.2.[101-112]"
    user: "u[1-2]"
  node[0-3]: {transport: slurm, node: "[0-3]", job: 7}
  alone: {transport: local}
targets:
  t: {protocol: shelf, address: a, path: /a, clients: ["client[03-05]", alone]}
"""


@pytest.mark.parametrize(
    ("text", "texts"),
    [
        ("client", ("client",)),
        ("client[9-11]", ("client9", "client10", "client11")),
        ("c[08-10].example", ("c08.example", "c09.example", "c10.example")),
        ("[0-1]", ("0", "1")),
        ("[::1]", ("[::1]",)),
    ],
)
def test_a_range_stands_for_its_numbers(text, texts):
    assert expand(text) == texts


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("c[2-1]", "the range [2-1] has 0 numbers"),
        ("c[0-4096]", "has 4097 numbers; expected 1 to 4096"),
        ("c[1-2][1-2]", "has more than one range"),
    ],
)
def test_a_range_that_cannot_be_is_refused(text, message):
    with pytest.raises(ValueError, match=message.replace("[", r"\[")):
        expand(text)


def test_hosts_of_a_range_have_their_own_numbers(load_text):
    config = load_text(RANGES.replace('    user: "u[1-2]"\n', ""))
    assert len(config.clients) == 12 + 4 + 1
    assert config.clients["client01"].address == "192.0.2.101"
    assert config.clients["client12"].address == "192.0.2.112"
    assert [config.clients[f"node{number}"].node for number in range(4)] == [0, 1, 2, 3]
    assert [host.name for host in config.variants[0].clients] == ["client03", "client04", "client05", "alone"]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("", "", r"t.yaml:3:3: clients.client\[01-12\]: 'u\[1-2\]' has 2 numbers, and the name has 12"),
        ("alone: {", "node[3-4]: {", r"t.yaml:8:3: clients.node\[3-4\]: node3 is defined twice"),
        ("03-05", "12-13", "t.yaml:10:56: targets.t: unknown client 'client13'"),
        ("03-05", "5-3", r"t.yaml:10:56: targets.t: the range \[5-3\] has 0 numbers"),
        ('clients: ["client[03-05]", alone]', 'client: "client[03-05]"', "unknown client 'client.03-05.'"),
    ],
)
def test_an_error_has_its_place(load_text, old, new, message):
    text = RANGES if old == "" else RANGES.replace('    user: "u[1-2]"\n', "\n").replace(old, new)
    with pytest.raises(ConfigError, match=message):
        load_text(text)


def test_an_error_in_an_entry_is_reported_once(load_text):
    with pytest.raises(ConfigError) as caught:
        load_text(RANGES.replace('user: "u[1-2]"', "usr: root"))
    assert len(str(caught.value).splitlines()) == 1
    assert "t.yaml:6:5: clients.client01.usr: no such key" in str(caught.value)
