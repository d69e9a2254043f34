"""Broken rules of corners: values that Identify announces, bits of features, counts that wrap, ranges that fail.

The rules, from the text (NVM Express Base 2.3, NVM Command Set 1.2), before any case:

- Base 5.2.13.2.1, NVM 4.1.5.1: a field of a capability that is not there is 0h; reserved values are not used;
  with asymmetric namespace access MNAN and NANAGRPID are not 0 (MUST).
- Base 5.2.12: bits 1:0 of LPO are an error, or count as 00b (MUST).
- Base 5.2.26: Get Features returns what Set Features has set (MUST).
- NVM 3.3.2: dword 0 of a Copy that fails is the lowest source range that was not copied; 0 if no data were
  written (MUST).
- NVM 3.3: NLB and NR state what a command is of, whatever its SGL has (MUST).
- Base 6.3: a Host Identifier of 0h in the Connect of an I/O queue is ignored (MUST).
"""

# ruff: noqa: E501  # a mutant is a row of a table

from collections.abc import Iterable
from dataclasses import replace

from nvme_tcp_event_mutants import is_event
from nvme_tcp_proxy_connection import Item, ProxyConnection, Rule
from nvme_tcp_rules import (
    When,
    add,
    commands,
    drops_command,
    fabrics,
    feature,
    host,
    identify,
    log,
    on_io,
    patch,
    put,
    response,
    results,
    shared,
    target,
)
from proxy import Hangup

from storagetest.wire.nvme.codes import Admin, Cns, Fctype, Feature, Io, LogPage, Property, StatusCode
from storagetest.wire.nvme.command import Command, Cqe
from storagetest.wire.nvme.fabrics import DISCOVERY_NQN, ConnectData
from storagetest.wire.nvme.io import dsm_ranges
from storagetest.wire.nvme_tcp.pdu import R2T, C2HData, CapsuleCmd, CapsuleResp, DecodedPdu

CONNECT = fabrics(Fctype.CONNECT)
QUEUES, EVENTS = 16, 8
"""I/O queues of an association, and events of a controller, before none comes any more (chosen)."""


# Identify, CAP, log pages

for _name, _at, _value, _words in (
    ("mnan", 540, bytes(4), "MNAN is 0, and asymmetric namespace access is reported"),
    ("nanagrpid", 348, bytes(4), "NANAGRPID is 0, and asymmetric namespace access is reported"),
    ("frmw", 260, b"\0", "FRMW states that there is no firmware slot"),
    ("acwu", 532, b"\3\0", "ACWU is 3, and there is no fused operation"),
    ("nsetidmax", 338, b"\1\0", "NSETIDMAX is 1, and there are no NVM Sets"),
    ("vwc", 525, b"\3", "bits 2:1 of VWC are 01b, which is reserved"),
    ("sgls", 536, b"\3", "bits 1:0 of SGLS are 11b, which is reserved"),
):
    target(
        f"value-{_name} | Base 5.2.13.2.1 | {_words}", patch(put(_at, _value), when=identify(Cns.CONTROLLER))
    )

for _name, _at, _value, _words in (
    ("dlfeat", 33, b"\5", "bits 2:0 of DLFEAT are 101b, which is reserved"),
    ("dps", 29, b"\1", "DPS states a protection that DPC lacks"),
    ("mc", 128, b"\10\0", "the blocks have metadata, and MC states none"),
    ("nvmsetid", 100, b"\1\0", "NVMSETID is 1, and there are no NVM Sets"),
):
    target(f"value-{_name} | NVM 4.1.5.1 | {_words}", patch(put(_at, _value), when=identify(Cns.NAMESPACE)))

add(
    "cap-pages | Base 3.1.4.1 | MPSMIN of CAP is 1, and MPSMAX 0",
    lambda: ProxyConnection(
        of_host=commands(
            lambda capsule, c: replace(capsule, sqe=replace(c, cdw12=c.cdw12 & ~(0xF << 7)).encode()),
            when=fabrics(Fctype.PROPERTY_SET, cdw11=Property.CC),
        ),
        of_target=results(
            lambda t, c, old: old | 1 << 48, when=fabrics(Fctype.PROPERTY_GET, cdw11=Property.CAP)
        ),
    ),
)


def _other_group(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
    """ANAGRPID of NSID 2 is 2, and ANAGRPMAX allows it; the log page has it in group 1."""
    return patch(put(344, b"\2\0\0\0"), when=identify(Cns.CONTROLLER))(through, got) or patch(
        put(92, b"\2\0\0\0"), when=lambda t, c: identify(Cns.NAMESPACE)(t, c) and c.nsid == 2
    )(through, got)


target(
    "ana-other-member | Base 8.1.1.2 | ANAGRPID is not the group whose descriptor lists the namespace",
    _other_group,
)
host(
    "log-offset-rounded-up | Base 5.2.12 | an offset of no dword is that of the next dword",
    commands(
        lambda capsule, c: replace(capsule, sqe=replace(c, cdw12=c.cdw12 + 3 & ~3).encode()), when=log()
    ),
)
target(
    "error-log-location | Base 5.2.12.1.2 | Parameter Error Location is byte 80 of a command of 64",
    patch(put(14, b"\x50\0"), when=log(LogPage.ERROR)),
)
target(
    "error-log-transport | Base 5.2.12.1.2 | TRTYPE of an error that is not of the transport is 3h",
    patch(put(29, b"\3"), when=log(LogPage.ERROR)),
)


# Features (Base 5.2.26)

for _name, _fid, _mask, _words in (
    ("weights", Feature.ARBITRATION, 0xFF << 24, "HPW of Arbitration is lost"),
    ("burst", Feature.ARBITRATION, 1 << 2, "of AB of Arbitration two bits are kept"),
    ("tmpth", Feature.TEMPERATURE_THRESHOLD, 0xFF00, "a temperature threshold has eight bits"),
    ("tler", Feature.ERROR_RECOVERY, 0xFF00, "TLER of Error Recovery has eight bits"),
    ("warnings", Feature.ASYNC_EVENT, 1 << 4, "bit 4 of Asynchronous Event Configuration is lost"),
):
    target(
        f"field-{_name}-cut | Base 5.2.26 | {_words}",
        results(lambda t, c, old, mask=_mask: old & ~mask, when=feature(Admin.GET_FEATURES, _fid)),  # type: ignore[misc]
    )


# Counts and rounds

target(
    "generation-byte | Base 7.8 | GEN has eight bits",
    patch(put(1, bytes(3)), when=on_io(Io.RESERVATION_REPORT)),
)
target(
    "smart-counts-byte | Base 5.2.12.1.3 | Host Read Commands and Host Write Commands have eight bits",
    patch(lambda raw: put(65, bytes(15))(put(81, bytes(15))(raw)), when=log(LogPage.SMART)),
)
target(
    "error-count-byte | Base 5.2.12.1.2 | the Error Count has eight bits",
    patch(put(1, bytes(7)), when=log(LogPage.ERROR)),
)


def _some_events(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
    if not is_event(through, got):
        return None
    through.memory["events"] = through.memory.get("events", 0) + 1
    return [] if through.memory["events"] > EVENTS else None


target("event-lost-after-eight | Base 5.2.2 | the ninth event of a controller is not reported", _some_events)


def _some_queues(known: set[object]) -> ProxyConnection:
    """``known``: the number of each Connect of an I/O queue, and its CNTLID."""

    def of_host(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
        if not isinstance(got.pdu, CapsuleCmd):
            return None
        sent = Command.decode(got.pdu.sqe)
        if CONNECT(through, sent) and sent.cdw10 >> 16:
            cntlid = ConnectData.decode(got.pdu.data).cntlid
            known.add((len(known), cntlid))
            if sum(1 for one in known if isinstance(one, tuple) and one[1] == cntlid) > QUEUES:
                raise Hangup
        return None

    return ProxyConnection(of_host=of_host)


shared(
    "sixteen-io-queues | Base 6.4 | the seventeenth Connect of an I/O queue of an association fails",
    _some_queues,
)


def _some_discoveries(known: set[object]) -> ProxyConnection:
    def of_host(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
        if isinstance(got.pdu, CapsuleCmd) and CONNECT(through, Command.decode(got.pdu.sqe)):
            if ConnectData.decode(got.pdu.data).subnqn == DISCOVERY_NQN:
                known.add(len(known))
            if len(known) > QUEUES:
                raise Hangup
        return None

    return ProxyConnection(of_host=of_host)


shared(
    "sixteen-discoveries | Base 3.3.2 | after sixteen associations with the discovery controller none is let in",
    _some_discoveries,
)


# Commands of I/O queues

for _name, _number, _words in (("beyond", 2, "the number of its ranges"), ("last", 1, "its last range")):
    target(
        f"copy-failed-range-{_name} | NVM 3.3.2 | dword 0 of a Copy that fails is {_words}, and nothing was copied",
        response(
            lambda t, c, cqe, number=_number: (  # type: ignore[misc]
                replace(cqe, result=number) if c and not cqe.ok and on_io(Io.COPY)(t, c) else None
            )
        ),
    )


def _fills_empty(row: str, blocks: int) -> None:
    """A mutant that takes a range of Dataset Management of 0 blocks for one of ``blocks``."""

    def change(capsule: CapsuleCmd, _: Command) -> CapsuleCmd:
        raw = capsule.data
        found = [raw[at : at + 16] for at in range(0, len(raw), 16)]
        ranges = [(int.from_bytes(one[8:], "little"), int.from_bytes(one[4:8], "little")) for one in found]
        return replace(capsule, data=dsm_ranges((lba, count or blocks) for lba, count in ranges))

    host(row, commands(change, when=on_io(Io.DATASET_MANAGEMENT)))


_fills_empty("dsm-empty-is-one | NVM 3.3.3 | a range of 0 blocks has one block", 1)
_fills_empty(
    "dsm-empty-is-rest | NVM 3.3.3 | a range of 0 blocks is that up to the end of the namespace", 1000
)


def _zero_is_a_host(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
    """A queue whose Connect has Host Identifier 0h is of a host that holds no reservation."""
    if isinstance(got.pdu, CapsuleCmd):
        sent = Command.decode(got.pdu.sqe)
        if CONNECT(through, sent) and sent.cdw10 >> 16:
            through.memory["no host"] = not any(ConnectData.decode(got.pdu.data).hostid)
    conflict = StatusCode.RESERVATION_CONFLICT
    refuse = drops_command(
        lambda t, c: t.memory.get("no host", False) and on_io(Io.WRITE)(t, c), status=conflict
    )
    return refuse(through, got)


host(
    "hostid-0-is-a-host | Base 6.3 | an I/O queue with Host Identifier 0h is of another host", _zero_is_a_host
)


# SGLs that are longer than the data (NVM 3.3)

BLOCK = 512
"""Bytes of a block of the small controller."""


def _sgl_decides(row: str, unit: dict[int, int], mask: int) -> None:
    """A mutant that takes the number of blocks or ranges from the length of the SGL; ``unit``: bytes of one."""

    def change(capsule: CapsuleCmd, command: Command) -> CapsuleCmd:
        length = int.from_bytes(command.dptr[8:12], "little")
        count = max(length // unit[command.opcode], 1)
        if command.opcode == Io.DATASET_MANAGEMENT:
            return replace(capsule, sqe=replace(command, cdw10=command.cdw10 & ~mask | count - 1).encode())
        return replace(capsule, sqe=replace(command, cdw12=command.cdw12 & ~mask | count - 1).encode())

    host(row, commands(change, when=on_io(*unit)))


_sgl_decides("sgl-decides-blocks | NVM 3.3 | a Read or Write has as many blocks as its SGL",
             {Io.READ: BLOCK, Io.WRITE: BLOCK}, 0xFFFF)  # fmt: skip
_sgl_decides("sgl-decides-ranges | NVM 3.3 | Copy and Dataset Management have as many ranges as their SGL",
             {Io.COPY: 32, Io.DATASET_MANAGEMENT: 16}, 0xFF)  # fmt: skip


# Queues without SQ flow control (NVMe/TCP 3.3.2.1)


def _is_free(through: ProxyConnection, got: DecodedPdu) -> bool:
    """Whether the host has asked for no SQ flow control on this I/O queue."""
    if isinstance(got.pdu, CapsuleCmd):
        sent = Command.decode(got.pdu.sqe)
        if CONNECT(through, sent):
            through.memory["free"] = bool(sent.cdw10 >> 16 and sent.cdw11 >> 18 & 1)
    return bool(through.memory.get("free"))


def _without_flow(row: str, *, of_host: Rule | None = None, of_target: Rule | None = None) -> None:
    """A mutant of such queues alone."""

    def sends(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
        return of_host(through, got) if _is_free(through, got) and of_host else None

    def receives(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
        return of_target(through, got) if through.memory.get("free") and of_target else None

    add(row, lambda: ProxyConnection(of_host=sends, of_target=receives))


def _succeeds(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
    """A read that fails is completed by its data, zeroes; each other command as a success."""
    command = through.command_of(got)
    if not isinstance(got.pdu, CapsuleResp) or command is None or Cqe.decode(got.pdu.cqe).ok:
        return None
    if command.opcode == Io.READ:
        length = int.from_bytes(command.dptr[8:12], "little")
        return [C2HData(command.cid, 0, bytes(length), last=True, success=True)]
    return [CapsuleResp(replace(Cqe.decode(got.pdu.cqe), status=0, dnr=False).encode())]


_without_flow("no-flow-never-fails | NVMe/TCP 3.3.2.1 | commands that fail are completed as a success",
              of_target=_succeeds)  # fmt: skip
_without_flow("no-flow-write-lost | NVM 3.3.6 | writes whose data are asked for are lost",
              of_host=drops_command(lambda t, c: on_io(Io.WRITE)(t, c) and c.dptr[15] == 0x5A))  # fmt: skip
_without_flow("no-flow-read-short | NVM 3.3.4 | the last byte of a read of several blocks is another",
              of_target=patch(lambda raw: raw[:-1] + bytes([raw[-1] ^ 1]), when=lambda t, c: on_io(Io.READ)(t, c) and bool(c.cdw12 & 0xFFFF)))  # fmt: skip


def _mixed(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
    """A read has the data of the block before it if another one is outstanding."""
    if not isinstance(got.pdu, CapsuleCmd):
        return None
    sent = Command.decode(got.pdu.sqe)
    if not on_io(Io.READ)(through, sent):
        return None
    reads = sum(one.opcode == Io.READ for one in through.commands.values())
    return [replace(got.pdu, sqe=replace(sent, cdw10=sent.cdw10 - 1).encode())] if reads > 1 else None


_without_flow("no-flow-reads-mixed | NVM 3.3.4 | reads that are outstanding together have the data of others",
              of_host=_mixed)  # fmt: skip


def _wrong_digest(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
    """The data digest of a C2HData with SUCCESS is wrong."""
    if not isinstance(got.pdu, C2HData) or not got.pdu.success or not through.digests.data:
        return None
    return [got.raw[:-1] + bytes([got.raw[-1] ^ 1])]


_without_flow("no-flow-digest-wrong | NVMe/TCP 3.3.1.1 | the data digest of a C2HData that completes a command is wrong",
              of_target=_wrong_digest)  # fmt: skip
target(
    "maxr2t-overflows | NVMe/TCP 3.3.2.2 | a host whose MAXR2T is FFFFFFFFh gets no R2T",
    lambda t, got: [] if isinstance(got.pdu, R2T) and t.icreq.maxr2t == 0xFFFFFFFF else None,
)


# SMART (Base 5.2.12.1.3)

target("smart-spare-warning | Base 5.2.12.1.3 | Critical Warning states that the spare is low, which it is not",
       patch(lambda raw: bytes([raw[0] | 1]) + raw[1:], when=log(LogPage.SMART)))  # fmt: skip
target("smart-never-warm | Base 5.2.12.1.3 | Critical Warning never states that a temperature is beyond a threshold",
       patch(lambda raw: bytes([raw[0] & ~2]) + raw[1:], when=log(LogPage.SMART)))  # fmt: skip


def _forgets_counts() -> ProxyConnection:
    """Return a connection whose SMART log has no entries of the error log counted after a reset."""

    def of_host(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
        if isinstance(got.pdu, CapsuleCmd):
            sent = Command.decode(got.pdu.sqe)
            if fabrics(Fctype.PROPERTY_SET, cdw11=Property.CC)(through, sent) and not sent.cdw12 & 1:
                through.memory["reset"] = True
        return None

    return ProxyConnection(
        of_host=of_host,
        of_target=patch(
            put(176, bytes(16)), when=lambda t, c: t.memory.get("reset", False) and log(LogPage.SMART)(t, c)
        ),
    )


add("smart-reset-others | Base 5.2.12.1.3 | a controller reset sets the count of entries of the error log to 0",
    _forgets_counts)  # fmt: skip


# Identify of a discovery controller


def _of_discovery(at: int, new: bytes) -> Rule:
    return patch(lambda raw: put(at, new)(raw) if raw[111] == 2 else raw, when=identify(Cns.CONTROLLER))


target(
    "discovery-id-cntlid | Base 5.2.13.2.1 | CNTLID of a discovery controller is 0",
    _of_discovery(78, b"\0\0"),
)
target(
    "discovery-id-ver | Base 5.2.13.2.1 | VER of a discovery controller is 1.2",
    _of_discovery(80, b"\0\2\1\0"),
)
target(
    "discovery-id-maxcmd | Base 5.2.13.2.1 | MAXCMD of a discovery controller is 0",
    _of_discovery(514, b"\0\0"),
)


def _counts_identify(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
    through.memory["identified"] = number = through.memory.get("identified", 0) + 1
    return _of_discovery(4, b"SERIAL%02d" % (number % 100))(through, got)


target(
    "discovery-id-changes | Base 5.2.13.2.1 | the serial number of a discovery controller is another each time",
    _counts_identify,
)


# MDTS (Base 5.2.13.2.1)


def _over_mdts(row: str, when: When) -> None:
    """A mutant that returns zeroes where the target refuses a transfer for its size."""

    def rule(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
        command = through.command_of(got)
        if not isinstance(got.pdu, CapsuleResp) or command is None or not when(through, command):
            return None
        cqe, length = Cqe.decode(got.pdu.cqe), int.from_bytes(command.dptr[8:12], "little")
        if cqe.status != StatusCode.INVALID_FIELD or length <= MDTS:
            return None
        data = C2HData(command.cid, 0, bytes(length), last=True)
        return [data, CapsuleResp(replace(cqe, status=0, dnr=False).encode())]

    target(row, rule)


MDTS = 1 << 17
"""Bytes of the largest transfer of the small controller."""

_over_mdts(
    "mdts-of-logs-ignored | Base 5.2.13.2.1 | a log page is read by more bytes than MDTS allows", log()
)
_over_mdts("mdts-of-reports-ignored | Base 5.2.13.2.1 | a Reservation Report has more bytes than MDTS allows",
           on_io(Io.RESERVATION_REPORT))  # fmt: skip
