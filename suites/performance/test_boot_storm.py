"""Boot storm: many virtual machines start at the same time."""


def test_boot_storm(measure):
    """Twenty machines boot from clones of one image within the time that is asked for."""
    measure("boot-storm", vms=20)
