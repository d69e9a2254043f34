"""Fixtures of the iSCSI cases: a portal, a connection, a session, two initiators, blocks to write.

Every case has its own initiator names (from its id), so that cases do not affect each other. At its end every
session is logged out and every connection closed. Nothing is written unless the logical unit has the identity
that the targets file names under ``erase``.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import pytest

from storagetest.config import Variant
from storagetest.errors import RemoteProtocolError
from storagetest.plugin.conformance.cases import WireLog, case_of
from storagetest.plugin.conformance.known_issues import apply_reported
from storagetest.wire.iscsi.initiator import AnnouncedClose, Initiator, LoginRefused
from storagetest.wire.iscsi.keys import format_text
from storagetest.wire.iscsi.ladder import PORT, make_decoder
from storagetest.wire.iscsi.login import DEFAULT_OFFER, Credentials
from storagetest.wire.iscsi.pdu import LoginRequest, LoginResponse
from storagetest.wire.scsi.data import (
    BlockLimits,
    Capacity,
    Provisioning,
    decode_block_limits,
    decode_capacity16,
    decode_designators,
    decode_inquiry,
    decode_provisioning,
    decode_vpd,
    wwids,
)
from storagetest.wire.scsi.logical_unit import LogicalUnit
from storagetest.wire.tcp import PeerClosed, RecordedConnection

DEADLINE = 10.0
"""Timeout of one response in seconds, or the target's `deadline` if that is less (chosen)."""

_NAME = "iqn.2024-01.org.storagetest:"


@dataclass(frozen=True, slots=True)
class Portal:
    """Address, name and credentials of the target."""

    address: str
    port: int
    iqn: str
    lun: int
    deadline: float
    credentials: Credentials | None
    erase: str | None


@dataclass(frozen=True, slots=True)
class Facts:
    """Properties that the logical unit reports, read once."""

    vendor: str
    capacity: Capacity
    names: tuple[str, ...]
    pages: frozenset[int]
    limits: BlockLimits | None
    provisioning: Provisioning | None


@dataclass(frozen=True, slots=True)
class Scratch:
    """Blocks that a case may overwrite: ``count`` from ``lba``."""

    lba: int
    count: int
    block_size: int

    def pattern(self, blocks: int = 1, *, seed: int = 0) -> bytes:
        """Return data that differ in every block and for every seed."""
        out = b""
        for block in range(blocks):
            word = hashlib.sha256(f"{seed}/{block}".encode()).digest()
            out += word * (self.block_size // len(word))
        return out


def _portal(options: Any) -> Portal:
    chap = options.chap
    credentials = None
    if chap is not None:
        mutual = chap.mutual
        credentials = Credentials(
            chap.username,
            chap.password.reveal().encode(),
            mutual.username if mutual else "",
            mutual.password.reveal().encode() if mutual else b"",
        )
    address, port = options.wire_endpoint(options.address, options.port)
    deadline = min(DEADLINE, options.deadline)
    return Portal(address, port, options.iqn, options.lun, deadline, credentials, options.erase)


@pytest.fixture(scope="session")
def portal(variant: Variant) -> Portal:
    """Return the target's portal, as this machine connects to it."""
    return _portal(variant.options)


class Connections:
    """Creates the initiators of a case, and closes them."""

    def __init__(self, portal: Portal, log: WireLog, case: str) -> None:
        self.portal = portal
        self._log = log
        self._case = case
        self._initiators: list[Initiator] = []

    def name(self, letter: str = "a") -> str:
        """Return an initiator name for this case."""
        return f"{_NAME}{self._case}-{letter}"

    def open(self, letter: str = "a", *, lun: int | None = None) -> Initiator:
        """Connect without a login."""
        link = RecordedConnection.connect(
            self.portal.address, self.portal.port, deadline=self.portal.deadline
        )
        self._log.add(link, name=letter, decoder=make_decoder, port=PORT)
        initiator = Initiator(
            link,
            name=self.name(letter),
            lun=self.portal.lun if lun is None else lun,
            deadline=self.portal.deadline,
        )
        self._initiators.append(initiator)
        return initiator

    def login(
        self, letter: str = "a", *, offer: Mapping[str, str] | None = None, clear: bool = True, **more: Any
    ) -> Initiator:
        """Connect and log in; with ``clear``, clear the pending unit attentions."""
        made = self.open(letter)
        more.setdefault("target", self.portal.iqn)
        more.setdefault("credentials", self.portal.credentials)
        made.login(offer=offer, **more)
        if clear and more["target"]:
            LogicalUnit(made).clear_attentions()
        return made

    def refused(self, letter: str = "r", **more: Any) -> RemoteProtocolError:
        """Assert that a login is refused, or ends in a close; return the error."""
        try:
            self.login(letter, clear=False, **more)
        except (LoginRefused, PeerClosed) as refusal:
            return refusal
        raise AssertionError("the login was accepted")

    def discovery(self, letter: str = "a") -> Initiator:
        """Connect and log in to a discovery session."""
        return self.login(letter, target=None, credentials=None)

    def close(self) -> None:
        """Log out and close all initiators, the last one first."""
        for initiator in reversed(self._initiators):
            initiator.close()


@pytest.fixture
def connections(portal: Portal, wire_log: WireLog, request: pytest.FixtureRequest) -> Iterator[Connections]:
    """Yield the factory of this case's connections."""
    case = case_of(request.node)
    made = Connections(portal, wire_log, (case.id if case else request.node.name).lower())
    try:
        yield made
    finally:
        made.close()


@pytest.fixture(autouse=True)
def known_issue(request: pytest.FixtureRequest) -> None:
    """Apply the known issues of the target's vendor to this case."""
    if "portal" in request.fixturenames and case_of(request.node) is not None:
        facts: Facts = request.getfixturevalue("facts")
        apply_reported(request.node, vendor=facts.vendor)


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, object, object]:  # noqa: ARG001
    """Skip a case whose connection the target closed as it had announced (RFC 7143 11.9.1)."""
    try:
        return (yield)
    except AnnouncedClose as announced:
        pytest.skip(f"the target ended the connection, as it may: {announced}")


@pytest.fixture
def connection(connections: Connections) -> Initiator:
    """Return a connection on which nothing was sent."""
    return connections.open()


@pytest.fixture
def session(connections: Connections) -> Initiator:
    """Return a normal session, logged in with the default offer."""
    return connections.login()


@pytest.fixture
def discovery(connections: Connections, portal: Portal) -> Initiator:
    """Return a discovery session."""
    try:
        return connections.discovery()
    except LoginRefused:
        if portal.credentials is None:
            raise
        return connections.login("b", target=None)


@pytest.fixture
def unit(session: Initiator, facts: Facts) -> LogicalUnit:
    """Return the logical unit, through ``session``."""
    return LogicalUnit(session, block_size=facts.capacity.block_size)


@pytest.fixture
def two(connections: Connections, facts: Facts) -> tuple[LogicalUnit, LogicalUnit]:
    """Return the logical unit through two initiators of different names: two I_T nexuses."""
    size = facts.capacity.block_size
    first, second = connections.login("a"), connections.login("b")
    return LogicalUnit(first, block_size=size), LogicalUnit(second, block_size=size)


@pytest.fixture(scope="session")
def facts(portal: Portal) -> Facts:
    """Read the properties of the logical unit, once."""
    with RecordedConnection.connect(portal.address, portal.port, deadline=portal.deadline) as link:
        initiator = Initiator(link, name=f"{_NAME}facts", lun=portal.lun, deadline=portal.deadline)
        initiator.login(target=portal.iqn, credentials=portal.credentials)
        unit = LogicalUnit(initiator)
        unit.clear_attentions()
        vendor = decode_inquiry(unit.inquiry().data).vendor.strip()
        capacity = decode_capacity16(unit.capacity16().data)
        pages = frozenset(decode_vpd(unit.inquiry(0x00).data).body)
        names = wwids(decode_designators(decode_vpd(unit.inquiry(0x83).data)))
        limits = decode_block_limits(decode_vpd(unit.inquiry(0xB0).data)) if 0xB0 in pages else None
        thin = decode_provisioning(decode_vpd(unit.inquiry(0xB2).data)) if 0xB2 in pages else None
        initiator.close()
    return Facts(vendor, capacity, names, pages, limits, thin)


@pytest.fixture(scope="session")
def scratch(portal: Portal, facts: Facts) -> Scratch:
    """Return blocks that may be overwritten; skip if the targets file does not allow it."""
    if portal.erase is None:
        pytest.skip(f"{portal.iqn} LUN {portal.lun}: no `erase` in the targets file, so nothing is written")
    if portal.erase not in facts.names:
        pytest.skip(
            f"{portal.iqn} LUN {portal.lun} is {', '.join(facts.names)} and not {portal.erase}, which may be "
            "erased: nothing is written"
        )
    return Scratch(64, 2048, facts.capacity.block_size)


@pytest.fixture
def unreserved(
    two: tuple[LogicalUnit, LogicalUnit],
    scratch: Scratch,  # noqa: ARG001  # a reservation is a write
) -> Iterator[tuple[LogicalUnit, LogicalUnit]]:
    """Yield ``two`` on a unit without registrations or reservations, and leave it so."""
    first, _ = two
    _clear(first)
    try:
        yield two
    finally:
        if first.runner.logged_in:  # type: ignore[attr-defined]  # an Initiator
            _clear(first)


def _clear(unit: LogicalUnit) -> None:
    """Remove every registration and reservation of all initiators."""
    from storagetest.wire.scsi.codes import PrOut  # noqa: PLC0415

    unit.clear_attentions()
    if unit.keys().keys:
        unit.reserve_out(PrOut.REGISTER_AND_IGNORE_EXISTING_KEY, action_key=0xC1EA)
        unit.reserve_out(PrOut.CLEAR, key=0xC1EA)
        unit.clear_attentions()


@pytest.fixture
def send_login(connection: Initiator, portal: Portal) -> Callable[..., LoginResponse | None]:
    """Return a function that sends a leading login request and returns the response, or None on a close.

    ``drop`` omits keys, ``pairs`` adds or replaces some, ``text`` replaces all; ``overrides`` overrides
    header fields; the rest are fields of the request.
    """

    def send(
        *,
        drop: tuple[str, ...] = (),
        pairs: Mapping[str, str] | None = None,
        text: bytes | None = None,
        overrides: Mapping[str, Any] | None = None,
        offer: bool = True,
        **fields: Any,
    ) -> LoginResponse | None:
        keys = {"InitiatorName": connection.name, "SessionType": "Normal", "TargetName": portal.iqn}
        keys |= {**DEFAULT_OFFER} if offer else {}
        keys |= pairs or {}
        sent = [(name, value) for name, value in keys.items() if name not in drop]
        data = format_text(sent) if text is None else text
        request = replace(LoginRequest(itt=0, isid=b"\x80storg"), data=data, **fields)
        connection.send(request, overrides=overrides)
        response = connection.receive()
        assert response is None or isinstance(response, LoginResponse), response.summary()
        return response

    return send


@pytest.fixture
def negotiate(connections: Connections, portal: Portal) -> Callable[..., dict[str, str] | None]:
    """Return a function that offers keys in a login and returns the target's replies, or None if refused.

    It completes the login, so that the result includes replies in later responses.
    """

    def run(**offer: str) -> dict[str, str] | None:
        initiator = connections.open("n")
        try:
            initiator.login(target=portal.iqn, offer=offer, credentials=portal.credentials)
        except LoginRefused as refused:
            if refused.status >> 8 != 2:
                raise AssertionError(f"status {refused.status:04x} is not an initiator error") from None
            return None
        return dict(initiator.replied)

    return run
