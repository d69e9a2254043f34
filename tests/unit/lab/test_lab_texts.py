"""Files that the lab writes for other programs, and output of other programs that it parses."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from storagetest.errors import LabError
from storagetest.lab import apt_sources, paths, qmp, roles, ssh, status
from storagetest.lab.services import Target
from storagetest.lab.startup import advice
from storagetest.lab.status import HostStatus, LabSpec, LabStatus
from storagetest.lab.targets import targets_yaml

CLIENTS = ["client1", "client2"]


@pytest.fixture
def home(monkeypatch, tmp_path) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    return tmp_path


def text(role: str, clients: list[str] = CLIENTS) -> str:
    return targets_yaml("default", "a spec", paths.lab_dir("default"), clients, roles.load(role).targets, {})


@pytest.mark.parametrize("role", roles.names())
def test_the_targets_are_yaml_without_secrets_and_home_directory(home, role):
    found = yaml.safe_load(text(role))
    assert set(found) >= {"version", "clients", "servers", "targets"}
    for target in found["targets"].values():
        assert target["clients"] == "all"
        for secret in (target.get("password"), target.get("chap", {}).get("password")):
            assert secret is None or secret.startswith("${file:~/.local/state/storagetest/lab/default/")
    assert str(home) not in text(role)


def test_the_default_labs_targets(home):
    found = yaml.safe_load(text("kernel"))["targets"]
    assert found["nfs"]["matrix"] == {"version": ["3", "4.0", "4.1", "4.2"], "nconnect": [1, 2]}
    assert found["nfs"]["address"] == "10.77.0.1"
    assert found["iscsi"]["erase"] == "naa.600140557057e5700000000000000000"
    assert found["nvme-tcp"]["erase"] == "uuid.57057e57-0000-4000-8000-000000000001"
    assert found["nvme-tcp"]["matrix"]["header_digest"] == [False, True]
    assert found["lustre"]["mgs"] == "10.77.0.1@tcp"
    assert found["lustre"]["optional"] is True
    assert {"smb", "smb-signed", "smb-encrypted", "iscsi-chap"} <= set(found)


def test_a_lab_without_clients_has_no_targets(home):
    assert yaml.safe_load(text("kernel", []))["targets"] == {}


def test_the_clients_are_listed(home):
    assert set(yaml.safe_load(text("kernel", ["client1"]))["clients"]) == {"client1"}
    eight = [f"client{number}" for number in range(1, 9)]
    assert list(yaml.safe_load(text("kernel", eight))["clients"]) == eight


@pytest.mark.parametrize("value", ["yes", "4.1", "a b", "", "a: b", "#x", "~", "10.77.0.1", "1e3", "a:b"])
def test_every_string_survives_a_round_trip(home, value):
    target = Target("t", {"value": value, "in": [value, {"deeper": value}]})
    found = yaml.safe_load(targets_yaml("n", "s", Path("/d"), CLIENTS, (target,), {}))["targets"]["t"]
    assert found == {"value": value, "in": [value, {"deeper": value}]}


def test_the_ssh_configuration_names_every_machine():
    made = ssh.config({"appliance": 1022, "client1": 1023}, Path("/s/id"), Path("/s p/known"))
    first, second = made.strip().split("\n\n")
    assert "Host appliance\n    HostName 127.0.0.1\n    Port 1022\n" in first
    assert 'UserKnownHostsFile "/s p/known"' in second
    assert "StrictHostKeyChecking yes" in second


def test_known_hosts_go_by_port():
    lines = ssh.known_hosts({"a": 7}, {"a": "ssh-ed25519 AAAA comment\n"})
    assert lines == "[127.0.0.1]:7 ssh-ed25519 AAAA\n"


def test_ssh_arguments_are_quoted_once():
    assert ssh.argv(Path("c"), "client1", ["echo", "a b", "$x"])[-2:] == ["--", "echo 'a b' '$x'"]
    assert ssh.argv(Path("c"), "client1", []) == ["ssh", "-F", "c", "client1"]


def test_parse_usernet():
    printed = (
        "Hub -1 (admin):\r\n"
        "  Protocol[State]    FD  Source Address  Port   Dest. Address  Port RecvQ SendQ\r\n"
        "  TCP[ESTABLISHED]   30       127.0.0.1 34803       10.0.2.15    22     0     0\r\n"
        "  TCP[HOST_FORWARD]  13       127.0.0.1 34803       10.0.2.15    22     0     0\r\n"
        "  TCP[HOST_FORWARD]  12               * 33179               *   111     0     0\r\n"
    )
    assert qmp.parse_usernet(printed) == {22: 34803, 111: 33179}


STATUS = LabStatus(
    name="x",
    shape=LabSpec(1, "kernel"),
    accelerator="KVM",
    kernel_release="6.1",
    image="abc",
    owner=None,
    supervisor=1,
    seconds=1.5,
    ssh_config="/c",
    targets="/t",
    hosts=(HostStatus("appliance", "10.77.0.1", ("knfsd",), {"ssh": 1}),),
)


def test_a_status_is_parsed_as_it_was_dumped():
    assert status.parse(status.dump(STATUS)) == STATUS
    assert json.loads(status.dump(STATUS))["hosts"][0]["ports"] == {"ssh": 1}


def test_a_lab_of_an_earlier_release_is_found_under_its_new_role():
    old = json.loads(status.dump(STATUS).replace('"appliance": "kernel"', '"appliance": "alternate"'))
    del old["supervisor"]  # the name was `keeper`
    found = status.parse(json.dumps(old))
    assert found.shape == LabSpec(1, "userspace")
    assert found.supervisor == 1


def test_the_supervisors_states_update_the_status():
    states = json.dumps({"appliance": {"phase": "starting", "boots": 2, "x": 0}})
    found = status.parse(status.dump(STATUS), states)
    assert found.host("appliance") == replace(STATUS.hosts[0], state="starting", boots=2)
    assert found.host("client1") is None


@pytest.mark.parametrize("name", ["", "a/b", "..", "A", "-x", "x" * 33, "a b", ".x"])
def test_an_invalid_lab_name_is_rejected(name):
    with pytest.raises(LabError, match="invalid lab name"):
        paths.lab_dir(name)


def test_the_home_directory_is_written_as_a_tilde(home):
    assert paths.shorten_home(home / "a" / "b") == "~/a/b"
    assert paths.shorten_home(Path("/elsewhere")) == "/elsewhere"


LINES = """\
deb http://mirror.example/debian bookworm main contrib # comment
deb [arch=amd64 signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://m bookworm-updates main
# deb http://mirror.example/debian bookworm main
deb-src http://mirror.example/debian bookworm main
deb [signed-by=/etc/apt/keyrings/vendor.gpg] https://vendor.example bookworm main
deb https://download.vendor.example bookworm stable
deb http://mirror.example/debian trixie main
"""

STANZAS = """\
Types: deb
# a comment
URIs: http://mirror.example/debian
Suites: bookworm
  bookworm-updates
Components: main
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg

Types: deb
URIs: https://vendor.example
Suites: nodistro
Components: main

Types: deb
Enabled: no
URIs: http://other.example/debian
Suites: bookworm
Components: main

Types: deb deb-src
URIs: http://security.example
Suites: bookworm-security
Components: main
"""


def test_only_debians_sources_of_the_release_are_selected():
    assert apt_sources.select_lines(LINES, "bookworm").splitlines() == LINES.splitlines()[:2]
    chosen = apt_sources.select_deb822(STANZAS, "bookworm").split("\n\n")
    assert [stanza.split("URIs: ")[1].split("\n")[0] for stanza in chosen] == [
        "http://mirror.example/debian",
        "http://security.example",
    ]


def test_matching_sources_are_written_for_mmdebstrap(tmp_path):
    etc = tmp_path / "apt"
    (etc / "sources.list.d").mkdir(parents=True)
    assert apt_sources.matching("bookworm", tmp_path, etc) == []
    (etc / "sources.list").write_text(LINES)
    (etc / "sources.list.d" / "debian.sources").write_text(STANZAS)
    written = [str(tmp_path / name) for name in ("host.list", "host.sources")]
    assert apt_sources.matching("bookworm", tmp_path, etc) == written


@pytest.mark.parametrize(
    ("load", "processors", "kvm", "parts"),
    [
        (1.0, 2, True, []),
        (70.4, 2, True, ["busy (load average 70, 2 processors): wait until", "(--clients 1)"]),
        (3.0, 1, False, ["busy (load average 3, 1 processor): ", "emulated; with access to /dev/kvm"]),
    ],
)
def test_a_lab_that_does_not_start_states_what_to_do(
    load: float, processors: int, kvm: bool, parts: list[str]
):
    text = advice(load, processors, kvm=kvm)
    assert text.startswith("What to do: run the command again. ")
    assert '"If a lab does not start"' in text
    assert all(part in text for part in parts)
    assert ("busy" in text, "emulated" in text) == (load > 2 * processors, not kvm)


def test_the_section_that_the_advice_names_exists():
    section = re.search(r'docs/lab.md, "(.*)"', advice(1.0, 1, kvm=True))
    assert section is not None
    page = Path(__file__).parents[3] / "docs/lab.md"
    assert f"\n## {section[1]}\n" in page.read_text(encoding="utf-8")
