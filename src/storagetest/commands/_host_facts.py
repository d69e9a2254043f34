"""What a client or server says of itself, in one command, and what is to be thought of it.

Asking (:func:`ask`) and judging (:func:`judge`) are apart: the second is pure.
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

__all__ = [
    "HostFacts",
    "Offset",
    "RequiredTool",
    "RouteInfo",
    "check_facts",
    "clock_offset",
    "collect_facts",
    "describe",
    "parse",
]

SECONDS = 120.0
"""For all of the questions; a machine under load takes long to start a program."""

OLDEST_PYTHON = (3, 9)
"""What the agent is written for."""

MOST_OFFSET = 1.0
"""Seconds that clocks may be apart before logs of two machines are hard to read beside each other."""

_SLOW = 1000
"""Mbit/s below which a network card, rather than a target, is likely measured."""

_FAST = 10_000
"""Mbit/s from which on packets of 1500 bytes cost a noticeable share of a client's processors."""

# $1: addresses; the rest: one word a tool, "name=shell command that prints its version".
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
        said=$(sh -c "${tool#*=}" 2>&1 </dev/null | head -n 1)
        echo "tool $name $said"
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
    whole=unknown
    if command -v ping >/dev/null && ping -c 1 -W 2 -q "$number" >/dev/null 2>&1; then
        case $number in *:*) head=48;; *) head=28;; esac
        whole=no
        ping -c 1 -W 2 -q -M do -s $((mtu - head)) "$number" >/dev/null 2>&1 && whole=yes
    fi
    echo "route $address $card ${speed:--1} ${mtu:-0} $whole"
done
exit 0
"""


Offset = tuple[float, float]
"""How far a clock is ahead of ours, and how well that is known, in seconds."""


@dataclass(frozen=True, slots=True)
class RouteInfo:
    """The way to a target: network card, its speed (Mbit/s; None: it does not say) and MTU (bytes).

    ``whole`` says whether a packet of that size arrives unsplit; None: nobody answers such questions there.
    """

    address: str
    card: str
    speed: int | None
    mtu: int
    whole: bool | None


@dataclass(frozen=True, slots=True)
class RequiredTool:
    """A program that loads or sampling need: the argv that prints its version, and who needs it."""

    name: str
    argv: tuple[str, ...]
    wanted_by: str


@dataclass(frozen=True, slots=True)
class HostFacts:
    """What a machine says. ``memory`` in bytes; ``tools`` maps those that are there to what they print."""

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
    """Ask ``host``; raises :class:`~storagetest.errors.HostError` where it cannot be reached."""
    words = [f"{tool.name}={shlex.join(tool.argv)}" for tool in tools]
    argv = ["sh", "-c", SCRIPT, "storagetest-check", " ".join(addresses), *words]
    done = host.run(argv, deadline=SECONDS, check=False)
    if not done.ok:
        last = (done.stdout + done.stderr).strip().rpartition("\n")[2]
        raise HostError(
            f"{host.name}: cannot say what it has: its shell ended with {done.status} after {last!r}"
        )
    return parse(done.stdout)


def parse(text: str) -> HostFacts:
    """Parse the script's lines: a word for what it is, and the rest."""
    lines = [line.partition(" ")[::2] for line in text.splitlines()]
    one = dict(reversed(lines))
    number, _, user = one.get("user", "").partition(" ")
    routes = [words for kind, rest in lines if kind == "route" and len(words := rest.split()) == 5]
    return HostFacts(
        root=number == "0",
        user=user,
        kernel=one.get("kernel", ""),
        system=one.get("system", ""),
        cpus=_number(one.get("cpus", "")) or 0,
        memory=(_number(one.get("memory", "")) or 0) << 10,
        governors=tuple(rest for kind, rest in lines if kind == "governor"),
        tools={
            name: said for kind, rest in lines if kind == "tool" for name, _, said in [rest.partition(" ")]
        },
        routes=tuple(
            RouteInfo(
                address, card, _positive(speed), _number(mtu) or 0, {"yes": True, "no": False}.get(whole)
            )
            for address, card, speed, mtu, whole in routes
        ),
    )


def _number(text: str) -> int | None:
    return int(text) if re.fullmatch(r"-?\d+", text) else None


def _positive(text: str) -> int | None:
    found = _number(text)
    return found if found and found > 0 else None


def describe(facts: HostFacts) -> str:
    """Say in a line what machine it is."""
    cpus = f"{facts.cpus} CPU{'s' * (facts.cpus != 1)}"
    words = [facts.system, f"Linux {facts.kernel}", cpus, f"{facts.memory / (1 << 30):.1f} GiB of memory"]
    return ", ".join(word for word in words if word)


def check_facts(
    facts: HostFacts, tools: Sequence[RequiredTool], clocks: Sequence[Offset] = ()
) -> list[Message]:
    """Return a line for each thing that a measurement on this machine hangs on.

    ``clocks`` is how far its clock was from ours, before and after the questions; none: it is ours.
    """
    lines = [_user(facts)]
    lines += [_tool(facts, tool) for tool in tools]
    if clocks:
        lines.append(_clock(clocks))
    lines.append(_governor(facts))
    return lines + [line for route in facts.routes for line in _network(route)]


def _user(facts: HostFacts) -> Message:
    if facts.root:
        return Message(Severity.OK, "root: may mount, log in and load modules")
    return Message(
        Severity.FAIL,
        f"the user {facts.user} is not root, and mounting and logging in want root",
        "log in as root (`user: root` in the targets file), or run pytest with sudo for a local client",
    )


def _tool(facts: HostFacts, tool: RequiredTool) -> Message:
    said = facts.tools.get(tool.name)
    if said is None:
        return Message(
            Severity.FAIL,
            f"{tool.name} is missing; {tool.wanted_by}",
            f"install the package {tool.name} there",
        )
    version = re.search(r"(\d+)\.(\d+)", said)
    if tool.name == "python3" and version and (int(version[1]), int(version[2])) < OLDEST_PYTHON:
        oldest = ".".join(map(str, OLDEST_PYTHON))
        return Message(
            Severity.FAIL, f"{said} is too old; {tool.wanted_by}", f"install Python {oldest} or newer there"
        )
    return Message(Severity.OK, f"{tool.name}: {said}")


def _clock(clocks: Sequence[Offset]) -> Message:
    (first, about), (away, within) = clocks[0], clocks[-1]
    if abs(away - first) - about - within > MOST_OFFSET:
        return Message(
            Severity.FAIL,
            f"the clock jumps: by {format_duration(abs(away - first))} while this was asked; deadlines and "
            "durations there mean nothing",
            "restart the machine, or change /sys/devices/system/clocksource/clocksource0/current_clocksource",
        )
    direction = "ahead of" if away > 0 else "behind"
    text = f"clock {format_duration(abs(away))} {direction} this machine's, within {format_duration(within)}"
    if abs(away) - within <= MOST_OFFSET:
        return Message(Severity.OK, text)
    return Message(Severity.WARN, text, "let both follow a time service (Debian: apt install chrony)")


def _governor(facts: HostFacts) -> Message:
    if not facts.governors:
        return Message(
            Severity.OK,
            "processor frequency is not the kernel's to set there (a virtual machine, or firmware)",
        )
    if facts.governors == ("performance",):
        return Message(Severity.OK, "processor frequency: governor performance")
    return Message(
        Severity.WARN,
        f"processor frequency: governor {', '.join(facts.governors)}; latencies will vary with the load",
        "cpupower frequency-set -g performance (Debian: package linux-cpupower), until the next boot",
    )


def _network(route: RouteInfo) -> list[Message]:
    speed = f"{route.speed} Mbit/s" if route.speed else "of unknown speed (virtual)"
    text = f"{route.address} by {route.card}, {speed}, MTU {route.mtu}"
    lines = []
    if route.speed and route.speed < _SLOW:
        lines.append(
            Message(Severity.WARN, text, "that limits every figure: use a faster card, cable or switch port")
        )
    elif route.speed and route.speed >= _FAST and route.mtu <= 1500:
        advice = f"if switch and target take it too: ip link set {route.card} mtu 9000"
        lines.append(Message(Severity.NOTE, text, advice))
    else:
        lines.append(Message(Severity.OK, text))
    if route.whole is False:
        lines.append(
            Message(
                Severity.FAIL,
                f"packets of {route.mtu} bytes do not reach {route.address}, small ones do",
                f"something between has a smaller MTU: set {route.card}'s to what all of the way can carry",
            )
        )
    return lines


def clock_offset(host: Host, *, rounds: int = 3) -> Offset:
    """Return how far ``host``'s clock is ahead of ours, and how well that is known, in seconds.

    The best of some round trips: the offset is known to half of the shortest one.
    """
    best = (0.0, float("inf"))
    for _ in range(rounds):
        before = time.time()
        said = host.run(["date", "+%s.%N"], deadline=15.0).stdout
        after = time.time()
        if (after - before) / 2 < best[1]:
            best = (float(said) - (before + after) / 2, (after - before) / 2)
    return best
