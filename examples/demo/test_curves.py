"""One target under a growing load."""


def test_multi_user(measure):
    """From 1 to 8 threads: the scaling curve, and the knee beyond which more threads gain little."""
    measure("multi-user", levels=[1, 2, 4, 8], read_percent=100)
