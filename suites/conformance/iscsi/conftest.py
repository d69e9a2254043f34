"""Fixtures of the iSCSI cases: a portal, a connection, a session, two initiators, blocks to write.

Every case has its own initiator names (from its id), so that cases do not affect each other. At its end every
session is logged out and every connection closed. Nothing is written unless the logical unit has the identity
that the targets file names under ``erase``.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any, TypeVar

import pytest

from storagetest.config import Variant
from storagetest.config.implementations import Implementation
from storagetest.errors import (
    AttachError,
    DataAtRisk,
    NotOffered,
    RemoteProtocolError,
    StoragetestError,
    TargetDead,
)
from storagetest.plugin.conformance import entry
from storagetest.plugin.conformance.cases import WireLog, case_of
from storagetest.plugin.conformance.first_look import Look
from storagetest.plugin.conformance.known_issues import apply_identified
from storagetest.plugin.conformance.leftovers import stop_run
from storagetest.plugin.conformance.odd_data import UNREADABLE
from storagetest.plugin.conformance.repeated_faults import fail_on_faults
from storagetest.suites.conformance.iscsi.portal import FACTS, NAME, REDIRECTIONS, Portal, responds
from storagetest.suites.conformance.iscsi.scratch import Scratch, fail_if_offered
from storagetest.suites.conformance.iscsi.windows import unless_serial
from storagetest.wire.iscsi.codes import LoginStatus, TaskFunction
from storagetest.wire.iscsi.encoding import flat_lun
from storagetest.wire.iscsi.errors import AnnouncedClose, LoginRefused
from storagetest.wire.iscsi.initiator import Initiator
from storagetest.wire.iscsi.keys import format_text, portal_of
from storagetest.wire.iscsi.ladder import PORT, make_decoder
from storagetest.wire.iscsi.login import DEFAULT_OFFER, whole_text
from storagetest.wire.iscsi.look import data_signature, good_data, is_write_protected, read_capacity, vpd_page
from storagetest.wire.iscsi.outcomes import CommandNotOffered
from storagetest.wire.iscsi.pdu import LoginRequest, LoginResponse
from storagetest.wire.scsi.codes import Asc, PrIn, SenseKey
from storagetest.wire.scsi.data import (
    BlockLimits,
    Capacity,
    Provisioning,
    decode_block_limits,
    decode_designators,
    decode_inquiry,
    decode_provisioning,
    implementation,
    wwids,
)
from storagetest.wire.scsi.logical_unit import LogicalUnit, NoSenseData, ScsiResult
from storagetest.wire.scsi.undo import reservation_of_another, undo_reservations
from storagetest.wire.tcp import PeerClosed, RecordedConnection

BRIEF = 1.0
"""Timeout in seconds of a login on a target that completed none before, for each skipped case (chosen)."""

FIRST, BLOCKS = 64, 2048
"""The blocks that the cases overwrite: the first one, and their number (chosen)."""

NO_SENSE = "CHECK CONDITION comes without sense data (SAM-5 5.13, RFC 7143 11.4.7.2)"
"""A fault that nearly every case on refused commands would report."""

T = TypeVar("T")


class Facts:
    """Properties that the logical unit reports, each read once.

    The first case that needs a property which could not be read fails; the others are skipped because of it.
    ``reserved`` states how another initiator has reserved the unit, and is empty if none has.
    """

    def __init__(self, portal: Portal) -> None:
        self._portal = portal
        login = self._look("the login", lambda unit: _reserved(portal, unit))
        self.reserved = login.result or ""
        self._implementation = self._look("standard INQUIRY data", _implementation, after=login)
        self._capacity = self._look("READ CAPACITY(16)", read_capacity, after=login)
        self._pages = self._look(
            "the VPD pages", lambda unit: frozenset(vpd_page(unit, 0x00).body), after=login
        )
        self._protected = self._look("WP of MODE SENSE", is_write_protected, after=login)
        self._limits = self._look("the Block Limits page", self._read_limits, after=self._pages)
        self._provisioning = self._look("page B2h", self._read_provisioning, after=self._pages)
        self._scratch = self._look(
            "the look for blocks to overwrite", self._find_scratch, after=self._capacity
        )

    def _look(
        self, subject: str, read: Callable[[LogicalUnit], T], *, after: Look[Any] | None = None
    ) -> Look[T]:
        """Return a look in a session of its own: a bad response to one ends no other."""
        return Look(subject, lambda: _in_a_session(self._portal, read), after=after)

    @property
    def implementation(self) -> Implementation:
        """The implementation, empty if it is unknown or could not be read."""
        return Implementation(self._implementation.result or "")

    @property
    def capacity(self) -> Capacity:
        """The capacity."""
        return self._capacity.get()

    @property
    def pages(self) -> frozenset[int]:
        """The codes of the VPD pages."""
        return self._pages.get()

    @property
    def limits(self) -> BlockLimits | None:
        """The Block Limits page, or None if the unit has none."""
        return self._limits.get()

    @property
    def provisioning(self) -> Provisioning | None:
        """The Logical Block Provisioning page, or None if the unit has none."""
        return self._provisioning.get()

    @property
    def largest(self) -> int:
        """Blocks of the largest transfer of one command that a case may use: page B0h (SBC-3), and BLOCKS."""
        limits = self.limits
        return min(BLOCKS, limits.max_transfer) if limits and limits.max_transfer else BLOCKS

    @property
    def erasable(self) -> Scratch:
        """Blocks that may be overwritten, as far as the user is concerned; skip if there are none."""
        return self._scratch.get()

    @property
    def scratch(self) -> Scratch:
        """Blocks that may be overwritten; skip if there are none, or if the unit is write-protected."""
        found = self.erasable
        if self._protected.result:
            pytest.skip(
                "WP of MODE SENSE is 1: the unit is write-protected (SCS-AGREE-WP tests whether it is)"
            )
        return found

    def _read_limits(self, unit: LogicalUnit) -> BlockLimits | None:
        return decode_block_limits(vpd_page(unit, 0xB0)) if 0xB0 in self.pages else None

    def _read_provisioning(self, unit: LogicalUnit) -> Provisioning | None:
        return decode_provisioning(vpd_page(unit, 0xB2)) if 0xB2 in self.pages else None

    def _find_scratch(self, unit: LogicalUnit) -> Scratch:
        """Return blocks of the unit that ``erase`` names; skip if the user allows no write.

        Raises RemoteProtocolError if the target does not prove that this is the unit that ``erase`` names,
        and that it has no signature.
        """
        portal, capacity = self._portal, self.capacity
        name = f"{portal.iqn} LUN {portal.lun}"
        names = _names(unit)
        if portal.erase is None:
            pytest.skip(
                f"{name}: no `erase` in the targets file, so nothing is written (its names: "
                f"{', '.join(names) or 'none'}). If its data may be lost, add one of them: `erase: NAME`"
            )
        if portal.erase not in names:
            pytest.skip(
                f"{name} is {', '.join(names)} and not {portal.erase}, which may be "
                "erased: nothing is written"
            )
        assert isinstance(unit.runner, Initiator)
        found = data_signature(unit.runner, capacity, self._limits.result)
        if found:
            pytest.skip(f"{name} carries {found}; nothing is written there")
        if _names(unit) != names:
            raise RemoteProtocolError(
                f"{name} had the names {', '.join(names)}, and then others; its designators identify "
                "it (SPC-4, Device Identification VPD page)"
            )
        if capacity.blocks < FIRST + BLOCKS:
            pytest.skip(f"{name} has {capacity.blocks} blocks; the cases need {FIRST + BLOCKS}")
        return Scratch(FIRST, BLOCKS, capacity.block_size, self.largest)


def _in_a_session(portal: Portal, read: Callable[[LogicalUnit], T]) -> T:
    """Log in as the first look does, and return what ``read`` returns in that session."""
    with RecordedConnection.connect(portal.address, portal.port, deadline=portal.deadline) as link:
        initiator = Initiator(link, name=FACTS, lun=portal.lun, deadline=portal.deadline)
        with initiator:
            initiator.login(target=portal.iqn, credentials=portal.credentials)
            unit = LogicalUnit(initiator)
            unit.clear_attentions()
            return read(unit)


def _log_in(portal: Portal, deadline: float) -> None:
    """Log in, use the session, and log out."""
    _in_a_session(replace(portal, deadline=deadline), lambda unit: _use(portal, unit))


def _use(portal: Portal, unit: LogicalUnit) -> ScsiResult:
    """Complete a command in the session. Raises AttachError if the target has no such logical unit."""
    answer = unit.test_unit_ready()
    if answer.check(SenseKey.ILLEGAL_REQUEST, Asc.LOGICAL_UNIT_NOT_SUPPORTED):
        raise AttachError(
            f"{portal.iqn} has no LUN {portal.lun}: {answer}. Correct `lun` in the targets file"
        )
    return answer


def _reserved(portal: Portal, unit: LogicalUnit) -> str:
    """Complete a command, and return how another initiator has reserved the unit."""
    ready = _use(portal, unit)
    return str(ready) if ready.conflict else reservation_of_another(unit)


def _implementation(unit: LogicalUnit) -> str:
    return implementation(decode_inquiry(good_data(unit.inquiry())))


def _names(unit: LogicalUnit) -> tuple[str, ...]:
    return wwids(decode_designators(vpd_page(unit, 0x83)))


def _moved(portal: Portal, config: pytest.Config) -> Portal:
    """Return the portal to which the target redirects a login (RFC 7143 11.13.5), or ``portal``.

    End the run if the target does not serve the initiator name (0202h): each case logs in with names of its
    own. What else goes wrong is a matter of the cases.
    """
    refused: LoginRefused | None = None
    with suppress(StoragetestError, *UNREADABLE):
        for _ in range(REDIRECTIONS):
            try:
                _in_a_session(portal, LogicalUnit.test_unit_ready)
            except LoginRefused as refusal:
                if refusal.moved_to:
                    host, port = portal_of(refusal.moved_to)
                    portal = replace(portal, address=host, port=port)
                    continue
                if refusal.status == LoginStatus.AUTHORIZATION_FAILED:
                    refused = refusal
            break
    if refused is not None:
        stop_run(
            config,
            f"{portal.iqn} does not serve the initiator {FACTS} ({refused}): the cases log in with names "
            f"that begin with {NAME}, several each. Let the target serve every initiator name, and run again",
        )
    return portal


@pytest.fixture(scope="session")
def portal(variant: Variant, pytestconfig: pytest.Config) -> Portal:
    """Return the target's portal, as this machine connects to it, after redirections."""
    return _moved(Portal.of(variant.options), pytestconfig)


class Connections:
    """Creates the initiators of a case, and closes them."""

    def __init__(self, portal: Portal, log: WireLog, case: str) -> None:
        self.portal = portal
        self._log = log
        self._case = case
        self._initiators: list[Initiator] = []

    def name(self, letter: str = "a") -> str:
        """Return an initiator name for this case."""
        return f"{NAME}{self._case}-{letter}"

    def open(self, letter: str = "a", *, lun: int | None = None) -> Initiator:
        """Connect without a login."""
        link = RecordedConnection.connect(
            self.portal.address, self.portal.port, deadline=self.portal.deadline
        )
        self._log.add(link, name=letter, decoder=make_decoder, port=PORT)
        lun = self.portal.lun if lun is None else lun
        initiator = Initiator(link, name=self.name(letter), lun=lun, deadline=self.portal.deadline)
        self._initiators.append(initiator)
        return initiator

    def prepared(self, scratch: Scratch, blocks: int = 16, **offer: str) -> Initiator:
        """Log in with ``offer``, and write a first pattern (seed 0) to ``scratch``."""
        session = self.login(offer=offer)
        answer = LogicalUnit(session, block_size=scratch.block_size).write(
            scratch.lba, scratch.pattern(blocks)
        )
        assert answer.good, answer
        return session

    def login(
        self, letter: str = "a", *, offer: Mapping[str, str] | None = None, clear: bool = True, **more: Any
    ) -> Initiator:
        """Connect and log in; with ``clear``, clear the pending unit attentions.

        With the ``tsih`` of a session of this case, the login has that session's next CmdSN
        (RFC 7143 11.12.9). Skip if the target serves the sessions that are open and no further one (0302h).
        """
        try:
            return self._log_in(letter, offer=offer, clear=clear, **more)
        except LoginRefused as refusal:
            served = sum(one.logged_in and one.link.closed_how is None for one in self._initiators)
            if refusal.status != LoginStatus.OUT_OF_RESOURCES or not served:
                raise
            pytest.skip(f"the target serves {served} sessions at once, and no further one: {refusal}")

    def _log_in(
        self, letter: str, *, offer: Mapping[str, str] | None = None, clear: bool = True, **more: Any
    ) -> Initiator:
        """Connect and log in as :meth:`login` does. Raises LoginRefused."""
        made = self.open(letter)
        for session in self._initiators:
            if session.tsih and session.tsih == more.get("tsih"):
                made.numbers.cmd_sn = session.numbers.cmd_sn
        more.setdefault("target", self.portal.iqn)
        more.setdefault("credentials", self.portal.credentials)
        made.login(offer=offer, **more)
        if clear and more["target"]:
            with unless_serial(made, self._initiators):
                LogicalUnit(made).clear_attentions()
        return made

    def refused(self, letter: str = "r", **more: Any) -> RemoteProtocolError:
        """Assert that a login is refused, or ends in a close; return the error."""
        try:
            self._log_in(letter, clear=False, **more)
        except (LoginRefused, PeerClosed) as refusal:
            return refusal
        raise AssertionError("the login was accepted")

    def discovery(
        self, letter: str = "d", *, offer: Mapping[str, str] | None = None, isid: bytes | None = None
    ) -> Initiator:
        """Connect and log in to a discovery session: without authentication, or with it if that is refused.

        A target may authenticate its discovery sessions otherwise than its others (RFC 7143 12.1).
        """
        try:
            return self.login(letter, target=None, credentials=None, offer=offer, isid=isid)
        except LoginRefused:
            if self.portal.credentials is None:
                raise
            return self.login(letter, target=None, offer=offer, isid=isid)

    def nexuses(self, block_size: int) -> list[LogicalUnit]:
        """Return the logical unit through each I_T nexus of this case: its name and ISID (RFC 7143 4.4.3.1).

        A nexus whose session has ended, or does not respond, is logged in again. A session for another
        logical unit is none of these: what others have reserved there stays.
        """
        found: dict[tuple[str, bytes], LogicalUnit] = {}
        for initiator in list(self._initiators):
            nexus = (initiator.name, initiator.isid)
            if not initiator.tsih or nexus in found:
                continue  # it was never logged in
            if initiator.lun != flat_lun(self.portal.lun):
                continue
            with suppress(RemoteProtocolError):  # nothing can be undone from here
                if not responds(initiator):
                    initiator = self._log_in(initiator.name.rpartition("-")[2], isid=initiator.isid)  # noqa: PLW2901
                found[nexus] = LogicalUnit(initiator, block_size=block_size)
        return list(found.values())

    @property
    def faults(self) -> Mapping[str, str]:
        """A sentence for each rule that the target broke in this case, and what came."""
        return {rule: came for one in self._initiators for rule, came in one.validator.faults().items()}

    def completes_login(self) -> bool:
        """Whether the target completes a login and a command."""
        try:
            _log_in(self.portal, self.portal.deadline)
        except (RemoteProtocolError, TargetDead):
            return False
        return True

    def reset_unit(self) -> None:
        """Reset the logical unit: LOGICAL UNIT RESET (RFC 7143 11.5.1)."""
        self._log_in("reset").task(TaskFunction.LOGICAL_UNIT_RESET)

    def close(self) -> None:
        """Log out and close all initiators, the last one first."""
        for initiator in reversed(self._initiators):
            initiator.close()


@pytest.fixture
def connections(portal: Portal, wire_log: WireLog, request: pytest.FixtureRequest) -> Iterator[Connections]:
    """Yield the factory of this case's connections; skip if no login has succeeded since another case."""
    entry.skip_if_closed(request.node, lambda: _log_in(portal, min(portal.deadline, BRIEF)))
    case = case_of(request.node)
    made = Connections(portal, wire_log, (case.id if case else request.node.name).lower())
    try:
        yield made
    finally:
        made.close()


@pytest.fixture(autouse=True)
def known_issue(request: pytest.FixtureRequest) -> None:
    """Apply the known issues of the target's implementation to this case."""
    if "portal" in request.fixturenames and case_of(request.node) is not None:
        facts: Facts = request.getfixturevalue("facts")
        apply_identified(request.node, facts.implementation)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Function,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """After a failure, find out whether the target still completes a login."""
    report = yield
    portal = item.funcargs.get("portal")
    if isinstance(portal, Portal):
        entry.note_failure(item, report, "the login", lambda: _log_in(portal, portal.deadline))
    return report


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, object, object]:
    """Skip a case whose connection the target closed as it had announced (RFC 7143 11.9.1).

    So is one that needs a type of persistent reservation, or more registrants, than the unit has (SPC-4).
    A case whose own claims hold fails if a PDU that it received broke a rule that holds always. Sense data
    that are missing are the failure of the first case that needs them; the later ones are not judged.
    """
    try:
        result = yield
    except AnnouncedClose as announced:
        pytest.skip(f"the target ended the connection, as it may: {announced}")
    except NotOffered as lacking:
        if isinstance(lacking, CommandNotOffered):
            fail_if_offered(pyfuncitem.funcargs["connections"].login(), lacking)
        pytest.skip(str(lacking))
    except NoSenseData as fault:
        fail_on_faults(pyfuncitem, (NO_SENSE,))
        pytest.skip(f"not judged: {fault}, which an earlier case reports")
    made = pyfuncitem.funcargs.get("connections")
    if isinstance(made, Connections):
        fail_on_faults(pyfuncitem, made.faults)
    return result


@pytest.fixture
def connection(connections: Connections) -> Initiator:
    """Return a connection on which nothing was sent."""
    return connections.open()


@pytest.fixture
def session(connections: Connections) -> Initiator:
    """Return a normal session, logged in with the default offer."""
    return connections.login()


@pytest.fixture
def discovery(connections: Connections) -> Initiator:
    """Return a discovery session."""
    return connections.discovery()


@pytest.fixture
def unit(session: Initiator, facts: Facts) -> LogicalUnit:
    """Return the logical unit, through ``session``."""
    return LogicalUnit(session, block_size=facts.capacity.block_size, largest=facts.largest)


@pytest.fixture
def two(connections: Connections, facts: Facts) -> tuple[LogicalUnit, LogicalUnit]:
    """Return the logical unit through two initiators of different names: two I_T nexuses."""
    first, second = (
        LogicalUnit(connections.login(name), block_size=facts.capacity.block_size, largest=facts.largest)
        for name in "ab"
    )
    return first, second


@pytest.fixture(scope="session")
def facts(portal: Portal, pytestconfig: pytest.Config) -> Facts:
    """Read the properties of the logical unit, once; end the run if another initiator has reserved it."""
    read = Facts(portal)
    if read.reserved:
        stop_run(
            pytestconfig,
            f"{portal.iqn} LUN {portal.lun} is reserved ({read.reserved}) by another initiator, or by a run "
            "that was killed: release the reservation, or restart the target if none needs it, and run again",
            DataAtRisk,
        )
    return read


@pytest.fixture
def scratch(facts: Facts) -> Scratch:
    """Return blocks that may be overwritten; skip if the targets file does not allow it."""
    return facts.scratch


@pytest.fixture
def erasable(facts: Facts) -> Scratch:
    """Return the blocks of ``scratch`` also of a unit that is write-protected."""
    return facts.erasable


@pytest.fixture
def not_reserved(
    two: tuple[LogicalUnit, LogicalUnit],
    connections: Connections,
    facts: Facts,
    scratch: Scratch,  # noqa: ARG001  # a reservation is a write
    request: pytest.FixtureRequest,
) -> Iterator[tuple[LogicalUnit, LogicalUnit]]:
    """Yield ``two`` on a unit without registrations or reservations, and leave it so, or end the run.

    Every registrant may CLEAR, and a reset ends a RESERVE(6). So what is left before the case although all
    of these were sent is a violation by the target, and the case fails.
    """

    def undo(when: str, error: type[StoragetestError]) -> None:
        left = undo_reservations(connections.nexuses(facts.capacity.block_size), reset=connections.reset_unit)
        if left:
            portal = connections.portal
            stop_run(
                request.config,
                f"{portal.iqn} LUN {portal.lun}: its reservations cannot be undone {when} "
                f"{request.node.name} ({left}): clear them on the target, or restart it, and run again",
                error,
            )

    undo("before", RemoteProtocolError)
    try:
        yield two
    finally:
        undo("after", AttachError)


@pytest.fixture
def unreserved(not_reserved: tuple[LogicalUnit, LogicalUnit]) -> tuple[LogicalUnit, LogicalUnit]:
    """Return ``not_reserved``; skip if persistent reservations, which are optional (SPC-4), are absent."""
    keys = not_reserved[0].reserve_in(PrIn.READ_KEYS)
    if keys.unsupported:
        pytest.skip(f"persistent reservations are not supported: {keys}")
    return not_reserved


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
        return response and whole_text(request, response, connection.send_piece)

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
