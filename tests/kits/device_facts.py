"""The facts of a device that nothing uses."""

from storagetest.protocols._block_device import DeviceFacts

CLEAN = DeviceFacts(
    path="/dev/sdx",
    identity="naa.1",
    size=1 << 30,
    read_only=False,
    partition=False,
    partitions=(),
    holders=(),
    mounts=(),
    swap=False,
    same_disks=(),
    busy="",
    signatures=(),
)
