"""`storagetest init`: the file loads and matches the schema, no file is overwritten, one address is tried."""

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


@pytest.fixture(autouse=True)
def workdir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("name", sorted(protocols.all()))
def test_the_file_of_each_protocol_has_every_option_loads_and_matches_the_schema(name, workdir, capsys):
    address = [] if name == "local" else ["nas.example.net"]
    assert main(["init", *address, "--protocol", name, "--no-probe", "--client", "me@load1:2222"]) == 0
    text = (workdir / "targets.yaml").read_text()
    loaded = config.load(workdir / "targets.yaml")
    assert [variant.protocol for variant in loaded.variants] == [name]
    machine = loaded.clients["client1"]
    assert (machine.address, machine.user, machine.port) == ("load1", "me", 2222)
    modeline = text.splitlines()[0]
    assert modeline.startswith("# yaml-language-server: $schema=")
    schema = json.loads((workdir / modeline.partition("=")[2]).read_text())
    jsonschema.validate(yaml.safe_load(text), schema)
    assert "Next: storagetest check" in capsys.readouterr().out
    for option in set(protocols.get(name).Options.model_fields) - {"wire", "erase"}:
        assert f" {option}:" in text


def test_placeholders_are_marked(workdir, capsys):
    assert main(["init", "nas", "--protocol", "smb", "--no-probe"]) == 0
    marked = [line for line in (workdir / "targets.yaml").read_text().splitlines() if "CHANGE THIS" in line]
    assert [line.split(":")[0].strip() for line in marked] == ["share", "username", "password"]
    assert "smb.share, smb.username, smb.password" in " ".join(capsys.readouterr().out.split())


def test_options_of_the_command_line_are_used_and_not_marked(workdir):
    assert main(["init", "nas", "--no-probe", "--set", "nfs.export=/tank", "--set", "nfs.nconnect=4"]) == 0
    text = (workdir / "targets.yaml").read_text()
    assert "CHANGE THIS" not in text
    options = config.load(workdir / "targets.yaml").variants[0].options
    assert (options.export, options.nconnect) == ("/tank", 4)


def test_an_existing_file_is_overwritten_only_with_force(workdir, capsys):
    (workdir / "targets.yaml").write_text("existing")
    assert main(["init", "nas", "--protocol", "nfs", "--no-probe"]) == 1
    assert (workdir / "targets.yaml").read_text() == "existing"
    assert "--force" in capsys.readouterr().err
    assert main(["init", "nas", "--protocol", "nfs", "--no-probe", "--force"]) == 0
    assert config.load(workdir / "targets.yaml").variants


@pytest.mark.parametrize(
    ("argv", "status", "text"),
    [
        (["init"], 1, "storagetest init ADDRESS"),
        (["init", "nas:2049"], 1, "the port is in `port`"),
        (["init", "nas", "--no-probe"], 1, "name the protocol with --protocol"),
        (["init", "nas", "--protocol", "nsf"], 4, "'nsf'"),
        (["init", "nas", "--no-probe", "--set", "nfs.exprot=/x"], 4, "no option 'exprot'"),
        (["init", "nas", "--no-probe", "--set", "export=/x"], 4, "PROTOCOL.OPTION=VALUE"),
        (["init", "nas", "--no-probe", "--set", "nfs.export=x"], 4, "targets.nfs.export"),
        (["init", "nas", "--protocol", "nfs", "--no-probe", "--client", "me@"], 1, "--client me@"),
        (["init", "nas", "--protocol", "nfs", "--no-probe", "--client", "h:x"], 1, "[USER@]HOST[:PORT]"),
        (["init", "nas", "--protocol", "nfs", "--no-probe", "-o", "no/t.yaml"], 1, "no such directory: no"),
        (["init", "nas", "--protocol", "nfs", "--no-probe", "--key", "k"], 1, "--client"),
    ],
)
def test_an_error_is_one_line_and_nothing_is_written(argv, status, text, workdir, capsys):
    assert main(argv) == status
    stderr = capsys.readouterr().err
    assert text in stderr
    assert stderr.count("\n") == 1
    assert list(workdir.iterdir()) == []


def test_only_the_given_address_is_tried_and_open_ports_are_found(monkeypatch, workdir, capsys):
    with socket.create_server(("127.0.0.1", 0)) as server:
        nfs, smb = protocols.get("nfs"), protocols.get("smb")
        for kind in protocols.all().values():
            monkeypatch.setattr(kind, "ports", ())
        monkeypatch.setattr(nfs, "ports", (server.getsockname()[1],))
        monkeypatch.setattr(smb, "ports", (1,))
        monkeypatch.setattr(nfs, "discover", lambda *_, **__: [{"export": "/a"}, {"export": "/b c"}])
        assert main(["init", "127.0.0.1"]) == 0
    loaded = config.load(workdir / "targets.yaml")
    assert [(variant.protocol, variant.options.export) for variant in loaded.variants] == [("nfs", "/a")]
    assert '# The server also has: export: "/b c"' in (workdir / "targets.yaml").read_text()
    assert "found /a, /b c" in capsys.readouterr().out


def test_without_an_open_port_nothing_is_written(monkeypatch, workdir, capsys):
    monkeypatch.setattr(_port_scan, "SECONDS", 1)
    for kind in protocols.all().values():
        monkeypatch.setattr(kind, "ports", (1,) if kind.name == "nfs" else ())
    assert main(["init", "127.0.0.1"]) == 1
    assert "no known port is open" in capsys.readouterr().err
    assert list(workdir.iterdir()) == []


def test_every_port_is_tried_with_a_timeout(monkeypatch):
    tried = []

    class RecordingHost(LocalHost):
        def run(self, argv, **options):
            tried.append(argv)
            return super().run(argv, **options)

    with RecordingHost() as host:
        _port_scan.open_ports(host, "127.0.0.1", protocols.all())
    (argv,) = tried
    assert argv[4:6] == ["127.0.0.1", str(_port_scan.SECONDS)]
    assert {"111", "2049", "445", "3260", "4420", "988"} <= set(argv[6:])


def type_lines(monkeypatch: pytest.MonkeyPatch, *lines: str) -> None:
    stdin = io.StringIO("".join(f"{line}\n" for line in lines))
    monkeypatch.setattr("sys.stdin", stdin)
    monkeypatch.setattr(stdin, "isatty", lambda: True)
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)


def test_missing_values_are_asked_for_on_a_terminal(monkeypatch, workdir):
    type_lines(monkeypatch, "nas.example.net", "root@load1", "tank", "/tank/x")
    assert main(["init", "--protocol", "nfs", "--no-probe"]) == 0
    loaded = config.load(workdir / "targets.yaml")
    assert loaded.variants[0].options.address == "nas.example.net"
    assert loaded.variants[0].options.export == "/tank/x"  # the relative path was refused and asked for again
    assert loaded.clients["client1"].address == "load1"


def test_at_end_of_input_nothing_is_written(monkeypatch, workdir, capsys):
    type_lines(monkeypatch, "nas.example.net")
    assert main(["init", "--protocol", "nfs", "--no-probe"]) == 1
    assert "nothing was written" in capsys.readouterr().err
    assert list(workdir.iterdir()) == []


def test_a_password_is_never_asked_for(monkeypatch, workdir):
    type_lines(monkeypatch, "local", "share", "user")
    assert main(["init", "nas", "--protocol", "smb", "--no-probe"]) == 0
    assert 'password: "${env:SMB_PASSWORD}"' in (workdir / "targets.yaml").read_text()


def test_an_interrupted_write_leaves_no_file(monkeypatch, workdir):
    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(init.config, "load", interrupt)
    assert main(["init", "nas", "--protocol", "nfs", "--no-probe"]) == 130
    assert list(workdir.iterdir()) == []


def test_the_suites_are_copied_next_to_the_file_and_not_overwritten(workdir, capsys):
    assert main(["init", "--protocol", "local", "--no-probe", "--suites"]) == 0
    assert (workdir / "suites/performance/test_copy.py").exists()
    assert "pytest --pyargs storagetest.suites" in (workdir / "targets.yaml").read_text()
    before = (workdir / "targets.yaml").read_text()
    assert main(["init", "--protocol", "local", "--no-probe", "--suites", "--force"]) == 1
    assert "suites already exists" in " ".join(capsys.readouterr().err.split())
    assert (workdir / "targets.yaml").read_text() == before
