"""Data safety of block targets: check a device, prepare it, and clear it after use.

A device is overwritten only if all these conditions hold, checked on the client before the first write:

1. the target's ``erase`` is exactly the device's identity (WWID);
2. the device is a whole disk without partitions, and writable;
3. the device is not in use: no mount, swap, device mapper, MD or multipath; the kernel grants O_EXCL; and no
   other device node of the client (for example of a second session) is the same disk;
4. the device has no signature, except a file system with the label ``storagetest``, which is a leftover.

After use all signatures are wiped and the first and last MiB are zeroed, so written data does not look like a
file system. If the target died, this step is skipped: the next attach finds no signature or our label.
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
from storagetest.protocols._acquire import (
    MIN_RELEASE_SECONDS,
    WITHIN,
    Attaching,
    Deadline,
    as_target_dead,
    release_after,
)
from storagetest.protocols._mount import MountRequest, mounted
from storagetest.protocols.base import Attachment, AttachmentKind, Capability, OptionMismatch

LABEL = "storagetest"
"""Label of the file systems that storagetest makes; xfs allows 12 characters."""

CLEAR_SECONDS = 10
"""Seconds for writing 2 MiB before the target counts as dead (chosen)."""

_MKFS = {
    "ext4": ["mkfs.ext4", "-q", "-F", "-L", LABEL, "-E", "nodiscard,lazy_itable_init=0,lazy_journal_init=0"],
    "xfs": ["mkfs.xfs", "-q", "-f", "-K", "-L", LABEL],
}


def required_tools(options: BlockOptions) -> list[str]:
    """Return the commands that the client needs to use a device with these options."""
    return ["python3", "wipefs", *([_MKFS[options.filesystem][0]] if options.filesystem else [])]


@dataclass(frozen=True, slots=True)
class DeviceFacts:
    """Facts about a device, from :func:`storagetest.protocols._device_probe.facts` on the client."""

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
    """Parse the JSON object. Raises :class:`AttachError` if the device could not be examined."""
    try:
        fields: Mapping[str, Any] = json.loads(text)
        if "path" in fields:
            return DeviceFacts(
                **{
                    **fields,
                    **{key: tuple(fields[key]) for key in ("partitions", "holders", "mounts", "same_disks")},
                    "signatures": tuple((entry["type"], entry["label"]) for entry in fields["signatures"]),
                }
            )
        problem = str(fields["problem"])
    except (ValueError, LookupError, TypeError, AttributeError):
        problem = f"the examination of the device returned no facts, so it is not used: {text[:200]!r}"
    raise AttachError(problem)


def refusal_reason(facts: DeviceFacts, erase: str | None) -> str | None:
    """Return why the device may not be overwritten, or None if it may."""
    where = f"{facts.path}, identity {facts.identity!r},"
    line = f"\n    erase: {json.dumps(facts.identity)}"
    in_use = _in_use(facts)
    if not facts.identity:
        return f"{facts.path} has no identity (WWID or serial number), so `erase` cannot name it"
    if in_use:
        return f"{where} may contain data that is in use: {in_use}"
    if erase is None:
        return (
            f"{where} {facts.size} bytes, is not overwritten without `erase`. "
            f"To permit it, add this line to the target in targets.yaml:{line}"
        )
    if erase != facts.identity:
        return (
            f"`erase` names another device than the attached one: it is {erase!r}, the device is {where} "
            f"{facts.size} bytes. If this device may be overwritten:{line}"
        )
    return f"{where} is read-only" if facts.read_only else None


def _in_use(facts: DeviceFacts) -> str:
    """Return the first sign that the device is in use, the most obvious first; "" if there is none."""
    foreign = [
        kind + (f" (label {label!r})" if label else "") for kind, label in facts.signatures if label != LABEL
    ]
    signs = [
        (facts.mounts, f"it is mounted on {', '.join(facts.mounts)}"),
        (facts.swap, "it is in use as swap space"),
        (facts.holders, f"it is in use by {', '.join(facts.holders)} (device mapper, LVM, MD or multipath)"),
        (facts.same_disks, f"the client has the same disk also as {', '.join(facts.same_disks)}"),
        (facts.partition, "it is a partition, not a whole disk"),
        (facts.partitions, f"it has partitions: {', '.join(facts.partitions)}"),
        (facts.busy, f"the kernel refuses exclusive access: {facts.busy}"),
        (facts.problem, facts.problem),
        (foreign, f"it has a signature: {', '.join(foreign)}. If it is not needed: wipefs -a {facts.path}"),
    ]
    return next((text for sign, text in signs if sign), "")


def block_capabilities(options: BlockOptions) -> frozenset[Capability]:
    """Return ``block``, or ``filesystem`` if the options make one on the device."""
    return frozenset({"filesystem" if options.filesystem else "block"})


@contextmanager
def leased_device(
    attaching: Attaching,
    device: str,
    options: BlockOptions,
    negotiated: Mapping[str, str],
    mismatches: tuple[OptionMismatch, ...] = (),
) -> Iterator[Attachment]:
    """Check ``device`` by the rules above, make the requested file system, yield, and clear the device.

    Raises :class:`DataAtRisk`, :class:`TargetDead` at the deadline, or :class:`AttachError`.
    """
    client, target, kind = attaching.client, attaching.target, options.filesystem
    with attaching.step("examining the disk"):
        facts = _examine(attaching, device, options)
        if kind:
            mkfs = attaching.run([*_MKFS[kind], facts.path])
            if not mkfs.ok:
                raise AttachError(f"{target}: making {kind} on {facts.path} failed: {mkfs.describe()}")
        elif facts.signatures:
            cleared = _clear(client, facts, CLEAR_SECONDS)
            if not cleared.ok:
                raise AttachError(f"{target}: {client.name}: clearing leftover data failed: {cleared.stdout}")
    target_died = False

    def clear() -> None:
        if not target_died:
            _clear_after_use(client, facts, target, attaching.release_deadline)

    with release_after(clear):
        try:
            if kind is None:
                yield Attachment(client, facts.path, AttachmentKind.BLOCK, facts.size, negotiated, mismatches)
                return
            with mounted(attaching, MountRequest(kind, facts.path, ["noatime"])) as mount:
                more = {**negotiated, "filesystem": kind}
                yield Attachment(
                    client, mount.directory, AttachmentKind.FILESYSTEM, mount.size, more, mismatches
                )
        except TargetDead:
            target_died = True
            raise


def _examine(attaching: Attaching, device: str, options: BlockOptions) -> DeviceFacts:
    client, target, source = attaching.client, attaching.target, Path(_device_probe.__file__).read_bytes()
    argv, seconds = ["python3", "-", "facts", device], attaching.deadline.remaining()
    done = client.run(argv, stdin=source, deadline=seconds, check=False)
    if not done.ok:
        raise AttachError(f"{target}: examining {device} failed, so it is not used: {done.describe()}")
    try:
        facts = parse_facts(done.stdout)
    except AttachError as error:
        raise AttachError(f"{target}: {client.name}: {error}") from None
    reason = refusal_reason(facts, options.erase)
    if reason is not None:
        raise DataAtRisk(f"{target}: {client.name}: {reason}", facts=facts)
    return facts


CLEAR_SCRIPT = (
    WITHIN + 'within "$1" python3 -c "$2" clear "$3" "$4"; status=$?; tail -n 2 "$log"; exit $status'
)


def _clear(client: Host, facts: DeviceFacts, seconds: int) -> Completed:
    """Clear the device. Does not wait for a command that is stuck in the kernel after the target died."""
    source = Path(_device_probe.__file__).read_text()
    argv = ["bash", "-c", CLEAR_SCRIPT, "storagetest-clear", str(seconds), source, facts.path, facts.identity]
    return client.run(argv, deadline=seconds + 10, check=False)


def _clear_after_use(client: Host, facts: DeviceFacts, target: str, release_deadline: Deadline) -> None:
    with as_target_dead(client, target, release_deadline, "clearing the disk"):
        done = _clear(client, facts, int(min(CLEAR_SECONDS, release_deadline.at_least(MIN_RELEASE_SECONDS))))
    output = " ".join(done.stdout.split())
    if done.status in {_device_probe.DEVICE_GONE, 124, 137}:
        raise TargetDead(
            f"{target} no longer responds to {client.name}: clearing {facts.path} failed ({output})"
        )
    if not done.ok:
        raise AttachError(f"{target}: {client.name}: clearing {facts.path} after use failed: {output}")
