"""The longest names and values that the RFC has, the other forms of a name, and Data-Out without data.

A target may restrict which initiators log in (RFC 7143 9.2). The names of these cases begin as those of the
others do, except for those of another form; a target that refuses the latter as not authorised is skipped.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from storagetest.errors import RemoteProtocolError
from storagetest.suites.conformance.iscsi.windows import skip_if_busy
from storagetest.wire.iscsi.codes import NO_TAG
from storagetest.wire.iscsi.errors import LoginRefused
from storagetest.wire.iscsi.initiator import Initiator
from storagetest.wire.iscsi.keys import NOT_UNDERSTOOD
from storagetest.wire.iscsi.outcomes import ScsiCompletion
from storagetest.wire.iscsi.pdu import DataOut, ScsiCommand
from storagetest.wire.scsi.cdb import WRITE_16, cdb
from storagetest.wire.scsi.codes import ScsiStatus
from storagetest.wire.tcp import PeerClosed

pytestmark = [pytest.mark.needs("iscsi-wire"), pytest.mark.case(section="RFC 7143 6.1", level="MUST")]

NAME = 223
"""Most bytes of a name (RFC 7143 4.2.7.1)."""
KEY, VALUE = 63, 255
"""Most bytes of the name of a key, and of a value (RFC 7143 6.1)."""
NOT_AUTHORISED = (0x0201, 0x0202)
"""Authentication failure, authorisation failure (RFC 7143 11.13.5)."""
BLOCKS = 4
"""Blocks of a write (chosen)."""


# Names


def long_name(connections, end: str = "z") -> str:
    """Return an initiator name of this case with as many bytes as a name has at most."""
    begin = f"{connections.name()}."
    return f"{begin}{'n' * (NAME - len(begin) - len(end))}{end}"


def log_in(connections, portal, name: str, letter: str = "a") -> Initiator:
    """Log in under ``name``."""
    made: Initiator = connections.open(letter)
    made.name = name
    made.login(target=portal.iqn, credentials=portal.credentials, isid=b"\x80long\0")
    return made


@pytest.mark.case("ISC-NAME-LONG", section="RFC 7143 4.2.7.1", kills=("name-long-refused",))
def test_an_initiator_name_of_223_bytes_is_taken(connections, portal):
    name = long_name(connections)
    try:
        session = log_in(connections, portal, name)
    except (LoginRefused, PeerClosed) as refusal:
        raise AssertionError(f"{refusal}; the name of the initiator has {len(name)} bytes") from None
    session.ping()


@pytest.mark.case(
    "ISC-NAME-WHOLE",
    section="RFC 7143 4.2.7.1, 6.3.5",
    kills=("name-cut",),
    builds_on=("ISC-NAME-LONG", "ISC-REINST-03"),
)
def test_names_that_differ_in_their_last_byte_are_those_of_two_initiators(connections, portal):
    """A login with the ISID of a session reinstates it only if the initiator is the same."""
    first = log_in(connections, portal, long_name(connections, "y"))
    second = log_in(connections, portal, long_name(connections, "z"), "b")
    after = first.probe_alive()
    assert not after.closed, (
        f"the session of an initiator ended with the login of another one, whose name differs from byte "
        f"{NAME} on: {after}"
    )
    second.ping()


@pytest.mark.parametrize("name", [
    pytest.param("eui.02004567a425678d", marks=pytest.mark.case("ISC-NAME-EUI")),
    pytest.param("naa.52004567ba64678d", marks=pytest.mark.case("ISC-NAME-NAA-16")),
    pytest.param("naa.62004567ba64678d0123456789abcdef", marks=pytest.mark.case("ISC-NAME-NAA-32")),
])  # fmt: skip
@pytest.mark.case(section="RFC 7143 4.2.7.1", level="SHOULD", kills=("name-of-iqn-alone",))
def test_a_name_of_another_form_is_taken(connections, portal, name):
    try:
        session = log_in(connections, portal, name)
    except LoginRefused as refusal:
        if refusal.status in NOT_AUTHORISED:
            pytest.skip(f"{name} may not log in: {refusal}")
        raise AssertionError(f"{refusal}; the initiator is {name}") from None
    session.ping()


# Keys and values


@pytest.mark.parametrize("alias", [
    pytest.param("a" * VALUE, marks=pytest.mark.case("ISC-ALIAS-LONG", kills=("alias-long-refused",))),
    pytest.param("Rechner f\u00fcr \u6e2c\u8a66", marks=pytest.mark.case(
        "ISC-ALIAS-UTF8", section="RFC 7143 6.1, 13.7", kills=("alias-ascii-alone",))),
])  # fmt: skip
def test_an_initiator_alias_is_any_text(negotiate, alias):
    answers = negotiate(InitiatorAlias=alias)
    assert answers is not None, f"a login with an InitiatorAlias of {len(alias.encode())} bytes is refused"


@pytest.mark.case(
    "ISC-KEY-LONGEST", kills=("key-answer-cut", "key-value-long-dropped"), builds_on=("ISC-KEY-42",)
)
def test_a_key_of_63_bytes_with_a_value_of_255_is_answered(negotiate):
    name = "X-org.storagetest.".ljust(KEY, "k")
    answers = negotiate(**{name: "v" * VALUE})
    assert answers is not None, f"a login with a private key of {KEY} bytes, and {VALUE} of value, is refused"
    assert answers.get(name) == NOT_UNDERSTOOD, f"no {NOT_UNDERSTOOD} for {name}: {answers}"


# Data-Out without data


def send_pieces(
    session: Initiator,
    command: ScsiCommand,
    data: bytes,
    pieces: Sequence[tuple[int, int]],
    ttt: int,
    lun: int,
) -> ScsiCompletion:
    """Send a Data-Out for each of ``pieces`` (start and end), the last one with F; return what came of it."""
    shown = ", ".join(str(end - start) for start, end in pieces)
    try:
        for number, (start, end) in enumerate(pieces):
            session.send(
                DataOut(
                    itt=command.itt, ttt=ttt, lun=lun, data_sn=number, final=number == len(pieces) - 1,
                    buffer_offset=start, data=data[start:end],
                )
            )  # fmt: skip
        return session.finish(command, data)
    except RemoteProtocolError as failure:
        raise AssertionError(f"a sequence of Data-Out with {shown} bytes: {failure}") from None


@pytest.mark.parametrize("at", [
    pytest.param(0, marks=pytest.mark.case("ISC-DATAOUT-EMPTY-FIRST", kills=("empty-data-out-ends",))),
    pytest.param(1, marks=pytest.mark.case("ISC-DATAOUT-EMPTY-BETWEEN", kills=("empty-data-out-ends",))),
    pytest.param(2, marks=pytest.mark.case(
        "ISC-DATAOUT-EMPTY-LAST", kills=("empty-data-out-ends", "empty-data-out-dropped"))),
])  # fmt: skip
@pytest.mark.case(section="RFC 7143 11.7.7", builds_on=("ISC-DATAOUT-09",))
def test_a_data_out_without_data_is_one_of_its_sequence(connections, scratch, at):
    """The two others have half of the data each; DataSN counts all three."""
    session = connections.prepared(scratch, BLOCKS, ImmediateData="No", InitialR2T="Yes")
    data = scratch.pattern(BLOCKS, seed=951)
    command, r2t = session.start_write(cdb(WRITE_16, lba=scratch.lba, blocks=BLOCKS), len(data))
    if r2t.desired_length != len(data) or session.parameters.max_send < len(data) // 2:
        pytest.skip(f"the target asks for {r2t.desired_length} of {len(data)} bytes at a time")
    half = len(data) // 2
    pieces = [(0, half), (half, len(data))]
    empty = 0 if at == 0 else pieces[at - 1][1]
    pieces.insert(at, (empty, empty))
    done = send_pieces(session, command, data, pieces, r2t.ttt, r2t.lun)
    assert done.status == ScsiStatus.GOOD, f"status {done.status:#04x}; one of three Data-Out has no data"
    assert scratch.read_back(session, BLOCKS) == data, "what was written is not read back"


@pytest.mark.case(
    "ISC-DATAOUT-EMPTY-UNSOLICITED",
    section="RFC 7143 11.7.7, 4.2.5.2",
    kills=("empty-data-out-ends", "empty-data-out-dropped"),
    builds_on=("ISC-UNSOL-03",),
)
def test_an_unsolicited_data_out_without_data_ends_its_sequence(connections, scratch):
    """All data are immediate, and F of the command is 0: the Data-Out that follows has F, and no data."""
    session = connections.prepared(scratch, BLOCKS, ImmediateData="Yes", InitialR2T="No")
    data, agreed = scratch.pattern(BLOCKS, seed=952), session.parameters
    if (
        agreed.initial_r2t
        or not agreed.immediate_data
        or min(agreed.first_burst, agreed.max_send) < len(data)
    ):
        pytest.skip(f"no unsolicited data after {len(data)} immediate bytes: {session.negotiated}")
    command = session.start(cdb(WRITE_16, lba=scratch.lba, blocks=BLOCKS), data=data, final=False)
    done = send_pieces(session, command, data, [(len(data), len(data))], NO_TAG, 0)
    skip_if_busy(done.status)
    assert done.status == ScsiStatus.GOOD, f"status {done.status:#04x}; the Data-Out after the data has none"
    assert scratch.read_back(session, BLOCKS) == data, "what was written is not read back"
