"""The sides of an experiment: variants by role, with the options that the experiment asks for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pydantic import ValidationError

from storagetest.config import HostConfig, Variant
from storagetest.config.base import BlockOptions
from storagetest.config.matrix import parts
from storagetest.config.validation import first_message
from storagetest.plugin.run_state import RunState
from storagetest.protocols.base import protocols

_MEMORY = "memory"
_MEMORY_PATH = "/dev/shm"  # noqa: S108  # the memory file system that every Linux client has


@dataclass(frozen=True, slots=True)
class Side:
    """A target in a role: its variant and the clients, or the reason why there is none."""

    name: str
    variant: Variant | None
    machines: tuple[HostConfig, ...] = ()
    reason: str = ""


def resolve(name: str, role: str, options: Mapping[str, Any], clients: int, state: RunState) -> Side:
    """Return the side ``name``; it has ``options`` in addition to those of its role's variant."""
    variant = state.config.roles.get(role) or (_memory(state) if role == _MEMORY else None)
    if variant is None:
        return Side(name, None, reason=f"no target has the role {role} (`roles` in the targets file)")
    if variant.id not in state.variants:
        return Side(name, None, reason=f"--st-target leaves out {variant.id}, which has the role {role}")
    if options:
        dumped = {**variant.options.model_dump(exclude_unset=True), **options}
        try:
            changed = type(variant.options).model_validate(dumped)
        except ValidationError as error:
            return Side(name, None, reason=f"{variant.id}: {first_message(error)}")
        varied = list(dict.fromkeys((*variant.matrix, *options)))
        identity = "-".join((variant.target, *parts(changed, varied).values()))
        variant = replace(variant, id=identity, options=changed)
    reason = state.failure_reason(variant) or ""
    machines = state.clients(variant)
    if len(machines) < clients:
        reason = (
            f"{variant.id} has {len(machines)} client{'s' * (len(machines) != 1)}, and {clients} are needed"
        )
    return Side(name, None if reason else variant, machines[:clients], reason)


def _memory(state: RunState) -> Variant:
    """Return the memory file system of the first client as a variant."""
    local = protocols.get("local")
    options = local.Options.model_validate({"path": _MEMORY_PATH})
    first = next(iter(state.config.variants))
    variant = replace(
        first,
        id=_MEMORY,
        target=_MEMORY,
        protocol=local.name,
        options=options,
        server=None,
        optional=False,
        thresholds=(),
        matrix={},
        same_data=None,
    )
    state.variants.setdefault(variant.id, variant)
    return variant


def groups(sides: Iterable[Side]) -> list[list[Side]]:
    """Return the sides in groups that can be attached at the same time: each target is in a group once.

    One device cannot be attached twice, and a first mount may determine options of a second one.
    """
    found: list[list[Side]] = []
    for side in sides:
        if side.variant is None:
            continue
        group = next((each for each in found if not _conflicts(side.variant, each)), None)
        if group is None:
            found.append([side])
        else:
            group.append(side)
    return found


def _conflicts(variant: Variant, group: Sequence[Side]) -> bool:
    device = variant.options.erase if isinstance(variant.options, BlockOptions) else None
    for side in group:
        other = side.variant
        if other is None:
            continue
        same = isinstance(other.options, BlockOptions) and other.options.erase == device
        if other.target == variant.target or (device is not None and same):
            return True
    return False
