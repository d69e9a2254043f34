"""Streaming: readers that take a frame at fixed times, each with a deadline."""

import pytest


@pytest.mark.parametrize("streams", [4, 16])
def test_streaming(measure, streams):
    """Fixed-rate readers miss no more deadlines, and wait no longer, than their gates allow."""
    measure("streaming", streams=streams)
