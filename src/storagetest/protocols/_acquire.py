"""Holding something on a client: journalled before it is acquired, proven gone before it is struck out.

Every step of an attach that leaves a trace on the client (a mount, a session, a record, a controller) goes
through :func:`acquired`. Its rules:

1. How to undo it is in the client's journal before the first thing is acquired.
2. What undoes it after a SIGKILL is the very command that releases it in the ordinary way, so the rare way
   is walked every day. That command ends with status 0 only when nothing is left.
3. A release that fails never hides why the body failed: it becomes a note on that error. Only a target found
   dead while releasing outranks the body's error, because its other cases are to be skipped.
4. Attaching and releasing have a :class:`Deadline` each, shared by all their commands. A release that is
   late still gets :data:`LEAST` seconds: leaving something behind would be worse.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager

from storagetest.errors import AttachError, DeadlineExceeded, StoragetestError, TargetDead
from storagetest.hosts import Completed, Host, Journal

__all__ = [
    "RUN",
    "WITHIN",
    "Attaching",
    "Deadline",
    "acquired",
    "as_target_dead",
    "new_id",
    "reject_newlines",
    "release_after",
]

RUN = "/run/storagetest"
"""Where mount points and passing secrets live on a client: gone with a reboot, as they are."""

LEFT_ON_TARGET = 3
"""Exit status of a release that left nothing on the client, but a directory on the target."""

FORCED = 4
"""Exit status of a release that left nothing on the client, but only by force: the target did not answer."""

MIN_RELEASE_SECONDS = 10
"""Seconds that every release gets."""

_MARGIN = 20
"""Seconds beyond which a release, which bounds its own steps, is taken to hang; for a client short of CPU."""

_JOURNAL_SECONDS = 24
"""What a release may take when it is done from the journal, whose steps have 30 s each."""

_SUCCEED_IF_CLEAN = [
    "sh",
    "-c",
    f'"$@"; status=$?; [ $status -eq {LEFT_ON_TARGET} ] || [ $status -eq {FORCED} ] || exit $status',
    "storagetest-undo",
]
"""For the journal, which asks only whether the client is clean."""

WITHIN = r"""
# within SECONDS COMMAND...: its exit status, or 124 once the time is over. A command stuck in the kernel,
# which no signal ends, is left behind and not waited for; so its output goes to a file.
scratch=$(mktemp -d) && mkfifo "$scratch/ended" || exit 90
trap 'rm -rf "$scratch"' EXIT
log=$scratch/log
within() {
    local limit=$1 status=124
    shift
    exec 9<>"$scratch/ended"
    { timeout -k 1 "$limit" "$@" >>"$log" 2>&1; echo $? >&9; } </dev/null >/dev/null 2>&1 &
    read -r -t $((limit + 2)) -u 9 status
    # The next one gets a pipe of its own: what was left behind may still write into this.
    exec 9>&-
    rm -f "$scratch/ended"
    mkfifo "$scratch/ended"
    return "$status"
}
"""
"""Bash that every release begins with: bounds each of its steps, whatever the kernel does."""


def new_id() -> str:
    """Return a name for what one attach makes: ``storagetest-`` and eight hexadecimal digits."""
    return f"storagetest-{secrets.token_hex(4)}"


def reject_newlines(secret: str, what: str) -> str:
    """Return ``secret`` if it fits a line of a file that is made of lines; else :class:`AttachError`."""
    if any(character in secret for character in "\n\r\0"):
        msg = f"{what} holds a line break, which a password cannot have"
        raise AttachError(msg)
    return secret


class Deadline:
    """A span of seconds that several calls share; with ``running=False`` it begins at the first call."""

    def __init__(self, seconds: float, *, running: bool = True) -> None:
        self.seconds = seconds
        self._end = time.monotonic() + seconds if running else None

    def _seconds_left(self) -> float:
        if self._end is None:
            self._end = time.monotonic() + self.seconds
        return self._end - time.monotonic()

    def at_least(self, floor: float) -> float:
        """Return the seconds that remain, but never less than ``floor``."""
        return max(floor, self._seconds_left())

    def remaining(self) -> float:
        """Return the seconds that remain; :class:`DeadlineExceeded` when none do."""
        left = self._seconds_left()
        if left <= 0:
            msg = f"the {self.seconds:g} s for this attach are over"
            raise DeadlineExceeded(msg)
        return left


class Attaching:
    """One attach: ``target`` names the target in messages; ``seconds`` each for attaching and releasing."""

    def __init__(self, client: Host, target: str, seconds: float) -> None:
        self.client = client
        self.target = target
        self.deadline = Deadline(seconds)
        self.releasing = Deadline(seconds, running=False)

    def run(self, argv: Sequence[str], *, check: bool = False) -> Completed:
        """Run a command on the client before the deadline."""
        return self.client.run(argv, deadline=self.deadline.remaining(), check=check)

    def step(self, doing: str) -> AbstractContextManager[None]:
        """Turn a missed deadline into :class:`TargetDead`; see :func:`as_target_dead`."""
        return as_target_dead(self.client, self.target, self.deadline, doing)

    def acquire(self, what: str, release: Callable[[int], Sequence[str]]) -> AbstractContextManager[None]:
        """Journal, let the body acquire and use, then release; see :func:`acquired`."""
        return acquired(self.client, what, release, target=self.target, deadline=self.releasing)


@contextmanager
def as_target_dead(client: Host, target: str, deadline: Deadline, step: str) -> Iterator[None]:
    """Turn a command's end by deadline into :class:`TargetDead` that names target, client and ``step``.

    Its cause shows the command and what it said.
    """
    try:
        yield
    except DeadlineExceeded as error:
        msg = (
            f"{target} did not answer {client.name} within {deadline.seconds:g} s, while {step}. "
            "Is the server up and not stuck? The target's `deadline` can be raised."
        )
        raise TargetDead(msg) from error


@contextmanager
def acquired(
    client: Host, what: str, release: Callable[[int], Sequence[str]], *, target: str, deadline: Deadline
) -> Iterator[None]:
    """Journal, let the body acquire and use, then run the release and strike the entry out.

    ``what`` is the journal's words; ``target`` names the target in messages; ``deadline`` is the releasing's.
    ``release`` builds the command from the seconds that it may take. Its exit status: 0 nothing is left;
    :data:`LEFT_ON_TARGET`; :data:`FORCED`; anything else: something is left on the client, and the entry
    stays in the journal.
    """
    entry = Journal(client).open(what, [[*_SUCCEED_IF_CLEAN, *release(_JOURNAL_SECONDS)]])

    def let_go() -> None:
        seconds = deadline.at_least(MIN_RELEASE_SECONDS)
        done = _run_release(client, release(int(seconds)), target, seconds + _MARGIN)
        if done.status in {0, LEFT_ON_TARGET, FORCED}:
            entry.remove()
        if done.status:
            raise _unclean_error(done, what, target)

    with release_after(let_go):
        yield


@contextmanager
def release_after(let_go: Callable[[], None]) -> Iterator[None]:
    """Call ``let_go`` after the body, however it ends; see rule 3."""
    try:
        yield
    except BaseException as error:
        try:
            let_go()
        except TargetDead as dead:
            if isinstance(error, Exception) and not isinstance(error, TargetDead):
                raise dead from error
            error.add_note(f"while releasing: {dead}")
        except StoragetestError as also:
            error.add_note(f"while releasing: {also}")
        raise
    let_go()


def _run_release(client: Host, release: Sequence[str], target: str, deadline: float) -> Completed:
    try:
        return client.run(release, deadline=deadline, check=False)
    except DeadlineExceeded as error:
        msg = (
            f"{target} could not be released on {client.name} within {deadline:g} s: {error}. "
            "`storagetest clean` tries again."
        )
        raise TargetDead(msg) from error


def _unclean_error(done: Completed, what: str, target: str) -> AttachError:
    said = "; ".join(line for line in (done.stdout + done.stderr).splitlines()[-4:] if line)
    if done.status == FORCED:
        return TargetDead(
            f"{target} no longer answers {done.host}: released by force; what was written there stays"
            + (f" ({said})" if said else "")
        )
    if done.status == LEFT_ON_TARGET:
        return AttachError(
            f"{target}: released on {done.host}, but a directory stayed on the target ({said})"
        )
    return AttachError(
        f"{target}: {what} is still there on {done.host} after release (status {done.status}: {said}). "
        "`storagetest clean` tries again."
    )
