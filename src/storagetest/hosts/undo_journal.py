"""The undo journal: files on the client with the commands that undo changes if their owner process dies.

Theory. A resource that a test acquires on a client (a mount, a session) remains after SIGKILL of the test. So
before it is acquired, a file with the commands that undo it is written to the client; after the release, the
file is removed. :func:`clean` undoes entries whose owner has died.

Rules:

1. The entry is written before the resource is acquired. Undoing a resource that was not acquired must be
   harmless: a :class:`Step` may have a check (``unless``) that exits 0 if there is nothing left to undo.
2. An entry is removed only if each of its steps succeeded, its check shows that nothing is left, or nothing
   more can be done from the host (:attr:`Step.leaves`), which is reported. All steps are tried, in order,
   even if earlier ones failed.
3. An entry whose owner is alive on this machine is not undone, and neither is an entry of another machine,
   whose processes are unknown; unless forced.
4. An entry that cannot be parsed is reported and not changed.
5. Write, update, remove and list take one round trip each, because the client may be slow.

Entries are files ``<id>.json`` of mode 0600 in /var/lib/storagetest/journal; of a user who is not root, in
``${XDG_STATE_HOME:-~/.local/state}/storagetest/journal``.
"""

from __future__ import annotations

import contextlib
import json
import secrets
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from enum import Enum
from typing import Any

from storagetest.errors import HostError, StoragetestError
from storagetest.hosts._run_mark import ATTACHING_ENV
from storagetest.hosts.base import Host
from storagetest.hosts.owner import Owner, in_use

SCHEMA = 1
_DEADLINE = 20.0

STEP_SECONDS = 30.0
"""Seconds of a step that states no others (chosen)."""

_DIRECTORY = (
    "dir=$1; "
    'if [ -z "$dir" ]; then if [ "$(id -u)" -eq 0 ]; then dir=/var/lib/storagetest/journal; '
    "else dir=${XDG_STATE_HOME:-$HOME/.local/state}/storagetest/journal; fi; fi; "
)
_WRITE = (
    _DIRECTORY
    + 'set -e; umask 077; mkdir -p "$dir"; part=$dir/.$2.part; trap \'rm -f "$part"\' EXIT; cat >"$part"; '
    '[ "$(wc -c <"$part")" -eq "$3" ]; sync "$part"; mv -fT "$part" "$dir/$2.json"'
)
_REMOVE = _DIRECTORY + 'rm -f "$dir/$2.json"'
_LIST = (
    _DIRECTORY + 'cd "$dir" 2>/dev/null || exit 0; '
    'for file in *.json; do [ -f "$file" ] || continue; '
    'printf "%s\\t" "${file%.json}"; tr -d "\\n\\t" <"$file"; echo; done'
)


@dataclass(frozen=True, slots=True)
class Step:
    """One command that undoes a change, and a check that exits 0 if there is nothing left to undo.

    The command has ``seconds``. ``leaves`` maps exit statuses, as text, after which the host is clean to what
    is left elsewhere.
    """

    argv: tuple[str, ...]
    unless: tuple[str, ...] = ()
    seconds: float = STEP_SECONDS
    leaves: Mapping[str, str] = field(default_factory=dict)


StepLike = Step | Sequence[str] | Mapping[str, Any]
"""A step; or its argv alone; or its fields, of which only ``argv`` is needed."""


@dataclass(frozen=True, slots=True)
class Entry:
    """An entry of the journal: ``description`` names the resource; ``created`` is UTC, ISO 8601."""

    id: str
    description: str
    owner: Owner
    undo: tuple[Step, ...]
    created: str

    def to_json(self) -> str:
        """Return the text of the entry's file, with the key ``what`` of schema 1 for the description."""
        fields = asdict(self)
        return json.dumps({"schema": SCHEMA, "what": fields.pop("description"), **fields})


@dataclass(frozen=True, slots=True)
class UnreadableEntry:
    """A file in the journal that cannot be parsed: of another version, or damaged."""

    id: str
    why: str


class UndoStatus(Enum):
    """The result of undoing an entry."""

    UNDONE = "undone"
    PARTLY = "undone in part"
    ENDED = "ended"
    FAILED = "failed"
    IN_USE = "in use"
    UNREADABLE = "unreadable"


_BY_SEVERITY = (UndoStatus.UNDONE, UndoStatus.PARTLY, UndoStatus.FAILED)
"""The results of a step; the last one of a step of an entry is the entry's."""


@dataclass(frozen=True, slots=True)
class UndoResult:
    """The result for one entry; ``detail`` is the reason why it still exists, what is left, or ""."""

    id: str
    description: str
    result: UndoStatus
    detail: str = ""


class EntryHandle:
    """An entry that this process has written."""

    def __init__(self, journal: Journal, entry: Entry) -> None:
        self._journal = journal
        self.entry = entry

    def update(self, undo: Sequence[StepLike]) -> None:
        """Replace the steps."""
        self.entry = replace(self.entry, undo=_steps(undo))
        self._journal.write(self.entry)

    def remove(self) -> None:
        """Remove the entry, because its resource is verifiably released. Safe to call twice."""
        self._journal.remove(self.entry.id)


class Journal:
    """The journal on ``host``; ``directory`` is an absolute path there; "" is the default."""

    def __init__(self, host: Host, directory: str = "") -> None:
        self._host = host
        self._directory = directory

    def open(self, description: str, undo: Sequence[StepLike]) -> EntryHandle:
        """Write an entry before the resource is acquired. Raises :class:`HostError` if that fails."""
        created = datetime.now(UTC).isoformat(timespec="seconds")
        entry_id = f"{created[:19].replace(':', '')}-{secrets.token_hex(4)}"
        entry = Entry(entry_id, description, Owner.current(), _steps(undo), created)
        try:
            self.write(entry)
        except KeyboardInterrupt:  # the host may have written it, and nothing is acquired yet
            with contextlib.suppress(StoragetestError):
                self.remove(entry.id)
            raise
        return EntryHandle(self, entry)

    def write(self, entry: Entry) -> None:
        """Write ``entry`` to the host; replace one of the same id."""
        data = entry.to_json().encode()
        self._run_script(_WRITE, entry.id, str(len(data)), stdin=data)

    def remove(self, entry_id: str) -> None:
        """Remove the entry with that id, if it exists."""
        self._run_script(_REMOVE, entry_id)

    def entries(self) -> list[Entry | UnreadableEntry]:
        """Return all entries, oldest first."""
        lines = self._run_script(_LIST).splitlines()
        return [parse(*line.split("\t", 1)) for line in sorted(lines)]

    def undo(self, entry: Entry) -> UndoResult:
        """Try all steps of ``entry``; remove it if nothing is left on the host."""
        results = [self._undo_step(step) for step in entry.undo]
        worst = max((status for status, _ in results), key=_BY_SEVERITY.index, default=UndoStatus.UNDONE)
        if worst is not UndoStatus.FAILED:
            self.remove(entry.id)
        detail = "\n".join(text for status, text in results if status is worst and text)
        return UndoResult(entry.id, entry.description, worst, detail)

    def _undo_step(self, step: Step) -> tuple[UndoStatus, str]:
        """Run ``step``; return how it ended, and its error or what it leaves."""
        try:
            if self._is_gone(step):
                return UndoStatus.UNDONE, ""
            done = self._host.run(step.argv, deadline=step.seconds, check=False, env=ATTACHING_ENV)
            if left := step.leaves.get(str(done.status)):
                return UndoStatus.PARTLY, left
            if done.ok or self._is_gone(step):
                return UndoStatus.UNDONE, ""
            return UndoStatus.FAILED, done.describe()
        except HostError as error:
            return UndoStatus.FAILED, str(error)

    def _is_gone(self, step: Step) -> bool:
        return bool(step.unless) and self._host.run(step.unless, deadline=step.seconds, check=False).ok

    def _run_script(self, script: str, *arguments: str, stdin: bytes = b"") -> str:
        argv = ["sh", "-c", script, "journal", self._directory, *arguments]
        done = self._host.run(argv, deadline=_DEADLINE, stdin=stdin, check=False)
        if not done.ok:
            error = done.stderr.strip() or f"status {done.status}"
            raise HostError(f"{self._host.name}: the undo journal cannot be used: {error}")
        return done.stdout


def agent_journal(directory: str = "") -> dict[str, Any]:
    """Return the agent's ``journal``, to write entries of this process: see :mod:`storagetest.agent.undo`."""
    return {
        "write": ["sh", "-c", _WRITE, "journal", directory],
        "remove": ["sh", "-c", _REMOVE, "journal", directory],
        "head": {"schema": SCHEMA, "owner": asdict(Owner.current())},
    }


def clean(
    host: Host, *, force: bool = False, directory: str = "", alive: Collection[Owner] = ()
) -> list[UndoResult]:
    """Undo the entries of dead owners on ``host``, newest first; with ``force`` those of living ones, too.

    Entries of the owners ``alive``, whose processes cannot be ended, are treated as those of living ones.
    """
    journal = Journal(host, directory)
    results = []
    for entry in reversed(journal.entries()):
        if isinstance(entry, UnreadableEntry):
            results.append(UndoResult(entry.id, "?", UndoStatus.UNREADABLE, entry.why))
        elif not force and (why := _why_kept(entry.owner, alive)):
            results.append(UndoResult(entry.id, entry.description, UndoStatus.IN_USE, why))
        else:
            results.append(journal.undo(entry))
    return results


def _why_kept(owner: Owner, alive: Collection[Owner]) -> str:
    """Return the reason why an entry of ``owner`` must not be undone, or ""."""
    if owner in alive:
        return "processes of its run are left; undo it by force"
    return in_use(owner, Owner.current())


def parse(entry_id: str, text: str) -> Entry | UnreadableEntry:
    """Parse the JSON of an entry."""
    try:
        raw: Any = json.loads(text)
        if raw["schema"] != SCHEMA:
            return UnreadableEntry(entry_id, f"schema {raw['schema']!r}; this version supports {SCHEMA}")
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
        return Step(
            tuple(step["argv"]),
            tuple(step.get("unless", ())),
            float(step.get("seconds", STEP_SECONDS)),
            dict(step.get("leaves", {})),
        )
    if isinstance(step, str):
        raise TypeError(f"a step is an argv list, not the string {step!r}")
    return Step(tuple(step))
