"""Network cards (/proc/net/dev) and TCP's trouble (/proc/net/snmp, /proc/net/netstat): proc(5), RFC 4022."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import ClassVar

from storagetest.counters.base import Kind, Reading, Source, leading_integers, register
from storagetest.measure.run import Unit

__all__ = ["Nic", "Traffic", "traffic"]

_DEV, _SNMP, _NETSTAT = "/proc/net/dev", "/proc/net/snmp", "/proc/net/netstat"
_SPEED = "/sys/class/net/*/speed"
_MEGABIT = 1_000_000 / 8
_DROPPED = 3  # the column, of each direction


@dataclass(frozen=True, slots=True)
class Traffic:
    """Bytes of one card since it came up, and its speed in bytes per second each way (None: unknown)."""

    received: int
    sent: int
    speed: float | None


@register
class Nic(Source):
    """Bytes and drops of each card, and the segments that TCP had to send again."""

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
        """Return the readings; those of a card are led by its name, those of TCP are the whole machine's."""
        found: dict[str, Reading] = {}
        for card, columns in _cards(texts.get(_DEV, "")).items():
            found[f"{card} received"] = Reading(columns[0], Unit.BYTES_PER_SECOND)
            found[f"{card} sent"] = Reading(columns[8], Unit.BYTES_PER_SECOND)
            found[f"{card} dropped"] = Reading(columns[_DROPPED] + columns[8 + _DROPPED], Unit.PER_SECOND)
        tcp = {**_pairs(texts.get(_SNMP, ""), "Tcp:"), **_pairs(texts.get(_NETSTAT, ""), "TcpExt:")}
        if "RetransSegs" in tcp:
            found["TCP retransmits"] = Reading(tcp["RetransSegs"], Unit.PER_SECOND, keep=True)
        if {"RetransSegs", "OutSegs"} <= set(tcp):
            found["TCP retransmitted share"] = Reading(
                tcp["RetransSegs"], Unit.RATIO, Kind.QUOTIENT, per=tcp["OutSegs"]
            )
        if "TCPTimeouts" in tcp:
            found["TCP time-outs"] = Reading(tcp["TCPTimeouts"], Unit.PER_SECOND)
        return found


def traffic(texts: Mapping[str, str]) -> dict[str, Traffic]:
    """Return the cards' traffic, the loopback's left out.

    A virtual card's speed reads -1 or cannot be read at all: it is unknown.
    """
    speeds = {
        PurePosixPath(path).parent.name: (leading_integers(text.split()) or [-1])[0]
        for path, text in texts.items()
        if PurePosixPath(path).name == "speed"
    }
    found = {}
    for card, columns in _cards(texts.get(_DEV, "")).items():
        if card != "lo":
            speed = speeds.get(card, -1)
            found[card] = Traffic(columns[0], columns[8], speed * _MEGABIT if speed > 0 else None)
    return found


def _cards(text: str) -> dict[str, list[int]]:
    found = {}
    for line in text.splitlines():
        card, colon, rest = line.partition(":")
        columns = leading_integers(rest.split())
        if colon and len(columns) >= 12:
            found[card.strip()] = columns
    return found


def _pairs(text: str, start: str) -> dict[str, int]:
    """Return names and values of two lines that both begin with ``start``."""
    lines = [line.split()[1:] for line in text.splitlines() if line.startswith(start)]
    return dict(zip(lines[0], leading_integers(lines[1]), strict=False)) if len(lines) == 2 else {}
