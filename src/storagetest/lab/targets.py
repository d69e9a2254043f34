"""The ready targets.yaml of a lab: text for a program to read and for a person to learn from.

For labs of one shape it is the same text on every machine and every time: addresses are the lab's own, what
differs (keys, ports, passwords) is in files of the lab's directory, and paths are written with ``~``.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

from storagetest.lab.paths import tilde
from storagetest.lab.services import Secret, Target, Value, Wire

__all__ = ["targets_yaml"]

# What needs no quotes: a word or a path, a qualified name, an IPv4 address (LNet's NIDs end in @tcp).
_PLAIN = re.compile(r"[A-Za-z_/][A-Za-z0-9_./-]*(:[A-Za-z0-9_./-]+)*|\d+(\.\d+){3}(@[a-z0-9]+)?")
_WORDS = {"true", "false", "yes", "no", "on", "off", "null", "y", "n"}  # not strings to every YAML parser
_HEAD = """\
# The targets of the lab `{name}` ({shape}), written by `storagetest lab up`.
# A copy of this file is a good start for targets of your own.
version: 1

# Clients attach a target and put load on it. The lab's are reached over SSH.
clients:
{clients}
# Servers may be looked at while load runs, and be broken by a fault. Leave out what is not yours to break.
servers:
  appliance: {appliance}

# Targets are what is tested. Each combination of a matrix is one variant of its target.
targets:{nothing}
"""
_TAIL = """
# Gates: what a figure must be, judged on its confidence interval. The lab is emulated, so these only say that
# something moves. On real hardware they are the point of the exercise: p99 <= 5ms, bandwidth >= 900MiB/s.
thresholds:
  small-random-write: [iops >= 20]
  small-random-read: [iops >= 20]
  sequential: [bandwidth >= 512KiB/s]
"""


def targets_yaml(
    name: str, shape: str, directory: Path, clients: list[str], targets: tuple[Target, ...]
) -> str:
    """Return the text of targets.yaml for a lab in ``directory``."""
    config = tilde(directory / "ssh_config")

    def reach(host: str) -> str:
        return f"{{transport: ssh, address: {host}, ssh_config: {config}}}"

    head = _HEAD.format(
        name=name,
        shape=shape,
        clients="".join(f"  {client}: {reach(client)}\n" for client in clients),
        appliance=reach("appliance"),
        nothing="" if targets and clients else " {}",
    )
    return head + "\n".join(_target(target, directory) for target in targets if clients) + _TAIL


def _target(target: Target, directory: Path) -> str:
    comment = f"  # {target.comment}\n" if target.comment else ""
    lines = [f"    {key}: {_flow(value, directory)}\n" for key, value in target.body.items()]
    return f"{comment}  {target.name}:\n{''.join(lines)}"


def _flow(value: Value, directory: Path) -> str:
    """Return ``value`` in YAML's flow style."""
    match value:
        case Secret():
            return _string(f"${{file:{tilde(directory / value.name)}}}")
        case Wire():
            return _string(f"${{file:{tilde(directory / value.file)}}}")
        case bool():
            return str(value).lower()
        case int():
            return str(value)
        case str():
            return _string(value)
        case list():
            return f"[{', '.join(_flow(item, directory) for item in value)}]"
        case dict():
            return f"{{{', '.join(f'{key}: {_flow(item, directory)}' for key, item in value.items())}}}"


def _string(text: str) -> str:
    return text if _PLAIN.fullmatch(text) and text.lower() not in _WORDS else json.dumps(text)
