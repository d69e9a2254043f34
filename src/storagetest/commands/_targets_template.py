"""Text of a new targets.yaml: known options, placeholders to replace, and the other options as comments."""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args, get_origin

from pydantic import ValidationError
from pydantic.fields import FieldInfo

from storagetest import installed_suites
from storagetest.config import HostConfig
from storagetest.config.base import BlockOptions, SecretText
from storagetest.config.validation import mentions
from storagetest.protocols.base import Protocol

_HEAD = """\
# yaml-language-server: $schema={schema}
#
# The targets, clients and thresholds of storagetest; created by `storagetest init`.
#   storagetest check      check that each client and target works, and print how to correct it if not
#   storagetest targets    print the variants and the expected duration
#   {pytest} --st-profile smoke
version: 1

# Clients attach the targets and run the load. They need root, python3, fio, and each protocol's tools.
clients:
  {client}

# Targets are tested. Each combination of a `matrix` is a variant, and each case runs on each variant.
targets:
"""

_TAIL = """
# Thresholds, compared with the confidence interval of a metric. Change the values and remove the "# ".
# thresholds:
#   small-random-write: ["iops >= 5000", "p99 <= 20ms"]
#   sequential[direction=read]: ["bandwidth >= 900MiB/s"]
"""

_PLAIN = re.compile(r"[A-Za-z_/~][A-Za-z0-9_./~-]*")
_WORDS = {"true", "false", "yes", "no", "on", "off", "null", "y", "n"}  # not strings to every YAML parser
_MARK = "CHANGE THIS: "
_COMMENT_COLUMN = 40
_WIDEST = 110


@dataclass
class TargetDraft:
    """Target to add: ``known`` has options by name, ``others`` the options of the server's other targets."""

    kind: type[Protocol[Any]]
    address: str = ""
    known: dict[str, Any] = field(default_factory=dict)
    ports: tuple[int, ...] = ()
    others: tuple[Mapping[str, Any], ...] = ()

    @property
    def name(self) -> str:
        """Name of the target: that of its protocol."""
        return self.kind.name

    @property
    def values(self) -> dict[str, Any]:
        """The known options, with the address."""
        fields = self.kind.Options.model_fields
        address = {"address": self.address} if self.address and "address" in fields else {}
        return {name: self._typed(name, value) for name, value in {**address, **self.known}.items()}

    @property
    def examples(self) -> dict[str, Any]:
        """The required options that are not known, with the values of the protocol's example."""
        missing = [name for name, _, _ in required(self.kind) if name not in self.values]
        if not any(name in self.values for name in self.kind.example):
            missing = [name for name in self.kind.example if name != "erase"]
        return {name: self.kind.example[name] for name in missing if name in self.kind.example}

    def refuses(self, name: str, value: str) -> str:
        """Return why ``value`` is not valid for the option ``name``, or "" if it is valid."""
        options = {**self.kind.example, **self.values, name: self._typed(name, value)}
        try:
            self.kind.Options.model_validate(options)
        except ValidationError as error:
            for details in error.errors():
                if details["loc"][:1] == (name,):
                    return details["msg"].removeprefix("Value error, ")
        return ""

    def _typed(self, name: str, value: object) -> object:
        """Return text as the option's type if that is an integer or a boolean; else return it unchanged."""
        if not isinstance(value, str):
            return value
        info = self.kind.Options.model_fields[name]
        if mentions(info.annotation, bool) and value in {"true", "false"}:
            return value == "true"
        if (
            mentions(info.annotation, int)
            and not mentions(info.annotation, str)
            and re.fullmatch(r"\d+", value)
        ):
            return int(value)
        return value


def required(kind: type[Protocol[Any]]) -> list[tuple[str, str, bool]]:
    """Return the required options: name, purpose, and whether the option is a secret."""
    return [
        (name, _purpose(info), mentions(info.annotation, SecretText))
        for name, info in kind.Options.model_fields.items()
        if info.is_required()
    ]


def targets_yaml(machine: HostConfig, drafts: list[TargetDraft], *, schema: str) -> str:
    """Return the text of the file."""
    connection = ", ".join(f"{name}: {_scalar(value)}" for name, value in _connection(machine))
    client = f"{machine.name}: {{{connection}}}"
    targets = "\n".join("".join(f"{line}\n" for line in _target(draft, machine.name)) for draft in drafts)
    return (
        _HEAD.format(schema=schema, client=client, pytest=installed_suites.pytest_command()) + targets + _TAIL
    )


def _connection(machine: HostConfig) -> Iterator[tuple[str, object]]:
    yield "transport", machine.transport
    if machine.transport == "ssh":
        yield "address", machine.address
        for name in ("port", "user", "key"):
            value = getattr(machine, name)
            if value is not None:
                yield name, value if name == "port" else str(value)


def _target(draft: TargetDraft, client: str) -> Iterator[str]:
    kind, fields = draft.kind, draft.kind.Options.model_fields
    ports = f" Open port: {', '.join(map(str, draft.ports))}." if draft.ports else ""
    yield f"  # {(kind.__doc__ or kind.title).strip().partition(chr(10))[0]}{ports}"
    for other in draft.others[:12]:
        yield "  # The server also has: " + ", ".join(
            f"{name}: {_scalar(value)}" for name, value in other.items()
        )
    yield f"  {draft.name}:"
    yield f"    protocol: {kind.name}"
    options = {**draft.examples, **draft.values}
    for name in (key for key in fields if key in options):
        mark = f"{_MARK}{_purpose(fields[name])}" if name in draft.examples else ""
        yield _with_comment(f"    {name}: {_scalar(options[name])}", mark)
    yield f"    clients: [{client}]"
    if issubclass(kind.Options, BlockOptions) and "path" not in options:
        yield "    # Nothing is written before `erase` names the device by its identity: `storagetest check`"
        yield "    # attaches it, prints the identity, and detaches it. All data on that device will be lost."
        yield f"    # erase: {_scalar(str(kind.example.get('erase', 'naa.6001405…')))}"
    unset = {name: info for name, info in fields.items() if name not in options}
    choices = {name: values for name, info in unset.items() if (values := _choices(info))}
    for name, values in list(choices.items())[:2]:
        yield f"    # matrix: {{{name}: [{', '.join(map(_scalar, values))}]}}"
    yield "    # More options, with their defaults:"
    for name, info in unset.items():
        if name not in {"erase", "wire"} and not info.is_required():
            default = "" if info.default is None else f" {_scalar(info.default)}"
            yield _with_comment(f"    # {name}:{default}", _purpose(info))


def _with_comment(text: str, comment: str) -> str:
    width = max(30, _WIDEST - max(len(text), _COMMENT_COLUMN) - 4)
    return (
        f"{text.ljust(_COMMENT_COLUMN)}  # {textwrap.shorten(comment, width, placeholder=' …')}"
        if comment
        else text
    )


def _choices(info: FieldInfo) -> list[object]:
    """Return the values of a boolean or an enumerated option; of any other option, none."""
    if info.annotation is bool:
        return [False, True]
    return list(get_args(info.annotation)) if get_origin(info.annotation) is Literal else []


def _purpose(info: FieldInfo) -> str:
    text = " ".join((info.description or "").split()).replace("``", "`")
    return text.partition(". ")[0].rstrip(".")


def _scalar(value: object) -> str:
    """Return ``value`` in YAML's flow style."""
    match value:
        case bool():
            return str(value).lower()
        case float() if value.is_integer():
            return str(int(value))
        case int() | float():
            return str(value)
        case dict():
            return f"{{{', '.join(f'{name}: {_scalar(item)}' for name, item in value.items())}}}"
        case list() | tuple():
            return f"[{', '.join(map(_scalar, value))}]"
        case _:
            text = str(value)
            plain = _PLAIN.fullmatch(text) and text.lower() not in _WORDS
            return text if plain else json.dumps(text, ensure_ascii=False)
