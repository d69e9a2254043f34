"""Acquire a resource on a client: write the undo entry, acquire, release, verify, remove the entry.

Every step of an attach that changes the client (a mount, a session, a record, a controller) uses
:func:`acquired`. Its rules:

1. The undo command is in the client's journal before the resource is acquired.
2. The undo command after a SIGKILL is the same command as the normal release, so each run exercises it. It
   exits with status 0 only if nothing is left.
3. A release that fails does not hide the body's error: it becomes a note on that error. Exception: a
   :class:`TargetDead` from the release replaces the body's error, because it skips the target's other cases.
4. Attach and release have one :class:`Deadline` each, shared by all their commands. A late release still has
   :data:`MIN_RELEASE_SECONDS` seconds, so that nothing is left on the client.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager

from storagetest.errors import AttachError, DeadlineExceeded, StoragetestError, TargetDead
from storagetest.hosts import ATTACHING_ENV, Completed, Host, Journal, Step

RUN = "/run/storagetest"
"""Directory of mount points and temporary secrets on a client. A reboot clears it, like the mounts."""

LEFT_ON_TARGET = 3
"""Exit status of a release that removed everything from the client, but left a directory on the target."""

FORCED = 4
"""Exit status of a release that needed force because the target did not respond; the client is clean."""

MIN_RELEASE_SECONDS = 10
"""Minimum time of a release in seconds (chosen)."""

_MARGIN = 20
"""Extra seconds before a release, which limits its own steps, counts as hung; for a client short of CPU."""

JOURNAL_SECONDS = 24
"""Seconds of a release that the journal runs (chosen)."""

REMOVAL_SECONDS = 300
"""The same for a release that removes files (chosen): some 10,000 files at 30 ms each."""

STALLED_SECONDS = 30
"""Most seconds for which a removal may get nowhere (chosen)."""

_LEAVES = {
    str(LEFT_ON_TARGET): "a directory is left on the target",
    str(FORCED): "released by force, because the target did not respond: what was written there is left",
}
"""What the statuses of a release leave (:attr:`storagetest.hosts.Step.leaves`)."""

WITHIN = r"""
# within SECONDS COMMAND...: returns its exit status, or 124 after the timeout. It does not wait for a command
# that is stuck in the kernel and ignores signals; therefore the output goes to a file.
scratch=$(mktemp -d) && mkfifo "$scratch/ended" || exit 90
trap 'rm -rf "$scratch"' EXIT
log=$scratch/log
within() {
    local limit=$1 status=124
    shift
    exec 9<>"$scratch/ended"
    { timeout -k 1 "$limit" "$@" >>"$log" 2>&1; echo $? >&9; } </dev/null >/dev/null 2>&1 &
    read -r -t $((limit + 2)) -u 9 status
    # The next command gets a new pipe: a command that is still running may write into this one.
    exec 9>&-
    rm -f "$scratch/ended"
    mkfifo "$scratch/ended"
    return "$status"
}
# remove STALLED SECONDS TREE: rm -rf; returns its exit status, or 124 if it does not end within SECONDS, or
# removes less than what fills its buffer of output (some 50 names) within STALLED. A killed case may leave a
# file with FS_IMMUTABLE_FL or FS_APPEND_FL, which rm refuses: if rm fails, the flags are cleared, once.
remove() {
    local end=$((SECONDS + $2)) removed=$scratch/removed limit before status cleared=
    : >"$removed"
    while :; do
        limit=$((end - SECONDS < $1 ? end - SECONDS : $1))
        before=$(stat -c %s "$removed")
        within "$limit" sh -c 'exec rm -rfv --one-file-system -- "$1" >>"$2"' remove "$3" "$removed"
        status=$?
        case $status in
            124 | 137) ;;
            *)
                [ $status -ne 0 ] && [ -z "$cleared" ] && [ -e "$3" ] || return $status
                cleared=yes
                within "$limit" find "$3" -xdev \( -type f -o -type d \) -exec chattr -f -ia {} +
                continue
                ;;
        esac
        [ $SECONDS -lt $end ] && [ "$(stat -c %s "$removed")" -gt "$before" ] || return 124
    done
}
"""
"""Bash prologue of every release script: runs one step with a timeout, even if the kernel hangs."""


def new_id() -> str:
    """Return a unique name for one attach: ``storagetest-`` and eight hexadecimal digits."""
    return f"storagetest-{secrets.token_hex(4)}"


def reject_newlines(secret: str, description: str) -> str:
    """Return ``secret``. Raises :class:`AttachError` if it contains a line break or a NUL."""
    if any(character in secret for character in "\n\r\0"):
        raise AttachError(f"{description} contains a line break or a NUL. Use a password without them.")
    return secret


class Deadline:
    """Time limit in seconds that several calls share; with ``running=False`` it starts at the first call."""

    def __init__(self, seconds: float, *, running: bool = True) -> None:
        self.seconds = seconds
        self._end = time.monotonic() + seconds if running else None

    def _seconds_left(self) -> float:
        if self._end is None:
            self._end = time.monotonic() + self.seconds
        return self._end - time.monotonic()

    def at_least(self, floor: float) -> float:
        """Return the remaining seconds, but at least ``floor``."""
        return max(floor, self._seconds_left())

    def remaining(self) -> float:
        """Return the remaining seconds. Raises :class:`DeadlineExceeded` if there are none."""
        seconds = self._seconds_left()
        if seconds <= 0:
            raise DeadlineExceeded(f"the deadline of {self.seconds:g} s for this attach has passed")
        return seconds


class Attaching:
    """State of one attach: client, label of the target for messages, deadlines of attach and release."""

    def __init__(self, client: Host, target: str, seconds: float) -> None:
        self.client = client
        self.target = target
        self.deadline = Deadline(seconds)
        self.release_deadline = Deadline(seconds, running=False)

    def run(self, argv: Sequence[str], *, check: bool = False) -> Completed:
        """Run a command on the client within the deadline. A daemon that it starts may stay."""
        return self.client.run(argv, deadline=self.deadline.remaining(), check=check, env=ATTACHING_ENV)

    def step(self, description: str) -> AbstractContextManager[None]:
        """Turn a missed deadline into :class:`TargetDead`; see :func:`as_target_dead`."""
        return as_target_dead(self.client, self.target, self.deadline, description)

    def acquire(
        self,
        description: str,
        release: Callable[[int], Sequence[str]],
        journal_seconds: int = JOURNAL_SECONDS,
    ) -> AbstractContextManager[None]:
        """Write the undo entry, run the body, then release; see :func:`acquired`."""
        return acquired(
            self.client,
            description,
            release,
            target=self.target,
            deadline=self.release_deadline,
            journal_seconds=journal_seconds,
        )


@contextmanager
def as_target_dead(client: Host, target: str, deadline: Deadline, step: str) -> Iterator[None]:
    """Turn a command's :class:`DeadlineExceeded` into :class:`TargetDead` with target, client and ``step``.

    The cause of the error shows the command and its output.
    """
    try:
        yield
    except DeadlineExceeded as error:
        raise TargetDead(
            f"{target}: no response to {client.name} within {deadline.seconds:g} s, while {step}. "
            "Check that the server is up and responsive, or raise the target's `deadline`."
        ) from error


@contextmanager
def acquired(
    client: Host,
    description: str,
    release: Callable[[int], Sequence[str]],
    *,
    target: str,
    deadline: Deadline,
    journal_seconds: int = JOURNAL_SECONDS,
) -> Iterator[None]:
    """Write the undo entry, run the body, run the release command and remove the entry.

    ``description`` is the text of the journal's entry; ``target`` names the target in messages; ``deadline``
    is that of the release. ``release`` builds the release command from its time limit in seconds, which is
    ``journal_seconds`` if the journal runs it. Exit statuses of this command: 0: nothing is left;
    :data:`LEFT_ON_TARGET`; :data:`FORCED`; any other: something is left on the client, and the entry stays in
    the journal.
    """
    undo = Step(tuple(release(journal_seconds)), seconds=journal_seconds + _MARGIN, leaves=_LEAVES)
    entry = Journal(client).open(description, [undo])

    def run_release() -> None:
        seconds = deadline.at_least(MIN_RELEASE_SECONDS)
        done = _run_release(client, release(int(seconds)), target, seconds + _MARGIN)
        if done.status in {0, LEFT_ON_TARGET, FORCED}:
            entry.remove()
        if done.status:
            raise _unclean_error(done, description, target)

    with release_after(run_release):
        yield


@contextmanager
def release_after(release: Callable[[], None]) -> Iterator[None]:
    """Call ``release`` after the body, even if the body raises; see rule 3."""
    try:
        yield
    except BaseException as error:
        try:
            release()
        except TargetDead as dead:
            if isinstance(error, Exception) and not isinstance(error, TargetDead):
                raise dead from error
            error.add_note(f"while releasing: {dead}")
        except StoragetestError as release_error:
            error.add_note(f"while releasing: {release_error}")
        raise
    release()


def _run_release(client: Host, release: Sequence[str], target: str, deadline: float) -> Completed:
    try:
        return client.run(release, deadline=deadline, check=False, env=ATTACHING_ENV)
    except DeadlineExceeded as error:
        raise TargetDead(
            f"{target}: release on {client.name} did not finish within {deadline:g} s: {error}. "
            "Run `storagetest clean` to retry."
        ) from error


def _unclean_error(done: Completed, description: str, target: str) -> AttachError:
    output = "; ".join(line for line in (done.stdout + done.stderr).splitlines()[-4:] if line)
    if done.status == FORCED:
        return TargetDead(
            f"{target} no longer responds to {done.host}: released by force; written data stays on the target"
            + (f" ({output})" if output else "")
        )
    if done.status == LEFT_ON_TARGET:
        return AttachError(f"{target}: released on {done.host}; a directory is left on the target ({output})")
    return AttachError(
        f"{target}: {description} still exists on {done.host} after the release (status {done.status}: "
        f"{output}). Run `storagetest clean` to retry."
    )
