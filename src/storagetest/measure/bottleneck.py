"""Who was the bottleneck: the client that put the load on, the network between, or the target. Pure.

A figure says something about a target only if the target set it. Four things are known of each repeat: what
the same job does on this client with a target that takes no time (the *ceiling*, by the load generator's null
engine), how busy the client's busiest core was, how much of its network card's speed was used, and how much
TCP had to send again.

Rules, in this order; values are the medians of the repeats:

1. A card that carried 90 % of its speed or more: network. (Framing, acknowledgements and checksums take the
   rest: 94.9 % of a line's bits are payload at an MTU of 1500.) A virtual card has no speed: unknown.
2. At least 80 % of the ceiling: client. The load generator could hardly have asked for more.
3. A core that was busy for 95 % of the time or more: client. One core is enough, since a connection, a
   queue's interrupts or a worker is served by one.
4. Segments sent again were 1 % of all or more: network. Throughput falls with the square root of the loss
   (Mathis et al., The macroscopic behavior of the TCP congestion avoidance algorithm, 1997).
5. Otherwise the target, if a ceiling or the processors are known; if neither is, unknown.

What follows for a gate is :mod:`storagetest.verdict.client_bottleneck`' business.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum

from storagetest.units import format_count, format_ratio

__all__ = ["Bottleneck", "Limiter", "Utilisation", "bottleneck"]

FULL_CARD = 0.90
NEAR_CEILING = 0.80
BUSY_CORE = 0.95
LOSSY = 0.01


class Limiter(Enum):
    """Who."""

    CLIENT = "client"
    NETWORK = "network"
    TARGET = "target"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Utilisation:
    """What is known of one repeat; None: not known.

    ``rate`` and ``ceiling`` are I/Os per second; the others are shares of 1: of the busiest core's time, of
    the network card's speed in its busier direction, and of the TCP segments sent.
    """

    rate: float
    ceiling: float | None = None
    busiest_core: float | None = None
    network: float | None = None
    resent: float | None = None


@dataclass(frozen=True, slots=True)
class Bottleneck:
    """Who, and ``why`` in one sentence."""

    limiter: Limiter
    reason: str


def bottleneck(repeats: Sequence[Utilisation], *, remote: bool = True) -> Bottleneck | None:
    """Return who limited these repeats; None where there is none.

    Without ``remote`` client and target are one machine, so whoever it was, it was the target.
    """
    if not repeats:
        return None
    of_ceiling = _median(repeats, lambda one: one.rate / one.ceiling if one.ceiling else None)
    core = _median(repeats, lambda one: one.busiest_core)
    card = _median(repeats, lambda one: one.network)
    resent = _median(repeats, lambda one: one.resent)
    details = _describe_utilisation(repeats, of_ceiling, core, card)
    if not remote:
        return Bottleneck(Limiter.TARGET, f"client and target are one machine: {details}")
    if card is not None and card >= FULL_CARD:
        return Bottleneck(Limiter.NETWORK, f"the network card was full: {details}")
    if of_ceiling is not None and of_ceiling >= NEAR_CEILING:
        return Bottleneck(Limiter.CLIENT, f"the client can hardly ask for more: {details}")
    if core is not None and core >= BUSY_CORE:
        return Bottleneck(Limiter.CLIENT, f"one of the client's cores had no time left: {details}")
    if resent is not None and resent >= LOSSY:
        return Bottleneck(Limiter.NETWORK, f"TCP had to send {format_ratio(resent)} again: {details}")
    if of_ceiling is None and core is None:
        return Bottleneck(Limiter.UNKNOWN, f"nothing is known of the client: {details}")
    return Bottleneck(Limiter.TARGET, f"client and network had room: {details}")


def _describe_utilisation(
    repeats: Sequence[Utilisation], of_ceiling: float | None, core: float | None, card: float | None
) -> str:
    parts = []
    if of_ceiling is not None:
        ceiling = _median(repeats, lambda one: one.ceiling) or 0.0
        parts.append(f"{format_ratio(of_ceiling)} of the {format_count(ceiling)}/s it does without a target")
    if core is not None:
        parts.append(f"its busiest core {format_ratio(core)} busy")
    parts.append("the card's speed unknown" if card is None else f"the card at {format_ratio(card)}")
    return ", ".join(parts)


def _median(repeats: Sequence[Utilisation], of: Callable[[Utilisation], float | None]) -> float | None:
    values = [value for value in map(of, repeats) if value is not None]
    return statistics.median(values) if values else None
