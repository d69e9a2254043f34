"""A plugin of the mutants' run: on the target of a mutant only the cases that claim to kill it are run."""

from __future__ import annotations

import pytest

PREFIX = "m-"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    from storagetest.plugin.conformance import case_of  # not before pytest has rewritten the plugin's asserts

    kept, dropped = [], []
    for item in items:
        variant = getattr(item, "callspec", None) and item.callspec.params.get("variant", "")
        case = case_of(item)
        if (
            variant
            and variant.startswith(PREFIX)
            and (case is None or variant.removeprefix(PREFIX) not in case.kills)
        ):
            dropped.append(item)
        else:
            kept.append(item)
    config.hook.pytest_deselected(items=dropped)
    items[:] = kept
