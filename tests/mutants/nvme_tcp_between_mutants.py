"""Broken rules that show between commands of several queues: what one queue does changes another's commands.

The rules, before any case (NVM Express Base 2.3; NVM Command Set 1.2):

- NVM 3.3.4, 3.3.6: a block has the data of the last write, through whatever queue it was written and is read;
  commands of the admin queue change no block.
- NVM 3.3.1, 3.3.3, 3.3.8: Compare, Dataset Management and Write Zeroes are the same on each I/O queue.
- Base 5.2.1: Abort of a command that is not outstanding aborts nothing, then and later.
- Base 5.2.26: a value that Set Features has set is the current one until another is set.
- Base 6.4: Disconnect deletes the queue that it is sent on; the next one of its QID serves as the first did.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace

from nvme_tcp_proxy_connection import Item, ProxyConnection, Rule
from nvme_tcp_rules import (
    When,
    accepts,
    commands,
    drops_command,
    fabrics,
    feature,
    host,
    log,
    on_admin,
    on_io,
    shared,
    target,
)

from storagetest.wire.nvme.codes import FABRICS, Admin, Fctype, Feature, Io, StatusCode
from storagetest.wire.nvme.command import Command, Cqe
from storagetest.wire.nvme_tcp.pdu import C2HData, CapsuleCmd, CapsuleResp, DecodedPdu


def second_queue(*opcodes: int) -> When:
    """Match I/O commands of I/O queue 2."""
    return lambda t, c: t.qid == 2 and on_io(*opcodes)(t, c)


def after_admin(row: str, first: When, then: When, act: Callable[[When], Rule]) -> None:
    """Add a mutant: ``act`` is done to the first I/O command that ``then`` matches after each ``first``."""

    def sharing(notes: set[object]) -> ProxyConnection:
        def due(through: ProxyConnection, command: Command) -> bool:
            if "due" not in notes or not then(through, command):
                return False
            notes.discard("due")
            return True

        rule = act(due)

        def of_host(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
            if isinstance(got.pdu, CapsuleCmd) and first(through, Command.decode(got.pdu.sqe)):
                notes.add("due")
            return rule(through, got)

        return ProxyConnection(of_host=of_host)

    shared(row, sharing)


for _name, _section, _first, _words in (
    ("abort", "Base 5.2.1.2", on_admin(Admin.ABORT), "an Abort"),
    ("log", "NVM 3.3.6", log(), "a Get Log Page"),
    ("set-features", "NVM 3.3.6", feature(Admin.SET_FEATURES, Feature.KATO), "a Set Features"),
    ("disconnect", "Base 6.4", fabrics(Fctype.DISCONNECT), "a Disconnect of an I/O queue"),
):
    after_admin(
        f"write-after-{_name}-lost | {_section} | the write after {_words} is lost",
        _first,
        on_io(Io.WRITE),
        drops_command,
    )

host(
    "queue-2-zeroes-ignored | NVM 3.3.8 | Write Zeroes does nothing on I/O queue 2",
    drops_command(second_queue(Io.WRITE_ZEROES)),
)
target(
    "queue-2-compare-passes | NVM 3.3.1 | Compare of data that differ succeeds on I/O queue 2",
    accepts(StatusCode.COMPARE_FAILURE, when=second_queue(Io.COMPARE)),
)


def late(capsule: CapsuleCmd, command: Command) -> CapsuleCmd:
    """Begin the first range one block late."""
    raw = bytearray(capsule.data)
    raw[8:16] = (int.from_bytes(raw[8:16], "little") + 1).to_bytes(8, "little")
    return CapsuleCmd(capsule.sqe, bytes(raw))


host(
    "queue-2-dsm-shifted | NVM 3.3.3 | the first range begins and ends one block late on I/O queue 2",
    commands(late, when=second_queue(Io.DATASET_MANAGEMENT)),
)


def _cached(notes: set[object]) -> ProxyConnection:
    """Return the data of the queue's own last read of a range, unless that queue has written since."""

    def of_host(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
        if isinstance(got.pdu, CapsuleCmd) and on_io(Io.WRITE)(through, Command.decode(got.pdu.sqe)):
            through.memory["cache"] = {}
        return None

    def of_target(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
        command = through.command_of(got)
        if not isinstance(got.pdu, C2HData) or command is None or not on_io(Io.READ)(through, command):
            return None
        key = (command.nsid, command.cdw10, command.cdw12, got.pdu.offset)
        data = through.memory.setdefault("cache", {}).setdefault(key, got.pdu.data)
        return [replace(got.pdu, data=data)] if data != got.pdu.data else None

    return ProxyConnection(of_host=of_host, of_target=of_target)


shared("queue-cache | NVM 3.3.4 | a queue that wrote nothing since returns what it read before", _cached)


def _again(notes: set[object]) -> ProxyConnection:
    """Lose the first write of a queue whose QID was connected before."""

    def of_host(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
        if isinstance(got.pdu, CapsuleCmd):
            command = Command.decode(got.pdu.sqe)
            if command.opcode == FABRICS and command.nsid & 0xFF == Fctype.DISCONNECT:
                notes.add(through.qid)
            elif command.opcode == FABRICS and command.nsid & 0xFF == Fctype.CONNECT:
                through.memory["again"] = through.qid in notes
        return lost(through, got)

    lost = drops_command(lambda t, c: on_io(Io.WRITE)(t, c) and bool(t.memory.pop("again", False)))
    return ProxyConnection(of_host=of_host)


shared(
    "write-of-queue-again-lost | Base 6.4 | the first write of a QID that is connected again is lost",
    _again,
)


def _forgets(notes: set[object]) -> ProxyConnection:
    """Set a Keep Alive Timeout, and lose it with the next Disconnect of an I/O queue."""

    def of_host(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
        if isinstance(got.pdu, CapsuleCmd):
            command = Command.decode(got.pdu.sqe)
            if fabrics(Fctype.DISCONNECT)(through, command):
                notes.add("lost")
            elif feature(Admin.SET_FEATURES, Feature.KATO)(through, command):
                notes.discard("lost")
        return None

    def of_target(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
        command = through.command_of(got)
        if not isinstance(got.pdu, CapsuleResp) or command is None or "lost" not in notes:
            return None
        if not feature(Admin.GET_FEATURES, Feature.KATO)(through, command):
            return None
        return [CapsuleResp(replace(Cqe.decode(got.pdu.cqe), result=5000).encode())]

    return ProxyConnection(of_host=of_host, of_target=of_target)


shared(
    "kato-lost-with-queue | Base 5.2.26 | Disconnect of an I/O queue sets the Keep Alive Timeout back",
    _forgets,
)
