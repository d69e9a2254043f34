"""Mutants of the first change of a file: of its number, its data, its attributes; and of what is refused."""

import errno
import fcntl
import mmap
import os
import stat

from fuse_passthrough import Bending, Entries, PassThrough
from fuse_protocol import Attributes, Call, Created, Opened
from posix_rules import Keeping, asked_by, mutant

PAGE = mmap.PAGESIZE
OTHER_NUMBER = 1 << 40
RENAME_WHITEOUT = 4


class Renumbered(Bending):
    """Files that were changed have another number."""

    kind = stat.S_IFREG

    def change(self, node: int) -> None:
        found = os.fstat(self.fd(node))
        if stat.S_IFMT(found.st_mode) == self.kind:
            self.__dict__.setdefault("changed", set()).add(found.st_ino)

    def number(self, ino: int) -> int:
        return ino | OTHER_NUMBER if ino in self.__dict__.get("changed", ()) else ino

    def bend(self, found: Attributes) -> None:
        found.ino = self.number(found.ino)

    def readdir(self, call: Call, node: int, handle: int, offset: int, size: int) -> Entries:
        found = super().readdir(call, node, handle, offset, size)
        return [(self.number(ino), cookie, kind, name) for ino, cookie, kind, name in found]


@mutant("inode-changes-with-first-write | <sys/stat.h> | a file has another st_ino from its first write on")
class InodeChangesWithFirstWrite(Renumbered):
    def write(self, call: Call, node: int, handle: int, offset: int, data: bytes) -> int:
        self.change(node)
        return super().write(call, node, handle, offset, data)


@mutant("inode-of-directory-changes-with-chmod | <sys/stat.h> | chmod of a directory gives another st_ino")
class InodeOfDirectoryChangesWithChmod(Renumbered):
    kind = stat.S_IFDIR

    def chmod(self, call: Call, node: int, mode: int) -> None:
        super().chmod(call, node, mode)
        self.change(node)


@mutant("first-write-behind-end-clears-page | write(3p) | a descriptor's first write, behind the end in its "
        "page, clears the data of the page")  # fmt: skip
class FirstWriteBehindEndClearsPage(Keeping):
    def open(self, call: Call, node: int, flags: int) -> Opened:
        opened = super().open(call, node, flags)
        self.__dict__.setdefault("fresh", set()).add(opened.handle)
        return opened

    def write(self, call: Call, node: int, handle: int, offset: int, data: bytes) -> int:
        end = os.fstat(handle).st_size
        done = super().write(call, node, handle, offset, data)
        is_first = handle in self.__dict__.get("fresh", ())
        self.__dict__.setdefault("fresh", set()).discard(handle)
        if is_first and offset > end and offset // PAGE == end // PAGE:
            os.pwrite(handle, bytes(end % PAGE), end - end % PAGE)
        return done


@mutant("write-behind-end-keeps-gap | write(3p) | the gap behind an end that is no whole page reads as ones")
class WriteBehindEndKeepsGap(Keeping):
    def write(self, call: Call, node: int, handle: int, offset: int, data: bytes) -> int:
        end = os.fstat(handle).st_size
        done = super().write(call, node, handle, offset, data)
        if offset > end and end % PAGE and not call.appends:
            os.pwrite(handle, b"\1" * min(offset - end, -end % PAGE), end)
        return done


class SetsAttributes(Keeping):
    """open() with O_CREAT of an existing file sets attributes as those of a new one."""

    def open(self, call: Call, node: int, flags: int) -> Opened:
        opened = super().open(call, node, flags)
        _, words = call.waits_in()
        if asked_by(call, "openat") and words[2] & os.O_CREAT:
            self.reset_ids()
            self.set_again(call, node, words[2], words[3])
        return opened

    def set_again(self, call: Call, node: int, flags: int, mode: int) -> None:
        raise NotImplementedError


@mutant("creat-sets-mode-of-existing | open(3p) O_CREAT | with O_TRUNC it sets the mode of an existing file")
class CreatSetsModeOfExisting(SetsAttributes):
    def set_again(self, call: Call, node: int, flags: int, mode: int) -> None:
        if flags & os.O_TRUNC:
            os.chmod(self.nodes[node].path, mode & 0o777)


@mutant("creat-sets-owner-of-existing | open(3p) O_CREAT | an existing file becomes the caller's")
class CreatSetsOwnerOfExisting(SetsAttributes):
    def set_again(self, call: Call, node: int, flags: int, mode: int) -> None:
        os.chown(self.nodes[node].path, call.uid, -1)


@mutant("refused-truncate-empties | truncate(3p) [EFBIG] | a size that is refused leaves an empty file")
class RefusedTruncateEmpties(Keeping):
    def truncate(self, call: Call, node: int, handle: int | None, size: int) -> None:
        try:
            super().truncate(call, node, handle, size)
        except OSError as error:
            if error.errno in (errno.EFBIG, errno.EINVAL):
                self.reset_ids()
                os.truncate(self.nodes[node].path, 0)
            raise


@mutant("refused-write-extends | write(3p) [EFBIG] | a write that is refused adds a page to the file")
class RefusedWriteExtends(Keeping):
    def write(self, call: Call, node: int, handle: int, offset: int, data: bytes) -> int:
        try:
            return super().write(call, node, handle, offset, data)
        except OSError as error:
            if error.errno == errno.EFBIG:
                os.ftruncate(handle, os.fstat(handle).st_size + PAGE)
            raise


class DirectAppends(Keeping):
    """Knows which descriptors have both O_DIRECT and O_APPEND."""

    def open(self, call: Call, node: int, flags: int) -> Opened:
        return self._note(super().open(call, node, flags), flags)

    def create(self, call: Call, parent: int, name: bytes, flags: int, mode: int, umask: int) -> Created:
        node, opened = super().create(call, parent, name, flags, mode, umask)
        return node, self._note(opened, flags)

    def _note(self, opened: Opened, flags: int) -> Opened:
        both = os.O_DIRECT | os.O_APPEND
        noted = self.__dict__.setdefault("both", set())
        (noted.add if flags & both == both else noted.discard)(opened.handle)
        return opened

    def is_direct_append(self, handle: int, data: bytes) -> bool:
        return handle in self.__dict__.get("both", ()) and len(data) > PAGE


@mutant(
    "direct-append-too-long | write(3p) O_APPEND | a direct append of more than a page adds one page more"
)
class DirectAppendTooLong(DirectAppends):
    def write(self, call: Call, node: int, handle: int, offset: int, data: bytes) -> int:
        done = super().write(call, node, handle, offset, data)
        if self.is_direct_append(handle, data):
            os.ftruncate(handle, os.fstat(handle).st_size + PAGE)
        return done


@mutant("direct-append-first-page-alone | write(3p) O_APPEND | of a direct append the first page is stored")
class DirectAppendFirstPageAlone(DirectAppends):
    def write(self, call: Call, node: int, handle: int, offset: int, data: bytes) -> int:
        if self.is_direct_append(handle, data):
            data = data[:PAGE] + bytes(len(data) - PAGE)
        return super().write(call, node, handle, offset, data)


@mutant("ftruncate-of-append-refused | ftruncate(3p) | EACCES for a descriptor with O_WRONLY and O_APPEND")
class FtruncateOfAppendRefused(PassThrough):
    def truncate(self, call: Call, node: int, handle: int | None, size: int) -> None:
        both = os.O_WRONLY | os.O_APPEND
        if handle is not None and fcntl.fcntl(handle, fcntl.F_GETFL) & (os.O_ACCMODE | os.O_APPEND) == both:
            raise OSError(errno.EACCES, "ftruncate")
        super().truncate(call, node, handle, size)


@mutant("ftruncate-of-sync-ignored | ftruncate(3p) | a descriptor with O_DSYNC or O_SYNC leaves the size")
class FtruncateOfSyncIgnored(PassThrough):
    def truncate(self, call: Call, node: int, handle: int | None, size: int) -> None:
        if handle is None or not fcntl.fcntl(handle, fcntl.F_GETFL) & os.O_DSYNC:
            super().truncate(call, node, handle, size)


class Whiteouts(PassThrough):
    """Changes renames with RENAME_WHITEOUT."""

    def rename(self, call: Call, parent: int, old: bytes, where: int, new: bytes, flags: int) -> None:
        if flags & RENAME_WHITEOUT:
            self.whiteout(call, parent, old, where, new, flags)
        else:
            super().rename(call, parent, old, where, new, flags)

    def whiteout(self, call: Call, parent: int, old: bytes, where: int, new: bytes, flags: int) -> None:
        raise NotImplementedError


@mutant("rename-whiteout-leaves-nothing | rename(2) RENAME_WHITEOUT | nothing is left at the old name")
class RenameWhiteoutLeavesNothing(Whiteouts):
    def whiteout(self, call: Call, parent: int, old: bytes, where: int, new: bytes, flags: int) -> None:
        PassThrough.rename(self, call, parent, old, where, new, flags & ~RENAME_WHITEOUT)


@mutant("rename-whiteout-keeps-the-file | rename(2) RENAME_WHITEOUT | the file has its old name too")
class RenameWhiteoutKeepsTheFile(Whiteouts):
    def whiteout(self, call: Call, parent: int, old: bytes, where: int, new: bytes, flags: int) -> None:
        PassThrough.rename(self, call, parent, old, where, new, flags & ~RENAME_WHITEOUT)
        if not stat.S_ISDIR(os.stat(new, dir_fd=self.fd(where), follow_symlinks=False).st_mode):
            os.link(new, old, src_dir_fd=self.fd(where), dst_dir_fd=self.fd(parent))
