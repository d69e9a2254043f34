"""Reserved fields of what a controller sends: each is noticed in every PDU, and none of an honest one."""

from dataclasses import replace

import pytest

from storagetest.wire.nvme import admin, fabrics, io
from storagetest.wire.nvme.codes import Admin, Property, StatusCode
from storagetest.wire.nvme.command import Command, Cqe
from storagetest.wire.nvme_tcp.pdu import (
    FIELDS,
    R2T,
    C2HData,
    C2HTermReq,
    CapsuleResp,
    ICResp,
    Pdu,
    PduType,
    decode,
    encode,
    override_field,
)
from storagetest.wire.nvme_tcp.reserved import completion_faults, pdu_faults

SENT: dict[PduType, Pdu] = {
    PduType.ICRESP: ICResp(cpda=3, header_digest=True, data_digest=True),
    PduType.C2H_TERM_REQ: C2HTermReq(1, 8, bytes(24)),
    PduType.CAPSULE_RESP: CapsuleResp(Cqe(7).encode()),
    PduType.C2H_DATA: C2HData(7, 0, bytes(512), success=True),
    PduType.R2T: R2T(7, 9, 0, 512),
}
RESERVED = [
    (kind, name) for kind in SENT for name in FIELDS[kind] if name.startswith("RSVD")
]  # a CapsuleResp has none


@pytest.mark.parametrize("kind", SENT)
def test_a_pdu_as_the_standard_has_it_has_no_fault(kind: PduType) -> None:
    for digests in (False, True):
        raw = encode(SENT[kind], header_digest=digests, data_digest=digests)
        assert list(pdu_faults(decode(raw))) == []


@pytest.mark.parametrize(("kind", "name"), RESERVED)
@pytest.mark.parametrize("at", [0, -1], ids=["first", "last"])
def test_a_reserved_byte_that_is_set_is_one_fault(kind: PduType, name: str, at: int) -> None:
    value = bytearray(FIELDS[kind][name].size)
    value[at] = 0x80
    raw = override_field(encode(SENT[kind]), name, bytes(value))
    assert len(list(pdu_faults(decode(raw)))) == 1


@pytest.mark.parametrize("kind", SENT)
def test_a_reserved_flag_is_one_fault(kind: PduType) -> None:
    raw = encode(SENT[kind])
    assert len(list(pdu_faults(decode(override_field(raw, "FLAGS", raw[1] | 0x80))))) == 1


@pytest.mark.parametrize("digests", [False, True])
def test_padding_that_is_set_is_one_fault(digests: bool) -> None:
    raw = bytearray(encode(SENT[PduType.C2H_DATA], header_digest=digests, data_digest=digests, alignment=15))
    assert list(pdu_faults(decode(bytes(raw)))) == []
    raw[raw[3] - 1] = 1
    assert len(list(pdu_faults(decode(bytes(raw))))) == 1


@pytest.mark.parametrize("kind", [kind for kind in SENT if kind is not PduType.C2H_DATA])
def test_pdo_is_reserved_in_a_pdu_without_data(kind: PduType) -> None:
    assert len(list(pdu_faults(decode(override_field(encode(SENT[kind]), "PDO", 24))))) == 1


def test_reserved_bits_of_the_digests_of_icresp_are_one_fault() -> None:
    assert len(list(pdu_faults(decode(override_field(encode(ICResp()), "DGST", 0x07))))) == 1


READ, IDENTIFY = io.read(1, 0, 1), admin.identify(1)
VS, CAP = fabrics.property_get(Property.VS), fabrics.property_get(Property.CAP)
OK = Cqe(7, sqhd=3)


@pytest.mark.parametrize(
    ("cqe", "command", "qid", "faults"),
    [
        (OK, READ, 1, 0),
        (OK, None, 1, 0),
        (replace(OK, phase=True), READ, 1, 1),
        (replace(OK, sqid=1), None, 1, 0),
        (replace(OK, crd=2), READ, 1, 1),
        (replace(OK, sqhd=31), READ, 1, 0),
        (replace(OK, sqhd=32), READ, 1, 1),
        (replace(OK, result=1), READ, 1, 1),
        (replace(OK, result=1, status=StatusCode.INVALID_FIELD), READ, 1, 0),
        (replace(OK, result=1), IDENTIFY, 0, 1),
        (replace(OK, result=1), admin.get_features(7), 0, 0),
        (replace(OK, result=1 << 32), admin.get_features(7), 0, 1),
        (replace(OK, result=0xFFFF_FF07), admin.get_features(1), 0, 0),
        (replace(OK, result=8), admin.get_features(1), 0, 1),
        (replace(OK, result=7), admin.get_features(7, select=3), 0, 0),
        (replace(OK, result=8), admin.get_features(7, select=3), 0, 1),
        (replace(OK, result=1), Command(Admin.ABORT), 0, 0),
        (replace(OK, result=2), Command(Admin.ABORT), 0, 1),
        (replace(OK, result=0xFF_FF07), Command(Admin.ASYNCHRONOUS_EVENT_REQUEST), 0, 0),
        (replace(OK, result=1 << 31), Command(Admin.ASYNCHRONOUS_EVENT_REQUEST), 0, 1),
        (replace(OK, result=1), io.copy(1, 0, 1), 1, 0),
        (replace(OK, result=1 << 63), CAP, 0, 0),
        (replace(OK, result=1 << 63), VS, 0, 1),
        (replace(OK, result=1), fabrics.connect(qid=0, sqsize=31), 0, 0),
    ],
)
def test_faults_of_a_completion(cqe: Cqe, command: Command | None, qid: int, faults: int) -> None:
    assert len(list(completion_faults(cqe, command, qid=qid, sqsize=31))) == faults


def test_sqhd_is_not_looked_at_without_flow_control() -> None:
    assert not list(completion_faults(Cqe(7, sqhd=0xFFFF), READ, qid=1, sqsize=None))
