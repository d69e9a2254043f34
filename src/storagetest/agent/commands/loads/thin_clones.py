"""Thin clones of an image, and the space that they take.

Three steps, each a command of its own, because a controller looks at the server between them:

``begin``: remove what an earlier run has left, and discard the free space. ``clone``: write the image, a
sparse file of ``image`` bytes of which ``image_data`` are written at equal distances; make ``clones`` clones
of it; write ``clone_data`` incompressible bytes into each, in chunks at random places; read them back.
``end``: remove all.

A clone by ``reflink`` shares the image's extents (FICLONE, ioctl_ficlone(2); CLONE of NFS 4.2, DUPLICATE
EXTENTS of SMB 3). A ``sparse`` clone is a sparse file of the image's size that holds only its own data, as a
hypervisor's delta disk does. If the target refuses a reflink, ``refused`` in the result has the reason.

``used`` in the result has the file system's used bytes before and after (statfs), ``extents`` the bytes that
SEEK_DATA finds in image and clones (those that clones share are in each of them), and ``mapped`` the bytes
that the disk below the file system has mapped before and after (:mod:`storagetest.agent.lba_status`), or in
``no_mapped`` why this is not known.

Request: ``path``, ``step``, all of the above, ``method``, ``seed``.
"""

from __future__ import annotations

import errno
import fcntl
import os
from contextlib import suppress
from typing import Any

from storagetest.agent import fsutil, lba_status
from storagetest.agent.command_context import CommandContext
from storagetest.agent.directory_worker import DirectoryWorker
from storagetest.agent.op_log import OpLog, now
from storagetest.agent.worker_pool import PhaseBarrier

_FICLONE = 0x40049409
_CHUNK = 1 << 16
_REFUSED = (errno.EOPNOTSUPP, errno.ENOTTY, errno.EINVAL, errno.EXDEV, errno.ENOSYS)


def run(request: dict[str, Any], context: CommandContext) -> dict[str, Any]:
    """Run a step; see the module."""
    root = os.path.join(os.fsencode(request["path"]), b"storagetest-clones")
    workers = context.start_workers(1, lambda index: _Cloner(request, root, index))
    if request["step"] != "clone":
        workers.call("clear")
        return context.result()
    workers.call("setup")
    before = workers.call("space")[0]
    context.phase("image", "image")
    context.phase("clone", "clone")
    refused = workers.call("why_refused")[0]
    if refused:
        return context.result(refused=refused)
    context.phase("write", "write")
    written, differs = workers.call("check")[0]
    after = workers.call("space")[0]
    return context.result(
        nominal=request["image"] * request["clones"],
        used=[before[0], after[0]],
        extents=workers.call("extents")[0],
        written=written,
        differs=differs,
        **_mapped(before[1:], after[1:]),
    )


def _mapped(before: tuple[int | None, str], after: tuple[int | None, str]) -> dict[str, Any]:
    """Return the mapped bytes before and after, or why they are unknown."""
    if before[0] is None or after[0] is None:
        return {"no_mapped": before[1] or after[1]}
    return {"mapped": [before[0], after[0]]}


class _Cloner(DirectoryWorker):
    """The worker that makes image and clones."""

    def __init__(self, request: dict[str, Any], root: bytes, index: int) -> None:
        super().__init__(request, root, index)
        self.original = root + b"/image"
        self.names = [b"%s/clone-%d" % (root, number) for number in range(request["clones"])]
        self.pool = fsutil.RandomDataPool(request["seed"])
        self.refused = ""
        self.chunks: dict[bytes, list[tuple[int, bytes]]] = {}

    def clear(self) -> None:
        """Remove image and clones; discard the free space of a file system that is the target as a whole."""
        parent = os.path.dirname(self.root)
        fsutil.remove(self.root)
        _sync_directory(parent)
        if os.path.ismount(parent):  # else it has other directories, perhaps of other people
            lba_status.trim(parent)

    def space(self) -> tuple[int, int | None, str]:
        """Return the used bytes of the file system, the mapped ones of its disk, or why these are unknown."""
        _sync_directory(self.root)
        status = os.statvfs(self.root)
        used = (status.f_blocks - status.f_bfree) * status.f_frsize
        device = lba_status.disk_of(self.root)
        if device is None:
            return used, None, "the file system is on no disk of the client"
        try:
            return used, lba_status.mapped_bytes(device), ""
        except OSError as error:
            return used, None, error.strerror or str(error)

    def image(self, barrier: PhaseBarrier) -> dict[str, OpLog]:
        """Write the image."""
        size, data = self.request["image"], self.request["image_data"]
        op_log = OpLog(sized=True)
        with fsutil.open_fd(self.original, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600) as descriptor:
            os.ftruncate(descriptor, size)
        barrier.wait()
        places = range(0, size, size // max(1, data // _CHUNK) // _CHUNK * _CHUNK)[: data // _CHUNK]
        self._write_file(self.original, list(places), op_log)
        return {"image": op_log}

    def clone(self, barrier: PhaseBarrier) -> dict[str, OpLog]:
        """Make the clones."""
        op_log = OpLog()
        barrier.wait()
        image = os.open(self.original, os.O_RDONLY)
        for name in self.names:
            began = now()
            clone = os.open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
            try:
                if self.request["method"] == "reflink":
                    fcntl.ioctl(clone, _FICLONE, image)
                else:
                    os.ftruncate(clone, self.request["image"])
            except OSError as error:
                if self.request["method"] != "reflink" or error.errno not in _REFUSED:
                    raise
                self.refused = f"{errno.errorcode.get(error.errno, error.errno)} from FICLONE"
            finally:
                os.close(clone)
            op_log.add(began)
            if self.refused:
                break
        os.close(image)
        return {"clone": op_log}

    def why_refused(self) -> str:
        return self.refused

    def write(self, barrier: PhaseBarrier) -> dict[str, OpLog]:
        """Write each clone's own data."""
        op_log = OpLog(sized=True)
        places = self.request["image"] // _CHUNK
        barrier.wait()
        for name in self.names:
            chosen = self.random.sample(range(places), self.request["clone_data"] // _CHUNK)
            self._write_file(name, [place * _CHUNK for place in sorted(chosen)], op_log)
        return {"write": op_log}

    def _write_file(self, name: bytes, offsets: list[int], op_log: OpLog) -> None:
        """Write a chunk at each of ``offsets``."""
        with fsutil.open_fd(name, os.O_RDWR) as descriptor:
            for offset in offsets:
                began, data = now(), bytes(self.pool.take(_CHUNK))
                if os.pwrite(descriptor, data, offset) != _CHUNK:
                    raise OSError(errno.EIO, "short write", name)
                op_log.add(began, _CHUNK)
                self.chunks.setdefault(name, []).append((offset, data[:4096]))
            fsutil.evict_page_cache(descriptor)

    def check(self) -> tuple[int, list[str]]:
        """Return the bytes that were written, and the places at which a clone has other data than it should.

        A clone has its own data, and at other places those of the image (reflink) or zeros (sparse).
        """
        differs = []
        shared = dict(self.chunks[self.original]) if self.request["method"] == "reflink" else {}
        for name in self.names:
            with fsutil.open_fd(name, os.O_RDONLY) as descriptor:
                for offset, data in (shared | dict(self.chunks.get(name, []))).items():
                    if os.pread(descriptor, len(data), offset) != data:
                        differs.append(f"{os.fsdecode(os.path.basename(name))} at {offset}")
        return _CHUNK * sum(len(chunks) for chunks in self.chunks.values()), differs

    def extents(self) -> int:
        """Return the bytes of all files that are in no hole."""
        return sum(_data_bytes(name) for name in (self.original, *self.names))


def _data_bytes(name: bytes) -> int:
    found, offset = 0, 0
    with fsutil.open_fd(name, os.O_RDONLY) as descriptor:
        size = os.fstat(descriptor).st_size
        while offset < size:
            try:
                start = os.lseek(descriptor, offset, os.SEEK_DATA)
            except OSError as error:
                if error.errno == errno.ENXIO:  # no data from here on
                    return found
                raise
            offset = os.lseek(descriptor, start, os.SEEK_HOLE)
            found += offset - start
    return found


def _sync_directory(path: bytes) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    with suppress(OSError):  # not every network file system syncs directories; files are synced one by one
        os.fsync(descriptor)
    os.close(descriptor)
