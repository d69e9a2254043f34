"""Mutants of what an administrator does: a namespace is resized, and the controller is restarted."""

# ruff: noqa: E501  # a mutant is a row of a table

from collections.abc import Callable, Iterable
from dataclasses import replace

from mutant_row import cells
from nvme_controlled import NAMESPACE_NOTICES, ControlledServer
from nvme_tcp_event_mutants import RAE, is_event, remember_event, repeat_event, with_rae
from nvme_tcp_proxy_connection import Item, ProxyConnection, Rule
from nvme_tcp_rules import (
    MUTANTS,
    CrossConnectionMutant,
    When,
    accepts,
    action,
    commands,
    drops_command,
    feature,
    identify,
    log,
    on_io,
    patch,
    put,
    refuses,
    results,
)
from proxy import Mutant

from storagetest.wire.nvme.codes import Admin, Cns, Feature, Io, LogPage, StatusCode
from storagetest.wire.nvme.command import Command
from storagetest.wire.nvme_tcp.pdu import C2HData, CapsuleCmd, DecodedPdu

FIRST_SIZE = 2048
"""Blocks of the namespace, before it grows."""

_LIST = log(LogPage.CHANGED_NAMESPACES)


def _add(row: str, make: Callable[[], ProxyConnection]) -> None:
    name, section, description = cells(row)
    assert name not in MUTANTS, name
    MUTANTS[name] = Mutant(name, section, description, make, kind="controlled")


def _shared(row: str, make: Callable[[set[object]], ProxyConnection]) -> None:
    name, section, description = cells(row)
    assert name not in MUTANTS, name
    MUTANTS[name] = CrossConnectionMutant(
        name, section, description, ProxyConnection, kind="controlled", sharing=make
    )


def _target(row: str, rule: Rule) -> None:
    _add(row, lambda: ProxyConnection(of_target=rule))


def _host(row: str, rule: Rule) -> None:
    _add(row, lambda: ProxyConnection(of_host=rule))


# Resize (NVM 4.1.5.1, Base 5.2.2, 5.2.12.1.5, 5.2.26.1.5)


def _grown(raw: bytes) -> bool:
    return int.from_bytes(raw[:8], "little") > FIRST_SIZE


_target("grown-not-listed | NVM 4.1.5.1 | NSZE of a namespace that has grown is the old one",
        patch(put(0, FIRST_SIZE.to_bytes(8, "little")), when=identify(Cns.NAMESPACE)))  # fmt: skip
_target("grown-not-served | NVM 4.1.5.1 | blocks that a namespace has grown by are out of range",
        refuses(StatusCode.LBA_OUT_OF_RANGE, when=lambda t, c: on_io(Io.READ, Io.WRITE)(t, c) and c.cdw10 >= FIRST_SIZE))  # fmt: skip
_target("grown-first-queue-alone | NVM 4.1.5.1 | blocks that a namespace has grown by are out of range on the second I/O queue",
        refuses(StatusCode.LBA_OUT_OF_RANGE, when=lambda t, c: on_io(Io.READ, Io.WRITE)(t, c) and t.qid == 2 and c.cdw10 >= FIRST_SIZE))  # fmt: skip
_target("shrunk-first-queue-alone | NVM 4.1.5.1 | blocks that a namespace has lost are written on the second I/O queue",
        accepts(StatusCode.LBA_OUT_OF_RANGE, when=lambda t, c: on_io(Io.WRITE)(t, c) and t.qid == 2))  # fmt: skip
_target("grown-is-another | NVM 4.1.5.1 | a namespace that has grown has another NGUID",
        patch(lambda raw: put(104, b"\1" * 16)(raw) if _grown(raw) else raw, when=identify(Cns.NAMESPACE)))  # fmt: skip


def _no_event(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
    return [] if is_event(through, got) else None


_target("grown-no-event | Base 5.2.26.1.5 | no notice is sent of a namespace that has changed", _no_event)
_target("grown-other-event | Base 5.2.2.1 | the notice of a changed namespace is that of a firmware activation",
        results(lambda t, c, old: old | 1 << 8, when=lambda t, c: c.opcode == Admin.ASYNCHRONOUS_EVENT_REQUEST and not t.qid))  # fmt: skip
_target("grown-not-in-list | Base 5.2.12.1.5 | the list of changed namespaces is empty",
        patch(lambda raw: bytes(len(raw)), when=_LIST))  # fmt: skip
_host("grown-event-forced | Base 5.2.26.1.5 | the notice of a changed namespace is sent though it is not enabled",
      commands(lambda capsule, c: replace(capsule, sqe=replace(c, cdw11=c.cdw11 | NAMESPACE_NOTICES).encode()),
               when=feature(Admin.SET_FEATURES, Feature.ASYNC_EVENT)))  # fmt: skip
_add("grown-event-again | Base 5.2.2 | a notice that was reported is reported again before the host clears it",
     lambda: ProxyConnection(of_target=remember_event, of_host=repeat_event))  # fmt: skip
_host("grown-list-not-retained | Base 5.2.12 | a read of the list of changed namespaces with RAE 1 clears it",
      commands(lambda capsule, command: with_rae(capsule, command, 0), when=_LIST))  # fmt: skip
_host("grown-list-retained | Base 5.2.12.1.5 | a read of the list of changed namespaces with RAE 0 does not clear it",
      commands(lambda capsule, command: with_rae(capsule, command, RAE), when=_LIST))  # fmt: skip


def _listed(raw: bytes) -> list[bytes]:
    """Return the NSIDs of the list that has changed, each of four bytes."""
    return [raw[at : at + 4] for at in range(0, len(raw), 4) if any(raw[at : at + 4])]


_target("grown-list-descending | Base 4.6 | the list of changed namespaces is in descending order",
        patch(lambda raw: b"".join(_listed(raw)[::-1]).ljust(len(raw), b"\0"), when=_LIST))  # fmt: skip
_target("grown-list-twice | Base 4.6 | a namespace that has changed twice is in the list twice",
        patch(lambda raw: b"".join(one * 2 for one in _listed(raw)).ljust(len(raw), b"\0"), when=_LIST))  # fmt: skip
_target("grown-list-rest | Base 4.6 | the list of changed namespaces has old data behind its last entry",
        patch(lambda raw: raw[:-4] + b"\1\0\0\0" if any(raw) else raw, when=_LIST))  # fmt: skip


def _event_once(known: set[object]) -> ProxyConnection:
    def once(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
        if not is_event(through, got):
            return None
        seen = bool(known)
        known.add(through.qid)
        return [] if seen else None

    return ProxyConnection(of_target=once)


_shared("grown-event-once | Base 5.2.2 | the notice of a changed namespace is sent to one controller alone",
        _event_once)  # fmt: skip


class _Reader:
    """A connection that has read the list while it had entries."""

    def __init__(self, through: ProxyConnection) -> None:
        self.through = through


def _one_list(known: set[object]) -> ProxyConnection:
    def read(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
        command = through.command_of(got)
        if not isinstance(got.pdu, C2HData) or command is None or not _LIST(through, command):
            return None
        if not any(got.pdu.data):
            return None
        if any(isinstance(one, _Reader) and one.through is not through for one in known):
            return [replace(got.pdu, data=bytes(len(got.pdu.data)))]
        known.add(_Reader(through))
        return None

    return ProxyConnection(of_target=read)


_shared(
    "grown-list-shared | Base 5.2.12.1.5 | all controllers have one list of changed namespaces", _one_list
)


# Restart (Base 4.4, 7.6, NVM 3.3.6)


def _restarted(when: When) -> When:
    return lambda t, c: ControlledServer.restarts > 0 and when(t, c)


def _with_persistence(value: int) -> Rule:
    def change(capsule: CapsuleCmd, c: Command) -> CapsuleCmd:
        return replace(capsule, sqe=replace(c, cdw10=c.cdw10 & 0x3FFFFFFF | value << 30).encode())

    return commands(
        change, when=lambda t, c: on_io(Io.RESERVATION_REGISTER)(t, c) and c.cdw10 >> 30 == 5 - value
    )


_host(
    "persistence-lost | Base 7.6 | CPTPL 11b is taken as 10b: what was to persist is lost",
    _with_persistence(2),
)
_host(
    "persistence-forced | Base 7.6 | CPTPL 10b is taken as 11b: what was to be lost persists",
    _with_persistence(3),
)
_target("persistent-key-lost | Base 7.6 | one registrant of two outlives a restart",
        patch(put(5, b"\1\0"), when=_restarted(on_io(Io.RESERVATION_REPORT))))  # fmt: skip


def _forgets_registrants(raw: bytes) -> bytes:
    """Return a report without registrants if there is no reservation (7.8: RTYPE, REGSTRNT)."""
    return raw if raw[4] else put(5, bytes(2))(raw)


_target("persistence-of-holders-only | Base 7.6 | registrants do not outlive a restart if none holds a reservation",
        patch(_forgets_registrants, when=_restarted(on_io(Io.RESERVATION_REPORT))))  # fmt: skip


def _not_saved(name: str, section: str, what: str, when: When) -> None:
    """A mutant whose command is answered, and of which nothing is left after a restart."""
    _host(f"{name}-not-saved | Base {section}, 7.6 | {what} is undone by a restart",
          drops_command(lambda t, c: when(t, c) and not ControlledServer.restarts))  # fmt: skip


_not_saved("release", "8.1.24.6", "a Release or Clear", on_io(Io.RESERVATION_RELEASE))
_not_saved("unregister", "8.1.24.4", "an Unregister", action(Io.RESERVATION_REGISTER, 1))
_not_saved("preempt", "8.1.24.7", "a Preempt", action(Io.RESERVATION_ACQUIRE, 1))
_not_saved(
    "replace",
    "8.1.24.3",
    "a Replace",
    lambda t, c: action(Io.RESERVATION_REGISTER, 2)(t, c) and not c.cdw10 >> 30,
)
_target("restart-loses-data | NVM 3.3.6 | data that were flushed, or written with FUA, are lost by a restart",
        patch(lambda raw: bytes(len(raw)), when=_restarted(on_io(Io.READ))))  # fmt: skip
_target("restart-renames | Base 5.2.13.2.1 | the serial number is another one after a restart",
        patch(put(4, b"ANOTHER"), when=_restarted(identify(Cns.CONTROLLER))))  # fmt: skip
_target("restart-keeps-feature | Base 4.4 | a feature has another value after a restart than before it was set",
        results(lambda t, c, old: old ^ 1, when=_restarted(feature(Admin.GET_FEATURES, Feature.TEMPERATURE_THRESHOLD))))  # fmt: skip
