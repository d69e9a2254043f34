"""Facts about a client or server: collect them with one command, and check them.

:func:`collect_facts` runs the command; :func:`check_facts` is pure.
"""

from __future__ import annotations

import re
import shlex
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from storagetest.commands._console import Message, Severity
from storagetest.errors import HostError
from storagetest.hosts import Host
from storagetest.units import format_duration

SECONDS = 120.0
"""Timeout of the command in seconds, chosen: a loaded machine needs long to start a program."""

OLDEST_PYTHON = (3, 9)
"""Oldest Python that the agent supports."""

MAX_OFFSET = 1.0
"""Clock offset in seconds, chosen: above it, the logs of two machines are hard to compare."""

_SLOW = 1000
"""Mbit/s. Below it, a measurement likely shows the limit of the network card, not of the target."""

_FAST = 10_000
"""Mbit/s. From it on, packets of 1500 bytes use a noticeable share of a client's CPU time."""

# $1: addresses; each further argument is a tool: "name=shell command that prints its version".
SCRIPT = r"""
addresses=$1; shift
export LC_ALL=C
echo "user $(id -u) $(id -un)"
echo "kernel $(uname -r)"
(. /etc/os-release 2>/dev/null && echo "system $PRETTY_NAME")
echo "cpus $(getconf _NPROCESSORS_ONLN)"
while read -r name value _; do
    [ "$name" = MemTotal: ] && echo "memory $value"
done </proc/meminfo
for governor in $(cat /sys/devices/system/cpu/cpu*/cpufreq/scaling_governor 2>/dev/null | sort -u); do
    echo "governor $governor"
done
for tool; do
    name=${tool%%=*}
    if command -v "$name" >/dev/null; then
        version=$(sh -c "${tool#*=}" 2>&1 </dev/null | head -n 1)
        echo "tool $name $version"
    else
        echo "missing $name"
    fi
done
for address in $addresses; do
    number=$(getent ahosts "$address" 2>/dev/null | head -n 1 | cut -d ' ' -f 1)
    route=$(ip -o route get "${number:-$address}" 2>/dev/null) || { echo "route $address"; continue; }
    card=${route##* dev }; card=${card%% *}
    speed=$(cat "/sys/class/net/$card/speed" 2>/dev/null)
    mtu=$(cat "/sys/class/net/$card/mtu" 2>/dev/null)
    unfragmented=unknown
    if command -v ping >/dev/null && ping -c 1 -W 2 -q "$number" >/dev/null 2>&1; then
        case $number in *:*) head=48;; *) head=28;; esac
        unfragmented=no
        ping -c 1 -W 2 -q -M do -s $((mtu - head)) "$number" >/dev/null 2>&1 && unfragmented=yes
    fi
    echo "route $address $card ${speed:--1} ${mtu:-0} $unfragmented"
done
exit 0
"""


Offset = tuple[float, float]
"""Seconds by which a host's clock is ahead of the controller's, and the uncertainty of that in seconds."""


@dataclass(frozen=True, slots=True)
class RouteInfo:
    """Route to a target: network card, its speed (Mbit/s; None: unknown) and its MTU (bytes).

    ``unfragmented`` is whether a packet of that size arrives unfragmented (None: no response to ping).
    """

    address: str
    card: str
    speed: int | None
    mtu: int
    unfragmented: bool | None


@dataclass(frozen=True, slots=True)
class RequiredTool:
    """A program that workloads or sampling require: the argv that prints its version, and its users."""

    name: str
    argv: tuple[str, ...]
    required_by: str


@dataclass(frozen=True, slots=True)
class HostFacts:
    """Facts about a machine. ``memory`` in bytes; ``tools`` maps each installed tool to its version."""

    root: bool = False
    user: str = ""
    kernel: str = ""
    system: str = ""
    cpus: int = 0
    memory: int = 0
    governors: tuple[str, ...] = ()
    tools: Mapping[str, str] = field(default_factory=dict)
    routes: tuple[RouteInfo, ...] = ()


def collect_facts(host: Host, tools: Sequence[RequiredTool], addresses: Sequence[str]) -> HostFacts:
    """Run the command on ``host``. Raises :class:`~storagetest.errors.HostError` if it fails."""
    tool_arguments = [f"{tool.name}={shlex.join(tool.argv)}" for tool in tools]
    argv = ["sh", "-c", SCRIPT, "storagetest-check", " ".join(addresses), *tool_arguments]
    done = host.run(argv, deadline=SECONDS, check=False)
    if not done.ok:
        last = (done.stdout + done.stderr).strip().rpartition("\n")[2]
        raise HostError(
            f"{host.name}: the host check failed with status {done.status}; last output: {last!r}"
        )
    return parse(done.stdout)


def parse(text: str) -> HostFacts:
    """Parse the script's lines: a keyword and its value."""
    lines = [line.partition(" ")[::2] for line in text.splitlines()]
    values = dict(reversed(lines))
    number, _, user = values.get("user", "").partition(" ")
    routes = [words for kind, rest in lines if kind == "route" and len(words := rest.split()) == 5]
    return HostFacts(
        root=number == "0",
        user=user,
        kernel=values.get("kernel", ""),
        system=values.get("system", ""),
        cpus=_number(values.get("cpus", "")) or 0,
        memory=(_number(values.get("memory", "")) or 0) << 10,
        governors=tuple(rest for kind, rest in lines if kind == "governor"),
        tools=dict(rest.partition(" ")[::2] for kind, rest in lines if kind == "tool"),
        routes=tuple(
            RouteInfo(address, card, _positive(speed), _number(mtu) or 0, _YES_OR_NO.get(unfragmented))
            for address, card, speed, mtu, unfragmented in routes
        ),
    )


_YES_OR_NO = {"yes": True, "no": False}


def _number(text: str) -> int | None:
    return int(text) if re.fullmatch(r"-?\d+", text) else None


def _positive(text: str) -> int | None:
    number = _number(text)
    return number if number and number > 0 else None


def describe(facts: HostFacts) -> str:
    """Return the machine's system, kernel, CPUs and memory in one line."""
    cpus = f"{facts.cpus} CPU{'s' * (facts.cpus != 1)}"
    parts = [facts.system, f"Linux {facts.kernel}", cpus, f"{facts.memory / (1 << 30):.1f} GiB of memory"]
    return ", ".join(part for part in parts if part)


def check_facts(
    facts: HostFacts, tools: Sequence[RequiredTool], clocks: Sequence[Offset] = ()
) -> list[Message]:
    """Return a message for each requirement of a measurement on this machine.

    ``clocks`` are its clock offsets before and after the command; empty for the controller itself.
    """
    return [
        _user(facts),
        *(_tool(facts, tool) for tool in tools),
        *([_clock(clocks)] if clocks else []),
        _governor(facts),
        *(message for route in facts.routes for message in _network(route)),
    ]


def _user(facts: HostFacts) -> Message:
    if facts.root:
        return Message(Severity.OK, "root: can mount, log in and load modules")
    return Message(
        Severity.FAIL,
        f"the user {facts.user} is not root; mounting and logging in require root",
        "log in as root (`user: root` in the targets file), or run pytest with sudo for a local client",
    )


def _tool(facts: HostFacts, tool: RequiredTool) -> Message:
    version_text = facts.tools.get(tool.name)
    if version_text is None:
        return Message(
            Severity.FAIL,
            f"{tool.name} is missing; {tool.required_by}",
            f"install the package {tool.name} on this host",
        )
    version = re.search(r"(\d+)\.(\d+)", version_text)
    if tool.name == "python3" and version and (int(version[1]), int(version[2])) < OLDEST_PYTHON:
        oldest = ".".join(map(str, OLDEST_PYTHON))
        return Message(
            Severity.FAIL,
            f"{version_text} is too old; {tool.required_by}",
            f"install Python {oldest} or newer on this host",
        )
    return Message(Severity.OK, f"{tool.name}: {version_text}")


def _clock(clocks: Sequence[Offset]) -> Message:
    (before, before_error), (offset, error) = clocks[0], clocks[-1]
    if abs(offset - before) - before_error - error > MAX_OFFSET:
        return Message(
            Severity.FAIL,
            f"the clock jumped by {format_duration(abs(offset - before))} during this check; timeouts and "
            "durations on this host are wrong",
            "restart the host, or change /sys/devices/system/clocksource/clocksource0/current_clocksource",
        )
    direction = "ahead of" if offset > 0 else "behind"
    text = f"clock {format_duration(abs(offset))} {direction} the controller's, ± {format_duration(error)}"
    if abs(offset) - error <= MAX_OFFSET:
        return Message(Severity.OK, text)
    return Message(Severity.WARN, text, "synchronize both clocks (Debian: apt install chrony)")


def _governor(facts: HostFacts) -> Message:
    if not facts.governors:
        return Message(
            Severity.OK,
            "CPU frequency: not controlled by the kernel (a virtual machine, or firmware controls it)",
        )
    if facts.governors == ("performance",):
        return Message(Severity.OK, "CPU frequency: governor performance")
    return Message(
        Severity.WARN,
        f"CPU frequency: governor {', '.join(facts.governors)}; latencies vary with the load",
        "cpupower frequency-set -g performance (Debian: package linux-cpupower); lasts until the next boot",
    )


def _network(route: RouteInfo) -> list[Message]:
    speed = f"{route.speed} Mbit/s" if route.speed else "of unknown speed (virtual)"
    text = f"{route.address} through {route.card}, {speed}, MTU {route.mtu}"
    severity, advice = Severity.OK, ""
    if route.speed and route.speed < _SLOW:
        severity = Severity.WARN
        advice = "this limits every measurement; use a faster card, cable or switch port"
    elif route.speed and route.speed >= _FAST and route.mtu <= 1500:
        severity = Severity.NOTE
        advice = f"if the switch and the target support it: ip link set {route.card} mtu 9000"
    messages = [Message(severity, text, advice)]
    if route.unfragmented is False:
        messages.append(
            Message(
                Severity.FAIL,
                f"packets of {route.mtu} bytes do not arrive at {route.address}; small packets do",
                f"set the MTU of {route.card} to the smallest MTU on the route",
            )
        )
    return messages


def clock_offset(host: Host, *, rounds: int = 3) -> Offset:
    """Return the offset of ``host``'s clock from the controller's, by the shortest of some round trips.

    The uncertainty is half of that round trip. Raises :class:`ValueError` if ``date`` prints no number.
    """
    best = (0.0, float("inf"))
    for _ in range(rounds):
        before = time.time()
        output = host.run(["date", "+%s.%N"], deadline=15.0).stdout
        after = time.time()
        if (after - before) / 2 < best[1]:
            best = (float(output) - (before + after) / 2, (after - before) / 2)
    return best
