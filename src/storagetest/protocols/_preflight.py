"""Is everything there that an attach needs? Asked on the client, in one command, before anything is acquired.

A kernel that mounts from, or logs in to, a machine that is not there hides the reason or retries for minutes.
So the client itself opens a TCP connection to the portal first, with a short deadline of its own, and what it
is told becomes one clear sentence. The same command looks for the tools, loads the kernel module, and checks
that it may do so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from storagetest.errors import ClientLacks, StoragetestError, TargetDead
from storagetest.hosts import Host
from storagetest.protocols.base import ClientRequirements

__all__ = [
    "PreflightResult",
    "check_client",
    "collect_diagnostics",
    "parse_findings",
    "preflight",
    "raise_for_findings",
    "run_quietly",
]

CONNECT_SECONDS = 8
"""How long a TCP handshake may take: three SYNs (at 0, 1 and 3 s), and time for the last one's answer."""

SCRIPT = r"""
address=$1 port=$2 limit=$3 modules=$4 tools=$5
export LC_ALL=C
[ "$EUID" = 0 ] || echo "root no"
for tool in $tools; do
    command -v "$tool" >/dev/null || echo "tool $tool"
done
for module in $modules; do
    [ -d "/sys/module/$module" ] || modprobe -q "$module" 2>/dev/null ||
        grep -qw "$module" /proc/filesystems || echo "module $module"
done
if [ -n "$address" ]; then
    said=$(timeout "$limit" bash -c 'exec 3<>"/dev/tcp/$1/$2"' connect "$address" "$port" 2>&1)
    echo "connect $? $(echo "$said" | head -n 1)"
fi
exit 0
"""


@dataclass(frozen=True, slots=True)
class PreflightResult:
    """What the client lacks, and how its connection attempt ended (None: none was made)."""

    root: bool
    tools: tuple[str, ...]
    modules: tuple[str, ...]
    connect: tuple[int, str] | None


def preflight_argv(address: str, port: int, modules: Sequence[str], tools: Sequence[str]) -> list[str]:
    """Build the command; with an empty ``address`` no connection is tried."""
    script = ["bash", "-c", SCRIPT, "storagetest-reach"]
    return [*script, address, str(port), str(CONNECT_SECONDS), " ".join(modules), " ".join(tools)]


def parse_findings(text: str) -> PreflightResult:
    """Parse the command's lines: ``root no``, ``tool NAME``, ``module NAME``, ``connect STATUS TEXT``."""
    lines = [line.partition(" ")[::2] for line in text.splitlines()]
    connect = None
    for kind, value in lines:
        if kind == "connect":
            status, _, said = value.partition(" ")
            connect = (int(status), said)
    return PreflightResult(
        root=("root", "no") not in lines,
        tools=tuple(value for kind, value in lines if kind == "tool"),
        modules=tuple(value for kind, value in lines if kind == "module"),
        connect=connect,
    )


def unreachable_reason(status: int, said: str, address: str) -> str | None:
    """Say in words why a connection failed (bash's message, in English), or None when it succeeded."""
    if status == 0:
        return None
    reasons = {
        "Connection refused": "the connection is refused: nothing listens there, or a firewall rejects it",
        "No route to host": "there is no route to that host, or it does not answer on its own network",
        "Network is unreachable": "there is no route to that network",
        "Name or service not known": f"the name {address!r} is not known to the client's resolver",
        "Temporary failure in name resolution": f"the name {address!r} cannot be resolved: "
        "the client's resolver gives no answer",
        "No address associated with hostname": f"the name {address!r} has no address",
    }
    if status in {124, 137}:
        return f"no answer within {CONNECT_SECONDS} s: the host is down or stuck, or a firewall drops packets"
    return next((words for text, words in reasons.items() if text in said), said or f"status {status}")


def raise_for_findings(
    findings: PreflightResult, *, client: str, target: str, address: str, port: int, packages: str
) -> None:
    """Raise :class:`ClientLacks` or :class:`TargetDead` for what was found; return when all is well."""
    if findings.tools:
        msg = f"{client} has no {', '.join(findings.tools)}, wanted for {target}: install {packages} there"
        raise ClientLacks(msg)
    if findings.modules:
        who = "" if findings.root else ", and the user there is not root and cannot load modules"
        msg = (
            f"{client}'s kernel has no {', '.join(findings.modules)}, wanted for {target}{who}: "
            f"`modprobe {findings.modules[0]}` there says more"
        )
        raise ClientLacks(msg)
    if not findings.root:
        msg = f"{target}: mounting and logging in want root on {client}; use the user root or sudo there"
        raise ClientLacks(msg)
    if findings.connect is not None:
        why = unreachable_reason(*findings.connect, address)
        if why is not None:
            raise TargetDead(f"{target}: {client} cannot reach {address} port {port}: {why}")


def preflight(client: Host, needs: ClientRequirements, *, deadline: float) -> PreflightResult:
    """Find out what ``client`` lacks of ``needs``, in one command that takes ``deadline`` seconds at most."""
    done = client.run(preflight_argv(needs.address, needs.port, needs.modules, needs.tools), deadline=deadline)
    return parse_findings(done.stdout)


def check_client(client: Host, needs: ClientRequirements, *, target: str, deadline: float) -> None:
    """See the module; raises :class:`ClientLacks` or :class:`TargetDead`. ``deadline`` in seconds."""
    raise_for_findings(
        preflight(client, needs, deadline=deadline),
        client=client.name,
        target=target,
        address=needs.address,
        port=needs.port,
        packages=needs.packages,
    )


def run_quietly(client: Host, command: Sequence[str], *, deadline: float) -> str:
    """Return what ``command`` prints; empty where it fails, for whatever reason. Never raises for its own."""
    try:
        done = client.run(command, deadline=deadline, check=False)
    except StoragetestError:
        return ""
    return done.stdout if done.ok else ""


def collect_diagnostics(client: Host, commands: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """Run what may say something after a failure; what cannot be had says why instead. Never raises."""
    found = {}
    for name, command in {**commands, "dmesg": ["sh", "-c", "dmesg | tail -n 100"]}.items():
        try:
            done = client.run(command, deadline=15.0, check=False)
            found[name] = done.stdout if done.ok else done.describe()
        except StoragetestError as error:
            found[name] = str(error)
    return found
