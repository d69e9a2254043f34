"""The undo journal: on the client, what is to be undone there should its owner die.

Theory. What a test acquires on a client (a mount, a session) outlives a SIGKILL of the test. So before it is
acquired, a file on the client says in so many commands how to undo it; when it has been released, the file
goes. What is found later without a living owner is undone by :func:`clean`.

Rules:

1. An entry is on the client before the thing is. Undoing something that never came to be must do no harm:
   a :class:`Step` may carry a check (``unless``) that exits 0 when there is nothing left to undo.
2. An entry is struck out only when each of its steps succeeded, or its thing was verifiably gone. All steps
   are tried, in order, whatever became of those before.
3. An entry whose owner lives on this machine is left alone, and so is one of another machine, of which we
   cannot know; unless forced.
4. An entry that we do not understand is reported, never touched.
5. One round trip to write, to change, to strike out and to list: it may be a slow virtual machine.

Entries are files ``<id>.json`` of mode 0600 in /var/lib/storagetest/journal; of a user who is not root, in
``${XDG_STATE_HOME:-~/.local/state}/storagetest/journal``.
"""

from __future__ import annotations

import json
import os
import secrets
import socket
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from enum import Enum
from pathlib import Path
from typing import Any

from storagetest.errors import HostError
from storagetest.hosts.base import Host

__all__ = [
    "Entry",
    "EntryHandle",
    "Journal",
    "Owner",
    "Step",
    "UndoResult",
    "UndoStatus",
    "UnreadableEntry",
    "agent_journal",
    "clean",
]

SCHEMA = 1
_DEADLINE = 20.0

_PLACE = (
    "dir=$1; "
    'if [ -z "$dir" ]; then if [ "$(id -u)" -eq 0 ]; then dir=/var/lib/storagetest/journal; '
    "else dir=${XDG_STATE_HOME:-$HOME/.local/state}/storagetest/journal; fi; fi; "
)
_WRITE = (
    _PLACE
    + 'set -e; umask 077; mkdir -p "$dir"; part=$dir/.$2.part; trap \'rm -f "$part"\' EXIT; cat >"$part"; '
    '[ "$(wc -c <"$part")" -eq "$3" ]; sync "$part"; mv -fT "$part" "$dir/$2.json"'
)
_STRIKE = _PLACE + 'rm -f "$dir/$2.json"'
_LIST = (
    _PLACE + 'cd "$dir" 2>/dev/null || exit 0; '
    'for file in *.json; do [ -f "$file" ] || continue; '
    'printf "%s\\t" "${file%.json}"; tr -d "\\n\\t" <"$file"; echo; done'
)


@dataclass(frozen=True, slots=True)
class Owner:
    """A process that acquired something: machine, process id, its start in ticks after boot, boot id."""

    host: str
    pid: int
    start_time: int
    boot_id: str

    @classmethod
    def current(cls) -> Owner:
        """Return this very process."""
        return cls(socket.gethostname(), os.getpid(), _start_time(os.getpid()) or 0, _boot_id())


@dataclass(frozen=True, slots=True)
class Step:
    """One command that undoes something, and a check that exits 0 when there is nothing left to undo."""

    argv: tuple[str, ...]
    unless: tuple[str, ...] = ()


StepLike = Step | Sequence[str] | Mapping[str, Sequence[str]]
"""A step; or its argv alone; or ``{"argv": […], "unless": […]}``."""


@dataclass(frozen=True, slots=True)
class Entry:
    """What is in the journal: ``what`` is a sentence for people; ``created`` is UTC, ISO 8601."""

    id: str
    what: str
    owner: Owner
    undo: tuple[Step, ...]
    created: str


@dataclass(frozen=True, slots=True)
class UnreadableEntry:
    """A file in the journal that we do not understand: of another version, or damaged."""

    id: str
    why: str


class UndoStatus(Enum):
    """What became of an entry."""

    UNDONE = "undone"
    FAILED = "failed"
    IN_USE = "in use"
    UNREADABLE = "unreadable"


@dataclass(frozen=True, slots=True)
class UndoResult:
    """What became of one entry; ``detail`` says why it is still there, and is empty when it is not."""

    id: str
    what: str
    result: UndoStatus
    detail: str = ""


class EntryHandle:
    """An entry that this process has written."""

    def __init__(self, journal: Journal, entry: Entry) -> None:
        self._journal = journal
        self.entry = entry

    def update(self, undo: Sequence[StepLike]) -> None:
        """Replace the steps, now that more is known about what there is to undo."""
        old = self.entry
        self.entry = Entry(old.id, old.what, old.owner, _steps(undo), old.created)
        self._journal.write(self.entry)

    def remove(self) -> None:
        """Strike the entry out: what it spoke of is proven gone. Safe to call twice."""
        self._journal.remove(self.entry.id)


class Journal:
    """The journal on ``host``; ``directory`` is an absolute path there, the usual one unless given."""

    def __init__(self, host: Host, directory: str = "") -> None:
        self._host = host
        self._directory = directory

    def open(self, what: str, undo: Sequence[StepLike]) -> EntryHandle:
        """Write an entry before ``what`` is acquired; :class:`HostError` where that fails."""
        created = datetime.now(UTC).isoformat(timespec="seconds")
        entry = Entry(
            f"{created[:19].replace(':', '')}-{secrets.token_hex(4)}",
            what,
            Owner.current(),
            _steps(undo),
            created,
        )
        self.write(entry)
        return EntryHandle(self, entry)

    def write(self, entry: Entry) -> None:
        """Put ``entry`` on the host, in place of one of the same id."""
        data = json.dumps({"schema": SCHEMA, **asdict(entry)}).encode()
        self._do(_WRITE, entry.id, str(len(data)), stdin=data)

    def remove(self, entry_id: str) -> None:
        """Remove the entry of that id, if it is there."""
        self._do(_STRIKE, entry_id)

    def entries(self) -> list[Entry | UnreadableEntry]:
        """Return all entries, the oldest first."""
        lines = self._do(_LIST).splitlines()
        return [parse(*line.split("\t", 1)) for line in sorted(lines)]

    def undo(self, entry: Entry, *, deadline: float = 30.0) -> UndoResult:
        """Try all steps of ``entry``, each within ``deadline`` seconds; strike it out if nothing is left."""
        failures = [why for step in entry.undo if (why := self._undo_step(step, deadline))]
        if failures:
            return UndoResult(entry.id, entry.what, UndoStatus.FAILED, "\n".join(failures))
        self.remove(entry.id)
        return UndoResult(entry.id, entry.what, UndoStatus.UNDONE)

    def _undo_step(self, step: Step, deadline: float) -> str:
        """Return why ``step`` failed; nothing, if it did not."""
        try:
            if self._is_gone(step, deadline):
                return ""
            done = self._host.run(step.argv, deadline=deadline, check=False)
            if done.ok or self._is_gone(step, deadline):
                return ""
            return done.describe()
        except HostError as error:
            return str(error)

    def _is_gone(self, step: Step, deadline: float) -> bool:
        return bool(step.unless) and self._host.run(step.unless, deadline=deadline, check=False).ok

    def _do(self, script: str, *arguments: str, stdin: bytes = b"") -> str:
        argv = ["sh", "-c", script, "journal", self._directory, *arguments]
        done = self._host.run(argv, deadline=_DEADLINE, stdin=stdin, check=False)
        if not done.ok:
            said = done.stderr.strip() or f"status {done.status}"
            msg = f"{self._host.name}: the journal of what is to be undone cannot be used: {said}"
            raise HostError(msg)
        return done.stdout


def agent_journal(directory: str = "") -> dict[str, Any]:
    """Return what an agent needs to write entries of this process: see :mod:`storagetest.agent.undo`."""
    return {
        "write": ["sh", "-c", _WRITE, "journal", directory],
        "remove": ["sh", "-c", _STRIKE, "journal", directory],
        "head": {"schema": SCHEMA, "owner": asdict(Owner.current())},
    }


def clean(host: Host, *, force: bool = False, directory: str = "") -> list[UndoResult]:
    """Undo what dead owners left on ``host``, the newest first; with ``force`` what living ones hold, too."""
    journal = Journal(host, directory)
    outcomes = []
    for entry in reversed(journal.entries()):
        if isinstance(entry, UnreadableEntry):
            outcomes.append(UndoResult(entry.id, "?", UndoStatus.UNREADABLE, entry.why))
        elif not force and (why := in_use(entry.owner, Owner.current())):
            outcomes.append(UndoResult(entry.id, entry.what, UndoStatus.IN_USE, why))
        else:
            outcomes.append(journal.undo(entry))
    return outcomes


def in_use(owner: Owner, me: Owner) -> str:
    """Return why an entry of ``owner`` is to be left alone by ``me``; nothing, if its owner is dead."""
    if owner.host != me.host:
        return f"it belongs to process {owner.pid} on {owner.host}; clean it from there, or by force"
    if owner.boot_id != me.boot_id or _start_time(owner.pid) != owner.start_time:
        return ""
    return f"its owner, process {owner.pid}, is still running; end it first, or clean by force"


def parse(entry_id: str, text: str) -> Entry | UnreadableEntry:
    """Read the JSON of an entry."""
    try:
        raw: Any = json.loads(text)
        if raw["schema"] != SCHEMA:
            return UnreadableEntry(
                entry_id, f"it is of schema {raw['schema']!r}; this version knows {SCHEMA}"
            )
        owner = Owner(**raw["owner"])
        return Entry(entry_id, str(raw["what"]), owner, _steps(raw["undo"]), str(raw["created"]))
    except (ValueError, KeyError, TypeError) as error:
        return UnreadableEntry(entry_id, f"it is damaged ({type(error).__name__}: {error})")


def _steps(undo: Sequence[StepLike]) -> tuple[Step, ...]:
    return tuple(_step(step) for step in undo)


def _step(step: StepLike) -> Step:
    if isinstance(step, Step):
        return step
    if isinstance(step, Mapping):
        return Step(tuple(step["argv"]), tuple(step.get("unless", ())))
    if isinstance(step, str):
        msg = f"a step is an argv list, not the string {step!r}"
        raise TypeError(msg)
    return Step(tuple(step))


def _boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def _start_time(pid: int) -> int | None:
    """Return when the process began, in ticks after boot (proc(5), stat field 22); None if there is none.

    A zombie counts as none: it holds nothing any more.
    """
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else int(fields[19])
