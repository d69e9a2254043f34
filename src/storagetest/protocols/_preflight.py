"""Check the requirements of an attach in one command on the client, before anything is acquired.

Why: a kernel that mounts from an unreachable server, or logs in to one, hides the reason or retries for
minutes. Therefore the client first opens a TCP connection to the server, with a short timeout, and the result
becomes an error message. The same command checks the tools, loads the kernel modules and checks for root.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from storagetest.errors import ClientLacks, StoragetestError, TargetDead
from storagetest.hosts import Host
from storagetest.protocols.base import ClientRequirements

CONNECT_SECONDS = 8
"""Timeout of a TCP handshake in seconds: three SYNs (at 0, 1 and 3 s), and time for the last response."""

SCRIPT = r"""
address=$1 port=$2 limit=$3 modules=$4 tools=$5 rdma=$6
export LC_ALL=C
[ "$EUID" = 0 ] || echo "root no"
for tool in $tools; do
    command -v "$tool" >/dev/null || echo "tool $tool"
done
for module in $modules; do
    [ -d "/sys/module/$module" ] || modprobe -q "$module" 2>/dev/null ||
        grep -qw "$module" /proc/filesystems || echo "module $module"
done
if [ -n "$rdma" ]; then  # after the modules, which register soft devices
    ls /sys/class/infiniband/* >/dev/null 2>&1 || echo "device rdma"
fi
if [ -n "$address" ]; then
    output=$(timeout "$limit" bash -c 'exec 3<>"/dev/tcp/$1/$2"' connect "$address" "$port" 2>&1)
    echo "connect $? $(echo "$output" | head -n 1)"
fi
exit 0
"""


@dataclass(frozen=True, slots=True)
class PreflightResult:
    """What is missing, and status and error output of the connection attempt (None: not tried).

    ``rdma`` is false if an RDMA device is needed and missing.
    """

    root: bool
    tools: tuple[str, ...]
    modules: tuple[str, ...]
    connect: tuple[int, str] | None
    rdma: bool = True


def preflight_argv(needs: ClientRequirements) -> list[str]:
    """Build the command; without an address or a port it does not try to connect."""
    script = ["bash", "-c", SCRIPT, "storagetest-preflight"]
    address = needs.address if needs.port else ""
    lists = (" ".join(needs.modules), " ".join(needs.tools), "rdma" * needs.rdma)
    return [*script, address, str(needs.port), str(CONNECT_SECONDS), *lists]


def parse_findings(text: str) -> PreflightResult:
    """Parse the command's lines: ``root no``, ``tool NAME``, ``module NAME``, …."""
    lines = [line.partition(" ")[::2] for line in text.splitlines()]
    connect = None
    for kind, value in lines:
        if kind == "connect":
            status, _, output = value.partition(" ")
            connect = (int(status), output)
    return PreflightResult(
        root=("root", "no") not in lines,
        tools=tuple(value for kind, value in lines if kind == "tool"),
        modules=tuple(value for kind, value in lines if kind == "module"),
        connect=connect,
        rdma=("device", "rdma") not in lines,
    )


def unreachable_reason(status: int, output: str, address: str) -> str | None:
    """Return why a connection failed, from bash's English error output, or None if it succeeded."""
    if status == 0:
        return None
    reasons = {
        "Connection refused": "the connection is refused: nothing listens there, or a firewall rejects it",
        "No route to host": "there is no route to that host, or it does not respond on its own network",
        "Network is unreachable": "there is no route to that network",
        "Name or service not known": f"the client's resolver cannot find the name {address!r}",
        "Temporary failure in name resolution": f"the name {address!r} cannot be resolved: "
        "the client's resolver does not respond",
        "No address associated with hostname": f"the name {address!r} has no address",
    }
    if status in {124, 137}:
        return (
            f"no response within {CONNECT_SECONDS} s: the host is down or hung, or a firewall drops packets"
        )
    return next((reason for text, reason in reasons.items() if text in output), output or f"status {status}")


def raise_for_findings(
    findings: PreflightResult, *, client: str, target: str, address: str, port: int, packages: str
) -> None:
    """Raise :class:`ClientLacks` or :class:`TargetDead` for a requirement that is not met."""
    if findings.tools:
        missing = ", ".join(findings.tools)
        raise ClientLacks(f"{target}: {client} has no {missing}. Install {packages} there.")
    if not findings.rdma:
        kernel = f", and its kernel has no {', '.join(findings.modules)}" if findings.modules else ""
        raise ClientLacks(
            f"{target}: {client} has no RDMA device (/sys/class/infiniband){kernel}. Use a client with an "
            "RDMA card and its driver, or TCP."
        )
    if findings.modules:
        not_root = "" if findings.root else ", and the user there is not root and cannot load modules"
        raise ClientLacks(
            f"{target}: {client}'s kernel has no {', '.join(findings.modules)}{not_root}. "
            f"Run `modprobe {findings.modules[0]}` there for details."
        )
    if not findings.root:
        raise ClientLacks(
            f"{target}: mounting and logging in require root on {client}. Use the user root or sudo there."
        )
    if findings.connect is not None:
        reason = unreachable_reason(*findings.connect, address)
        if reason is not None:
            raise TargetDead(f"{target}: {client} cannot connect to {address} port {port}: {reason}")


def preflight(client: Host, needs: ClientRequirements, *, deadline: float) -> PreflightResult:
    """Check which of ``needs`` are missing on ``client``, in one command within ``deadline`` seconds."""
    done = client.run(preflight_argv(needs), deadline=deadline)
    return parse_findings(done.stdout)


def check_client(client: Host, needs: ClientRequirements, *, target: str, deadline: float) -> None:
    """Run the preflight. Raises :class:`ClientLacks` or :class:`TargetDead`. ``deadline`` in seconds."""
    raise_for_findings(
        preflight(client, needs, deadline=deadline),
        client=client.name,
        target=target,
        address=needs.address,
        port=needs.port,
        packages=needs.packages,
    )


def run_quietly(client: Host, command: Sequence[str], *, deadline: float) -> str:
    """Return the stdout of ``command``, or "" if it fails for any reason."""
    try:
        done = client.run(command, deadline=deadline, check=False)
    except StoragetestError:
        return ""
    return done.stdout if done.ok else ""


def collect_diagnostics(client: Host, commands: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """Run diagnostic commands after a failure; a command that fails yields its error. Does not raise."""
    texts = {}
    for name, command in {**commands, "dmesg": ["sh", "-c", "dmesg | tail -n 100"]}.items():
        try:
            done = client.run(command, deadline=15.0, check=False)
            texts[name] = done.stdout if done.ok else done.describe()
        except StoragetestError as error:
            texts[name] = str(error)
    return texts
