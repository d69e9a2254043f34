"""What holds of a directory after any case: its names, its files and their data agree with each other.

A case looks at what it is about. A file system that keeps something of a removed name, forgets one of two
names, or holds data in a cache only, may be right there and wrong elsewhere. So what a case that passed has
left is looked at, whatever the case is about:

- a name is listed once, and again when the directory is read again, can be looked up, and is listed as what
  it is (POSIX.1-2024 readdir(), rewinddir(); readdir(3), ``d_type``)
- a file has as many names as its link count, and is the same by each of them (POSIX.1-2024 link(),
  <sys/stat.h>)
- a file that is opened has the status that its name has (POSIX.1-2024 open(), fstat())
- the bytes that can be read are as many as the size (POSIX.1-2024 read())
- what is stated as a hole has no other bytes than zeros (POSIX.1-2024 lseek(), ``SEEK_HOLE``)
- the data are the same after fsync() and after the client's cache was dropped (POSIX.1-2024 fsync();
  posix_fadvise(2), ``POSIX_FADV_DONTNEED``)
- a symbolic link has a text, and its size is the length of it (POSIX.1-2024 readlink(), lstat())
- an extended attribute that is listed has a value (listxattr(2))

So is what a case needs of any directory: it can be made, and removed with its contents.

Times are not judged: data that are stored late may mark them. What the case's user may not look at is left
out, and so is what a case holds a lease of.
"""

from __future__ import annotations

import errno
import os
import stat
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice

from storagetest.agent.fsutil import entry_type, open_fd
from storagetest.agent.testlib.outcomes import name_of, skip

FAULTS: dict[str, str] = {}
"""Each rule that the running case's directory breaks, as a sentence without values → what was found."""

TWICE = "a directory lists a name twice (POSIX.1-2024 readdir())"
AGAIN = "a directory that is read again lists other names (POSIX.1-2024 rewinddir())"
LOST = "a name that a directory lists cannot be looked up (POSIX.1-2024 readdir(), lstat())"
KIND = "a directory lists a file as of another type (readdir(3), d_type)"
LINKS = "the link count of a file is not the number of its names (POSIX.1-2024 link(), <sys/stat.h>)"
NAMES = "a file is not the same by each of its names (POSIX.1-2024 link())"
STATUS = "a file that is opened has another status than its name (POSIX.1-2024 open(), fstat())"
SIZE = "a file has more, or fewer, bytes than its size (POSIX.1-2024 read())"
HOLE = "a file has data where it states a hole (POSIX.1-2024 lseek(): SEEK_HOLE)"
STORED = "the data of a file are others after fsync() and without the client's cache (POSIX.1-2024 fsync())"
TEXT = "the size of a symbolic link is not the length of its text (POSIX.1-2024 lstat())"
NO_TEXT = "a symbolic link has no text (POSIX.1-2024 readlink())"
VALUE = "an extended attribute is listed and has no value (listxattr(2))"
UNREADABLE = "what a case has left cannot be looked at: {} (POSIX.1-2024 open(), read())"
"""With the name of the error."""
NOT_MADE = "a directory for a case cannot be made (POSIX.1-2024 mkdir())"
NO_SPACE = "the target has no space for the directory of a case: free some, and run again"
"""No fault of the target: the first case without a directory is an error."""
NOT_REMOVED = "what a case has left cannot be removed (POSIX.1-2024 unlink(), rmdir())"

MOST = 48
"""Entries of a case's directory that are looked at (chosen)."""
LISTED = 512
"""Entries of a directory that are read at most (chosen): thousands take seconds on a slow client."""
SECONDS = 1.0
"""Seconds after which no further entry is looked at (chosen): a case has a deadline of 30 s."""
WHOLE = 256 << 10
"""Bytes of the largest file that is read as a whole (chosen); of larger ones, the end."""
HUGE = 1 << 62
"""Bytes of a file whose end is not read (chosen): near the largest offset clients refuse to read a page."""
_PRIVATE = {errno.EACCES, errno.EPERM, errno.EAGAIN, errno.EBUSY, errno.ETXTBSY}
_GONE = {
    errno.ENOTCONN, errno.EHOSTDOWN, errno.EHOSTUNREACH, errno.ETIMEDOUT, errno.ECONNABORTED,
    errno.ECONNRESET,
}  # fmt: skip
"""Errors of a target that may have died: an error of the case, after which the target is asked."""
_FULL = {errno.ENOSPC, errno.EDQUOT}
"""Errors of a target that is full."""
_HIDDEN = (".nfs", ".fuse_hidden", ".smb")
"""How the names begin that a client gives to files that were unlinked while they were open."""
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
_KINDS = {stat.S_IFREG: "file", stat.S_IFDIR: "directory", stat.S_IFLNK: "symbolic link"}


@dataclass(slots=True)
class _File:
    """One file by its names: the first one's status and data, and all names."""

    status: os.stat_result
    data: bytes | None
    names: list[str]


@dataclass(slots=True)
class _Look:
    """A look at a tree; ``whole`` as long as nothing was left out."""

    until: float
    left: int = MOST
    whole: bool = True
    files: dict[tuple[int, int], _File] = field(default_factory=dict)
    found: dict[str, str] = field(default_factory=dict)
    """Sentence → what was found."""

    def note(self, sentence: str, what: str) -> None:
        self.found.setdefault(sentence, what)


@contextmanager
def permitted(rule: str) -> Iterator[None]:
    """Add ``rule`` to :data:`FAULTS` and skip the case if a call is refused.

    A target that may have died refuses nothing, and a fault that was found before may be in the way: the
    error is raised. For one that is full the rule is :data:`NO_SPACE`.
    """
    try:
        yield
    except OSError as error:
        if FAULTS or error.errno in _GONE:
            raise
        broken = NO_SPACE if error.errno in _FULL else rule
        FAULTS[broken] = str(error)
        skip(f"{broken}: {error}")


def check(directory: str | os.PathLike[str]) -> None:
    """Add the rules that ``directory`` breaks to :data:`FAULTS`."""
    look = _Look(time.monotonic() + SECONDS)
    try:
        with open_fd(directory, _DIRECTORY) as descriptor:
            _tree(look, descriptor, "")
    except OSError as error:
        _refused(look, error, ".")
    if look.whole:
        for file in look.files.values():
            if file.status.st_nlink != len(file.names):
                look.note(LINKS, f"{_listed(file.names)}: st_nlink is {file.status.st_nlink}")
    FAULTS.update(look.found)


def _listed(names: list[str]) -> str:
    return ", ".join(repr(name) for name in names)


def _refused(look: _Look, error: OSError, name: str) -> None:
    if error.errno in _GONE:
        raise error
    look.whole = False
    if error.errno not in _PRIVATE:
        look.note(UNREADABLE.format(name_of(error.errno or 0)), repr(name))


def _tree(look: _Look, directory: int, path: str) -> None:
    """Look at the entries of ``directory``, and below it."""
    listed = _listing(directory)
    twice = [name for name, times in Counter(name for name, _ in listed).items() if times > 1]
    if twice:
        look.note(TWICE, _listed(twice))
    if len(listed) < MOST:
        others = dict(listed).keys() ^ dict(_listing(directory)).keys()
        changed = sorted(name for name in others if not name.startswith(_HIDDEN))
        if changed:
            look.note(AGAIN, f"{_listed(changed)} in {path or '.'!r}")
    for name, kind in dict(listed).items():
        if not look.left or time.monotonic() >= look.until:
            look.whole = False
            return
        look.left -= 1
        if name.startswith(_HIDDEN):
            look.whole = False
            continue
        try:
            _entry(look, directory, name, f"{path}{name}", kind)
        except OSError as error:
            _refused(look, error, f"{path}{name}")


def _listing(directory: int) -> list[tuple[str, str]]:
    with os.scandir(directory) as entries:
        return [(entry.name, entry_type(entry)) for entry in islice(entries, LISTED)]


def _entry(look: _Look, directory: int, name: str, path: str, kind: str) -> None:
    try:
        status = os.stat(name, dir_fd=directory, follow_symlinks=False)
    except FileNotFoundError:
        look.whole = False
        if name in os.listdir(directory):
            look.note(LOST, repr(path))
        return
    if kind != _KINDS.get(stat.S_IFMT(status.st_mode), "other"):
        look.note(KIND, f"{path!r}: {kind}, and its mode is {status.st_mode:#o}")
    if stat.S_ISDIR(status.st_mode):
        with open_fd(name, _DIRECTORY, dir_fd=directory) as below:
            _tree(look, below, f"{path}/")
        return
    data = None
    if stat.S_ISLNK(status.st_mode):
        data = _text(look, directory, name, path, status.st_size)
    elif stat.S_ISREG(status.st_mode):
        with open_fd(name, _READ, dir_fd=directory) as file:
            data = _file(look, file, path, status)
    known = look.files.setdefault((status.st_dev, status.st_ino), _File(status, data, []))
    known.names.append(path)
    if _described(known.status)[:-1] != _described(status)[:-1] or known.data != data:
        look.note(NAMES, _listed(known.names))


def _text(look: _Look, directory: int, name: str, path: str, size: int) -> bytes | None:
    """Look at a symbolic link; return its text, or None if it has none."""
    try:
        text = os.fsencode(os.readlink(name, dir_fd=directory))
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        look.note(NO_TEXT, repr(path))
        return None
    if len(text) != size:
        look.note(TEXT, f"{path!r}: {size}, and the text has {len(text)} bytes")
    return text


def _described(status: os.stat_result) -> tuple[int, ...]:
    return status.st_mode, status.st_uid, status.st_gid, status.st_size, status.st_nlink


def _file(look: _Look, file: int, path: str, status: os.stat_result) -> bytes | None:
    """Look at an open file; return its data, or None if they are too many."""
    opened = os.fstat(file)
    if _described(opened) != _described(status):
        look.note(STATUS, f"{path!r}: {_described(opened)}, and {_described(status)} by its name")
    _attributes(look, file, path)
    size, whole = opened.st_size, opened.st_size <= WHOLE
    if size > HUGE:
        return None
    start, asked = (0, WHOLE + 1) if whole else (size - 1, 2)
    data = _read(file, start, asked)
    if start + len(data) != size:
        look.note(SIZE, f"{path!r}: size {size}; {len(data)} bytes from {start} on")
    _synchronise(file)
    if whole and size:
        _holes(look, file, path, data)
    os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
    stored = _read(file, start, asked)
    if stored != data:
        first = next((at for at, (a, b) in enumerate(zip(data, stored, strict=False)) if a != b), None)
        differs = min(len(data), len(stored)) if first is None else first
        look.note(STORED, f"{path!r}: {len(data)} and {len(stored)} bytes, others from {start + differs} on")
    return data if whole else None


def _synchronise(file: int) -> None:
    """Flush a file; that a file system refuses it is what the cases of fsync() are about."""
    try:
        os.fsync(file)
    except OSError as error:
        if error.errno in _GONE:
            raise


def _holes(look: _Look, file: int, path: str, data: bytes) -> None:
    """Look at what lies between what the file states as data; a file system may state no hole."""
    hole = 0
    while hole < len(data):
        try:
            start = min(os.lseek(file, hole, os.SEEK_DATA), len(data))
            end = os.lseek(file, start, os.SEEK_HOLE) if start < len(data) else start
        except OSError as error:
            if error.errno in {errno.EINVAL, errno.EOPNOTSUPP}:
                return  # the client or the file system has no SEEK_DATA
            if error.errno != errno.ENXIO:
                raise
            start = end = len(data)  # a hole to the end
        if any(data[hole:start]):
            look.note(HOLE, f"{path!r}: from {hole} to {start}")
            return
        hole = max(end, start + 1)


def _read(file: int, start: int, size: int) -> bytes:
    """Read ``size`` bytes, or to the end: one read may have fewer."""
    parts = [os.pread(file, size, start)]
    while parts[-1] and sum(map(len, parts)) < size:
        read = sum(map(len, parts))
        parts.append(os.pread(file, size - read, start + read))
    return b"".join(parts)


def _attributes(look: _Look, file: int, path: str) -> None:
    """Look at the user's extended attributes; others may be kept from this user, or be made up."""
    try:
        names = [name for name in os.listxattr(file) if name.startswith("user.")]
    except OSError as error:
        if error.errno in {errno.EOPNOTSUPP, errno.ENOSYS}:
            return
        raise
    for name in names:
        try:
            os.getxattr(file, name)
        except OSError as error:
            if error.errno != errno.ENODATA:
                raise
            look.note(VALUE, f"{path!r}: {name}")
