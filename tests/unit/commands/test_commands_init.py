"""The first targets.yaml: it loads, the schema agrees, nothing is overwritten, one address is tried."""

from __future__ import annotations

import io
import json
import socket
from pathlib import Path

import jsonschema
import pytest
import yaml

from storagetest import config
from storagetest.cli import main
from storagetest.commands import _port_scan, init
from storagetest.hosts import LocalHost
from storagetest.protocols.base import protocols

REMOTE = [name for name, kind in protocols.all().items() if kind.ports]


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("name", sorted(protocols.all()))
def test_every_protocol_gets_a_file_that_loads_and_that_editors_can_check(name, here, capsys):
    address = [] if name == "local" else ["nas.example.net"]
    assert main(["init", *address, "--protocol", name, "--no-probe", "--client", "me@load1:2222"]) == 0
    text = (here / "targets.yaml").read_text()
    loaded = config.load(here / "targets.yaml")
    assert [variant.protocol for variant in loaded.variants] == [name]
    machine = loaded.clients["client1"]
    assert (machine.address, machine.user, machine.port) == ("load1", "me", 2222)
    modeline = text.splitlines()[0]
    assert modeline.startswith("# yaml-language-server: $schema=")
    schema = json.loads((here / modeline.partition("=")[2]).read_text())
    jsonschema.validate(yaml.safe_load(text), schema)
    assert "Next: storagetest check" in capsys.readouterr().out


@pytest.mark.parametrize("name", sorted(protocols.all()))
def test_every_option_is_in_the_file_and_so_can_be_found(name, here):
    address = [] if name == "local" else ["nas.example.net"]
    assert main(["init", *address, "--protocol", name, "--no-probe"]) == 0
    text = (here / "targets.yaml").read_text()
    for option in set(protocols.get(name).Options.model_fields) - {"wire", "erase"}:
        assert f" {option}:" in text


def test_what_is_a_guess_is_marked(here, capsys):
    assert main(["init", "nas", "--protocol", "smb", "--no-probe"]) == 0
    marked = [line for line in (here / "targets.yaml").read_text().splitlines() if "CHANGE THIS" in line]
    assert [line.split(":")[0].strip() for line in marked] == ["share", "username", "password"]
    assert "smb.share, smb.username, smb.password" in " ".join(capsys.readouterr().out.split())


def test_what_is_given_is_used_and_not_marked(here):
    assert main(["init", "nas", "--no-probe", "--set", "nfs.export=/tank", "--set", "nfs.nconnect=4"]) == 0
    text = (here / "targets.yaml").read_text()
    assert "CHANGE THIS" not in text
    options = config.load(here / "targets.yaml").variants[0].options
    assert (options.export, options.nconnect) == ("/tank", 4)


def test_a_file_that_is_there_is_left_alone(here, capsys):
    (here / "targets.yaml").write_text("mine")
    assert main(["init", "nas", "--protocol", "nfs", "--no-probe"]) == 1
    assert (here / "targets.yaml").read_text() == "mine"
    assert "--force" in capsys.readouterr().err
    assert main(["init", "nas", "--protocol", "nfs", "--no-probe", "--force"]) == 0
    assert config.load(here / "targets.yaml").variants


@pytest.mark.parametrize(
    ("argv", "status", "words"),
    [
        (["init"], 1, "storagetest init ADDRESS"),
        (["init", "nas:2049"], 1, "a port goes into `port`"),
        (["init", "nas", "--no-probe"], 1, "name what it speaks with --protocol"),
        (["init", "nas", "--protocol", "nsf"], 4, "'nsf'"),
        (["init", "nas", "--no-probe", "--set", "nfs.exprot=/x"], 4, "no option 'exprot'"),
        (["init", "nas", "--no-probe", "--set", "export=/x"], 4, "PROTOCOL.OPTION=VALUE"),
        (["init", "nas", "--no-probe", "--set", "nfs.export=x"], 4, "targets.nfs.export"),
        (["init", "nas", "--protocol", "nfs", "--no-probe", "--client", "me@"], 1, "--client me@"),
        (["init", "nas", "--protocol", "nfs", "--no-probe", "--client", "h:x"], 1, "[USER@]HOST[:PORT]"),
        (["init", "nas", "--protocol", "nfs", "--no-probe", "-o", "no/t.yaml"], 1, "no directory no"),
        (["init", "nas", "--protocol", "nfs", "--no-probe", "--key", "k"], 1, "--client"),
    ],
)
def test_a_mistake_is_one_sentence_and_nothing_is_written(argv, status, words, here, capsys):
    assert main(argv) == status
    said = capsys.readouterr().err
    assert words in said
    assert said.count("\n") == 1
    assert list(here.iterdir()) == []


def test_only_the_given_address_is_tried_and_what_answers_is_found(monkeypatch, here, capsys):
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_server(("127.0.0.1", 0)) as other:
        other.close()
        nfs, smb = protocols.get("nfs"), protocols.get("smb")
        for kind in protocols.all().values():
            monkeypatch.setattr(kind, "ports", ())
        monkeypatch.setattr(nfs, "ports", (server.getsockname()[1],))
        monkeypatch.setattr(smb, "ports", (other.getsockname()[1] if other.fileno() >= 0 else 1,))
        monkeypatch.setattr(nfs, "discover", lambda *_, **__: [{"export": "/a"}, {"export": "/b c"}])
        assert main(["init", "127.0.0.1"]) == 0
    loaded = config.load(here / "targets.yaml")
    assert [(one.protocol, one.options.export) for one in loaded.variants] == [("nfs", "/a")]
    assert '# The server also has: export: "/b c"' in (here / "targets.yaml").read_text()
    assert "offers /a, /b c" in capsys.readouterr().out


def test_where_nothing_answers_nothing_is_written(monkeypatch, here, capsys):
    monkeypatch.setattr(_port_scan, "SECONDS", 1)
    for kind in protocols.all().values():
        monkeypatch.setattr(kind, "ports", (1,) if kind.name == "nfs" else ())
    assert main(["init", "127.0.0.1"]) == 1
    assert "nothing answers there" in capsys.readouterr().err
    assert list(here.iterdir()) == []


def test_every_port_is_tried_with_a_deadline(monkeypatch):
    tried = []

    class Watched(LocalHost):
        def run(self, argv, **more):
            tried.append(argv)
            return super().run(argv, **more)

    with Watched() as host:
        _port_scan.answering(host, "127.0.0.1", protocols.all())
    (argv,) = tried
    assert argv[4:6] == ["127.0.0.1", str(_port_scan.SECONDS)]
    wanted = {"111", "2049", "445", "3260", "4420", "988"}
    assert wanted <= set(argv[6:])


def answers(monkeypatch: pytest.MonkeyPatch, *lines: str) -> None:
    stdin = io.StringIO("".join(f"{line}\n" for line in lines))
    monkeypatch.setattr("sys.stdin", stdin)
    monkeypatch.setattr(stdin, "isatty", lambda: True)
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)


def test_somebody_at_a_terminal_is_asked(monkeypatch, here):
    answers(monkeypatch, "nas.example.net", "root@load1", "tank", "/tank/x")
    assert main(["init", "--protocol", "nfs", "--no-probe"]) == 0
    loaded = config.load(here / "targets.yaml")
    assert loaded.variants[0].options.address == "nas.example.net"
    assert loaded.variants[0].options.export == "/tank/x"  # a relative one was refused, and asked for again
    assert loaded.clients["client1"].address == "load1"


def test_no_more_answers_is_an_end_and_nothing_is_written(monkeypatch, here, capsys):
    answers(monkeypatch, "nas.example.net")
    assert main(["init", "--protocol", "nfs", "--no-probe"]) == 1
    assert "nothing is written" in capsys.readouterr().err
    assert list(here.iterdir()) == []


def test_a_password_is_never_asked_for(monkeypatch, here):
    answers(monkeypatch, "local", "share", "user")
    assert main(["init", "nas", "--protocol", "smb", "--no-probe"]) == 0
    assert 'password: "${env:SMB_PASSWORD}"' in (here / "targets.yaml").read_text()


def test_what_is_written_is_whole_or_not_there(monkeypatch, here):
    def fails(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(init.config, "load", fails)
    assert main(["init", "nas", "--protocol", "nfs", "--no-probe"]) == 130
    assert list(here.iterdir()) == []


def test_the_suites_are_copied_beside_it_and_nothing_is_overwritten(here, capsys):
    assert main(["init", "--protocol", "local", "--no-probe", "--suites"]) == 0
    assert (here / "suites/performance/test_copy.py").exists()
    assert "pytest --pyargs storagetest.suites" in (here / "targets.yaml").read_text()
    before = (here / "targets.yaml").read_text()
    assert main(["init", "--protocol", "local", "--no-probe", "--suites", "--force"]) == 1
    assert "suites already exists" in " ".join(capsys.readouterr().err.split())
    assert (here / "targets.yaml").read_text() == before
