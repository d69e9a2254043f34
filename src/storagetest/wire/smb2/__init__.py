"""SMB 2 and 3 (MS-SMB2): messages, negotiation, signing, encryption, and a test client.

Sans-I/O: ``codes`` (numbers), ``layout`` and ``message`` (every command's fields, compounds), ``contexts``
(negotiate and create contexts), ``crypto`` (keys, signatures, encryption), ``stream`` (framing, and what is
signed or encrypted in it), ``information`` (MS-FSCC). ``client`` drives them over a
:class:`~storagetest.wire.tcp.RecordedConnection`; ``ladder`` formats the messages of a transcript.
"""
