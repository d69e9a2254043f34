"""Markdown reference page of the appliance roles, generated from their modules."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterable, Sequence

from storagetest.lab import roles
from storagetest.lab.services import Running, Target, YamlValue

_HEAD = """\
# Lab roles

This page is made from the code by `script/reference.py`. `storagetest lab up --appliance ROLE` starts
a lab with an appliance of this role. See [the lab](../lab.md)."""


def page() -> str:
    """Return the page: a table of all roles, and for each role its description, services and targets."""
    loaded = {name: roles.load(name) for name in roles.names()}
    rows = [
        (f"[`{name}`](#{name})", role.summary, role.debian, str(role.memory)) for name, role in loaded.items()
    ]
    parts = [_HEAD, _table(("role", "serves", "Debian", "memory in MiB"), rows)]
    for name, role in loaded.items():
        parts += [f"## {name}", inspect.getdoc(sys.modules[f"{roles.__name__}.{name}"]) or role.summary]
        if role.services:
            services = [
                (
                    f"`{service.name}`",
                    _code(service.packages + service.unpacked),
                    _code(service.modules),
                    ", ".join(f"{port} {number}" for port, number in service.ports.items()),
                )
                for service in role.services
            ]
            parts.append(
                _table(("service", "Debian packages", "kernel modules", "forwarded ports"), services)
            )
            targets = [
                (
                    f"`{target.name}`",
                    f"`{target.body['protocol']}`",
                    f"`{_name(target)}`",
                    _matrix(target),
                )
                for target in role.targets
            ]
            parts.append(_table(("target", "protocol", "implementation", "matrix"), targets))
    return "\n\n".join(parts).replace("``", "`") + "\n"


def _name(target: Target) -> str:
    running = target.body["implementation"]
    assert isinstance(running, Running)
    return running.name


def _matrix(target: Target) -> str:
    matrix = target.body.get("matrix", {})
    assert isinstance(matrix, dict)
    return "; ".join(f"{key}: {', '.join(map(_text, _items(values)))}" for key, values in matrix.items())


def _items(values: YamlValue) -> list[YamlValue]:
    assert isinstance(values, list)
    return values


def _text(value: YamlValue) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _code(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
