"""iSCSI (RFC 7143, RFC 7144): PDUs, text negotiation, CHAP, numbering, and an initiator that can lie.

Sans-I/O: ``codes`` (numbers), ``parts`` and ``pdu`` (PDUs), ``connection`` (framing and digests), ``keys``
(text negotiation), ``chap`` and ``login`` (the login phase), ``session`` (numbering, and the watch over the
target's). ``initiator`` drives them over a :class:`~storagetest.wire.tcp.Link`; ``ladder`` shows what was
said.
"""
