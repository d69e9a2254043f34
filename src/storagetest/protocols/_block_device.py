"""Data safety of block targets, and what is done with a device once it is known to be ours.

A device is overwritten only when all of this holds, checked on the client right before the first write:

1. the target's ``erase`` names this very device: its identity (WWID), exactly;
2. it is a whole disk without partitions, and writable;
3. nothing holds it: no mount, swap, device mapper, MD or multipath, the kernel grants O_EXCL, and the client
   has the same disk by no other way (a second session, where all these might hold it);
4. it carries no signature, except a file system of ours: the label ``storagetest`` marks a leftover.

Afterwards every signature is wiped and the first and last MiB are zeroed, so what a workload wrote can never
look like somebody's data. Where the target died meanwhile that is left out: the next attach finds either no
signature or our label.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from storagetest.config.base import BlockOptions
from storagetest.errors import AttachError, DataAtRisk, TargetDead
from storagetest.hosts import Completed, Host
from storagetest.protocols import _device_probe
from storagetest.protocols._acquire import MIN_RELEASE_SECONDS, WITHIN, Attaching, Deadline, as_target_dead, release_after
from storagetest.protocols._mount import MountRequest, mounted
from storagetest.protocols.base import Attachment, AttachmentKind, Capability, OptionMismatch

__all__ = [
    "LABEL",
    "DeviceFacts",
    "block_capabilities",
    "leased_device",
    "parse_facts",
    "refusal_reason",
    "required_tools",
]

LABEL = "storagetest"
"""The label of every file system of ours; xfs allows 12 characters."""

CLEAR_SECONDS = 10
"""How long writing 2 MiB may take before the target is taken to be dead."""

_MKFS = {
    "ext4": ["mkfs.ext4", "-q", "-F", "-L", LABEL, "-E", "nodiscard,lazy_itable_init=0,lazy_journal_init=0"],
    "xfs": ["mkfs.xfs", "-q", "-f", "-K", "-L", LABEL],
}


def required_tools(options: BlockOptions) -> list[str]:
    """Return the commands that lending a device with these options wants on the client."""
    return ["python3", "wipefs", *([_MKFS[options.filesystem][0]] if options.filesystem else [])]


@dataclass(frozen=True, slots=True)
class DeviceFacts:
    """What the client says of a device: see :func:`storagetest.protocols._device_probe.facts`."""

    path: str
    identity: str
    size: int
    read_only: bool
    partition: bool
    partitions: tuple[str, ...]
    holders: tuple[str, ...]
    mounts: tuple[str, ...]
    swap: bool
    same_disks: tuple[str, ...]
    busy: str
    signatures: tuple[tuple[str, str], ...]
    problem: str = ""


def parse_facts(text: str) -> DeviceFacts:
    """Parse the JSON object; a device that could not be examined is an :class:`AttachError`."""
    found: Mapping[str, Any] = json.loads(text)
    if "path" not in found:
        raise AttachError(str(found["problem"]))
    return DeviceFacts(
        **{
            **found,
            **{key: tuple(found[key]) for key in ("partitions", "holders", "mounts", "twins")},
            "signatures": tuple((one["type"], one["label"]) for one in found["signatures"]),
        }
    )


def refusal_reason(facts: DeviceFacts, erase: str | None) -> str | None:
    """Say why the device may not be overwritten, or None when it may."""
    where = f"{facts.path}, identity {facts.identity!r},"
    line = f"\n    erase: {json.dumps(facts.identity)}"
    in_use = _in_use(facts)
    if not facts.identity:
        return f"{facts.path} has no identity (WWID or serial number), so it cannot be named for certain"
    if in_use:
        return f"{where} may hold somebody's data: {in_use}"
    if erase is None:
        return (
            f"{where} is {facts.size} bytes and may be overwritten only if you say so. "
            f"Put this line under the target in targets.yaml:{line}"
        )
    if erase != facts.identity:
        return (
            f"`erase` names another device than the one found: it says {erase!r}, but found is {where} "
            f"{facts.size} bytes. If that one may be overwritten:{line}"
        )
    return f"{where} is read-only" if facts.read_only else None


def _in_use(facts: DeviceFacts) -> str:
    """Say what shows that somebody may need the device; the first sign is enough, the plainest first."""
    foreign = [
        kind + (f" (label {label!r})" if label else "")
        for kind, label in facts.signatures
        if not label.startswith(LABEL)
    ]
    signs = [
        (facts.mounts, f"it is mounted on {', '.join(facts.mounts)}"),
        (facts.swap, "it is in use as swap space"),
        (facts.holders, f"it is held by {', '.join(facts.holders)} (device mapper, LVM, MD or multipath)"),
        (facts.same_disks, f"the client has the same disk by another way too, as {', '.join(facts.same_disks)}"),
        (facts.partition, "it is a partition, not a whole disk"),
        (facts.partitions, f"it has partitions: {', '.join(facts.partitions)}"),
        (facts.busy, f"the kernel does not lend it exclusively: {facts.busy}"),
        (facts.problem, facts.problem),
        (
            foreign,
            f"it carries a signature: {', '.join(foreign)}. If nobody needs it: wipefs -a {facts.path}",
        ),
    ]
    return next((words for sign, words in signs if sign), "")


def block_capabilities(options: BlockOptions) -> frozenset[Capability]:
    """Return ``block``, or ``filesystem`` when one is to be made on the device."""
    return frozenset({"filesystem" if options.filesystem else "block"})


@contextmanager
def leased_device(
    attaching: Attaching,
    device: str,
    options: BlockOptions,
    negotiated: Mapping[str, str],
    differences: tuple[OptionMismatch, ...] = (),
) -> Iterator[Attachment]:
    """Check ``device`` by the rules above, make the file system if asked for, yield, and clear it.

    Raises :class:`DataAtRisk`, :class:`TargetDead` at the deadline, or :class:`AttachError`.
    """
    client, target, kind = attaching.client, attaching.target, options.filesystem
    with attaching.step("examining the disk"):
        facts = _examine(attaching, device, options)
        if kind:
            made = attaching.run([*_MKFS[kind], facts.path])
            if not made.ok:
                raise AttachError(f"{target}: no {kind} could be made on it: {made.describe()}")
        elif facts.signatures:
            cleared = _clear(client, facts, CLEAR_SECONDS)
            if not cleared.ok:
                msg = f"{target}: {client.name}: what is left of ours could not be cleared: {cleared.stdout}"
                raise AttachError(msg)
    died = False

    def clear() -> None:
        if not died:
            _clear_after_use(client, facts, target, attaching.releasing)

    with release_after(clear):
        try:
            if kind is None:
                yield Attachment(
                    client, facts.path, AttachmentKind.BLOCK, facts.size, negotiated, differences
                )
                return
            with mounted(attaching, MountRequest(kind, facts.path, ["noatime"])) as mount:
                more = {**negotiated, "filesystem": kind}
                yield Attachment(
                    client, mount.directory, AttachmentKind.FILESYSTEM, mount.size, more, differences
                )
        except TargetDead:
            died = True
            raise


def _examine(attaching: Attaching, device: str, options: BlockOptions) -> DeviceFacts:
    client, target, source = attaching.client, attaching.target, Path(_device_probe.__file__).read_bytes()
    argv, seconds = ["python3", "-", "facts", device], attaching.deadline.remaining()
    done = client.run(argv, stdin=source, deadline=seconds, check=False)
    if not done.ok:
        msg = f"{target}: {device} could not be examined, so it is left alone: {done.describe()}"
        raise AttachError(msg)
    try:
        facts = parse_facts(done.stdout)
    except AttachError as error:
        raise AttachError(f"{target}: {client.name}: {error}") from None
    why = refusal_reason(facts, options.erase)
    if why is not None:
        raise DataAtRisk(f"{target}: {client.name}: {why}", facts=facts)
    return facts


CLEAR_SCRIPT = WITHIN + 'within "$1" python3 -c "$2" clear "$3" "$4"; status=$?; tail -n 2 "$log"; exit $status'


def _clear(client: Host, facts: DeviceFacts, seconds: int) -> Completed:
    """Clear the device. A disk whose target died may hold the program in the kernel: it is not waited for."""
    source = Path(_device_probe.__file__).read_text()
    argv = ["bash", "-c", CLEAR_SCRIPT, "storagetest-clear", str(seconds), source, facts.path, facts.identity]
    return client.run(argv, deadline=seconds + 10, check=False)


def _clear_after_use(client: Host, facts: DeviceFacts, target: str, releasing: Deadline) -> None:
    with as_target_dead(client, target, releasing, "clearing the disk"):
        done = _clear(client, facts, int(min(CLEAR_SECONDS, releasing.at_least(MIN_RELEASE_SECONDS))))
    said = " ".join(done.stdout.split())
    if done.status in {_device_probe.DEVICE_GONE, 124, 137}:
        msg = f"{target} no longer answers {client.name}: {facts.path} could not be cleared ({said})"
        raise TargetDead(msg)
    if not done.ok:
        msg = f"{target}: {client.name}: what was written on {facts.path} could not be cleared: {said}"
        raise AttachError(msg)
