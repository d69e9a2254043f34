"""NVMe/TCP: codec, event stream, and a host that plays by the rules or breaks one.

- :mod:`.pdu`: every PDU; encode, decode, mangle;
- :mod:`.stream`: bytes → events, for either side; the state table;
- :mod:`.words`: PDUs in words, for ladders;
- :mod:`.queue`: one connection and its queue; :mod:`.session`: a controller with its queues.
"""

from storagetest.wire.nvme_tcp.describe import decoder
from storagetest.wire.nvme_tcp.pdu import PORT, PduError, decode, encode, override_field
from storagetest.wire.nvme_tcp.queue import Completion, ConnectionEnd, Queue
from storagetest.wire.nvme_tcp.session import Endpoint, Identity, Session
from storagetest.wire.nvme_tcp.stream import NEED_DATA, Role, Stream

__all__ = [
    "NEED_DATA",
    "PORT",
    "Completion",
    "ConnectionEnd",
    "Endpoint",
    "Identity",
    "PduError",
    "Queue",
    "Role",
    "Session",
    "Stream",
    "decode",
    "decoder",
    "encode",
    "override_field",
]
