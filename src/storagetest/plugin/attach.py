"""Attach a variant for a case, skip if that is not possible, and fail on an option mismatch."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from storagetest.config import Variant
from storagetest.errors import ClientLacks, OptionRefused
from storagetest.hosts import Host
from storagetest.plugin.run_state import RunState
from storagetest.protocols.base import Attachment


@contextmanager
def attach_or_skip(variant: Variant, client: Host, state: RunState) -> Iterator[Attachment]:
    """Attach ``variant``. Skip if an option is refused, or if it is optional and the client lacks a tool."""
    try:
        with state.attach(variant, client) as attachment:
            yield attachment
    except OptionRefused as refused:
        pytest.skip(f"{variant.id}: {refused}")
    except ClientLacks as lacks:
        if not variant.optional:
            raise
        pytest.skip(f"{variant.id}: {lacks}")


def fail_on_option_mismatch(variant: Variant, attachment: Attachment) -> None:
    """Raise AssertionError if the attachment has other options than requested."""
    if attachment.mismatches:
        changed = "; ".join(map(str, attachment.mismatches))
        raise AssertionError(f"{variant.id} on {attachment.client.name}: silently changed: {changed}")
