"""Broken rules of a restart (RFC 1813 4.8, 6.1.4): grace and reclaims of NLM, write verifier, stable data.

Their cases restart the server, so they have a run and a server of their own.
"""

from __future__ import annotations

from typing import Any

from nfs3_proxy_connection import MUTANTS, Call, ProxyConnection, mutant, put

from storagetest.wire.nfs3.nlm import nlm4_stats

GRACE = 8
"""Seconds of the server's grace period in this run (chosen)."""

GRANTED, DENIED = nlm4_stats.NLM4_GRANTED, nlm4_stats.NLM4_DENIED
IN_GRACE = nlm4_stats.NLM4_DENIED_GRACE_PERIOD
_NAMES = set(MUTANTS)


def _answers(row: str, instead: nlm4_stats, *statuses: nlm4_stats, reclaim: bool) -> None:
    """A mutant whose LOCK, a reclaim or none, ends with another status."""

    def change(talk: ProxyConnection, call: Call, result: Any) -> Any:
        concerned = call.argument.reclaim is reclaim and result.stat.stat in statuses
        return put(result, "stat.stat", instead) if concerned else result

    mutant(row, "LOCK")(change)


_answers(
    "nlm-grace-granted | RFC 1813 6.1.4 | a new LOCK is granted in the grace period",
    GRANTED, IN_GRACE, reclaim=False,
)  # fmt: skip
_answers(
    "nlm-grace-denied | RFC 1813 6.1.4 | a new LOCK in the grace period ends with NLM4_DENIED",
    DENIED, IN_GRACE, reclaim=False,
)  # fmt: skip
_answers(
    "nlm-reclaim-grace | RFC 1813 6.1.4 | a reclaim in the grace period ends with NLM4_DENIED_GRACE_PERIOD",
    IN_GRACE, GRANTED, reclaim=True,
)  # fmt: skip
_answers(
    "nlm-reclaim-late | RFC 1813 6.1.4 | a reclaim is granted at any time",
    GRANTED, IN_GRACE, DENIED, nlm4_stats.NLM4_DENIED_NOLOCKS, nlm4_stats.NLM4_FAILED, reclaim=True,
)  # fmt: skip


@mutant("nlm-grace-endless | RFC 1813 6.1.4 | the grace period does not end", "LOCK")
def grace_endless(talk: ProxyConnection, call: Call, result: Any) -> Any:
    talk.shared["grace"] = talk.shared.get("grace", False) or result.stat.stat == IN_GRACE
    held = talk.shared["grace"] and not call.argument.reclaim
    return put(result, "stat.stat", IN_GRACE) if held else result


@mutant("nlm-reclaim-lost | RFC 1813 6.1.4 | a reclaimed lock is of another range", "LOCK", part="request")
def reclaim_lost(talk: ProxyConnection, call: Call) -> Any:
    return put(call.argument, "alock.l_offset", 1 << 40) if call.argument.reclaim else call.argument


@mutant("restart-write-verifier | RFC 1813 4.8 | the write verifier survives a restart", "WRITE", "COMMIT")
def verifier(talk: ProxyConnection, call: Call, result: Any) -> Any:
    return result if result.status else put(result, "value.verf", b"constant")


@mutant("restart-commit-verifier | RFC 1813 4.8 | COMMIT has the verifier of before the restart", "COMMIT")
def commit_verifier(talk: ProxyConnection, call: Call, result: Any) -> Any:
    if result.status:
        return result
    return put(result, "value.verf", talk.shared.setdefault("verifier", result.value.verf))


@mutant("restart-data | RFC 1813 3.3.7 | stable data read as zeros after a restart", "READ")
def data(talk: ProxyConnection, call: Call, result: Any) -> Any:
    return result if result.status else put(result, "value.data", lambda data: bytes(len(data)))


@mutant("nsm-notify-ignored | RFC 1813 6.2 | SM_NOTIFY of a host releases nothing", "NOTIFY", part="request")
def notify_ignored(talk: ProxyConnection, call: Call) -> Any:
    return put(call.argument, "mon_name", b"another")


@mutant("nsm-notify-all | RFC 1813 6.2 | SM_NOTIFY of any host releases all locks", "NOTIFY", part="request")
def notify_all(talk: ProxyConnection, call: Call) -> Any:
    return put(call.argument, "mon_name", b"127.0.0.1")


for name in set(MUTANTS) - _NAMES:
    MUTANTS[name].kind = "restart"
