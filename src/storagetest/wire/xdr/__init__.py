"""XDR (RFC 4506): the codecs that the generated modules of RPC programs are made of.

To add a program:

1. Put its XDR text into ``script/xdr/NAME.x`` and a line for it into ``MODULES`` of ``script/xdr.py``.
2. Run ``python script/xdr.py``, which writes the module; ``--check`` verifies that it is current.
3. Add its programs to ``PROGRAMS`` of :mod:`storagetest.wire.rpc.describe`, so that ladders show them.
4. Call it: ``RpcConnection(link).call(program.procedure("LOOKUP"), argument)`` of
   :mod:`storagetest.wire.rpc.client`.
"""

from storagetest.wire.xdr.codecs import Codec, Procedure, Program, Struct, Union, decode, encode
from storagetest.wire.xdr.packing import Encoded, Packer, Unpacker

__all__ = [
    "Codec",
    "Encoded",
    "Packer",
    "Procedure",
    "Program",
    "Struct",
    "Union",
    "Unpacker",
    "decode",
    "encode",
]
