"""Records of RPC on a proxied connection (RFC 5531 11): how a stream is cut, and what a record holds."""

from __future__ import annotations

from proxy import Splitter

from storagetest.wire.rpc.record import LAST, LIMIT, RecordReceiver, RpcRecord


def body_of(pdu: bytes) -> bytes:
    """Return the message of a whole record; b"" if it is none."""
    receiver = RecordReceiver()
    receiver.receive_data(pdu)
    record = receiver.next_event()
    return record.data if isinstance(record, RpcRecord) else b""


def splitter(_from_target: bool) -> Splitter:
    """Cut a stream into records with their headers; one that is too long ends the cutting."""
    buffer = bytearray()

    def split(data: bytes) -> list[bytes]:
        buffer.extend(data)
        records, at, start = [], 0, 0
        while len(buffer) - at >= 4:
            header = int.from_bytes(buffer[at : at + 4], "big")
            size = header & ~LAST
            if at - start + size > LIMIT:
                raise ValueError("no record")
            if len(buffer) - at < 4 + size:
                break
            at += 4 + size
            if header & LAST:
                records.append(bytes(buffer[start:at]))
                start = at
        del buffer[:start]
        return records

    return split
