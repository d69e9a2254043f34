"""The watch over a target's numbering, the login dialogue, and the ladder: without a socket."""

from dataclasses import replace

import pytest

from storagetest.errors import RemoteProtocolError
from storagetest.wire.iscsi.chap import hexadecimal, response
from storagetest.wire.iscsi.connection import PduReceiver, ReceivedPdu
from storagetest.wire.iscsi.encoding import Pdu
from storagetest.wire.iscsi.keys import format_text, parse_text
from storagetest.wire.iscsi.ladder import make_decoder
from storagetest.wire.iscsi.login import Credentials, LoginNegotiation, whole_text
from storagetest.wire.iscsi.pdu import (
    DataIn,
    LoginRequest,
    LoginResponse,
    LogoutRequest,
    LogoutResponse,
    NopIn,
    NopOut,
    ReadyToTransfer,
    Reject,
    ScsiCommand,
    ScsiResponse,
    SnackRequest,
    TextRequest,
    TextResponse,
)
from storagetest.wire.iscsi.validator import (
    ConnectionPhase,
    Parameters,
    SequenceNumbers,
    SessionValidator,
    before,
    plus,
)
from storagetest.wire.ladder import ladder
from storagetest.wire.tcp import Chunk

WINDOW = {"exp_cmd_sn": 2, "max_cmd_sn": 33}


def event(pdu: Pdu) -> ReceivedPdu:
    stream = PduReceiver()
    stream.receive_data(pdu.encode())
    found = stream.next_event()
    assert isinstance(found, ReceivedPdu)
    return found


def watched(*sent: Pdu, **parameters: object) -> SessionValidator:
    watch = SessionValidator(SequenceNumbers(cmd_sn=2, exp_stat_sn=10))
    watch.parameters = Parameters(**parameters)  # type: ignore[arg-type]
    watch.full_feature()
    watch.received(event(NopIn(stat_sn=10, **WINDOW)))
    for pdu in sent:
        watch.sent(pdu)
    return watch


READ = ScsiCommand(itt=1, read=True, expected_length=1024)
WRITE = ScsiCommand(itt=2, write=True, expected_length=4096)

BREAKS: list[tuple[str, Pdu, list[Pdu], dict[str, object]]] = [
    ("stat-sn", READ, [ScsiResponse(itt=1, stat_sn=11, **WINDOW)], {}),
    ("stat-sn", WRITE, [ReadyToTransfer(itt=2, ttt=1, stat_sn=11, desired_length=512, **WINDOW)], {}),
    ("exp-cmd-sn", READ, [ScsiResponse(itt=1, stat_sn=10, exp_cmd_sn=1, max_cmd_sn=33)], {}),
    ("exp-cmd-sn", READ, [ScsiResponse(itt=1, stat_sn=10, exp_cmd_sn=3, max_cmd_sn=33)], {}),
    ("max-cmd-sn", READ, [ScsiResponse(itt=1, stat_sn=10, exp_cmd_sn=2, max_cmd_sn=0)], {}),
    ("data-sn", READ, [DataIn(itt=1, data_sn=1, data=bytes(512), **WINDOW)], {}),
    ("data-order", READ, [DataIn(itt=1, buffer_offset=512, data=bytes(512), **WINDOW)], {}),
    ("data-length", READ, [DataIn(itt=1, data=bytes(1024), **WINDOW)], {"max_recv": 512}),
    ("data-length", READ, [DataIn(itt=1, data=bytes(1028), **WINDOW)], {}),
    ("data-burst", READ, [DataIn(itt=1, final=False, data=bytes(1024), **WINDOW)], {"max_burst": 512}),
    ("data-status", READ, [DataIn(itt=1, final=False, has_status=True, stat_sn=10, **WINDOW)], {}),
    ("data-status", READ, [DataIn(itt=1, has_status=True, status=2, stat_sn=10, **WINDOW)], {}),
    (
        "r2t-sn",
        WRITE,
        [ReadyToTransfer(itt=2, ttt=1, r2t_sn=1, stat_sn=10, desired_length=512, **WINDOW)],
        {},
    ),
    (
        "r2t-length",
        WRITE,
        [ReadyToTransfer(itt=2, ttt=1, stat_sn=10, desired_length=1024, **WINDOW)],
        {"max_burst": 512},
    ),
    ("r2t-length", WRITE, [ReadyToTransfer(itt=2, ttt=1, stat_sn=10, desired_length=0, **WINDOW)], {}),
    ("r2t-length", WRITE, [ReadyToTransfer(itt=2, ttt=1, stat_sn=10, desired_length=4097, **WINDOW)], {}),
    (
        "r2t-length",
        WRITE,
        [ReadyToTransfer(itt=2, ttt=0xFFFFFFFF, stat_sn=10, desired_length=512, **WINDOW)],
        {},
    ),
    (
        "r2t-outstanding",
        WRITE,
        [
            ReadyToTransfer(
                itt=2, ttt=at, r2t_sn=at, stat_sn=10, buffer_offset=at * 512, desired_length=512, **WINDOW
            )
            for at in (0, 1)
        ],
        {},
    ),
    (
        "r2t-order",
        WRITE,
        [
            ReadyToTransfer(
                itt=2, ttt=at, r2t_sn=at, stat_sn=10, buffer_offset=at * 1024, desired_length=512, **WINDOW
            )
            for at in (0, 1)
        ],
        {},
    ),
    ("exp-data-sn", READ, [ScsiResponse(itt=1, stat_sn=10, exp_data_sn=3, **WINDOW)], {}),
    (
        "r2t-order",
        replace(WRITE, data=bytes(1024)),
        [ReadyToTransfer(itt=2, ttt=1, stat_sn=10, desired_length=512, **WINDOW)],
        {},
    ),
    ("residual", READ, [ScsiResponse(itt=1, stat_sn=10, **WINDOW)], {}),
    ("residual", READ, [DataIn(itt=1, data=bytes(512), has_status=True, stat_sn=10, **WINDOW)], {}),
    ("residual", READ, [ScsiResponse(itt=1, stat_sn=10, overflow=True, underflow=True, **WINDOW)], {}),
    (
        "residual-over",
        READ,
        [ScsiResponse(itt=1, status=2, underflow=True, residual=1025, stat_sn=10, **WINDOW)],
        {},
    ),
    ("residual-over", WRITE, [ScsiResponse(itt=2, underflow=True, residual=4097, stat_sn=10, **WINDOW)], {}),
    ("response-code", READ, [ScsiResponse(itt=1, stat_sn=10, response=2, **WINDOW)], {}),
    ("fixed-bit", READ, [ScsiResponse(itt=1, stat_sn=10, final=False, **WINDOW)], {}),
    ("itt", READ, [ScsiResponse(itt=9, stat_sn=10, **WINDOW)], {}),
    ("phase", READ, [LogoutResponse(itt=1, stat_sn=10, **WINDOW)], {}),
    (
        "data-final",
        READ,
        [
            DataIn(itt=1, final=False, data=bytes(1024), **WINDOW),
            ScsiResponse(itt=1, stat_sn=10, exp_data_sn=1, **WINDOW),
        ],
        {},
    ),
    ("ttt", NopOut(itt=3), [NopIn(itt=3, ttt=5, stat_sn=10, **WINDOW)], {}),
    ("ttt", TextRequest(itt=4), [TextResponse(itt=4, ttt=5, stat_sn=10, **WINDOW)], {}),
]


@pytest.mark.parametrize(("rule", "sent", "came", "parameters"), BREAKS)
def test_a_broken_rule_is_a_violation_with_its_name(
    rule: str, sent: Pdu, came: list[Pdu], parameters: dict[str, object]
) -> None:
    watch = watched(sent, **parameters)
    for pdu in came:
        watch.received(event(pdu))
    assert watch.violations_of(rule), watch.violations_of()
    assert "RFC 7143" in watch.violations_of(rule)[0]


PDUS, SEQUENCES = {"data_pdu_in_order": False}, {"data_sequence_in_order": False}


@pytest.mark.parametrize(
    ("agreed", "finals", "broken"),
    [
        ({}, (False, True), True),
        (PDUS, (False, True), False),
        (SEQUENCES, (False, True), True),  # the two Data-In are one sequence, whose PDUs are in order
        ({}, (True, True), True),
        (SEQUENCES, (True, True), False),
    ],
)
def test_the_last_half_of_the_data_may_come_first_if_that_was_agreed_on(
    agreed: dict[str, object], finals: tuple[bool, bool], broken: bool
) -> None:
    watch = watched(READ, **agreed)
    for number, (offset, final) in enumerate(zip((512, 0), finals, strict=True)):
        pdu = DataIn(itt=1, data_sn=number, buffer_offset=offset, final=final, data=bytes(512), **WINDOW)
        watch.received(event(pdu))
    assert bool(watch.violations_of("data-order")) == broken


@pytest.mark.parametrize(
    ("rule", "valid", "faults"),
    [
        ("ttt", True, 1),
        ("data-final", False, 1),
        ("data-length", True, 1),
        ("data-length", False, 0),
        ("data-burst", True, 0),
        ("phase", True, 0),
    ],
)
def test_a_rule_that_holds_always_is_one_fault(rule: str, valid: bool, faults: int) -> None:
    """Others are judged if the initiator sent what one may send, or in the case of their rule alone."""
    _, sent, came, parameters = next(row for row in BREAKS if row[0] == rule)
    watch = watched(sent, **parameters)
    if not valid:
        watch.sent_invalid()
    for pdu in came:
        watch.received(event(pdu))
    assert len(watch.faults()) == faults, watch.violations_of()


def test_the_number_of_a_refused_login_is_not_valid() -> None:
    watch = SessionValidator(SequenceNumbers(cmd_sn=2, exp_stat_sn=10))
    watch.received(event(LoginResponse(stat_sn=10, **WINDOW)))
    watch.received(event(LoginResponse(status=0x0206, stat_sn=99, **WINDOW)))
    assert watch.violations_of("stat-sn") == []
    watch.received(event(LoginResponse(stat_sn=99, **WINDOW)))
    assert watch.violations_of("stat-sn")


@pytest.mark.parametrize(("asked", "faults"), [([], 1), ([SnackRequest(itt=1)], 0)])
def test_what_a_snack_asked_for_again_has_its_old_number(asked: list[Pdu], faults: int) -> None:
    watch = watched(READ, *asked)
    watch.received(event(NopIn(stat_sn=10, **WINDOW)))
    watch.received(event(ScsiResponse(itt=1, stat_sn=9, underflow=True, residual=1024, **WINDOW)))
    assert len(watch.faults()) == faults


@pytest.mark.parametrize(
    ("pdu", "at", "rule", "fault"),
    [
        (
            ScsiResponse(itt=1, stat_sn=10, underflow=True, residual=1024, **WINDOW),
            8,
            "reserved",
            "a reserved bit is set in a PDU of the target (RFC 7143 11)",
        ),
        (
            Reject(reason=5, stat_sn=10, data=bytes(48), **WINDOW),
            23,
            "reserved-reject",
            "a reserved bit is set in a Reject of the target (RFC 7143 11.17)",
        ),
    ],
)
def test_reserved_bits_are_a_violation(pdu: Pdu, at: int, rule: str, fault: str) -> None:
    watch = watched(READ)
    raw = pdu.parts().override_bytes(at, b"\x01").wire()
    stream = PduReceiver()
    stream.receive_data(raw)
    found = stream.next_event()
    assert isinstance(found, ReceivedPdu)
    watch.received(found)
    assert [one.rule for one in watch.violations] == [rule]
    assert list(watch.faults()) == [fault]


def test_a_valid_session_has_no_violations_and_ends_closed() -> None:
    watch = watched(READ, WRITE)
    for pdu in (
        DataIn(itt=1, final=False, data=bytes(512), **WINDOW),
        DataIn(itt=1, data_sn=1, buffer_offset=512, data=bytes(512), has_status=True, stat_sn=10, **WINDOW),
        ReadyToTransfer(itt=2, ttt=1, stat_sn=11, desired_length=4096, **WINDOW),
        ScsiResponse(itt=2, stat_sn=11, exp_data_sn=1, **WINDOW),
    ):
        watch.received(event(pdu))
    watch.sent(NopOut(itt=3))
    watch.received(event(NopIn(itt=3, stat_sn=12, **WINDOW)))
    watch.sent(LogoutRequest(itt=4))
    watch.received(event(LogoutResponse(itt=4, stat_sn=13, **WINDOW)))
    assert watch.violations_of() == []
    assert watch.phase is ConnectionPhase.CLOSED


def test_serial_numbers_wrap() -> None:
    assert plus(0xFFFFFFFF, 2) == 1
    assert before(0xFFFFFFFF, 1)
    assert not before(1, 0xFFFFFFFF)
    assert not before(5, 5)
    numbers = SequenceNumbers(cmd_sn=0xFFFFFFFF)
    assert numbers.number(NopOut(itt=1)).cmd_sn == 0xFFFFFFFF  # type: ignore[attr-defined]
    assert numbers.cmd_sn == 0
    numbers.number(NopOut(itt=2, immediate=True))
    assert numbers.cmd_sn == 0


def answer(csg: int, nsg: int, *pairs: tuple[str, str], **more: object) -> LoginResponse:
    fields = {"transit": bool(nsg), "csg": csg, "nsg": nsg, "tsih": 1, "data": format_text(pairs), **more}
    return LoginResponse(itt=0, **fields)  # type: ignore[arg-type]


IDENTITY = {"InitiatorName": "iqn.a", "SessionType": "Normal", "TargetName": "iqn.t"}


def test_a_plain_login_is_one_exchange() -> None:
    dialogue = LoginNegotiation(IDENTITY, offer={"MaxBurstLength": "65536"})
    first = dialogue.first()
    assert (first.csg, first.nsg, first.transit) == (1, 3, True)
    assert dict(parse_text(first.data)) == {**IDENTITY, "MaxBurstLength": "65536"}
    assert dialogue.next(answer(1, 3, ("MaxBurstLength", "32768"))) is None
    assert (dialogue.status, dialogue.tsih, dialogue.negotiated["MaxBurstLength"]) == (0, 1, "32768")


def test_keys_proposed_by_the_target_get_a_reply() -> None:
    dialogue = LoginNegotiation(IDENTITY, offer={})
    dialogue.first()
    request = dialogue.next(answer(1, 0, ("MaxOutstandingR2T", "8"), ("Foo", "1"), ("TargetAlias", "x")))
    assert request is not None
    assert parse_text(request.data) == (("MaxOutstandingR2T", "1"), ("Foo", "NotUnderstood"))


def test_continued_text_gets_an_empty_request() -> None:
    dialogue = LoginNegotiation(IDENTITY, offer={})
    dialogue.first()
    request = dialogue.next(LoginResponse(itt=0, continues=True, csg=1, data=b"MaxBurst"))
    assert request is not None
    assert (request.data, request.transit) == (b"", True)
    dialogue.next(LoginResponse(itt=0, csg=1, nsg=3, transit=True, data=b"Length=512\0", tsih=1))
    assert dict(dialogue.replied) == {"MaxBurstLength": "512"}


def test_empty_requests_ask_for_the_rest_of_a_text() -> None:
    first = LoginNegotiation(IDENTITY, offer={}).first()
    rest = [
        LoginResponse(itt=0, continues=True, csg=1, data=b"Length="),
        LoginResponse(itt=0, csg=1, nsg=3, transit=True, data=b"512\0", tsih=1),
    ]
    sent: list[LoginRequest] = []

    def send(request: LoginRequest) -> LoginResponse:
        sent.append(request)
        return rest[len(sent) - 1]

    whole = whole_text(first, LoginResponse(itt=0, continues=True, csg=1, data=b"MaxBurst"), send)
    assert (whole.data, whole.tsih, whole.continues) == (b"MaxBurstLength=512\0", 1, False)
    assert sent == [replace(first, data=b"")] * 2
    endless = whole_text(first, rest[0], lambda _: rest[0])
    assert endless.continues
    refused = LoginResponse(itt=0, continues=True, status=0x0200)
    assert whole_text(first, refused, send) is refused


@pytest.mark.parametrize("honest", [True, False], ids=["right", "wrong"])
def test_mutual_chap(honest: bool) -> None:
    known = Credentials("alice", b"secret-a", "target", b"secret-t")
    dialogue = LoginNegotiation(IDENTITY, offer={}, credentials=known)
    assert dict(parse_text(dialogue.first().data))["AuthMethod"] == "CHAP"
    second = dialogue.next(answer(0, 0, ("AuthMethod", "CHAP")))
    assert second is not None
    assert parse_text(second.data) == (("CHAP_A", "5"),)
    third = dialogue.next(answer(0, 0, ("CHAP_A", "5"), ("CHAP_I", "7"), ("CHAP_C", "0x1234")))
    assert third is not None
    keys = dict(parse_text(third.data))
    assert keys["CHAP_R"] == hexadecimal(response(b"secret-a", 7, b"\x12\x34"))
    digest = response(
        b"secret-t" if honest else b"wrong", int(keys["CHAP_I"]), bytes.fromhex(keys["CHAP_C"][2:])
    )
    proof = answer(0, 1, ("CHAP_N", "target"), ("CHAP_R", hexadecimal(digest)))
    if honest:
        assert dialogue.next(proof) is not None
    else:
        with pytest.raises(RemoteProtocolError, match="does not match its secret"):
            dialogue.next(proof)
    assert "secret" not in repr(known)


@pytest.mark.parametrize(
    "bad",
    [answer(0, 0), answer(1, 1), LoginResponse(itt=0, csg=1, transit=True, nsg=2)],
    ids=["stage", "next stage", "reserved stage"],
)
def test_an_invalid_login_response_raises(bad: LoginResponse) -> None:
    dialogue = LoginNegotiation(IDENTITY, offer={})
    dialogue.first()
    with pytest.raises(RemoteProtocolError):
        dialogue.next(bad)


def test_a_refusal_is_a_status_and_endless_logins_end() -> None:
    dialogue = LoginNegotiation(IDENTITY, offer={})
    dialogue.first()
    assert dialogue.next(LoginResponse(itt=0, status=0x0201)) is None
    assert dialogue.status == 0x0201
    dialogue = LoginNegotiation(IDENTITY, offer={})
    dialogue.first()
    with pytest.raises(RemoteProtocolError, match="more than 32 exchanges"):
        for _ in range(40):
            dialogue.next(answer(1, 0))


def test_the_ladder_shows_keys_commands_and_sense_but_no_chap_response() -> None:
    sense = bytes.fromhex("0012700005000000000a00000000240000000000")
    chunks = [
        Chunk(
            1.0,
            outgoing=True,
            data=LoginNegotiation(IDENTITY, offer={"HeaderDigest": "CRC32C"}).first().encode(),
        ),
        Chunk(
            1.1, outgoing=False, data=answer(1, 3, ("HeaderDigest", "CRC32C"), ("CHAP_R", "0xabcd")).encode()
        ),
        Chunk(
            1.2,
            outgoing=True,
            data=ScsiCommand(itt=1, cdb=b"\x12" + bytes(15)).parts().wire(header_digest=True),
        ),
        Chunk(
            1.3,
            outgoing=False,
            data=ScsiResponse(itt=1, status=2, data=sense).parts().wire(header_digest=True),
        ),
        Chunk(1.4, outgoing=True, data=NopOut(itt=2).parts().wire(header_digest=True, header_digest_xor=1)),
        Chunk(
            1.5, outgoing=False, data=NopIn().parts().override_fields(opcode=0x07).wire(header_digest=True)
        ),
    ]
    text = ladder(chunks, make_decoder())
    for wanted in (
        "TargetName=iqn.t",
        "CHAP_R=…",
        "INQUIRY",
        "INVALID_FIELD_IN_CDB",
        "header digest wrong",
        "opcode 0x07",
    ):
        assert wanted in text, text
