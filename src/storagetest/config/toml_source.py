"""TOML files as :class:`~storagetest.config.yaml_source.YamlNode`, with the position of every key and value.

:mod:`tomllib` reads the values and reports no positions. A scanner of the same text finds the line and column
of each key, value and item. The scanner runs after tomllib has accepted the text, so it relies on its syntax.
A value whose position is not found has that of its parent.
"""

from __future__ import annotations

import re
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import date, time
from pathlib import Path

from storagetest.config.base import Origin, Text
from storagetest.config.yaml_source import YamlNode
from storagetest.errors import ConfigError

_Path = tuple[str | int, ...]
_AT = re.compile(r" \(at (?:line (\d+), column (\d+)|end of document)\)$")
_TOKEN = re.compile(
    r'''"""(?:\\.|[^\\])*?"{3,5}|\'\'\'.*?\'{3,5}|"(?:\\.|[^"\\])*"|'[^']*\''''
    r"|#[^\n]*|[ \t\r]+|\n|[][{}=,.]|[^][{}=,.#\"'\s]+",
    re.DOTALL,
)


def read(path: Path) -> YamlNode:
    """Return the document at ``path``. Raises :class:`ConfigError` with the position of the error."""
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise ConfigError("this is not UTF-8", place=f"{path}:1:1") from None
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from None
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise _syntax_error(path, text, str(error)) from None
    positions: dict[_Path, tuple[int, int]] = {}
    for where, offsets in _Scanner(text).positions():
        positions.setdefault(where, offsets)  # a table is where its first header is
    return _Nodes(path, text, positions).node(document, ())


def _syntax_error(path: Path, text: str, message: str) -> ConfigError:
    """Return tomllib's error with its position in front, as other errors have it."""
    match = _AT.search(message)
    if match and match[1]:
        line, column = int(match[1]), int(match[2])
    else:
        line, column = text.count("\n") + 1, len(text) - text.rfind("\n")
    return ConfigError(f"not TOML: {_AT.sub('', message)}", place=f"{path}:{line}:{column}")


class _Scanner:
    """Yields the path, the offset of the key and that of the value of everything in a valid document."""

    def __init__(self, text: str) -> None:
        tokens = [(match[0], match.start()) for match in _TOKEN.finditer(text)]
        self._tokens = [each for each in tokens if each[0].strip(" \t\r") and not each[0].startswith("#")]
        self._next = 0
        self._tables: Counter[_Path] = Counter()

    def positions(self) -> Iterator[tuple[_Path, tuple[int, int]]]:
        table: _Path = ()
        while self._next < len(self._tokens):
            word, offset = self._tokens[self._next]
            if word == "\n":
                self._next += 1
            elif word == "[":
                table = self._header()
                yield from ((table[:length], (offset, offset)) for length in range(1, len(table) + 1))
            else:
                yield from self._pair(table)

    def _header(self) -> _Path:
        """Read ``[a.b]`` or ``[[a.b]]``; return the path of its table."""
        self._next += 1
        array = self._tokens[self._next][0] == "["
        self._next += array
        path = self._key(())
        self._next += 1 + array
        if not array:
            return path
        self._tables[path] += 1
        return (*path, self._tables[path] - 1)

    def _key(self, parent: _Path) -> _Path:
        """Read a key with its dots; a part that is an array of tables is followed by its last index."""
        path = parent
        while True:
            if path in self._tables:
                path = (*path, self._tables[path] - 1)
            word = self._tokens[self._next][0]
            path = (*path, next(iter(tomllib.loads(f"{word} = 0"))) if word[0] in "\"'" else word)
            self._next += 1
            if self._tokens[self._next][0] != ".":
                return path
            self._next += 1

    def _pair(self, table: _Path) -> Iterator[tuple[_Path, tuple[int, int]]]:
        offset = self._tokens[self._next][1]
        path = self._key(table)
        self._next += 1  # =
        yield from ((path[:length], (offset, offset)) for length in range(len(table) + 1, len(path)))
        yield from self._value(path, offset)

    def _value(self, path: _Path, key: int | None) -> Iterator[tuple[_Path, tuple[int, int]]]:
        word, offset = self._tokens[self._next]
        yield path, (offset if key is None else key, offset)
        if word == "[":
            yield from self._until("]", path)
        elif word == "{":
            yield from self._until("}", path)
        else:
            while self._next < len(self._tokens) and self._tokens[self._next][0] not in {",", "]", "}", "\n"}:
                self._next += 1

    def _until(self, end: str, path: _Path) -> Iterator[tuple[_Path, tuple[int, int]]]:
        """Read the items of an array, or the pairs of an inline table."""
        self._next += 1
        index = 0
        while self._tokens[self._next][0] != end:
            if self._tokens[self._next][0] in {",", "\n"}:
                self._next += 1
            elif end == "]":
                yield from self._value((*path, index), None)
                index += 1
            else:
                yield from self._pair(path)
        self._next += 1


class _Nodes:
    """Converts tomllib's values to nodes."""

    def __init__(self, path: Path, text: str, positions: Mapping[_Path, tuple[int, int]]) -> None:
        self._path, self._text, self._positions = path, text, positions

    def node(self, value: object, path: _Path, parent: tuple[int, int] = (0, 0)) -> YamlNode:
        offsets = self._positions.get(path, parent)
        key_place, place = map(self._place, offsets)
        if isinstance(value, dict):
            mapping = {name: self.node(child, (*path, name), offsets) for name, child in value.items()}
            return YamlNode(place, key_place, kind="a mapping", mapping=mapping)
        if isinstance(value, list):
            items = tuple(self.node(child, (*path, index), offsets) for index, child in enumerate(value))
            return YamlNode(place, key_place, kind="a list", items=items)
        if isinstance(value, str):
            text = Text(value, Origin(place, self._path.parent))
            return YamlNode(place, key_place, value=text, raw=value)
        if isinstance(value, date | time):  # also a date with a time, whose text is then refused
            return YamlNode(place, key_place, value, raw=value.isoformat(), kind="a date")
        kind = "a boolean" if isinstance(value, bool) else "a number"
        raw = str(value).lower() if isinstance(value, bool) else str(value)
        return YamlNode(place, key_place, value, raw=raw, kind=kind)

    def _place(self, offset: int) -> str:
        line_start = self._text.rfind("\n", 0, offset) + 1
        return f"{self._path}:{self._text.count(chr(10), 0, offset) + 1}:{offset - line_start + 1}"
