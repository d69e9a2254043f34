"""Broken rules of SGLs and capsules (NVMe/TCP 3.3.1, 3.3.2, 3.6.2.7; NVM Express Base 2.3, section 4)."""

from collections.abc import Iterable
from dataclasses import replace

from nvme_tcp_proxy_connection import Item, ProxyConnection
from nvme_tcp_rules import accepts, fabrics, field, hang_up, host, on_io, response, target

from storagetest.wire.nvme.codes import Fctype, StatusCode
from storagetest.wire.nvme.command import Command, Cqe
from storagetest.wire.nvme_tcp.pdu import CapsuleCmd, CapsuleResp, DecodedPdu, override_field

target("sgl-not-checked | NVMe/TCP 3.3.2 | any SGL type is accepted", accepts(StatusCode.SGL_TYPE_INVALID))
target(
    "sgl-length-ignored | Base 4.3.2 | lengths and offsets of SGLs are not checked",
    accepts(StatusCode.DATA_SGL_LENGTH_INVALID, StatusCode.SGL_OFFSET_INVALID, when=on_io()),
)
target(
    "sgl-length-ignored-connect | Base 4.3.2 | Connect with too little data is accepted",
    accepts(StatusCode.DATA_SGL_LENGTH_INVALID, when=fabrics(Fctype.CONNECT)),
)
target(
    "psdt-ignored | Base 4.1.1 | PSDT is not checked",
    accepts(StatusCode.INVALID_FIELD, when=lambda t, c: c.flags >> 6 != 1),
)
host(
    "admin-capsule-small | NVMe/TCP 3.3.1 | 8,192 bytes in an admin capsule are refused",
    lambda t, got: hang_up() if isinstance(got.pdu, CapsuleCmd) and len(got.pdu.data) > 4096 else None,
)


def over_the_limit(through: ProxyConnection, got: DecodedPdu) -> Iterable[Item] | None:
    if isinstance(got.pdu, CapsuleCmd) and through.qid and len(got.pdu.data) > 4096:
        through.reply(Cqe(Command.decode(got.pdu.sqe).cid, sqhd=1))
        return []
    return None


host("capsule-over-taken | NVMe/TCP 3.3.1 | in-capsule data over the limit is accepted", over_the_limit)
target(
    "answer-lost | NVMe/TCP 3.6.2.7 | one response of many is lost",
    lambda t, got: [] if isinstance(got.pdu, CapsuleResp) and Cqe.decode(got.pdu.cqe).cid == 110 else None,
)
target(
    "resp-flags | NVMe/TCP 3.6.2.7 | FLAGS of CapsuleResp is 10h",
    lambda t, got: (
        [override_field(got.raw, "FLAGS", got.raw[1] | 0x10)] if isinstance(got.pdu, CapsuleResp) else None
    ),
)
target("resp-pdo | NVMe/TCP 3.6.2.7 | PDO of CapsuleResp is 24", field(CapsuleResp, "PDO", 24))
target("resp-phase | Base 4.2.2 | the phase tag is set", response(lambda t, c, cqe: replace(cqe, phase=True)))
target("resp-sqid | Base 4.2.2 | SQID is set", response(lambda t, c, cqe: replace(cqe, sqid=5)))
target("sqhd-stuck | Base 4.2.1 | SQHD does not advance", response(lambda t, c, cqe: replace(cqe, sqhd=3)))
target(
    "resp-wrong-cid | NVMe/TCP 3.6.2.7 | CID of the response is wrong",
    response(lambda t, c, cqe: replace(cqe, cid=cqe.cid ^ 0x40)),
)
target(
    "resp-twice | NVMe/TCP 3.6.2.7 | every response is sent twice",
    lambda t, got: [got.raw, got.raw] if isinstance(got.pdu, CapsuleResp) else None,
)
