"""Names, identifiers, keys and numbers are compared and kept whole: each other value is another one."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

import pytest

from storagetest.errors import RemoteProtocolError
from storagetest.wire.nvme import admin, fabrics, io
from storagetest.wire.nvme.codes import Cns, Feature, Property, Rtype, StatusCode, status_name
from storagetest.wire.nvme.command import Command
from storagetest.wire.nvme_tcp import ControllerSession, Identity, Queue
from storagetest.wire.nvme_tcp.harness import Harness, Scratch, block_data, read_blocks, write_blocks
from storagetest.wire.nvme_tcp.reservation_harness import (
    CLEAR,
    HOLDING,
    PREEMPT,
    REPLACE,
    UNREGISTER,
    ReservingHost,
    allowed,
    hold,
)
from storagetest.wire.nvme_tcp.session import connect_queue

from .test_namespaces import need_invalid

pytestmark = [pytest.mark.needs("nvme-tcp-wire"), pytest.mark.case(level="MUST")]

REFUSED_NAME = (StatusCode.CONNECT_INVALID_PARAMETERS, StatusCode.CONNECT_INVALID_HOST)

Hosts = tuple[ReservingHost, ReservingHost]

# Names (Base 4.7: NQNs are compared as binary strings, without any text processing)


def _shorter(name: str) -> str:
    """Return a name that this one begins with: half of what follows its last colon is left away."""
    end = name.rfind(":") + 1
    return name[: max(end + (len(name) - end) // 2, end + 1)]


def _other_case(name: str) -> str:
    """Return the name with its last letter in the other case."""
    at = max(at for at, one in enumerate(name) if one.isalpha())
    return name[:at] + name[at].swapcase() + name[at + 1 :]


NAMES: dict[str, Callable[[str], str]] = {
    "BEGINNING": _shorter,
    "LONGER": lambda name: f"{name}-x",
    "LAST": lambda name: f"{name[:-1]}{'~' if name[-1] != '~' else '_'}",
    "CASE": _other_case,
}
LONGEST_NAME = 223
"""Bytes of the longest NQN (Base 4.7)."""


def _another(change: str, name: str) -> str:
    other = NAMES[change](name)
    if other == name or len(other.encode()) > LONGEST_NAME:
        pytest.skip(f"{name} has no other form of this kind")
    return other


@pytest.mark.parametrize("change", [
    pytest.param(name, marks=pytest.mark.case(f"NVF-NAME-{name}", kills=(f"name-{name.lower()}-taken",)))
    for name in NAMES
])  # fmt: skip
@pytest.mark.case(section="Base 4.7", builds_on=("NVF-CONNECT-03",))
def test_a_subsystem_is_not_that_of_a_name_that_is_alike(bench: Harness, change: str) -> None:
    endpoint = bench.endpoint
    other = _another(change, endpoint.subnqn)
    done = connect_queue(
        bench.queue(), subnqn=other, identity=bench.any_host(), cntlid=endpoint.any_controller
    )
    assert done.status in REFUSED_NAME, (
        f"4.7: Connect to {other} ended with {status_name(done.status)}; the name of the subsystem is "
        f"{endpoint.subnqn}, and names are compared as binary strings"
    )


@pytest.mark.parametrize("change", [
    pytest.param(name, marks=pytest.mark.case(f"NVF-NAME-HOST-{name}", kills=("host-name-alike-taken",)))
    for name in NAMES
])  # fmt: skip
@pytest.mark.case(section="Base 6.3", builds_on=("NVF-CONNECT-27",))
def test_an_io_queue_of_a_host_whose_name_is_alike_is_refused(
    bench: Harness, session: ControllerSession, change: str
) -> None:
    identity = session.identity
    other = _another(change, identity.nqn)
    done = connect_queue(
        bench.queue(),
        subnqn=bench.endpoint.subnqn,
        identity=replace(identity, nqn=other),
        qid=1,
        cntlid=session.cntlid,
    )
    assert done.status in REFUSED_NAME, (
        f"6.3: Connect of an I/O queue by host {other} ended with {status_name(done.status)}; "
        f"the controller is that of {identity.nqn}"
    )


# Host Identifiers

BYTES = (0, 7, 8, 15)
"""Bytes of a Host Identifier: the ends of its halves."""


def _differs(byte: int) -> Callable[[bytes], bytes]:
    """Return a function that changes one byte of a Host Identifier."""
    return lambda hostid: hostid[:byte] + bytes([hostid[byte] ^ 0x40]) + hostid[byte + 1 :]


@pytest.mark.parametrize("byte", [
    pytest.param(byte, marks=pytest.mark.case(f"NVF-HOSTID-BYTE-{byte}", kills=(f"hostid-half-{byte // 8}",)))
    for byte in BYTES
])  # fmt: skip
@pytest.mark.case(section="Base 6.3", builds_on=("NVF-CONNECT-14",))
def test_an_io_queue_of_a_host_identifier_that_is_alike_is_refused(
    bench: Harness, session: ControllerSession, byte: int
) -> None:
    identity = session.identity
    other = replace(identity, hostid=_differs(byte)(identity.hostid))
    done = connect_queue(
        bench.queue(), subnqn=bench.endpoint.subnqn, identity=other, qid=1, cntlid=session.cntlid
    )
    assert done.status == StatusCode.CONNECT_INVALID_PARAMETERS, (
        f"6.3: Connect of an I/O queue ended with {status_name(done.status)}; byte {byte} of its Host "
        "Identifier is not that of the admin queue's"
    )


def _alike(byte: int) -> Callable[[Identity], Identity]:
    """Return a function that makes the identity of the second host from that of the first."""
    return lambda first: replace(Identity.fresh(), hostid=_differs(byte)(first.hostid))


@pytest.mark.parametrize("hosts", [
    pytest.param(_alike(byte), marks=pytest.mark.case(
        f"NVR-HOSTID-BYTE-{byte}", kills=(f"hostid-half-{byte // 8}",)))
    for byte in BYTES
], indirect=True)  # fmt: skip
@pytest.mark.case(section="Base 8.1.24.1", builds_on=HOLDING)
def test_a_host_is_not_one_whose_identifier_is_alike(hosts: Hosts) -> None:
    """The Host Identifiers of a holder and of another host differ in one byte."""
    first, second = hosts
    hold(first, Rtype.WRITE_EXCLUSIVE)
    write = second.write()
    assert write.status == StatusCode.RESERVATION_CONFLICT, (
        f"8.1.24.1: a write by a host whose identifier is not the holder's ended with "
        f"{status_name(write.status)}: {first.session.identity.hostid.hex()} holds, and "
        f"{second.session.identity.hostid.hex()} writes"
    )
    allowed(second.register())
    found = {(one.hostid, one.key, one.holds) for one in first.report().registrants}
    wanted = {(host.session.identity.hostid, host.key, host is first) for host in hosts}
    assert found == wanted, f"7.8: the registrants are {found}, and two hosts have registered: {wanted}"


# Reservation keys have 64 bits

KEY = 0x8F1E_2D3C_4B5A_6978
"""A key of which each byte is another one (chosen)."""
OTHER_BITS = {"0": 1 << 0, "16": 1 << 16, "31": 1 << 31, "32": 1 << 32, "48": 1 << 48, "63": 1 << 63}

USES: dict[str, Callable[[ReservingHost, ReservingHost, int], int]] = {
    "REPLACE": lambda first, _, key: first.register(REPLACE, current=key, new=0xC3).status,
    "UNREGISTER": lambda first, _, key: first.register(UNREGISTER, current=key).status,
    "ACQUIRE": lambda first, _, key: first.acquire(Rtype.WRITE_EXCLUSIVE, key=key).status,
    "RELEASE": lambda first, _, key: first.release(Rtype.WRITE_EXCLUSIVE, key=key).status,
    "CLEAR": lambda first, _, key: first.release(Rtype.WRITE_EXCLUSIVE, CLEAR, key=key).status,
    "PREEMPT": lambda first, second, key: (
        first.acquire(Rtype.WRITE_EXCLUSIVE, PREEMPT, victim=second.key ^ first.key ^ key).status
    ),
}
"""Uses a key in place of the first host's own one; PREEMPT in place of that of the second host."""


@pytest.mark.parametrize("use", [
    pytest.param(use, marks=pytest.mark.case(f"NVR-KEY-BITS-{use}", kills=("key-of-half",))) for use in USES
])  # fmt: skip
@pytest.mark.case(section="Base 8.1.24", builds_on=(*HOLDING, "NVR-REG-03"))
def test_a_key_that_differs_in_one_bit_is_another_one(hosts: Hosts, use: str) -> None:
    first, second = hosts
    first.key, second.key = KEY, KEY ^ 0x0102_0408_1020_4080
    hold(first, Rtype.WRITE_EXCLUSIVE)
    allowed(second.register())
    before = first.report()
    keys = {(one.hostid, one.key) for one in before.registrants}
    assert keys == {(host.session.identity.hostid, host.key) for host in hosts}, (
        f"7.8: the keys in the report are {sorted(f'{key:#x}' for _, key in keys)}; registered: "
        f"{first.key:#x} and {second.key:#x}"
    )
    for name, bit in OTHER_BITS.items():
        status = USES[use](first, second, KEY ^ bit)
        # a Preempt of a key that no host has may succeed, and then it unregisters none (8.1.24.7)
        assert status == StatusCode.RESERVATION_CONFLICT or (use == "PREEMPT" and not status), (
            f"8.1.24: {use} with a key of which bit {name} is another one ended with {status_name(status)}"
        )
        after = first.report()
        assert (after.rtype, after.registrants) == (before.rtype, before.registrants), (
            f"8.1.24: {use} with a key of which bit {name} is another one, so that no host has it, "
            f"changes the registrants from {before.registrants} to {after.registrants}"
        )


# Numbers of 32 bits


@pytest.mark.parametrize("bit", [
    pytest.param(bit, marks=pytest.mark.case(f"NVB-NSID-BIT-{bit}", kills=("nsid-low-bits",)))
    for bit in (8, 16, 24, 31)
])  # fmt: skip
@pytest.mark.case(section="Base 3.2.1.5", builds_on=("NVB-NSID-FFFFFFFE",))
def test_each_bit_of_an_nsid_counts(
    session: ControllerSession, queue: Queue, scratch: Scratch, bit: int
) -> None:
    """The NSID has the other bits of an active one. It is refused, and no block is written."""
    nsid = scratch.nsid ^ 1 << bit
    need_invalid(session, nsid)
    before = write_blocks(queue, scratch, 1, 1601)
    commands = (
        ("a Read", queue, io.read(nsid, scratch.lba, 1), b"", scratch.block_size),
        ("a Write", queue, io.write(nsid, scratch.lba, 1), block_data(scratch.block_size, 1602), 0),
        ("a Flush", queue, io.flush(nsid), b"", 0),
        ("an Identify", session.admin, admin.identify(Cns.DESCRIPTORS, nsid=nsid), b"", 4096),
    )
    for name, at, command, data, reads in commands:
        done = at.run(command, data=data, reads=reads)
        assert not done.ok, (
            f"3.2.1.5: {name} of NSID {nsid:#x} succeeds; NN is {session.controller['nn']}, "
            f"and {scratch.nsid:#x} is active: Invalid Namespace or Format"
        )
    assert read_blocks(queue, scratch, 1) == before, f"3.2.1.5: a write of NSID {nsid:#x} was carried out"


# Opcodes and properties


@pytest.mark.parametrize("opcode", [
    pytest.param(code, marks=pytest.mark.case(f"NVB-OPCODE-{code:02X}H", kills=("opcode-low-bits",)))
    for code in (0x21, 0x22, 0x41, 0x42, 0x61, 0x62)
])  # fmt: skip
@pytest.mark.case(section="Base 4.2.3.1", builds_on=("NVB-OPCODE-30H",))
def test_an_io_opcode_that_is_alike_is_no_read_or_write(queue: Queue, scratch: Scratch, opcode: int) -> None:
    """The low bits are those of Read, or of Write; no command set has these opcodes."""
    before = write_blocks(queue, scratch, 1, 1611)
    size, writes = scratch.block_size, opcode & 3 == 1
    command = replace(io.read(scratch.nsid, scratch.lba, 1), opcode=opcode)
    data = block_data(size, 1612) if writes else b""
    done = queue.run(command, data=data, reads=0 if writes else size)
    assert not done.ok, (
        f"4.2.3.1: opcode {opcode:02x}h is of no command, and succeeds: Invalid Command Opcode"
    )
    assert read_blocks(queue, scratch, 1) == before, f"4.2.3.1: opcode {opcode:02x}h has changed the block"


@pytest.mark.parametrize("opcode", [
    pytest.param(code, marks=pytest.mark.case(f"NVB-OPCODE-{code:02X}H", kills=("opcode-both-unanswered",)))
    for code in (0x43, 0x5B, 0x63)
])  # fmt: skip
@pytest.mark.case(section="Base 4.2.3.1", builds_on=("NVB-OPCODE-30H",))
def test_an_io_opcode_of_both_directions_is_refused(queue: Queue, scratch: Scratch, opcode: int) -> None:
    """Bits 1:0 are 11b, which no command of the NVM Command Set has; the queue goes on."""
    for reads in (0, scratch.block_size):
        done = queue.run(replace(io.read(scratch.nsid, scratch.lba, 1), opcode=opcode), reads=reads)
        assert not done.ok, f"4.2.3.1: I/O opcode {opcode:02x}h succeeds: Invalid Command Opcode"
        read_blocks(queue, scratch, 1)


@pytest.mark.parametrize("opcode", [
    pytest.param(code, marks=pytest.mark.case(f"NVA-OPCODE-{code:02X}H", kills=("opcode-both-unanswered",)))
    for code in (0x5B, 0x63)
])  # fmt: skip
@pytest.mark.case(section="Base 4.2.3.1", builds_on=("NVA-OPCODE-00H",))
def test_an_admin_opcode_of_both_directions_is_refused(session: ControllerSession, opcode: int) -> None:
    for reads in (0, 4096):
        done = session.admin.run(Command(opcode), reads=reads)
        assert not done.ok, f"4.2.3.1: admin opcode {opcode:02x}h succeeds: Invalid Command Opcode"
        assert session.admin.run(admin.keep_alive()).ok, "5.2.14: Keep Alive"


@pytest.mark.parametrize("opcode", [
    pytest.param(code, marks=pytest.mark.case(f"NVA-OPCODE-{code:02X}H", kills=("opcode-low-bits",)))
    for code in (0x62, 0x66, 0x6A)
])  # fmt: skip
@pytest.mark.case(section="Base 4.2.3.1", builds_on=("NVA-OPCODE-00H",))
def test_an_admin_opcode_that_is_alike_is_refused(session: ControllerSession, opcode: int) -> None:
    """The low bits are those of Get Log Page, Identify and Get Features."""
    words = {0x62: 2 | 127 << 16, 0x66: Cns.CONTROLLER, 0x6A: Feature.NUMBER_OF_QUEUES}
    command = Command(opcode, nsid=0xFFFF_FFFF if opcode == 0x62 else 0, cdw10=words[opcode])
    done = session.admin.run(command, reads=4096)
    assert not done.ok, (
        f"4.2.3.1: opcode {opcode:02x}h is of no command, and succeeds: Invalid Command Opcode"
    )


@pytest.mark.parametrize("bit", [
    pytest.param(bit, marks=pytest.mark.case(f"NVF-PROP-FAR-{bit}", kills=("property-low-bits",)))
    for bit in (8, 12, 16, 24, 31)
])  # fmt: skip
@pytest.mark.case(section="Base 3.1.4")
def test_no_property_is_at_a_far_offset(session: ControllerSession, bit: int) -> None:
    """An offset whose low bits are those of a property: reserved, or of a memory-based controller."""
    for low in (Property.CAP, Property.VS, Property.CC):
        offset = low | 1 << bit
        done = session.admin.run(fabrics.property_get(offset, size=8 if low == Property.CAP else 4))
        assert not done.ok or done.cqe.result == 0, (
            f"3.1.4: Property Get of offset {offset:#x} returns {done.cqe.result:#x}; no property of a "
            "controller over fabrics is there"
        )


@pytest.mark.parametrize("how", [
    pytest.param("Connect", marks=pytest.mark.case("NVA-FEAT-KATO-WIDE-CONNECT")),
    pytest.param("Set Features", marks=pytest.mark.case("NVA-FEAT-KATO-WIDE-SET")),
])  # fmt: skip
@pytest.mark.case(section="Base 5.2.26.1.8", kills=("kato-16-bits",), builds_on=("NVA-FEAT-KATO-01",))
def test_the_keep_alive_timeout_has_32_bits(bench: Harness, how: str) -> None:
    """It is more than 65,535 ms, and rounded up to the granularity of KAS."""
    wanted = 100_000
    session = bench.session(kato=wanted if how == "Connect" else 30_000)
    if how != "Connect":
        done = session.admin.run(admin.set_features(Feature.KATO, wanted))
        assert done.ok, f"5.2.26.1.8: a timeout of {wanted} ms is not {status_name(done.status)}"
    unit = max(session.controller["kas"] * 100, 1)
    found = session.admin.run(admin.get_features(Feature.KATO)).cqe.dw0
    assert found == -(-wanted // unit) * unit, (
        f"5.2.26.1.8: the Keep Alive Timeout is {found} ms, after {how} with {wanted} ms; KAS is {unit} ms"
    )


SETTLED = 2.0
"""Seconds in which a controller has taken notice of a connection that was closed (chosen)."""


def _connect_and_close(session: ControllerSession) -> None:
    """Connect I/O queue 1 and close it. A controller may still be ending that of before: then again."""
    until = time.monotonic() + SETTLED
    while True:
        try:
            session.io_queue(qid=1).close()
        except RemoteProtocolError:
            if time.monotonic() > until:
                raise
            time.sleep(0.05)
        else:
            return


@pytest.mark.case("NVA-FEAT-QUEUES-RESET", section="Base 5.2.26.2.1", kills=("queues-set-once",))
def test_queues_are_granted_again_after_a_reset(session: ControllerSession) -> None:
    """A reset deletes the I/O queues: Number of Queues is set before they are created, each time."""
    for turn in range(2):
        _connect_and_close(session)
        session.disable()
        session.enable()
        until, status = time.monotonic() + SETTLED, StatusCode.COMMAND_SEQUENCE_ERROR.value
        while status == StatusCode.COMMAND_SEQUENCE_ERROR and time.monotonic() < until:
            status = session.admin.run(admin.set_features(Feature.NUMBER_OF_QUEUES, 0)).status
            time.sleep(0.05 if status else 0)
        assert not status, (
            f"5.2.26.2.1: Number of Queues ended with {status_name(status)} after reset {turn + 1}, "
            "and no I/O queue has been created since"
        )
        session.io_queues.clear()
