"""``storagetest check``: check that clients, servers and targets are ready for a test run.

All clients and servers are checked at the same time. Then each variant is checked from each of its clients:
tools, kernel modules and TCP port, by the protocol's requirements, and attach and release. Nothing is written
on a device; on a file system one directory is created and removed.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

from storagetest import config
from storagetest.commands import _host_facts
from storagetest.commands._console import Message, Severity, add_targets_file, get_console, print_messages
from storagetest.commands._host_facts import RequiredTool
from storagetest.concurrency import results_in_order
from storagetest.config.base import SecretText
from storagetest.config.variant_filter import matches_name
from storagetest.errors import ClientLacks, ConfigError, HostError, InUse, OptionRefused, StoragetestError
from storagetest.hosts import Host
from storagetest.hosts.connect import connect
from storagetest.protocols._dry_run import DryRunResult, dry_run
from storagetest.protocols._preflight import preflight, unreachable_reason
from storagetest.protocols.base import Protocol, protocols
from storagetest.runner import shared
from storagetest.runner.locks import machine_id
from storagetest.units import format_size

if TYPE_CHECKING:
    from storagetest.commands._console import Subparsers
    from storagetest.config import Config, HostConfig, Variant
    from storagetest.config.kinds import WorkloadKind

_LOCK_TIMEOUT = 5.0
"""Seconds to wait for the locks of a client and a server that another run measures on; chosen."""

_PREFLIGHT_TIMEOUT = 60.0
"""Timeout in seconds of the preflight on one client; chosen."""


def add_parser(subparsers: Subparsers) -> None:
    """Add ``check`` to the commands; it sets ``func(args) -> int``."""
    parser = subparsers.add_parser(
        "check",
        help="check that clients and targets are ready for a run",
        description="Check that clients and targets are ready for a run, and print how to correct each "
        "problem. Nothing is written on a device. Exit status: 0 ready (there may be warnings), 1 a check "
        "failed, 4 invalid targets file.",
    )
    add_targets_file(parser)
    parser.add_argument("--target", action="append", default=[], metavar="GLOB",
                        help="check only variants whose id or target matches; may be repeated")  # fmt: skip
    parser.add_argument("--client", metavar="NAME", help="check only this client")
    parser.add_argument("--all", action="store_true",
                        help="check every variant, not only the first of each target")  # fmt: skip
    parser.add_argument("--no-attach", action="store_true", help="check tools and ports, and do not attach")
    parser.add_argument("--strict", action="store_true", help="exit with status 1 also on a warning")
    parser.set_defaults(func=_check)


def _check(arguments: argparse.Namespace) -> int:
    loaded = config.load(arguments.targets, arguments.overrides)
    variants = _select(loaded, arguments)
    out = get_console()
    count = dict.fromkeys(Severity, 0)

    def report(title: str, messages: Sequence[Message]) -> None:
        out.print(title, soft_wrap=True)
        print_messages(out, messages)
        for message in messages:
            count[message.severity] += 1

    clients = {machine.name: machine for variant in variants for machine in variant.clients}
    if arguments.client:
        clients = {arguments.client: loaded.clients[arguments.client]}
    servers = {variant.server.name: variant.server for variant in variants if variant.server is not None}
    report(str(loaded.path), _check_file(loaded))
    hosts: dict[str, Host] = {}
    try:
        for title, messages, host in _check_machines(clients, servers, variants, loaded.workloads):
            report(title, messages)
            if host is not None:
                hosts[host.name] = host
        for variant in variants:
            for machine in variant.clients:
                if machine.name in hosts and machine.name in clients:
                    host = hosts[machine.name]
                    title = f"{variant.id}: {protocols.get(variant.protocol).title} on {machine.name}"
                    report(title, _check_variant(variant, machine, host, attach=not arguments.no_attach))
    finally:
        for host in hosts.values():
            with suppress(StoragetestError):
                host.close()
    out.print(
        f"{count[Severity.OK]} ok, {_counted(count[Severity.NOTE], 'note')}, "
        f"{_counted(count[Severity.WARN], 'warning')}, {_counted(count[Severity.FAIL], 'failure')}"
    )
    return 1 if count[Severity.FAIL] or (arguments.strict and count[Severity.WARN]) else 0


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'s' * (number != 1)}"


def _check_file(loaded: Config) -> list[Message]:
    warnings = [Message(Severity.WARN, text) for text in loaded.warnings()]
    return warnings or [Message(Severity.OK, "valid; no secret is plain text")]


def _select(loaded: Config, arguments: argparse.Namespace) -> list[Variant]:
    """Return the variants to check. Raises :class:`ConfigError` for a name that matches nothing."""
    if arguments.client and arguments.client not in loaded.clients:
        known = ", ".join(sorted(loaded.clients))
        raise ConfigError(f"--client {arguments.client}: no such client. Clients: {known}")
    for glob in arguments.target:
        if not any(matches_name(variant, [glob]) for variant in loaded.variants):
            raise ConfigError(f"--target {glob}: matches no variant; `storagetest targets` lists them")
    selected: list[Variant] = []
    for variant in loaded.variants:
        repeated = not arguments.all and variant.target in {other.target for other in selected}
        if (not arguments.target or matches_name(variant, arguments.target)) and not repeated:
            selected.append(variant)
    return selected


def _check_machines(
    clients: Mapping[str, HostConfig],
    servers: Mapping[str, HostConfig],
    variants: Sequence[Variant],
    workloads: Mapping[str, WorkloadKind],
) -> Iterator[tuple[str, list[Message], Host | None]]:
    """Check all machines at the same time; yield title, messages, and the connection to a client."""
    tools = {role: _required_tools(workloads, role) for role in ("client", "server")}
    jobs = [(machine, "client") for machine in clients.values()]
    jobs += [(machine, "server") for machine in servers.values()]

    def check_one(job: tuple[HostConfig, str]) -> tuple[str, list[Message], Host | None]:
        machine, role = job
        addresses = [
            needs.address
            for variant in variants
            if role == "client" and machine.name in {client.name for client in variant.clients}
            and (needs := protocols.get(variant.protocol)().needs(variant.options)).address
        ]  # fmt: skip
        return _check_machine(machine, role, tools[role], list(dict.fromkeys(addresses)))

    yield from results_in_order(check_one, jobs, at_once=len(jobs), name="check")


def _check_machine(
    machine: HostConfig, role: str, tools: Sequence[RequiredTool], addresses: Sequence[str]
) -> tuple[str, list[Message], Host | None]:
    local = machine.transport == "local"
    title = f"{machine.name} ({role}, {'this machine' if local else machine.address})"
    try:
        host = connect(machine)
        clocks = [] if local else [_host_facts.clock_offset(host)]
        facts = _host_facts.collect_facts(host, tools, addresses)
        clocks += [] if local else [_host_facts.clock_offset(host)]
    except (HostError, ConfigError) as error:
        return title, [Message(Severity.FAIL, str(error))], None
    except ValueError:
        text = "not a Linux system with coreutils: `date +%s.%N` prints no number"
        return title, [Message(Severity.FAIL, text)], None
    messages = _host_facts.check_facts(facts, tools, clocks)
    if role == "server":
        host.close()
    return f"{title}: {_host_facts.describe(facts)}", messages, host if role == "client" else None


def _required_tools(workloads: Mapping[str, WorkloadKind], role: str) -> list[RequiredTool]:
    """Return the programs that the workloads require on a client; for a server, those of sampling."""
    users: dict[str, list[str]] = {}
    argvs: dict[str, tuple[str, ...]] = {}
    for name, load in workloads.items():
        for tool, argv in load.tools.items():
            users.setdefault(tool, []).append(name)
            argvs[tool] = argv
    tools = []
    for tool, argv in sorted(argvs.items()):
        reason = f"{len(users[tool])} workloads require it, for example {users[tool][0]}"
        if tool == "python3":
            reason += "; sampling of counters requires it too"
        if role == "client" or tool == "python3":
            tools.append(RequiredTool(tool, argv, reason))
    return tools


def _check_variant(variant: Variant, machine: HostConfig, client: Host, *, attach: bool) -> list[Message]:
    """Check one variant from one client."""
    protocol = protocols.get(variant.protocol)()
    needs = protocol.needs(variant.options)
    messages = list(_unreadable_secrets(variant.options))
    missing = Severity.WARN if variant.optional else Severity.FAIL
    try:
        result = preflight(client, needs, deadline=_PREFLIGHT_TIMEOUT)
    except StoragetestError as error:
        return [Message(Severity.FAIL, str(error))]
    messages += [
        Message(missing, f"no {tool} on {client.name}", f"install {needs.packages} on {client.name}")
        for tool in result.tools
    ]
    if not result.rdma:
        advice = "use a client with an RDMA card and its driver, or TCP"
        messages.append(Message(missing, f"{client.name} has no RDMA device (/sys/class/infiniband)", advice))
    for module in result.modules:
        advice = (
            f"run `modprobe {module}` there; cloud kernels lack modules (Debian: install linux-image-amd64)"
        )
        messages.append(Message(missing, f"{client.name}'s kernel has no module {module}", advice))
    if result.connect is not None:
        reason = unreachable_reason(*result.connect, needs.address)
        port = f"{needs.address} port {needs.port}"
        if reason:
            advice = (
                f"check the address, the server's service, and the firewalls between {client.name} and it"
            )
            messages.append(
                Message(Severity.FAIL, f"{client.name} cannot connect to {port}: {reason}", advice)
            )
        else:
            messages.append(Message(Severity.OK, f"{port} accepts connections"))
    if not result.tools and not result.modules and needs.tools:
        messages.append(Message(Severity.OK, f"installed: {', '.join((*needs.tools, *needs.modules))}"))
    if attach and not {missing, Severity.FAIL} & {message.severity for message in messages}:
        messages += _attach(protocol, variant, machine, client)
    return messages


def _unreadable_secrets(model: BaseModel) -> Iterator[Message]:
    """Read each secret of the options and yield a message for each that cannot be read. Prints no secret."""
    for _, value in model:
        if isinstance(value, BaseModel):
            yield from _unreadable_secrets(value)
        elif isinstance(value, SecretText):
            try:
                value.reveal()
            except ConfigError as error:
                yield Message(Severity.FAIL, str(error))


def _attach(protocol: Protocol[Any], variant: Variant, machine: HostConfig, client: Host) -> list[Message]:
    names = [f"client:{machine_id(machine)}", f"server:{protocol.server(variant.options)}"]
    try:
        with shared(names, timeout=_LOCK_TIMEOUT, purpose="storagetest check"):
            return _attach_messages(dry_run(protocol, client, variant.options), variant)
    except OptionRefused as error:
        advice = "its cases are skipped; remove the variant if the target never supports it"
        return [Message(Severity.WARN, str(error), advice)]
    except ClientLacks as error:
        return [Message(Severity.WARN if variant.optional else Severity.FAIL, str(error))]
    except InUse as error:
        advice = "run the check again after that run has ended"
        return [Message(Severity.NOTE, f"not attached: {error.reason}", advice)]
    except StoragetestError as error:
        return [Message(Severity.FAIL, str(error))]


def _attach_messages(result: DryRunResult, variant: Variant) -> list[Message]:
    if result.device is not None:
        if result.at_risk:
            return [Message(Severity.FAIL, f"attached and released; {result.at_risk}")]
        device = result.device
        text = f"{device.path}, {format_size(device.size)}, identity {device.identity or 'none'}"
        return [Message(Severity.OK, f"attached and released: {text}; `erase` permits overwriting it")]
    negotiated = ", ".join([f"{name} {value}" for name, value in result.negotiated.items()][:6])
    advice = (
        f"set the option to the value in effect, or find the cause; the variant is defined at {variant.place}"
    )
    return [
        Message(Severity.OK, f"attached and released: {negotiated or 'no negotiated options'}"),
        *(Message(Severity.FAIL, f"silently changed: {mismatch}", advice) for mismatch in result.mismatches),
    ]
