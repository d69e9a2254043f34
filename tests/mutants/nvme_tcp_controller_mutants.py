"""Broken rules of how long the value of a feature lasts.

The rules, from the text (NVM Express Base 2.3), before any case:

- 4.4: a feature has its saved value after a reset, and if none is saved, its default value (SHOULD: there
  is no "shall"); what Set Features sets without Save is the current value alone.
- 3.7.2: a Controller Level Reset is of one controller (MUST).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from nvme_tcp_proxy_connection import Item, ProxyConnection, Rule
from nvme_tcp_rules import add, fabrics, feature, response, results, shared

from storagetest.wire.nvme.codes import Admin, Fctype, Feature, Property
from storagetest.wire.nvme.command import Command, Cqe
from storagetest.wire.nvme_tcp.pdu import CapsuleCmd, DecodedPdu

CC_SET = fabrics(Fctype.PROPERTY_SET, cdw11=Property.CC)
SHN = 0xC000


# Features over a reset (4.4)


def follows(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
    """Remember the values that were set, and what was done to CC."""
    if isinstance(got.pdu, CapsuleCmd):
        command, memory = Command.decode(got.pdu.sqe), through.memory
        if feature(Admin.SET_FEATURES)(through, command):
            memory["set", command.cdw10 & 0xFF] = command.cdw11
        elif CC_SET(through, command):
            memory["shutdowns"] = memory.get("shutdowns", 0) + bool(command.cdw12 & SHN)
            memory["resets"] = memory.get("resets", 0) + (not command.cdw12 & 1)
    return None


def _keeps(*fids: int, when: Callable[[ProxyConnection], bool]) -> Rule:
    """Return the value that was set as the current one of a feature."""

    def kept(through: ProxyConnection, command: Command | None, cqe: Cqe) -> Cqe | None:
        if command is None or not cqe.ok or not feature(Admin.GET_FEATURES)(through, command):
            return None
        fid, select = command.cdw10 & 0xFF, command.cdw10 >> 8 & 7
        if (fids and fid not in fids) or select or ("set", fid) not in through.memory or not when(through):
            return None
        return replace(cqe, result=through.memory["set", fid])

    return response(kept)


def _was_reset(through: ProxyConnection, least: int = 1) -> bool:
    return bool(through.memory.get("resets", 0) >= least)


def _add_kept(row: str, *fids: int, when: Callable[[ProxyConnection], bool] = _was_reset) -> None:
    add(row, lambda: ProxyConnection(of_host=follows, of_target=_keeps(*fids, when=when)))


for _fid, _name in {
    Feature.ARBITRATION: "Arbitration",
    Feature.TEMPERATURE_THRESHOLD: "Temperature Threshold",
    Feature.ERROR_RECOVERY: "Error Recovery",
    Feature.WRITE_ATOMICITY: "Write Atomicity Normal",
    Feature.ASYNC_EVENT: "Asynchronous Event Configuration",
    Feature.KATO: "Keep Alive Timer",
}.items():
    _add_kept(f"reset-keeps-{_fid:02x}h | Base 4.4 | {_name} outlives a reset without Save", _fid)
_add_kept(
    "reset-keeps-second | Base 4.4 | features outlive the second reset of a controller",
    when=lambda through: _was_reset(through, 2),
)
_add_kept(
    "reset-keeps-shutdown | Base 4.4 | features outlive a reset that follows a shutdown",
    when=lambda through: _was_reset(through) and bool(through.memory.get("shutdowns")),
)


def _clears_others(seen: set[object]) -> ProxyConnection:
    def of_host(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
        follows(through, got)
        if through.memory.get("resets"):
            seen.add("reset")
        return None

    return ProxyConnection(
        of_host=of_host,
        of_target=results(
            lambda t, c, old: 0,
            when=lambda t, c: feature(Admin.GET_FEATURES, Feature.ASYNC_EVENT)(t, c) and bool(seen),
        ),
    )


shared("reset-clears-others | Base 3.7.2 | a reset clears the features of every controller", _clears_others)
