"""The mark of a supervised command: an environment variable that all its processes inherit.

Theory. The mark is the undo entry of a process: it exists from the process's start to its end, costs no round
trip, and cannot belong to another process that gets the same id later. It names the command and the
controller's process (:class:`~storagetest.hosts.owner.Owner`), so the processes of a killed run can be found.
The supervisor has the mark in its command line instead, as one argument.
"""

from __future__ import annotations

import re
import uuid

from storagetest.hosts.owner import Owner

MARK = "STORAGETEST_RUN"
"""The environment variable; its value is the token of a command (:func:`new_token`)."""
ATTACHING_ENV = {"STORAGETEST_ATTACHING": "1"}
"""Environment of commands that attach and release: daemons that they start, such as iscsid, may stay."""
ATTACHING = "STORAGETEST_ATTACHING=1"
"""The same variable as /proc/PID/environ shows it."""

MARK_PATTERN = f"^(({MARK}=)?[0-9a-f]{{32}}(:[0-9]+){{3}}:[0-9a-f-]+:[^[:space:]]+|{ATTACHING})$"
"""Extended regular expression of grep(1) for a token, alone or with the variable's name, and ATTACHING."""
_TOKEN = re.compile(rf"(?:{MARK}=)?([0-9a-f]{{32}}:(\d+):(\d+):(\d+):([0-9a-f-]+):(\S+))")

# One line each, so that they also work in a login shell that is not a POSIX shell.
MARKED = 'marked() { grep -lszxF "' + MARK + '=$run" /proc/[0-9]*/environ | cut -d/ -f3; }; '
"""Shell function that prints the ids of the processes with the mark ``$run``."""
REAP = (
    # A process may start another before it ends, so KILL is repeated; TERM is not: for some, two are a KILL.
    "reap() { most=$1; shift; for signal; do tries=0; "
    'while pids=$(marked); [ -n "$pids" ]; do '
    "[ $signal = TERM ] && [ $tries -gt 0 ] || kill -$signal $pids 2>/dev/null; "
    "[ $tries -lt $most ] || break; tries=$((tries + 1)); sleep 0.1; "
    'done; done; [ -z "$pids" ]; }; '
)
"""Shell function ``reap TRIES SIGNAL...``: signal the marked processes; its status is 0 if none is left."""
REAP_FROM_OUTSIDE = (
    # The supervisor, and `timeout` and `env` before the command starts, have the token in their command line.
    # This script reads it from stdin, and no process of this function has it in its own.
    "read -r run; "
    + MARKED.replace("marked()", "started()")
    + "starting() { printf '%s\\n' $run | grep -lszF -f - /proc/[0-9]*/cmdline | cut -d/ -f3; }; "
    "marked() { started; starting; }; " + REAP + "reap 40 TERM KILL"
)
"""Script: end all processes of the token on its stdin, the supervisor included; status 0 if none is left."""


def new_token(owner: Owner | None = None) -> str:
    """Return the token of a new command of ``owner``, which is this process by default."""
    owner = owner or Owner.current()
    process = f"{owner.pid}:{owner.start_time}:{owner.pid_namespace}"
    return f"{uuid.uuid4().hex}:{process}:{owner.boot_id}:{owner.host}"


def parse_mark(text: str) -> tuple[str, Owner] | None:
    """Return token and owner of a text that :data:`MARK_PATTERN` matches; None if it has no token."""
    match = _TOKEN.fullmatch(text)
    if match is None:
        return None
    token, pid, start_time, namespace, boot_id, host = match.groups()
    return token, Owner(host, int(pid), int(start_time), boot_id, namespace)
