"""Base models and types for the YAML options of protocols and workloads.

The type of a field restricts its use: a :data:`SecretText` or an :data:`Address` is not allowed in a matrix,
because a variant's id would show its value. ``${env:NAME}`` is a reference only in a :data:`SecretText`.
"""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, ClassVar, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    Strict,
    ValidationInfo,
    WithJsonSchema,
    field_validator,
    model_validator,
)
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from storagetest import units
from storagetest.deprecation import warn_renamed
from storagetest.errors import ConfigError

_REFERENCE = re.compile(r"\$\{(env|file):([^}]*)\}")
_MEANT_AS_REFERENCE = re.compile(r"\$\{(env|file)\b.*|\$\{[^}]*\}", re.DOTALL)
_REFERENCE_LIKE = re.compile(r"\$\{[A-Za-z_]*:(?![-=?+])")
"""The start of any reference; the shell's ``${NAME:-default}`` and the like are none."""
_SHELL_VARIABLE = re.compile(r"\$[A-Z_][A-Z0-9_]*", re.ASCII)
_HOSTNAME = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_.-]*[A-Za-z0-9_.])?", re.ASCII)
_SECRET_FILE_LIMIT = 64 * 1024
_LARGEST_SIZE = (1 << 63) - 1
"""Bytes: off_t of a 64-bit system."""


@dataclass(frozen=True, slots=True)
class Origin:
    """Where text was written: ``file:line:col``, and the directory that its relative paths start from."""

    place: str
    directory: Path


class Mark(Enum):
    """Meaning of a field whose plain type does not show it (``Annotated`` metadata)."""

    SIZE = "size"
    ADDRESS = "address"


class Text(str):
    """Text with its position in the file. Validation converts it to plain ``str``."""

    __slots__ = ("origin",)
    origin: Origin

    def __new__(cls, text: str, origin: Origin) -> Text:
        """Create a :class:`Text` with its ``origin``."""
        instance = super().__new__(cls, text)
        instance.origin = origin
        return instance


class SecretText:
    """A secret as written in the file: literal text, ``${env:NAME}`` or ``${file:PATH}``.

    Only :meth:`reveal` reads the secret, so that collecting tests requires no secret, and only
    :meth:`reveal` returns it.
    """

    __slots__ = ("_origin", "_text")

    def __init__(self, text: str, origin: Origin | None = None) -> None:
        self._text = str(text)
        self._origin = origin

    def reveal(self) -> str:
        """Return the secret. Raises :class:`ConfigError` with the place if it cannot be read."""
        reference = _REFERENCE.fullmatch(self._text)
        if reference is None:
            return self._text
        kind, name = reference.groups()
        secret = self._from_environment(name) if kind == "env" else self._from_file(name)
        if not secret:
            raise self._error(f"the secret in {name} is empty")
        return secret

    @property
    def plain_at(self) -> str:
        """Where a file contains the secret itself; "" for a reference, or without a file."""
        if self._origin is None or _REFERENCE.fullmatch(self._text):
            return ""
        return self._origin.place

    def _from_environment(self, name: str) -> str:
        try:
            return os.environ[name]
        except KeyError:
            raise self._error(f"the environment variable {name} is not set") from None

    def _from_file(self, name: str) -> str:
        try:
            path = Path(name).expanduser()
            if self._origin is not None:
                path = self._origin.directory / path
            with path.open(encoding="utf-8") as file:
                text = file.read(_SECRET_FILE_LIMIT)
        except OSError as error:
            raise self._error(f"the secret's file {path} cannot be read: {error.strerror}") from None
        except UnicodeDecodeError:
            raise self._error(f"the secret's file {path} is not text in UTF-8") from None
        except (ValueError, RuntimeError) as error:  # a NUL in the path; the home of an unknown user
            raise self._error(f"the secret's file {name!r} cannot be read: {error}") from None
        return text.removesuffix("\n").removesuffix("\r")

    def _error(self, message: str) -> ConfigError:
        return ConfigError(message, place=self._origin.place if self._origin else None)

    def __repr__(self) -> str:
        return "SecretText('**********')"

    def __str__(self) -> str:
        return "**********"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SecretText) and self._text == other._text

    def __hash__(self) -> int:
        return hash(self._text)

    @classmethod
    def _read(cls, value: object) -> SecretText:
        if isinstance(value, SecretText):
            return value
        if not isinstance(value, str):
            raise PydanticCustomError("string_type", "expected text")
        if not value:
            raise PydanticCustomError("secret", "the secret is empty")
        if _MEANT_AS_REFERENCE.search(value) and not _is_reference(value):
            raise PydanticCustomError(
                "secret", "a secret is plain text, or ${env:NAME} or ${file:PATH} as a whole"
            )
        if _SHELL_VARIABLE.fullmatch(value):
            raise PydanticCustomError(
                "secret",
                "this is how a shell names a variable: write ${env:NAME}; a secret that really begins so "
                "goes into a file, ${file:PATH}",
            )
        return cls(value, value.origin if isinstance(value, Text) else None)

    @classmethod
    def __get_pydantic_core_schema__(cls, source: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Read text; never write the secret into a dump."""
        return core_schema.no_info_plain_validator_function(
            cls._read, serialization=core_schema.to_string_ser_schema()
        )

    @classmethod
    def __get_pydantic_json_schema__(
        cls, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        """Describe a secret to editors as the text it is."""
        return {
            "type": "string",
            "minLength": 1,
            "description": "A secret: text, ${env:NAME} or ${file:PATH}.",
        }


def _is_reference(text: str) -> bool:
    reference = _REFERENCE.fullmatch(text)
    return reference is not None and bool(reference[2])


def _size(value: object) -> object:
    if isinstance(value, str):
        value = units.parse_size(value)
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError("expected a size, such as 64KiB or a number of bytes")
    if value > _LARGEST_SIZE:
        raise ValueError("larger than the largest offset of a file, 8EiB")
    return value


FROM_FILE = {"from_file": True}
"""Context of the validation of values that a user wrote: a duration other than 0 has a unit there."""


def _duration(value: object, info: ValidationInfo) -> object:
    if isinstance(value, str):
        return 0.0 if value.strip() == "0" else units.parse_duration(value)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 10**9:
        raise ValueError("expected a duration, such as 500ms or 10s")
    if value and info.context and "from_file" in info.context:
        raise ValueError(f"{value} has no unit: write {value}s or {value}ms")
    return float(value)


def _address(value: object) -> object:
    if not isinstance(value, str):
        return value  # the following str schema reports the error
    try:
        ipaddress.ip_address(value)
    except ValueError:
        if not _HOSTNAME.fullmatch(value):
            hint = ""
            if "://" in value:
                hint = "; write it without a protocol and without a path"
            elif ":" in value:
                hint = "; the port is in `port`, and an IPv6 address has no brackets"
            raise ValueError(f"{value!r} is neither a host's name nor an IP address{hint}") from None
    return value


def _local_path(value: object) -> object:
    if not isinstance(value, str):
        raise PydanticCustomError("string_type", "expected text")
    if not value or "\0" in value:
        raise ValueError("expected a path on the controller")
    try:
        path = Path(value).expanduser()
    except RuntimeError as error:
        raise ValueError(f"{value!r}: {error}") from None
    return value.origin.directory / path if isinstance(value, Text) else path


Size = Annotated[
    int,
    Mark.SIZE,
    BeforeValidator(_size),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "integer", "minimum": 0, "maximum": _LARGEST_SIZE},
                {"type": "string", "pattern": r"^\s*[0-9]+(\.[0-9]+)? ?([KMGT]iB|[kMGT]?B)?\s*$"},
            ]
        }
    ),
]
"""Bytes: ``64KiB``, ``1MB``, ``512B``, or a whole number."""

Duration = Annotated[
    float,
    BeforeValidator(_duration),
    WithJsonSchema(
        {
            "anyOf": [
                {"const": 0},
                {
                    "type": "string",
                    "pattern": r"^\s*([0-9]+(\.[0-9]+)? ?(ns|us|µs|ms|s|min|h)|0)\s*$",
                },
            ]
        }
    ),
]
"""Seconds: ``500ms``, ``10s``, ``2min``, or 0. In Python also a number of seconds."""

Port = Annotated[int, Field(ge=1, le=65535)]
"""A TCP port."""

Address = Annotated[str, Mark.ADDRESS, BeforeValidator(_address)]
"""A host's name, or an IPv4 or IPv6 address; never a port, never something that reads as an option."""

LocalPath = Annotated[Path, BeforeValidator(_local_path), WithJsonSchema({"type": "string", "minLength": 1})]
"""A path on the machine that runs pytest; ``~`` is expanded, and it is relative to the YAML file."""

_T = TypeVar("_T")
Items = Annotated[tuple[_T, ...], Strict(strict=False)]
"""A YAML list that becomes a tuple: ``Items[str]``."""


class Model(BaseModel):
    """Frozen and strict: an unknown key is an error, and so is a number where text belongs."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, use_attribute_docstrings=True, hide_input_in_errors=True
    )

    renamed_keys: ClassVar[Mapping[str, str]] = {}
    """Old keys that are accepted for one release, with the key that replaces each."""

    @model_validator(mode="before")
    @classmethod
    def _accept_renamed_keys(cls, data: object) -> object:
        if not isinstance(data, dict) or not cls.renamed_keys.keys() & data.keys():
            return data
        accepted: dict[object, object] = {}
        for key, value in data.items():
            new = cls.renamed_keys.get(key, key)
            if new != key:
                if new in data:
                    raise ValueError(f"{key} is the old name of {new}: give one of them")
                warn_renamed("key", key, new, "targets file")
            accepted[new] = value
        return accepted

    @field_validator("*")
    @classmethod
    def _no_reference(cls, value: object) -> object:
        for text in value if isinstance(value, tuple | list) else (value,):
            if isinstance(text, str) and _REFERENCE_LIKE.search(text):
                raise ValueError("a reference is allowed only in a secret: ${env:NAME} or ${file:PATH}")
            if isinstance(text, str) and "\0" in text:
                raise ValueError("a NUL character is not allowed")
        return value


class TargetOptions(Model):
    """Options of a target of any protocol; each protocol adds its own."""

    short: ClassVar[Mapping[str, str]] = {}
    """Prefixes for variant ids, such as ``{"version": "v"}``. These options lead the id, in this order; the
    others follow by name, with their name (less underscores) as the prefix."""

    deadline: Annotated[Duration, Field(gt=0)] = 60.0
    """Time limit in seconds for an attach, and for a release."""

    wire: SecretText | None = None
    """host:port for wire cases, which connect from the machine that runs pytest, if the clients' address of
    the target is not usable there. Read like a secret: ${file:PATH} is possible."""

    @property
    def insecure(self) -> str:
        """Why these options put data or accounts at risk, for a warning; "" if they do not."""
        return ""

    @property
    def target_label(self) -> str:
        """Label of the target in messages; a protocol adds its address and other identifying options."""
        return type(self).__qualname__.partition(".")[0].lower()

    def wire_endpoint(self, address: str, port: int) -> tuple[str, int]:
        """Return host and port for wire cases: those of ``wire``, else ``address`` and ``port``."""
        if self.wire is None:
            return address, port
        return host_and_port(self.wire)


def host_and_port(wire: SecretText) -> tuple[str, int]:
    """Return host and port of an option for wire cases. Raises ConfigError if it is not host:port."""
    host, colon, number = wire.reveal().rpartition(":")
    if not (host and colon and number.isdecimal() and 0 < int(number) < 1 << 16):
        raise ConfigError("wire: expected host:port, such as 127.0.0.1:3260")
    return host.strip("[]"), int(number)


def _names_one_device(value: str) -> str:
    if not value.strip() or "*" in value:
        raise ValueError("expected the whole identity of one device; a pattern is not allowed")
    return value


DeviceIdentity = Annotated[str, AfterValidator(_names_one_device)]
"""The identity (WWID) of one device that may be overwritten."""


class BlockOptions(TargetOptions):
    """Options of a target that provides a block device."""

    erase: DeviceIdentity | None = None
    """The identity (WWID) of the device that may be overwritten. Without it the device is not written."""

    filesystem: Annotated[str | None, Field(pattern=r"^(ext4|xfs)$")] = None
    """Make and mount this file system on the device; without it the raw device is used."""


class Portal(Model):
    """An additional portal of a target."""

    address: Address
    """The portal's address."""

    port: Port | None = None
    """The portal's TCP port; without it that of the target's first portal."""


class WorkloadOptions(Model):
    """Parameters of a workload of any kind; each workload adds its own."""
