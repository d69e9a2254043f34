"""Strict YAML parser that keeps the line and column of every key and value.

PyYAML composes the text into nodes with marks. They are converted to :class:`YamlNode`, which has place, raw
text and plain value. The parser rejects valid YAML 1.1 that is most likely a mistake:

1. a key written twice in one mapping, and a key that is not text (``no:`` is a boolean);
2. tags (``!!python/…``), several documents, values that contain themselves;
3. aliases that unfold to more than 20 000 values, more than 32 levels, files above 1 MiB.

Anchors, aliases and merge keys (``<<``) are supported. The models reject a number, boolean or date in place
of text; :attr:`YamlNode.raw` is for their message, which shows how to quote it. Ambiguous numbers (``010`` is
eight in YAML 1.1, ``1:30`` is ninety) become :class:`AmbiguousScalar`, which no model accepts. Messages of
this module quote keys but no values, which may be secrets.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from storagetest.config.base import Origin, Text
from storagetest.errors import ConfigError

_LARGEST_FILE = 1 << 20
_MOST_NODES = 20_000
_DEEPEST = 32

_TAG = "tag:yaml.org,2002:"
_INTEGER = re.compile(r"[-+]?(0|[1-9][0-9]{0,30})|0x[0-9a-fA-F]{1,30}", re.ASCII)
_FLOAT = re.compile(r"[-+]?[0-9]*\.?[0-9]+(e[-+]?[0-9]+)?", re.ASCII | re.IGNORECASE)
_KINDS = {"bool": "a boolean", "int": "a number", "float": "a number", "null": "null", "timestamp": "a date"}


class AmbiguousScalar:
    """The value of a scalar that YAML 1.1 and a reader interpret differently; no model accepts it."""


@dataclass(frozen=True, slots=True)
class YamlNode:
    """A value of the file.

    ``place`` is ``file:line:col`` of the value and ``key_place`` that of its key (in a list, of the value).
    One of ``mapping`` and ``items`` is set for a collection; a scalar has ``value`` and ``raw``, its text.
    """

    place: str
    key_place: str
    value: object = None
    raw: str = ""
    kind: str = "text"
    mapping: Mapping[str, YamlNode] | None = None
    items: tuple[YamlNode, ...] | None = None

    def plain(self) -> object:
        """Return dicts, lists and scalars; text is :class:`~storagetest.config.base.Text` with its place."""
        if self.mapping is not None:
            return {key: child.plain() for key, child in self.mapping.items()}
        if self.items is not None:
            return [child.plain() for child in self.items]
        return self.value

    def child(self, key: str | int) -> YamlNode | None:
        """Return the child at ``key`` (a name or an index), or None."""
        if self.mapping is not None and isinstance(key, str):
            return self.mapping.get(key)
        if self.items is not None and isinstance(key, int) and 0 <= key < len(self.items):
            return self.items[key]
        return None


@dataclass(frozen=True, slots=True)
class YamlSource:
    """A file, read. ``name`` is its path as the user gave it, ``root`` its document."""

    name: str
    directory: Path
    root: YamlNode


def read(path: Path | str) -> YamlSource:
    """Read the file at ``path``. Raises :class:`ConfigError` with the position of the error."""
    path = Path(path)
    try:
        with path.open("rb") as file:
            data = file.read(_LARGEST_FILE + 1)
    except FileNotFoundError:
        raise ConfigError(
            f"no such file: {path}; `storagetest init ADDRESS` writes a first one for a machine of yours, "
            "`storagetest lab up` one for a lab"
        ) from None
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}") from None
    if len(data) > _LARGEST_FILE:
        raise ConfigError(f"{path} is larger than 1 MiB; is it the right file?")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ConfigError("this is not UTF-8", place=f"{path}:{line}:1") from None
    return parse(text, name=str(path), directory=path.parent)


def parse(text: str, *, name: str, directory: Path | None = None) -> YamlSource:
    """Read YAML ``text``; ``name`` leads every place, and relative paths start from ``directory``."""
    directory = directory or Path()
    if "\r" in text:  # one way to end a line, so that columns and scalars agree
        text = text.replace("\r\n", "\n")
    root = _compose(text, name)
    if root is None:
        raise ConfigError("the file is empty", place=f"{name}:1:1")
    return YamlSource(name, directory, _Reader(name, directory).read(root))


def _compose(text: str, name: str) -> yaml.Node | None:
    try:
        return yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position)
        column = error.position - (text.rfind("\n", 0, error.position) + 1)
        raise ConfigError(
            "a character that is not allowed in YAML", place=f"{name}:{line + 1}:{column + 1}"
        ) from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = f"{name}:{mark.line + 1}:{mark.column + 1}" if mark else f"{name}:1:1"
        raise ConfigError(_syntax(error), place=place) from None
    except RecursionError:
        raise ConfigError("the values are nested too deeply", place=f"{name}:1:1") from None


def _syntax(error: yaml.MarkedYAMLError) -> str:
    """Return PyYAML's message without the quoted text of the file, which may be a secret."""
    problem = re.sub(r" '(?!<)[^']{3,}'", "", error.problem or "") or "unreadable"
    if "undefined alias" in problem:
        problem = "an alias (*) without its anchor (&); quote the value if it is meant as text"
    elif "but found another document" in problem:
        problem = "a second document (---); expected one"
    elif "'\\t'" in problem:
        problem = "a tab where only spaces may indent"
    elif "expected <block end>" in problem:
        problem = "this line fits nothing above it; check the indentation"
    elif "cannot start any token" in problem:
        problem += "; quote the value"
    elif "mapping values are not allowed" in problem:
        problem += " (check the indentation, or quote the value)"
    return f"not YAML: {problem}"


@dataclass(slots=True)
class _Reader:
    """Converts PyYAML's nodes, and counts them while aliases are expanded."""

    name: str
    directory: Path
    count: int = 0
    open: set[int] = field(default_factory=set)
    """The ids of the collections we are inside of."""

    def read(self, node: yaml.Node, key: yaml.Node | None = None) -> YamlNode:
        self.count += 1
        if self.count > _MOST_NODES:
            raise ConfigError(f"more than {_MOST_NODES} values, its aliases unfolded", place=self.place(node))
        place, key_place = self.place(node), self.place(key or node)
        if isinstance(node, yaml.ScalarNode):
            return self.scalar(node, place, key_place)
        self.enter(node)
        try:
            if isinstance(node, yaml.MappingNode):
                self.check_tag(node, "map")
                return YamlNode(place, key_place, kind="a mapping", mapping=self.mapping(node))
            self.check_tag(node, "seq")
            items = tuple(self.read(item) for item in node.value)
            return YamlNode(place, key_place, kind="a list", items=items)
        finally:
            self.open.discard(id(node))

    def place(self, node: yaml.Node) -> str:
        return f"{self.name}:{node.start_mark.line + 1}:{node.start_mark.column + 1}"

    def enter(self, node: yaml.Node) -> None:
        if id(node) in self.open:
            raise ConfigError("this value contains itself", place=self.place(node))
        if len(self.open) >= _DEEPEST:
            raise ConfigError("the values are nested too deeply", place=self.place(node))
        self.open.add(id(node))

    def check_tag(self, node: yaml.Node, wanted: str) -> None:
        if node.tag != _TAG + wanted:
            raise ConfigError("tags (!) are not understood here", place=self.place(node))

    def mapping(self, node: yaml.MappingNode) -> dict[str, YamlNode]:
        """Read one mapping. Its own keys override merged keys, as YAML 1.1 requires."""
        own: dict[str, YamlNode] = {}
        merged: dict[str, YamlNode] = {}
        for key, value in node.value:
            if key.tag == f"{_TAG}merge":
                for name, child in self.merge(value).items():
                    merged.setdefault(name, child)
                continue
            name = self.key(key)
            if name in own:
                raise ConfigError(
                    f"{name!r} is written twice, first at {own[name].key_place}", place=self.place(key)
                )
            own[name] = self.read(value, key)
        return own | {name: child for name, child in merged.items() if name not in own}

    def merge(self, node: yaml.Node) -> dict[str, YamlNode]:
        if isinstance(node, yaml.SequenceNode):
            found: dict[str, YamlNode] = {}
            self.enter(node)
            for part in node.value:
                for name, child in self.merge(part).items():
                    found.setdefault(name, child)
            self.open.discard(id(node))
            return found
        if not isinstance(node, yaml.MappingNode):
            raise ConfigError("<< wants a mapping, or a list of them", place=self.place(node))
        return dict(self.read(node).mapping or {})

    def key(self, node: yaml.Node) -> str:
        if not isinstance(node, yaml.ScalarNode):
            raise ConfigError("a key is text; this is not", place=self.place(node))
        kind = node.tag.removeprefix(_TAG)
        if kind in _KINDS:
            raise ConfigError(
                f"{node.value or '(nothing)'} is {_KINDS[kind]} in YAML, and a key is text: quote it:"
                f' "{node.value}"',
                place=self.place(node),
            )
        if kind not in {"str", "value"}:
            raise ConfigError("tags (!) are not understood here", place=self.place(node))
        return str(node.value)

    def scalar(self, node: yaml.ScalarNode, place: str, key_place: str) -> YamlNode:
        kind = node.tag.removeprefix(_TAG)
        if kind in {"str", "value"}:
            text = Text(node.value, Origin(place, self.directory))
            return YamlNode(place, key_place, value=text, raw=node.value)
        if kind not in _KINDS:
            raise ConfigError("tags (!) are not understood here", place=place)
        return YamlNode(
            place, key_place, value=_construct(kind, node.value), raw=node.value, kind=_KINDS[kind]
        )


def _construct(kind: str, raw: str) -> object:
    """Return the value of a plain scalar; :class:`AmbiguousScalar` if a reader may expect another value."""
    if kind == "null":
        return None
    if kind == "bool":
        return yaml.constructor.SafeConstructor.bool_values.get(raw.lower(), AmbiguousScalar())
    if kind == "int":
        if not _INTEGER.fullmatch(raw):
            return AmbiguousScalar()
        return int(raw, 0) if raw.startswith("0x") else int(raw)
    if kind == "float" and _FLOAT.fullmatch(raw) and math.isfinite(float(raw)):
        return float(raw)
    return AmbiguousScalar()
