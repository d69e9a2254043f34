"""Find the bottleneck of a run: the client, the network or the target. Pure.

A value describes the target only if the target limited it. Four facts of each repeat are compared: the rate
of the same job on this client without a target (the *ceiling*, by the load generator's null engine), the load
of the client's busiest core, the used share of its network card's speed, and the share of TCP segments sent
again.

Rules, in this order; values are the medians of the repeats:

1. A card that carried 90 % of its speed or more: network. (Framing, acknowledgements and checksums take the
   rest: 94.9 % of a link's bits are payload at an MTU of 1500.) A virtual card has no speed: unknown.
2. At least 80 % of the ceiling: client. The load generator can hardly send more.
3. A core that was busy for 95 % of the time or more: client. One core is enough, because one core serves a
   connection, a queue's interrupts or a worker.
4. 1 % or more of the segments sent again: network. Throughput falls with the square root of the loss (Mathis
   et al., The macroscopic behavior of the TCP congestion avoidance algorithm, 1997).
5. Otherwise the target, if the ceiling or the processor load is known; else unknown.

The ceiling is measured only if rule 2 can apply: see :func:`may_be_near_ceiling`.

:mod:`storagetest.verdict.client_bottleneck` adapts verdicts to the result.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum

from storagetest.units import format_count, format_ratio

FULL_CARD = 0.90
NEAR_CEILING = 0.80
BUSY_CORE = 0.95
LOSSY = 0.01
_FEW_CORES = 0.5
"""Busy cores. At its ceiling a load keeps one core busy or more, near it at least :data:`NEAR_CEILING` cores;
the rest is for the readings, which cover a little more time than the load (chosen)."""


class Limiter(Enum):
    """The part that limits a run."""

    CLIENT = "client"
    NETWORK = "network"
    TARGET = "target"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Utilisation:
    """Utilisation of client and network in one repeat; None: not known.

    ``rate`` and ``ceiling`` are I/Os per second. ``busy_cores`` is the processor time used, per second of the
    load. The others are shares of 1: of the busiest core's time, of the network card's speed in its busier
    direction, and of the TCP segments sent.
    """

    rate: float
    ceiling: float | None = None
    busiest_core: float | None = None
    network: float | None = None
    resent: float | None = None
    busy_cores: float | None = None


@dataclass(frozen=True, slots=True)
class Bottleneck:
    """The ``limiter``, and the ``reason`` in one sentence."""

    limiter: Limiter
    reason: str


def bottleneck(repeats: Sequence[Utilisation], *, remote: bool = True) -> Bottleneck | None:
    """Return the bottleneck of ``repeats``; None if there are no repeats.

    Without ``remote`` client and target are the same host, so the target is the bottleneck.
    """
    if not repeats:
        return None
    of_ceiling = median_of(one.rate / one.ceiling if one.ceiling else None for one in repeats)
    core = median_of(one.busiest_core for one in repeats)
    card = median_of(one.network for one in repeats)
    resent = median_of(one.resent for one in repeats)
    details = _describe_utilisation(repeats, of_ceiling, core, card)
    if not remote:
        return Bottleneck(Limiter.TARGET, f"client and target are the same host: {details}")
    if card is not None and card >= FULL_CARD:
        return Bottleneck(Limiter.NETWORK, f"the network card was full: {details}")
    if of_ceiling is not None and of_ceiling >= NEAR_CEILING:
        return Bottleneck(Limiter.CLIENT, f"the client can hardly send more: {details}")
    if core is not None and core >= BUSY_CORE:
        return Bottleneck(Limiter.CLIENT, f"one of the client's cores was fully busy: {details}")
    if resent is not None and resent >= LOSSY:
        return Bottleneck(Limiter.NETWORK, f"TCP had to send {format_ratio(resent)} again: {details}")
    if of_ceiling is None and core is None:
        return Bottleneck(Limiter.UNKNOWN, f"no utilisation of the client is known: {details}")
    return Bottleneck(Limiter.TARGET, f"client and network were not saturated: {details}")


def may_be_near_ceiling(used: Utilisation) -> bool:
    """Whether the load used enough of the client's processors to be near its ceiling, as far as is known."""
    return used.busy_cores is None or used.busy_cores >= _FEW_CORES


def _describe_utilisation(
    repeats: Sequence[Utilisation], of_ceiling: float | None, core: float | None, card: float | None
) -> str:
    parts = []
    if of_ceiling is not None:
        ceiling = median_of(one.ceiling for one in repeats) or 0.0
        parts.append(f"{format_ratio(of_ceiling)} of the {format_count(ceiling)}/s it does without a target")
    if core is not None:
        parts.append(f"its busiest core {format_ratio(core)} busy")
    parts.append("the card's speed unknown" if card is None else f"the card at {format_ratio(card)}")
    return ", ".join(parts)


def median_of(values: Iterable[float | None]) -> float | None:
    """Return the median of the values that are known; None if none is."""
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None
