"""``storagetest init``: write a first targets.yaml for one storage address.

The client connects to that address only, to the usual ports of the registered protocols, all at the same
time and with a short timeout. It then queries the servers that respond. On a terminal the user is asked for
missing values; otherwise the file has marked examples. No password is asked for or written: the file names an
environment variable.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import TypeAdapter, ValidationError

from storagetest import config, installed_suites
from storagetest.commands._console import get_console
from storagetest.commands._port_scan import format_ports, open_ports
from storagetest.commands._targets_template import TargetDraft, required, targets_yaml
from storagetest.config import HostConfig
from storagetest.config.base import Address
from storagetest.config.schema import schema_text
from storagetest.config.validation import first_message
from storagetest.errors import ConfigError, StoragetestError
from storagetest.hosts.connect import connect
from storagetest.protocols.base import Protocol, protocols

if TYPE_CHECKING:
    from rich.console import Console

    from storagetest.commands._console import Subparsers

SCHEMA = "targets.schema.json"
_DISCOVERY_TIMEOUT = 20.0
"""Timeout in seconds of each protocol's discovery; chosen."""


def add_parser(subparsers: Subparsers) -> None:
    """Add ``init`` to the commands; it sets ``func(args) -> int``."""
    parser = subparsers.add_parser(
        "init",
        help="write a first targets.yaml for your storage",
        description="Write a first targets.yaml. The client connects to the given address, and to no other, "
        "on the ports of the known protocols. On a terminal the command asks for missing values. "
        "Exit status: 0 written, 1 not written, 2 wrong usage, 4 a wrong value.",
    )
    parser.add_argument("address", nargs="?", metavar="ADDRESS", help="the storage's name or IP address")
    parser.add_argument("-o", "--output", type=Path, default=Path("targets.yaml"), metavar="FILE",
                        help="the file to write (default: ./targets.yaml)")  # fmt: skip
    parser.add_argument("--client", metavar="[USER@]HOST[:PORT]",
                        help="the host that generates load, over SSH; 'local' is this machine")  # fmt: skip
    parser.add_argument("--key", type=Path, metavar="FILE", help="the SSH key for the client")
    parser.add_argument("--protocol", action="append", default=[], metavar="NAME",
                        help="write a target of this protocol even if no port is open; "
                        "may be repeated")  # fmt: skip
    parser.add_argument("--set", dest="settings", action="append", default=[],
                        metavar="PROTOCOL.OPTION=VALUE",
                        help="an option of a target, such as nfs.export=/tank; may be repeated")  # fmt: skip
    parser.add_argument("--no-probe", action="store_true", help="do not connect to the address or the client")
    parser.add_argument(
        "--suites", action="store_true", help="also copy the suites next to the file, to edit them"
    )
    parser.add_argument("--force", action="store_true", help="overwrite an existing file")
    parser.set_defaults(func=_init)


def _init(arguments: argparse.Namespace) -> int:
    out = get_console()
    prompter = Prompter(out, interactive=sys.stdin.isatty() and sys.stdout.isatty())
    target: Path = arguments.output
    if target.exists() and not arguments.force:
        raise StoragetestError(
            f"{target} already exists: name another file with -o, or overwrite it with --force"
        )
    if not target.parent.is_dir():
        raise StoragetestError(f"{target}: no such directory: {target.parent}")
    suites = target.parent / "suites"
    if arguments.suites:
        installed_suites.check_free(suites)
    for name in arguments.protocol:
        protocols.get(name)
    settings = _settings(arguments.settings)
    requested = list(dict.fromkeys([*arguments.protocol, *settings]))
    remote = [name for name in requested if protocols.get(name).ports] or not requested
    address = _address(prompter, arguments.address) if remote else ""
    client = arguments.client or prompter.ask("client (user@host, or local)", "local")
    machine = _machine(client, arguments.key)
    drafts = _drafts(prompter, machine, address, requested, settings, probe=not arguments.no_probe)
    _ask_for_missing(prompter, drafts)
    text = targets_yaml(machine, drafts, schema=SCHEMA)
    _write(target, text, force=arguments.force)
    if arguments.suites:
        installed_suites.copy(suites)
        out.print(f"{suites} is a copy of the suites to edit.", soft_wrap=True)
    _print_next_steps(out, target, drafts)
    return 0


@dataclass(frozen=True, slots=True)
class Prompter:
    """Asks the user for values if ``interactive``, and else uses the defaults."""

    out: Console
    interactive: bool

    def ask(self, question: str, default: str) -> str:
        """Return the user's text, or ``default`` if it is empty or the session is not interactive."""
        if not self.interactive:
            return default
        shown = f" [{default}]" if default else ""
        try:
            return input(f"{question}{shown}: ").strip() or default
        except EOFError:
            raise StoragetestError("end of input: nothing was written") from None


def _address(prompter: Prompter, argument: str | None) -> str:
    address = argument or prompter.ask("the storage's name or IP address", "")
    if not address:
        raise StoragetestError("the address of the storage is missing: storagetest init ADDRESS")
    return _checked_address(address)


def _checked_address(text: str, prefix: str = "") -> str:
    try:
        return TypeAdapter(Address).validate_python(text)
    except ValidationError as error:
        raise StoragetestError(f"{prefix}{first_message(error)}") from None


def _settings(texts: Sequence[str]) -> dict[str, dict[str, str]]:
    """Parse the values of ``--set``: protocol → option → text."""
    settings: dict[str, dict[str, str]] = {}
    for text in texts:
        path, equals, value = text.partition("=")
        name, dot, option = path.partition(".")
        if not (equals and dot and option):
            raise ConfigError(f"--set {text}: expected PROTOCOL.OPTION=VALUE, for example nfs.export=/tank")
        fields = protocols.get(name).Options.model_fields
        if option not in fields:
            raise ConfigError(f"--set {text}: {name} has no option {option!r}. Options: {', '.join(fields)}")
        settings.setdefault(name, {})[option] = value
    return settings


def _machine(text: str, key: Path | None) -> HostConfig:
    if text == "local":
        if key is not None:
            raise StoragetestError("--key requires a client over SSH: name the client with --client")
        return HostConfig("local", "local")
    user, at, rest = text.rpartition("@")
    host, colon, port = rest.partition(":") if rest.count(":") == 1 else (rest, "", "")
    address = _checked_address(host, f"--client {text}: ")
    if (at and not user) or (colon and not (port.isdecimal() and 0 < int(port) < 1 << 16)):
        raise StoragetestError(f"--client {text}: expected [USER@]HOST[:PORT]")
    number = int(port) if port else None
    return HostConfig("client1", "ssh", address=address, user=user or "root", port=number, key=key)


def _drafts(
    prompter: Prompter,
    machine: HostConfig,
    address: str,
    requested: Sequence[str],
    settings: Mapping[str, Mapping[str, str]],
    *,
    probe: bool,
) -> list[TargetDraft]:
    """Return a target for each requested protocol, or for each with an open port if none is requested."""
    kinds = protocols.all()
    ports: dict[str, list[int]] = {}
    discovered: dict[str, Sequence[Mapping[str, Any]]] = {}
    if probe and address:
        prompter.out.print(
            f"connecting from {machine.name} to {address}: ports {format_ports(kinds)}", soft_wrap=True
        )
        with connect(machine) as host:
            ports = open_ports(host, address, kinds)
            for name in requested or ports:
                discovered[name] = kinds[name]().discover(host, address, deadline=_DISCOVERY_TIMEOUT)
                _print_discovered(prompter.out, kinds[name], ports.get(name, []), discovered[name])
    if not requested and not ports:
        problem = "no known port is open" if probe else "no port was tried (--no-probe)"
        raise StoragetestError(f"{address}: {problem}; name the protocol with --protocol: {', '.join(kinds)}")
    return [
        TargetDraft(
            kinds[name],
            address=address,
            known={**_choose(prompter, kinds[name], discovered.get(name, ())), **settings.get(name, {})},
            ports=tuple(ports.get(name, ())),
            others=tuple(discovered.get(name, ())[1:]),
        )
        for name in requested or ports
    ]


def _print_discovered(
    out: Console, kind: type[Protocol[Any]], ports: Sequence[int], discovered: Sequence[Mapping[str, Any]]
) -> None:
    state = f"open port {', '.join(map(str, ports))}" if ports else "no open port"
    names = ", ".join(str(next(iter(options.values()))) for options in discovered[:8])
    more = f" and {len(discovered) - 8} more" if len(discovered) > 8 else ""
    out.print(f"  {kind.title}: {state}" + (f"; found {names}{more}" if names else ""), soft_wrap=True)


def _choose(
    prompter: Prompter, kind: type[Protocol[Any]], discovered: Sequence[Mapping[str, Any]]
) -> Mapping[str, Any]:
    """Return the discovered options that the user chooses, by default the first."""
    if len(discovered) < 2:
        return discovered[0] if discovered else {}
    for number, options in enumerate(discovered, 1):
        if prompter.interactive:
            text = ", ".join(f"{name} {value}" for name, value in options.items())
            prompter.out.print(f"    {number}: {text}")
    choice = prompter.ask(f"number of the {kind.title} target", "1")
    valid = choice.isdecimal() and 0 < int(choice) <= len(discovered)
    return discovered[int(choice) - 1 if valid else 0]


def _ask_for_missing(prompter: Prompter, drafts: Sequence[TargetDraft]) -> None:
    """Ask for the required options that have no value and are not secrets."""
    for draft in drafts:
        for name, purpose, secret in required(draft.kind):
            if name in draft.values or secret or not prompter.interactive:
                continue
            example = str(draft.kind.example.get(name, ""))
            text = prompter.ask(f"{draft.kind.title}: {purpose} (for example {example})", "")
            while text and (problem := draft.refuses(name, text)):
                text = prompter.ask(f"{problem}; try again", "")
            if text:
                draft.known[name] = text


def _write(target: Path, text: str, *, force: bool) -> None:
    """Write the file atomically, if it loads, and the schema for editors next to it."""
    part = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        part.write_text(text)
        config.load(part)
        if force:
            part.replace(target)
        else:
            os.link(part, target)  # fails if another process has created it
        target.with_name(SCHEMA).write_text(schema_text())
    except ConfigError as error:
        text = str(error).replace(str(part), str(target))
        raise ConfigError(f"not written, because the values are invalid: {text}") from None
    except OSError as error:
        raise StoragetestError(f"{target}: cannot be written: {error.strerror}") from None
    finally:
        part.unlink(missing_ok=True)


def _print_next_steps(out: Console, target: Path, drafts: Sequence[TargetDraft]) -> None:
    out.print(f"Wrote {target}, and {SCHEMA} for your editor next to it.", soft_wrap=True)
    marked = [f"{draft.name}.{name}" for draft in drafts for name in draft.examples]
    if marked:
        out.print(f"Values to replace, marked CHANGE THIS: {', '.join(marked)}", soft_wrap=True)
    option = "" if target == Path("targets.yaml") else f" --targets {target}"
    out.print(f"Next: storagetest check{option}")
