"""Comparisons: two variants on one client, measured in turns, as the targets file's `comparisons` ask for."""


def test_comparison(comparison):
    """The two stand to each other as is asked for."""
    comparison()
