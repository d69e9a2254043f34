"""A pytest plugin for the mutants' runs: on a mutant, only the cases that claim to kill it."""

from __future__ import annotations

import os

import pytest

HONEST = os.environ.get("STORAGETEST_HONEST", "honest").split(",")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    # Not before the plugin itself: pytest wants to rewrite what it imports.
    from storagetest.plugin.conformance import case_of
    from storagetest.plugin.matrix import item_variant

    kept, dropped = [], []
    for item in items:
        case, variant = case_of(item), item_variant(item)
        wanted = variant in HONEST or (case is not None and variant in case.kills)
        (kept if wanted else dropped).append(item)
    config.hook.pytest_deselected(items=dropped)
    items[:] = kept
