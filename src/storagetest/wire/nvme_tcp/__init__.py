"""NVMe/TCP: codec, event stream, and a host that can break any rule.

- :mod:`.pdu`: every PDU; encode, decode, override fields;
- :mod:`.stream`: bytes → events, for either side; the state table;
- :mod:`.describe`: PDUs as text, for ladders;
- :mod:`.queue`: one connection and its queue; :mod:`.session`: a controller with its queues.
"""

from storagetest.wire.nvme_tcp.describe import decoder
from storagetest.wire.nvme_tcp.pdu import PORT, PduError, decode, encode, override_field
from storagetest.wire.nvme_tcp.queue import CommandResult, ConnectionEnd, Queue
from storagetest.wire.nvme_tcp.session import ControllerSession, Identity, SubsystemEndpoint
from storagetest.wire.nvme_tcp.stream import NEED_DATA, Stream, StreamRole

__all__ = [
    "NEED_DATA",
    "PORT",
    "CommandResult",
    "ConnectionEnd",
    "ControllerSession",
    "Identity",
    "PduError",
    "Queue",
    "Stream",
    "StreamRole",
    "SubsystemEndpoint",
    "decode",
    "decoder",
    "encode",
    "override_field",
]
