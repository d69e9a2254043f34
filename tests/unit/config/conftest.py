"""Two protocols and two workloads that exist only here, so that these tests are of config alone."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Any, ClassVar, Literal

import pytest
from pydantic import Field, model_validator

from storagetest.config import Config, load
from storagetest.config.base import (
    Address,
    BlockOptions,
    Duration,
    Items,
    LocalPath,
    Model,
    Port,
    SecretText,
    Size,
    TargetOptions,
    WorkloadOptions,
)
from storagetest.protocols.base import AttachmentKind, Protocol
from storagetest.registry import Registry
from storagetest.workloads.base import Workload

SHELF = """\
version: 1
clients:
  here: {transport: local}
  far: {transport: ssh, address: far.example.net, user: tester}
servers:
  box: {transport: ssh, address: 192.0.2.1}
targets:
  shelf:
    protocol: shelf
    address: 192.0.2.1
    path: /a
"""
"""A file that loads, for others to be made from."""


class Login(Model):
    username: str
    """The name to log in with."""

    password: SecretText
    """The password."""


class FakeFsProtocol(Protocol["FakeFsProtocol.Options"]):
    """A file system on a shelf."""

    name = "shelf"
    attachment_kind = AttachmentKind.FILESYSTEM

    class Options(TargetOptions):
        short: ClassVar[Mapping[str, str]] = {"version": "v"}

        address: Address
        """The server."""

        path: Annotated[str, Field(pattern=r"^/")]
        """What to mount."""

        version: Literal["3", "4.0", "4.1", "4.2", "none"] = "4.2"
        nconnect: Annotated[int, Field(ge=1, le=16)] | None = None
        rsize: Annotated[Size, Field(ge=1024)] | None = None
        timeout: Duration = 5.0
        hard: bool = True
        port: Port | None = None
        label: str = ""
        share: float = 0.5
        flags: Items[str] = ()
        secret: SecretText | None = None
        login: Login | None = None
        cacert: LocalPath | None = None
        depth: int | Literal["auto"] = "auto"

        @model_validator(mode="after")
        def _possible(self) -> FakeFsProtocol.Options:
            if self.version == "3" and (self.nconnect or 1) > 8:
                raise ValueError("version 3 takes nconnect up to 8")
            return self

    example: ClassVar[Mapping[str, Any]] = {"address": "nas.example.net", "path": "/a"}

    def server(self, options: Any) -> str:
        return str(options.address)

    def attach(self, client: Any, options: Any) -> Any:
        return contextlib.nullcontext()


class FakeBlockProtocol(Protocol["FakeBlockProtocol.Options"]):
    """A block device in a drawer."""

    name = "drawer"
    attachment_kind = AttachmentKind.BLOCK

    class Options(BlockOptions):
        number: int
        """Which drawer."""

    example: ClassVar[Mapping[str, Any]] = {"number": 3}

    def server(self, options: Any) -> str:
        return "drawer"

    def attach(self, client: Any, options: Any) -> Any:
        return contextlib.nullcontext()


class FakeSequential(Workload["FakeSequential.Options"]):
    """Big and in order."""

    name = "stream"

    class Options(WorkloadOptions):
        direction: Literal["read", "write"] = "read"
        block_size: Size = 1 << 20
        depth: int = 1

    example: ClassVar[Mapping[str, Any]] = {}

    def measure(self, attachment: Any, options: Any, scale: Any) -> Any:
        raise NotImplementedError


class FakeRandom(Workload["FakeRandom.Options"]):
    """Small and anywhere."""

    name = "small-drip"
    Options = WorkloadOptions
    example: ClassVar[Mapping[str, Any]] = {}

    def measure(self, attachment: Any, options: Any, scale: Any) -> Any:
        raise NotImplementedError


@pytest.fixture(scope="session")
def kinds() -> SimpleNamespace:
    """The registries that hold the four, and nothing else."""
    protocols: Registry[Any] = Registry("storagetest.protocols")
    workloads: Registry[Any] = Registry("storagetest.workloads")
    protocols._loaded = workloads._loaded = True
    for protocol in (FakeFsProtocol, FakeBlockProtocol):
        protocols.register(protocol)
    for workload in (FakeSequential, FakeRandom):
        workloads.register(workload)
    return SimpleNamespace(protocols=protocols, workloads=workloads)


@pytest.fixture(scope="session")
def shelf_yaml() -> str:
    return SHELF


@pytest.fixture(scope="module")
def fake_kinds(kinds: SimpleNamespace) -> Iterator[SimpleNamespace]:
    """Put the four in the place of the real ones."""
    with pytest.MonkeyPatch.context() as patch:
        fakes = {"storagetest.protocols": kinds.protocols, "storagetest.workloads": kinds.workloads}
        patch.setattr("storagetest.config.kinds.get_registry", fakes.__getitem__)
        yield kinds


@pytest.fixture
def load_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fake_kinds: SimpleNamespace
) -> Callable[..., Config]:
    """Write text as ``t.yaml`` in a directory of its own, go there, and load it."""
    monkeypatch.chdir(tmp_path)

    def load_it(text: str, *overrides: str) -> Config:
        Path("t.yaml").write_text(text, encoding="utf-8")
        return load("t.yaml", overrides)

    return load_it
