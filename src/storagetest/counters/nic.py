"""Network cards (/proc/net/dev) and TCP errors (/proc/net/snmp, /proc/net/netstat): proc(5), RFC 4022."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import ClassVar

from storagetest.counters.base import CounterSource, Kind, Reading, leading_integers, register
from storagetest.measure.unit import Unit

_DEV, _SNMP, _NETSTAT = "/proc/net/dev", "/proc/net/snmp", "/proc/net/netstat"
_SPEED = "/sys/class/net/*/speed"
_MEGABIT = 1_000_000 / 8
_DROPPED = 3  # column of dropped packets, for each direction


@dataclass(frozen=True, slots=True)
class Traffic:
    """Bytes of one card since it was set up; its speed in bytes per second each way (None: unknown)."""

    received: int
    sent: int
    speed: float | None


@register
class Nic(CounterSource):
    """Bytes and dropped packets of each card, and TCP's retransmitted segments."""

    name = "nic"
    paths = (_DEV, _SNMP, _NETSTAT, _SPEED)
    lines: ClassVar[Mapping[str, tuple[str, ...]]] = {_SNMP: ("Tcp:",), _NETSTAT: ("TcpExt:",)}
    example: ClassVar[Mapping[str, str]] = {
        _DEV: (
            "Inter-|   Receive                            |  Transmit\n"
            " face |bytes packets errs drop fifo frame compressed multicast|bytes packets errs drop\n"
            "  eth0: 5000 40 0 1 0 0 0 0 9000 60 0 0 0 0 0 0\n"
        ),
        _SNMP: "Tcp: RtoAlgorithm OutSegs RetransSegs\nTcp: 1 4000 12\n",
        _NETSTAT: "TcpExt: SyncookiesSent TCPTimeouts\nTcpExt: 0 3\n",
        "/sys/class/net/eth0/speed": "10000\n",
    }

    def parse(self, texts: Mapping[str, str]) -> Mapping[str, Reading]:
        """Return the readings; a card's start with its name, TCP's are those of the whole host."""
        result: dict[str, Reading] = {}
        for card, columns in _cards(texts.get(_DEV, "")).items():
            result[f"{card} received"] = Reading(columns[0], Unit.BYTES_PER_SECOND)
            result[f"{card} sent"] = Reading(columns[8], Unit.BYTES_PER_SECOND)
            result[f"{card} dropped"] = Reading(columns[_DROPPED] + columns[8 + _DROPPED], Unit.PER_SECOND)
        tcp = {**_pairs(texts.get(_SNMP, ""), "Tcp:"), **_pairs(texts.get(_NETSTAT, ""), "TcpExt:")}
        if "RetransSegs" in tcp:
            result["TCP retransmits"] = Reading(tcp["RetransSegs"], Unit.PER_SECOND, keep=True)
        if {"RetransSegs", "OutSegs"} <= set(tcp):
            result["TCP retransmitted share"] = Reading(
                tcp["RetransSegs"], Unit.RATIO, Kind.QUOTIENT, per=tcp["OutSegs"]
            )
        if "TCPTimeouts" in tcp:
            result["TCP time-outs"] = Reading(tcp["TCPTimeouts"], Unit.PER_SECOND)
        return result


def traffic(texts: Mapping[str, str]) -> dict[str, Traffic]:
    """Return the traffic of each card, without the loopback.

    The speed of a virtual card is -1 or not readable: it is unknown.
    """
    speeds = {
        PurePosixPath(path).parent.name: (leading_integers(text.split()) or [-1])[0]
        for path, text in texts.items()
        if PurePosixPath(path).name == "speed"
    }
    result = {}
    for card, columns in _cards(texts.get(_DEV, "")).items():
        if card != "lo":
            speed = speeds.get(card, -1)
            result[card] = Traffic(columns[0], columns[8], speed * _MEGABIT if speed > 0 else None)
    return result


def _cards(text: str) -> dict[str, list[int]]:
    result = {}
    for line in text.splitlines():
        card, colon, rest = line.partition(":")
        columns = leading_integers(rest.split())
        if colon and len(columns) >= 12:
            result[card.strip()] = columns
    return result


def _pairs(text: str, start: str) -> dict[str, int]:
    """Return names and values of the two lines that start with ``start``."""
    lines = [line.split()[1:] for line in text.splitlines() if line.startswith(start)]
    return dict(zip(lines[0], leading_integers(lines[1]), strict=False)) if len(lines) == 2 else {}
