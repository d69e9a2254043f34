"""Mutants of calls that few programs use for data: splice(), sendfile(), pwritev() and pwritev2().

The rule: whichever call reads or writes, the bytes are those of the file at the offset, and no others change.
"""

from fuse_passthrough import PassThrough
from fuse_protocol import Call
from posix_rules import asked_by, mutant

PAGE = 4096


@mutant("spliced-out-at-page | splice(2) | what goes into a pipe has zeroes at each page")
class SplicedOutAtPage(PassThrough):
    def read(self, call: Call, node: int, handle: int, offset: int, size: int) -> bytes:
        data = bytearray(super().read(call, node, handle, offset, size))
        if asked_by(call, "splice"):
            for at in range(-offset % PAGE, len(data), PAGE):
                data[at : at + 4] = bytes(len(data[at : at + 4])) if offset + at else data[at : at + 4]
        return bytes(data)


@mutant("spliced-in-behind-end-early | splice(2) | what goes from a pipe behind 4 KiB is one byte early")
class SplicedInBehindEndEarly(PassThrough):
    def write(self, call: Call, node: int, handle: int, offset: int, data: bytes) -> int:
        early = offset > PAGE and asked_by(call, "splice")
        return super().write(call, node, handle, offset - early, data)


@mutant("sent-odd-offset-rounded | sendfile(2) | what is sent of the end begins a byte later")
class SentOddOffsetRounded(PassThrough):
    def read(self, call: Call, node: int, handle: int, offset: int, size: int) -> bytes:
        data = super().read(call, node, handle, offset, size)
        if asked_by(call, "sendfile") and 0 < len(data) < size:
            return data[1:] + b"\0"
        return data


@mutant("vector-at-odd-offset-early | pwritev(2) | several buffers at an odd offset are written a byte early")
class VectorAtOddOffsetEarly(PassThrough):
    def write(self, call: Call, node: int, handle: int, offset: int, data: bytes) -> int:
        early = offset % 2 and asked_by(call, "pwritev")
        return super().write(call, node, handle, offset - early, data)


@mutant("vector-loses-last | pwritev2(2) | of several buffers, the last byte is not stored")
class VectorLosesLast(PassThrough):
    def write(self, call: Call, node: int, handle: int, offset: int, data: bytes) -> int:
        if not asked_by(call, "pwritev"):
            return super().write(call, node, handle, offset, data)
        return super().write(call, node, handle, offset, data[:-1]) + 1
