"""RPC version 2 (RFC 5531): record marking, messages, and a client on a recorded connection.

``types`` and ``rpcbind`` are written by ``script/xdr.py``; how a program is added is in
:mod:`storagetest.wire.xdr`.
"""

from storagetest.wire.rpc.client import RpcConnection, RpcError, next_xid
from storagetest.wire.rpc.message import AUTH_NONE, Reply, auth_sys
from storagetest.wire.rpc.record import LAST, RecordReceiver, RpcRecord, fragment, frame

__all__ = [
    "AUTH_NONE",
    "LAST",
    "RecordReceiver",
    "Reply",
    "RpcConnection",
    "RpcError",
    "RpcRecord",
    "auth_sys",
    "fragment",
    "frame",
    "next_xid",
]
