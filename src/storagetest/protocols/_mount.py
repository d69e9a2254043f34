"""Mount a file system on a client, make a directory in it, and release both with verification.

The mount point is ``/run/storagetest/<id>``. Cases use the new directory ``<id>`` on the target's file
system, so existing files are not touched and two clients do not share a directory. The release has steps of
increasing force, each with a timeout (see :mod:`storagetest.protocols._acquire`): remove the directory,
unmount, unmount by force and lazily. The mount table alone decides whether the release succeeded.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial

from storagetest.errors import AttachError, ClientLacks, StoragetestError
from storagetest.hosts import Completed
from storagetest.protocols._acquire import (
    FORCED,
    LEFT_ON_TARGET,
    REMOVAL_SECONDS,
    RUN,
    STALLED_SECONDS,
    WITHIN,
    Attaching,
    new_id,
)


@dataclass(frozen=True, slots=True)
class MountEntry:
    """The used fields of one line of /proc/self/mountinfo (proc(5)).

    ``options`` are the super block's; a flag without a value has the value "".
    """

    device: str
    point: str
    fstype: str
    source: str
    options: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class MountRequest:
    """Parameters of a mount. A ``secret`` is in a file of mode 0600 while mount(8) runs.

    ``options`` are mount's options, or a function that returns them for the path of the secret's file.
    ``files`` are read immediately after the mount.
    """

    fstype: str
    source: str
    options: Callable[[str], Sequence[str]] | Sequence[str]
    secret: bytes = b""
    files: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Mounted:
    """A mounted file system: cases may write in ``directory``; ``size`` is its free space in bytes.

    ``files`` maps the paths of :attr:`MountRequest.files` to their texts immediately after the mount.
    """

    directory: str
    size: int
    entry: MountEntry
    files: Mapping[str, str] = field(default_factory=dict)


ACQUIRE = r"""
point=$1 secret=$2
shift 2
mkdir -p "$point" || exit 90
LC_ALL=C mount "$@" "$point"
status=$?
[ -z "$secret" ] || rm -f "$secret"
exit $status
"""

PLAIN = r"""
# Remove what a new directory has inherited: ACLs, the set-group-ID bit, a mode by another umask.
plain() {
    case $(LC_ALL=C ls -ld "$1") in
        ??????????+*) python3 -c 'if True:
            import os, sys
            for kind in "access", "default":
                try:
                    os.removexattr(sys.argv[1], "system.posix_acl_" + kind)
                except OSError:
                    pass' "$1" ;;
    esac
    [ "$(stat -c %a "$1")" = 755 ] || chmod u=rwx,go=rx,g-s "$1" 2>/dev/null || :
}
"""
"""A shell function, best effort: a file system without modes or POSIX ACLs keeps what it has."""

READ_BACK = (
    PLAIN
    + r"""
point=$1 subdirectory=$2
shift 2
mkdir "$point/$subdirectory" || exit 91
plain "$point/$subdirectory"
echo "== size"
stat -f -c '%a %S' "$point"
for file in /proc/self/mountinfo "$@"; do
    echo "== $file"
    cat "$file"
done
"""
)

RELEASE = (
    WITHIN
    + f"""
point=$1 subdirectory=$2 secret=$3 limit=$4 removal=$5
[ -z "$secret" ] || rm -f "$secret"
mounted() {{ [[ $(</proc/self/mountinfo) == *" $point "* ]]; }}
status=0 stuck=
if mounted; then
    remove "$limit" "$removal" "$point/$subdirectory"
    case $? in
        0) ;;
        124 | 137) stuck=yes ;;
        *) status={LEFT_ON_TARGET} ;;
    esac
    [ -n "$stuck" ] || within "$limit" umount "$point" || stuck=yes
    if [ -n "$stuck" ]; then
        status={FORCED}
        # Both detach immediately, but may then wait for the server: check the mount table instead.
        {{ umount -f -l "$point" || umount -l "$point"; }} </dev/null >>"$log" 2>&1 &
        exec 9<>"$scratch/ended"
        end=$((SECONDS + 15))
        while mounted && [ $SECONDS -lt $end ]; do
            read -r -t 0.2 -u 9
        done
    fi
fi
tail -n 3 "$log"
mounted && exit 1
[ ! -d "$point" ] || rmdir "$point" || exit 1
exit $status
"""
)

_OCTAL = re.compile(r"\\([0-7]{3})")


def _unescape(text: str) -> str:
    return _OCTAL.sub(lambda match: chr(int(match[1], 8)), text)


def parse_mountinfo(text: str) -> list[MountEntry]:
    """Parse /proc/self/mountinfo: one entry per line, in the kernel's order."""
    entries = []
    for line in text.splitlines():
        fields, _, tail = line.partition(" - ")
        first, last = fields.split(), tail.split()
        if len(first) < 6 or len(last) < 2:
            continue
        pairs = (option.partition("=") for option in (last[2] if len(last) > 2 else "").split(","))
        entries.append(
            MountEntry(
                device=first[2],
                point=_unescape(first[4]),
                fstype=last[0],
                source=_unescape(last[1]),
                options={key: _unescape(value) for key, _, value in pairs if key},
            )
        )
    return entries


def find_mount(entries: Sequence[MountEntry], path: str) -> MountEntry:
    """Return the entry of the mount that contains ``path``. Raises :class:`LookupError`."""
    above = [entry for entry in entries if f"{path}/".startswith(f"{entry.point.rstrip('/')}/")]
    if not above:
        raise LookupError(f"{path}: no mount in the client's mount table contains it")
    return max(above, key=lambda entry: len(entry.point))


def parse_sections(text: str) -> dict[str, str]:
    """Parse the output of the read-back script: lines ``== NAME``, each followed by that file's text."""
    sections: dict[str, list[str]] = {}
    lines: list[str] = []
    for line in text.splitlines():
        if line.startswith("== "):
            lines = sections.setdefault(line[3:], [])
        else:
            lines.append(line)
    return {name: "\n".join(body) for name, body in sections.items()}


def mount_argv(fstype: str, source: str, options: Sequence[str]) -> list[str]:
    """Build mount's arguments without the mount point."""
    return ["-t", fstype, *(["-o", ",".join(options)] if options else []), "--", source]


def release_argv(point: str, subdirectory: str, secret: str, seconds: int) -> list[str]:
    """Build the command that releases within ``seconds``, of which it reserves some for the forced unmount.

    If one of the two normal steps hangs, the forced unmount follows.
    """
    limit = max(1, min(STALLED_SECONDS, (seconds - 8) // 2))
    removal = max(1, seconds - 8 - limit)
    return [
        "bash",
        "-c",
        RELEASE,
        "storagetest-unmount",
        point,
        subdirectory,
        secret,
        str(limit),
        str(removal),
    ]


def mount_error(
    done: Completed,
    mount: Sequence[str],
    target: str,
    error_from_output: Callable[[str], StoragetestError | None],
) -> StoragetestError:
    """Return the error for a failed mount; ``error_from_output`` maps the protocol's own messages."""
    protocol_error = error_from_output(done.stderr)
    if protocol_error is not None:
        return protocol_error
    if re.search(r"unknown filesystem type|need a /s?bin/mount\.|No such device", done.stderr):
        return ClientLacks(f"{target}: {done.host} cannot mount this file system: {done.stderr.strip()}")
    tail = "\n".join(done.stderr.strip().splitlines()[-4:])
    return AttachError(f"{target}: {done.host}: `mount {shlex.join(mount)}` exited {done.status}: {tail}")


@contextmanager
def mounted(
    attaching: Attaching,
    request: MountRequest,
    error_from_output: Callable[[str], StoragetestError | None] = lambda _: None,
) -> Iterator[Mounted]:
    """Mount, make the directory, read back, yield, release and verify.

    Raises :class:`TargetDead` at the deadline, the error that ``error_from_output`` returns for mount's
    stderr, or :class:`AttachError`.
    """
    client, target = attaching.client, attaching.target
    name = new_id()
    point = f"{RUN}/{name}"
    secret_file = f"{point}.secret" if request.secret else ""
    options = request.options(secret_file) if callable(request.options) else request.options
    mount = mount_argv(request.fstype, request.source, options)
    description = f"mount of {request.source} on {point}"
    with attaching.acquire(description, partial(release_argv, point, name, secret_file), REMOVAL_SECONDS):
        with attaching.step("mounting"):
            if request.secret:
                client.push(request.secret, secret_file, mode=0o600, deadline=attaching.deadline.remaining())
            done = attaching.run(["sh", "-c", ACQUIRE, "storagetest-mount", point, secret_file, *mount])
            if not done.ok:
                raise mount_error(done, [*mount, point], target, error_from_output)
            read_back = attaching.run(
                ["sh", "-c", READ_BACK, "storagetest-query", point, name, *request.files]
            )
        if read_back.status == 91:
            raise AttachError(
                f"{target}: root on {client.name} cannot make a directory there: {read_back.stderr.strip()}. "
                "Check that the export is writable and that root is not squashed to a user without access."
            )
        yield _as_mounted(read_back, target, point, name)


def _as_mounted(read_back: Completed, target: str, point: str, subdirectory: str) -> Mounted:
    sections = parse_sections(read_back.stdout)
    entries = [e for e in parse_mountinfo(sections.pop("/proc/self/mountinfo", "")) if e.point == point]
    free = sections.pop("size", "").split()
    if not entries or len(free) != 2:
        host, output = read_back.host, read_back.describe()
        raise AttachError(f"{target}: the mount on {host} is missing from its mount table: {output}")
    size = int(free[0]) * int(free[1])
    return Mounted(directory=f"{point}/{subdirectory}", size=size, entry=entries[-1], files=sections)
