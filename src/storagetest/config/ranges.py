"""Ranges of hosts: ``client[1-74]`` are client1 to client74, as in the host lists of Slurm and pdsh.

In ``clients`` and ``servers`` the key of an entry may have a range. Text in the entry with a range of the
same length has the number of the host at the same position; a text that is nothing but a range is a number::

    clients:
      client[01-74]: {transport: ssh, address: "192.0.2.[1-74]"}
      node[0-7]: {transport: slurm, node: "[0-7]"}
"""

from __future__ import annotations

import re
from dataclasses import replace

from storagetest.config.base import Text
from storagetest.config.validation import ValidationErrors
from storagetest.config.yaml_source import YamlNode

_RANGE = re.compile(r"\[([0-9]{1,6})-([0-9]{1,6})\]")
_MOST = 4096
"""The largest number of hosts of a range (chosen)."""


def expand(text: str) -> tuple[str, ...]:
    """Return the texts that ``text`` stands for, itself if it has no range.

    The numbers have as many digits as the first one if that begins with 0. Raises :class:`ValueError` for a
    range that is empty or too long, and for more than one.
    """
    found = list(_RANGE.finditer(text))
    if not found:
        return (text,)
    first, last = found[0].groups()
    numbers = range(int(first), int(last) + 1)
    if len(found) > 1:
        raise ValueError(f"{text!r} has more than one range")
    if not 0 < len(numbers) <= _MOST:
        raise ValueError(f"the range {found[0][0]} has {len(numbers)} numbers; expected 1 to {_MOST}")
    digits = len(first) if first.startswith("0") else 1
    before, after = text[: found[0].start()], text[found[0].end() :]
    return tuple(f"{before}{number:0{digits}}{after}" for number in numbers)


def expand_keys(section: YamlNode, where: str, problems: ValidationErrors) -> YamlNode:
    """Return ``section`` with an entry for each host of a key with a range. Adds errors to ``problems``."""
    if section.mapping is None:
        return section
    entries: dict[str, YamlNode] = {}
    for key, node in section.mapping.items():
        try:
            names = expand(key)
            made = [_numbered(node, number, len(names)) for number in range(len(names))]
        except ValueError as error:
            problems.add(node.key_place, f"{where}.{key}: {error}")
            continue
        for name, entry in zip(names, made, strict=True):
            if name in entries:
                problems.add(node.key_place, f"{where}.{key}: {name} is defined twice")
            entries[name] = entry
    return replace(section, mapping=entries)


def _numbered(node: YamlNode, number: int, count: int) -> YamlNode:
    """Return the entry of the host at position ``number`` of ``count``."""
    if count == 1:
        return node
    if node.mapping is not None:
        return replace(
            node, mapping={key: _numbered(child, number, count) for key, child in node.mapping.items()}
        )
    if not isinstance(node.value, Text):
        return node
    texts = expand(node.value)
    if texts == (node.value,):
        return node
    if len(texts) != count:
        raise ValueError(f"{str(node.value)!r} has {len(texts)} numbers, and the name has {count}")
    text = texts[number]
    if _RANGE.fullmatch(node.value):
        return replace(node, value=int(text), raw=text, kind="a number")
    return replace(node, value=Text(text, node.value.origin), raw=text)
