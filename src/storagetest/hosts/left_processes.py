"""Find and end the processes that killed runs left on a client.

Theory. A command of a run, and each process that it starts, has a mark with the run's owner
(:mod:`storagetest.hosts._run_mark`). After SIGKILL of the owner a load continues to its deadline, and an
attachment that it uses cannot be released in order.

Rules:

1. A process is ended only if its mark names an owner that is dead, as the owner of a journal entry is. Each
   signal goes to the processes that have the mark at that moment, so a process that got the id of an ended
   one is safe.
2. A daemon that an attach command started and that outlived this command (iscsid, a FUSE server) stays: the
   journal's entry ends it, or needs it.
3. Fails closed: a list without the listing command itself, which has a mark too, is an error.
4. TERM first, then KILL, each with a limit. A process counts as ended only if it no longer exists.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from storagetest.errors import HostError
from storagetest.hosts._run_mark import ATTACHING, MARK_PATTERN, REAP_FROM_OUTSIDE, parse_mark
from storagetest.hosts.base import Host
from storagetest.hosts.owner import Owner, in_use, is_running
from storagetest.hosts.undo_journal import UndoResult, UndoStatus

_LIST_TIMEOUT = 30.0
_END_TIMEOUT = 60.0
"""Timeouts in seconds (chosen); the script waits four seconds after each signal."""

# One line for each mark: PID/environ:MARK or PID/cmdline:MARK, a tab, and the name of the process.
_LIST = (
    "cd /proc && me=$(id -u) && pattern=$1 && "
    "grep -aszHoE \"$pattern\" [0-9]*/environ [0-9]*/cmdline | tr '\\0' '\\n' | "
    'while IFS= read -r line; do pid=${line%%/*}; [ "$me" -eq 0 ] || [ -O "$pid" ] || continue; '
    '{ read -r name <"$pid/comm"; } 2>/dev/null || continue; '
    'printf "%s\\t%s\\n" "$line" "$name"; done'
)


@dataclass(slots=True)
class LeftCommand:
    """A command of an owner that has ended, or that is on another machine: process id → name."""

    token: str
    owner: Owner
    processes: dict[int, str] = field(default_factory=dict)

    @property
    def description(self) -> str:
        """Its processes, and the process that owned them."""
        noun = "process" if len(self.processes) == 1 else "processes"
        return f"{noun} {self.listed} of the run {self.owner.pid} on {self.owner.host}"

    @property
    def listed(self) -> str:
        """Its processes: ids and names."""
        return ", ".join(f"{pid} ({name})" for pid, name in sorted(self.processes.items()))


def end_left_commands(host: Host, *, force: bool = False) -> tuple[list[UndoResult], set[Owner]]:
    """End what is left of the commands of dead owners on ``host``; with ``force`` of other machines' owners.

    Returns a result for each command, and the owners of which processes are left. Running owners of this
    machine are ignored. Raises :class:`HostError` if the processes cannot be listed.
    """
    results: list[UndoResult] = []
    alive: set[Owner] = set()
    for command in left_commands(host):
        detail = in_use(command.owner, Owner.current())
        if detail and not force:
            status = UndoStatus.IN_USE
        else:
            detail = _end(host, command)
            status = UndoStatus.FAILED if detail else UndoStatus.ENDED
        if status is UndoStatus.FAILED:
            alive.add(command.owner)
        results.append(UndoResult(command.token, command.description, status, detail))
    return results, alive


def left_commands(host: Host) -> list[LeftCommand]:
    """Return the commands on ``host`` whose owner is no running process of this machine.

    Raises :class:`HostError` also if the list lacks the command that lists, which has a mark itself.
    """
    me = Owner.current()
    done = host.run(["sh", "-c", _LIST, "storagetest-list", MARK_PATTERN], deadline=_LIST_TIMEOUT)
    commands = parse(done.stdout)
    if all(command.owner != me for command in commands):
        raise HostError(
            f"{host.name}: the processes of killed runs cannot be listed: /proc does not show the processes "
            f"of this user with their environment{f' ({tail})' if (tail := done.stderr.strip()) else ''}"
        )
    return [left for left in commands if not is_running(left.owner, me)]


def parse(output: str) -> list[LeftCommand]:
    """Parse the output of the list script, without the daemons that may stay (rule 2)."""
    names: dict[int, str] = {}
    marks: dict[int, tuple[str, Owner]] = {}
    attaching: set[int] = set()
    supervised: set[str] = set()
    """The tokens of commands that still run: their supervisors have them in their command lines."""
    for line in output.splitlines():
        place, _, rest = line.partition(":")
        number, _, file = place.partition("/")
        text, _, name = rest.partition("\t")
        mark = parse_mark(text)
        if mark is not None:
            names[int(number)], marks[int(number)] = name, mark
            supervised |= {mark[0]} if file == "cmdline" else set()
        elif text == ATTACHING and file == "environ":
            attaching.add(int(number))
    commands: dict[str, LeftCommand] = {}
    for pid, (token, owner) in marks.items():
        if pid not in attaching or token in supervised:
            commands.setdefault(token, LeftCommand(token, owner)).processes[pid] = names[pid]
    return list(commands.values())


def _end(host: Host, command: LeftCommand) -> str:
    """End all processes of ``command``; return the reason why some are left, or ""."""
    stdin = f"{command.token}\n".encode()
    try:
        done = host.run(["sh", "-c", REAP_FROM_OUTSIDE], deadline=_END_TIMEOUT, check=False, stdin=stdin)
        left = [] if done.ok else [left for left in left_commands(host) if left.token == command.token]
    except HostError as error:
        return str(error)
    if not left:
        return ""
    return (
        f"{left[0].listed} cannot be killed: it hangs in the kernel (is its target dead?). What its run "
        "attached is kept; repair the target and clean again, or undo it anyway with --force"
    )
