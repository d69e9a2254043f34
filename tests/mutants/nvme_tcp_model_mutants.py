"""Broken rules of what Identify states of the subsystem, and of the queue that a command belongs to.

The rules, from the text (NVM Express Base 2.3), before any case:

- 5.2.13.2.1: CMIC bit 1 is 1 if the subsystem may have several controllers; FCATT bit 0 is the model (MUST).
- 5.2.13.2.3: bytes 2 and 3 of a descriptor are reserved. 4.2.3.1: an opcode is of its command set (MUST).
"""

from __future__ import annotations

from nvme_tcp_rules import accepts, identify, on_io, patch, put, target

from storagetest.wire.nvme.codes import Admin, Cns, StatusCode

target("identify-cmic | Base 5.2.13.2.1 | CMIC states a subsystem of one controller",
       patch(put(76, b"\0"), when=identify(Cns.CONTROLLER)))  # fmt: skip
target("identify-nmic | NVM 4.1.5.1 | NMIC states a private namespace",
       patch(put(30, b"\0"), when=identify(Cns.NAMESPACE)))  # fmt: skip
target("identify-awupf-larger | NVM 2.1.4 | AWUPF is larger than AWUN",
       patch(put(526, b"\3\0\7\0"), when=identify(Cns.CONTROLLER)))  # fmt: skip


def _units(row: str, at: int, units: bytes) -> None:
    """A mutant that has NSFEAT bit 1, and units or boundaries of the namespace."""
    target(
        row,
        patch(lambda raw: put(24, bytes([raw[24] | 2]))(put(at, units)(raw)), when=identify(Cns.NAMESPACE)),
    )


_units("identify-nawupf-larger | NVM 2.1.4 | NAWUPF is larger than NAWUN", 34, b"\3\0\7\0")
_units("identify-nabo-larger | NVM 2.1.4 | NABO is larger than NABSN", 40, b"\7\0\11\0")
target("identify-model | Base 5.2.13.2.1 | FCATT states the static controller model",
       patch(put(1802, b"\1"), when=identify(Cns.CONTROLLER)))  # fmt: skip
target("descriptor-reserved | Base 5.2.13.2.3 | a reserved byte of a namespace's descriptor is set",
       patch(put(2, b"\1"), when=identify(Cns.DESCRIPTORS)))  # fmt: skip
target("admin-on-io-queue | Base 4.2.3.1 | Identify and Get Features succeed on an I/O queue",
       accepts(StatusCode.INVALID_OPCODE, StatusCode.DATA_SGL_LENGTH_INVALID,
               when=on_io(Admin.IDENTIFY, Admin.GET_FEATURES)))  # fmt: skip
