"""A seeded random sequence of two clients on names of one tree, compared with a model.

Each new name was never used before, so no client can have cached that it is free; the other client looks at
it at once. A name that is gone, or has another file now, may be cached for a while (nfs(5), acdirmax): such
a name is looked at in the end, by both clients, until the cache has expired.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from os import O_APPEND, O_RDONLY

from storagetest.suites.conformance.shared.two_client_sequence import History

WRITES = (1, 300, 4097, 70_000)
"""Lengths of new data (chosen): around a page and 64 KiB."""


@dataclass
class File:
    """A file with its names, or another object with one name; ``kind`` as in SyscallSession.list_entries."""

    kind: str
    data: bytes = b""
    names: set[str] = field(default_factory=set)


class NamesOfTwo:
    """Names below the sessions' directory, which is empty at first."""

    def __init__(
        self, sessions: Sequence, seed: int, eventually: Callable, *, links: bool, symlinks: bool
    ) -> None:
        self.eventually = eventually
        self.sessions, self.links, self.symlinks = sessions, links, symlinks
        self.random = random.Random(seed)  # noqa: S311  # a sequence, no secret
        self.history = History()
        self.names: dict[str, File] = {}
        self.unsettled: set[str] = set()
        """Names that had another file before: clients may have cached it."""
        self.gone: set[str] = set()
        self.count = 0

    def run(self, count: int) -> None:
        """Make ``count`` steps, each of one client, and let the other look."""
        steps: list[Callable] = [
            *[self.create] * 4, *[self.rename] * 4, *[self.append] * 2, self.mkdir, self.symlink, self.link,
            self.unlink, self.unlink, self.replace, self.rmdir, self.move_directory,
        ]  # fmt: skip
        for number in range(count):
            if number % len(steps) == 0:
                self.random.shuffle(steps)
            client = self.random.randrange(2)
            for name in steps[number % len(steps)](self.sessions[client]) or ():
                self.look(self.sessions[1 - client], name)

    # Steps: each returns the names that the other client looks at.

    def create(self, session) -> list[str]:
        """Make a file."""
        name, data = self._new_name(), self.random.randbytes(self.random.choice(WRITES))
        self._note(session, f"creation of {name} with {len(data)} bytes")
        session.write_file(name, data)
        self.names[name] = File("file", data, {name})
        return [name]

    def mkdir(self, session) -> list[str]:
        """Make a directory and a file in it."""
        name = self._new_name()
        self._note(session, f"mkdir() of {name}")
        session.mkdir(name)
        self.names[name] = File("directory", b"", {name})
        return [name, *self.create(session)]

    def symlink(self, session) -> list[str]:
        """Make a symbolic link."""
        if not self.symlinks:
            return []
        name, text = self._new_name(), "x" * self.random.choice((1, 59, 60, 61, 200))
        self._note(session, f"symlink() of {name} with {len(text)} bytes")
        session.symlink(text, name)
        self.names[name] = File("symbolic link", text.encode(), {name})
        return [name]

    def link(self, session) -> list[str]:
        """Give a file another name."""
        old = self._pick("file")
        if not self.links or old is None:
            return []
        new = self._new_name()
        self._note(session, f"link() of {old} to {new}")
        session.link(old, new)
        self.names[old].names.add(new)
        self.names[new] = self.names[old]
        return [new]

    def rename(self, session) -> list[str]:
        """Give a file or a symbolic link a new name, in any directory."""
        old = self._pick("file", "symbolic link")
        if old is None:
            return []
        new = self._new_name()
        self._note(session, f"rename() of {old} to {new}")
        session.rename(old, new)
        self._moved(old, new)
        return [new]

    def replace(self, session) -> None:
        """Rename a file to a name that another file has."""
        old, new = self._pick("file"), self._pick("file")
        if old is None or new is None or self.names[old] is self.names[new]:
            return
        self._note(session, f"rename() of {old} to {new}, which exists")
        session.rename(old, new)
        self.names[new].names.discard(new)
        self._moved(old, new)
        self.gone.discard(new)
        self.unsettled.add(new)
        self.look(session, new)

    def append(self, session) -> list[str]:
        """Append to a file."""
        name = self._pick("file")
        if name is None:
            return []
        data = self.random.randbytes(self.random.choice(WRITES[:3]))
        self._note(session, f"O_APPEND of {len(data)} bytes to {name}")
        session.write_file(name, data, O_APPEND)
        self.names[name].data += data
        return [name]

    def unlink(self, session) -> list[str]:
        """Remove a name; the file may have others."""
        name = self._pick("file", "symbolic link")
        if name is None:
            return []
        self._note(session, f"unlink() of {name}")
        session.unlink(name)
        file = self.names.pop(name)
        file.names.discard(name)
        self.gone.add(name)
        self.eventually(lambda: not session.exists(name), f"{name} is gone, after {self.history}")
        return sorted(file.names - self.unsettled)

    def rmdir(self, session) -> None:
        """Remove an empty directory, or be refused where it is not empty."""
        name = self._pick("directory")
        if name is None:
            return
        self._note(session, f"rmdir() of {name}")
        full = any(one.startswith(f"{name}/") for one in self.names)
        (refused,) = session.each([("rmdir", name)])
        assert refused is None or full, f"{refused}; {name} is empty, after {self.history}"
        assert refused or not full, f"rmdir() of {name}, which has entries, succeeded, after {self.history}"
        if refused:
            return
        del self.names[name]
        self.gone.add(name)

    def move_directory(self, session) -> list[str]:
        """Rename a directory with all that is in it."""
        old = self._pick("directory")
        if old is None:
            return []
        new = self._new_name(directory="")
        self._note(session, f"rename() of the directory {old} to {new}")
        session.rename(old, new)
        inside = [one for one in self.names if one.startswith(f"{old}/")]
        for name in [old, *inside]:
            self._moved(name, new + name.removeprefix(old))
        self.unsettled = {new + one.removeprefix(old) if one in inside else one for one in self.unsettled}
        return [one for one in self.names if one.startswith(new) and one not in self.unsettled]

    # Looks

    def look(self, session, name: str) -> None:
        """Compare what a name leads to, through a new open."""
        difference = self._difference(session, name)
        assert not difference, f"{session.name}: {difference}, after {self.history}"

    def differences(self, session) -> str:
        """Return a phrase: how the whole tree differs; empty if it does not."""
        for name in sorted(self.gone):
            if session.exists(name):
                return f"{name} exists, which is gone"
        for directory in ["", *(name for name, one in self.names.items() if one.kind == "directory")]:
            found = {name: kind for name, (_, kind) in session.list_entries(directory or ".").items()}
            wanted = {
                name.rpartition("/")[2]: one.kind
                for name, one in self.names.items()
                if name.rpartition("/")[0] == directory
            }
            if found != wanted:
                return f"the listing of {directory or 'the directory'} is {found} instead of {wanted}"
        return next(filter(None, (self._difference(session, name) for name in sorted(self.names))), "")

    def _difference(self, session, name: str) -> str:
        wanted = self.names[name]
        try:
            if wanted.kind == "directory":
                session.list_entries(name)
                return ""
            if wanted.kind == "symbolic link":
                text = session.readlink(name).encode()
                return "" if text == wanted.data else f"{name} leads to {text!r} instead of {wanted.data!r}"
            fd = session.open(name, O_RDONLY)
        except OSError as error:
            return f"{name}: {error}"
        status, data, _ = session.call_all(
            ("fstat", fd), ("pread", fd, len(wanted.data) + 1, 0), ("close", fd)
        )
        if bytes(data) != wanted.data:
            return f"{name} has not the data of its file ({len(data)} bytes, {len(wanted.data)} required)"
        if status["size"] != len(wanted.data):
            return f"{name} has size {status['size']} instead of {len(wanted.data)}"
        return ""

    # The model

    def _moved(self, old: str, new: str) -> None:
        file = self.names.pop(old)
        file.names.discard(old)
        file.names.add(new)
        self.names[new] = file
        self.gone.add(old)

    def _pick(self, *kinds: str) -> str | None:
        known = [name for name, one in self.names.items() if one.kind in kinds and name not in self.unsettled]
        return self.random.choice(known) if known else None

    def _new_name(self, directory: str | None = None) -> str:
        self.count += 1
        if directory is None:
            directory = self.random.choice(
                ["", *(f"{name}/" for name, one in self.names.items() if one.kind == "directory")]
            )
        return f"{directory}{self.random.choice(('n', 'longer-name-'))}{self.count}"

    def _note(self, session, text: str) -> None:
        self.history.add(f"{text} by {session.name}")
