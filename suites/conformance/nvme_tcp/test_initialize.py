"""Setting up a connection: ICReq and ICResp (NVMe/TCP 3.1, 3.6.2.2, 3.6.2.3)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from storagetest.errors import RemoteProtocolError
from storagetest.wire.nvme_tcp.harness import Harness
from storagetest.wire.nvme_tcp.pdu import (
    CH_LENGTH,
    FIELDS,
    HPDA_MAX,
    MAXH2CDATA_MIN,
    DecodedPdu,
    Fes,
    ICReq,
    ICResp,
    PduType,
    encode,
    override_field,
)
from storagetest.wire.nvme_tcp.queue import Terminated

pytestmark = [pytest.mark.needs("nvme-tcp-wire"), pytest.mark.case(level="MUST", section="NVMe/TCP 3.6.2.3")]

Observe = Callable[[str], None]


@pytest.fixture
def answer(bench: Harness) -> DecodedPdu:
    """Return the PDU that answers an ICReq."""
    queue = bench.new_queue()
    queue.send_raw(encode(queue.icreq))
    return queue.receive()


@pytest.mark.case("NVT-ICRESP-01", section="NVMe/TCP 3.1", kills=("icresp-twice",))
def test_an_icreq_is_answered_by_one_icresp(bench: Harness) -> None:
    queue = bench.queue()
    with pytest.raises(RemoteProtocolError, match="neither responded nor closed"):
        queue.receive(deadline=0.1)


@pytest.mark.case("NVT-ICRESP-02", kills=("icresp-pfv",))
def test_icresp_names_pdu_format_version_0(answer: DecodedPdu) -> None:
    assert isinstance(answer.pdu, ICResp)
    assert answer.pdu.pfv == 0, "3.6.2.3: PFV of a controller of this version of the standard is 0h"


@pytest.mark.case("NVT-ICRESP-03", level="SHOULD", kills=("icresp-maxh2cdata-small",))
def test_maxh2cdata_is_at_least_4096(answer: DecodedPdu) -> None:
    assert isinstance(answer.pdu, ICResp)
    assert answer.pdu.maxh2cdata >= MAXH2CDATA_MIN, "3.6.2.3: MAXH2CDATA should be no less than 4,096"


@pytest.mark.case("NVT-ICRESP-04", kills=("icresp-maxh2cdata-odd",))
def test_maxh2cdata_is_a_number_of_dwords(answer: DecodedPdu) -> None:
    assert isinstance(answer.pdu, ICResp)
    assert answer.pdu.maxh2cdata % 4 == 0, "3.6.2.3: MAXH2CDATA is a multiple of dwords"


@pytest.mark.case("NVT-ICRESP-05", kills=("icresp-cpda",))
def test_cpda_is_at_most_31(answer: DecodedPdu) -> None:
    assert isinstance(answer.pdu, ICResp)
    assert answer.pdu.cpda <= HPDA_MAX, "3.6.2.3: CPDA is 0 to 31"


@pytest.mark.case("NVT-ICRESP-06", kills=("icresp-reserved",))
def test_reserved_fields_of_icresp_are_zero(answer: DecodedPdu) -> None:
    assert isinstance(answer.pdu, ICResp)
    reserved = answer.raw[11] & 0xFC, answer.raw[16:]
    assert reserved == (0, bytes(112)), "Base 1.4.1.6: reserved fields are cleared to 0h"


@pytest.mark.case("NVT-ICRESP-07", kills=("icresp-flags", "icresp-pdo"))
def test_flags_and_pdo_of_icresp_are_zero(answer: DecodedPdu) -> None:
    assert answer.raw[1:4] == b"\0\x80\0", "3.6.2.3: FLAGS and PDO are reserved, HLEN is 128"


@pytest.mark.case("NVT-ICRESP-08", kills=("icresp-hlen",))
def test_icresp_has_128_bytes(answer: DecodedPdu) -> None:
    assert len(answer.raw) == 128
    assert encode(answer.pdu)[:CH_LENGTH] == answer.raw[:CH_LENGTH], "3.6.2.3: HLEN 128, PLEN 128"


@pytest.mark.case(
    "NVT-ICREQ-01",
    section="NVMe/TCP 2",
    no_mutant_reason="the proxy cuts the stream into whole PDUs, so it never sees a split PDU",
)
def test_icreq_may_arrive_in_pieces(bench: Harness) -> None:
    queue = bench.new_queue()
    raw = encode(queue.icreq)
    for at in range(0, 128, 50):
        queue.send_raw(raw[at : at + 50])
    assert isinstance(queue.receive().pdu, ICResp)


@pytest.mark.case(section="NVMe/TCP 3.6.2.2")
@pytest.mark.parametrize(
    "hpda",
    [
        pytest.param(
            value,
            marks=pytest.mark.case(
                f"NVT-ICREQ-HPDA-{value}", kills=("hpda-refused" if value else "icresp-hlen",)
            ),
        )
        for value in (0, 1, 7, 15, 31)
    ],
)
def test_each_legal_hpda_is_accepted_or_unsupported(bench: Harness, hpda: int, observe: Observe) -> None:
    accepted_or_unsupported(bench, ICReq(hpda=hpda), "HPDA", observe)


@pytest.mark.case(section="NVMe/TCP 3.6.2.2")
@pytest.mark.parametrize(
    "maxr2t",
    [
        pytest.param(
            value,
            marks=pytest.mark.case(
                f"NVT-ICREQ-MAXR2T-{name}", kills=("maxr2t-refused" if value else "icresp-hlen",)
            ),
        )
        for name, value in (("1", 0), ("16", 15), ("MAX", 0xFFFFFFFF))
    ],
)
def test_each_maxr2t_is_accepted_or_unsupported(bench: Harness, maxr2t: int, observe: Observe) -> None:
    accepted_or_unsupported(bench, ICReq(maxr2t=maxr2t), "MAXR2T", observe)


def accepted_or_unsupported(bench: Harness, icreq: ICReq, field: str, observe: Observe) -> None:
    """3.1: a controller sends a C2HTermReq (Unsupported Parameter) for a parameter it does not support."""
    try:
        assert isinstance(bench.queue(icreq).icresp, ICResp)
    except Terminated as refused:
        fields = refused.pdu.fes, refused.pdu.fei
        offset = FIELDS[PduType.ICREQ][field].offset
        assert fields == (Fes.UNSUPPORTED_PARAMETER, offset), f"3.1: FES 06h and FEI {offset}, not {fields}"
        observe(f"{field} is called an unsupported parameter")


@pytest.mark.case("NVT-ICREQ-RSVD", section="Base 1.4.1.6", level="MAY")
def test_reserved_bytes_of_icreq_may_be_looked_at(bench: Harness, observe: Observe) -> None:
    queue = bench.new_queue()
    queue.send_raw(override_field(encode(queue.icreq), "RSVD", b"\xa5" * 112))
    answer = queue.receive()
    observe("not looked at" if isinstance(answer.pdu, ICResp) else "reserved bytes that are set are refused")


@pytest.mark.case("NVT-ICREQ-SLOW", section="NVMe/TCP 3.1", level="MAY")
def test_a_connection_without_icreq_is_kept_for_a_while(bench: Harness, observe: Observe) -> None:
    link = bench.link("silent link")
    try:
        link.receive(deadline=0.2)
    except RemoteProtocolError:
        observe("kept open for 200 ms without an ICReq")
    else:
        observe(f"closed ({link.closed_how}) within 200 ms")


@pytest.mark.case("NVT-ICREQ-FIN", section="Base 3.3.2.4", level="SHOULD", kills=("half-close-ignored",))
def test_a_host_that_closes_is_let_go(bench: Harness) -> None:
    queue = bench.queue()
    queue.link.shutdown_write()
    ending = queue.wait_for_close()
    assert ending.closed, "3.3.2.4: a lost connection is detected, and the controller stops processing there"
