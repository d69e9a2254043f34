"""Comparisons of two variants on one client, in interleaved pairs (`comparisons` of the targets file)."""


def test_comparison(comparison):
    """The two stand to each other as is asked for."""
    comparison()
