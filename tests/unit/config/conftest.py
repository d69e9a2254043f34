"""Two protocols and two workloads that exist only here, so that these tests are of config alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Any, ClassVar, Literal

import pytest
from jsonschema import Draft202012Validator
from pydantic import Field, model_validator

from storagetest.config import Config, base, load
from storagetest.config.schema import make_schema
from storagetest.errors import ConfigError
from storagetest.protocols.base import AttachmentKind, Protocol
from storagetest.registry import Registry
from storagetest.workloads.base import Workload


class Login(base.Model):
    username: str
    """The name to log in with."""

    password: base.SecretText
    """The password."""


class Unused:
    """The methods of protocols and workloads, which config does not call."""

    def server(self, options: Any) -> str:
        raise NotImplementedError

    def attach(self, client: Any, options: Any) -> Any:
        raise NotImplementedError

    def measure(self, attachment: Any, options: Any, scale: Any) -> Any:
        raise NotImplementedError


class FakeFsProtocol(Unused, Protocol["FakeFsProtocol.Options"]):
    """A file system on a shelf."""

    name = "shelf"
    attachment_kind = AttachmentKind.FILESYSTEM

    class Options(base.TargetOptions):
        short: ClassVar[Mapping[str, str]] = {"version": "v"}

        address: base.Address
        """The server."""

        path: Annotated[str, Field(pattern=r"^/")]
        """What to mount."""

        version: Literal["3", "4.0", "4.1", "4.2", "none"] = "4.2"
        nconnect: Annotated[int, Field(ge=1, le=16)] | None = None
        rsize: Annotated[base.Size, Field(ge=1024)] | None = None
        timeout: base.Duration = 5.0
        hard: bool = True
        port: base.Port | None = None
        label: str = ""
        share: float = 0.5
        flags: base.Items[str] = ()
        secret: base.SecretText | None = None
        login: Login | None = None
        cacert: base.LocalPath | None = None
        depth: int | Literal["auto"] = "auto"

        @model_validator(mode="after")
        def _possible(self) -> FakeFsProtocol.Options:
            if self.version == "3" and (self.nconnect or 1) > 8:
                raise ValueError("version 3 takes nconnect up to 8")
            return self

    example: ClassVar[Mapping[str, Any]] = {"address": "nas.example.net", "path": "/a"}


class FakeBlockProtocol(Unused, Protocol["FakeBlockProtocol.Options"]):
    """A block device in a drawer."""

    name = "drawer"
    attachment_kind = AttachmentKind.BLOCK

    class Options(base.BlockOptions):
        number: int
        """Which drawer."""

    example: ClassVar[Mapping[str, Any]] = {"number": 3}


class FakeSequential(Unused, Workload["FakeSequential.Options"]):
    """Big and in order."""

    name = "stream"

    class Options(base.WorkloadOptions):
        direction: Literal["read", "write"] = "read"
        block_size: base.Size = 1 << 20
        depth: int = 1

    example: ClassVar[Mapping[str, Any]] = {}


class FakeRandom(Unused, Workload["FakeRandom.Options"]):
    """Small and anywhere."""

    name = "small-drip"
    Options = base.WorkloadOptions
    example: ClassVar[Mapping[str, Any]] = {}


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
def validator(kinds: SimpleNamespace) -> Draft202012Validator:
    """The JSON Schema of the four."""
    schema = make_schema(kinds.protocols.all(), kinds.workloads.all())
    Draft202012Validator.check_schema(schema)
    return Draft202012Validator(schema)


@pytest.fixture
def fits_schema(validator: Draft202012Validator) -> Callable[..., bool]:
    """Return a function: whether the schema takes a file with ``sections``, and ``options`` of its target."""

    def fits(options: Mapping[str, object] = {}, **sections: object) -> bool:
        target = {"protocol": "drawer", "number": 1, **options}
        return validator.is_valid({"version": 1, "targets": {"first": target}, **sections})

    return fits


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


@pytest.fixture
def error_of(load_text: Callable[..., Config]) -> Callable[..., ConfigError]:
    """Return a function that loads text, with overrides, and returns the error."""

    def load_it(text: str, *overrides: str) -> ConfigError:
        with pytest.raises(ConfigError) as caught:
            load_text(text, *overrides)
        return caught.value

    return load_it
