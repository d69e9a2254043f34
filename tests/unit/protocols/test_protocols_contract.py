"""What every protocol keeps to, what it offers, and that one module adds a protocol."""

from __future__ import annotations

import inspect
import json
import re
import socket
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from runpy import run_path
from typing import Annotated, Any, ClassVar, get_args
from unittest.mock import Mock

import pytest
import yaml
from device_facts import CLEAN
from jsonschema import Draft202012Validator
from pydantic import BaseModel, Field, ValidationError

from storagetest import config
from storagetest.cli import main
from storagetest.config.base import Address, BlockOptions, Port, TargetOptions
from storagetest.config.schema import json_schema
from storagetest.errors import DataAtRisk, HostError
from storagetest.hosts import Completed, LocalHost
from storagetest.protocols._dry_run import dry_run
from storagetest.protocols.base import (
    Attachment,
    AttachmentKind,
    ClientRequirements,
    Protocol,
    protocols,
    register,
)
from storagetest.protocols.template import Attaching, KernelProtocol

ALL = list(protocols.all().values())
every_protocol = pytest.mark.parametrize("protocol", ALL, ids=lambda protocol: protocol.name)


def models(model: type[BaseModel]) -> Iterator[type[BaseModel]]:
    """``model`` and every model nested in its fields."""
    yield model
    for field in model.model_fields.values():
        for kind in (field.annotation, *get_args(field.annotation)):
            if inspect.isclass(kind) and issubclass(kind, BaseModel):
                yield from models(kind)


def load(protocol: type[Protocol[Any]], **more: object) -> TargetOptions:
    return protocol.Options.model_validate({**protocol.example, **more})


def test_the_promised_protocols_are_there() -> None:
    assert {"iscsi", "local", "lustre", "nfs", "nvme-tcp", "smb"} <= set(protocols.all())


@every_protocol
def test_name_and_docstring(protocol: type[Protocol[Any]]) -> None:
    assert re.fullmatch(r"[a-z][a-z0-9]*(-[a-z0-9]+)*", protocol.name)
    assert (protocol.__doc__ or "").strip(), "the class's docstring is its page in the reference"
    assert (inspect.getmodule(protocol).__doc__ or "").strip()  # type: ignore[union-attr]  # it has a module


@every_protocol
def test_every_option_is_described(protocol: type[Protocol[Any]]) -> None:
    for model in models(protocol.Options):
        undescribed = [name for name, field in model.model_fields.items() if not field.description]
        assert not undescribed, f"{model.__qualname__}: a docstring below each of {undescribed}"
        assert (model.__doc__ or "").strip()


@every_protocol
def test_example_loads(protocol: type[Protocol[Any]]) -> None:
    options = load(protocol)
    assert isinstance(options, TargetOptions)
    assert load(protocol) == options
    assert protocol().server(options)  # type: ignore[abstract]  # every registered one is concrete


@every_protocol
def test_capabilities_say_what_it_gives(protocol: type[Protocol[Any]]) -> None:
    options = load(protocol)
    capabilities = protocol().capabilities(options)  # type: ignore[abstract]
    assert len(capabilities & {"block", "filesystem"}) == 1
    assert capabilities <= protocol.capability_names
    if protocol.attachment_kind is AttachmentKind.BLOCK:
        assert isinstance(options, BlockOptions)
        assert "block" in capabilities
        with_files = protocol().capabilities(load(protocol, filesystem="ext4"))  # type: ignore[abstract]
        assert "filesystem" in with_files <= protocol.capability_names
        assert "block" not in with_files


@every_protocol
def test_unknown_option_is_refused(protocol: type[Protocol[Any]]) -> None:
    with pytest.raises(ValidationError, match="Extra inputs are not permitted"):
        load(protocol, no_such_option=1)


@every_protocol
@pytest.mark.parametrize("deadline", [0, -1, True, "soon", None])
def test_impossible_deadline_is_refused(protocol: type[Protocol[Any]], deadline: object) -> None:
    with pytest.raises(ValidationError):
        load(protocol, deadline=deadline)


IMPOSSIBLE: dict[str, dict[str, list[object]]] = {
    "iscsi": {
        "iqn": ["nqn.x", "iqn.a b", "iqn.x/../../etc"], "lun": [-1], "header_digest": [True],
        "chap": [{"username": "u"}, {"username": "a b", "password": "x"}],
    },
    "lustre": {
        "mgs": ["10.0.0.1", "a b@tcp"], "fsname": ["toolongname"],
        "stripe_size": [1000], "stripe_count": [2.5],
    },
    "nfs": {"version": [4.2, "4", "2"], "nconnect": [0, 17], "export": ["e"], "rsize": [1]},
    "nvme-tcp": {
        "nqn": ["iqn.x", "nqn." + "x" * 220], "namespace": [0], "queues": [0], "queue_depth": [1],
    },
    "smb": {
        "dialect": ["1.0"], "share": ["a/b"], "username": ["a\nb"], "max_channels": [0], "password": [12],
    },
}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "option", "value"),
    [
        (name, option, value)
        for name, options in IMPOSSIBLE.items()
        for option, values in options.items()
        for value in values
    ],
    ids=str,
)
def test_impossible_value_is_refused(name: str, option: str, value: object) -> None:
    with pytest.raises(ValidationError):
        load(protocols.get(name), **{option: value})


@pytest.mark.parametrize(
    "more",
    [
        {"dialect": "2.1", "encryption": True},
        {"dialect": "2.1", "max_channels": 2},
        {"dialect": "3.0", "posix": True},
    ],
    ids=str,
)
def test_what_a_dialect_of_smb_lacks_is_refused(more: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        load(protocols.get("smb"), **more)


@pytest.mark.parametrize(("name", "wire"), [("iscsi", "iscsi-wire"), ("nvme-tcp", "nvme-tcp-wire")])
def test_several_paths_are_for_a_client_and_not_for_the_wire(name: str, wire: str) -> None:
    kind = protocols.get(name)
    one = kind().capabilities(load(kind))
    two = kind().capabilities(load(kind, more_paths=[{"address": "10.77.0.2"}]))
    assert (one - two, two - one) == ({wire}, {"multipath"})
    assert two <= kind.capability_names


@every_protocol
def test_short_names_name_options(protocol: type[Protocol[Any]]) -> None:
    assert set(protocol.Options.short) <= set(protocol.Options.model_fields)


@every_protocol
def test_no_option_is_shaped_like_a_command_line_switch(protocol: type[Protocol[Any]]) -> None:
    """What reaches a command line as a word of its own must not be able to pass for a switch."""
    for name in {"address", "export", "share", "iqn", "nqn", "fsname", "path", "device", "mgs", "pool"}:
        if name in protocol.Options.model_fields:
            with pytest.raises(ValidationError):
                load(protocol, **{name: "--evil" if name != "share" else "a/b"})


@every_protocol
def test_secrets_are_shown_by_nothing(protocol: type[Protocol[Any]]) -> None:
    secret = {"password": "hunter2-secret"}
    account = {"username": "u", **secret}
    more: dict[str, object] = {"chap": {**account, "mutual": account}, **secret}
    wanted = {name: value for name, value in more.items() if name in protocol.Options.model_fields}
    options = load(protocol, **wanted)
    assert "hunter2" not in f"{options!r} {options} {options.model_dump()} {options.model_dump_json()}"


@every_protocol
def test_the_requirements_of_an_attach_are_known_before_any_connection(protocol: type[Protocol[Any]]) -> None:
    options = load(protocol)
    needs = protocol().needs(options)  # type: ignore[abstract]
    assert bool(needs.tools or needs.modules) <= bool(needs.packages)
    assert all(tool and "/" not in tool for tool in needs.tools)
    assert all(0 < port < 1 << 16 for port in protocol.ports)
    if protocol.ports:
        assert needs.tools, "what a client's kernel mounts or logs in to takes a command"
        assert needs.port in protocol.ports, "by default it is where it usually answers"
        assert needs.address == protocol().server(options)  # type: ignore[abstract]


@every_protocol
@pytest.mark.parametrize(
    "run",
    [
        Mock(side_effect=HostError("lost")),
        Mock(return_value=Completed("c", ("x",), 1, "/not an answer\n", "no", 0.1)),
        Mock(return_value=Completed("c", ("x",), 0, "{\x00 noise\n\n]", "", 0.1)),
    ],
    ids=["lost", "fails", "noise"],
)
def test_a_machine_that_cannot_be_asked_offers_nothing_and_is_no_error(
    protocol: type[Protocol[Any]], run: Mock, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = LocalHost()
    monkeypatch.setattr(client, "run", run)
    for one in protocol().discover(client, "nas.example.net", deadline=1):  # type: ignore[abstract]
        assert set(one) <= set(protocol.Options.model_fields)


def client_that_prints(text: str) -> Any:
    return Mock(LocalHost, run=Mock(return_value=Completed("c", (), 0, text, "", 0.1)))


NVME = {
    "genctr": 2,
    "records": [
        {"trtype": "tcp", "subtype": "current discovery subsystem", "trsvcid": "4420", "subnqn": "nqn.d"},
        {"trtype": "tcp", "subtype": "nvme subsystem", "trsvcid": "4420", "subnqn": "nqn.a"},
        {"trtype": "tcp", "subtype": "nvme subsystem", "trsvcid": "4420", "subnqn": "nqn.a"},
        {"trtype": "rdma", "subtype": "nvme subsystem", "trsvcid": "4420", "subnqn": "nqn.b"},
    ],
}


@pytest.mark.parametrize(
    ("name", "text", "wanted"),
    [
        ("nfs", "/srv/a b 10.0.0.0/8\n/tank   *\n", [{"export": "/srv/a b"}, {"export": "/tank"}]),
        ("nfs", "", []),
        ("iscsi", "10.0.0.1:3260,1 iqn.x:a\n[fe80::1]:3260,1 iqn.x:a\n10.0.0.1:3260,1 iqn.x:b\n",
         [{"iqn": "iqn.x:a"}, {"iqn": "iqn.x:b"}]),
        ("nvme-tcp", json.dumps(NVME), [{"nqn": "nqn.a", "port": 4420}]),
        ("nvme-tcp", '{"records": 7}', []),
        ("lustre", "", [{"mgs": "10.0.0.1@tcp"}]),
        ("smb", "", []),
    ],
)  # fmt: skip
def test_offers(name: str, text: str, wanted: list[dict[str, Any]]) -> None:
    assert list(protocols.get(name)().discover(client_that_prints(text), "10.0.0.1", deadline=1)) == wanted


@pytest.mark.parametrize(
    ("erase", "words"), [("naa.1", ""), ("naa.2", "names another device"), (None, "without `erase`")]
)
def test_a_rehearsal_has_no_permission_to_write_and_judges_the_one_that_was_given(
    monkeypatch: pytest.MonkeyPatch, erase: str | None, words: str
) -> None:
    iscsi: Any = protocols.get("iscsi")
    attach = Mock(side_effect=DataAtRisk("refused", facts=CLEAN))
    monkeypatch.setattr(iscsi, "attach", attach)
    options = iscsi.Options.model_validate({**iscsi.example, "erase": erase, "filesystem": "xfs"})
    found = dry_run(iscsi(), client_that_prints(""), options)
    _, asked = attach.call_args.args
    assert (asked.erase, asked.filesystem) == (None, None)
    assert found.device == CLEAN
    assert words in found.at_risk
    assert bool(words) == bool(found.at_risk)


ROOT = Path(__file__).parents[3]
TARGETS = """\
version: 1
clients: {{here: {{transport: local}}}}
targets:
  box: {{protocol: toy, address: 127.0.0.1, port: {port}, share: {share}, matrix: {{level: [1, 2]}}}}
"""


class Toy(KernelProtocol["Toy.Options"]):
    """A directory, reached by way of a port."""

    name = "toy"
    title = "Toy box"
    attachment_kind = AttachmentKind.FILESYSTEM

    class Options(TargetOptions):
        """A share of a box."""

        address: Address
        """The box."""

        share: Annotated[str, Field(pattern=r"^/")]
        """The directory."""

        port: Port = 7
        """Its port."""

        level: int = 1
        """How much of a toy it is."""

    example: ClassVar[Mapping[str, Any]] = {"address": "box.example.net", "share": "/a"}

    capability_names = frozenset({"filesystem", "locks", "shared"})

    def capabilities(self, options: Toy.Options) -> frozenset[str]:
        return frozenset({"filesystem", "locks", "shared"} if options.level > 1 else {"filesystem"})

    def needs(self, options: Toy.Options) -> ClientRequirements:
        return ClientRequirements(tools=("sh",), packages="dash", address=options.address, port=options.port)

    def discover(self, client: Any, address: str, *, deadline: float) -> Sequence[Mapping[str, Any]]:
        return [{"share": "/toys"}]

    @contextmanager
    def acquire(self, attaching: Attaching, options: Toy.Options) -> Iterator[Attachment]:
        negotiated = {"level": "1"}
        different = self.option_mismatches(options, negotiated)
        yield Attachment(
            attaching.client, options.share, AttachmentKind.FILESYSTEM, 1 << 20, negotiated, different
        )

    def requested(self, options: Toy.Options) -> Mapping[str, object]:
        return {"level": options.level}


@pytest.fixture
def port(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """Register the toy for one test; return the port at which it answers."""
    protocols.all()
    monkeypatch.setattr(protocols, "_entries", dict(protocols._entries))
    register(Toy)
    with socket.create_server(("127.0.0.1", 0)) as server:
        number = int(server.getsockname()[1])
        monkeypatch.setattr(Toy, "ports", (number,))
        yield number


@pytest.fixture
def targets(port: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "targets.yaml").write_text(TARGETS.format(port=port, share=tmp_path))
    return tmp_path / "targets.yaml"


def test_a_targets_file_and_the_schema_take_it(targets: Path):
    variants = config.load(targets).variants
    assert [variant.id for variant in variants] == ["box-level1", "box-level2"]
    Draft202012Validator(json_schema()).validate(yaml.safe_load(targets.read_text()))


def test_targets_lists_it_its_capabilities_and_the_cases_of_the_suites(targets: Path, capsys):
    assert main(["targets", "--kinds"]) == 0
    assert "toy                  A directory, reached by way of a port." in capsys.readouterr().out
    assert main(["targets"]) == 0
    assert "filesystem locks shared" in capsys.readouterr().out
    assert main(["targets", str(ROOT / "suites/performance/test_copy.py")]) == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines() if line.startswith("box-level")]
    assert [row[1] for row in rows] == ["toy", "toy"]
    assert all(int(row[3]) > 0 for row in rows)


def test_init_finds_it_by_its_port_and_asks_what_it_serves(port: int, tmp_path: Path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["init", "127.0.0.1", "--client", "local"]) == 0
    assert f"Toy box: open port {port}; found /toys" in " ".join(capsys.readouterr().out.split())
    found = config.load("targets.yaml").variants  # of other services, too, if they listen here
    toys = [one for one in found if one.protocol == "toy"]
    assert [one.options.share for one in toys] == ["/toys"]


def test_check_tries_it(targets: Path, capsys):
    main(["check", "--all"])
    output = " ".join(capsys.readouterr().out.split())
    assert "box-level1: Toy box on here" in output
    assert "level: requested 2, got 1" in output


def test_the_reference_describes_it(port: int):
    page = run_path(str(ROOT / "script" / "reference.py"))["protocols_page"]()
    assert "## toy\n\nA directory, reached by way of a port." in page
    assert "| `level` | whole number | `1` | How much of a toy it is. |" in page
