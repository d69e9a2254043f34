"""Write the targets.yaml of a lab, with comments that explain the format.

Labs with equal parameters have the same text on every host: addresses are fixed, keys, ports and passwords
are in files of the lab's directory, and paths begin with ``~``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path

from storagetest.lab.paths import shorten_home
from storagetest.lab.services import ForwardedPort, Running, Secret, Target, YamlValue

# Strings without quotes: a word or a path, a qualified name, an IPv4 address (LNet's NIDs end in @tcp).
_PLAIN = re.compile(r"[A-Za-z_/][A-Za-z0-9_./-]*(:[A-Za-z0-9_./-]+)*|\d+(\.\d+){3}(@[a-z0-9]+)?")
_WORDS = {
    "true",
    "false",
    "yes",
    "no",
    "on",
    "off",
    "null",
    "y",
    "n",
}  # YAML 1.1 parsers read these as booleans or null
_NO_CLIENTS = "there are no clients that could attach them: storagetest lab up --clients 1"
_NO_SERVICE = "the appliance serves nothing"
_HEAD = """\
# The targets of the lab `{name}` ({spec}), written by `storagetest lab up`.
# Copy this file and edit it to test other targets.
version: 1
{clients}
# Servers can be monitored under load, and fault tests can break them. List only servers that may be broken.
servers:
  appliance: {appliance}

# Targets are tested. Each combination of a matrix is one variant of its target.
targets:{empty}
"""
_CLIENTS = """
# Clients attach targets and generate load. The lab's clients are reached over SSH.
clients:
"""
_TAIL = """
# Gates: thresholds for metrics, compared with their confidence interval. These are low, because the lab may
# be emulated. Typical gates on real hardware: p99 <= 5ms, bandwidth >= 900MiB/s.
thresholds:
  small-random-write: [iops >= 20]
  small-random-read: [iops >= 20]
  sequential: [bandwidth >= 512KiB/s]
"""


def targets_yaml(
    name: str,
    spec: str,
    directory: Path,
    clients: list[str],
    targets: tuple[Target, ...],
    versions: Mapping[Running, str],
) -> str:
    """Return the text of targets.yaml for a lab in ``directory``."""
    config = shorten_home(directory / "ssh_config")

    def ssh_host(host: str) -> str:
        return f"{{transport: ssh, address: {host}, ssh_config: {config}}}"

    served = targets if clients else ()
    why = _NO_CLIENTS if targets else _NO_SERVICE
    head = _HEAD.format(
        name=name,
        spec=spec,
        clients=_CLIENTS + "".join(f"  {client}: {ssh_host(client)}\n" for client in clients)
        if clients
        else "",
        appliance=ssh_host("appliance"),
        empty="" if served else f" {{}}  # {why}",
    )
    body = "\n".join(_target(target, directory, versions) for target in served)
    return head + body + _roles(served) + _TAIL


def _roles(targets: tuple[Target, ...]) -> str:
    roles = {role: target.name for target in targets for role in target.roles}
    lines = "".join(f"  {role}: {name}\n" for role, name in sorted(roles.items()))
    return lines and f"\n# Targets of the published experiments in suites/papers.\nroles:\n{lines}"


def _target(target: Target, directory: Path, versions: Mapping[Running, str]) -> str:
    body = {key: _with_version(value, versions) for key, value in target.body.items()}
    comment = f"  # {target.comment}\n" if target.comment else ""
    lines = [f"    {key}: {_flow(value, directory)}\n" for key, value in body.items()]
    return f"{comment}  {target.name}:\n{''.join(lines)}"


def _with_version(value: YamlValue, versions: Mapping[Running, str]) -> YamlValue:
    """Return ``value``, or the name and the version of what runs, its name if the version is not known."""
    if not isinstance(value, Running):
        return value
    version = versions.get(value)
    return {"name": value.name, "version": version} if version else value.name


def _flow(value: YamlValue, directory: Path) -> str:
    """Return ``value`` in YAML's flow style."""
    match value:
        case Secret():
            return _string(f"${{file:{shorten_home(directory / value.name)}}}")
        case ForwardedPort():
            return _string(f"${{file:{shorten_home(directory / value.file)}}}")
        case Running():
            raise TypeError(f"{value}: its version is not known here")
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
