"""Select the clients that a case runs on at the same time, and attach the variant on all of them.

The clients of a performance case are given by the first of

1. its mark ``clients`` (names, a number, or ``all``) or its mark ``scale`` (numbers; each is a case of its
   own);
2. ``--st-scale``;
3. the target's ``scale``;
4. the first client of its target.

So the clients of a case are known at collection, and are locked together before the case begins. Within a
case ``measure(…, clients=2)`` uses fewer of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from storagetest.concurrency import run_concurrently
from storagetest.config.base import BlockOptions
from storagetest.config.client_counts import ALL, how_many, read_counts
from storagetest.errors import ConfigError
from storagetest.plugin.attach import attach_or_skip
from storagetest.plugin.items import parameters_of

if TYPE_CHECKING:
    from storagetest.config import HostConfig, Variant
    from storagetest.plugin.run_state import RunState
    from storagetest.protocols.base import Attachment


def client_parameters(metafunc: pytest.Metafunc, variant: Variant, state: RunState) -> list[Any]:
    """Return one parameter for each number of clients; an empty list if the case runs on one client only.

    A parameter is a tuple of client names. If the variant has too few clients, it has a skip mark.
    """
    definition = metafunc.definition
    if not {"measure", "find_maximum"} & set(metafunc.fixturenames):
        return []
    machines = state.clients(variant)
    mark = definition.get_closest_marker("clients")
    if mark is not None:
        return [_by_mark(mark.args, variant, machines)]
    scale = definition.get_closest_marker("scale")
    counts = _counts(scale.args) if scale is not None else state.scale or variant.scale
    if counts == (1,):
        return []
    return [_parameter(how_many(count, len(machines)), variant, machines) for count in counts]


def _counts(arguments: Sequence[object]) -> tuple[int | str, ...]:
    try:
        return read_counts(list(arguments))
    except ValueError as error:
        raise ConfigError(f"mark scale{tuple(arguments)}: {error}") from None


def _by_mark(arguments: Sequence[object], variant: Variant, machines: Sequence[HostConfig]) -> Any:  # noqa: ANN401  # pytest.param's
    if len(arguments) == 1 and (arguments[0] == ALL or isinstance(arguments[0], int)):
        (count,) = _counts(arguments)
        return _parameter(how_many(count, len(machines)), variant, machines)
    known = {machine.name for machine in machines}
    lacking = [str(name) for name in arguments if name not in known]
    reason = _single_client_reason(variant, len(arguments))
    if lacking:
        reason = f"{variant.id} is not a target of {', '.join(lacking)}"
    return _param(tuple(map(str, arguments)), "-".join(map(str, arguments)), reason)


def _parameter(count: int, variant: Variant, machines: Sequence[HostConfig]) -> Any:  # noqa: ANN401  # pytest.param's
    name = f"{count}client{'s' * (count != 1)}"
    reason = _single_client_reason(variant, count)
    if count > len(machines):
        reason = (
            f"{variant.id} has {len(machines)} client{'s' * (len(machines) != 1)}, and the case needs {count}"
        )
    return _param(tuple(machine.name for machine in machines[:count]), name, reason)


def _param(names: tuple[str, ...], name: str, reason: str) -> Any:  # noqa: ANN401  # pytest.param's
    return pytest.param(names, id=name, marks=[pytest.mark.skip(reason=reason)] if reason else [])


def _single_client_reason(variant: Variant, count: int) -> str:
    """Return why the variant cannot be attached on ``count`` clients; empty: it can."""
    if count > 1 and isinstance(variant.options, BlockOptions) and variant.options.filesystem:
        return f"{variant.id}: a {variant.options.filesystem} on one device can be mounted by one client only"
    return ""


def item_machines(item: pytest.Item, variant: Variant, state: RunState) -> tuple[HostConfig, ...]:
    """Return the clients that ``item`` runs on at the same time."""
    return machines_of(parameters_of(item).get("clients"), variant, state)


def machines_of(names: Sequence[str] | None, variant: Variant, state: RunState) -> tuple[HostConfig, ...]:
    """Return the clients of a case's parameter; without one, the variant's client."""
    if names is None:
        return (state.client(variant),)
    known = {machine.name: machine for machine in variant.clients}
    return tuple(known[name] for name in names)


@contextmanager
def attach_other_clients(
    variant: Variant, machines: Sequence[HostConfig], first: Attachment, state: RunState
) -> Iterator[tuple[Attachment, ...]]:
    """Attach ``variant`` on all but the first of ``machines``, concurrently, and yield all attachments."""
    stacks = [ExitStack() for _ in machines[1:]]

    def attach(number: int) -> Attachment:
        return stacks[number].enter_context(attach_or_skip(variant, state.host(machines[number + 1]), state))

    def release() -> None:
        run_concurrently(ExitStack.close, stacks, name="release")

    with ExitStack() as cleanup:
        cleanup.callback(release)
        yield (first, *run_concurrently(attach, range(len(stacks)), name="attach"))


def select_attachments(
    wanted: object, attachments: Sequence[Attachment], variant: Variant
) -> Sequence[Attachment]:
    """Return those of the case's attachments that ``measure(…, clients=wanted)`` selects."""
    if wanted is None or wanted == ALL:
        return attachments
    if isinstance(wanted, int) and not isinstance(wanted, bool) and 1 <= wanted <= len(attachments):
        return attachments[:wanted]
    named = {attachment.client.name: attachment for attachment in attachments}
    if isinstance(wanted, list | tuple) and wanted and all(name in named for name in wanted):
        return [named[name] for name in dict.fromkeys(wanted)]
    raise ConfigError(
        f"{variant.id}: clients={wanted!r}: the case has only {', '.join(named)}. Mark it with"
        ' @pytest.mark.clients("all") for more'
    )
