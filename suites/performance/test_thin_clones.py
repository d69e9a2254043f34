"""The space of thin clones."""

import pytest


@pytest.mark.parametrize("method", ["sparse", "reflink"])
def test_thin_clones(measure, method):
    """40 clones of one image: what they allocate, against their nominal size."""
    measure("thin-clones", method=method)
