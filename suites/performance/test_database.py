"""A database: commits that wait for the log, with concurrent reads and writes of pages."""

import pytest


@pytest.mark.parametrize("page_size", ["8KiB", "16KiB"])
def test_database(measure, page_size):
    """Commits and random pages, at once, meet their gates."""
    measure("database", page_size=page_size)
