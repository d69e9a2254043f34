"""``--st-set targets.nfs.export=/x``: change a value of the file without editing it.

The steps of the path are names or list indexes, separated by dots; a name may contain dots. The value is
YAML, so text that looks like a number needs quotes; relative paths in it start from the working directory. A
path that does not exist is an error: every step but the last must exist, except below ``profiles``,
``thresholds``, ``comparisons`` and ``searches``. The models validate the value as if it were in the file.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from storagetest.config.validation import suggest
from storagetest.config.yaml_source import YamlNode, YamlSource, parse
from storagetest.errors import ConfigError

_MAY_BE_NEW = ("profiles", "thresholds", "comparisons", "searches")


def apply_overrides(source: YamlSource, overrides: Iterable[str]) -> YamlSource:
    """Return ``source`` with each ``path=value`` applied. Raises :class:`ConfigError` with the override."""
    for text in overrides:
        path, value = _split(text)
        place = f"--st-set {path}"
        new = parse(value if value.strip() else '""', name=place).root
        source = replace(source, root=_put(source.root, path, new, place, may_be_new=False))
    return source


def _split(text: str) -> tuple[str, str]:
    """Split at the first = outside brackets: a threshold's key may contain one."""
    depth = 0
    for index, character in enumerate(text):
        depth += (character == "[") - (character == "]")
        if character == "=" and depth <= 0 and text[:index].strip():
            return text[:index].strip(), text[index + 1 :]
    # The message does not quote the text: without its "=", it may be a secret.
    raise ConfigError("--st-set wants path=value, such as targets.nfs.export=/a")


def _put(node: YamlNode, path: str, new: YamlNode, place: str, *, may_be_new: bool) -> YamlNode:
    """Return ``node`` with ``new`` at ``path``, which starts from ``node``."""
    if node.items is not None:
        return _put_item(node, path, new, place)
    if node.mapping is None:
        raise ConfigError(f"cannot set a value below {node.kind} (at {node.place})", place=place)
    step, rest = _first_step(node, path)
    child = node.mapping.get(step)
    if not rest:
        changed = replace(new, key_place=place)
    elif child is not None:
        changed = _put(child, rest, new, place, may_be_new=may_be_new or step in _MAY_BE_NEW)
    elif may_be_new or step in _MAY_BE_NEW:
        empty = YamlNode(place, place, kind="a mapping", mapping={})
        changed = _put(empty, rest, new, place, may_be_new=True)
    else:
        raise ConfigError(f"no such key {step!r}{suggest(step, node.mapping)}", place=place)
    return replace(node, mapping={**node.mapping, step: changed})


def _put_item(node: YamlNode, path: str, new: YamlNode, place: str) -> YamlNode:
    items = list(node.items or ())
    step, _, rest = path.partition(".")
    if not (step.isascii() and step.isdigit() and len(step) < 6 and int(step) < len(items)):
        raise ConfigError(f"no such index {step!r}; expected an index below {len(items)}", place=place)
    index = int(step)
    items[index] = _put(items[index], rest, new, place, may_be_new=False) if rest else new
    return replace(node, items=tuple(items))


def _first_step(node: YamlNode, path: str) -> tuple[str, str]:
    """Split the first name off: the longest that exists (it may hold dots), or up to the first dot."""
    for name in sorted(node.mapping or (), key=len, reverse=True):
        if path == name:
            return name, ""
        if path.startswith(f"{name}."):
            return name, path[len(name) + 1 :]
    if "[" in path:  # a threshold's key: its brackets may hold dots
        return path, ""
    step, _, rest = path.partition(".")
    return step, rest
