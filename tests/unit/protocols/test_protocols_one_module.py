"""Adding a protocol is one module: every command, the schema, the reference and the suites find it."""

from __future__ import annotations

import socket
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from runpy import run_path
from typing import Annotated, Any, ClassVar

import pytest
import yaml
from jsonschema import Draft202012Validator
from pydantic import Field

from storagetest import config
from storagetest.cli import main
from storagetest.config.base import Address, Port, TargetOptions
from storagetest.config.schema import json_schema
from storagetest.protocols.base import Attachment, AttachmentKind, ClientRequirements, protocols, register
from storagetest.protocols.template import Attaching, KernelProtocol

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
    assert main(["targets", "--no-cost"]) == 0
    assert "filesystem locks shared" in capsys.readouterr().out
    assert main(["targets", str(ROOT / "suites/performance/test_copy.py")]) == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines() if line.startswith("box-level")]
    assert [row[1] for row in rows] == ["toy", "toy"]
    assert all(int(row[3]) > 0 for row in rows)


def test_init_finds_it_by_its_port_and_asks_what_it_serves(port: int, tmp_path: Path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["init", "127.0.0.1", "--client", "local"]) == 0
    assert f"Toy box: open port {port}; found /toys" in " ".join(capsys.readouterr().out.split())
    assert config.load("targets.yaml").variants[0].options.share == "/toys"


def test_check_tries_it(targets: Path, capsys):
    main(["check", "--all"])
    output = " ".join(capsys.readouterr().out.split())
    assert "box-level1: Toy box on here" in output
    assert "level: requested 2, got 1" in output


def test_the_reference_describes_it(port: int):
    page = run_path(str(ROOT / "script" / "reference.py"))["protocols_page"]()
    assert "## toy\n\nA directory, reached by way of a port." in page
    assert "| `level` | whole number | `1` | How much of a toy it is. |" in page
