"""``storagetest check``: would a run on these clients and targets find what it needs?

Clients and servers are asked all at once. Then each target is tried from each of its clients: tools, modules
and the port, as its protocol says that it needs them, and an attach that lets go at once. Nothing is written
on a device, even where that is permitted; on a file system a directory of our own is made and removed.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

from storagetest import config
from storagetest.commands import _host_facts
from storagetest.commands._console import Message, Severity, add_targets_file, get_console, print_messages
from storagetest.commands._host_facts import RequiredTool
from storagetest.concurrency import results_in_order
from storagetest.config.base import SecretText
from storagetest.errors import ClientLacks, ConfigError, HostError, InUse, OptionRefused, StoragetestError
from storagetest.hosts import Host
from storagetest.hosts.connect import connect
from storagetest.protocols._dry_run import DryRunResult, dry_run
from storagetest.protocols._preflight import preflight, unreachable_reason
from storagetest.protocols.base import ClientRequirements, Protocol, protocols
from storagetest.runner import shared
from storagetest.runner.locks import machine_id
from storagetest.units import format_size

if TYPE_CHECKING:
    from storagetest.commands._console import Subparsers
    from storagetest.config import Config, HostConfig, Variant
    from storagetest.config.kinds import WorkloadKind

__all__ = ["add_parser"]

_WAIT = 5.0
"""Seconds that a check waits for machines that a run measures on."""

_EXAMINE = 60.0


def add_parser(subparsers: Subparsers) -> None:
    """Add ``check`` to the commands; it sets ``func(args) -> int``."""
    parser = subparsers.add_parser(
        "check",
        help="see whether clients and targets are ready for a run",
        description="See whether clients and targets are ready for a run, and say what to do where they are "
        "not. Nothing is written on a device. Exit status: 0 ready (warnings may be there), 1 something "
        "fails, 4 a mistake in the targets file.",
    )
    add_targets_file(parser)
    parser.add_argument("--target", action="append", default=[], metavar="GLOB",
                        help="only variants whose id, or whose target, matches; may be repeated")  # fmt: skip
    parser.add_argument("--client", metavar="NAME", help="only this client")
    parser.add_argument("--all", action="store_true",
                        help="try every variant, rather than the first of each target")  # fmt: skip
    parser.add_argument(
        "--no-attach", action="store_true", help="do not attach: look at ports and tools only"
    )
    parser.add_argument("--strict", action="store_true", help="warnings fail as well")
    parser.set_defaults(func=_check)


def _check(arguments: argparse.Namespace) -> int:
    loaded = config.load(arguments.targets, arguments.overrides)
    variants = _chosen(loaded, arguments)
    out = get_console()
    count = dict.fromkeys(Severity, 0)

    def tell(title: str, lines: Sequence[Message]) -> None:
        out.print(title, soft_wrap=True)
        print_messages(out, lines)
        for line in lines:
            count[line.level] += 1

    wanted = {machine.name: machine for variant in variants for machine in variant.clients}
    if arguments.client:
        wanted = {arguments.client: loaded.clients[arguments.client]}
    servers = {variant.server.name: variant.server for variant in variants if variant.server is not None}
    hosts: dict[str, Host] = {}
    try:
        for title, lines, host in _machines(wanted, servers, variants, loaded.workloads):
            tell(title, lines)
            if host is not None:
                hosts[host.name] = host
        for variant in variants:
            for machine in variant.clients:
                if machine.name in hosts and machine.name in wanted:
                    title = f"{variant.id}: {protocols.get(variant.protocol).title} on {machine.name}"
                    tell(
                        title, _target(variant, machine, hosts[machine.name], attach=not arguments.no_attach)
                    )
    finally:
        for host in hosts.values():
            with suppress(StoragetestError):
                host.close()
    said = [f"{count[Severity.OK]} ok", f"{count[Severity.NOTE]} notes", f"{count[Severity.WARN]} warnings"]
    out.print(f"{', '.join(said)}, {count[Severity.FAIL]} failures")
    return 1 if count[Severity.FAIL] or (arguments.strict and count[Severity.WARN]) else 0


def _chosen(loaded: Config, arguments: argparse.Namespace) -> list[Variant]:
    """Return the variants to try. Raises :class:`ConfigError` for a name that names nothing."""
    if arguments.client and arguments.client not in loaded.clients:
        known = ", ".join(sorted(loaded.clients))
        raise ConfigError(f"--client {arguments.client}: no such client; there are: {known}")
    for glob in arguments.target:
        if not any(fnmatchcase(name, glob) for one in loaded.variants for name in (one.id, one.target)):
            raise ConfigError(f"--target {glob}: matches no variant; `storagetest targets` lists them")
    found: list[Variant] = []
    for variant in loaded.variants:
        matches = not arguments.target or any(
            fnmatchcase(name, glob) for glob in arguments.target for name in (variant.id, variant.target)
        )
        again = not arguments.all and variant.target in {one.target for one in found}
        if matches and not again:
            found.append(variant)
    return found


def _machines(
    clients: dict[str, HostConfig],
    servers: dict[str, HostConfig],
    variants: Sequence[Variant],
    workloads: Mapping[str, WorkloadKind],
) -> Iterator[tuple[str, list[Message], Host | None]]:
    """Ask all machines at once; yield title, lines, and the client's connection where it has one."""
    tools = {role: _tools(workloads, role) for role in ("client", "server")}
    jobs = [(machine, "client") for machine in clients.values()]
    jobs += [(machine, "server") for machine in servers.values()]

    def one(job: tuple[HostConfig, str]) -> tuple[str, list[Message], Host | None]:
        machine, role = job
        addresses = [
            needs.address
            for variant in variants
            if role == "client" and machine.name in {client.name for client in variant.clients}
            and (needs := _needs(variant)).address
        ]  # fmt: skip
        return _one_machine(machine, role, tools[role], list(dict.fromkeys(addresses)))

    yield from results_in_order(one, jobs, at_once=len(jobs), name="check")


def _one_machine(
    machine: HostConfig, role: str, tools: Sequence[RequiredTool], addresses: Sequence[str]
) -> tuple[str, list[Message], Host | None]:
    where = "this machine" if machine.transport == "local" else machine.address
    title = f"{machine.name} ({role}, {where})"
    try:
        host, local = connect(machine), machine.transport == "local"
        clocks = [] if local else [_host_facts.clock_offset(host)]
        facts = _host_facts.collect_facts(host, tools, addresses)
        clocks += [] if local else [_host_facts.clock_offset(host)]
    except (HostError, ConfigError) as error:
        return title, [Message(Severity.FAIL, str(error))], None
    except ValueError:
        return (
            title,
            [Message(Severity.FAIL, "it is no Linux with coreutils: `date +%s.%N` prints no number")],
            None,
        )
    lines = _host_facts.check_facts(facts, tools, clocks)
    if role == "server":
        host.close()
    return f"{title}: {_host_facts.describe(facts)}", lines, host if role == "client" else None


def _tools(workloads: Mapping[str, WorkloadKind], role: str) -> list[RequiredTool]:
    """Return the programs that the workloads need; of a server only what sampling needs."""
    users: dict[str, list[str]] = {}
    argvs: dict[str, tuple[str, ...]] = {}
    for name, load in workloads.items():
        for tool, argv in load.tools.items():
            users.setdefault(tool, []).append(name)
            argvs[tool] = argv
    found = []
    for tool, argv in sorted(argvs.items()):
        some = users[tool]
        wanted = f"{len(some)} workloads need it, such as {some[0]}"
        if tool == "python3":
            wanted = f"{wanted}, and so does the sampling of counters"
        if role == "client" or tool == "python3":
            found.append(RequiredTool(tool, argv, wanted))
    return found


def _needs(variant: Variant) -> ClientRequirements:
    return _protocol(variant).needs(variant.options)


def _protocol(variant: Variant) -> Protocol[Any]:
    return protocols.get(variant.protocol)()


def _target(variant: Variant, machine: HostConfig, client: Host, *, attach: bool) -> list[Message]:
    """Try one variant from one client."""
    protocol, needs = _protocol(variant), _needs(variant)
    lines = list(_secrets(variant.options))
    lacking = Severity.WARN if variant.optional else Severity.FAIL
    try:
        found = preflight(client, needs, deadline=_EXAMINE)
    except StoragetestError as error:
        return [Message(Severity.FAIL, str(error))]
    lines += [
        Message(lacking, f"no {tool} on {client.name}", f"install {needs.packages} there")
        for tool in found.tools
    ]
    for module in found.modules:
        advice = f"`modprobe {module}` there says why; cloud kernels lack some (Debian: linux-image-amd64)"
        lines.append(Message(lacking, f"{client.name}'s kernel has no module {module}", advice))
    if found.connect is not None:
        why = unreachable_reason(*found.connect, needs.address)
        port = f"{needs.address} port {needs.port}"
        if why:
            advice = (
                f"is {needs.address} right, is its service up, and do firewalls let {client.name} through?"
            )
            lines.append(Message(Severity.FAIL, f"{client.name} cannot reach {port}: {why}", advice))
        else:
            lines.append(Message(Severity.OK, f"{port} answers"))
    if not found.tools and not found.modules and needs.tools:
        lines.append(Message(Severity.OK, f"{', '.join((*needs.tools, *needs.modules))}: there"))
    if attach and all(line.level is not lacking and line.level is not Severity.FAIL for line in lines):
        lines += _attach(protocol, variant, machine, client)
    return lines


def _secrets(model: BaseModel) -> Iterator[Message]:
    """Look up what the options name only; what is found is shown to nobody."""
    for _, value in model:
        if isinstance(value, BaseModel):
            yield from _secrets(value)
        elif isinstance(value, SecretText):
            try:
                value.reveal()
            except ConfigError as error:
                yield Message(Severity.FAIL, str(error))


def _attach(protocol: Protocol[Any], variant: Variant, machine: HostConfig, client: Host) -> list[Message]:
    names = [f"client:{machine_id(machine)}", f"server:{protocol.server(variant.options)}"]
    try:
        with shared(names, timeout=_WAIT, purpose="storagetest check"):
            return _seen(dry_run(protocol, client, variant.options), variant)
    except OptionRefused as refused:
        return [
            Message(
                Severity.WARN, str(refused), "its cases will be skipped; drop the variant if that is for good"
            )
        ]
    except ClientLacks as lacks:
        return [Message(Severity.WARN if variant.optional else Severity.FAIL, str(lacks))]
    except InUse as error:
        return [
            Message(Severity.NOTE, f"not attached: {error.reason}", "check again when that run has ended")
        ]
    except StoragetestError as error:
        return [Message(Severity.FAIL, str(error))]


def _seen(rehearsal: DryRunResult, variant: Variant) -> list[Message]:
    if rehearsal.device is not None:
        device = rehearsal.device
        text = f"{device.path}, {format_size(device.size)}, identity {device.identity or 'none'}"
        if rehearsal.at_risk:
            return [Message(Severity.FAIL, "attached and released; " + rehearsal.at_risk)]
        return [Message(Severity.OK, f"attached and released: {text}: may be overwritten, as `erase` says")]
    lines = [Message(Severity.OK, f"attached and released: {_brief(rehearsal)}")]
    return lines + [
        Message(
            Severity.FAIL,
            f"changed in silence: {one}",
            f"ask for what it gives, or see why, at {variant.place}",
        )
        for one in rehearsal.mismatches
    ]


def _brief(rehearsal: DryRunResult) -> str:
    words = [f"{name} {value}" for name, value in rehearsal.negotiated.items()]
    return ", ".join(words[:6]) or "nothing to negotiate"
