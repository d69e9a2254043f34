"""PostMark: the small files of a mail server, created, read, appended to and deleted."""

import pytest

pytestmark = pytest.mark.needs("filesystem")


@pytest.mark.parametrize("write_block", ["512B", "4KiB", "16KiB", "64KiB"])
def test_postmark(measure, write_block):
    """Transactions on a pool of small files meet their gates, whatever size the program writes in."""
    measure("postmark", write_block=write_block)
