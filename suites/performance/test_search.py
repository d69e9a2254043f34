"""Searches for the most bandwidth: the entries under `searches` of the targets file."""

import pytest


@pytest.mark.clients("all")
def test_search(find_maximum, search_plan):
    """The best combination of the listed values meets the gates of its workload."""
    values = {name: list(listed) for name, listed in search_plan.values.items()}
    find_maximum(
        search_plan.workload,
        strategy=search_plan.strategy,
        start=search_plan.start,
        **search_plan.parameters,
        **values,
    )
