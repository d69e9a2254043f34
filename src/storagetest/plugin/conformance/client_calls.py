"""Which items are system-call cases, and what is sent of them; they are run by the plugin ``on_client``.

This is no plugin itself: who is loaded before the plugins may ask it.
"""

from __future__ import annotations

import json

import pytest

from storagetest.plugin.parametrize import item_variant
from storagetest.runner.client_cases import ClientCase

__all__ = ["GIVEN", "client_call", "declared_arguments", "same_batch"]

GIVEN = ("client_dir", "block_range")
"""The fixtures that stand for a place on the client."""
_FIXTURES = "storagetest.plugin.conformance.client_cases"


def same_batch(item: pytest.Item, following: pytest.Item | None) -> bool:
    """Whether both are cases that go to a client in one round trip, where the first one does."""
    if following is None or item_variant(item) != item_variant(following):
        return False
    return client_call(item) is not None and client_call(following) is not None


def client_call(item: pytest.Item) -> ClientCase | None:
    """Return the call that ``item`` is on a client, or None where it runs here.

    Raises :class:`pytest.UsageError` where it takes what cannot be sent there.
    """
    if not isinstance(item, pytest.Function):
        return None
    names = declared_arguments(item)
    gives = [name for name in names if name in GIVEN and _is_ours(item, name)]
    if not gives:
        return None
    callspec = getattr(item, "callspec", None)
    arguments = {name: callspec.params[name] for name in names if callspec and name in callspec.params}
    strange = [name for name in names if name not in {*arguments, gives[0]}]
    if strange or item.cls is not None:
        raise pytest.UsageError(
            f"{item.nodeid}: a body that runs on a client is a function of `{gives[0]}` and of parameters; "
            f"this one {'takes ' + ', '.join(strange) if strange else 'stands in a class'}"
        )
    try:
        json.dumps(arguments)
    except (TypeError, ValueError) as error:
        raise pytest.UsageError(
            f"{item.nodeid}: its parameters cannot be sent to a client: {error}"
        ) from None
    alone = item.get_closest_marker("alone") is not None
    return ClientCase(item.nodeid, item.path, item.originalname, arguments, gives[0], alone)


def declared_arguments(item: pytest.Function) -> tuple[str, ...]:
    """Return the fixtures and parameters that the function itself names."""
    return item._fixtureinfo.argnames  # noqa: SLF001  # what the function itself names; there is no other way


def _is_ours(item: pytest.Function, name: str) -> bool:
    """Whether the fixture is the plugin's, and not a suite's own of the same name."""
    definitions = item._fixtureinfo.name2fixturedefs.get(name, ())  # noqa: SLF001  # as above
    return bool(definitions) and definitions[-1].func.__module__ == _FIXTURES
