"""Metadata: the operations of builds, mail stores and home directories between reads and writes."""

import pytest

pytestmark = pytest.mark.needs("filesystem")


@pytest.mark.parametrize("shared", [False, True], ids=["private", "shared"])
def test_metadata(measure, shared):
    """Every metadata operation, by several processes, in private and shared directories, meets its gates."""
    measure("metadata", shared=shared)


def test_metadata_deep(measure):
    """The same in a tree of directories, where names are looked up over several levels."""
    measure("metadata", depth=3, width=2, operations=["create", "open", "stat", "readdir", "unlink"])
