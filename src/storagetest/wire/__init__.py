"""What goes over the wire: one module a protocol of PDU codecs and state tables, and one module of sockets.

A codec here is sans-I/O: bytes in, events out, no socket, no thread, no clock. It is total: whatever bytes it
is fed, it gives an event or raises :class:`~storagetest.errors.RemoteProtocolError` with those bytes in its
text, never an exception of another kind. And it can be made to lie: every field can be overridden after
encoding, because a conformance case mostly sends what no initiator would.

- :mod:`~storagetest.wire.tcp`: the one module of sockets; it keeps a transcript;
- :mod:`~storagetest.wire.ladder` and :mod:`~storagetest.wire.pcap`: what a person, or Wireshark, reads of it;
- :mod:`~storagetest.wire.hexdump` and :mod:`~storagetest.wire.crc`: bytes in a message, CRC32C.
"""
