"""Wire protocols: PDU codecs and state tables for each protocol, and one module of sockets.

A codec here is sans-I/O: bytes in, events out, no socket, no thread, no clock. It is total: any bytes give an
event or raise :class:`~storagetest.errors.RemoteProtocolError` with those bytes in its text. It raises no
exception of another kind. Every field can be overridden after encoding, because most conformance cases send
PDUs that no initiator sends.

- :mod:`~storagetest.wire.tcp`: the one module of sockets; it records a transcript;
- :mod:`~storagetest.wire.ladder` and :mod:`~storagetest.wire.pcap`: a transcript as text, or for Wireshark;
- :mod:`~storagetest.wire.hexdump` and :mod:`~storagetest.wire.crc`: bytes in a message, CRC32C.
"""
