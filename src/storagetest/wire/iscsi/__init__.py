"""iSCSI (RFC 7143, RFC 7144): PDUs, text negotiation, CHAP, numbering, and a test initiator.

Sans-I/O: ``codes`` (numbers), ``encoding`` and ``pdu`` (PDUs), ``connection`` (framing and digests), ``keys``
(text negotiation), ``chap`` and ``login`` (the login phase), ``validator`` (numbering, and checks of the
target's). ``initiator`` drives them over a :class:`~storagetest.wire.tcp.RecordedConnection`; ``ladder``
formats the PDUs of a transcript.
"""
