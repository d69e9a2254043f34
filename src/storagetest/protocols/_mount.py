"""Mounting on a client: an own mount point, an own directory beneath it, and a proof that both are gone.

The mount point is ``/run/storagetest/<id>``; the directory that cases may use is ``<id>`` on the target's own
file system, so nothing of anybody's is touched and two clients never meet by accident. Releasing goes in
steps of growing force, each bounded (see :mod:`storagetest.protocols._acquire`): empty and remove the
directory, unmount, unmount by force and lazily; then the mount table is read, and only what it says counts.
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
from storagetest.protocols._acquire import FORCED, LEFT_ON_TARGET, RUN, WITHIN, Attaching, new_id

__all__ = ["MountEntry", "MountRequest", "Mounted", "mounted", "parse_mountinfo"]


@dataclass(frozen=True, slots=True)
class MountEntry:
    """One line of /proc/self/mountinfo (proc(5)), of which this is what we use.

    ``options`` are those of the super block; a flag without a value has the value "".
    """

    device: str
    point: str
    fstype: str
    source: str
    options: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class MountRequest:
    """What is mounted. A ``secret`` goes into a file of mode 0600 for as long as mount(8) runs.

    ``options`` are mount's, or what makes them of the path of that file. ``files`` are read right after the
    mount.
    """

    fstype: str
    source: str
    options: Callable[[str], Sequence[str]] | Sequence[str]
    secret: bytes = b""
    files: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Mounted:
    """A file system of ours: ``directory`` is where cases may write, ``size`` the bytes free there.

    ``files`` are the texts of the files that were asked for, as they read right after the mount.
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

READ_BACK = r"""
point=$1 own=$2
shift 2
mkdir "$point/$own" || exit 91
echo "== size"
stat -f -c '%a %S' "$point"
for file in /proc/self/mountinfo "$@"; do
    echo "== $file"
    cat "$file"
done
"""

RELEASE = (
    WITHIN
    + f"""
point=$1 own=$2 secret=$3 limit=$4
[ -z "$secret" ] || rm -f "$secret"
mounted() {{ [[ $(</proc/self/mountinfo) == *" $point "* ]]; }}
status=0 stuck=
if mounted; then
    within "$limit" rm -rf --one-file-system "$point/$own"
    case $? in
        0) ;;
        124 | 137) stuck=yes ;;
        *) status={LEFT_ON_TARGET} ;;
    esac
    [ -n "$stuck" ] || within "$limit" umount "$point" || stuck=yes
    if [ -n "$stuck" ]; then
        status={FORCED}
        # Both detach at once, and then may wait for the server for long: it is the mount table that counts.
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
    """Parse /proc/self/mountinfo: one entry a line, in the kernel's order."""
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


def parse_sections(text: str) -> dict[str, str]:
    """Parse what the read-back script prints: lines ``== NAME``, each followed by that file's text."""
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


def release_argv(point: str, own: str, secret: str, seconds: int) -> list[str]:
    """Build the command that releases within ``seconds``, some of them for what is done by force.

    A step that hangs is the last gentle one: the other is not tried then.
    """
    limit = max(1, (seconds - 8) // 2)
    return ["bash", "-c", RELEASE, "storagetest-unmount", point, own, secret, str(limit)]


def mount_error(
    done: Completed, mount: Sequence[str], target: str, explain: Callable[[str], StoragetestError | None]
) -> StoragetestError:
    """Return the error for a mount that failed; ``explain`` knows the protocol's words."""
    known = explain(done.stderr)
    if known is not None:
        return known
    lacking = re.search(r"unknown filesystem type|need a /s?bin/mount\.|No such device", done.stderr)
    if lacking:
        return ClientLacks(f"{target}: {done.host} cannot mount this file system: {done.stderr.strip()}")
    tail = "\n".join(done.stderr.strip().splitlines()[-4:])
    return AttachError(f"{target}: {done.host}: `mount {shlex.join(mount)}` exited {done.status}: {tail}")


@contextmanager
def mounted(
    attaching: Attaching,
    request: MountRequest,
    explain: Callable[[str], StoragetestError | None] = lambda _: None,
) -> Iterator[Mounted]:
    """Mount, make the own directory, read back, yield, release and prove it.

    Raises :class:`TargetDead` at the deadline, what ``explain`` makes of mount's stderr, or
    :class:`AttachError`.
    """
    client, target = attaching.client, attaching.target
    name = new_id()
    point = f"{RUN}/{name}"
    hidden = f"{point}.secret" if request.secret else ""
    options = request.options(hidden) if callable(request.options) else request.options
    mount = mount_argv(request.fstype, request.source, options)
    what = f"mount of {request.source} on {point}"
    with attaching.acquire(what, partial(release_argv, point, name, hidden)):
        with attaching.step("mounting"):
            if request.secret:
                client.push(request.secret, hidden, mode=0o600, deadline=attaching.deadline.remaining())
            done = attaching.run(["sh", "-c", ACQUIRE, "storagetest-mount", point, hidden, *mount])
            if not done.ok:
                raise mount_error(done, [*mount, point], target, explain)
            seen = attaching.run(["sh", "-c", READ_BACK, "storagetest-look", point, name, *request.files])
        if seen.status == 91:
            msg = (
                f"{target}: root on {client.name} may not make a directory there: {seen.stderr.strip()}. "
                "Is it exported read-only, or with root squashed into a directory that is not writable?"
            )
            raise AttachError(msg)
        yield _as_mounted(seen, target, point, name)


def _as_mounted(seen: Completed, target: str, point: str, own: str) -> Mounted:
    sections = parse_sections(seen.stdout)
    entries = [e for e in parse_mountinfo(sections.pop("/proc/self/mountinfo", "")) if e.point == point]
    free = sections.pop("size", "").split()
    if not entries or len(free) != 2:
        msg = f"{target}: {seen.host} mounted it, but its mount table does not show it: {seen.describe()}"
        raise AttachError(msg)
    size = int(free[0]) * int(free[1])
    return Mounted(directory=f"{point}/{own}", size=size, entry=entries[-1], files=sections)
