"""Copying: a user writes, copies, reads and deletes a file or a directory."""

import pytest

pytestmark = pytest.mark.needs("filesystem")


@pytest.mark.parametrize("kind", ["large", "tree"])
def test_copy(measure, kind):
    """A large file, and a tree of small ones, are copied whole and as fast as is asked for."""
    measure("copy", kind=kind)
