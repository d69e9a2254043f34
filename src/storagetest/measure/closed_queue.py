"""Throughput of many clients by a queueing model: exact mean value analysis of a closed queue. Pure.

Each client has one request at a time: it spends a time of its own, and then waits for the server that all
clients share. Source: M. Reiser, S. S. Lavenberg, Mean-Value Analysis of Closed Multichain Queuing Networks,
J. ACM 27 (1980).
"""

from __future__ import annotations

from collections.abc import Mapping


def throughput(own: float, shared: float, clients: int) -> list[float]:
    """Return the requests per second of 1 … ``clients`` clients.

    ``own`` is a client's own time for a request and ``shared`` the server's, in seconds.
    """
    waiting, rates = 0.0, []
    for number in range(1, clients + 1):
        response = shared * (1 + waiting)
        rates.append(number / (own + response))
        waiting = rates[-1] * response
    return rates


def extrapolate(measured: Mapping[int, float], clients: int) -> list[float]:
    """Return the model's rates of 1 … ``clients`` clients, fitted to the measured rates.

    The rate of one client is met exactly; the server's share of its time is the one with the least squares of
    relative errors over the other rates. Raises :class:`ValueError` without the rates of one client and of
    another number, or if one is not above zero.
    """
    if 1 not in measured or len(measured) < 2 or min(measured.values()) <= 0:
        raise ValueError("the model takes the rate of one client, and of one other number of clients")
    whole = 1 / measured[1]
    most = max(measured)

    def error(share: float) -> float:
        rates = throughput(whole * (1 - share), whole * share, most)
        return sum((rates[number - 1] / rate - 1) ** 2 for number, rate in measured.items())

    share = min((step / _STEPS for step in range(_STEPS + 1)), key=error)
    return throughput(whole * (1 - share), whole * share, clients)


_STEPS = 1000
"""Resolution of the server's share of a request's time."""
